"""`liebig doctor`: checks of this machine (versions, GPUs, attention) and of a retriever's folder, or of
a data set of the papers, if one is given.

Without torch everything is checked but the vectors, which cannot be made again.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from liebig import encoders
from liebig.base import workspace
from liebig.base.errors import DataError, LiebigError, ModelError, WorkspaceError, install_command
from liebig.base.json_output import print_json
from liebig.base.machine import AVX_VNNI, DOT, PRECISION, VNNI, cores, default_precision, memory
from liebig.base.progress import counted
from liebig.base.records import Passage
from liebig.base.rng import permute
from liebig.bm25.search import BM25
from liebig.collection import Collection
from liebig.indexes import open_index
from liebig.indexes.base import Index
from liebig.search.embed import Embedder
from liebig.search.retriever_folder import NAME, PARTS, RetrieverDescription, read
from liebig.search.systems import layouts_of
from liebig.vectors import Shard, starts, vectors_at

if TYPE_CHECKING:
    import torch

    from liebig.model.encoder import Encoder


@dataclass(frozen=True)
class Finding:
    """One thing looked at; `fix` where something is wrong."""

    name: str
    what: str
    good: bool = True
    fix: str = ""

    def __str__(self) -> str:
        fix = f" To fix it: {self.fix}." if self.fix else ""
        return f"{'ok   ' if self.good else 'WRONG'}  {self.name}: {self.what}.{fix}"


GIB = 2**30
HEAD = 64  # width of a usual attention head
EXTRAS = {
    "pypdf": "reading PDF", "pymilvus": "Milvus", "onnxruntime": "ONNX", "fastapi": "liebig serve",
    "sentence_transformers": "comparison", "langchain_core": "LangChain", "llama_index": "LlamaIndex",
    "pyarrow": "Parquet", "mcp": "liebig mcp",
}  # fmt: skip


def machine() -> Iterator[Finding]:
    """Versions, processor, GPUs, attention, extras, bundled encoders."""
    versions = ", ".join(f"{name} {version}" for name, version in workspace.versions().items())
    yield Finding("versions", versions)
    size = f"{memory() / GIB:.0f} GiB of memory"
    yield Finding("processor", f"{platform.machine()}, {cores()} cores for this process, {size}")
    yield from _gpus()
    there = [f"{package} ({use})" for package, use in EXTRAS.items() if find_spec(package) is not None]
    yield Finding("extras", ", ".join(there) or "none")
    yield Finding("encoders", ", ".join(encoders.PREFIX + name for name in encoders.names()) or "none")


def _gpus() -> Iterator[Finding]:
    if find_spec("torch") is None:
        yield Finding(
            "torch",
            f"not installed: this machine searches and serves; to build: {install_command('train')}",
        )
        return
    import torch

    if not torch.cuda.is_available():
        yield Finding("GPU", "torch finds none")
        yield Finding("attention", attention(torch.device("cpu"), torch.float32))
        try:
            yield Finding("encoding", encoding())
        except LiebigError as error:  # a precision that does not exist
            yield Finding("encoding", error.what, False, error.fix or "")
        return
    for number in range(torch.cuda.device_count()):
        gpu = torch.cuda.get_device_properties(number)
        yield Finding("GPU", f"{gpu.name}, {gpu.total_memory / GIB:.0f} GiB")
        yield Finding("attention", attention(torch.device("cuda", number), torch.bfloat16))


def attention(device: torch.device, dtype: torch.dtype) -> str:
    """The path that attention takes on a device, in words."""
    from liebig.model.attention import varlen_kernel, varlen_runs

    if varlen_runs(device, dtype, HEAD):
        return f"{device.type} in {dtype}: torch's variable-length kernel, without padding"
    if device.type == "cpu":
        return "cpu in float32: products sequence by sequence when encoding, buckets of one length and SDPA in training"
    missing = (
        "this torch has no variable-length kernel"
        if varlen_kernel() is None
        else "the GPU is older than Ampere"
    )
    return f"{device.type} in {dtype}: buckets of one length and SDPA, because {missing}"


def encoding() -> str:
    """What `liebig encode` computes in on this processor, and why."""
    from liebig.base.compiled import byte_products

    there, named = byte_products(), default_precision()
    if named != "auto":
        return f"passages in {named}, because {PRECISION} says so"
    if there:
        return f"passages in int8 by the bundled encoder ({there}), in fp32 by other models; queries in fp32"
    return f"in fp32; int8 is for processors with {VNNI}, {AVX_VNNI} or {DOT}"


# A retriever's folder: hashes, counts, vectors against the model, recall of an approximate index.


def examine(folder: Path) -> Iterator[Finding]:
    """Everything about a folder; what cannot be opened is a finding, not an end."""
    description = read(folder)
    yield Finding(
        NAME,
        f"generation {description.generation}, {description.system}, weight of BM25 {description.weight:g}",
    )
    broken = []
    findings: dict[str, Finding] = {}
    for part in PARTS:
        name = getattr(description, part)
        if name is not None:
            if name not in findings:  # an engine's folder stands for several parts
                findings[name] = _hashes(folder / name)
                yield findings[name]
            broken += [] if findings[name].good else [part]
    if description.engine is not None:
        yield from _told("engine", _engine(folder / description.engine)) if "engine" not in broken else ()
    elif "collection" not in broken:
        yield from _contents(folder, description, broken)


def _hashes(path: Path) -> Finding:
    """A stage's folder against its manifest; one that no stage wrote has no hashes to hold it against."""
    if not path.is_dir():
        return Finding(path.name, "is missing", False, "build again")
    if not (path / workspace.MANIFEST).is_file():
        return Finding(path.name, "exists, but has no manifest to check it against")
    try:
        manifest = workspace.verify(path)
    except WorkspaceError as error:
        return Finding(path.name, error.what, False, error.fix or "build again")
    size = sum(manifest.sizes.values())
    return Finding(
        path.name, f"{counted(len(manifest.outputs), 'files')}, {size / 1e6:,.1f} MB, all hashes match"
    )


