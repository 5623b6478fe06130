"""A stage on a local Ray cluster: the bytes of one run, also where workers are killed meanwhile."""

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from liebig.base import pipeline
from liebig.base.errors import LiebigError
from liebig.base.workspace import StagePart
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


def test_workers_publish_their_parts_at_an_address(cluster, small_model, tmp_path):
    from liebig.on_ray import run_on_ray

    source = write_collection(
        tmp_path / "collection", {"d": ("A title", "en", "One.", "Two.", "Three.", "Four.")}
    )
    recipe = {"kind": "encode", "source": str(source), "model": str(small_model), "shard": 1}
    whole = planned(recipe, tmp_path / "whole")
    pipeline.run_stage(whole.stage, whole.config, whole.out)
    there = tmp_path / "bucket" / "vectors"
    item = planned(recipe | {"source": f"file://{source}"}, tmp_path / "unused")
    run_on_ray(item.stage, item.config, Path(f"file://{there}"), "ray", 2)
    assert files(there) == files(whole.out)
    assert [path.name for path in there.parent.iterdir()] == ["vectors"]


def test_a_worker_loads_the_model_once_for_all_its_parts(small_model, tmp_path, monkeypatch):
    from liebig.model.encoder import Encoder
    from liebig.on_ray import make_part

    source = write_collection(tmp_path / "collection", {"d": ("A title", "en", "One.", "Two.")})
    item = planned(
        {"kind": "encode", "source": str(source), "model": str(small_model), "shard": 1}, tmp_path / "out"
    )
    monkeypatch.chdir(tmp_path)
    loaded, load = [], Encoder.load
    monkeypatch.setattr(Encoder, "load", lambda *args, **more: loaded.append(args) or load(*args, **more))
    for place in range(2):
        part = StagePart(place, 2)
        assert (
            make_part(item.stage, item.config.model_dump(mode="json"), tmp_path / str(place), part, tmp_path)
            == ""
        )
    assert len(loaded) == 1


def test_bad_input_is_the_sentence_of_the_stage_and_parts_are_kept(cluster, small_model, tmp_path):
    from liebig.on_ray import run_on_ray

    source = write_collection(tmp_path / "collection", {"d": ("A title", "en", "Some text.", "More text.")})
    with (source / "passages.jsonl").open("a") as file:
        file.write("this is not JSON\n")
    item = planned({"kind": "encode", "source": str(source), "model": str(small_model)}, tmp_path / "out")
    with pytest.raises(LiebigError, match="JSON"):
        run_on_ray(item.stage, item.config, item.out, "ray", 2)
    assert not item.out.exists()


def refused(item, address, said, monkeypatch):
    from liebig.on_ray import run_on_ray

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    with pytest.raises(
        LiebigError, match=rf"the Ray cluster at {address} does not answer: {said}.* To fix it: give --on"
    ):
        run_on_ray(item.stage, item.config, item.out, address)
    assert not item.out.exists()


@pytest.fixture
def item(small_model, tmp_path):
    source = write_collection(tmp_path / "collection", {"d": ("A title", "en", "Some text.")})
    return planned({"kind": "encode", "source": str(source), "model": str(small_model)}, tmp_path / "out")


@pytest.mark.parametrize("address", ["127.0.0.1:9", "ray://127.0.0.1:9"])
def test_a_cluster_that_is_not_there_is_one_sentence(address, item, monkeypatch):
    refused(item, address, ".*refused", monkeypatch)


def test_an_address_without_a_port_is_one_sentence(item, monkeypatch):
    refused(item, "head", "the address has no port", monkeypatch)


@pytest.mark.parametrize(
    "error", [ConnectionError, Exception]
)  # the second: a node of this machine is too slow
def test_a_cluster_that_does_not_start_is_one_sentence(error, item, monkeypatch):
    def refuse(**options):
        assert options["_system_config"] == {"worker_niceness": 0}, "or workers starve beside other work"
        raise error("no node is there")

    monkeypatch.setattr(ray, "init", refuse)
    refused(item, "ray", "no node is there", monkeypatch)
