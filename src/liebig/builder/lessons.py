"""A small encoder learns a larger one's vectors and rankings on a corpus (`liebig build --teacher MODEL`).

    work/phrases            short texts cut from the corpus: what people might ask
    work/phrases-taught     the teacher's vectors of them, as questions
    work/vectors-teacher    its vectors of all passages; the index, where it is chosen to encode the passages
    work/lessons            passages and phrases with their vectors, in one folder
    work/lessons-store      the same as tokens
    work/lessons-start      the start's vectors of them, as questions
    work/vectors-start      the start's vectors of all passages; the index, where it is chosen
    work/candidates-...     of each of both a vector for every passage, which the texts are ranked against
    work/student            the student before training, with a projection into the teacher's space
    work/taught             after training
    work/student-50, ...    the weights between both

The projection is the least-squares fit of the teacher's vectors, so the student starts in the teacher's space and
training only has to bend it: start and end differ little, and a mean of their weights is a model too, projection
included. Passages are taught with the vectors they have in the teacher's index, phrases with those the teacher gives
to questions; the student itself has no prompts. Half of the phrases are pieces of the corpus of any length, half are
pieces behind a question's first words, because what people ask looks unlike the corpus (`short_texts.py`). Generated
queries of the corpus and a user's `--texts` (a query log, questions of any kind) are added to them.

A start that retrieves is a second teacher of the rankings: the student, in the teacher's space, learns to rank the
teacher's passages by the mean of the teacher's cosines and the start's. So training does not take away all that the
start was better at. Cost: the teacher and the start once on every
passage, on PHRASES short texts, and on as many of the user's.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field

from liebig.base.config import Config, InputPath
from liebig.base.pipeline import Stage
from liebig.base.records import Passage
from liebig.base.workspace import Folder
from liebig.bm25.analysis import Analyzer, language_name
from liebig.builder import user_questions
from liebig.builder.build_config import BuildConfig
from liebig.builder.judge import ASYMMETRIC, START, TEACHER
from liebig.builder.questions import REST, RestConfig
from liebig.builder.runner import Builder, encode_passages, passage_encoding
from liebig.builder.short_texts import ShortTexts
from liebig.builder.steps import Candidate, Exam, IndexedCorpus
from liebig.builder.training import FEWEST_EXAMPLES, MEAN, EncoderTraits, MeanConfig, retrieves
from liebig.collection import Collection, is_collection
from liebig.collection.lookup import hash64
from liebig.collection.writer import CollectionWriter
from liebig.formats.items import Item, Where
from liebig.methods.base import StoreConfig
from liebig.methods.pretraining import PretrainConfig
from liebig.methods.teacher import TeacherVectors, TextSource
from liebig.model.encoder import Encoder
from liebig.model.loading import FolderBackbone
from liebig.model.pooling import Dense, Normalize
from liebig.model.text_reader import text_reader
from liebig.search.embed import Embedder
from liebig.stages.encode import STAGE as ENCODE
from liebig.stages.passages import GENERATED
from liebig.stages.prepare import STAGE as PREPARE, PrepareConfig
from liebig.stages.pretrain import STAGE as PRETRAIN
from liebig.store import TokenStore
from liebig.train.loop import LoopConfig
from liebig.train.optim import AdamWConfig
from liebig.vectors import Vectors, write_vectors

PHRASES, PHRASES_CUDA = 50_000, 300_000  # short texts at most, and where a GPU encodes them
EACH, EACH_CUDA = 8, 64  # pieces of a kind that are drawn for each passage at most
PASSAGES = 50_000  # passages that are taught at most
FITTED = 8_192  # texts that the projection is fitted to
RIDGE = 1e-3  # of the states' mean square: keeps directions that hardly vary from deciding
RANKED = 16_384  # passages that texts are ranked against at most
SHARD = 65_536  # vectors of a shard
LR = 2e-4
BATCH_CPU, BATCH_CUDA = 64, 512
# Where a GPU has so many texts that large batches are still thousands of steps: less loss in the same minutes.
MANY_TEXTS, MANY_LR, MANY_BATCH = 200_000, 1e-3, 2048
EPOCHS = 20  # passes over the texts at most, however many minutes there are
# Weight of the rankings, beside the distance to the teacher's vectors: by the teacher and the start, by it alone.
RANKING_WEIGHT, RANKING_WEIGHT_ALONE = 8.0, 1.0
RANKING_TEMPERATURE = 0.05
START_WEIGHT = 0.5  # of the start's cosines in the rankings that a student learns, beside the teacher's
SHARES = (0.5, 1.0)  # how far the student goes from its start to what training made of it: the check decides
Floats = NDArray[np.float32]


class PhrasesConfig(Config):
    """Short texts cut from a corpus, for a teacher to encode as questions."""

    collection: InputPath  # whole collection, with its generated queries
    passages: InputPath  # A collection of the passages that may be learnt from
    language: str = "en"  # language of the texts
    texts: InputPath | None = None  # short texts to add, in a form of liebig build --questions
    most: int = Field(PHRASES, ge=1)  # maximum number of texts that are cut, and of those that are added
    each: int = Field(EACH, ge=0)  # maximum number of pieces of a kind for each passage
    seed: int = Field(0, ge=0)  # draws them


def write_phrases(config: PhrasesConfig, folder: Folder) -> None:
    """Write, as passages, generated queries, pieces of passages, pieces as questions, and a user's texts."""
    known = list(Collection(config.passages).passages())
    analyzer = Analyzer(language_name(config.language))
    some = heapq.nsmallest(config.most, known, key=lambda passage: hash64(f"{config.seed} {passage.id}"))
    generated = _generated(Collection(config.collection), {passage.id for passage in known})
    texts = _drawn(generated, config.most, config.seed)
    kinds = ShortTexts(some, analyzer, config.seed).kinds()
    for kind in kinds:
        share = math.ceil(config.most / len(kinds))
        texts |= dict.fromkeys(kind() for _ in range(min(share, config.each * len(some))))
    if not texts:  # passages of a word or two: they are as short as questions
        texts = dict.fromkeys(passage.text or passage.title for passage in known)
    if config.texts is not None:
        texts |= _drawn(user_questions.read_texts(config.texts), config.most, config.seed)
    with CollectionWriter(folder.path) as writer:
        for number, text in enumerate(filter(_says_something, texts)):
            writer.add(Item(Passage(str(number), text, "", ""), Where(str(config.collection))))


