"""The scripts of docs/howto/cluster.md, run with local processes: each form makes the vectors of one run."""

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from liebig.base import pipeline, workspace
from liebig.stages import STAGES
from liebig.train.log import read_log
from tests.base.test_parts import files
from tests.search.conftest import write_collection
from tests.worlds.processes import programs

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "howto" / "cluster.md").read_text(encoding="utf-8")
PARTS = 2
RECIPE = """
model = { kind = "new", layers = 1, width = 16, heads = 2, max_positions = 64, dropout = 0.0 }
stores = [{ path = "runs/store" }]
source = { kind = "blocks" }
objective = { kind = "mlm" }
max_length = 48
loop = { steps = 2, batch = 8, log_every = 1 }
"""


def block(words):
    """The block of the page that has these words."""
    (found,) = [text for text in re.findall(r"```\w+\n(.*?)```", PAGE, re.DOTALL) if words in text]
    return found


def slurm():
    return block("--array"), "SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_COUNT"


def kubernetes():
    yaml = pytest.importorskip("yaml")
    job = yaml.safe_load(block("completionMode"))
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert container["env"] == [{"name": "PARTS", "value": str(job["spec"]["completions"])}]
    return container["args"][0], "JOB_COMPLETION_INDEX", "PARTS"


def skypilot():
    yaml = pytest.importorskip("yaml")
    return yaml.safe_load(block("num_nodes: 8"))["run"], "SKYPILOT_NODE_RANK", "SKYPILOT_NUM_NODES"


def slurm_training():
    facts = {"SLURM_JOB_NODELIST": "n[1-4]", "SLURM_JOB_NUM_NODES": "1", "SLURM_GPUS_ON_NODE": "2"}
    return block("--no-kill"), {**facts, "SLURM_JOB_ID": "7"}


def skypilot_training():
    yaml = pytest.importorskip("yaml")
    facts = {"SKYPILOT_NODE_IPS": "localhost\n10.0.0.2", "SKYPILOT_NUM_NODES": "1"}
    return yaml.safe_load(block("accelerators"))["run"], {**facts, "SKYPILOT_NUM_GPUS_PER_NODE": "1"}


def program(folder, name, line):
    (folder / name).write_text(f"#!/bin/sh\n{line}\n")
    (folder / name).chmod(0o755)


@pytest.fixture(scope="module")
def work(small_model, tmp_path_factory):
    """A folder with runs/ as the page has them, and `liebig` on the path."""
    home = tmp_path_factory.mktemp("cluster")
    documents = {f"d{n}": (f"Title {n}", "en", f"Text number {n} of the soil.") for n in range(150)}
    write_collection(home / "runs" / "collection", documents)
    shutil.copytree(small_model, home / "runs" / "model")
    with programs(home / "bin"):
        run(home, block("liebig merge runs"), {})
        yield home


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


@pytest.mark.slow
@pytest.mark.timeout(900)  # three processes that import torch, on a machine that may be busy
def test_both_scripts_of_a_training_make_the_same_run(tmp_path):
    recipe = tomllib.loads((ROOT / "recipes" / "smoke" / "mlm.toml").read_text(encoding="utf-8"))["stages"]
    del recipe["model"]
    recipe["collection"]["paths"] = [str(ROOT / "recipes" / "smoke" / "texts")]
    pipeline.run(pipeline.plan_stages(STAGES, recipe, tmp_path / "runs"), lambda line: None)
    (tmp_path / "recipe.toml").write_text(RECIPE)
    logs = []
    with programs(tmp_path / "bin"):
        program(tmp_path / "bin", "srun", 'shift; exec "$@"')
        program(tmp_path / "bin", "scontrol", "echo localhost; echo n2")
        for form in (slurm_training, skypilot_training):
            script, facts = form()
            port = 20_000 + os.getpid() % 20_000
            run(tmp_path, script.replace("29400", str(port)), facts)
            logs.append(read_log(tmp_path / "runs" / "pretrained"))
            assert workspace.read_manifest(tmp_path / "runs" / "pretrained").kind == "pretrain"
            shutil.rmtree(tmp_path / "runs" / "pretrained")
    two, one = ([line["loss"] for line in lines if "loss" in line] for lines in logs)
    assert len(two) == 2
    assert two == pytest.approx(one, rel=1e-4)