def _contents(folder: Path, description: RetrieverDescription, broken: Sequence[str]) -> Iterator[Finding]:
    collection = Collection(folder / description.collection)
    if description.bm25 is not None and "bm25" not in broken:
        yield from _told("BM25", _words(folder / description.bm25, collection))
    if description.index is not None and "index" not in broken:
        model = None if description.model is None else folder / description.model
        yield from _told("index", _dense(folder / description.index, collection, model))
    if description.sentences is not None and "sentences" not in broken:
        index = open_index(folder / description.sentences, hashes=False)
        yield from _told("sentences", iter([_counted("sentences", index, collection.count("passages"))]))


def _engine(path: Path) -> Iterator[Finding]:
    """Whether the engine answers and has as many passages as were pushed."""
    from liebig.search.engine_generation import EngineFile

    pushed = EngineFile.read(path)
    there = pushed.connect().settle(pushed.tables[0])
    said = f"{pushed.kind} at {pushed.uri} has {there:,} of {counted(pushed.passages, 'passages')}"
    good = there == pushed.passages
    yield Finding("engine", said, good, "" if good else "liebig push into another --out")


def _told(name: str, findings: Iterator[Finding]) -> Iterator[Finding]:
    """Findings; an error that ends them is the last."""
    try:
        yield from findings
    except LiebigError as error:
        yield Finding(name, error.what, False, error.fix or "build again")


def _words(path: Path, collection: Collection) -> Iterator[Finding]:
    indexed, count = len(BM25.open(path, hashes=False)), collection.count("passages")
    good = indexed == count
    yield Finding(
        "BM25", f"{indexed:,} of {counted(count, 'passages')}", good, "" if good else "liebig update"
    )


def _dense(path: Path, collection: Collection, model: Path | None) -> Iterator[Finding]:
    index = open_index(path, hashes=False)
    yield _counted("index", index, collection.count("passages"))
    if model is not None:
        yield _compared(index, collection, model)
    yield _recall(index)


def _counted(name: str, index: Index, count: int) -> Finding:
    pieces = bool(index.about.get("pieces"))
    good = len(index) >= count if pieces else len(index) == count
    of = f"of {'pieces of ' * pieces}{counted(count, 'passages')}"
    return Finding(name, f"{counted(len(index), 'vectors')} {of}", good, "" if good else "liebig update")


def _compared(index: Index, collection: Collection, model: Path) -> Finding:
    shards = index.stored()
    if shards is None:
        return Finding("vectors", f"kept by {index.kind}, not on disk; not compared with the model")
    if find_spec("torch") is None:
        return Finding(
            "vectors", f"not compared with the model, which needs torch ({install_command('train')})"
        )
    from liebig.model.encoder import Encoder

    try:
        encoder = Encoder.load(model)
    except ModelError as error:
        return Finding("model", error.what, False, error.fix or "build again")
    pieces = bool(index.about.get("pieces"))
    stored = sample(shards, collection.passage, pieces)
    return compare(encoder, stored, index.about)


def _recall(index: Index) -> Finding:
    """What an approximate index misses, measured now."""
    text, good = index.check()
    return Finding("recall", text, good, "" if good else "index again")


# Do the vectors of an index come from its model? A sample is encoded again and compared with what is stored.

