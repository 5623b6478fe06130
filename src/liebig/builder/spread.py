"""The unit of the vectors' scores in a hybrid, measured on the whole index (`systems.weighted` with the norm `spread`).

The check compares systems on a pool of a few thousand passages. In an index of ten times as many, the tenth hit is
nearer to the first, so the unit of the pool would be too large there, and the vectors would count for too little. This
stage asks the questions of the check again, of the index that will answer, and writes the unit to `spread.json`; builds
run it after the index is made, updates after it has changed. The questions are those in the folder of the check, which
stays when `work/` is deleted: made-up ones, and a user's own. Cost: a few hundred questions, encoded and searched once.

An encoder that was trained on the user's questions has them stand out: on SciFact the unit would be .505, where other
questions of people have .387. There the unit of the check counts (.364), which is cross-fitted.
"""

from __future__ import annotations

import json
from pathlib import Path

from pydantic import Field

from liebig.base.config import Config, InputPath
from liebig.base.pipeline import Stage
from liebig.base.records import Query
from liebig.base.workspace import Folder
from liebig.builder.check import EncodedOnce, enough, read as read_check
from liebig.builder.judge import unit_of
from liebig.builder.questions import OWN, QUESTIONS, read as read_questions
from liebig.builder.runner import Builder
from liebig.search.systems import SPREAD_RANK

SPREAD = "spread.json"


class SpreadConfig(Config):
    """By how much the best hits of an index stand out."""

    questions: InputPath = Field(description="Folder with the questions that are asked: that of the check.")
    index: InputPath = Field(description="Vectors of all passages.")
    model: InputPath = Field(description="The model that encodes questions.")


def write_spread(config: SpreadConfig, folder: Folder) -> None:
    """Ask the questions, and write the unit of the scores."""
    questions = enough(read_questions(config.questions))
    queries = [Query(str(number), question.text) for number, question in enumerate(questions)]
    system = EncodedOnce().system(config.index, config.model)
    hits = system.search(queries, SPREAD_RANK) if queries else []
    folder.write_json(SPREAD, {"spread": unit_of(questions, hits), "questions": len(questions)})


STAGE = Stage("spread", SpreadConfig, write_spread, part_of="build")


def measure_spread(builder: Builder, checks: Path, index: Path, model: Path) -> float | None:
    """The unit of an index's scores.

    None where the encoder was trained on the questions, and where the folder of the check has none, as earlier versions
    wrote.
    """
    if not (checks / QUESTIONS).is_file() or read_check(checks)["choice"]["encoder"] == OWN:
        return None
    fields = {"questions": str(checks), "index": str(index), "model": str(model)}
    written = json.loads((builder.work("spread", fields) / SPREAD).read_text(encoding="utf-8"))
    return float(written["spread"])
