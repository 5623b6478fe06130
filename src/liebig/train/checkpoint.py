"""Checkpoints: whole or not at all, verified when read, written in the background.

A checkpoint is a folder `step-00001000` of safetensors files and `state.json`, which holds everything that is not
a tensor and the hash of every file, its own contents included. It is written under another name, synced and
renamed. Tensors are copied to host memory first; hashing and writing happen in a thread. Nothing is pickled.

It holds objective, optimiser and averages as named tensors. The objective's state is everything in its state_dict:
model, heads, a queue, a momentum encoder. Sharded tensors are gathered when they are taken and divided again when they
are put back. Random numbers need no state: they are a function of the seed and the step.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from liebig.base.durable import atomic_write, replace, sync
from liebig.base.errors import CorruptError, TrainingError, WorkspaceError
from liebig.base.hashes import hash_file
from liebig.base.json_file import read_json
from liebig.train.stopping import Best

STATE, BEST, PREFIX = "state.json", "best.json", "step-"
AGAIN = "remove the folder and start again"


@dataclass(frozen=True)
class Snapshot:
    """The state of a run after `step` steps: named groups of tensors, and facts that JSON can hold."""

    step: int
    tensors: Mapping[str, Mapping[str, Tensor]]
    facts: Mapping[str, Any] = field(default_factory=dict)


def write(folder: Path, snapshot: Snapshot) -> None:
    """Make `folder` hold the snapshot; before that, and if anything fails, it does not exist."""
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        files, aliases = {}, {}
        for name, tensors in snapshot.tensors.items():
            unique, aliases[name] = _unique(tensors)
            path = temporary / f"{name}.safetensors"
            safetensors.torch.save_file(unique, path)
            sync(path)
            files[name] = hash_file(path)
        body = {"step": snapshot.step, "facts": snapshot.facts, "files": files, "aliases": aliases}
        _write_state(temporary / STATE, body)
        if folder.exists():
            shutil.rmtree(folder)
        replace(temporary, folder)
        sync(folder.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def read(folder: Path) -> Snapshot:
    """The snapshot in `folder`; every file is checked against its hash before it is opened."""
    try:
        state = read_json(folder / STATE, dict[str, Any])
        digest = state.pop("digest", None)
        whole = _digest(state) == digest
    except CorruptError:
        whole = False
    if not whole:
        raise CorruptError("state.json of this checkpoint is damaged", file=folder, fix=AGAIN)
    tensors = {name: _read_tensors(folder, name, digest) for name, digest in state["files"].items()}
    for name, aliases in state["aliases"].items():
        tensors[name].update({alias: tensors[name][source] for alias, source in aliases.items()})
    return Snapshot(state["step"], tensors, state["facts"])


def _read_tensors(folder: Path, name: str, digest: str) -> dict[str, Tensor]:
    path = folder / f"{name}.safetensors"
    try:
        if hash_file(path) == digest:
            tensors: dict[str, Tensor] = safetensors.torch.load_file(path)
            return tensors
    except (OSError, SafetensorError):
        pass
    raise CorruptError(f"{path.name} of this checkpoint is damaged or missing", file=folder, fix=AGAIN)


class Checkpoints:
    """The checkpoints of a run: the newest `keep` and the best, written in the background."""

    def __init__(self, folder: Path, keep: int = 2) -> None:
        self.folder, self.keep = folder, keep
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._writing: Future[None] | None = None

    def path(self, step: int) -> Path:
        return self.folder / f"{PREFIX}{step:08d}"

    def steps(self) -> list[int]:
        names = (p.name.removeprefix(PREFIX) for p in self.folder.glob(f"{PREFIX}*") if p.is_dir())
        return sorted(int(name) for name in names if name.isdecimal())

    def read(self, step: int) -> Snapshot:
        return read(self.path(step))

    def save(self, snapshot: Snapshot) -> None:
        self.wait()
        self._writing = self._pool.submit(self._save, snapshot)

    def update(self, step: int, facts: Mapping[str, Any], best: Best | None) -> None:
        """Replace the facts of a step's checkpoint in the background; `best` says that it is the best so far."""
        self.wait()
        self._writing = self._pool.submit(self._update, step, facts, best)

    def wait(self) -> None:
        """Until everything is on disk; an error of the writer is raised here."""
        if self._writing is not None:
            try:
                self._writing.result()
            except (OSError, SafetensorError) as error:
                why = getattr(error, "strerror", None) or error
                raise WorkspaceError(
                    f"a checkpoint could not be written: {why}",
                    file=self.folder,
                    fix="make room on the disk and run the same command again",
                ) from error
            finally:
                self._writing = None

    def close(self) -> None:
        """Wait, and let the thread go."""
        try:
            self.wait()
        finally:
            self._pool.shutdown()

    def newest(self, say: Callable[[str], None]) -> Snapshot | None:
        """The newest checkpoint that is whole; a damaged one is reported and skipped."""
        damaged = None
        for step in reversed(self.steps()):
            try:
                return read(self.path(step))
            except CorruptError as error:
                damaged = error
                say(f"the checkpoint of step {step} is damaged ({error.what}): trying the one before it")
        if damaged is not None:
            raise damaged
        return None

    def best(self) -> int | None:
        try:
            return read_json(self.folder / BEST, Best).step
        except CorruptError:
            return None

    def mark(self, best: Best | None) -> None:
        """Record which checkpoint is the best; None if there is none."""
        if best is None:
            (self.folder / BEST).unlink(missing_ok=True)
        else:
            atomic_write(self.folder / BEST, json.dumps(asdict(best)).encode())

    def tidy(self) -> None:
        """Remove what interrupted writers left, here and in the folder of the run."""
        for path in [*self.folder.glob(".*.tmp"), *self.folder.parent.glob(".*.tmp")]:
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)

    def _save(self, snapshot: Snapshot) -> None:
        write(self.path(snapshot.step), snapshot)
        self._remove_old()

    def _update(self, step: int, facts: Mapping[str, Any], best: Best | None) -> None:
        path = self.path(step) / STATE
        body = read_json(path, dict[str, Any])
        _write_state(path, {name: body[name] for name in ("step", "files", "aliases")} | {"facts": facts})
        if best is not None:
            self.mark(best)
            self._remove_old()

    def _remove_old(self) -> None:
        kept = {*self.steps()[-self.keep :], self.best()}
        for step in self.steps():
            if step not in kept:
                shutil.rmtree(self.path(step))