def _drawn(texts: Iterable[str], most: int, seed: int) -> dict[str, None]:
    """That many different texts at most, whatever their order and however often each comes; a log may be long."""
    kept: dict[int, str] = {}
    limit = 2**64
    for text in texts:
        place = hash64(f"{seed} {text}")
        if place < limit:
            kept[place] = text
        if len(kept) > 2 * most:
            kept = {place: kept[place] for place in heapq.nsmallest(most, kept)}
            limit = max(kept)
    return dict.fromkeys(kept[place] for place in heapq.nsmallest(most, kept))


def _generated(collection: Collection, passages: set[str]) -> Iterator[str]:
    if GENERATED not in collection.splits:
        return
    judged = (j for j in collection.judgements(GENERATED) if j.relevance > 0)
    about = {judgement.query for judgement in judged if judgement.passage in passages}
    yield from (query.text for query in collection.queries(GENERATED) if query.id in about)


def _says_something(text: str) -> bool:
    return any(map(str.isalnum, text))


class LessonsConfig(Config):
    """Texts with a teacher's vectors: passages and phrases."""

    passages: InputPath  # A collection of the passages that may be learnt from
    phrases: InputPath  # what the phrases stage wrote
    vectors: InputPath  # teacher's vectors of passages, these among them
    phrase_vectors: InputPath  # teacher's vectors of the phrases
    student: InputPath  # model that will read them
    most: int = Field(PASSAGES, ge=1)  # maximum number of passages
    seed: int = Field(0, ge=0)  # draws them


