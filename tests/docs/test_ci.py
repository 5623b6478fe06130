"""The descriptions of continuous integration name what is there."""

import re
import subprocess
import tomllib

import yaml

from tests.worlds.docs_pages import ROOT

WORKFLOW = ROOT / ".github" / "workflows" / "ci.yml"


def commands() -> list[str]:
    """Every command of the workflow and of .ci/run."""
    jobs = yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))["jobs"].values()
    steps = [step["run"] for job in jobs for step in job["steps"] if "run" in step]
    return [*steps, *(ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()]


def test_every_target_and_script_exists():
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    named = [line.split()[1] for line in commands() if line.startswith("make ")]
    assert {"check", "test", "demo"} <= set(named) <= set(targets)
    assert commands().count(".ci/wheel") == 2


def test_tests_run_on_both_processors_and_on_every_python_of_the_package():
    matrix = yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))["jobs"]["tests"]["strategy"]["matrix"]
    assert matrix["os"] == ["ubuntu-24.04", "ubuntu-24.04-arm"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    listed = [line.rpartition(" ")[2] for line in project["classifiers"] if "Python :: 3." in line]
    assert matrix["python"] == listed == ["3.11", "3.12", "3.13"]


def test_the_scripts_are_bash():
    for name in ("run", "wheel"):
        subprocess.run(["bash", "-n", str(ROOT / ".ci" / name)], check=True)
