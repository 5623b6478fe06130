"""The Dockerfile, statement by statement: from the wheel, without root, with a health check that a server answers.

`.ci/image` runs these statements in a Debian root folder, without Docker.
"""

import json
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import typer

from liebig.cli import make_app
from liebig.commands.serve import PORT
from liebig.serve.middleware import OPEN

ROOT = Path(__file__).parents[2]


def statements():
    """Every statement as its word and the rest, continued lines joined."""
    text = re.sub(r"^#.*\n", "", (ROOT / "Dockerfile").read_text(encoding="utf-8"), flags=re.MULTILINE)
    lines = [line.strip() for line in re.sub(r"\\\n", " ", text).splitlines() if line.strip()]
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in lines)]


@pytest.fixture(scope="module")
def stages():
    """The statements of each stage."""
    found = []
    for word, rest in statements():
        if word == "FROM":
            found.append([])
        found[-1].append((word, rest))
    return found


def only(stage, word):
    (rest,) = [rest for name, rest in stage if name == word]
    return rest


def health_code(stage):
    return json.loads(only(stage, "HEALTHCHECK").partition("CMD ")[2])


def test_the_wheel_is_installed_with_the_pinned_versions_and_may_leave_torch_out(stages):
    build, _ = stages
    assert only(build, "COPY").split() == ["constraints.txt", "dist/liebig-*.whl", "/tmp/"]
    install = only(build, "RUN")
    assert "-c /tmp/constraints.txt" in install
    assert "${EXTRAS}" in install
    assert next(rest for word, rest in build if word == "ARG") == "EXTRAS=[train]"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert not [name for name in project["dependencies"] if name.startswith(("torch", "transformers"))]


def test_what_runs_is_small_and_not_root(stages):
    _, last = stages
    assert only(last, "FROM").endswith("-slim")
    assert only(last, "COPY").startswith("--from=build ")
    user = only(last, "USER")
    assert user not in ("root", "0")
    assert f" {user}" in only(last, "RUN")
    words = [word for word, _ in last]
    assert words.index("USER") < words.index("ENTRYPOINT")
    assert words.index("USER") > words.index("COPY")


def test_the_command_is_one_that_liebig_understands(stages):
    _, last = stages
    assert json.loads(only(last, "ENTRYPOINT")) == ["liebig"]
    name, *rest = json.loads(only(last, "CMD"))
    assert name == "serve"
    context = typer.main.get_command(make_app()).get_command(None, name).make_context("liebig", rest)
    assert context.params["host"] == "0.0.0.0"
    assert str(context.params["port"]) == only(last, "EXPOSE") == str(PORT)


def test_the_health_check_fails_without_a_server_and_passes_with_one(stages, server):
    python, flag, code = health_code(stages[1])
    assert (python, flag) == ("python", "-c")
    assert f":{PORT}/health" in code
    assert "/health" in OPEN  # it needs no token
    there = code.replace(f"http://127.0.0.1:{PORT}", server)
    nowhere = code.replace(f":{PORT}", ":1")
    done = [
        subprocess.run([sys.executable, "-c", c], capture_output=True, check=False) for c in (there, nowhere)
    ]
    assert [result.returncode == 0 for result in done] == [True, False]


def test_only_the_wheel_and_the_versions_are_sent_to_the_builder():
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    assert lines[0] == "*"
    assert {line.removeprefix("!") for line in lines[1:]} == {"constraints.txt", "dist/liebig-*.whl"}


def test_the_page_names_the_commands_that_build_and_run_it():
    page = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    runs = [shlex.split(line) for line in page.splitlines() if line.startswith("docker run ")]
    assert [words[words.index("liebig") + 1 :][:1] for words in runs] == [["build"], [], ["update"]]
    assert all(any(word.endswith(":/data") for word in words) for words in runs)
    assert f"{PORT}:{PORT}" in runs[1]
    assert any(word.startswith("LIEBIG_TOKEN=") for word in runs[1])
