"""Runs the stages of a build or an update below a retriever's folder, and the stages that both share: encode and index.

`Builder` numbers the folders of a generation and skips what is up to date. Each stage leaves a folder with its
manifest, so an interrupted run resumes where it was.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Literal, TypeVar

from liebig.base import pipeline
from liebig.base.config import Config
from liebig.base.json_output import without_text
from liebig.base.pipeline import Planned, Stage
from liebig.base.progress import Whole, is_verbose, say
from liebig.collection import Collection
from liebig.indexes import open_index
from liebig.indexes.base import Index
from liebig.indexes.exact import ExactIndex
from liebig.indexes.faiss import FaissIndex
from liebig.model.text_reader import text_reader
from liebig.search import retriever_folder as description
from liebig.search.embed import pools_sentences
from liebig.search.encode_shards import SENTENCES
from liebig.search.retriever_folder import WORK
from liebig.stages.encode import STAGE as ENCODE, EncodeConfig
from liebig.stages.index import STAGE as INDEX, IndexConfig

EXACT = 2_000_000  # up to this many vectors, every one is scored
SAMPLE = 2000  # passages looked at to see whether they fit the model
PIECES = 8  # vectors of a passage at most, where passages are longer than the model reads

C = TypeVar("C", bound=Config)
Part = Literal["collection", "bm25", "index", "sentences", "model", "query", "checks", "reranker"]
Long = Literal["first", "max"]


class Builder:
    """Runs stages below a retriever's folder, in phases with a line each; those that are up to date are skipped.

    Whoever makes one holds the folder (`exclusive`); what killed runs left in it goes.
    """

    def __init__(self, out: Path, say: Callable[[str], None]) -> None:
        self.out, self.say = out, say
        self.whole = Whole({}, say)
        self.took: dict[str, float] = {}  # seconds, by the names of the stages that were run
        self.by_sentences = False  # whether passages are encoded with their sentences
        self.encoded: list[Path] = []  # folders of vectors, whose texts need not be encoded again
        self.sentences: dict[tuple[Path, Path], Path] = {}  # made with the passages of a source, by a model
        self.expected: dict[str, float] = {}  # seconds, by the names of phases; those that are known
        self.before = description.read(out) if description.is_retriever(out) else None
        self.opened: dict[str, Index] = {}  # of the present generation
        description.remove_old(out, self.before)

    @property
    def generation(self) -> int:
        """The generation in the folder; 0 where there is nothing yet."""
        return self.before.generation if self.before is not None else 0

    def index(self, name: str) -> Index:
        """An index of the present generation, opened once."""
        if name not in self.opened:
            self.opened[name] = open_index(self.out / name, hashes=False)
        return self.opened[name]

    def work(self, name: str, stage: Stage[C], config: C) -> Path:
        planned = Planned(name, stage, config, self.out / WORK / name)
        return self._run(planned, planned.up_to_date)

    def part(self, part: Part, stage: Stage[C], config: C) -> Path:
        """Run a stage into a numbered folder, unless the present generation's one is up to date."""
        present = getattr(self.before, part, None)
        if present is not None:
            planned = Planned(part, stage, config, self.out / present)
            if planned.up_to_date:
                return self._run(planned, up_to_date=True)
        planned = Planned(part, stage, config, self.out / f"{part}-{self.generation + 1}")
        return self._run(planned, planned.up_to_date)

    def _run(self, planned: Planned, up_to_date: bool) -> Path:
        name = planned.out.relative_to(self.out)
        if up_to_date:
            say(f"{name}: up to date")
        else:
            self.whole.works()
            say(f"{name}: {planned.stage.name} ...")
            began = time.monotonic()
            with without_text(not is_verbose()):  # what it prints as a command
                lasting = planned.out.parent.name != WORK
                pipeline.run_stage(planned.stage, planned.config, planned.out, lasting=lasting)
            self.took[planned.name] = time.monotonic() - began
        return planned.out


def encode_passages(builder: Builder, name: str, source: Path, model: Path) -> Path:
    """Vectors of a collection: one for every passage, or for every piece where passages are too long for the model.

    Those of their sentences come with them where the build wants some and the model has them for nothing.
    """
    layout = text_reader(model).layout_for("passage")
    sample = [layout.text(p) for p in islice(Collection(source).passages(), SAMPLE)]
    room = layout.length - len(layout.tokenizer.wrap([]))
    longer = layout.tokens(sample).lengths > room
    long: Long = "max" if longer.sum() > 0.02 * len(sample) else "first"
    sentences = builder.by_sentences and pools_sentences(model)
    out = _encode(builder, name, passage_encoding(source, model, long, sentences=sentences))
    if sentences:
        builder.sentences[source, model] = out / SENTENCES
    return out


def encode_sentences(builder: Builder, name: str, source: Path, model: Path) -> Path:
    """Vectors of the sentences of a collection's passages, made here unless they came with those of the passages."""
    made = builder.sentences.get((source, model))
    return made or _encode(builder, name, sentence_encoding(source, model))


def _encode(builder: Builder, name: str, config: EncodeConfig) -> Path:
    """Run an encoding that takes over what this build has encoded before, such as the pool of the check."""
    out = builder.work(name, ENCODE, config.model_copy(update={"reuse": tuple(builder.encoded)}))
    builder.encoded.append(out)
    return out


def passage_encoding(
    source: Path, model: Path, long: Long, prompt: str | None = None, sentences: bool = False
) -> EncodeConfig:
    return EncodeConfig(
        source=source, model=model, long=long, most_pieces=PIECES, prompt=prompt, sentences=sentences
    )


def sentence_encoding(source: Path, model: Path) -> EncodeConfig:
    return EncodeConfig(source=source, model=model, what="sentences")


def index_sentences(builder: Builder, collection: Path, model: Path, passages: Path | None = None) -> Path:
    """Vectors of all sentences, every one of which is scored; those of `passages` are taken if they are there."""
    if passages is not None and (passages / SENTENCES).is_dir():
        vectors = passages / SENTENCES
    else:
        vectors = encode_sentences(builder, "sentence-vectors", collection, model)
    return builder.part("sentences", INDEX, IndexConfig(vectors=vectors))


def index_vectors(builder: Builder, collection: Path, model: Path, vectors: Path | None = None) -> Path:
    """Vectors of all passages, searched exactly where there are not too many; made here unless they are there."""
    vectors = vectors or encode_passages(builder, "vectors", collection, model)
    exact = Collection(collection).count("passages") <= EXACT
    back_end = ExactIndex.Config() if exact else FaissIndex.Config()
    return builder.part("index", INDEX, IndexConfig(vectors=vectors, index=back_end))
