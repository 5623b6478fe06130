"""`liebig build`: from documents without labels to a folder that answers, by stages that are taken up again.

    work/read        what liebig init read                 collection-1     documents and passages
    work/questions   known-item questions and their pool   bm25-1           of all passages
    work/store       tokens, for training                  checks-1         which encoder and system, and why
    work/trained     the encoder after its minutes         model-1          the encoder chosen
    work/mean        half the way, of a good start         index-1          vectors of all passages
    work/pool-*      the pool, indexed for the checks; work/check-start says whether the start is good

Every stage is skipped when it is up to date, so an interrupted build goes on, and one that is repeated changes nothing.
The corpus is encoded once, by the encoder chosen. `retriever.json` comes last. Time: the minutes of training, and what
encoding takes (`liebig plan`).
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from liebig import encoders
from liebig.base import pipeline, workspace
from liebig.base.errors import RecipeError, WorkspaceError
from liebig.base.pipeline import Planned, Stage
from liebig.base.progress import say
from liebig.base.workspace import Folder
from liebig.builder.stages import (
    ChangesConfig,
    CheckConfig,
    CompactConfig,
    MeanConfig,
    ModelConfig,
    QuestionsConfig,
)
from liebig.collection.collection import Collection
from liebig.commands import STAGES
from liebig.formats.items import SKIPPED
from liebig.search import retriever_folder as description
from liebig.search.retriever_folder import WORK, Described
from liebig.text.sentences import LANGUAGES

EXACT = 2_000_000  # vectors up to which every one is scored
SAMPLE = 2000  # passages looked at to see whether they fit the model
ROOM = 28  # tokens of the model's length left to titles and special tokens
PIECES = 8  # vectors of a passage at most, where passages are longer than the model reads
LENGTH = 100  # tokens of a passage at most


def _questions(config: QuestionsConfig, folder: Folder) -> None:
    from liebig.builder.questions import run

    run(config, folder)


def _check(config: CheckConfig, folder: Folder) -> None:
    from liebig.builder.check import run

    run(config, folder)


def _changes(config: ChangesConfig, folder: Folder) -> None:
    from liebig.builder.stages import run_changes as run

    run(config, folder)


def _compact(config: CompactConfig, folder: Folder) -> None:
    from liebig.builder.stages import run_compact as run

    run(config, folder)


def _mean(config: MeanConfig, folder: Folder) -> None:
    from liebig.builder.stages import run_mean as run

    run(config, folder)


def _model(config: ModelConfig, folder: Folder) -> None:
    skipped = shutil.ignore_patterns(workspace.MANIFEST)
    shutil.copytree(config.model, folder.path, dirs_exist_ok=True, ignore=skipped)


OWN = {
    stage.name: stage
    for stage in (
        Stage("questions", QuestionsConfig, _questions, part_of="build"),
        Stage("check", CheckConfig, _check, part_of="build"),
        Stage("changes", ChangesConfig, _changes, part_of="update"),
        Stage("compact", CompactConfig, _compact, part_of="update"),
        Stage("mean", MeanConfig, _mean, part_of="build"),
        Stage("model", ModelConfig, _model, part_of="build"),
    )
}


@dataclass(frozen=True)
class Wish:
    """What is built: from what, with which encoder, how long it is trained."""

    sources: tuple[str, ...]
    model: str | None = None
    minutes: float = 0.0
    language: str = "en"
    seed: int = 0
    strict: bool = False

    @property
    def start(self) -> Path:
        """The folder of the starting encoder: the one named, or the one that comes with the package."""
        return encoders.folder() if self.model is None else model_folder(self.model)


def model_folder(name: str) -> Path:
    """The folder of a model that is named: a folder, or `liebig:NAME`."""
    if name.startswith(encoders.PREFIX):
        try:
            return encoders.folder(name)
        except ValueError as error:
            raise RecipeError(str(error)) from None
    if not Path(name).is_dir():
        raise RecipeError("there is no such model folder", file=name, fix="name a folder, or liebig:NAME")
    return Path(name)


class Works:
    """Runs stages below a folder, each with a line; those that are up to date are skipped."""

    def __init__(self, table: Mapping[str, Stage], out: Path, say: Callable[[str], None]) -> None:
        self.table, self.out, self.say = {**table, **OWN}, out, say
        self.before = description.read(out) if (out / description.NAME).is_file() else None

    @property
    def generation(self) -> int:
        """Of what is there; 0 where there is nothing yet."""
        return self.before.generation if self.before is not None else 0

    def work(self, name: str, fields: Mapping[str, Any]) -> Path:
        """Run a stage into the work folder."""
        return self._run(self._planned(self.out / WORK, name, name, fields))

    def part(self, part: str, fields: Mapping[str, Any]) -> Path:
        """Run a stage into a numbered folder: that of the generation there is if it would come out the same."""
        old = getattr(self.before, part, None) if self.before is not None else None
        if old is not None:
            planned = self._planned(self.out, old, part, fields)
            if planned.up_to_date:
                return self._run(planned, up_to_date=True)
        return self._run(self._planned(self.out, f"{part}-{self.generation + 1}", part, fields))

    def _planned(self, out: Path, folder: str, name: str, fields: Mapping[str, Any]) -> Planned:
        tree = {"kind": name, **fields}
        return pipeline.plan_stages(self.table, {folder: tree}, out)[0]

    def _run(self, planned: Planned, up_to_date: bool | None = None) -> Path:
        name = planned.out.relative_to(self.out)
        if planned.up_to_date if up_to_date is None else up_to_date:
            self.say(f"{name}: up to date")
        else:
            self.say(f"{name}: {planned.stage.name} ...")
            pipeline.run_stage(planned.stage, planned.config, planned.out)
        return planned.out


def build(table: Mapping[str, Stage], wish: Wish, out: Path, say: Callable[[str], None]) -> Described:
    """Build or complete a retriever's folder."""
    _refuse_foreign(out)
    works = Works(table, out, say)
    start = wish.start
    collection = read_collection(works, wish, start)
    bm25 = works.part("bm25", {"collection": str(collection), "language": wish.language})
    checks, trained = _checked(works, wish, start, collection)
    found = json.loads((checks / "checks.json").read_text(encoding="utf-8"))
    choice = found["choice"]
    model = works.part("model", {"model": str(trained if choice["encoder"] == "trained" else start)})
    index = index_of(works, collection, model)
    described = Described(
        generation=works.generation + 1,
        system=choice["system"],
        weight=choice["weight"],
        collection=collection.name,
        bm25=bm25.name,
        index=index.name,
        model=model.name,
        checks=checks.name,
        more={"sources": [absolute(source) for source in wish.sources], "language": wish.language},
    )
    described = finish(works, described, found)
    for line in _advice(works.out / WORK / "trained", wish):
        works.say(line)
    return described


