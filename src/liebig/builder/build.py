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
    work/given       a user's own questions; work/examples*, work/finetuned*: what is trained on them
    work/pool-*      the pool, indexed for the checks; work/check-start says whether the start is a good retriever

Stages that are up to date are skipped, so an interrupted build resumes, and a repeated one changes nothing. The corpus
is encoded once, by the encoder chosen. `retriever.json` is written last. Time: the minutes of training, and what
encoding takes (`liebig plan`).
"""

from __future__ import annotations

import html
import json
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import Field

from liebig import encoders
from liebig.base import workspace
from liebig.base.config import Config, InputPath
from liebig.base.errors import DataError, RecipeError, WorkspaceError
from liebig.base.hub import model_folder
from liebig.base.pipeline import Stage
from liebig.base.progress import Whole
from liebig.base.records import Document
from liebig.base.workspace import Folder
from liebig.builder import check, judge, lessons, questions, spread, training, user_questions
from liebig.builder.build_config import BuildConfig
from liebig.builder.runner import Builder, encode_passages, encode_sentences, index_sentences, index_vectors
from liebig.collection import Collection
from liebig.formats.documents import document_lines
from liebig.formats.ledger import SKIPPED
from liebig.formats.output import write_lines
from liebig.model.cross_encoder import CrossEncoder, read_files, reranker_folder
from liebig.model.encoder import Encoder
from liebig.model.folder import encoder_folder
from liebig.model.loading import check_folder
from liebig.model.onnx_graph import WRITERS, is_export, needs
from liebig.model.settings import ModelSettings
from liebig.search import retriever_folder as description
from liebig.search.retriever import Retriever
from liebig.search.retriever_folder import WORK, RetrieverDescription
from liebig.stages.passages import LENGTH
from liebig.text.sentences import LANGUAGES
from liebig.train.log import warnings_of

BY_SENTENCES = 100_000  # up to this many passages, their sentences have vectors too: some five to ten each
ROOM = 28  # tokens of the model's length left to titles and special tokens
TABLES_SHOWN = 5  # tables whose columns are printed


class ModelConfig(Config):
    """A model to copy into the retriever's folder."""

    model: InputPath = Field(description="The model's folder.")


def copy_model(config: ModelConfig, folder: Folder) -> None:
    """Copy the model, so that the retriever's folder is complete."""
    skipped = shutil.ignore_patterns(workspace.MANIFEST)
    shutil.copytree(config.model, folder.path, dirs_exist_ok=True, ignore=skipped)


class RerankerConfig(ModelConfig):
    """A cross-encoder to copy into the retriever's folder."""

    int8: bool = Field(description="Write an int8 graph beside the weights.")


def copy_reranker(config: RerankerConfig, folder: Folder) -> None:
    """Copy the cross-encoder, rounded to int8 for CPUs unless it is a graph already."""
    if config.int8 and not is_export(config.model):
        CrossEncoder.load(config.model, device="cpu").export(folder.path)
    else:
        copy_model(config, folder)


STAGES = (
    questions.STAGE,
    questions.REST,
    check.STAGE,
    *user_questions.STAGES,
    training.MEAN,
    *lessons.STAGES,
    spread.STAGE,
    Stage("model", ModelConfig, copy_model, part_of="build"),
    Stage("reranker", RerankerConfig, copy_reranker, part_of="build"),
)


def phases(config: BuildConfig) -> dict[str, str]:
    """What a build does, in the order in which it does it."""
    given = f"for {config.limit:g} min"
    learning = "Train the encoder on the documents" if config.teacher is None else "Learn from the teacher"
    found = {
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
        "train": not training.may_train(config),
        "own": config.limit <= 0 or config.questions is None,
    }
    return {name: words for name, words in found.items() if not absent.get(name)}


