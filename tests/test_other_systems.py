"""Liebig on a simulated Windows and macOS (`worlds/other_systems`): imports, build to label, a training."""

from __future__ import annotations

import json
import os
import re
import signal
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
SERVER = """
import importlib, json, os, pkgutil, sys
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
# What loading a model imports: once here, and not again by each command.
import transformers.conversion_mapping
import transformers.models.auto.modeling_auto
import transformers.models.bert.modeling_bert
import transformers.models.bert.tokenization_bert
print(json.dumps(wrong), flush=True)
for line in sys.stdin:
    words, folder = json.loads(line)
    pid = os.fork()
    if pid == 0:
        for number, name in ((1, "out"), (2, "error")):
            os.dup2(os.open(f"{folder}/{name}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        sys.stdin = open(os.devnull, encoding="utf-8")
        sys.argv = ["liebig", *words]
        from liebig.cli import main
        main()
        sys.exit()
    print(pid, flush=True)
    if words[0] != "label":
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
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


def python(system: str, tmp_path: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        env=environment(system, tmp_path),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


class Simulated:
    """A process of the other system that has imported everything, and forks to run a command."""

    def __init__(self, process: subprocess.Popen[str], folder: Path) -> None:
        self.process, self.folder = process, folder
        self.wrong = json.loads(process.stdout.readline())

    def start(self, *words: object) -> int:
        """The number of the process that runs the command; its standard error is in the folder's file `error`."""
        self.process.stdin.write(json.dumps([list(map(str, words)), str(self.folder)]) + "\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def liebig(self, *words: object) -> str:
        self.start(*words)
        code = int(self.process.stdout.readline())
        assert code == 0, (self.folder / "error").read_text(encoding="utf-8")
        return (self.folder / "out").read_text(encoding="utf-8")


@pytest.fixture(scope="module", params=SYSTEMS)
def simulated(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    command, pipe = [sys.executable, "-c", SERVER], subprocess.PIPE
    with subprocess.Popen(
        command, env=environment(request.param, folder), stdin=pipe, stdout=pipe, text=True
    ) as process:
        yield Simulated(process, folder)
        process.stdin.close()


@pytest.mark.slow
def test_every_module_is_imported(simulated):
    assert simulated.wrong == []


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
def test_a_folder_is_built_searched_updated_served_and_labelled(simulated, tmp_path):
    folder, out = tmp_path / "notes", tmp_path / "retriever"
    notes(folder)
    simulated.liebig("build", folder, "--minutes", "0", "--out", out)
    asked = json.loads(simulated.liebig("search", out, "what limits barley?", "--system", "dense", "--json"))
    assert asked["results"][0]["title"] == "Barley"
    assert all("\\" not in row["doc"] for row in asked["results"])

    judged = tmp_path / "judged" / "judgements.jsonl"
    server = simulated.start("label", out, "--out", judged, "--port", "0")
    try:
        address = wait_for_address(simulated.folder / "error")
        assert "Barley" in search(address, "barley")
        # The folder changes while the server has its files open.
        (folder / "sub" / "new.md").write_text("# Rye\n\nRye grows where wheat does not.\n", encoding="utf-8")
        (folder / "sub" / "3.md").unlink()
        simulated.liebig("update", out)
        for _ in range(300):
            if "Rye" in search(address, "rye"):
                break
            time.sleep(0.1)
        else:
            pytest.fail("the server did not switch to the new generation")
        passage = json.loads(search(address, "rye"))["results"][0]["id"]
        judgement = {"question": "rye?", "passage": passage, "relevance": 1}
        post(f"{address}/label/judgement", judgement)
    finally:
        os.kill(server, signal.SIGTERM)
        wait_for_end(server)
    lines = judged.read_text(encoding="utf-8").splitlines()
    assert json.loads(lines[0])["relevance"] == 1
    # What the server kept open is removed by the next update.
    (folder / "sub" / "4.md").unlink()
    simulated.liebig("update", out)
    kinds = [re.sub(r"-\d+$", "", path.name) for path in out.iterdir() if re.search(r"-\d+$", path.name)]
    assert len(kinds) == len(set(kinds)), sorted(path.name for path in out.iterdir())
    assert not [
        *out.rglob("*.partial"),
        *out.rglob("*.liebig.old"),
        *out.rglob("*.lock"),
        *out.rglob("*.tmp"),
    ]


@pytest.mark.slow
def test_an_encoder_is_pretrained(simulated, tmp_path):
    out = tmp_path / "run"
    simulated.liebig("run", ROOT / "recipes/smoke/mlm.toml", "--out", out, "stages.model.loop.steps=2")
    assert (out / "model" / "manifest.json").is_file()
    assert not [*out.rglob("*.partial"), *out.rglob("*.tmp"), *out.rglob("*.lock")]


@pytest.mark.slow
def test_the_suite_can_be_run_there(tmp_path):
    command = ["-m", "pytest", "--system", "win32", str(ROOT / "tests/base/test_machine.py"), "-rs"]
    assert "Windows tells no load" in python("", tmp_path, *command)


def test_files_of_tests_that_windows_cannot_run_are_known():
    assert "forks" in unix_only("from tests.worlds.processes import together")
    assert "named pipes" in unix_only((ROOT / "tests/formats/test_bad_files.py").read_text(encoding="utf-8"))
    assert not unix_only((ROOT / "tests/vectors/test_topk.py").read_text(encoding="utf-8"))


def wait_for_address(log: Path) -> str:
    for _ in range(3000):
        found = re.search(r"http://[\d.:]+", log.read_text(encoding="utf-8"))
        if found:
            return found[0]
        time.sleep(0.1)
    raise AssertionError(log.read_text(encoding="utf-8"))


def wait_for_end(pid: int) -> None:
    """Until a process that another one started has ended; it stays as a zombie until that one ends, too."""
    for _ in range(300):
        if Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] == "Z":
            return
        time.sleep(0.1)
    raise AssertionError("the server did not end")


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
import mmap, os, pathlib, sys
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
    mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
tries("mapped", (home / "a" / "open").unlink)
mapped.close()
tries("free", (home / "a" / "open").unlink)
tries("device", lambda: (home / "nul.txt").write_text("x", encoding="utf-8"))
tries("dot", lambda: (home / "name.").mkdir())
tries("folder", lambda: os.open(home, os.O_RDONLY))
tries("proc", lambda: open("/proc/cpuinfo", encoding="utf-8"))
tries("function", lambda: os.sysconf)
tries("module", lambda: __import__("fcntl", globals()))
print(*refused)
''', "liebig", "exec"), {{"__name__": "liebig.test", "__builtins__": __builtins__}})
"""
    refused = "remove move sync mapped device dot folder proc function module"
    assert python("win32", tmp_path, "-c", script).strip() == refused