Floats = NDArray[np.float32]
SAMPLE = 20
# Passages may have been encoded in int8 on another machine: their cosine with fp32 is .9998 and more on average.
ALIKE = {"fp32": 0.9995, "fp16": 0.9995, "int8": 0.995}  # cosine
SCALE = {"fp32": 0.005, "fp16": 0.005, "int8": 0.03}  # relative difference of norms


@dataclass(frozen=True)
class StoredSample:
    """Some vectors of an index, with the passages they stand for."""

    passages: Sequence[Passage]
    vectors: Floats
    type: str

    def fits(self, vectors: Floats) -> bool:
        return self.likeness(vectors) >= ALIKE[self.type] and self.scale(vectors) <= SCALE[self.type]

    def likeness(self, vectors: Floats) -> float:
        a, b = self.vectors, vectors
        norms = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
        return float(np.mean(np.einsum("nd,nd->n", a, b) / np.maximum(norms, 1e-12)))

    def scale(self, vectors: Floats) -> float:
        """How far norms differ, relative."""
        a, b = (np.linalg.norm(x, axis=1) for x in (self.vectors, vectors))
        return float(np.median(np.abs(a - b) / np.maximum(b, 1e-12)))


def sample(shards: Sequence[Shard], passage: Callable[[str], Passage], pieces: bool) -> StoredSample:
    """Vectors drawn from all over an index; of a passage with several, the first."""
    firsts, passages, numbers = starts(shards), list[Passage](), list[int]()
    for draw in range(min(SAMPLE * 8, firsts[-1])):
        number = int(permute(draw, firsts[-1], 0))
        place = int(np.searchsorted(firsts, number, side="right")) - 1
        shard, row = shards[place], number - firsts[place]
        id = shard.ids[row]
        if row in shard.deleted or (pieces and not id.endswith("#0")):
            continue
        passages.append(passage(id.removesuffix("#0") if pieces else id))
        numbers.append(number)
        if len(passages) == SAMPLE:
            break
    if not shards:
        return StoredSample([], np.zeros((0, 0), np.float32), "fp32")
    vectors = vectors_at(shards, np.array(numbers, np.int64), shards[0].vectors.codes.shape[1])
    return StoredSample(passages, vectors, shards[0].vectors.type)


def compare(encoder: Encoder, stored: StoredSample, about: Mapping[str, Any]) -> Finding:
    """Encode the sample as the index says, and say what is wrong where it does not fit."""
    name = "vectors"
    if not stored.passages:
        return Finding(name, "nothing to compare")
    if encoder.width != stored.vectors.shape[1]:
        what = f"the model makes {encoder.width} numbers a text, the index holds {stored.vectors.shape[1]}"
        return Finding(name, what, False, "name the model the index was made with, or encode again")
    passage, _ = layouts_of(encoder, about)
    encoder.use(max_length=passage.length)
    vectors = Embedder(encoder, passage, unit=bool(about.get("unit"))).vectors(stored.passages, "passage")
    what = (
        f"{len(stored.passages)} passages encoded again: cosine with the index {stored.likeness(vectors):.4f}"
    )
    if stored.fits(vectors):
        return Finding(name, what)
    fix = "encode again with this model, or find the one the index was made with"
    return Finding(name, f"{what}, lengths differ by {stored.scale(vectors):.1%}", False, fix)


def findings(folder: Path | None) -> Iterator[Finding]:
    """Everything that is looked at, in order."""
    yield from machine()
    if folder is None:
        return
    if not folder.is_dir():
        raise DataError("there is no such folder", file=folder, fix="name a retriever's folder")
    if (folder / NAME).is_file():
        yield from examine(folder)
        return
    from liebig.evaluation import data_sets  # which needs numba, and a machine that only searches has none

    expected = data_sets.known(folder)
    if expected is None:
        fix = "name a folder of liebig build, or a data set of docs/data.md"
        raise DataError("is not a retriever", file=folder, fix=fix)
    fix = f"get it again: {expected.get}"
    for one in data_sets.check(folder, expected):
        yield Finding(one.name, one.what, one.good, "" if one.good else fix)


def command(
    folder: Annotated[
        Path | None, typer.Argument(help="Folder of a retriever, or of a data set of the papers.")
    ] = None,
    json: Annotated[
        bool,
        typer.Option("--json", help="Print the findings as one line of JSON; docs/json.md has the fields."),
    ] = False,
) -> None:
    """Check this machine and a folder: hashes, counts, re-encoded vectors, recall. Exits with 1 if a check fails.

    Example:

        liebig doctor runs/articles
    """
    seen = []
    for finding in findings(folder):
        seen.append(finding)
        if not json:
            typer.echo(str(finding))
    good = all(finding.good for finding in seen)
    if json:
        print_json({"good": good, "findings": seen})
    if not good:
        raise typer.Exit(1)
