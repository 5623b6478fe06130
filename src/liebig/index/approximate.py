"""FAISS for what is too large to look at whole: it proposes, exact scores decide.

A factory string names the structure (`IVF4096,PQ48`, `HNSW32`); it is trained on a sample and filled in order. A
search takes `rescore` times k proposals and scores them from the mapped vectors, so scores and ties are those of the
exact index and only what is not proposed can be missed. The vectors are linked into the folder, not copied. The file
of FAISS is opened only after its hash was checked, because FAISS loads a flipped bit without a word.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from liebig import workspace
from liebig.data.ranked import Ranked, best
from liebig.errors import CorruptError, RecipeError
from liebig.index import exact
from liebig.index.base import INDEX, Index, Recall
from liebig.index.exact_index import ExactIndex
from liebig.index.quantise import Floats
from liebig.index.shards import Vectors

FILE = "index.faiss"
ADD = 65536  # vectors given to FAISS at once
PER_LIST = 64  # vectors of the training sample for each list of an IVF
LEAST_SAMPLE = 50_000


@dataclass(frozen=True)
class Setting:
    """How to search: nprobe lists or ef candidates (`effort`), and proposals scored for each hit wanted."""

    factory: str
    effort: int = 0
    rescore: int = 1


class FaissIndex(Index):
    """A FAISS structure over the vectors of an exact index."""

    kind = "faiss"

    def __init__(self, vectors: ExactIndex, structure: Any, setting: Setting) -> None:
        self.exact, self._structure, self.setting = vectors, structure, setting
        self.width, self.about = vectors.width, vectors.about

    @classmethod
    def build(
        cls, vectors: ExactIndex, factory: str, *, rescore: int | None = None, seed: int = 0
    ) -> FaissIndex:
        """Train on a sample of the vectors and take all of them in."""
        factory = suggest(len(vectors), vectors.width) if factory == "auto" else factory
        structure = _make(vectors.width, factory)
        if not structure.is_trained:
            size = max(LEAST_SAMPLE, PER_LIST * _lists(structure))
            structure.train(_sample(vectors, size, seed))
        index = cls(vectors, structure, Setting(factory, rescore=rescore or default_rescore(factory)))
        index._fill(0)
        index.set_effort(16 if index.knob == "nprobe" else 64)
        return index

    def _fill(self, first: int) -> None:
        """Give FAISS the shards from number `first` on; deleted ones too, so that numbers stay."""
        start = 0
        for shard in self.exact.shards:
            for row in range(0, len(shard), ADD):
                if start + row >= first:
                    self._structure.add(shard.vectors[row : row + ADD].decode())
            start += len(shard)

    @classmethod
    def open(cls, path: Path, vectors: ExactIndex) -> FaissIndex:
        """Read the structure of a folder that has been checked."""
        faiss = _faiss()
        saved = json.loads((path / INDEX).read_text(encoding="utf-8"))
        structure = faiss.read_index(str(path / FILE))
        if structure.ntotal != sum(map(len, vectors.shards)):
            raise CorruptError(
                "the FAISS file and the vectors do not fit each other", file=path, fix="index again"
            )
        index = cls(vectors, structure, Setting(**saved["setting"]))
        index.recall = Recall(**saved["recall"]) if saved["recall"] else None
        return index

    @property
    def knob(self) -> str | None:
        factory = self.setting.factory
        return "nprobe" if "IVF" in factory else "efSearch" if "HNSW" in factory else None

    @property
    def most_effort(self) -> int:
        return _lists(self._structure) if self.knob == "nprobe" else 4096

    def set_effort(self, effort: int) -> None:
        self.setting = replace(self.setting, effort=effort)

    def __len__(self) -> int:
        return len(self.exact)

    def search(self, queries: Floats, k: int) -> Ranked:
        queries = np.ascontiguousarray(queries, np.float32)
        total = sum(map(len, self.exact.shards))
        wanted = max(1, min(k * self.setting.rescore, total))
        _, numbers = self._structure.search(queries, wanted, params=self._parameters())
        numbers = numbers.astype(np.int64)
        scores = exact.score(queries, numbers, self.exact.shards)
        numbers = np.where(np.isfinite(scores), numbers, -1)
        empty = Ranked.nothing(len(queries), k)
        return best(np.hstack([scores, empty.scores]), np.hstack([numbers, empty.numbers]), k)

    def _parameters(self) -> Any:
        """Effort, and deleted vectors left out while searching."""
        faiss = _faiss()
        gone = self.exact.deleted()
        self._selector = faiss.IDSelectorNot(_batch(gone)) if len(gone) else None  # FAISS only borrows it
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
        self._fill(first)

    def take(self, vectors: ExactIndex) -> None:
        """Add the shards of another index of the same type."""
        first = sum(map(len, self.exact.shards))
        self.exact.take(vectors.shards)
        self._fill(first)

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
        workspace.atomic_write(folder / INDEX, (json.dumps(summary, indent=2) + "\n").encode())

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
    """A structure for so many vectors: flat while that is quick, lists of about sqrt(N) * 4, compressed past 10 M."""
    if count < 200_000:
        return "Flat"
    lists = 2 ** round(np.log2(4 * np.sqrt(count)))
    if count < 10_000_000:
        return f"IVF{lists},Flat"
    pieces = next(m for m in (64, 48, 32, 24, 16, 8, 4, 2, 1) if width % m == 0)
    return f"IVF{lists},PQ{pieces}"


def default_rescore(factory: str) -> int:
    """Proposals for each hit wanted: more where the structure compresses vectors."""
    return 10 if re.search(r"PQ|SQ|RaBitQ|LSH", factory) else 1


def _faiss() -> Any:
    """FAISS, imported where it is used; its own types are incomplete."""
    import faiss

    return faiss


def _make(width: int, factory: str) -> Any:
    faiss = _faiss()
    try:
        return faiss.index_factory(width, factory, faiss.METRIC_INNER_PRODUCT)
    except (RuntimeError, ValueError) as error:
        reason = str(error).split("Error: ")[-1].split("\n")[0]
        raise RecipeError(
            f"FAISS cannot make {factory!r} for vectors of width {width}: {reason}",
            fix='use for example "Flat", "IVF4096,Flat", "IVF4096,PQ48" or "HNSW32"',
        ) from None


def _lists(structure: Any) -> int:
    faiss = _faiss()
    inner = faiss.try_extract_index_ivf(structure)
    return 0 if inner is None else int(inner.nlist)


def _sample(vectors: ExactIndex, size: int, seed: int) -> Floats:
    return Vectors(Path(), vectors.type, vectors.width, tuple(vectors.shards)).sample(size, seed)


def _batch(numbers: Any) -> Any:
    faiss = _faiss()
    return faiss.IDSelectorBatch(numbers)
