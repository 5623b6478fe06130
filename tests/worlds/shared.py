"""Folders that are made once for all processes of a test run, and then only read."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], Any]) -> Path:
    """A folder that `make(folder)` writes: by the process that needs it first, while the others wait."""
    home = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:  # each worker has a folder of its own beside the others'
        home = home.parent
    home = home / "shared"
    home.mkdir(exist_ok=True)
    folder, finished = home / name, home / f"{name}.finished"
    with FileLock(home / f"{name}.lock"):
        if not finished.exists():
            shutil.rmtree(folder, ignore_errors=True)  # what a process left that failed
            make(folder)
            finished.touch()
    return folder
