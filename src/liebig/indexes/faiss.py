"""FAISS for collections that are too large to search exhaustively: it proposes, exact scores decide.

A factory string names the structure (`IVF4096,PQ48`, `HNSW32`); it is trained on a sample and filled in order. A
search takes `rescore` times k proposals and scores them from the mapped vectors, so scores and ties are those of the
exact index and only what is not proposed can be missed. A graph (HNSW) is built over vectors that one more number
brings to the same length, so that the nearest vector is the one with the largest product: over products alone, long
vectors attract all edges. The vectors are linked into the folder, not copied. FAISS loads a damaged file without an
error, so its file is read only after its hash was checked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field, NonNegativeInt, PositiveInt

from liebig.base.durable import atomic_write
from liebig.base.errors import CorruptError, RecipeError
from liebig.base.json_file import Nonnegative, read_json
from liebig.indexes import exact_cpu
from liebig.indexes.base import INDEX, ApproximateConfig, Index, IndexFile, ignore
from liebig.indexes.exact import ExactIndex
from liebig.indexes.recall import Recall
from liebig.vectors import Shard, Vectors
from liebig.vectors.quantise import Floats
from liebig.vectors.ranked import Ranked, best

FILE = "index.faiss"
ADD = 65536  # vectors given to FAISS at once
PER_LIST = 64  # vectors of the training sample for each list of an IVF
LEAST_SAMPLE = 50_000
HEADROOM = (
    1.1  # a graph accepts vectors this many times longer than those it was built with; then it is rebuilt
)


@dataclass(frozen=True)
class FaissSetting:
    """How to search: nprobe lists or ef candidates (`effort`), and proposals scored per hit.

    `length` is the length that every vector is lifted to; 0 where vectors are not lifted.
    """

    factory: str
    effort: NonNegativeInt = 0
    rescore: PositiveInt = 1
    length: Nonnegative = 0.0


class FaissFile(IndexFile):
    """`index.json` of a FAISS index."""

    setting: FaissSetting
    recall: Recall | None


class FaissIndex(Index):
    """A FAISS structure over the vectors of an exact index."""

    class Config(ApproximateConfig):
        """FAISS proposes, exact scores decide; recall is measured and recorded."""

        kind: Literal["faiss"] = "faiss"
        factory: str = Field(
            "auto", description='FAISS factory string ("IVF4096,PQ48", "HNSW32"), or auto by size.'
        )
        rescore: int | None = Field(
            None, ge=1, description="Number of candidates scored exactly per hit [default: by index type]."
        )
        effort: int | None = Field(None, ge=1, description="nprobe or efSearch [default: found by recall].")

        @property
        def given_effort(self) -> int | None:
            return self.effort

    kind = "faiss"

    def __init__(self, vectors: ExactIndex, structure: Any, setting: FaissSetting) -> None:
        self.exact, self._structure, self.setting = vectors, structure, setting
        self.width, self.about = vectors.width, vectors.about

    @classmethod
    def build(
        cls,
        config: Config,
        vectors: Vectors,
        folder: Path,
        *,
        seed: int = 0,
        done: Callable[[int], None] = ignore,
    ) -> FaissIndex:
        exact = ExactIndex.build(ExactIndex.Config(), vectors, folder, done=done)
        return cls.train(exact, config.factory, rescore=config.rescore, seed=seed)

    @classmethod
    def train(
        cls, vectors: ExactIndex, factory: str, *, rescore: int | None = None, seed: int = 0
    ) -> FaissIndex:
        """Train a structure on a sample of the vectors and add all of them."""
        factory = suggest(len(vectors), vectors.width) if factory == "auto" else factory
        length = HEADROOM * _longest(vectors) if _is_graph(factory) else 0.0
        structure = _make(vectors.width, factory, lifted=length > 0)
        index = cls(vectors, structure, FaissSetting(factory, 0, rescore or default_rescore(factory), length))
        if not structure.is_trained:
            size = max(LEAST_SAMPLE, PER_LIST * _lists(structure))
            _train(structure, lift(_sample(vectors, size, seed), length), factory)
        index._fill(0)
        index.set_effort(16 if index.knob == "nprobe" else 64)
        return index

    def _fill(self, first: int) -> None:
        """Give FAISS the shards from number `first` on; deleted ones too, so that numbers stay."""
        start = 0
        for shard in self.exact.shards:
            for row in range(0, len(shard), ADD):
                if start + row >= first:
                    self._structure.add(lift(shard.vectors[row : row + ADD].decode(), self.setting.length))
            start += len(shard)

    @classmethod
    def open(cls, folder: Path, *, threads: int | None = None, device: str | None = None) -> FaissIndex:
        faiss = _faiss()
        vectors = ExactIndex.open(folder, threads=threads)
        saved = read_json(folder / INDEX, FaissFile, fix="index again")
        try:
            structure = faiss.read_index(str(folder / FILE))
        except RuntimeError as error:
            raise CorruptError(
                f"FAISS cannot read it: {_reason(error)}", file=folder / FILE, fix="index again"
            ) from None
        index = cls(vectors, structure, saved.setting)
        index.recall = saved.recall
        total, width = sum(map(len, vectors.shards)), vectors.width + int(saved.setting.length > 0)
        same_kind = (index.knob == "nprobe") == (_lists(structure) > 0)
        if (structure.ntotal, structure.d) != (total, width) or not same_kind:
            raise CorruptError(
                f"has {structure.ntotal:,} vectors of width {structure.d}, {INDEX} and the shards describe "
                f"{total:,} of width {width} as {saved.setting.factory}",
                file=folder / FILE,
                fix="index again",
            )
        return index

    @property
    def knob(self) -> str | None:
        factory = self.setting.factory
        return "nprobe" if "IVF" in factory else "efSearch" if "HNSW" in factory else None

    @property
    def most_effort(self) -> int:
        return _lists(self._structure) if self.knob == "nprobe" else 4096

    @property
    def effort(self) -> int | None:
        return self.setting.effort

    def set_effort(self, effort: int) -> None:
        self.setting = replace(self.setting, effort=effort)

    def stored(self) -> Sequence[Shard]:
        return self.exact.shards

    def __len__(self) -> int:
        return len(self.exact)

    def search(self, queries: Floats, k: int) -> Ranked:
        queries = np.ascontiguousarray(queries, np.float32)
        exact_cpu.check(queries, self.exact.shards)
        total = sum(map(len, self.exact.shards))
        candidates = max(1, min(k * self.setting.rescore, total))
        lifted = np.pad(queries, ((0, 0), (0, int(self.setting.length > 0))))
        _, numbers = self._structure.search(lifted, candidates, params=self._parameters())
        numbers = numbers.astype(np.int64)
        scores = exact_cpu.score(queries, numbers, self.exact.shards)
        numbers = np.where(np.isfinite(scores), numbers, -1)
        empty = Ranked.nothing(len(queries), k)
        return best(np.hstack([scores, empty.scores]), np.hstack([numbers, empty.numbers]), k)

    def _parameters(self) -> Any:
        """Effort, and deleted vectors left out while searching."""
        faiss = _faiss()
        gone = self.exact.deleted()
        self._selector = (
            faiss.IDSelectorNot(faiss.IDSelectorBatch(gone)) if len(gone) else None
        )  # FAISS only borrows it
        kinds = {
            "nprobe": faiss.SearchParametersIVF,
            "efSearch": faiss.SearchParametersHNSW,
            None: faiss.SearchParameters,
        }
        values = {self.knob: self.setting.effort} if self.knob else {}
        selected = {"sel": self._selector} if self._selector is not None else {}
        inner = kinds[self.knob](**values, **selected)
        if isinstance(faiss.downcast_index(self._structure), faiss.IndexPreTransform):
            return faiss.SearchParametersPreTransform(index_params=inner)
        return inner

    def add(self, ids: Sequence[str], vectors: Floats) -> None:
        first = sum(map(len, self.exact.shards))
        self.exact.add(ids, vectors)
        self._fill_from(first)

    def extend(self, vectors: Vectors, folder: Path, *, done: Callable[[int], None] = ignore) -> None:
        first = sum(map(len, self.exact.shards))
        self.exact.extend(vectors, folder, done=done)
        self._fill_from(first)

    def _fill_from(self, first: int) -> None:
        """Take in what is new, or build anew where a vector is longer than those of a graph can be."""
        if self.setting.length == 0 or _longest(self.exact) <= self.setting.length:
            self._fill(first)
            return
        anew = FaissIndex.train(self.exact, self.setting.factory, rescore=self.setting.rescore)
        self._structure = anew._structure
        self.setting = replace(anew.setting, effort=self.setting.effort)

    def delete(self, ids: Iterable[str]) -> list[str]:
        return self.exact.delete(ids)

    def id(self, number: int) -> str:
        return self.exact.id(number)

    def find(self, id: str) -> int | None:
        return self.exact.find(id)

    def save(self, folder: Path) -> None:
        faiss = _faiss()
        self.exact.save(folder)
        faiss.write_index(self._structure, str(folder / FILE))
        recall = asdict(self.recall) if self.recall is not None else None
        summary = {"kind": self.kind, "setting": asdict(self.setting), "recall": recall}
        atomic_write(folder / INDEX, (json.dumps(summary, indent=2) + "\n").encode())

    def info(self) -> dict[str, Any]:
        recall = self.recall.measured if self.recall is not None else None
        return {
            **self.exact.info(),
            "kind": self.kind,
            "knob": self.knob,
            **asdict(self.setting),
            "recall": recall,
        }


def suggest(count: int, width: int) -> str:
    """A structure for that many vectors: flat while that is quick, lists of about sqrt(N) * 4, compressed past 10 M."""
    if count < 200_000:
        return "Flat"
    lists = 2 ** round(np.log2(4 * np.sqrt(count)))
    if count < 10_000_000:
        return f"IVF{lists},Flat"
    return f"IVF{lists},PQ{_pieces(width)}"


def _pieces(width: int) -> int:
    """The most pieces of a product quantiser, up to 64."""
    return next(m for m in (64, 48, 32, 24, 16, 8, 4, 2, 1) if width % m == 0)


def default_rescore(factory: str) -> int:
    """Proposals per hit: more where the structure compresses vectors."""
    return 10 if re.search(r"PQ|SQ|RaBitQ|LSH", factory) else 1


def lift(vectors: Floats, length: float) -> Floats:
    """Vectors with one more number that makes them of this length (0: as they are); queries get a zero there.

    Then |q - x|^2 = |q|^2 + length^2 - 2 q.x, so the nearest has the largest product (Bachrach et al. 2014).
    """
    if length == 0:
        return vectors
    rest = np.maximum(length**2 - (vectors.astype(np.float64) ** 2).sum(1), 0)
    return np.hstack([vectors, np.sqrt(rest)[:, None].astype(np.float32)])


def _longest(vectors: ExactIndex) -> float:
    return max((shard.largest for shard in vectors.shards), default=0.0)


def _is_graph(factory: str) -> bool:
    """Whether a graph holds the vectors themselves, not the lists of an IVF or pieces of a width."""
    return "HNSW" in factory and re.search("IVF|PQ", factory) is None


def _faiss() -> Any:
    """FAISS, imported where it is used; its own types are incomplete."""
    import faiss

    return faiss


def _make(width: int, factory: str, lifted: bool = False) -> Any:
    faiss = _faiss()
    try:
        metric = faiss.METRIC_L2 if lifted else faiss.METRIC_INNER_PRODUCT
        structure = faiss.index_factory(width + lifted, factory, metric)
    except (RuntimeError, ValueError) as error:
        raise RecipeError(
            f"FAISS cannot create {factory!r} for vectors of width {width}: {_reason(error)}",
            fix=f'use for example "Flat", "IVF4096,Flat", "IVF4096,PQ{_pieces(width)}" or "HNSW32"',
        ) from None
    _spare_polysemous(structure)
    return structure


def _spare_polysemous(structure: Any) -> None:
    """Leave out the ordering of codes for polysemous search, which is never used: two seconds per sub-quantiser."""
    faiss = _faiss()
    for part in (structure, faiss.try_extract_index_ivf(structure)):
        inner: Any = faiss.downcast_index(part) if part is not None else None
        if hasattr(inner, "do_polysemous_training"):
            inner.do_polysemous_training = False


def _train(structure: Any, sample: Floats, factory: str) -> None:
    try:
        structure.train(sample)
    except RuntimeError as error:
        raise RecipeError(
            f"FAISS cannot train {factory!r} on {len(sample):,} vectors: {_reason(error)}",
            fix="use fewer lists, or factory=Flat",
        ) from None


def _reason(error: Exception) -> str:
    """The last part of what FAISS says, without the place in its source."""
    text = re.sub(r"^Error in .*?\.(cpp|h):\d+: (Error: )?", "", str(error))
    return text.split("failed: ")[-1].split("\n")[0].rstrip(".")


def _lists(structure: Any) -> int:
    faiss = _faiss()
    inner = faiss.try_extract_index_ivf(structure)
    return 0 if inner is None else int(inner.nlist)


def _sample(vectors: ExactIndex, size: int, seed: int) -> Floats:
    return Vectors(Path(), vectors.type, vectors.width, tuple(vectors.shards)).sample(size, seed)