@dataclass(frozen=True)
class BuildResult:
    """A finished build: its folder, the system it chose, and the check behind the choice.

    Printed, it shows what every system was worth on questions made from the corpus. `retriever` opens the folder.
    """

    folder: Path
    system: str
    checks: Mapping[str, Any] = field(repr=False)

    @property
    def retriever(self) -> Retriever:
        """The folder, opened for searching."""
        return Retriever.from_folder(self.folder)

    def __repr__(self) -> str:
        return "\n".join(
            [f"Retriever in {self.folder}, answers by {self.system}", *check.sentences(self.checks)]
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
            return head + "".join(f"<p>{html.escape(line)}</p>" for line in check.sentences(self.checks))
        named = f"<tr><th>system</th><th>{self.checks['measure']}</th><th>95 %</th></tr>"
        return f"{head}<table>{named}{rows}</table>"


def build(
    table: Mapping[str, Stage],
    config: BuildConfig,
    out: Path,
    say: Callable[[str], None],
    documents: Iterable[Document] | None = None,
) -> BuildResult:
    """Build or complete a retriever's folder; `table` has the commands that it runs.

    Documents that exist in memory only are written to the work folder first, where `config.sources` names them.
    """
    refuse_foreign(out)
    if not config.replace:
        _refuse_other_corpus(config, out)
    with description.exclusive(out):
        if documents is not None:
            write_lines(kept_documents(out), document_lines(documents))
        return _build(Builder(table, out, say, STAGES), config)


def _build(builder: Builder, config: BuildConfig) -> BuildResult:
    out, say = builder.out, builder.say
    start = config.start
    _refuse(config, start)
    with Whole(phases(config), say, builder.expected.get, ["train"]) as whole:
        builder.whole = whole
        whole.begin("read")
        collection = read_collection(builder, config, start)
        whole.begin("bm25")
        bm25 = builder.part("bm25", {"collection": str(collection), "language": config.language})
        reranker = _reranker(builder, config)
        checked, models = _check(builder, config, start, collection, reranker)
        checks = check.read(checked)
        choice = checks["choice"]
        chosen = models[choice["encoder"]]
        whole.begin("vectors")
        model = builder.part("model", {"model": str(chosen.model)})
        query = (
            None
            if chosen.query is None
            else builder.part("query", {"kind": "model", "model": str(chosen.query)})
        )
        index = index_vectors(builder, collection, model, chosen.vectors)
        sentences = index_sentences(builder, collection, model) if choice["sentences"] else None
    now = RetrieverDescription(
        generation=builder.generation + 1,
        system=choice["system"],
        weight=choice["weight"],
        norm=choice["norm"],
        spread=checks["spread"],
        collection=collection.name,
        bm25=bm25.name,
        index=index.name,
        sentences=None if sentences is None else sentences.name,
        model=model.name,
        query=None if query is None else query.name,
        checks=checked.name,
        reranker=None if reranker is None else reranker.name,
        depth=config.depth,
        more={
            "sources": [absolute(source) for source in config.sources],
            "language": config.language,
            "format": config.format,
        },
    )
    description.replace(out, builder.before, now)
    folder_of_training = out / WORK / ("trained" if config.teacher is None else "taught")
    short = warnings_of(folder_of_training) if config.limit > 0 and folder_of_training.is_dir() else []
    advice = [encoders.ADVICE] if config.model is None and config.teacher is None else []
    for line in ["", *check.sentences(checks), *short, *advice]:
        say(line)
    return BuildResult(out, choice["system"], checks)


def _refuse(config: BuildConfig, start: Path) -> None:
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
    if config.teacher is not None and encoder_folder(config.teacher).resolve() == start.resolve():
        raise RecipeError(
            "the teacher is the encoder that is to learn from it",
            fix="name a larger --teacher, or another --model",
        )
    if config.reranker is not None:
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


def read_collection(builder: Builder, config: BuildConfig, model: Path) -> Path:
    """Documents and passages of the sources, and the list of files that could not be read."""
    fields = {"kind": "init", "paths": list(config.sources), "format": config.format, "strict": config.strict}
    read = builder.work("read", fields)
    skipped = builder.out / SKIPPED
    skipped.unlink(missing_ok=True)
    if (read / SKIPPED).is_file():
        shutil.copyfile(read / SKIPPED, skipped)
        count = len(skipped.read_text(encoding="utf-8").splitlines())
        files = "1 file was" if count == 1 else f"{count:,} files were"
        builder.say(
            f"{files} skipped, because reading failed; {skipped} says why (--strict makes it an error)"
        )
    tables = json.loads((read / "summary.json").read_text(encoding="utf-8")).get("tables", {})
    for table, columns in list(tables.items())[:TABLES_SHOWN]:
        builder.say(f"{table}: {columns}")
    fields = {"kind": "passages", "collection": str(read), **passage_fields(config, model)}
    return builder.part("collection", fields)


def passage_fields(config: BuildConfig, model: Path) -> dict[str, Any]:
    """The recipe of `liebig passages` for a model: passages that it can read whole."""
    length = max(8, min(LENGTH, Encoder.load(model).max_length - ROOM))
    known = config.language if config.language in LANGUAGES else None
    return {"tokenizer": str(model), "length": length, "language": known}


def _reranker(builder: Builder, config: BuildConfig) -> Path | None:
    """The folder of the reranker, if one is named."""
    if config.reranker is None:
        return None
    builder.whole.begin("reranker")
    fields = {"model": str(model_folder(config.reranker)), "int8": config.rerank_int8}
    return builder.part("reranker", fields)


def _check(
    builder: Builder, config: BuildConfig, start: Path, collection: Path, reranker: Path | None
) -> tuple[Path, dict[str, training.Encoders]]:
    """The folder of the check, and the encoders it compared by the names it has for them.

    Of an encoder that is a good retriever already, the mean of before and after is what training gives. All passages
    are encoded before the check, so that it compares the hybrid with the score scale that the hybrid is served with;
    a user's own questions are asked of nearly all passages anyway.
    """
    builder.whole.begin("questions")
    count = Collection(collection).count("passages")
    made = builder.work("questions", {"collection": str(collection), "seed": config.seed})
    given = _given(builder, config, collection)
    asked = made if given is None else given
    # Where a user's questions are asked of all passages, the pool is encoded once, however the questions change.
    everything = given is not None and Collection(given).count("passages") == count
    pool = collection if everything else asked
    bm25 = builder.work("pool-bm25", {"kind": "bm25", "collection": str(pool), "language": config.language})
    bundled = config.model is None  # with other encoders nothing was measured
    models = {judge.START: training.Encoders(start, measured=bundled)}
    vectors = {judge.START: str(encode_passages(builder, "pool-start", pool, start))}
    _expect(builder, config, collection, asked)
    fields: dict[str, Any] = {
        "kind": "check", "questions": str(asked), "bm25": str(bm25), "encoders": vectors
    }  # fmt: skip
    if given is not None:
        fields["made"] = str(made)
    by_sentences = count <= BY_SENTENCES
    if training.may_train(config):
        builder.whole.begin("train")
    if config.teacher is not None:
        models |= training.learn_from_teacher(
            builder, config, model_folder(config.teacher), models[judge.START], collection, made, fields
        )
        for name, one in models.items():
            if name not in vectors:
                stage = "pool-teacher" if one.vectors is not None else f"pool-{name}"
                vectors[name] = str(encode_passages(builder, stage, pool, one.model))
        fields["asked_by"] = {name: str(one.query) for name, one in models.items() if one.query is not None}
        fields["display_only"] = [name for name in models if name == judge.TEACHER]
    else:
        trained = training.train_on_corpus(builder, config, start, collection, made, fields)
        if trained is not None:
            models["trained"] = trained
            vectors["trained"] = str(encode_passages(builder, "pool-trained", pool, trained.model))
    if given is not None and config.limit > 0:
        builder.whole.begin("own")
        best = "trained" if "trained" in models else judge.START
        found = training.train_on_questions(
            builder, config, fields, models[best].model, vectors[best], by_sentences
        )
        if found is not None:
            own, of_parts = found
            models[questions.OWN] = replace(own, measured=bundled)
            fields |= of_parts
    builder.whole.begin("check")
    fields["accept_unless_harmful"] = [name for name, one in models.items() if one.measured]
    asking: dict[str, Any] = {"questions": str(asked), "model": str(start), "index": vectors[judge.START]}
    if given is None:
        whole = encode_passages(builder, "vectors-start", collection, start)
        models[judge.START] = replace(models[judge.START], vectors=whole)
        asking["index"] = str(whole)
    else:
        asking["made"] = str(made)
    fields["spread"] = str(builder.work("spread", asking))
    if by_sentences:
        fields["sentences"] = {}
        for name in vectors:  # one that encodes questions only has the passages of the teacher
            owner = name if models[name].query is None else judge.TEACHER
            stage = f"pool-{owner}-sentences"
            fields["sentences"][name] = str(encode_sentences(builder, stage, pool, models[owner].model))
    if reranker is not None:
        fields |= {"reranker": str(reranker), "depth": config.depth}
    return builder.part("checks", fields), models


def _expect(builder: Builder, config: BuildConfig, collection: Path, asked: Path) -> None:
    """How long the rest takes, if passages are encoded as fast as those of the questions; a teacher may be slower."""
    took = builder.took.get("pool-start")
    if took is not None and config.teacher is None:
        passages = Collection(collection).count("passages")
        times = passages / max(1, Collection(asked).count("passages"))
        twice = 2 if passages <= BY_SENTENCES else 1  # sentences are the same text again
        models = 2 if training.may_train(config) else 1
        train = 60 * config.limit + took  # the trained encoder encodes the same passages
        checked, indexed = took * models * (twice - 1), took * times * (twice - 1)
        if config.questions is None:  # all passages are encoded before the check
            checked += took * times
        else:
            indexed += took * times
        builder.expected |= {"train": train, "check": checked, "vectors": indexed}


def _given(builder: Builder, config: BuildConfig, collection: Path) -> Path | None:
    """The user's own questions, where there are enough to decide."""
    if config.questions is None:
        return None
    fields = {"file": config.questions, "collection": str(collection), "sources": list(config.sources)}
    given = builder.work("given", {**fields, "seed": config.seed})
    notes, judged = user_questions.notes_of(given)
    for note in notes:
        builder.say(note)
    return given if judged >= user_questions.FEWEST else None


def absolute(source: str) -> str:
    """A path that is right wherever it is used; names of sources (`stdlib:`) stay names."""
    return str(Path(source).resolve()) if Path(source).exists() else source
