"""From documents without labels to a folder that answers questions, in stages that can be resumed.

    work/read        what liebig init read                 collection-1     documents and passages
    work/questions   known-item questions and their pool   bm25-1           of all passages
    work/rest        passages that are not asked about     checks-1         which encoder and system, and why
    work/store       their tokens, for training
    work/trained     the encoder after its minutes         model-1          the encoder chosen
    work/mean        mean of before and after training     index-1          vectors of all passages
                                                           sentences-1      vectors of all sentences, if taken
                                                           reranker-1       a cross-encoder, if one is named
    work/drills*, work/ranked: queries cut from the corpus, and how the hybrid ranks them (`listwise.py`)
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
import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from liebig import encoders
from liebig.base import pipeline, workspace
from liebig.base.config import Config, InputPath
from liebig.base.errors import RecipeError, WorkspaceError
from liebig.base.hub import model_folder
from liebig.base.json_output import without_text
from liebig.base.pipeline import Planned, Stage
from liebig.base.progress import Whole, is_verbose, say
from liebig.base.records import Document
from liebig.base.workspace import Folder
from liebig.builder import check, lessons, listwise, questions, training, user_questions
from liebig.builder.cutting import LENGTH
from liebig.collection.collection import Collection
from liebig.formats.documents import document_lines
from liebig.formats.items import SKIPPED
from liebig.formats.output import write_lines
from liebig.model.cross_encoder import CrossEncoder
from liebig.model.encoder import Encoder
from liebig.model.onnx_graph import is_export
from liebig.search import retriever_folder as description
from liebig.search.retriever import Retriever
from liebig.search.retriever_folder import WORK, RetrieverDescription
from liebig.text.sentences import LANGUAGES
from liebig.train.log import warnings_of
from liebig.vectors.vector_folder import Vectors

EXACT = 2_000_000  # up to this many vectors, every one is scored
BY_SENTENCES = 100_000  # up to this many passages, their sentences have vectors too: some five to ten each
SAMPLE = 2000  # passages looked at to see whether they fit the model
ROOM = 28  # tokens of the model's length left to titles and special tokens
PIECES = 8  # vectors of a passage at most, where passages are longer than the model reads


def _names(value: Any) -> Any:
    """One source or several, as text."""
    several = [value] if isinstance(value, str | Path) else value
    return [str(one) if isinstance(one, Path) else one for one in several]


class BuildConfig(Config):
    """What a retriever is built from, with which encoder, and how long the encoder is trained."""

    sources: Annotated[tuple[str, ...], BeforeValidator(_names)] = Field(
        min_length=1, description="Files and folders, in any format liebig init reads."
    )
    model: str | None = Field(
        default=None,
        description="The encoder: a folder, liebig:NAME, or org/name of the hub [default: the bundled one].",
    )
    teacher: str | None = Field(
        default=None,
        description="A larger encoder whose vectors and rankings the encoder learns on the corpus; named like --model.",
    )
    minutes: float = Field(
        default=30.0, ge=0, description="Minutes of training on the corpus; 0 keeps the encoder untrained."
    )
    questions: str | None = Field(
        default=None,
        description="Your own questions, with or without judged passages: JSON lines, CSV, TSV, text, a BEIR folder.",
    )
    language: str = Field(default="en", description="Language of the texts, by name or code.")
    seed: int = Field(default=0, ge=0, description="Seed of all random choices.")
    strict: bool = Field(
        default=False, description="Fail on unreadable or suspicious files [default: skip and list them]."
    )

    reranker: str | None = Field(
        default=None,
        description="A cross-encoder that may order the best hits anew: a folder, or org/name [default: none].",
    )
    rerank_depth: int = Field(default=description.DEPTH, ge=1, description="Hits that the reranker orders.")
    rerank_int8: bool = Field(
        default=True,
        description="Make the reranker an int8 graph for CPUs, about twice as fast (needs onnx).",
    )

    @property
    def start(self) -> Path:
        """The folder of the starting encoder: the one named, or the one that comes with the package."""
        return encoders.folder() if self.model is None else model_folder(self.model)


@dataclass(frozen=True)
class Encoders:
    """What a system may encode with: the model of passages, that of questions if it is another, vectors made before."""

    model: Path
    query: Path | None = None
    vectors: Path | None = None
    measured: bool = False  # whether it gained on people's questions elsewhere, with its sentences


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
    *listwise.STAGES,
    Stage("model", ModelConfig, copy_model, part_of="build"),
    Stage("reranker", RerankerConfig, copy_reranker, part_of="build"),
)


def phases(config: BuildConfig) -> dict[str, str]:
    """What a build does, in the order in which it does it."""
    given = f"for {config.minutes:g} min"
    training = "Train the encoder on the documents" if config.teacher is None else "Learn from the teacher"
    found = {
        "read": "Read the documents and cut them into passages",
        "bm25": "Index the words (BM25)",
        "reranker": "Copy the reranker",
        "questions": "Make questions about the documents, to check systems with",
        "train": f"{training} {given}",
        "own": "Train on your questions",
        "check": "Check which encoder and system answer best",
        "vectors": "Encode and index all passages",
    }
    absent = {
        "reranker": config.reranker is None,
        "train": config.minutes <= 0,
        "own": config.minutes <= 0 or config.questions is None,
    }
    return {name: words for name, words in found.items() if not absent.get(name)}


class Builder:
    """Runs stages below a retriever's folder, in phases with a line each; those that are up to date are skipped.

    `table` has the stages that are commands, `own` those that are parts of a build or an update only. Whoever makes
    one holds the folder (`exclusive`); what killed runs left in it goes.
    """

    def __init__(
        self,
        table: Mapping[str, Stage],
        out: Path,
        say: Callable[[str], None],
        own: Sequence[Stage] = STAGES,
    ) -> None:
        self.table = {**table, **{stage.name: stage for stage in own}}
        self.out, self.say = out, say
        self.whole = Whole({}, say)
        self.took: dict[str, float] = {}  # seconds, by the names of the stages that were run
        self.expected: dict[str, float] = {}  # seconds, by the names of phases; those that are known
        self.before = description.read(out) if description.is_retriever(out) else None
        description.remove_old(out, self.before)

    @property
    def generation(self) -> int:
        """The generation in the folder; 0 where there is nothing yet."""
        return self.before.generation if self.before is not None else 0

    def work(self, name: str, fields: Mapping[str, Any]) -> Path:
        """Run a stage into the work folder."""
        planned = self._planned(self.out / WORK, name, name, fields)
        return self._run(planned, planned.up_to_date)

    def part(self, part: str, fields: Mapping[str, Any]) -> Path:
        """Run a stage into a numbered folder, unless the present generation's one is up to date."""
        present = getattr(self.before, part, None)
        if present is not None:
            planned = self._planned(self.out, present, part, fields)
            if planned.up_to_date:
                return self._run(planned, up_to_date=True)
        planned = self._planned(self.out, f"{part}-{self.generation + 1}", part, fields)
        return self._run(planned, planned.up_to_date)

    def _planned(self, out: Path, folder: str, name: str, fields: Mapping[str, Any]) -> Planned:
        return pipeline.plan_stages(self.table, {folder: {"kind": name, **fields}}, out)[0]

    def _run(self, planned: Planned, up_to_date: bool) -> Path:
        name = planned.out.relative_to(self.out)
        if up_to_date:
            say(f"{name}: up to date")
        else:
            self.whole.works()
            say(f"{name}: {planned.stage.name} ...")
            began = time.monotonic()
            with without_text(not is_verbose()):  # what it prints as a command
                pipeline.run_stage(planned.stage, planned.config, planned.out)
            self.took[planned.name] = time.monotonic() - began
        return planned.out


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
    with description.exclusive(out):
        if documents is not None:
            write_lines(kept_documents(out), document_lines(documents))
        return _build(Builder(table, out, say), config)


