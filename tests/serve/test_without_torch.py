"""A search-only installation: what `pip install .` brings searches and serves a folder as a build wrote it.

The packages of the extra `train` are hidden from a process of its own, as if they were not installed.
"""

import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import httpx
import numpy as np
import pytest
from typer.testing import CliRunner

from liebig import encoders
from liebig.base.compiled import byte_products
from liebig.base.errors import RecipeError, install_command
from liebig.base.machine import BYTE_PRODUCTS
from liebig.builder.build import build
from liebig.builder.build_config import BuildConfig
from liebig.cli import make_app
from liebig.model.kernels import int8
from liebig.search.retriever import Retriever
from liebig.serve import server
from tests.search.conftest import make_folder
from tests.serve.conftest import running, until

ROOT = Path(__file__).parents[2]
MODULES = {"faiss-cpu": "faiss"}  # packages whose module has another name
HIDE = """
import sys
from importlib.machinery import PathFinder

class Without(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in HIDDEN else super().find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = Without
"""
SEARCH = """
import json
from fastapi.testclient import TestClient
from liebig import Retriever
from liebig.serve.routes import make_app
from liebig.serve.engine import ServingEngine
from liebig.serve.middleware import Limits

folder, question = sys.argv[1:]
retriever = Retriever.from_folder(folder)
answers = {
    system: [(hit.id, hit.score) for hit in retriever.search(question, 8, system)] for system in retriever.systems
}
with TestClient(make_app(ServingEngine(retriever, Limits())), base_url="http://localhost") as client:
    reply = client.post("/search", json={"query": question, "k": 8}).json()
    vector = client.post("/embed", json={"inputs": question}).json()[0]
served = [(row["id"], row["score"]) for row in reply["results"]]
assert "torch" not in sys.modules
vectors = retriever.encode(["barley"]).tolist()
print(json.dumps({"answers": answers, "served": served, "vector": vector, "vectors": vectors}))
"""
QUESTION = "what limits the growth of barley?"


def hidden() -> set[str]:
    """The modules that only the extra `train` brings."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    names = [re.split(r"[<>=;\[ ]", line)[0] for line in project["optional-dependencies"]["train"]]
    return {MODULES.get(name, name).replace("-", "_") for name in names}


def run(code, *words):
    """Run without the packages of the extra `train`."""
    script = f"HIDDEN = {hidden()!r}\n{HIDE}\n{code}"
    return subprocess.run([sys.executable, "-c", script, *words], capture_output=True, text=True, check=False)


@pytest.fixture(scope="module", params=["as it was built", "with a graph"])
def folder(request, small_model, tmp_path_factory):
    """A retriever with a model of its own, to which a graph may have been added."""
    out = make_folder(tmp_path_factory.mktemp("without") / "folder", small_model)
    model = (out / "model").resolve()
    (out / "model").unlink()
    shutil.copytree(model, out / "model")
    assert {"torch", "transformers", "numba"} <= hidden()
    if request.param == "with a graph":
        result = CliRunner().invoke(make_app(), ["export", str(out), "--to", "onnx"])
        assert result.exit_code == 0, result.output
    return out


def test_a_built_folder_is_searched_as_it_is(tmp_path):
    """README: "A machine that only searches needs no torch"."""
    for number, text in enumerate(
        ("Barley grows by its scarcest nutrient.", "Rain fell.", "Owls hunt mice.")
    ):
        (tmp_path / f"{number}.txt").write_text(text)
    sources, out = sorted(map(str, tmp_path.iterdir())), tmp_path / "out"
    build(BuildConfig(sources=sources, minutes=0), out, lambda line: None)
    done = run(SEARCH, str(out), QUESTION)
    assert done.returncode == 0, done.stderr
    assert (
        json.loads(done.stdout)["answers"]["dense"][0][0]
        == Retriever.from_folder(out).search(QUESTION, 1, "dense")[0].id
    )


def test_search_and_serve_answer_as_with_torch(folder):
    done = run(SEARCH, str(folder), QUESTION)
    assert done.returncode == 0, done.stderr
    found, retriever = json.loads(done.stdout), Retriever.from_folder(folder)
    assert set(found["answers"]) == {"bm25", "dense", "hybrid"}
    for system, hits in [*found["answers"].items(), ("hybrid", found["served"])]:
        expected = retriever.search(QUESTION, 8, system)
        assert [id for id, _ in hits] == [hit.id for hit in expected], system
        # Sums in float32 whose order the two runtimes choose: a few units in the last place of numbers about 1.
        np.testing.assert_allclose(
            [score for _, score in hits], [hit.score for hit in expected], rtol=1e-4, atol=1e-5
        )
    expected = Retriever.from_folder(folder).current.embedder.vectors([QUESTION], "passage")[0]
    assert len(found["vector"]) == len(expected)
    np.testing.assert_allclose(found["vectors"], retriever.encode(["barley"]), rtol=1e-3, atol=1e-5)


def test_the_command_line_searches_and_names_the_extra_that_other_commands_need(folder, tmp_path):
    start = "from liebig.cli import main; main()"
    done = run(f"sys.argv[0] = 'liebig'; {start}", "search", str(folder), QUESTION, "--json")
    assert done.returncode == 0, done.stderr
    expected = Retriever.from_folder(folder).search(QUESTION, 5)
    assert [row["id"] for row in json.loads(done.stdout)["results"]] == [hit.id for hit in expected]
    done = run(start, "doctor", str(folder))
    assert (done.returncode, "WRONG" in done.stdout) == (0, False), done.stderr + done.stdout
    assert "this machine searches and serves" in done.stdout
    done = run(start, "build", str(tmp_path), "--out", str(tmp_path / "out"))
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert install_command("train") in done.stderr


def test_the_server_starts_and_answers(folder):
    script = f"HIDDEN = {hidden()!r}\n{HIDE}\nfrom liebig.cli import main; main()"
    words = [sys.executable, "-c", script, "serve", str(folder), "--port", "0"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as process:
        said = []
        try:
            for line in process.stderr:
                said.append(line)
                if address := re.search(r"http://127\.0\.0\.1:\d+", line):
                    reply = httpx.get(f"{address[0]}/search", params={"q": QUESTION, "k": 1}, timeout=120)
                    break
            else:
                raise AssertionError("".join(said))
        finally:
            process.terminate()
    assert reply.json()["results"][0]["id"] == Retriever.from_folder(folder).search(QUESTION, 1)[0].id


ASSISTANT = """
from liebig import Retriever
from liebig.integrations.mcp import OpenTool, SearchTool, SimilarTool

