"""From documents without labels to a folder that answers questions, in stages that can be resumed.

    work/read        what liebig init read                 collection-1     documents and passages
    work/questions   known-item questions and their pool   bm25-1           of all passages
    work/rest        passages that are not asked about     checks-1         which encoder and system, and why
    work/store       their tokens, for training
    work/trained     the encoder after its minutes         model-1          the encoder chosen
    work/mean        mean of before and after training     index-1          vectors of all passages
                                                           sentences-1      vectors of all sentences, if taken
    work/vectors-start, work/spread: the start's vectors   reranker-1       a cross-encoder, if one is named
                     of all passages, and the unit of their scores
    work/vectors-teacher, work/lessons, work/taught and others: learning from a teacher (`lessons.py`); then query-1
                     is the student, where the teacher encodes the passages
    work/given       a user's own questions; work/learnt*: maps learned from them; work/mapped*: vectors
    work/pool-*      the pool, indexed for the checks; work/check-start says whether the start is a good retriever

Stages that are up to date are skipped, so an interrupted build resumes, and a repeated one changes nothing. The corpus
is encoded once, by the encoder chosen. `retriever.json` is written last. Time: the minutes of training, and what
encoding takes (`liebig plan`).
"""

from __future__ import annotations

import html
import shutil
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from liebig import encoders
from liebig.base import own_sources, workspace
from liebig.base.config import Config, InputPath
from liebig.base.errors import DataError, RecipeError, WorkspaceError
from liebig.base.hub import model_folder
from liebig.base.pipeline import Stage
from liebig.base.progress import Whole
from liebig.base.records import Document
from liebig.base.workspace import Folder
from liebig.builder import check, check_text, user_questions
from liebig.builder.build_config import LEFT_OUT, BuildConfig, reading_options
from liebig.builder.check import CheckConfig, MadeConfig
from liebig.builder.judge import START, SystemChoice
from liebig.builder.questions import STAGE as QUESTIONS, QuestionsConfig
from liebig.builder.reading import count_copies, language_lines, read_collection, unread_lines
from liebig.builder.runner import Builder, encode_passages, encode_sentences, index_sentences, index_vectors
from liebig.builder.signs import signs_of
from liebig.builder.spread import STAGE as SPREAD, SpreadConfig
from liebig.builder.steps import Candidate, Exam, IndexedCorpus
from liebig.builder.user_questions import GIVEN, UserQuestionsConfig
from liebig.collection import Collection
from liebig.formats.convert import user_converters
from liebig.formats.documents import document_lines
from liebig.formats.output import write_lines
from liebig.model.onnx_graph import WRITERS, is_export, needs
from liebig.model.settings import ModelSettings, check_folder, encoder_folder
from liebig.search import retriever_folder as description
from liebig.search.embed import keep_models
from liebig.search.retriever import Retriever
from liebig.search.retriever_folder import RERANK_DEPTH as RERANKED, WORK, RetrieverDescription
from liebig.stages.bm25 import STAGE as BM25, BM25Config
from liebig.stages.passages import AUTO


class ModelConfig(Config):
    """A model to copy into the retriever's folder."""

    model: InputPath  # model's folder


def copy_model(config: ModelConfig, folder: Folder) -> None:
    """Copy the model, so that the retriever's folder is complete."""
    skipped = shutil.ignore_patterns(workspace.MANIFEST)
    shutil.copytree(config.model, folder.path, dirs_exist_ok=True, ignore=skipped)


class RerankerConfig(ModelConfig):
    """A cross-encoder to copy into the retriever's folder."""

    int8: bool  # write an int8 graph beside the weights


def copy_reranker(config: RerankerConfig, folder: Folder) -> None:
    """Copy the cross-encoder, rounded to int8 for CPUs unless it is a graph already."""
    if config.int8 and not is_export(config.model):
        from liebig.model.cross_encoder import CrossEncoder

        CrossEncoder.load(config.model, device="cpu").export(folder.path)
    else:
        copy_model(config, folder)


MODEL = Stage("model", ModelConfig, copy_model, part_of="build")
RERANKER = Stage("reranker", RerankerConfig, copy_reranker, part_of="build")