def _build(builder: Builder, config: BuildConfig) -> BuildResult:
    out, say = builder.out, builder.say
    start = config.start
    if config.teacher is not None and config.minutes <= 0:
        raise RecipeError("minutes = 0: a teacher needs time to teach", fix="give --minutes, or no --teacher")
    if config.questions is not None:  # what is wrong with the file is said before the work begins
        user_questions.read_file(Path(config.questions))
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
        spread=checks.get("spread", 1.0),  # those of earlier versions have none, and do not need it
        collection=collection.name,
        bm25=bm25.name,
        index=index.name,
        sentences=None if sentences is None else sentences.name,
        model=model.name,
        query=None if query is None else query.name,
        checks=checked.name,
        reranker=None if reranker is None else reranker.name,
        depth=config.rerank_depth,
        more={"sources": [absolute(source) for source in config.sources], "language": config.language},
    )
    before = builder.before
    if before is None or before.row() | {"generation": 0} != now.row() | {"generation": 0}:
        description.write(out, now)
        description.remove_old(out, now)
    folder_of_training = out / WORK / ("trained" if config.teacher is None else "taught")
    short = warnings_of(folder_of_training) if config.minutes > 0 and folder_of_training.is_dir() else []
    advice = [encoders.ADVICE] if config.model is None and config.teacher is None else []
    for line in ["", *check.sentences(checks), *short, *advice]:
        say(line)
    return BuildResult(out, choice["system"], checks)