retriever = Retriever.from_folder(sys.argv[1])
first = SearchTool(question=sys.argv[2], k=1).run(retriever).passages[0].id
assert SimilarTool(id=first, k=2).run(retriever).passages
assert OpenTool(id=first).run(retriever).text
assert "torch" not in sys.modules
"""


def test_an_assistant_is_answered(folder):
    pytest.importorskip("mcp")
    done = run(ASSISTANT, str(folder), QUESTION)
    assert done.returncode == 0, done.stderr


def test_a_graph_is_put_into_a_retriever_alone(tmp_path):
    result = CliRunner().invoke(make_app(), ["export", str(tmp_path), "--to", "onnx"])
    assert (result.exit_code, "retriever.json" in result.stderr) == (2, True)
    result = CliRunner().invoke(make_app(), ["export", str(tmp_path), "--to", "parquet"])
    assert (result.exit_code, "--out" in result.stderr) == (2, True)


COLD = """
import sys
from liebig.cli import main
sys.argv = ["liebig", "search", *sys.argv[1:]]
try:
    main()
except SystemExit as end:
    assert not end.code
heavy = {"torch", "transformers", "numba", "scipy", "fastapi"} & set(sys.modules)
assert not heavy, heavy
"""


def test_a_question_in_the_terminal_imports_nothing_heavy(tmp_path, small_model):
    """What takes seconds to import takes longer than the answer of a small folder."""
    folder = make_folder(tmp_path / "folder", small_model)
    words = [sys.executable, "-c", COLD, str(folder), QUESTION, "--json"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    expected = Retriever.from_folder(folder).search(QUESTION, 5)
    assert [row["id"] for row in json.loads(done.stdout)["results"]] == [hit.id for hit in expected]


START = """
import sys
from pathlib import Path
from fastapi.testclient import TestClient
from liebig.serve import server

folder, question = Path(sys.argv[1]), sys.argv[2]
server.prepare(folder)
from liebig.serve.middleware import Limits
from liebig.serve.routes import make_app
engine = server._engine(folder, Limits(), None, None, None, None, (), print)
with TestClient(make_app(engine), base_url="http://localhost") as client:
    print(client.get("/search", params={"q": question}).json()["results"][0]["id"])
