"""The scripts of docs/howto/cluster.md, run with local processes: each form makes the vectors of one run."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.base.test_parts import files
from tests.search.conftest import write_collection

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "howto" / "cluster.md").read_text(encoding="utf-8")
PARTS = 2


def block(words):
    """The block of the page that has these words."""
    (found,) = [text for text in re.findall(r"```\w+\n(.*?)```", PAGE, re.DOTALL) if words in text]
    return found


def slurm():
    return block("#SBATCH"), "SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_COUNT"


def kubernetes():
    yaml = pytest.importorskip("yaml")
    job = yaml.safe_load(block("completionMode"))
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert container["env"] == [{"name": "PARTS", "value": str(job["spec"]["completions"])}]
    return container["args"][0], "JOB_COMPLETION_INDEX", "PARTS"


def skypilot():
    yaml = pytest.importorskip("yaml")
    return yaml.safe_load(block("num_nodes"))["run"], "SKYPILOT_NODE_RANK", "SKYPILOT_NUM_NODES"


@pytest.fixture(scope="module")
def work(small_model, tmp_path_factory):
    """A folder with runs/ as the page has them, and `liebig` on the path."""
    home = tmp_path_factory.mktemp("cluster")
    documents = {f"d{n}": (f"Title {n}", "en", f"Text number {n} of the soil.") for n in range(150)}
    write_collection(home / "runs" / "collection", documents)
    shutil.copytree(small_model, home / "runs" / "model")
    (home / "bin").mkdir()
    command = home / "bin" / "liebig"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m liebig "$@"\n')
    command.chmod(0o755)
    run(home, block("liebig merge"), {})
    return home


def run(home, script, environment):
    path = f"{home / 'bin'}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-ec", script], cwd=home, env={**os.environ, "PATH": path, "WORK": str(home), **environment},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("form", [slurm, kubernetes, skypilot])
def test_a_script_makes_parts_that_merge(form, work):
    script, index, count = form()
    shutil.rmtree(work / "runs" / "parts")
    for number in range(PARTS):
        run(work, script, {index: str(number), count: str(PARTS)})
    run(work, f"liebig merge runs/parts/1 runs/parts/2 --out runs/{form.__name__}", {})
    merged = files(work / "runs" / form.__name__)
    assert merged == files(work / "runs" / "vectors")
    assert {name for name in merged if name.endswith("vectors.npy")} >= {"shards/00000/vectors.npy"}
