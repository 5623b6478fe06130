"""How a build trains an encoder on a corpus: the recipes, the numbers in them, and the stages that run them.

An encoder learns by contrast on two kinds of pairs (`contrast_recipe`). Half of the batches are a sentence and the
block around it (inverse cloze), half are a title or heading with a passage under it, where the corpus has them.
Questions that will be asked afterwards are never among them. Forty steps of 48 pairs took the dense ranking of
MedQuAD's development questions from useless to nearly BM25's.

One that is a retriever already goes half of the way: a model and what a short training made of it lie in one valley of
the loss, so what lies between is a model too, and keeps more of both (Wortsman et al. 2022). On some corpora that helps
and on others it does harm, so it waits for a request (`may_train`), and the check decides.

With a teacher, a student learns the teacher's vectors and rankings instead (`teacher_recipe`, `lessons.py`). A user's
own questions train it further, where there are enough (`train_on_questions`, `user_questions.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from pydantic import Field

from liebig.base.config import Config, InputPath
from liebig.base.errors import DataError
from liebig.base.pipeline import Stage
from liebig.base.progress import counted
from liebig.base.workspace import Folder
from liebig.builder import check, judge, lessons, questions, user_questions
from liebig.builder.build_config import BuildConfig
from liebig.builder.questions import PAIRS
from liebig.builder.runner import Builder, encode_fields, encode_passages, encode_sentences
from liebig.collection import Collection, is_collection
from liebig.methods.sources.blocks import ClozeSource
from liebig.model.encoder import Encoder
from liebig.model.folder import text_reader
from liebig.store import TokenStore
from liebig.vectors import Vectors

FEWEST_TOKENS, FEWEST_EXAMPLES = 20_000, 32
BATCH_CPU, BATCH_CUDA = 64, 512
LR = 1e-4
LONGEST = 256  # tokens of a sequence in training

# Learning from a teacher (builder/lessons.py).
TEACHER_LR = 2e-4
TEACHER_BATCH_CPU, TEACHER_BATCH_CUDA = 64, 512
# Where a GPU has so many texts that large batches are still thousands of steps: less loss in the same minutes.
MANY_TEXTS, MANY_LR, MANY_BATCH = 200_000, 1e-3, 2048
TEACHER_EPOCHS = 20  # passes over the texts at most, however many minutes there are
# Weight of the rankings, beside the distance to the teacher's vectors: by the teacher and the start, by it alone.
RANKING_WEIGHT, RANKING_WEIGHT_ALONE = 8.0, 1.0
RANKING_TEMPERATURE = 0.05
START_WEIGHT = 0.5  # of the start's cosines in the rankings that a student learns, beside the teacher's

LEFT_OUT = (
    "training on the documents: left out, because it did good on some corpora and harm on others; "
    f"{user_questions.TRAINABLE} or more judged --questions train and decide, --minutes N trains on the documents alone"
)
SHARES = (0.5, 1.0)  # how far the student goes from its start to what training made of it: the check decides


@dataclass(frozen=True)
class Start:
    """The properties of the starting encoder that training depends on."""

    pooling: str
    max_length: int
    cuda: bool

    @property
    def length(self) -> int:
        """Tokens of a sequence in training."""
        return min(self.max_length, LONGEST)

    @classmethod
    def of(cls, model: Path) -> Start:
        """Read them from a model's folder."""
        encoder = Encoder.load(model)
        return cls(encoder.pooling, encoder.max_length, torch.cuda.is_available())


def why_not(start: Start, store: Path) -> str | None:
    """Why the encoder cannot be trained on this store; None if it can."""
    opened = TokenStore.open(store)
    if len(opened.tokens) < FEWEST_TOKENS:
        return f"{counted(len(opened), 'documents')} with {len(opened.tokens):,} tokens are too little to train on"
    return _pooled_otherwise(start)


def why_not_taught(start: Start, texts: int) -> str | None:
    """Why the encoder cannot learn a teacher's vectors of that many texts; None if it can."""
    if texts < FEWEST_EXAMPLES:
        return f"{texts:,} texts are too few to learn from"
    return _pooled_otherwise(start)


