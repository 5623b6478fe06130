"""The unit of the vectors' scores in a hybrid, measured over all passages (`fusion.weighted` with the norm `spread`).

The check compares systems on a pool of at most 3,000 passages. In an index of ten times as many, the tenth hit is
nearer to the first, so the unit of the pool would be too large there, and the vectors would count for too little. This
stage asks the questions of the check of all passages and writes the unit to `spread.json`. Builds run it before the
check, which then compares the hybrid with the unit that it is served with; updates run it after the index has changed,
with the questions in the folder of the check, which stays when `work/` is deleted. Cost: a few hundred questions,
encoded and searched once.

Only the encoder before training has vectors of all passages by then; others are compared and served with the unit of
the pool. So is one that was trained on the user's questions, which stand out for it: on SciFact the unit would be .505,
where other questions of people have .387. The check's is cross-fitted (.364).
"""

from __future__ import annotations

from liebig.base.config import Config, InputPath
from liebig.base.pipeline import Stage
from liebig.base.records import Query
from liebig.base.workspace import Folder
from liebig.builder.check import SPREAD, EncodedOnce, enough
from liebig.builder.judge import unit_of
from liebig.builder.questions import read as read_questions
from liebig.search.fusion import SPREAD_RANK


class SpreadConfig(Config):
    """By how much the best hits of an index stand out."""

    questions: InputPath  # folder with the questions that are asked
    made: InputPath | None = None  # folder of questions made from the corpus, asked beside a user's own
    index: InputPath  # vectors of all passages
    model: InputPath  # model that encodes questions


def write_spread(config: SpreadConfig, folder: Folder) -> None:
    """Ask the questions, and write the unit of the scores."""
    folders = filter(None, (config.questions, config.made))
    questions = enough([question for path in folders for question in read_questions(path)])
    queries = [Query(str(number), question.text) for number, question in enumerate(questions)]
    system = EncodedOnce().system(config.index, config.model)
    hits = system.search(queries, SPREAD_RANK) if queries else []
    folder.write_json(SPREAD, {"spread": unit_of(questions, hits), "questions": len(questions)})


STAGE = Stage("spread", SpreadConfig, write_spread, part_of="build")
