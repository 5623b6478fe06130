"""The schedule that is simulated, and the table of docs/scaling.md."""

import importlib.util
import random
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def scale():
    folder = ROOT / "experiments" / "cluster"
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        for name in ("RAY_raylet_start_wait_time_s", "RAY_agent_register_timeout_ms"):
            patch.setenv(name, "300")  # as the script sets it, and gone afterwards
        spec = importlib.util.spec_from_file_location("scale", folder / "scale.py")
        module = importlib.util.module_from_spec(spec)
        patch.setitem(sys.modules, "scale", module)
        spec.loader.exec_module(module)
        yield module


def steady(scale, workers, **changed):
    return scale.Cluster(
        workers, **({"start": 3, "again": 1, "failures": 0, "slow": 0, "piece": 4} | changed)
    )


def test_workers_share_the_parts(scale):
    assert scale.makespan([10.0] * 4, steady(scale, 2), random.Random(0)) == (24, 0)
    assert scale.makespan([10.0] * 4, steady(scale, 2, slow=1), random.Random(0)) == (44, 0)


def test_a_killed_worker_loses_what_it_did_since_its_last_piece(scale):
    # Killed at 9 s, six seconds into the part: four are kept, and six are made by a process that starts anew.
    assert scale.makespan([10.0], steady(scale, 1), random.Random(0), kills=[9.0]) == (9 + 3 + 6, 1)
    assert scale.makespan([10.0] * 2, steady(scale, 2), random.Random(0), kills=[9.0]) == (18, 1)


def test_work_with_failures_ends_and_takes_longer(scale):
    parts = [100.0] * 40
    alone, _ = scale.makespan(parts, steady(scale, 4), random.Random(0))
    taken, lost = scale.makespan(parts, steady(scale, 4, failures=5, replaced=60), random.Random(0))
    assert lost > 0
    assert taken > alone


def test_the_table_of_the_page_is_what_the_script_prints(scale):
    page = (ROOT / "docs" / "scaling.md").read_text(encoding="utf-8")
    assert page.partition(scale.BEGIN)[2].partition(scale.END)[0].strip() == scale.table(3.0, 0.05)
