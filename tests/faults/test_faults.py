"""The quick part of the fault harness: a small retriever, its files damaged, its builds killed (see `make torture`)."""

import random
import shutil

import pytest

from tests.worlds import faults, kill_points


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Documents, a tiny model, and a retriever of them."""
    home = tmp_path_factory.mktemp("faults")
    source = faults.write_documents(home / "source", faults.TOPICS)
    model = faults.write_model(home / "model")
    faults.build_retriever(source, model, home / "out")
    return home


def test_no_damaged_file_is_loaded_in_silence(world):
    found = faults.corrupt(world / "out", cuts=1, flips=1, seed=0)
    wrong = {how: cases for how, cases in found.items() if how not in ("refused", "same")}
    assert not wrong
    assert len(found["refused"]) > 100


def test_a_killed_build_resumes_to_the_same_bytes(world, tmp_path):
    rng, source, model = random.Random(1), world / "source", world / "model"
    out = tmp_path / "out"  # the same place for both: paths are part of what is written
    seconds = faults.finish("build", source, model, out)
    expected = faults.contents(out)
    shutil.rmtree(out)
    for _ in range(2):
        faults.kill("build", rng.uniform(0, seconds / 2), source, model, out)
        assert faults.generation(out) in (0, 1)
    faults.finish("build", source, model, out)
    assert faults.contents(out) == expected
    assert not [*out.rglob("*.partial"), *out.rglob("*.liebig.old"), *out.rglob(".lock")]


def test_a_build_that_dies_at_any_change_of_the_disk_is_taken_up(tmp_path):
    faults.finish("points", tmp_path)  # which holds every build against one that was not killed
    first, again = map(int, (tmp_path / kill_points.COUNTS).read_text().split())
    assert first > 30
    assert again > 40


def test_a_killed_update_loses_nothing(world, tmp_path):
    rng, source = random.Random(2), tmp_path / "source"
    faults.write_documents(source, faults.TOPICS)
    faults.build_retriever(source, world / "model", tmp_path / "out")
    before = faults.answers(tmp_path / "out")
    (source / "comet.md").unlink()
    faults.write_documents(source, ["quince"])
    shutil.copytree(tmp_path / "out", tmp_path / "whole")
    seconds = faults.finish("update", tmp_path / "whole")
    after, out = faults.answers(tmp_path / "whole"), tmp_path / "out"
    for _ in range(2):
        faults.kill("update", rng.uniform(0, seconds), out)
        assert faults.answers(out) == (before if faults.generation(out) == 1 else after)
    faults.finish("update", out)
    assert faults.answers(out) == after
    left = {path.name for path in out.iterdir()}
    assert left == {path.name for path in (tmp_path / "whole").iterdir()}
    assert not [*out.rglob("*.partial"), *out.rglob("*.liebig.old"), *out.rglob(".lock")]
