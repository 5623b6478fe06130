"""A stage on a local Ray cluster: the bytes of one run, also where workers are killed meanwhile."""

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from liebig.base import pipeline
from liebig.base.errors import LiebigError
from liebig.stages import STAGES
from tests.base.test_parts import files
from tests.search.conftest import write_collection

ray = pytest.importorskip("ray")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster():
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error")
    yield
    ray.shutdown()


def planned(recipe, out):
    (item,) = pipeline.plan_stages(STAGES, {out.name: recipe}, out.parent)
    return item


def workers_at_a_part():
    """The processes of Ray that make a part."""
    pids = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes()
        except OSError:
            continue
        if words.startswith(b"ray::make_part"):
            pids.append(int(path.parent.name))
    return pids


def test_two_killed_workers_cost_their_parts(cluster, small_model, tmp_path):
    from liebig.on_ray import run_on_ray

    documents = {f"d{n}": (f"Title {n}", "en", f"Text number {n} of the soil.") for n in range(1000)}
    source = write_collection(tmp_path / "collection", documents)
    (source / "passages.jsonl").unlink()
    recipe = {"kind": "passages", "collection": str(source), "tokenizer": str(small_model)}
    whole = planned(recipe, tmp_path / "whole")
    pipeline.run_stage(whole.stage, whole.config, whole.out)
    killed = []

    def kill():
        deadline = time.monotonic() + 200
        while len(killed) < 2 and time.monotonic() < deadline:
            for pid in set(workers_at_a_part()) - set(killed):
                if len(killed) < 2:
                    os.kill(pid, signal.SIGKILL)
                    killed.append(pid)
            time.sleep(0.01)

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    out = tmp_path / "out"
    run_on_ray(whole.stage, whole.config, out, "ray", 4)
    killer.join()
    assert len(killed) == 2
    assert files(out) == files(whole.out)
    assert planned(recipe, out).up_to_date
    assert not (tmp_path / "out.parts").exists()


def test_bad_input_is_the_sentence_of_the_stage_and_parts_are_kept(cluster, small_model, tmp_path):
    from liebig.on_ray import run_on_ray

    source = write_collection(tmp_path / "collection", {"d": ("A title", "en", "Some text.", "More text.")})
    with (source / "passages.jsonl").open("a") as file:
        file.write("this is not JSON\n")
    item = planned({"kind": "encode", "source": str(source), "model": str(small_model)}, tmp_path / "out")
    with pytest.raises(LiebigError, match="JSON"):
        run_on_ray(item.stage, item.config, item.out, "ray", 2)
    assert not item.out.exists()


@pytest.mark.parametrize(
    "error", [ConnectionError, Exception]
)  # the second: a node of this machine is too slow
def test_a_cluster_that_is_not_there_is_one_sentence(error, small_model, tmp_path, monkeypatch):
    from liebig.on_ray import run_on_ray

    def refuse(**options):
        raise error("no node at 10.0.0.1:6379")

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", refuse)
    source = write_collection(tmp_path / "collection", {"d": ("A title", "en", "Some text.")})
    item = planned({"kind": "encode", "source": str(source), "model": str(small_model)}, tmp_path / "out")
    with pytest.raises(LiebigError, match=r"the Ray cluster at 10.0.0.1:6379 does not answer: no node"):
        run_on_ray(item.stage, item.config, item.out, "10.0.0.1:6379")