def write_lessons(config: LessonsConfig, folder: Folder) -> None:
    """Write a collection whose texts are laid out as the student reads them, and their vectors beside it."""
    layout = text_reader(config.student).layout
    passages = Collection(config.passages)
    limit = 2**64 * config.most // max(config.most, passages.count("passages"))
    taught = Vectors.open(config.vectors)
    spoken = {phrase.id: phrase.text for phrase in Collection(config.phrases).passages()}
    rows: list[Floats] = []
    with CollectionWriter(folder.path) as writer:

        def add(text: str, row: Floats) -> None:
            # No title and no document: every text stands alone.
            writer.add(Item(Passage(str(len(rows)), text, "", ""), Where(str(config.passages))))
            rows.append(row)

        for passage in passages.passages():
            row = vector_of(taught, passage.id) if hash64(f"{config.seed} {passage.id}") < limit else None
            # A title before a separator token is taught before a space: a store knows no such token.
            text = passage.text if layout.title == "no" else f"{passage.title} {passage.text}".strip()
            if row is not None and _says_something(text):
                add(text, row)
        for ids, part in Vectors.open(config.phrase_vectors).chunks(SHARD):
            for id, row in zip(ids, part):
                add(spoken[id], row)
    _write_vectors(folder, [str(number) for number in range(len(rows))], rows, taught)


def _write_vectors(folder: Folder, ids: list[str], rows: list[Floats], like: Vectors) -> None:
    """Write vectors as `liebig encode` does, made by the model of others."""
    places = [slice(begin, begin + SHARD) for begin in range(0, len(rows), SHARD)]
    parts = ((ids[place], np.stack(rows[place])) for place in places)
    write_vectors(folder.path, parts, "fp16", like.width, like.about)


def vector_of(vectors: Vectors, id: str) -> Floats | None:
    """The vector of a passage; None where it has none, or several of its pieces."""
    pieces = bool(vectors.about.get("pieces"))
    if pieces and _vector(vectors, f"{id}#1") is not None:
        return None
    return _vector(vectors, f"{id}#0" if pieces else id)


def _vector(vectors: Vectors, id: str) -> Floats | None:
    for shard in vectors.shards:
        if (row := shard.ids.find(id)) is not None:
            vector: Floats = shard.vectors[row : row + 1].decode()[0]
            return vector
    return None


class CandidatesConfig(Config):
    """A vector for every passage, which texts are ranked against."""

    vectors: InputPath  # vectors of passages, or of their pieces
    passages: int = Field(ge=0)  # number of passages they are of
    most: int = Field(RANKED, ge=2)  # maximum number of passages, about
    seed: int = Field(0, ge=0)  # draws them


def write_candidates(config: CandidatesConfig, folder: Folder) -> None:
    """Write the mean of a passage's pieces; ids alone decide which are drawn, so two encoders have the same."""
    vectors = Vectors.open(config.vectors)
    pieces = bool(vectors.about.get("pieces"))
    limit = 2**64 * config.most // max(config.most, config.passages)
    sums: dict[str, Floats] = {}
    for ids, part in vectors.chunks(SHARD):
        for id, row in zip(ids, part):
            passage = id.rsplit("#", 1)[0] if pieces else id
            if hash64(f"{config.seed} {passage}") < limit:
                sums[passage] = sums.get(passage, 0) + _unit(row)
    _write_vectors(folder, list(sums), [_unit(row) for row in sums.values()], vectors)


def _unit(row: Floats) -> Floats:
    return row / max(float(np.linalg.norm(row)), 1e-12)


