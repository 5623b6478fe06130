"""For all tests: no example of a property may fail because the machine is busy or slow, and libraries keep quiet.

The rest saves time: nothing is imported, read or looked through more often than a run needs.
"""

import functools
import gc
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests.worlds import stdlib
from tests.worlds.shared import made_once

settings.register_profile("liebig", deadline=None)
settings.load_profile("liebig")
# A database that one test started logs to stderr from its own threads, in the middle of what another test captures.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
gc.disable()  # until every test is imported
# What takes many seconds to import or to start, and only some files need.
SLOW_TO_START = ("tests.worlds.processes", "sentence_transformers")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that need the same slow thing come first, so that one worker starts it and the others never.

    Each worker begins with its part of the list, in this order; one that is done takes over the end of another's part.
    """
    slow = {
        path: any(name in path.read_text(encoding="utf-8") for name in SLOW_TO_START)
        for path in {item.path for item in items}
    }
    items.sort(key=lambda item: not slow[item.path])


def pytest_collection_finish() -> None:
    """What was imported stays, so that no collection of garbage looks through its million objects."""
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def disk_is_not_waited_for() -> Iterator[None]:
    """No test pulls the plug. Processes that tests start do wait for the disk, as users' do."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def operators_are_read_once() -> Iterator[None]:
    """torch.onnx.export parses the source of five hundred operators, the same ones for every graph."""
    torch: Any = sys.modules.get("torch")
    with pytest.MonkeyPatch.context() as patch:
        if torch is not None:
            patch.setattr(torch.onnx, "export", functools.partial(_export, patch, torch.onnx.export))
        yield


def _export(patch: pytest.MonkeyPatch, export: Any, *args: Any, **kwargs: Any) -> Any:
    from torch.onnx._internal.exporter._registration import ONNXRegistry

    read = ONNXRegistry.from_torchlib
    if not hasattr(read, "cache_info"):
        patch.setattr(ONNXRegistry, "from_torchlib", staticmethod(functools.cache(read)))
    return export(*args, **kwargs)


@pytest.fixture(scope="session")
def small_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a tiny random encoder, in place of the bundled one."""
    from tests.worlds.models import small_encoder  # not every process of a run needs torch

    return made_once(tmp_path_factory, "small-model", small_encoder)


@pytest.fixture(scope="session")
def whole_library(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Every document of this Python's standard library."""
    folder = made_once(tmp_path_factory, "stdlib", stdlib.read_library)
    return json.loads((folder / stdlib.FILE).read_text(encoding="utf-8"))
