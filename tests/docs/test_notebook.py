"""The notebook runs from its first cell to its last, and was committed with the outputs of the code it has."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import pytest

from liebig import encoders
from tests.worlds.docs_pages import ROOT
from tests.worlds.models import small_encoder

PATH = ROOT / "docs" / "notebook.ipynb"
NOTEBOOK = json.loads(PATH.read_text(encoding="utf-8"))
CODE = [cell for cell in NOTEBOOK["cells"] if cell["cell_type"] == "code"]
TIMES = re.compile(r"\d ?(?:ms|s|min)\b|\d/s\b")
OUTSIDE = re.compile(r"(?<![\w.])/(?:work|root|home|opt|tmp|usr|var)/")


@pytest.fixture(scope="module")
def runner():
    """docs/run_notebook.py as a module."""
    spec = importlib.util.spec_from_file_location("run_notebook", ROOT / "docs" / "run_notebook.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_outputs_are_those_of_the_code(runner):
    assert NOTEBOOK["metadata"]["code_sha256"] == runner.digest(runner.code_cells(NOTEBOOK)), (
        "run python docs/run_notebook.py"
    )
    assert [cell["execution_count"] for cell in CODE] == list(range(1, len(CODE) + 1))
    outputs = [output for cell in CODE for output in cell["outputs"]]
    assert {output["output_type"] for output in outputs} <= {"stream", "execute_result", "display_data"}
    assert any("image/png" in output.get("data", {}) for output in outputs)


def test_outputs_are_small_and_name_no_time_and_no_outside_path():
    assert PATH.stat().st_size < 100_000
    outputs = [output for cell in CODE for output in cell["outputs"]]
    texts = ["".join(output.get("text", "")) for output in outputs]
    texts += ["".join(output.get("data", {}).get("text/html", "")) for output in outputs]
    assert TIMES.findall("\n".join(texts)) == []
    assert OUTSIDE.findall(PATH.read_text(encoding="utf-8")) == []


def test_every_cell_runs(runner, tmp_path, monkeypatch):
    model = small_encoder(tmp_path / "encoder")
    monkeypatch.setattr(encoders, "folder", lambda name=encoders.DEFAULT: model)
    monkeypatch.chdir(tmp_path)
    backend = matplotlib.get_backend()
    matplotlib.use("agg")
    names: dict = {"__name__": "__main__"}
    try:
        for number, code in enumerate(runner.code_cells(NOTEBOOK), 1):
            exec(compile(code, f"notebook.ipynb, cell {number}", "exec"), names)
        assert [len(names["values"][system]) for system in ("bm25", "dense", "hybrid")] == [24, 24, 24]
        assert [text.get_text() for text in plt.gca().get_yticklabels()] == ["bm25", "dense", "hybrid"]
        assert "chosen" in names["built"]._repr_html_()
    finally:
        plt.close("all")
        matplotlib.use(backend)
    assert Path("runs/python-docs/retriever.json").is_file()