class StudentConfig(Config):
    """A student before training, with a projection into the teacher's space."""

    start: InputPath  # encoder that learns
    lessons: InputPath  # what the lessons stage wrote
    texts: int = Field(FITTED, ge=2)  # texts that the projection is fitted to, at most


def write_student(config: StudentConfig, folder: Folder) -> None:
    """Write the start with the projection behind its pooling, in `model/`; what it had there is replaced."""
    start, vectors = Encoder.load(config.start), Vectors.open(config.lessons)
    total = len(vectors)
    numbers = np.unique(np.linspace(0, total - 1, min(total, config.texts)).astype(np.int64))
    chosen = set(numbers.tolist())
    every = enumerate(Collection(config.lessons).passages())
    texts = [passage.text for number, passage in every if number in chosen]
    targets = np.concatenate([part for _, part in vectors.chunks(SHARD)])[numbers]

    def student(*tail: torch.nn.Module) -> Encoder:
        return Encoder(
            start.backbone,
            start.tokenizer,
            pooling=start.pooling,
            tail=tail,
            max_length=start.max_length,
            similarity="cosine",
            layout=start.layout,
        )

    device = "cuda" if torch.cuda.is_available() else "cpu"
    states = Embedder(student().to(device), unit=False).vectors(texts, None)
    student(projection(states, targets), Normalize()).to("cpu").save(folder.path / "model")


def projection(states: Floats, targets: Floats, ridge: float = RIDGE) -> Dense:
    """The linear map that brings states nearest to their targets of length 1, in the sense of least squares."""
    x, y = states.astype(np.float64), targets.astype(np.float64)
    y /= np.maximum(np.linalg.norm(y, axis=1, keepdims=True), 1e-12)
    middle_x, middle_y = x.mean(axis=0), y.mean(axis=0)
    x, y = x - middle_x, y - middle_y
    square = x.T @ x
    square[np.diag_indices_from(square)] += ridge * np.trace(square) / len(square) + 1e-12
    weights = np.linalg.solve(square, x.T @ y)
    dense = Dense(states.shape[1], targets.shape[1])
    with torch.no_grad():
        dense.linear.weight.copy_(torch.from_numpy(weights.T))
        dense.linear.bias.copy_(torch.from_numpy(middle_y - middle_x @ weights))
    return dense


PHRASES_STAGE = Stage("phrases", PhrasesConfig, write_phrases, part_of="build")
LESSONS = Stage("lessons", LessonsConfig, write_lessons, part_of="build")
CANDIDATES = Stage("candidates", CandidatesConfig, write_candidates, part_of="build")
STUDENT = Stage("student", StudentConfig, write_student, part_of="build")