def _unique(tensors: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Each tensor once where several share memory (tied weights), and which names refer to which tensor."""
    first: dict[tuple[int, tuple[int, ...]], str] = {}
    unique, aliases = {}, {}
    for name, tensor in tensors.items():
        place = (tensor.data_ptr(), tuple(tensor.shape))
        if tensor.numel() and place in first:
            aliases[name] = first[place]
        else:
            first[place] = name
            unique[name] = tensor.contiguous()
    return unique, aliases


def _write_state(path: Path, body: Mapping[str, Any]) -> None:
    atomic_write(path, json.dumps({**body, "digest": _digest(body)}, indent=1).encode())


def _digest(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def take_module(module: nn.Module) -> dict[str, Tensor]:
    """Copies of everything in the module's state, in host memory; tied weights stay tied."""
    seen: dict[tuple[int, tuple[int, ...]], Tensor] = {}
    tensors = {}
    for name, value in module.state_dict().items():
        place = (value.data_ptr(), tuple(value.shape))
        if place not in seen or not value.numel():
            seen[place] = _copy(value)
        tensors[name] = seen[place]
    return tensors


@torch.no_grad()
def put_module(module: nn.Module, tensors: Mapping[str, Tensor], file: Path | None = None) -> None:
    """Write a stored state into the module; names and shapes must match."""
    own = module.state_dict()
    wrong = sorted(set(own) ^ set(tensors)) or [n for n in own if own[n].shape != tensors[n].shape]
    if wrong:
        raise TrainingError(
            f"the checkpoint belongs to another model: {wrong[0]} differs",
            file=file,
            fix="use the recipe it was made with",
        )
    for name, value in own.items():
        value.copy_(tensors[name])


def take_optimiser(optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Copies in host memory of the moments of each parameter, as `number.name`."""
    state = optimiser.state_dict()["state"]
    return {f"{i}.{name}": _copy(x) for i, inner in state.items() for name, x in inner.items()}


def put_optimiser(optimiser: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    state: dict[int, dict[str, Any]] = {}
    for key, value in tensors.items():
        number, name = key.split(".", 1)
        # A copy, because a map of the file would keep Windows from removing it.
        state.setdefault(int(number), {})[name] = value.clone()
    groups = optimiser.state_dict()["param_groups"]
    optimiser.load_state_dict({"state": state, "param_groups": groups})


def load_checkpoint(objective: nn.Module, folder: Path, which: str = "best") -> int:
    """Put the best (or the "newest") weights of a training folder into the objective; returns their step."""
    checkpoints = Checkpoints(folder / "checkpoints")
    step = checkpoints.best() if which == "best" else max(checkpoints.steps(), default=None)
    if step is None:
        raise TrainingError(
            f"there is no {which} checkpoint", file=folder, fix="train with an evaluation first"
        )
    snapshot = read(checkpoints.path(step))
    put_module(objective, snapshot.tensors["objective"], checkpoints.path(step))
    return step


def _copy(x: Tensor) -> Tensor:
    return x.detach().to("cpu", copy=True)
