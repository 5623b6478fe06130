"""Several gloo processes in a test: forked from one clean server that has already imported what they need.

A process costs a fork, not the ten seconds of importing torch and transformers. Its environment is that of torchrun, so
commands that join the other processes by themselves work too. The server itself is a fork of the process that runs the
tests, made when all of them are imported and none has run.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import select
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from multiprocessing import connection, forkserver, resource_tracker
from multiprocessing.process import BaseProcess
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

PATIENCE = 600  # seconds; a busy machine is slow, and nothing waits this long unless something hangs
PRELOADED = ["tests.worlds.preloaded"]
SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(PRELOADED)
# torchrun waits for what a forked process returns, and one that exits returns nothing.
MAIN = """
from liebig.cli import main

try:
    main()
except SystemExit as end:
    if end.code:
        raise
"""


def start_server() -> None:
    """Fork the server of multiprocessing, which would otherwise start as a new interpreter and import everything."""
    resource_tracker.ensure_running()
    address = connection.arbitrary_address("AF_UNIX")  # type: ignore[attr-defined]
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        alive, held = os.pipe()  # as in multiprocessing: it ends when no process holds the other end
        pid = os.fork()
        if pid == 0:
            os.close(held)
            _serve(listener, alive)
    os.close(alive)
    server: Any = forkserver._forkserver  # type: ignore[attr-defined]
    server._forkserver_address, server._forkserver_alive_fd, server._forkserver_pid = address, held, pid


def _serve(listener: socket.socket, alive: int) -> None:
    """Never returns: what this process was before must not go on twice."""
    try:
        sys.stdout, sys.stderr = (open(number, "w", 1, closefd=False) for number in (1, 2))  # noqa: SIM115
        called, _, _ = select.select([listener.fileno(), alive], [], [])
        if alive not in called:
            forkserver.main(listener.detach(), alive, PRELOADED)
    finally:
        os._exit(0)


def start(function: Callable[..., Any], size: int, folder: Path, *args: Any) -> list[BaseProcess]:
    """`size` processes calling `function(world, *args)`; what rank r returns lies in folder/result-r.pt."""
    folder.mkdir(parents=True, exist_ok=True)
    found: list[BaseProcess] = [
        SERVER.Process(target=_child, args=(function, rank, size, folder, args), daemon=True)
        for rank in range(size)
    ]
    for process in found:
        process.start()
    return found


def together(function: Callable[..., Any], size: int, folder: Path, *args: Any) -> list[Any]:
    """The results of all ranks."""
    import torch

    started = start(function, size, folder, *args)
    for process in started:
        process.join(PATIENCE)
        assert process.exitcode == 0, (folder / "error.txt").read_text()
    return [torch.load(folder / f"result-{rank}.pt") for rank in range(size)]


def liebig(words: Sequence[str], folder: Path, given: str = "") -> CompletedProcess[str]:
    """The command in a process of its own, so that whatever reaches its standard output is seen."""
    return _seen(_liebig, words, folder, given)


def torchrun(
    words: Sequence[str], folder: Path, launch: Sequence[str] = ("--nproc-per-node=2", "--standalone")
) -> CompletedProcess[str]:
    """torchrun with two processes of the command. It forks them, so that none of the three imports anything."""
    return _seen(partial(_torchrun, launch=launch), words, folder)


@contextmanager
def programs(folder: Path) -> Iterator[str]:
    """A folder with `liebig` and `torchrun` for scripts: they run in processes that have imported everything.

    Each writes its words into a pipe, one command at a time, and ends with the code that comes back.
    """
    folder.mkdir()
    asked, answered = folder / "asked", folder / "answered"
    for pipe in (asked, answered):
        os.mkfifo(pipe)
    for name in ("liebig", "torchrun"):
        (folder / name).write_text(
            f'#!/bin/sh\nprintf "%s\\n" {name} "$PWD" "$@" > {asked}\n'
            f"{{ read -r code; cat >&2; }} < {answered}\nexit $code\n"
        )
        (folder / name).chmod(0o755)
    served = threading.Thread(target=_serve_programs, args=(asked, answered))
    served.start()
    try:
        yield str(folder)
    finally:
        asked.write_text("\n")
        served.join()


def _serve_programs(asked: Path, answered: Path) -> None:
    while (lines := asked.read_text().splitlines())[0]:
        name, home, *words = lines
        if name == "torchrun":
            split = words.index("-m")
            done = torchrun(words[split + 2 :], Path(home), words[:split])
        else:
            done = liebig(words, Path(home))
        answered.write_text(f"{done.returncode}\n{done.stderr}")


@contextmanager
def running(words: Sequence[str], folder: Path) -> Iterator[tuple[BaseProcess, Path]]:
    """The command in a process of its own, and the file that has its standard error so far."""
    with _started(_liebig, words, folder) as (process, (_, error)):
        yield process, error


def _seen(
    target: Callable[[list[str]], None], words: Sequence[str], folder: Path, given: str = ""
) -> CompletedProcess[str]:
    with _started(target, words, folder, given) as (process, (out, error)):
        process.join(PATIENCE)
        assert process.exitcode is not None
        return CompletedProcess(words, process.exitcode, out.read_text(), error.read_text())


@contextmanager
def _started(
    target: Callable[[list[str]], None], words: Sequence[str], folder: Path, given: str = ""
) -> Iterator[tuple[BaseProcess, list[Path]]]:
    with tempfile.TemporaryDirectory() as home:
        files = [Path(home) / name for name in ("in", "out", "error")]
        files[0].write_text(given)
        for file in files[1:]:
            file.touch()
        process = SERVER.Process(target=_with_files, args=(target, list(words), folder, files))
        process.start()
        try:
            yield process, files[1:]
        finally:
            process.kill()
            process.join()


def _with_files(
    target: Callable[[list[str]], None], words: list[str], folder: Path, files: list[Path]
) -> None:
    for descriptor, (file, mode) in enumerate(zip(files, ("r", "w", "w"))):
        with file.open(mode) as opened:
            os.dup2(opened.fileno(), descriptor)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115  # the process ends with all three
    sys.stdout, sys.stderr = (open(number, "w", 1, closefd=False) for number in (1, 2))  # noqa: SIM115
    os.chdir(folder)
    target(words)


def _liebig(words: list[str]) -> None:
    sys.argv = ["liebig", *words]
    from liebig.cli import main

    main()


def _torchrun(words: list[str], launch: Sequence[str]) -> None:
    from torch.distributed.run import main

    if "--standalone" not in launch:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # a script of a page: its processes may not have a GPU each
    script = Path(tempfile.mkdtemp(dir=".")) / "main.py"
    script.write_text(MAIN)
    main([*launch, "--start-method=fork", "--run-path", str(script), *words])


def install(site: Path) -> None:
    """Import liebig anew in this process, as on a machine where the packages in `site` are installed."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "liebig"]:
        del sys.modules[name]
    sys.path.insert(0, str(site))
    importlib.invalidate_caches()


