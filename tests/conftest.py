"""For all tests: no example of a property may fail because the machine is busy or slow, and libraries keep quiet.

The rest saves time: nothing is imported, read or looked through more often than a run needs.
"""

import functools
import gc
import hashlib
import json
import multiprocessing
import os
import shutil
import ssl
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import settings

from tests.worlds import stdlib
from tests.worlds.shared import made_once

settings.register_profile("liebig", deadline=None)
settings.load_profile("liebig")
# A database that one test started logs to stderr from its own threads, in the middle of what another test captures.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
os.environ.setdefault("HF_DEACTIVATE_ASYNC_LOAD", "1")  # threads cost a small model more than its weights
# The bundled encoder computes in int8 on some processors; what tests expect must not depend on the machine.
os.environ["LIEBIG_PRECISION"] = "fp32"
# What tests build is noted there, and read by servers that other processes of the run start.
USER = os.getuid() if hasattr(os, "getuid") else "user"
os.environ.setdefault("LIEBIG_STATE", f"{tempfile.gettempdir()}/liebig-tests-{USER}")
gc.disable()  # until every test is imported
# What takes many seconds to import or to start, and only some files need.
SLOW_TO_START = {
    "tests.worlds.processes": 0,
    "worlds import faults": 0,
    "forked_helpers": 0,
    "sentence_transformers": 1,
    "tests.worlds.docs_pages": 2,
    "onnx": 2,
    "_dynamo": 2,
    "llama_index": 2,
}
ROOT = Path(__file__).parent.parent