def _advice(trained: Path, wish: Wish) -> list[str]:
    """What would help: a longer training where it had too few steps, and another encoder than the bundled one."""
    from liebig.train.log import warnings_of

    short = warnings_of(trained) if wish.minutes > 0 and trained.is_dir() else []
    return [*short, *([encoders.ADVICE] if wish.model is None else [])]


def _refuse_foreign(out: Path) -> None:
    """Only an empty place, or one that is ours, is built in."""
    ours = (out / description.NAME).is_file() or (out / WORK).is_dir()
    if out.exists() and not ours and (not out.is_dir() or any(out.iterdir())):
        raise WorkspaceError(
            "is in the way: it is no retriever of Liebig", file=out, fix="give another --out"
        )


def read_collection(works: Works, wish: Wish, model: Path, name: str = "read") -> Path:
    """Documents and passages of the sources."""
    read = works.work(name, {"kind": "init", "paths": list(wish.sources), "strict": wish.strict})
    _tell_skipped(works, read / SKIPPED)
    return works.part("collection", {"kind": "passages", "collection": str(read), **cutting(wish, model)})


def _tell_skipped(works: Works, listed: Path) -> None:
    """Say how many files could not be read, and keep the list of them in the retriever's folder."""
    there = works.out / SKIPPED
    if not listed.is_file():
        there.unlink(missing_ok=True)
        return
    shutil.copyfile(listed, there)
    count = len(there.read_text(encoding="utf-8").splitlines())
    files = "1 file was" if count == 1 else f"{count:,} files were"
    works.say(f"{files} skipped because they cannot be read; {there} says why (--strict refuses them)")


def cutting(wish: Wish, model: Path) -> dict[str, Any]:
    """How documents are cut for a model."""
    from liebig.model.encoder import Encoder

    length = max(8, min(LENGTH, Encoder.load(model).max_length - ROOM))
    known = wish.language if wish.language in LANGUAGES else None
    return {"tokenizer": str(model), "length": length, "language": known}


