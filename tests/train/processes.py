"""Several gloo processes in a test: forked from one clean server that has torch imported already."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

SERVER = multiprocessing.get_context("forkserver")
# torch._dynamo is what torch.optim imports at its first step: two seconds each process would pay anew.
SERVER.set_forkserver_preload(["torch._dynamo", "torch.distributed.fsdp", "liebig.train.loop", "pytest"])


def start(function: Callable[..., Any], size: int, folder: Path, *args: Any) -> list[BaseProcess]:
    """`size` processes calling `function(world, *args)`; what rank r returns lies in folder/result-r.pt."""
    folder.mkdir(parents=True, exist_ok=True)
    found = [
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
        process.join(100)
        assert process.exitcode == 0, (folder / "error.txt").read_text()
    return [torch.load(folder / f"result-{rank}.pt") for rank in range(size)]


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
                "gloo", store=store, rank=rank, world_size=size, timeout=timedelta(seconds=90)
            )
            world = World(rank, size)
        torch.save(function(world, *args), folder / f"result-{rank}.pt")
        if size > 1:
            dist.barrier()
            dist.destroy_process_group()
    except BaseException:
        (folder / "error.txt").write_text(traceback.format_exc())
        raise
