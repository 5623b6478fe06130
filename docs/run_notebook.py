"""Run docs/notebook.ipynb and keep its outputs: `pip install nbclient ipykernel`, then `python docs/run_notebook.py`.
`--check` only runs it, in the environment of this Python; `.ci/wheel` does that with the wheel.

The notebook runs in a new temporary folder. Of a result that has HTML only that is kept, and cells with the tag
`progress` keep no output: both would show times. The digest of the code goes into the notebook, so that a test sees
whether its cells are still those that were run.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

NOTEBOOK = Path(__file__).parent / "notebook.ipynb"


def code_cells(notebook: dict[str, Any]) -> list[str]:
    """The source of every code cell, in order."""
    return ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]


def digest(cells: list[str]) -> str:
    """What identifies the code that was run."""
    return hashlib.sha256(json.dumps(cells).encode()).hexdigest()


def run(path: Path, *, keep: bool) -> None:
    """Execute a notebook, and write it back with its outputs if they are to be kept."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory(prefix="notebook-") as folder:
        client = NotebookClient(notebook, timeout=600, kernel_name="python3", record_timing=False)
        client.execute(cwd=folder)
    if not keep:
        return
    for cell in notebook.cells:
        if "progress" in cell.metadata.get("tags", ()):
            cell.outputs = []
        for output in cell.get("outputs", ()):
            if {"text/html", "image/png"} & set(output.get("data", ())):
                output.data.pop("text/plain", None)
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
        "code_sha256": digest(code_cells(notebook)),
    }
    nbformat.write(notebook, path)


if __name__ == "__main__":
    run(NOTEBOOK, keep="--check" not in sys.argv[1:])