heavy = {"torch", "transformers", "numba", "scipy", "mcp_types"} & set(sys.modules)
assert not heavy, heavy
"""


def test_a_server_imports_nothing_heavy_until_it_has_answered(tmp_path, small_model):
    folder = make_folder(tmp_path / "folder", small_model)
    words = [sys.executable, "-c", START, str(folder), QUESTION]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-1] == Retriever.from_folder(folder).search(QUESTION, 1)[0].id


def test_a_server_turns_to_int8_beside_its_first_answers(tmp_path, monkeypatch):
    if not byte_products():
        pytest.skip("this processor has no int8 dot products")
    monkeypatch.setenv("LIEBIG_PRECISION", "auto")
    monkeypatch.setattr(int8, "is_compiled", lambda kernel: True)
    monkeypatch.setattr("liebig.serve.engine.QUIET", 0)
    folder = make_folder(tmp_path / "folder", encoders.folder())
    retriever = Retriever.from_folder(folder, light=True)
    expected, before = (retriever.encode([QUESTION])[0], retriever.search(QUESTION, 3))
    with running(retriever):
        until(lambda: not retriever.light)
    assert retriever.current.embedder.precision == "int8"
    assert retriever.encode([QUESTION])[0] @ expected > 0.99
    assert [hit.id for hit in retriever.search(QUESTION, 3)] == [hit.id for hit in before]


def test_a_server_turns_to_torch_when_much_was_encoded(tmp_path, small_model, monkeypatch):
    imported = []
    monkeypatch.setattr("liebig.serve.engine.TOKENS_LIGHT", 10)
    monkeypatch.setattr("liebig.serve.engine.QUIET", 0)
    monkeypatch.setattr("liebig.serve.engine.import_module", imported.append)
    retriever = Retriever.from_folder(make_folder(tmp_path / "folder", small_model), light=True)
    with running(retriever) as address:
        begun = type(retriever.current.embedder.reader).__name__
        words = {"query": "barley " * 20, "system": "bm25"}
        assert httpx.post(f"{address}/search", json=words, timeout=120).status_code == 200
        assert imported == [], "nothing was encoded"
        before = httpx.post(f"{address}/embed", json={"inputs": ["barley " * 20]}, timeout=120).json()
        until(lambda: not retriever.light)
        after = httpx.post(f"{address}/embed", json={"inputs": ["barley " * 20]}, timeout=120).json()
        assert (begun, type(retriever.current.embedder.reader).__name__) == ("NumpyEncoder", "Encoder")
    np.testing.assert_allclose(before, after, rtol=1e-4, atol=1e-5)
    assert imported == ["torch"]
    assert not retriever.reload()


def test_a_server_that_stops_before_its_kernels_are_loaded_loads_nothing_more(
    tmp_path, small_model, monkeypatch
):
    imported = []
    monkeypatch.setattr("liebig.serve.engine.TOKENS_LIGHT", 10)
    monkeypatch.setattr("liebig.serve.engine.QUIET", 1000)
    monkeypatch.setattr("liebig.serve.engine.instructions", lambda: BYTE_PRODUCTS)
    monkeypatch.setattr("liebig.serve.engine.import_module", imported.append)
    retriever = Retriever.from_folder(make_folder(tmp_path / "folder", small_model), light=True)
    with running(retriever) as address:
        reply = httpx.post(f"{address}/embed", json={"inputs": ["barley " * 20]}, timeout=120)
    assert (reply.status_code, retriever.light, imported) == (200, True, [])


def test_a_server_does_not_start_with_a_precision_that_does_not_exist(tmp_path, small_model, monkeypatch):
    monkeypatch.setenv("LIEBIG_PRECISION", "int4")
    with pytest.raises(RecipeError, match="LIEBIG_PRECISION is 'int4'"):
        server.prepare(make_folder(tmp_path / "folder", small_model))


def test_torch_that_is_not_installed_is_looked_for_once(tmp_path, small_model, monkeypatch):
    seen = []
    monkeypatch.setattr("liebig.serve.engine.TOKENS_LIGHT", 1)
    monkeypatch.setattr("liebig.serve.engine.QUIET", 1000)
    monkeypatch.setattr("liebig.serve.engine.find_spec", seen.append)
    retriever = Retriever.from_folder(make_folder(tmp_path / "folder", small_model), light=True)
    with running(retriever) as address:
        for _ in range(3):
            httpx.post(f"{address}/embed", json={"inputs": ["barley"]}, timeout=120).raise_for_status()
    assert (seen, retriever.light) == (["torch"], True)
