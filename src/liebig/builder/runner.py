"""Runs the stages of a build or an update below a retriever's folder, and the stages that both share: encode and index.

`Builder` numbers the folders of a generation and skips what is up to date. A stage is one that `liebig` has as a
command, or one of the build's own; each leaves a folder with its manifest, so an interrupted run resumes where it was.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from liebig.base import pipeline
from liebig.base.json_output import without_text
from liebig.base.pipeline import Planned, Stage
from liebig.base.progress import Whole, is_verbose, say
from liebig.collection import Collection
from liebig.model.folder import text_reader
from liebig.search import retriever_folder as description
from liebig.search.retriever_folder import WORK

EXACT = 2_000_000  # up to this many vectors, every one is scored
SAMPLE = 2000  # passages looked at to see whether they fit the model
PIECES = 8  # vectors of a passage at most, where passages are longer than the model reads


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
        own: Sequence[Stage] = (),
    ) -> None:
        self.table = {**table, **{stage.name: stage for stage in own}}
        self.out, self.say = out, say
        self.whole = Whole({}, say)
        self.took: dict[str, float] = {}  # seconds, by the names of the stages that were run
        self.encoded: list[str] = []  # folders of vectors, whose texts need not be encoded again
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


def encode_passages(builder: Builder, name: str, source: Path, model: Path) -> Path:
    """Vectors of a collection: one for every passage, or for every piece where passages are too long for the model."""
    layout = text_reader(model).layout_for("passage")
    sample = [layout.text(p) for p in islice(Collection(source).passages(), SAMPLE)]
    room = layout.length - len(layout.tokenizer.wrap([]))
    longer = layout.tokens(sample).lengths > room
    long = "max" if longer.sum() > 0.02 * len(sample) else "first"
    return _encoded(builder, name, encode_fields(source, model, long))


def _encoded(builder: Builder, name: str, fields: Mapping[str, Any]) -> Path:
    """Run an encoding that takes over what this build has encoded before, such as the pool of the check."""
    out = builder.work(name, {**fields, "reuse": list(builder.encoded)})
    builder.encoded.append(str(out))
    return out


def encode_fields(source: Path, model: Path, long: str) -> dict[str, Any]:
    """The recipe of `liebig encode` in builds and updates."""
    return {
        "kind": "encode", "source": str(source), "model": str(model), "long": long, "most_pieces": PIECES
    }  # fmt: skip


def encode_sentences(builder: Builder, name: str, source: Path, model: Path) -> Path:
    """Vectors of the sentences of a collection's passages."""
    return _encoded(builder, name, sentence_fields(source, model))


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