def phases(config: BuildConfig) -> dict[str, str]:
    given = f"for {config.limit:g} min"
    learning = "Train the encoder on the documents" if config.teacher is None else "Learn from the teacher"
    lines = {
        "read": "Read the documents and cut them into passages",
        "bm25": "Index the words (BM25)",
        "reranker": "Copy the reranker",
        "questions": "Make questions about the documents, to check systems with",
        "train": f"{learning} {given}",
        "own": "Train on your questions",
        "check": "Check which encoder and system answer best",
        "vectors": "Encode and index all passages",
    }
    absent = {
        "reranker": config.reranker is None,
        "train": not config.may_train,
        "own": config.limit <= 0 or config.questions is None,
    }
    return {name: line for name, line in lines.items() if not absent.get(name)}


@dataclass(frozen=True)
class BuildResult:
    """A finished build: its folder, the system it chose, and the check behind the choice.

    Printed, it shows what every system was worth on questions made from the corpus. `retriever` opens the folder.
    """

    folder: Path
    system: str
    checks: Mapping[str, Any] = field(repr=False)
    keeper: object = None  # of a temporary folder, which goes when nothing refers to it any more

    @property
    def retriever(self) -> Retriever:
        """The folder, opened for searching."""
        retriever = Retriever.from_folder(self.folder)
        weakref.finalize(retriever, id, self.keeper)  # refers to the keeper as long as the retriever lives
        return retriever

    def __repr__(self) -> str:
        return "\n".join(
            [f"Retriever in {self.folder}, answers by {self.system}", *check_text.sentences(self.checks)]
        )

    def _repr_html_(self) -> str:
        """The table of systems, for notebooks."""
        rows = "".join(
            f"<tr><td>{html.escape(row['name'])}{' (chosen)' if row['name'] == self.checks['chosen'] else ''}</td>"
            f"<td>{row['value']:.3f}</td><td>{row['low']:.3f} to {row['high']:.3f}</td></tr>"
            for row in self.checks["rows"]
        )
        head = f"<p>Retriever in {html.escape(str(self.folder))}, answers by {self.system}</p>"
        if not rows:
            return head + "".join(f"<p>{html.escape(line)}</p>" for line in check_text.sentences(self.checks))
        named = f"<tr><th>system</th><th>{self.checks['measure']}</th><th>95 %</th></tr>"
        return f"{head}<table>{named}{rows}</table>"


def build(
    config: BuildConfig,
    out: Path,
    say: Callable[[str], None],
    documents: Iterable[Document] | None = None,
) -> BuildResult:
    """Build or complete a retriever's folder.

    Documents that exist in memory only are written to the work folder first, where `config.sources` names them.
    """
    refuse_foreign(out)
    if not config.replace:
        _refuse_other_corpus(config, out)
    # A training needs the memory of the models that it is done with.
    trains = config.may_train or config.questions is not None
    with description.exclusive(out), nullcontext() if trains else keep_models():
        if documents is not None:
            write_lines(kept_documents(out), document_lines(documents))
        if failed := own_sources.note(map(absolute, config.sources)):
            say(f"{failed}; a server will open the original files only with --originals.")
        return _build(Builder(out, say), config)


def _build(builder: Builder, config: BuildConfig) -> BuildResult:
    out, say = builder.out, builder.say
    _refuse(config)
    with Whole(phases(config), say, builder.expected.get, ["train"]) as whole:
        builder.whole = whole
        corpus = _index_words(builder, config)
        reranker = _copy_reranker(builder, config)
        if not corpus.signs.readable:
            return _words_only(builder, config, corpus, reranker)
        exam = set_exam(builder, config, corpus)
        candidates = _candidates(builder, config, corpus, exam)
        checked, chosen = compare_systems(
            builder, config, corpus, exam, candidates, reranker, bundled=config.model is None
        )
        checks = check.read(checked)
        choice = SystemChoice(**checks["choice"])
        whole.begin("vectors")
        model = builder.part("model", MODEL, ModelConfig(model=chosen.model))
        query = chosen.query and builder.part("query", MODEL, ModelConfig(model=chosen.query))
        index = index_vectors(builder, corpus.collection, model, chosen.vectors)
        sentences = None
        if choice.sentences:
            sentences = index_sentences(builder, corpus.collection, model, chosen.vectors)
    now = replace(
        _described(builder, config, corpus, reranker, choice.system, model, checked),
        weight=choice.weight,
        norm=choice.norm,
        spread=checks["spread"],
        index=index.name,
        sentences=None if sentences is None else sentences.name,
        query=None if query is None else query.name,
    )
    description.replace(out, builder.before, now)
    trained = out / WORK / ("trained" if config.teacher is None else "taught")
    short = []
    if config.limit > 0 and trained.is_dir():
        from liebig.train.log import warnings_of

        short = warnings_of(trained)
    advice = [encoders.ADVICE] if config.model is None and config.teacher is None else []
    for line in ["", *check_text.sentences(checks), *short, *advice, *unread_lines(out)]:
        say(line)
    return BuildResult(out, choice.system, checks)


