"""A back end is one class and one line of a table, inside the package or in another one."""

import json
from importlib.metadata import EntryPoint
from types import SimpleNamespace
from typing import Annotated, Literal

import numpy as np
import pytest
from pydantic import Field, create_model

from liebig.base import extensions, workspace
from liebig.base.config import Config, parse
from liebig.base.errors import CorruptError, RecipeError
from liebig.indexes import BUILT_IN, back_ends, config_choice, open_index
from liebig.indexes.base import INDEX, Index, ignore
from liebig.stages.index import IndexConfig, run
from liebig.vectors import write_shard, write_summary
from liebig.vectors.ranked import best


class ListIndex(Index):
    """The smallest back end: vectors in memory, saved as JSON."""

    class Config(Index.Config):
        kind: Literal["list"] = "list"
        scale: float = Field(1.0, description="Multiplies every score.")

    kind = "list"

    def __init__(self, width, about, scale, ids=(), rows=()):
        self.width, self.about, self.scale = width, about, scale
        self.ids, self.rows = list(ids), [np.asarray(row, np.float32) for row in rows]

    @classmethod
    def build(cls, config, vectors, folder, *, seed=0, done=ignore):
        index = cls(vectors.width, dict(vectors.about), config.scale)
        index.extend(vectors, folder, done=done)
        return index

    @classmethod
    def open(cls, folder, *, threads=None, device=None):
        saved = json.loads((folder / INDEX).read_text())
        saved.pop("kind")
        return cls(**saved)

    def save(self, folder):
        fields = {"width": self.width, "about": self.about, "scale": self.scale, "ids": self.ids}
        (folder / INDEX).write_text(
            json.dumps({"kind": "list", **fields, "rows": [row.tolist() for row in self.rows]})
        )

    def __len__(self):
        return len(self.ids)

    def add(self, ids, vectors):
        self.delete(ids)
        self.ids += ids
        self.rows += list(vectors)

    def delete(self, ids):
        unknown = [id for id in ids if id not in self.ids]
        kept = [(id, row) for id, row in zip(self.ids, self.rows) if id not in set(ids)]
        self.ids, self.rows = [id for id, _ in kept], [row for _, row in kept]
        return unknown

    def search(self, queries, k):
        scores = self.scale * queries @ np.array(self.rows).T
        numbers = np.broadcast_to(np.arange(len(self), dtype=np.int64), scores.shape)
        return best(scores.astype(np.float32), numbers, k)

    def id(self, number):
        return self.ids[number]

    def find(self, id):
        return self.ids.index(id) if id in self.ids else None

    def info(self):
        return {"kind": self.kind, "vectors": len(self)}

    @property
    def exhaustive(self):
        return True


@pytest.fixture
def installed(monkeypatch):
    """A package whose entry point adds the back end."""
    entry = EntryPoint("list", f"{__name__}:ListIndex", "liebig.indexes")
    points = {"liebig.indexes": [entry]}
    monkeypatch.setattr(extensions, "entry_points", lambda group: points.get(group, []))
    monkeypatch.setattr(extensions, "import_module", _import_here(extensions.import_module))


def _import_here(import_module):
    """Test modules need not be importable by name."""
    return lambda name: SimpleNamespace(**globals()) if name == __name__ else import_module(name)


def vectors(path, ids, seed):
    rows = np.random.default_rng(seed).standard_normal((len(ids), 4)).astype(np.float32)
    with workspace.stage(path, kind="encode", recipe={}, inputs={}) as folder:
        write_shard(folder.path / "shards" / "00000", ids, rows, "fp32")
        write_summary(folder.path, "fp32", 4, ["00000"], {"model": "m"}, len(ids))
    return rows


def make(config, path):
    with workspace.stage(path, kind="index", recipe={}, inputs={}) as folder:
        run(config, folder)


def index_config(**values):
    """The command's config as it is after the back end was installed."""
    choice = Annotated[config_choice(), Field(discriminator="kind")]
    return create_model("Installed", __base__=IndexConfig, index=(choice, ...)).model_validate(values)


def test_every_back_end_names_itself_and_its_options():
    for kind, back_end in back_ends().items():
        assert back_end.kind == kind
        assert issubclass(back_end.Config, Index.Config)
        assert back_end.Config().kind == kind
        assert issubclass(back_end.Config, Config)


def test_a_back_end_of_another_package_builds_extends_and_opens(tmp_path, installed):
    rows = vectors(tmp_path / "v", ["a", "b", "c"], 1)
    assert set(back_ends()) == {*BUILT_IN, "list"}
    config = index_config(vectors=tmp_path / "v", index={"kind": "list", "scale": 2.0})
    make(config, tmp_path / "ix")
    index = open_index(tmp_path / "ix")
    assert isinstance(index, ListIndex)
    assert index.about == {"model": "m"}
    np.testing.assert_allclose(index.search(rows[:1], 3).scores.max(), 2 * (rows @ rows[0]).max(), rtol=1e-6)
    assert index.check() == ("1, every vector is scored", True)
    vectors(tmp_path / "more", ["c", "d"], 2)
    (tmp_path / "gone").write_text("a\n")
    more = IndexConfig(vectors=tmp_path / "more", base=tmp_path / "ix", delete=tmp_path / "gone")
    make(more, tmp_path / "iy")
    assert open_index(tmp_path / "iy").ids == ["b", "c", "d"]
    assert open_index(tmp_path / "ix").ids == ["a", "b", "c"]


def test_a_kind_that_no_package_adds_is_named(tmp_path, installed, monkeypatch):
    vectors(tmp_path / "v", ["a"], 1)
    make(index_config(vectors=tmp_path / "v", index={"kind": "list"}), tmp_path / "ix")
    monkeypatch.undo()
    with pytest.raises(CorruptError, match="no index back end 'list'"):
        open_index(tmp_path / "ix")


def test_a_wrong_kind_is_told_with_the_nearest(tmp_path):
    with pytest.raises(RecipeError, match="write 'faiss'"):
        parse(IndexConfig, {"vectors": str(tmp_path), "index": {"kind": "fais"}})
