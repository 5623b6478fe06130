"""Liebig on a simulated Windows and macOS (`worlds/other_systems`): imports, build to label, a training."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from tests.conftest import unix_only
from tests.worlds.docs_pages import ROOT

SYSTEMS = ("win32", "darwin")
pytestmark = pytest.mark.timeout(900)  # up to seven processes, one after the other
IMPORT_ALL = """
import importlib, pkgutil, sys
import liebig
wrong = []
for module in pkgutil.walk_packages(liebig.__path__, "liebig."):
    if module.name == "liebig.__main__":
        continue
    try:
        importlib.import_module(module.name)
    except ModuleNotFoundError as error:
        if error.name != "triton":  # a GPU's
            wrong.append(f"{module.name}: {error}")
    except Exception as error:
        wrong.append(f"{module.name}: {error!r}")
print("\\n".join(wrong))
"""


def environment(system: str, tmp_path: Path) -> dict[str, str]:
    return {
        **os.environ,
        "LIEBIG_SYSTEM": system,
        "LIEBIG_CACHE": str(tmp_path / "cache"),
        "PYTHONPATH": os.pathsep.join(
            [str(ROOT / "tests/worlds/other_systems"), str(ROOT / "src"), str(ROOT)]
        ),
        "PYTHONWARNDEFAULTENCODING": "1",
    }


def python(system: str, tmp_path: Path, *arguments: str, code: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        env=environment(system, tmp_path),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def liebig(system: str, tmp_path: Path, *arguments: object, code: int = 0) -> str:
    return python(system, tmp_path, "-m", "liebig", *map(str, arguments), code=code)


@pytest.mark.slow
@pytest.mark.parametrize("system", SYSTEMS)
def test_every_module_is_imported(system, tmp_path):
    assert python(system, tmp_path, "-c", IMPORT_ALL).strip() == ""


def notes(folder: Path) -> None:
    folder.mkdir()
    (folder / "sub").mkdir()
    for number in range(8):
        text = f"# Note {number}\n\nNote {number} is about item {number} of the garden. It was written in spring.\n"
        (folder / "sub" / f"{number}.md").write_text(text, encoding="utf-8")
    (folder / "barley.md").write_text(
        "# Barley\n\nWhat limits the growth of barley is the nutrient that is scarcest.\n", encoding="utf-8"
    )


@pytest.mark.slow
@pytest.mark.parametrize("system", SYSTEMS)
def test_a_folder_is_built_searched_updated_served_and_labelled(system, tmp_path):
    folder, out = tmp_path / "notes", tmp_path / "retriever"
    notes(folder)
    liebig(system, tmp_path, "build", folder, "--minutes", "0", "--out", out)
    asked = json.loads(
        liebig(system, tmp_path, "search", out, "what limits barley?", "--system", "dense", "--json")
    )
    assert asked["results"][0]["title"] == "Barley"
    assert all("\\" not in row["doc"] for row in asked["results"])

    command = [
        sys.executable,
        "-m",
        "liebig",
        "label",
        str(out),
        "--out",
        str(tmp_path / "judged" / "judgements.jsonl"),
        "--port",
        "0",
    ]
    with subprocess.Popen(
        command, env=environment(system, tmp_path), stderr=subprocess.PIPE, text=True
    ) as server:
        try:
            address = wait_for_address(server)
            assert "Barley" in search(address, "barley")
            # The folder changes while the server has its files open.
            (folder / "sub" / "new.md").write_text(
                "# Rye\n\nRye grows where wheat does not.\n", encoding="utf-8"
            )
            (folder / "sub" / "3.md").unlink()
            liebig(system, tmp_path, "update", out)
            for _ in range(100):
                if "Rye" in search(address, "rye"):
                    break
                time.sleep(0.1)
            else:
                pytest.fail("the server did not switch to the new generation")
            judgement = {
                "question": "rye?",
                "passage": json.loads(search(address, "rye"))["results"][0]["id"],
            }
            post(f"{address}/label/judgement", {**judgement, "relevance": 1})
        finally:
            server.terminate()
            server.wait(30)
    lines = (tmp_path / "judged" / "judgements.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(lines[0])["relevance"] == 1
    # What the server kept open is removed by the next update.
    (folder / "sub" / "4.md").unlink()
    liebig(system, tmp_path, "update", out)
    kinds = [re.sub(r"-\d+$", "", path.name) for path in out.iterdir() if re.search(r"-\d+$", path.name)]
    assert len(kinds) == len(set(kinds)), sorted(path.name for path in out.iterdir())
    assert not [
        *out.rglob("*.partial"),
        *out.rglob("*.liebig.old"),
        *out.rglob("*.lock"),
        *out.rglob("*.tmp"),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("system", SYSTEMS)
def test_an_encoder_is_pretrained(system, tmp_path):
    out = tmp_path / "run"
    liebig(
        system, tmp_path, "run", ROOT / "recipes/smoke/mlm.toml", "--out", out, "stages.model.loop.steps=2"
    )
    assert (out / "model" / "manifest.json").is_file()
    assert not [*out.rglob("*.partial"), *out.rglob("*.tmp"), *out.rglob("*.lock")]


@pytest.mark.slow
@pytest.mark.parametrize("system", SYSTEMS)
def test_the_suite_can_be_run_there(system, tmp_path):
    command = ["-m", "pytest", "--system", system, str(ROOT / "tests/base/test_machine.py"), "-rs"]
    said = python("", tmp_path, *command)
    assert ("Windows tells no load" in said) == (system == "win32")


def test_files_of_tests_that_windows_cannot_run_are_known():
    assert "forks" in unix_only("from tests.worlds.processes import together")
    assert "named pipes" in unix_only((ROOT / "tests/formats/test_bad_files.py").read_text(encoding="utf-8"))
    assert not unix_only((ROOT / "tests/vectors/test_topk.py").read_text(encoding="utf-8"))


def wait_for_address(server: subprocess.Popen[str]) -> str:
    said = []
    for line in server.stderr:
        said.append(line)
        found = re.search(r"http://[\d.:]+", line)
        if found:
            return found[0]
    raise AssertionError("".join(said))


def search(address: str, query: str) -> str:
    with urllib.request.urlopen(f"{address}/search?q={query}&k=3", timeout=30) as answer:
        return answer.read().decode()


def post(address: str, value: object) -> None:
    request = urllib.request.Request(
        address, json.dumps(value).encode(), {"Content-Type": "application/json"}, method="POST"
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        assert answer.status == 200


def test_the_simulation_refuses_what_windows_refuses(tmp_path):
    script = f"""
import os, pathlib, sys
exec(compile('''
import os, pathlib, sys
home = pathlib.Path({str(tmp_path)!r})
refused = []
def tries(name, call):
    try:
        call()
    except (OSError, AttributeError, ImportError) as error:
        refused.append(name)
(home / "a").mkdir(); (home / "a" / "open").write_text("x", encoding="utf-8")
with (home / "a" / "open").open("rb") as file:
    tries("remove", (home / "a" / "open").unlink)
    tries("move", lambda: os.replace(home / "a", home / "b"))
    tries("sync", lambda: os.fsync(file.fileno()))
tries("device", lambda: (home / "nul.txt").write_text("x", encoding="utf-8"))
tries("dot", lambda: (home / "name.").mkdir())
tries("folder", lambda: os.open(home, os.O_RDONLY))
tries("proc", lambda: open("/proc/cpuinfo", encoding="utf-8"))
tries("function", lambda: os.sysconf)
tries("module", lambda: __import__("fcntl", globals()))
print(*refused)
''', "liebig", "exec"), {{"__name__": "liebig.test", "__builtins__": __builtins__}})
"""
    refused = "remove move sync device dot folder proc function module"
    assert python("win32", tmp_path, "-c", script).strip() == refused