def _pooled_otherwise(start: Start) -> str | None:
    supported = start.pooling in ("mean", "cls")
    return None if supported else f"training an encoder with {start.pooling} pooling is not supported"


def batch_size(cuda: bool) -> int:
    """Pairs in a step, where the corpus has that many."""
    return BATCH_CUDA if cuda else BATCH_CPU


def contrast_recipe(
    model: Path, start: Start, store: Path, questions: Path, minutes: float
) -> dict[str, Any] | None:
    """The recipe of `liebig pretrain` for training on the documents; None where no pairs can be made."""
    sources: list[tuple[dict[str, Any], int]] = [
        ({"kind": "cloze"}, _blocks(TokenStore.open(store, hashes=False), start))
    ]
    if (questions / PAIRS).is_dir():
        titles = Collection(questions / PAIRS)
        sources.append(({"kind": "queries", "collection": str(titles.path)}, titles.count("passages")))
    sources = [(source, examples) for source, examples in sources if examples >= FEWEST_EXAMPLES]
    if not sources:
        return None
    parts = [{"source": source, "weight": 1.0} for source, _ in sources]
    batch = min(batch_size(start.cuda), int(0.9 * min(examples for _, examples in sources)))
    read = [{"path": str(store)}] if {"kind": "cloze"} in (source for source, _ in sources) else []
    return {
        "model": {"kind": "folder", "path": str(model)},
        "stores": read,
        "source": {"kind": "mixture", "parts": parts} if len(parts) > 1 else parts[0]["source"],
        "objective": {"kind": "simclr", "similarity": "cosine", "pooling": start.pooling},
        "max_length": start.length,
        "optim": {"lr": LR},
        "loop": {"minutes": minutes, "batch": batch, "chunk_tokens": "auto" if start.cuda else "whole"},
    }