def _described(
    builder: Builder,
    config: BuildConfig,
    corpus: IndexedCorpus,
    reranker: Path | None,
    system: description.SystemName,
    model: Path,
    checked: Path,
) -> RetrieverDescription:
    """What every retriever's folder has: passages, their words, a model that cuts them, and a check."""
    return RetrieverDescription(
        generation=builder.generation + 1,
        system=system,
        collection=corpus.collection.name,
        bm25=corpus.bm25.name,
        model=model.name,
        checks=checked.name,
        reranker=None if reranker is None else reranker.name,
        depth=config.depth,
        more={
            "sources": [absolute(source) for source in config.sources],
            "languages": Collection(builder.out / WORK / "read").languages,
            "converted": sorted({one.suffix for one in (*user_converters(), *config.convert)}),
            **reading_options(config),
        },
    )


def _words_only(
    builder: Builder, config: BuildConfig, corpus: IndexedCorpus, reranker: Path | None
) -> BuildResult:
    """A folder that searches by words, because the encoder cannot read the corpus: nothing is encoded."""
    builder.whole.drop("questions", "train", "own", "check", "vectors")
    model = builder.part("model", MODEL, ModelConfig(model=config.start))
    unread = check.UnreadConfig(model=config.start, unread=corpus.signs.unread, named=config.model)
    checked = builder.part("checks", check.UNREAD, unread)
    now = _described(builder, config, corpus, reranker, "bm25", model, checked)
    description.replace(builder.out, builder.before, now)
    checks = check.read(checked)
    for line in ["", *check_text.sentences(checks), *unread_lines(builder.out)]:
        builder.say(line)
    return BuildResult(builder.out, "bm25", checks)


def _refuse(config: BuildConfig) -> None:
    """What is wrong with options, files and models is said before the work begins."""
    if config.teacher is not None and config.limit <= 0:
        raise RecipeError("minutes = 0: a teacher needs time to teach", fix="give --minutes, or no --teacher")
    if config.texts is not None and config.teacher is None:
        raise RecipeError("texts are used only together with a teacher", fix="give --teacher, or no --texts")
    if config.rerank_depth is not None and config.reranker is None:
        raise RecipeError(
            "a rerank depth is used only together with a reranker",
            fix="give --reranker, or no --rerank-depth",
        )
    if not config.rerank_int8 and config.reranker is None:
        raise RecipeError(
            "the precision of a reranker was given, but no reranker",
            fix="give --reranker, or no --no-rerank-int8",
        )
    if config.questions is not None:
        user_questions.read_file(Path(config.questions))
    if config.texts is not None and not any(user_questions.read_texts(Path(config.texts))):
        raise DataError("there are no texts in it", file=config.texts, fix="write one per line")
    for named in filter(None, (config.model, config.teacher)):
        folder = encoder_folder(named)
        if not is_export(folder):
            check_folder(ModelSettings.read(folder).transformer)
    if config.teacher is not None and encoder_folder(config.teacher).resolve() == config.start.resolve():
        raise RecipeError(
            "the teacher is the encoder that is to learn from it",
            fix="name a larger --teacher, or another --model",
        )
    if config.reranker is not None:
        from liebig.model.cross_encoder import read_files, reranker_folder

        folder = reranker_folder(config.reranker)
        read_files(folder)  # all but its weights
        if config.rerank_int8 and not is_export(folder):
            needs(*WRITERS)


def refuse_foreign(out: Path) -> None:
    """Build only in an empty place, or in one that a build has written."""
    ours = description.is_retriever(out) or (out / WORK).is_dir()
    if out.exists() and not ours and (not out.is_dir() or any(out.iterdir())):
        raise WorkspaceError(
            "already exists and was not created by Liebig; refusing to overwrite it",
            file=out,
            fix="give another --out",
        )