def run_commands(world: Any, site: Path, home: Path, commands: list[list[str]]) -> list[tuple[int, str]]:
    """Exit code and output of commands, in a folder, where the packages in `site` are installed."""
    install(site)
    os.chdir(home)
    from typer.testing import CliRunner

    from liebig.cli import make_app

    results = [CliRunner().invoke(make_app(), words) for words in commands]
    return [(result.exit_code, result.output) for result in results]


def _child(function: Callable[..., Any], rank: int, size: int, folder: Path, args: tuple[Any, ...]) -> None:
    import traceback

    import torch
    import torch.distributed as dist

    from liebig.train.distributed import ALONE, World

    torch.set_num_threads(1)
    try:
        world = ALONE
        if size > 1:
            store = dist.FileStore(str(folder / "store"), size)
            dist.init_process_group(
                "gloo", store=store, rank=rank, world_size=size, timeout=timedelta(seconds=PATIENCE)
            )
            world = World(rank, size)
            os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(size)}
            os.environ["TORCHELASTIC_RUN_ID"] = "test"
        torch.save(function(world, *args), folder / f"result-{rank}.pt")
        if dist.is_initialized():  # a command has left already
            dist.barrier()
            dist.destroy_process_group()
    except BaseException:
        (folder / "error.txt").write_text(traceback.format_exc())
        raise