# What a file of tests has in it that cannot run on Windows.
UNIX = {
    "worlds.processes": "forks",
    "worlds.kill_points": "forks",
    "worlds import faults": "kills with SIGKILL",
    "SIGKILL": "kills with SIGKILL",
    "mkfifo": "makes named pipes",
    "import resource": "limits open files",
    '["bash"': "runs bash",
}
SYSTEMS = Path(__file__).parent / "worlds" / "other_systems"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--system", choices=("win32", "darwin"), help="simulate this system (worlds/other_systems)"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Start again as the other system: Python has to know before its first import."""
    system = config.getoption("--system")
    if system and os.environ.get("LIEBIG_SYSTEM") != system:
        paths = [str(SYSTEMS), str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")]
        cache = f"{tempfile.gettempdir()}/liebig-{system}-{USER}"
        more = {"LIEBIG_SYSTEM": system, "LIEBIG_CACHE": cache, "PYTHONPATH": os.pathsep.join(paths)}
        command = [sys.executable, "-m", "pytest", *config.invocation_params.args]
        os.execve(sys.executable, command, {**os.environ, **more})


def unix_only(text: str) -> str:
    """Why a file of tests cannot run on Windows, or ""."""
    return next((why for word, why in UNIX.items() if word in text), "")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    if os.name != "nt" or not collection_path.name.startswith("test_"):
        return None
    why = unix_only(collection_path.read_text(encoding="utf-8"))
    if why:
        config.issue_config_time_warning(UserWarning(f"{collection_path.name} {why}"), 2)
    return bool(why) or None


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Long bytes go by their argument's name: archives hold the time they were made at, and workers compare names."""
    return argname if isinstance(val, bytes) and len(val) > 40 else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that need the same slow thing come first, thing after thing, so that one worker starts it and no other.

    Each worker begins with its part of the list, in this order; one that is done takes over the end of another's part.
    """
    order = {}
    for path in {item.path for item in items}:
        text = path.read_text(encoding="utf-8")
        order[path] = min((turn for name, turn in SLOW_TO_START.items() if name in text), default=3)
    items.sort(key=lambda item: order[item.path])


def pytest_collection_finish(session: pytest.Session) -> None:
    """What was imported stays, so that no collection of garbage looks through its million objects; others are rarer."""
    gc.freeze()
    gc.set_threshold(5000, 20, 20)
    gc.enable()
    if processes := sys.modules.get("tests.worlds.processes"):
        capture = session.config.pluginmanager.getplugin("capturemanager")
        capture.resume_global_capture()  # what processes say is not for the terminal
        processes.start_server()
        capture.suspend_global_capture()


@pytest.fixture(scope="session", autouse=True)
def disk_is_not_waited_for() -> Iterator[None]:
    """No test pulls the plug. Processes that tests start do wait for the disk, as users' do."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def weights_to_come_are_not_drawn() -> Iterator[None]:
    """A model that is loaded is made without memory first; to draw its weights takes as long as to read them."""
    with pytest.MonkeyPatch.context() as patch:
        if "torch" in sys.modules:
            from torch.nn import Embedding, LayerNorm, Linear

            for kind in (Embedding, LayerNorm, Linear):
                patch.setattr(
                    kind, "reset_parameters", functools.partialmethod(_reset, kind.reset_parameters)
                )
        yield


def _reset(module: Any, reset: Any) -> None:
    if module.weight is None or not module.weight.is_meta:
        reset(module)


@pytest.fixture(scope="session", autouse=True)
def certificates_are_read_once() -> Iterator[None]:
    """Every client of HTTP reads all authorities, a tenth of a second; the servers of tests have no certificates."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ssl, "create_default_context", functools.cache(ssl.create_default_context))
        yield


@pytest.fixture(scope="session", autouse=True)
def graphs_are_traced_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """torch.onnx.export takes five seconds for the smallest graph; a module is traced once for all tests.

    It also parses the source of five hundred operators, the same ones for every graph.
    """
    with pytest.MonkeyPatch.context() as patch:
        if "torch" in sys.modules:
            from liebig.model import onnx_graph

            traced = functools.partial(_trace, tmp_path_factory, onnx_graph._trace)
            patch.setattr(onnx_graph, "_trace", traced)
        yield


def _trace(
    factory: pytest.TempPathFactory, trace: Any, graph: Any, path: Path, inputs: Sequence[str], *args: Any
) -> None:
    from torch.onnx._internal.exporter._registration import ONNXRegistry

    def make(folder: Path) -> None:
        folder.mkdir()
        trace(graph, folder / path.name, inputs, *args)

    read = ONNXRegistry.from_torchlib
    if not hasattr(read, "cache_info"):
        ONNXRegistry.from_torchlib = staticmethod(functools.cache(read))  # type: ignore[method-assign]
    folder = made_once(factory, f"graph-{_digest(graph, path.name, *inputs, *args)}", make)
    shutil.copytree(folder, path.parent, dirs_exist_ok=True)


def _digest(graph: Any, *rest: Any) -> str:
    """Of everything that a graph is made of: classes, settings, weights; not of the folder it was read from."""
    said: list[Any] = [graph, *rest]
    for name, module in graph.named_modules():
        values = {k: v for k, v in vars(module).items() if isinstance(v, (bool, int, float, str, tuple))}
        config = module.config.to_dict() if hasattr(module, "config") else {}
        fields = {k: v for k, v in {**values, **config}.items() if not k.endswith("name_or_path")}
        said.append((name, type(module), sorted(fields.items())))
    # An encoder's pooler is not used; transformers draws it at random where the folder has none.
    tensors = [(name, t) for name, t in graph.state_dict().items() if not name.startswith("body.pooler.")]
    weights = [(name, tensor.shape, tensor.dtype) for name, tensor in tensors]
    found = hashlib.sha256(repr((said, weights)).encode())
    for _, tensor in tensors:
        found.update(tensor.contiguous().numpy().tobytes())
    return found.hexdigest()


@pytest.fixture
def forked_helpers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes that help come from the server of tests.worlds.processes; to start one anew takes a second."""
    from liebig.base import machine
    from tests.worlds.processes import SERVER

    stand_in = SimpleNamespace(get_context=lambda _: SERVER, parent_process=multiprocessing.parent_process)
    monkeypatch.setattr(machine, "multiprocessing", stand_in)


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
