"""An encoder of questions trained on a user's own, where TRAINABLE are judged (`liebig build --questions FILE`).

Passages keep the vectors that they have, and the encoder of questions alone learns: InfoNCE of a question's relevant
passages among all passages of the pool. So a step costs what its questions cost, every passage is a negative in every
step, nothing is mined, and nothing is encoded again, whatever the check decides. What the check is told is
cross-fitted: each of PARTS parts of the questions is answered by an encoder that was trained on the others.
Cost: PARTS + 1 trainings, of which each takes seconds for a hundred questions (LABNOTES).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch.nn import functional as F

from liebig.base.config import Config, InputPath
from liebig.base.pipeline import Stage
from liebig.base.progress import Progress, counted, duration
from liebig.base.workspace import Folder
from liebig.builder.build_config import BuildConfig
from liebig.builder.questions import OWN, Question, folds, read as read_questions
from liebig.builder.runner import Builder
from liebig.builder.steps import Candidate, Exam
from liebig.builder.training import TRAINABLE
from liebig.builder.user_questions import once
from liebig.model.encoder import Encoder
from liebig.model.packed import Packed
from liebig.search.systems import layouts_of
from liebig.text.layout import RoleLayout
from liebig.vectors import Vectors, document_of

PARTS = 3  # of the questions, for cross-fitting the training
LR, EPOCHS, BATCH = 5e-5, 10, 50
TEMPERATURE = 0.05
WARM_UP = 0.1  # share of the steps in which the rate rises
UNTIMED, TIMED = 1, 3  # steps before those that the time is told by, and behind them
CHUNK = 65_536  # vectors read at once
Longs = NDArray[np.int64]


class QuestionEncoderConfig(Config):
    """An encoder of questions, trained to find judged passages by the vectors that they have."""

    questions: InputPath = Field(description="What the stage of a user's questions wrote.")
    model: InputPath = Field(description="The encoder that learns, which made the vectors.")
    vectors: InputPath = Field(description="Vectors of the passages that the questions are asked of.")
    without: int | None = Field(
        None, ge=0, lt=PARTS, description="The part of the questions to leave out [default: none]."
    )
    minutes: float = Field(gt=0, description="Maximum time of the training.")


def write_question_encoder(config: QuestionEncoderConfig, folder: Folder) -> None:
    """Train, and write the encoder to `model/`."""
    questions = once(read_questions(config.questions))
    kept = [q for q, part in zip(questions, folds(questions, PARTS)) if part != config.without]
    vectors, encoder = Vectors.open(config.vectors), Encoder.load(config.model)
    train(encoder, layouts_of(encoder, vectors.about)[1], kept, vectors, config.minutes)
    encoder.save(folder.path / "model")


def train(
    encoder: Encoder, layout: RoleLayout, questions: Sequence[Question], vectors: Vectors, minutes: float
) -> None:
    """Change an encoder so that each question is nearer to a relevant passage than to all others."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    ids, passages = _all(vectors, device)
    relevant = _relevant(questions, ids, bool(vectors.about.get("pieces"))).to(device)
    rows, skip = layout.ids([question.text for question in questions]), encoder.skip(layout)
    encoder.to(device)
    encoder.backbone.set_dropout(0.0)
    weights = [*encoder.backbone.body.parameters(), *encoder.tail.parameters()]
    optimiser = torch.optim.AdamW(weights, lr=LR, weight_decay=0.01)
    rng = np.random.Generator(np.random.Philox(0))
    parts = -(-len(questions) // BATCH)
    batches = [b for _ in range(EPOCHS) for b in np.array_split(rng.permutation(len(questions)), parts)]
    steps, began = len(batches), time.monotonic()
    with Progress("train on your questions", steps) as bar:
        for step, chosen in enumerate(batches):
            if step == TIMED:
                left = (time.monotonic() - began) / (TIMED - UNTIMED)
                steps = min(steps, TIMED + int(60 * minutes / left))
                bar.total = steps
                bar.say(f"{counted(len(questions), 'questions')}: about {duration(left * (steps - TIMED))}")
            if step == steps:
                break
            if step == UNTIMED:
                began = time.monotonic()
            rise = min(1.0, (step + 1) / (WARM_UP * steps))
            optimiser.param_groups[0]["lr"] = LR * rise * (1 - step / steps)
            packed = Packed.from_ragged(rows.take(chosen.astype(np.int64))).to(device)
            made = F.normalize(encoder.vectors(encoder.backbone(packed).last, packed, skip), dim=-1)
            scores = made @ passages.T / TEMPERATURE
            good = relevant[torch.from_numpy(chosen).to(device)]
            loss = (scores.logsumexp(1) - scores.masked_fill(~good, -torch.inf).logsumexp(1)).mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            bar.advance()
    encoder.to("cpu")


def _all(vectors: Vectors, device: torch.device) -> tuple[list[str], torch.Tensor]:
    """All vectors, divided by their mean length, and whose they are.

    A search compares products: those of vectors of length 1 are cosines, and of others a longer one counts more.
    """
    ids: list[str] = []
    parts = []
    for some, part in vectors.chunks(CHUNK):
        ids += some
        parts.append(torch.from_numpy(part))
    whole = torch.cat(parts).to(device)
    return ids, whole / whole.norm(dim=-1).mean().clamp_min(1e-12)


def _relevant(questions: Sequence[Question], ids: Sequence[str], pieces: bool) -> torch.Tensor:
    """Which vectors are of passages that answer each question."""
    rows: dict[str, list[int]] = {}
    for row, id in enumerate(ids):
        rows.setdefault(document_of(id) if pieces else id, []).append(row)
    relevant = torch.zeros(len(questions), len(ids), dtype=torch.bool)
    for number, question in enumerate(questions):
        relevant[number, [row for id in question.passages for row in rows[id]]] = True
    return relevant


LEARN = Stage("question-encoder", QuestionEncoderConfig, write_question_encoder, part_of="build")


def train_on_questions(
    builder: Builder, config: BuildConfig, exam: Exam, start: Candidate
) -> Candidate | None:
    """An encoder of questions trained on all that are judged; None where there are too few.

    What the check compares are the answers of encoders that were trained without a part of them.
    """
    if exam.judged < TRAINABLE:
        builder.say(
            f"training on your questions: skipped, {exam.judged} judged ones are too few ({TRAINABLE} are enough)"
        )
        builder.whole.drop("own")
        return None
    assert start.pool is not None, "the start has encoded the pool"
    minutes = config.limit / (PARTS + 1)
    models: list[Path] = []
    for part in (*range(PARTS), None):
        builder.whole.repeat(PARTS - len(models))  # the last is on all of them
        recipe = QuestionEncoderConfig(
            questions=exam.questions, model=start.model, vectors=start.pool, without=part, minutes=minutes
        )
        name = "learnt" if part is None else f"learnt-without-{part}"
        models.append(builder.work(name, LEARN, recipe) / "model")
    builder.whole.repeat(0)
    trained = models.pop()
    return Candidate(OWN, start.model, start.pool, trained, vectors=start.vectors, parts=tuple(models))