def _refuse_other_corpus(config: BuildConfig, out: Path) -> None:
    """Build a folder again from its own sources only: those of another corpus would replace what is there."""
    if not description.is_retriever(out):
        return
    sources = sorted(map(absolute, config.sources))
    before = sorted(description.read(out).more.get("sources", ()))
    if before != sources:
        raise WorkspaceError(
            f"was built from {', '.join(before) or 'other sources'}; refusing to replace it with a build from "
            f"{', '.join(sources)}",
            file=out,
            fix="give another --out, or --replace",
        )


def kept_documents(out: Path) -> Path:
    """The file that documents from memory are written to, to be read as any source is."""
    return out / WORK / "documents.jsonl"


def _index_words(builder: Builder, config: BuildConfig) -> IndexedCorpus:
    """Read the sources, and index the words of all passages."""
    builder.whole.begin("read")
    collection = read_collection(builder, config, config.start)
    builder.whole.begin("bm25")
    counts = Collection(builder.out / WORK / "read").languages
    if copies := count_copies(collection):
        are = (
            "1 document is a copy of another" if copies == 1 else f"{copies:,} documents are copies of others"
        )
        builder.say(f"{are}, wholly or nearly; a hit says where else it is (also in)")
    for line in language_lines(counts, config.model is None and config.teacher is None):
        builder.say(line)
    bm25 = builder.part("bm25", BM25, _bm25_config(collection, config))
    main = config.language or next(filter(None, counts), "en")
    signs = signs_of(collection, config.start)
    corpus = IndexedCorpus(collection, Collection(collection).count("passages"), signs, bm25, main)
    builder.by_sentences = corpus.by_sentences
    return corpus


def _bm25_config(collection: Path, config: BuildConfig) -> BM25Config:
    return BM25Config(collection=collection, language=config.language or AUTO)


def _copy_reranker(builder: Builder, config: BuildConfig) -> Path | None:
    if config.reranker is None:
        return None
    builder.whole.begin("reranker")
    model = model_folder(config.reranker)
    return builder.part("reranker", RERANKER, RerankerConfig(model=model, int8=config.rerank_int8))


def set_exam(builder: Builder, config: BuildConfig, corpus: IndexedCorpus) -> Exam:
    """Questions made from the corpus, or the user's own where there are enough to decide, and their pool."""
    builder.whole.begin("questions")
    made = builder.work(
        "questions", QUESTIONS, QuestionsConfig(collection=corpus.collection, seed=config.seed)
    )
    questions, pool, judged = made, made, 0
    if config.questions is not None:
        given = builder.work(
            "given",
            GIVEN,
            UserQuestionsConfig(
                file=Path(config.questions),
                collection=corpus.collection,
                sources=config.sources,
                seed=config.seed,
            ),
        )
        notes, count = user_questions.notes_of(given)
        for note in notes:
            builder.say(note)
        if count:
            # Where they are asked of all passages, the pool is encoded once, however the questions change.
            everything = Collection(given).count("passages") == corpus.passages
            questions, pool, judged = given, corpus.collection if everything else given, count
    bm25 = made_bm25 = builder.work("pool-bm25", BM25, _bm25_config(made, config))
    if judged:
        bm25 = builder.work("given-bm25", BM25, _bm25_config(pool, config))
    return Exam(questions, made, judged, pool, bm25, made_bm25)


def start_of(
    builder: Builder, config: BuildConfig, corpus: IndexedCorpus, exam: Exam, vectors: Path | None = None
) -> Candidate:
    """The encoder before training and its vectors of the pools; `vectors` are those of all passages, if known."""
    made = encode_passages(builder, "pool-start", exam.made, config.start)
    if not exam.judged:
        return Candidate(START, config.start, made, vectors=vectors)
    if exam.pool == corpus.collection:  # encoded once, also if an earlier build has done it
        whole = vectors or encode_passages(builder, "vectors-start", exam.pool, config.start)
        return Candidate(START, config.start, whole, vectors=whole, made=made)
    pool = encode_passages(builder, "given-start", exam.pool, config.start)
    return Candidate(START, config.start, pool, vectors=vectors, made=made)


def _candidates(builder: Builder, config: BuildConfig, corpus: IndexedCorpus, exam: Exam) -> list[Candidate]:
    """The encoders that are compared: the start, and what training makes of it."""
    start = start_of(builder, config, corpus, exam)
    _expect(builder, config, corpus, exam, start)
    candidates, base = [start], start
    if config.may_train:
        builder.whole.begin("train")
        from liebig.builder.lessons import learn_from_teacher  # what trains imports torch
        from liebig.builder.training import train_on_documents

        if config.teacher is not None:
            teacher = model_folder(config.teacher)
            candidates = learn_from_teacher(builder, config, teacher, corpus, exam, start)
        elif (trained := train_on_documents(builder, config, corpus, exam, start)) is not None:
            candidates, base = [start, trained], trained
    elif config.limit > 0 and config.questions is None:
        builder.say(LEFT_OUT)
    if exam.judged and config.limit > 0:
        builder.whole.begin("own")
        from liebig.builder.question_training import train_on_questions

        own = train_on_questions(builder, config, exam, base, corpus.by_sentences)
        candidates += [] if own is None else [own]
    return candidates