def refuse_foreign(out: Path) -> None:
    """Build only in an empty place, or in one that a build has written."""
    ours = description.is_retriever(out) or (out / WORK).is_dir()
    if out.exists() and not ours and (not out.is_dir() or any(out.iterdir())):
        raise WorkspaceError(
            "already exists and was not created by Liebig; refusing to overwrite it",
            file=out,
            fix="give another --out",
        )


def kept_documents(out: Path) -> Path:
    """The file that documents from memory are written to, to be read as any source is."""
    return out / WORK / "documents.jsonl"


def read_collection(builder: Builder, config: BuildConfig, model: Path) -> Path:
    """Documents and passages of the sources, and the list of files that could not be read."""
    read = builder.work("read", {"kind": "init", "paths": list(config.sources), "strict": config.strict})
    skipped = builder.out / SKIPPED
    skipped.unlink(missing_ok=True)
    if (read / SKIPPED).is_file():
        shutil.copyfile(read / SKIPPED, skipped)
        count = len(skipped.read_text(encoding="utf-8").splitlines())
        files = "1 file was" if count == 1 else f"{count:,} files were"
        builder.say(
            f"{files} skipped because they cannot be read; {skipped} says why (--strict refuses them)"
        )
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
) -> tuple[Path, dict[str, Encoders]]:
    """The folder of the check, and the encoders it compared by the names it has for them.

    Of an encoder that is a good retriever already, the mean of before and after is what training gives.
    """
    builder.whole.begin("questions")
    made = builder.work("questions", {"collection": str(collection), "seed": config.seed})
    given = _given(builder, config, collection)
    asked = made if given is None else given
    bm25 = builder.work("pool-bm25", {"kind": "bm25", "collection": str(asked), "language": config.language})
    bundled = config.model is None  # with other encoders nothing was measured
    models = {check.START: Encoders(start, measured=bundled)}
    vectors = {check.START: str(encode_passages(builder, "pool-start", asked, start))}
    _expect(builder, config, collection, asked)
    fields: dict[str, Any] = {
        "kind": "check", "questions": str(asked), "bm25": str(bm25), "encoders": vectors
    }  # fmt: skip
    by_sentences = Collection(collection).count("passages") <= BY_SENTENCES
    if config.minutes > 0:
        builder.whole.begin("train")
    if config.teacher is not None:
        models |= _teach(builder, config, model_folder(config.teacher), start, collection, made)
        for name, one in models.items():
            if name not in vectors:
                pool = "pool-teacher" if one.vectors is not None else f"pool-{name}"
                vectors[name] = str(encode_passages(builder, pool, asked, one.model))
        fields["asked_by"] = {name: str(one.query) for name, one in models.items() if one.query is not None}
        fields["shown"] = [name for name in models if name == check.TEACHER]
    else:
        trained = _train(builder, config, start, collection, made, fields)
        if trained is not None:
            models["trained"] = replace(trained, measured=trained.measured and bundled)
            vectors["trained"] = str(encode_passages(builder, "pool-trained", asked, trained.model))
    if given is not None and config.minutes > 0:
        builder.whole.begin("own")
        best = "trained" if "trained" in models else check.START
        found = _train_on_questions(builder, fields, models[best].model, vectors[best], by_sentences)
        if found is not None:
            own, of_parts = found
            models[questions.OWN] = replace(own, measured=bundled)
            fields |= of_parts
    builder.whole.begin("check")
    if by_sentences:
        fields["trusted"] = [name for name, one in models.items() if one.measured]
        fields["sentences"] = {}
        for name in vectors:  # one that encodes questions only has the passages of the teacher
            owner = name if models[name].query is None else check.TEACHER
            pool = f"pool-{owner}-sentences"
            fields["sentences"][name] = str(encode_sentences(builder, pool, asked, models[owner].model))
    if reranker is not None:
        fields |= {"reranker": str(reranker), "depth": config.rerank_depth}
    return builder.part("checks", fields), models


