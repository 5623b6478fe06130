"""An encoder's vectors mapped by what a user's own questions teach (`liebig build --questions FILE`).

The vector v of a question, a passage or a sentence becomes v + vA, of length 1 again where a search compares cosines:
one matrix for all of them, which is zero at first. It learns InfoNCE of a question's relevant passages among all
passages of the pool. So nothing is mined and nothing is encoded again, whatever the check decides: vectors that are
there are multiplied, and the encoder gets one more module (Dense). Twenty judged questions are enough to gain by it.
What the check is told is cross-fitted: each of PARTS parts of the questions is answered by a map that was learned from
the others. Cost: PARTS + 1 times, STEPS products of all vectors of the pool with a matrix.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from liebig.base.config import Config, InputPath
from liebig.base.pipeline import Stage
from liebig.base.progress import Progress
from liebig.base.workspace import Folder
from liebig.builder.build_config import TRAINABLE, BuildConfig
from liebig.builder.questions import OWN, Question, folds, read as read_questions
from liebig.builder.runner import Builder, encode_sentences
from liebig.builder.steps import Candidate, Exam
from liebig.builder.user_questions import once
from liebig.model.encoder import Encoder
from liebig.model.pooling import Dense, Normalize
from liebig.search.encode_shards import SENTENCES
from liebig.search.systems import layouts_of
from liebig.vectors import Vectors, document_of, write_vectors
from liebig.vectors.quantise import Floats, unit_length

PARTS = 3  # of the questions, for cross-fitting
LR, STEPS, BATCH = 3e-4, 60, 256  # steps for every BATCH questions
MOST_STEPS = 600
TEMPERATURE = 0.05
WARM_UP = 0.1  # share of the steps in which the rate rises
CHUNK = 65_536  # vectors read, or written, at once
MAP = "map.npy"


class LearnedMapConfig(Config):
    """A map of vectors that judged questions teach."""

    questions: InputPath = Field(description="What the stage of a user's questions wrote.")
    model: InputPath = Field(description="The encoder that made the vectors.")
    vectors: InputPath = Field(description="Vectors of the passages that the questions are asked of.")
    without: int | None = Field(
        None, ge=0, lt=PARTS, description="The part of the questions to leave out [default: none]."
    )
    minutes: float = Field(gt=0, description="Maximum time.")


def write_map(config: LearnedMapConfig, folder: Folder) -> None:
    """Learn, and write the matrix, and to `model/` the encoder that has it as its last module but normalising."""
    questions = once(read_questions(config.questions))
    kept = [q for q, part in zip(questions, folds(questions, PARTS)) if part != config.without]
    vectors, encoder = Vectors.open(config.vectors), Encoder.load(config.model)
    unit = bool(vectors.about.get("unit"))
    queries = encoder.encode_texts(
        [question.text for question in kept], layout=layouts_of(encoder, vectors.about)[1], unit=unit
    )
    ids, passages = _all(vectors)
    relevant = _relevant(kept, ids, bool(vectors.about.get("pieces")))
    matrix = learn(queries, passages, relevant, unit=unit, minutes=config.minutes)
    np.save(folder.path / MAP, matrix)
    dense = Dense(len(matrix), len(matrix), bias=False)
    with torch.no_grad():
        dense.linear.weight.copy_(torch.from_numpy(matrix.T))
    normalised = len(encoder.tail) > 0 and isinstance(encoder.tail[-1], Normalize)
    encoder.tail = nn.ModuleList([*encoder.tail, dense, *([Normalize()] if normalised else [])])
    encoder.save(folder.path / "model")


def learn(
    questions: Floats, passages: Floats, relevant: Sequence[Sequence[int]], *, unit: bool, minutes: float
) -> Floats:
    """The matrix, D x D, that brings each question nearer to a relevant passage (a row of them) than to all others.

    A search compares products: those of vectors of length 1 (`unit`) are cosines, and of others a longer one counts
    more, so these keep their lengths, as shares of the mean.
    """
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    scale = 1.0 if unit else float(np.linalg.norm(passages, axis=1).mean())
    q_ND, p_PD = (torch.from_numpy(part).to(device) / max(scale, 1e-12) for part in (questions, passages))
    width = q_ND.shape[1]
    a_DD = torch.zeros(width, width, device=device, requires_grad=True)
    optimiser = torch.optim.AdamW([a_DD], lr=LR, weight_decay=0.1)

    def mapped(x: Tensor) -> Tensor:
        y = x + x @ a_DD
        return F.normalize(y, dim=1) if unit else y

    rng = np.random.Generator(np.random.Philox(0))
    batches = -(-len(q_ND) // BATCH)
    steps, began = min(MOST_STEPS, STEPS * batches), time.monotonic()
    with Progress("learn from your questions", steps) as bar:
        for step in range(steps):
            chosen = np.sort(rng.permutation(len(q_ND))[:BATCH])
            good = torch.zeros(len(chosen), len(p_PD), dtype=torch.bool)
            for row, number in enumerate(chosen.tolist()):
                good[row, list(relevant[number])] = True
            rise = min(1.0, (step + 1) / (WARM_UP * steps))
            optimiser.param_groups[0]["lr"] = LR * rise * (1 - step / steps)
            scores = mapped(q_ND[torch.from_numpy(chosen).to(device)]) @ mapped(p_PD).T / TEMPERATURE
            best = scores.masked_fill(~good.to(device), -torch.inf)
            loss = (scores.logsumexp(1) - best.logsumexp(1)).mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            bar.advance()
            if time.monotonic() - began > 60 * minutes:
                break
    matrix: Floats = np.eye(width, dtype=np.float32) + a_DD.detach().cpu().numpy()
    return matrix


def _all(vectors: Vectors) -> tuple[list[str], Floats]:
    """All vectors, and whose they are."""
    parts = list(vectors.chunks(CHUNK))
    return [id for ids, _ in parts for id in ids], np.concatenate([part for _, part in parts])


def _relevant(questions: Sequence[Question], ids: Sequence[str], pieces: bool) -> list[list[int]]:
    """Which vectors are of passages that answer each question."""
    rows: dict[str, list[int]] = {}
    for row, id in enumerate(ids):
        rows.setdefault(document_of(id) if pieces else id, []).append(row)
    return [[row for id in question.passages for row in rows[id]] for question in questions]


LEARN = Stage("learned-map", LearnedMapConfig, write_map, part_of="build")


class MappedConfig(Config):
    """Vectors by an encoder with a learned map, from those by the encoder without it."""

    vectors: InputPath = Field(description="Vectors by the encoder that the map was learned for.")
    learned: InputPath = Field(description="What the stage that learns a map wrote.")


def write_mapped(config: MappedConfig, folder: Folder) -> None:
    """Multiply vectors, and those of sentences that lie with them."""
    matrix = np.load(config.learned / MAP, allow_pickle=False)
    _write_mapped(Vectors.open(config.vectors), matrix, config.learned / "model", folder.path)
    if (config.vectors / SENTENCES).is_dir():
        inner = Vectors.read(config.vectors / SENTENCES)
        _write_mapped(inner, matrix, config.learned / "model", folder.path / SENTENCES)


def _write_mapped(vectors: Vectors, matrix: Floats, model: Path, path: Path) -> None:
    scaled = unit_length if vectors.about.get("unit") else np.asarray
    parts = ((ids, scaled(part @ matrix)) for ids, part in vectors.chunks(CHUNK))
    write_vectors(path, parts, vectors.type, vectors.width, {**vectors.about, "model": str(model)})


MAPPED = Stage("mapped", MappedConfig, write_mapped, part_of="build")


def train_on_questions(
    builder: Builder, config: BuildConfig, exam: Exam, start: Candidate, by_sentences: bool
) -> Candidate | None:
    """An encoder with a map learned from all questions that are judged; None where there are too few.

    What the check compares are the answers of maps that were learned without a part of them.
    """
    if exam.judged < TRAINABLE:
        builder.say(
            f"learning from your questions: skipped, {exam.judged} judged ones are too few ({TRAINABLE} are enough)"
        )
        builder.whole.drop("own")
        return None
    pool = start.pool
    assert pool is not None, "the start has encoded the pool"
    sentences = None
    if by_sentences:
        sentences = encode_sentences(builder, f"given-{start.name}-sentences", exam.pool, start.model)
    minutes = config.limit / (PARTS + 1)
    learned: list[Path] = []
    made: list[tuple[Path, Path | None]] = []
    for part in (*range(PARTS), None):
        builder.whole.repeat(PARTS - len(made))  # the last is on all of them
        recipe = LearnedMapConfig(
            questions=exam.questions, model=start.model, vectors=pool, without=part, minutes=minutes
        )
        name = "" if part is None else f"-without-{part}"
        learned.append(builder.work(f"learnt{name}", LEARN, recipe))
        made.append(_mapped(builder, f"mapped{name}", learned[-1], pool, sentences))
    builder.whole.repeat(0)
    (mapped, inner), model = made.pop(), learned[-1] / "model"
    if inner is not None:
        builder.sentences[exam.pool, model] = inner
    whole = start.vectors
    if whole is not None and whole != pool:
        whole = builder.work("mapped-all", MAPPED, MappedConfig(vectors=whole, learned=learned[-1]))
    return Candidate(
        OWN,
        model,
        mapped,
        vectors=mapped if whole == pool else whole,
        parts=tuple(path for path, _ in made),
        sentence_parts=tuple(path for _, path in made if path is not None),
    )


def _mapped(
    builder: Builder, name: str, learned: Path, pool: Path, sentences: Path | None
) -> tuple[Path, Path | None]:
    """Vectors of the pool, and those of its sentences where there are some."""
    out = builder.work(name, MAPPED, MappedConfig(vectors=pool, learned=learned))
    if sentences is None or sentences == pool / SENTENCES:
        return out, sentences and out / SENTENCES
    recipe = MappedConfig(vectors=sentences, learned=learned)
    return out, builder.work(f"{name}-sentences", MAPPED, recipe)