def _checked(works: Works, wish: Wish, start: Path, collection: Path) -> tuple[Path, Path]:
    """The folder of the check, and the trained model's, which is there if the check knows it.

    Of an encoder that is a retriever already, the mean of before and after is what training gives.
    """
    questions = works.work("questions", {"collection": str(collection), "seed": wish.seed})
    trained = works.out / WORK / "trained" / "model"
    fields = {
        "questions": str(questions),
        "bm25": str(
            works.work("pool-bm25", {"kind": "bm25", "collection": str(questions), "language": wish.language})
        ),
        "start": str(_encoded(works, "pool-start", questions, start)),
    }
    if _trains(works, wish, start, collection, questions):
        before = works.work("check-start", {"kind": "check", "seed": wish.seed, **fields})
        if json.loads((before / "checks.json").read_text(encoding="utf-8"))["fair"]:
            trained = works.work("mean", {"start": str(start), "trained": str(trained)}) / "model"
        fields["trained"] = str(_encoded(works, "pool-trained", questions, trained))
    return works.part("checks", {"kind": "check", "seed": wish.seed, **fields}), trained


def _trains(works: Works, wish: Wish, start: Path, collection: Path, questions: Path) -> bool:
    """Train on the corpus; False where there is no time, or nothing to train on."""
    if wish.minutes <= 0:
        works.say("training: none, as asked")
        return False
    from liebig.builder import training

    store = works.work("store", {"kind": "prepare", "collection": str(collection), "tokenizer": str(start)})
    traits = training.Start.of(start)
    reason = training.why_not(traits, store)
    if reason is not None:
        works.say(f"training: none, because {reason}")
        return False
    recipe = training.recipe(start, traits, store, questions, wish.minutes)
    works.work("trained", {"kind": "pretrain", **recipe})
    return True


def _encoded(works: Works, name: str, source: Path, model: Path) -> Path:
    recipe = {"source": str(source), "model": str(model), "long": _long(source, model), "most_pieces": PIECES}
    return works.work(name, {"kind": "encode", **recipe})


def _long(collection: Path, model: Path) -> str:
    """A vector for every piece where passages are longer than the model reads, else one for each passage."""
    from liebig.model.encoder import Encoder

    layout = Encoder.load(model).layout_for("passage")
    sample = [layout.text(p) for p in islice(Collection(collection).passages(), SAMPLE)]
    room = layout.length - len(layout.tokenizer.wrap([]))
    longer = np.diff(layout.tokens(sample)[1]) > room
    return "max" if longer.sum() > 0.02 * len(sample) else "first"


def index_of(works: Works, collection: Path, model: Path) -> Path:
    """Vectors of all passages, exact where there are not too many."""
    vectors = _encoded(works, "vectors", collection, model)
    exact = Collection(collection).count("passages") <= EXACT
    kind = {"kind": "exact"} if exact else {"kind": "faiss"}
    return works.part("index", {"vectors": str(vectors), "index": kind})


def finish(works: Works, described: Described, found: dict[str, Any]) -> Described:
    """Put the description in place, remove what it no longer names, and say what there is now."""
    from liebig.builder.check import sentences

    before = works.before
    if before is not None and before.row() | {"generation": 0} == described.row() | {"generation": 0}:
        described = before
    else:
        description.write(works.out, described)
        if before is not None:
            description.remove_old(works.out, before, described)
    works.say("")
    for line in sentences(found):
        works.say(line)
    return described


def absolute(source: str) -> str:
    """A path that holds wherever it is used; names of sources stay names."""
    return str(Path(source).resolve()) if Path(source).exists() else source


# The commands around a retriever's folder: build, update, and what looks at it; their code is imported
# late.

MINUTES = 30.0  # of training, where none are given
STRICT = "Refuse files that cannot be read, and everything suspicious [default: skip and list them]."


def command(
    sources: Annotated[
        list[str],
        typer.Argument(metavar="SOURCE...", help="Files and folders, in any format liebig init reads."),
    ],
    out: Annotated[Path, typer.Option(help="The folder of the retriever.")],
    minutes: Annotated[
        float, typer.Option(help="Minutes of training on the corpus; 0 takes the encoder as it comes.", min=0)
    ] = MINUTES,
    model: Annotated[
        str | None,
        typer.Option(help="The encoder to start from: a folder, or liebig:NAME [default: the bundled one]."),
    ] = None,
    language: Annotated[str, typer.Option(help="Language of the texts, by name or code.")] = "en",
    seed: Annotated[int, typer.Option(help="Everything random follows from it.")] = 0,
    strict: Annotated[bool, typer.Option("--strict", help=STRICT)] = False,
) -> None:
    """Build a retriever from documents without labels: passages, BM25, training, vectors, and a check of what is best.

    Interrupted, the same command goes on. It keeps the better encoder and the better system, and says by how much.

    Example:

        liebig build ~/articles --minutes 10 --out runs/articles
    """

    build(STAGES, Wish(tuple(sources), model, minutes, language, seed, strict), out, say)
    say(f"\nNext: liebig serve {out}")