def _expect(builder: Builder, config: BuildConfig, collection: Path, asked: Path) -> None:
    """How long the rest takes, if passages are encoded as fast as those of the questions; a teacher may be slower."""
    took = builder.took.get("pool-start")
    if took is not None and config.teacher is None:
        passages = Collection(collection).count("passages")
        times = passages / max(1, Collection(asked).count("passages"))
        twice = 2 if passages <= BY_SENTENCES else 1  # sentences are the same text again
        models = 2 if config.minutes > 0 else 1
        train = 60 * config.minutes + took  # the trained encoder encodes the same passages
        checked = took * models * (twice - 1)
        builder.expected |= {"train": train, "check": checked, "vectors": twice * took * times}


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


def _train_on_questions(
    builder: Builder, fields: Mapping[str, Any], start: Path, vectors: str, by_sentences: bool
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
        return None

    def trained(name: str, **without: int) -> Path:
        mined = {"questions": str(asked), "bm25": fields["bm25"], "vectors": vectors, **without}
        examples = builder.work(f"examples{name}", {"kind": "examples", **mined})
        recipe = user_questions.recipe(start, examples, Encoder.load(start).max_length)
        finetuned = builder.work(f"finetuned{name}", recipe)
        # Training may have seen shorter texts; lengths and titles stay those of use.
        whole = {"kind": "mean", "start": str(start), "trained": str(finetuned / "model"), "share": 1.0}
        return builder.work(f"finetuned{name}-whole", whole) / "model"

    parts = [trained(f"-without-{part}", without=part) for part in range(user_questions.PARTS)]
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


def _train(
    builder: Builder,
    config: BuildConfig,
    start: Path,
    collection: Path,
    asked: Path,
    fields: Mapping[str, Any],
) -> Encoders | None:
    """The encoder after training on the corpus; None where there is no time, or nothing to train on.

    One that is a good retriever already learns from its own hybrid and goes half of the way; one that is none learns
    by contrast.
    """
    if config.minutes <= 0:
        return None
    rest = builder.work("rest", {"collection": str(collection), "questions": str(asked)})
    store = builder.work("store", {"kind": "prepare", "collection": str(rest), "tokenizer": str(start)})
    traits = training.Start.of(start)
    reason = training.why_not(traits, store)
    if reason is not None:
        builder.say(f"training: skipped, because {reason}")
        return None
    if not check.read(builder.work("check-start", fields))["fair"]:
        recipe = training.contrast_recipe(start, traits, store, asked, config.minutes)
        return Encoders(builder.work("trained", {"kind": "pretrain", **recipe}) / "model")
    if not listwise.tells_apart(Collection(rest).passages()):
        builder.say(
            "training: skipped, because most documents are one passage with a title of its own; it did harm on such "
            "corpora"
        )
        return None
    ranked = _rank(builder, config, start, rest)
    recipe = training.distill_recipe(start, traits, ranked, config.minutes)
    trained = builder.work("trained", {"kind": "finetune", **recipe}) / "model"
    half = builder.work("mean", {"start": str(start), "trained": str(trained)}) / "model"
    return Encoders(half, measured=True)


def _rank(builder: Builder, config: BuildConfig, start: Path, rest: Path) -> Path:
    """Queries cut from the corpus, with the hybrid's best passages for each (`listwise.py`)."""
    cut = {"passages": str(rest), "language": config.language, "seed": config.seed}
    drills = builder.work("drills", cut)
    words = {"kind": "bm25", "collection": str(drills), "language": config.language}
    bm25 = builder.work("drills-bm25", words)
    vectors = builder.work("drills-vectors", encode_fields(drills, start, "first"))
    return builder.work("ranked", {"drills": str(drills), "bm25": str(bm25), "vectors": str(vectors)})


def _teach(
    builder: Builder, config: BuildConfig, teacher: Path, start: Path, collection: Path, asked: Path
) -> dict[str, Encoders]:
    """Let the start learn from a teacher: the teacher itself, the student, and both together (`lessons.py`)."""
    whole = encode_passages(builder, "vectors-teacher", collection, teacher)
    rest = builder.work("rest", {"collection": str(collection), "questions": str(asked)})
    cut: dict[str, Any] = {"collection": str(collection), "passages": str(rest)}
    traits = training.Start.of(start)
    most = lessons.PHRASES_CUDA if traits.cuda else lessons.PHRASES
    cut |= {"language": config.language, "seed": config.seed, "most": most}
    phrases = builder.work("phrases", cut)
    spoken = builder.work("phrases-taught", {**encode_fields(phrases, teacher, "first"), "prompt": "query"})
    texts = builder.work("lessons", {
        "passages": str(rest), "phrases": str(phrases), "vectors": str(whole), "phrase_vectors": str(spoken),
        "student": str(start), "seed": config.seed,
    })  # fmt: skip
    found = {check.TEACHER: Encoders(teacher, vectors=whole)}
    reason = training.why_not_taught(traits, len(Vectors.open(texts, hashes=False)))
    if reason is not None:
        builder.say(f"teaching: skipped, because {reason}")
        return found
    store = {"kind": "prepare", "collection": str(texts), "tokenizer": str(start)}
    tokens = builder.work("lessons-store", store)
    before = builder.work("student", {"start": str(start), "lessons": str(texts)}) / "model"
    recipe = training.teacher_recipe(before, traits, tokens, texts, whole, config.minutes)
    after = builder.work("taught", {"kind": "pretrain", **recipe}) / "model"
    for share in training.SHARES:
        name = f"student-{round(100 * share)}"
        between = {"kind": "mean", "start": str(before), "trained": str(after), "share": share}
        found[name] = Encoders(builder.work(name, between) / "model")
    last = found[f"student-{round(100 * training.SHARES[-1])}"]
    return {**found, check.ASYMMETRIC: Encoders(teacher, last.model, whole)}


def encode_passages(builder: Builder, name: str, source: Path, model: Path) -> Path:
    """Vectors of a collection: one for every passage, or for every piece where passages are too long for the model."""
    layout = Encoder.load(model).layout_for("passage")
    sample = [layout.text(p) for p in islice(Collection(source).passages(), SAMPLE)]
    room = layout.length - len(layout.tokenizer.wrap([]))
    longer = layout.tokens(sample).lengths > room
    long = "max" if longer.sum() > 0.02 * len(sample) else "first"
    return builder.work(name, encode_fields(source, model, long))


def encode_fields(source: Path, model: Path, long: str) -> dict[str, Any]:
    """The recipe of `liebig encode` in builds and updates."""
    return {
        "kind": "encode", "source": str(source), "model": str(model), "long": long, "most_pieces": PIECES
    }  # fmt: skip


def encode_sentences(builder: Builder, name: str, source: Path, model: Path) -> Path:
    """Vectors of the sentences of a collection's passages."""
    return builder.work(name, sentence_fields(source, model))


def sentence_fields(source: Path, model: Path) -> dict[str, Any]:
    """The recipe of `liebig encode` for sentences, in builds and updates."""
    return {"kind": "encode", "source": str(source), "model": str(model), "what": "sentences"}


def index_sentences(builder: Builder, collection: Path, model: Path) -> Path:
    """Vectors of all sentences, every one of which is scored."""
    vectors = encode_sentences(builder, "sentence-vectors", collection, model)
    return builder.part("sentences", {"kind": "index", "vectors": str(vectors), "index": {"kind": "exact"}})


def index_vectors(builder: Builder, collection: Path, model: Path, vectors: Path | None = None) -> Path:
    """Vectors of all passages, searched exactly where there are not too many; made here unless they are there."""
    vectors = vectors or encode_passages(builder, "vectors", collection, model)
    exact = Collection(collection).count("passages") <= EXACT
    kind = {"kind": "exact"} if exact else {"kind": "faiss"}
    return builder.part("index", {"vectors": str(vectors), "index": kind})


def absolute(source: str) -> str:
    """A path that is right wherever it is used; names of sources (`stdlib:`) stay names."""
    return str(Path(source).resolve()) if Path(source).exists() else source