def compare_systems(
    builder: Builder,
    config: BuildConfig,
    corpus: IndexedCorpus,
    exam: Exam,
    candidates: Sequence[Candidate],
    reranker: Path | None,
    *,
    bundled: bool,
) -> tuple[Path, Candidate]:
    """The folder of the check, and the encoder that it chose.

    All passages are encoded before the check, so that it compares the hybrid with the score scale that the hybrid is
    served with; a user's own questions are asked of nearly all passages anyway.
    """
    builder.whole.begin("check")
    known = {candidate.name: candidate for candidate in candidates}
    start = known[START]
    if not exam.judged and start.vectors is None:
        whole = encode_passages(builder, "vectors-start", corpus.collection, start.model)
        start = known[START] = replace(start, vectors=whole)
    asked_of = start.pool if exam.judged else start.vectors
    assert asked_of is not None, "the start has encoded the pool or all passages"
    made = exam.made if exam.judged else None
    asks = start.query or start.model
    scale = SpreadConfig(questions=exam.questions, made=made, index=asked_of, model=asks)
    pools = {name: one.pool for name, one in known.items() if one.pool is not None}
    both = {name: one.made for name, one in known.items() if one.made is not None}

    def sentences_of(pool: Path, names: Iterable[str], prefix: str) -> dict[str, Path]:
        vectors = {}
        for name in names if corpus.by_sentences else ():
            model = known[name].model  # several encoders of questions may search its passages
            owner = next(other for other, one in known.items() if one.model == model)
            vectors[name] = encode_sentences(builder, f"{prefix}-{owner}-sentences", pool, model)
        return vectors

    checked = builder.part(
        "checks",
        check.STAGE,
        CheckConfig(
            questions=exam.questions,
            made=None
            if made is None
            else MadeConfig(
                questions=made,
                bm25=exam.made_bm25,
                encoders=both,
                sentences=sentences_of(made, both, "pool"),
            ),
            bm25=exam.bm25,
            encoders=pools,
            query_models={
                START: start.model,  # whichever folder its vectors lie in
                **{name: one.query for name, one in known.items() if one.query is not None},
            },
            display_only=tuple(name for name, one in known.items() if one.display_only),
            sentences=sentences_of(exam.pool, pools, "given" if exam.judged else "pool"),
            parts={name: one.parts for name, one in known.items() if one.parts},
            sentence_parts={name: one.sentence_parts for name, one in known.items() if one.sentence_parts},
            bundled=bundled,
            signs=corpus.signs.of_rule,
            spread=builder.work("spread", SPREAD, scale),
            reranker=reranker,
            depth=RERANKED if reranker is None else config.depth,
        ),
    )
    return checked, known[check.read(checked)["choice"]["encoder"]]


def _expect(
    builder: Builder, config: BuildConfig, corpus: IndexedCorpus, exam: Exam, start: Candidate
) -> None:
    """How long the rest takes, if passages are encoded as fast as those of the questions; a teacher may be slower."""
    assert start.pool is not None, "the start has encoded the pool"
    took = builder.took.get(start.pool.name)
    if took is not None and config.teacher is None:
        times = corpus.passages / max(1, Collection(exam.pool).count("passages"))
        # Sentences are the same text again, unless they come with their passages.
        again = 1 if corpus.by_sentences and not builder.sentences else 0
        models = 2 if config.may_train else 1
        train = 60 * config.limit + took  # the trained encoder encodes the same passages
        checked, indexed = took * models * again, took * times * again
        if not exam.judged:  # all passages are encoded before the check
            checked += took * times
        elif start.vectors is None:
            indexed += took * times
        builder.expected |= {"train": train, "check": checked, "vectors": indexed}


def absolute(source: str) -> str:
    """A path that is right wherever it is used; names of sources (`stdlib:`) stay names."""
    return str(Path(source).resolve()) if Path(source).exists() else source