def learn_from_teacher(
    builder: Builder, config: BuildConfig, teacher: Path, corpus: IndexedCorpus, exam: Exam, start: Candidate
) -> list[Candidate]:
    """Let the start learn from a teacher: the start, the teacher itself, the student, and both together."""
    whole = encode_passages(builder, "vectors-teacher", corpus.collection, teacher)
    rest = builder.work("rest", REST, RestConfig(collection=corpus.collection, questions=exam.made))
    traits = EncoderTraits.of(start.model)
    phrases = builder.work(
        "phrases",
        PHRASES_STAGE,
        PhrasesConfig(
            collection=corpus.collection,
            passages=rest,
            language=corpus.language,
            seed=config.seed,
            texts=None if config.texts is None else Path(config.texts),
            most=PHRASES_CUDA if traits.cuda else PHRASES,
            each=EACH_CUDA if traits.cuda else EACH,
        ),
    )
    pool = encode_passages(builder, "pool-teacher", exam.pool, teacher)
    shown = Candidate(TEACHER, teacher, pool, vectors=whole, display_only=True)
    if not is_collection(phrases):
        builder.say("teaching: skipped, because the documents have no words to cut texts from")
        return [start, shown]
    texts = builder.work(
        "lessons",
        LESSONS,
        LessonsConfig(
            passages=rest,
            phrases=phrases,
            vectors=whole,
            phrase_vectors=_encode_as_questions(builder, "phrases-taught", phrases, teacher),
            student=start.model,
            seed=config.seed,
        ),
    )
    count = len(Vectors.open(texts, hashes=False))
    obstacle = f"{count:,} texts are too few to learn from" if count < FEWEST_EXAMPLES else traits.obstacle
    if obstacle is not None:
        builder.say(f"teaching: skipped, because {obstacle}")
        return [start, shown]
    store = builder.work("lessons-store", PREPARE, PrepareConfig(collection=texts, tokenizer=start.model))
    before = builder.work("student", STUDENT, StudentConfig(start=start.model, lessons=texts)) / "model"
    taught, indexed = [texts], [whole]
    if config.model is None or retrieves(builder, exam, start):
        own = encode_passages(builder, "vectors-start", corpus.collection, start.model)
        start = replace(start, vectors=own)
        taught.append(_encode_as_questions(builder, "lessons-start", texts, start.model))
        indexed.append(own)
    else:
        builder.say(
            "teaching: rankings by the teacher alone, because the encoder to be trained retrieves too little"
        )
    candidates = [
        builder.work(
            f"candidates-{name}",
            CANDIDATES,
            CandidatesConfig(vectors=vectors, passages=corpus.passages, seed=config.seed),
        )
        for name, vectors in zip((TEACHER, START), indexed)
    ]
    recipe = teacher_recipe(before, traits, store, taught, candidates, config.limit)
    after = builder.work("taught", PRETRAIN, recipe) / "model"
    students = []
    for share in SHARES:
        name = f"student-{round(100 * share)}"
        model = builder.work(name, MEAN, MeanConfig(start=before, trained=after, share=share)) / "model"
        students.append(Candidate(name, model, encode_passages(builder, f"pool-{name}", exam.pool, model)))
    both = Candidate(ASYMMETRIC, teacher, pool, query=students[-1].model, vectors=whole)
    return [start, shown, *students, both]


def _encode_as_questions(builder: Builder, name: str, source: Path, model: Path) -> Path:
    """Vectors of short texts, with the model's prompt of questions."""
    return builder.work(name, ENCODE, passage_encoding(source, model, "first", prompt="query"))


def teacher_recipe(
    student: Path,
    traits: EncoderTraits,
    store: Path,
    taught: Sequence[Path],
    candidates: Sequence[Path],
    minutes: float,
) -> PretrainConfig:
    """The recipe of `liebig pretrain` for a student: a teacher's vectors of texts, and its rankings of passages.

    Both come from the teacher alone, or from teacher and start, which has a part in the rankings.
    """
    texts = len(TokenStore.open(store, hashes=False))
    most = BATCH_CUDA if traits.cuda else BATCH_CPU
    lr, batch = LR, min(most, max(1, int(0.9 * texts)))
    if traits.cuda and texts >= MANY_TEXTS:
        lr, batch = MANY_LR, MANY_BATCH
    alone = len(taught) == 1
    return PretrainConfig(
        model=FolderBackbone(path=student),
        stores=(StoreConfig(path=store),),
        source=TextSource.Config(
            vectors=tuple(taught), teacher_weights=(1.0,) if alone else (1 - START_WEIGHT, START_WEIGHT)
        ),
        objective=TeacherVectors.Config(
            pooling=traits.trainable_pooling,
            dense=True,
            space="first",
            temperature=RANKING_TEMPERATURE,
            ranking_weight=RANKING_WEIGHT_ALONE if alone else RANKING_WEIGHT,
            candidates=tuple(candidates),
        ),
        max_length=traits.length,
        dropout=0.0,
        optim=AdamWConfig(lr=lr),
        loop=LoopConfig(
            minutes=minutes,
            steps=max(1, EPOCHS * texts // batch),
            batch=batch,
            chunk_tokens="auto" if traits.cuda else "whole",
        ),
    )