def teacher_recipe(
    student: Path,
    start: Start,
    store: Path,
    taught: Sequence[Path],
    candidates: Sequence[Path],
    minutes: float,
) -> dict[str, Any]:
    """The recipe of `liebig pretrain` for a student: a teacher's vectors of texts, and its rankings of passages.

    Both come from the teacher alone, or from teacher and start, which has a part in the rankings.
    """
    texts = len(TokenStore.open(store, hashes=False))
    most = TEACHER_BATCH_CUDA if start.cuda else TEACHER_BATCH_CPU
    lr, batch = TEACHER_LR, min(most, max(1, int(0.9 * texts)))
    if start.cuda and texts >= MANY_TEXTS:
        lr, batch = MANY_LR, MANY_BATCH
    return {
        "model": {"kind": "folder", "path": str(student)},
        "stores": [{"path": str(store)}],
        "source": {
            "kind": "texts",
            "vectors": [str(path) for path in taught],
            "teacher_weights": [1 - START_WEIGHT, START_WEIGHT] if len(taught) > 1 else [1.0],
        },
        "objective": {
            "kind": "vectors",
            "pooling": start.pooling,
            "dense": True,
            "space": "first",
            "temperature": RANKING_TEMPERATURE,
            "ranking_weight": RANKING_WEIGHT if len(taught) > 1 else RANKING_WEIGHT_ALONE,
            "candidates": [str(path) for path in candidates],
        },
        "max_length": start.length,
        "dropout": 0.0,
        "optim": {"lr": lr},
        "loop": {
            "minutes": minutes,
            "steps": max(1, TEACHER_EPOCHS * texts // batch),
            "batch": batch,
            "chunk_tokens": "auto" if start.cuda else "whole",
        },
    }


def _blocks(store: TokenStore, start: Start) -> int:
    """Blocks that a sentence can be taken from; documents of one sentence have none."""
    try:
        return len(ClozeSource(store, start.length - 4))
    except DataError:
        return 0


class MeanConfig(Config):
    """The weighted mean of an encoder's weights before and after training."""

    start: InputPath = Field(description="The model before.")
    trained: InputPath = Field(description="The same model after.")
    share: float = Field(0.5, ge=0, le=1, description="How far to go from the first to the second.")


def write_mean(config: MeanConfig, folder: Folder) -> None:
    """Write the weights between both to `model/`.

    `liebig average` takes folders of one form; a start may have any that loads, so both are loaded here.
    """
    start, encoder = Encoder.load(config.start), Encoder.load(config.trained)
    # Training may have seen shorter texts; lengths and titles stay those of use.
    encoder.max_length, encoder.layout = start.max_length, start.layout
    before = dict(start.named_parameters())
    with torch.no_grad():
        for name, value in encoder.named_parameters():
            value.copy_(torch.lerp(before[name], value, config.share))
    encoder.save(folder.path / "model")


MEAN = Stage("mean", MeanConfig, write_mean, part_of="build")


@dataclass(frozen=True)
class Encoders:
    """What a system may encode with: the model of passages, that of questions if it is another, vectors made before."""

    model: Path
    query: Path | None = None
    vectors: Path | None = None
    measured: bool = False  # whether it gained on people's questions elsewhere


def train_on_corpus(
    builder: Builder,
    config: BuildConfig,
    start: Path,
    collection: Path,
    asked: Path,
    fields: Mapping[str, Any],
) -> Encoders | None:
    """The encoder after training on the corpus; None where nobody wants that, or there is nothing to train on."""
    if not may_train(config):
        if config.limit > 0 and config.questions is None:
            builder.say(LEFT_OUT)
        return None
    retrieves = check.read(builder.work("check-start", fields))["fair"]
    if retrieves and config.minutes is None:
        if config.questions is None:
            builder.say(LEFT_OUT)
        builder.whole.drop("train")
        return None
    rest = builder.work("rest", {"collection": str(collection), "questions": str(asked)})
    store = builder.work("store", {"kind": "prepare", "collection": str(rest), "tokenizer": str(start)})
    traits = Start.of(start)
    reason = why_not(traits, store)
    recipe = None if reason is not None else contrast_recipe(start, traits, store, asked, config.limit)
    if recipe is None:
        reason = reason or "the documents are too short to cut sentences from, and have too few titles"
        builder.say(f"training: skipped, because {reason}")
        return None
    if recipe["source"]["kind"] == "queries":
        builder.say("training: on titles alone, because the documents are too short to cut sentences from")
    trained = builder.work("trained", {"kind": "pretrain", **recipe}) / "model"
    if not retrieves:
        return Encoders(trained)
    return Encoders(builder.work("mean", {"start": str(start), "trained": str(trained)}) / "model")


def may_train(config: BuildConfig) -> bool:
    """Whether the encoder may be trained on the documents: on request, with a teacher, or if it cannot retrieve yet.

    The bundled one retrieves already, and questions made from a corpus hardly see what such training does to it
    (`experiments/adaptation`).
    """
    return config.limit > 0 and any(one is not None for one in (config.minutes, config.teacher, config.model))


def learn_from_teacher(
    builder: Builder,
    config: BuildConfig,
    teacher: Path,
    before_teaching: Encoders,
    collection: Path,
    asked: Path,
    fields: Mapping[str, Any],
) -> dict[str, Encoders]:
    """Let the start learn from a teacher: the teacher itself, the student, and both together (`lessons.py`)."""
    start = before_teaching.model
    whole = encode_passages(builder, "vectors-teacher", collection, teacher)
    rest = builder.work("rest", {"collection": str(collection), "questions": str(asked)})
    cut: dict[str, Any] = {"collection": str(collection), "passages": str(rest)}
    traits = Start.of(start)
    cut |= {"language": config.language, "seed": config.seed, "texts": config.texts}
    if traits.cuda:
        cut |= {"most": lessons.PHRASES_CUDA, "each": lessons.EACH_CUDA}
    phrases = builder.work("phrases", cut)
    found = {judge.TEACHER: Encoders(teacher, vectors=whole)}
    if not is_collection(phrases):
        builder.say("teaching: skipped, because the documents have no words to cut texts from")
        return found
    spoken = builder.work("phrases-taught", {**encode_fields(phrases, teacher, "first"), "prompt": "query"})
    texts = builder.work("lessons", {
        "passages": str(rest), "phrases": str(phrases), "vectors": str(whole), "phrase_vectors": str(spoken),
        "student": str(start), "seed": config.seed,
    })  # fmt: skip
    reason = why_not_taught(traits, len(Vectors.open(texts, hashes=False)))
    if reason is not None:
        builder.say(f"teaching: skipped, because {reason}")
        return found
    store = {"kind": "prepare", "collection": str(texts), "tokenizer": str(start)}
    tokens = builder.work("lessons-store", store)
    before = builder.work("student", {"start": str(start), "lessons": str(texts)}) / "model"
    taught, indexed = [texts], [whole]
    if before_teaching.measured or check.read(builder.work("check-start", fields))["fair"]:
        own = encode_passages(builder, "vectors-start", collection, start)
        found[judge.START] = replace(before_teaching, vectors=own)
        by_start = builder.work("lessons-start", {**encode_fields(texts, start, "first"), "prompt": "query"})
        taught, indexed = [texts, by_start], [whole, own]
    else:
        builder.say(
            "teaching: rankings by the teacher alone, because the encoder to be trained retrieves too little"
        )
    count = {"kind": "candidates", "passages": Collection(collection).count("passages"), "seed": config.seed}
    candidates = [
        builder.work(f"candidates-{name}", {**count, "vectors": str(vectors)})
        for name, vectors in zip((judge.TEACHER, judge.START), indexed)
    ]
    recipe = teacher_recipe(before, traits, tokens, taught, candidates, config.limit)
    after = builder.work("taught", {"kind": "pretrain", **recipe}) / "model"
    for share in SHARES:
        name = f"student-{round(100 * share)}"
        between = {"kind": "mean", "start": str(before), "trained": str(after), "share": share}
        found[name] = Encoders(builder.work(name, between) / "model")
    last = found[f"student-{round(100 * SHARES[-1])}"]
    return {**found, judge.ASYMMETRIC: Encoders(teacher, last.model, whole)}


def train_on_questions(
    builder: Builder,
    config: BuildConfig,
    fields: Mapping[str, Any],
    start: Path,
    vectors: str,
    by_sentences: bool,
) -> tuple[Encoders, dict[str, Any]] | None:
    """An encoder trained on all the questions, and what the check compares: vectors of the pool by encoders that were
    trained without a part of them. None where there are too few.
    """
    asked = Path(fields["questions"])
    _, judged = user_questions.notes_of(asked)
    if judged < user_questions.TRAINABLE:
        builder.say(
            f"training on your questions: skipped, {judged} judged ones are too few "
            f"({user_questions.TRAINABLE} are enough)"
        )
        builder.whole.drop("own")
        return None

    def trained(name: str, **without: int) -> Path:
        mined = {"questions": str(asked), "bm25": fields["bm25"], "vectors": vectors, **without}
        examples = builder.work(f"examples{name}", {"kind": "examples", **mined})
        recipe = user_questions.recipe(start, examples, text_reader(start).max_length, config.minutes)
        finetuned = builder.work(f"finetuned{name}", recipe)
        # Training may have seen shorter texts; lengths and titles stay those of use.
        whole = {"kind": "mean", "start": str(start), "trained": str(finetuned / "model"), "share": 1.0}
        return builder.work(f"finetuned{name}-whole", whole) / "model"

    parts = []
    for part in range(user_questions.PARTS):
        builder.whole.repeat(user_questions.PARTS - part)  # the last is on all of them
        parts.append(trained(f"-without-{part}", without=part))
    builder.whole.repeat(0)
    pools = [
        str(encode_passages(builder, f"pool-without-{part}", asked, model))
        for part, model in enumerate(parts)
    ]
    made: dict[str, Any] = {"parts": {questions.OWN: pools}}
    if by_sentences:
        made["sentence_parts"] = {
            questions.OWN: [
                str(encode_sentences(builder, f"pool-without-{part}-sentences", asked, model))
                for part, model in enumerate(parts)
            ]
        }
    return Encoders(trained("")), made
