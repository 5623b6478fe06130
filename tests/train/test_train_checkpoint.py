"""Checkpoints: read back as written, refused when damaged, the last ones and the best kept."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings, strategies as st

from liebig.base.errors import CorruptError, WorkspaceError
from liebig.train.checkpoint import Checkpoints, Snapshot, put_optimiser, read, take_optimiser, write
from liebig.train.stopping import Best

FACTS = {"total": 7, "best": None, "means": {"loss": [0.1 + 0.2, 3]}}


def snapshot(step: int = 3) -> Snapshot:
    tied = torch.randn(4, 3)
    tensors = {"objective": {"a": tied, "b": tied, "c": torch.zeros(0), "n": torch.tensor(5)}, "none": {}}
    return Snapshot(step, tensors, FACTS)


def test_a_checkpoint_reads_back_as_it_was_written(tmp_path: Path) -> None:
    written = snapshot()
    write(tmp_path / "x", written)
    found = read(tmp_path / "x")
    assert (found.step, found.facts) == (3, FACTS)
    for name, tensor in written.tensors["objective"].items():
        assert torch.equal(found.tensors["objective"][name], tensor)
    assert (tmp_path / "x" / "objective.safetensors").stat().st_size < 400, "tied weights are stored once"
    assert [p.name for p in tmp_path.iterdir()] == ["x"]


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_damage_to_any_file_is_noticed(tmp_path: Path, data: st.DataObject) -> None:
    folder = tmp_path / "x"
    write(folder, snapshot())
    path = data.draw(st.sampled_from(sorted(folder.iterdir())))
    content = bytearray(path.read_bytes())
    kind = data.draw(st.sampled_from(["flip", "cut", "remove"]))
    at = data.draw(st.integers(0, len(content) - 1))
    if kind == "flip":
        content[at] ^= 1 << data.draw(st.integers(0, 7))
        path.write_bytes(content)
    elif kind == "cut":
        path.write_bytes(content[:at])
    else:
        path.unlink()
    try:
        found = read(folder)
    except CorruptError:
        return
    # A flip can only survive in the white space between the parts of state.json.
    assert kind == "flip"
    assert path.name == "state.json"
    assert (found.step, found.facts) == (3, FACTS)


def test_a_damaged_newest_checkpoint_is_said_and_passed_over(tmp_path: Path) -> None:
    store, said = Checkpoints(tmp_path, keep=3), []
    for step in (1, 2):
        store.save(snapshot(step))
    store.wait()
    (store.path(2) / "objective.safetensors").write_bytes(b"x")
    found = store.newest(said.append)
    assert found is not None
    assert found.step == 1
    assert "step 2 is damaged" in said[0]
    (store.path(1) / "state.json").unlink()
    with pytest.raises(CorruptError):
        store.newest(said.append)
    store.close()


def test_the_last_ones_and_the_best_are_kept(tmp_path: Path) -> None:
    store = Checkpoints(tmp_path, keep=2)
    for step in range(1, 7):
        store.save(snapshot(step))
        if step == 2:
            store.update(step, {"evaluated": 2}, Best(step, 0.5))
    store.close()
    assert store.steps() == [2, 5, 6]
    assert store.best() == 2
    assert store.read(2).facts == {"evaluated": 2}


def test_no_checkpoints_is_no_checkpoint(tmp_path: Path) -> None:
    store = Checkpoints(tmp_path / "none")
    assert store.newest(print) is None
    assert store.best() is None


def test_a_checkpoint_that_cannot_be_written_is_an_error_with_a_fix(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    store = Checkpoints(tmp_path / "file")
    store.save(snapshot())
    with pytest.raises(WorkspaceError, match="could not be written"):
        store.wait()


def test_what_an_interrupted_writer_left_is_removed(tmp_path: Path) -> None:
    store = Checkpoints(tmp_path / "checkpoints")
    (store.folder / ".step-00000009.123.tmp").mkdir(parents=True)
    (store.folder / ".best.json.123.tmp").touch()
    (tmp_path / ".log.jsonl.123.tmp").touch()
    store.tidy()
    assert [p.name for p in tmp_path.rglob("*")] == ["checkpoints"]
    assert store.steps() == []


def test_what_is_resumed_holds_no_map_of_its_file():
    weight = torch.nn.Parameter(torch.ones(3))
    optimiser = torch.optim.AdamW([weight])
    weight.grad = torch.ones(3)
    optimiser.step()
    stored = take_optimiser(optimiser)
    put_optimiser(optimiser, stored)
    moments = [value for value in optimiser.state[weight].values() if value.numel()]
    assert not {value.data_ptr() for value in moments} & {value.data_ptr() for value in stored.values()}
    assert all(torch.equal(stored[name], value) for name, value in take_optimiser(optimiser).items())
