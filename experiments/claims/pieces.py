"""Training folders and models as pieces of a limited size, to be carried from one machine to another and back.

    python experiments/claims/pieces.py pack runs/claims/start.partial runs/pieces/start
    python experiments/claims/pieces.py join runs/pieces/start runs/claims/start.partial
    python experiments/claims/pieces.py pack runs/claims/models/mlm@100M-1 runs/pieces/mlm

`pack` writes NAME.00, NAME.01 … of at most --size MiB, and NAME.json with their hashes; `join` checks them and
writes the folder again. Weights travel in 2 bytes (fp16) and the root of the second moment in 1 (on a scale of
logarithms); the first moment is left out, because ten steps make it anew: 3 bytes per parameter instead of 12. What
that does to a loss curve is measured in README.md. Of a folder that a stopped run left, the newest checkpoint alone
is packed; `join` writes its hashes anew, and `run.py start` goes on from it.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import re
import shutil
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load, save
from torch import Tensor

from liebig.base.workspace import INTENT, LOCK
from liebig.train.checkpoint import Checkpoints, Snapshot, read as read_checkpoint, write as write_checkpoint

MIB = 2**20
OCTAVES = 32  # of the second moment's root below the largest of its tensor
LEFT_OUT = (LOCK, "checkpoints", "cache")
STATE = "state.json"


def lighter(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors in fewer bytes; what is left as it is keeps its name, the others say in it what they are."""
    made: dict[str, Tensor] = {}
    for name, x in tensors.items():
        if name.endswith(".exp_avg") and x.numel() > 1:
            made[f"{name}|shape"] = torch.tensor(x.shape)
        elif name.endswith(".exp_avg_sq") and x.numel() > 1:
            root = x.sqrt()
            top = root.max().clamp_min(1e-30)
            place = 1 + 254 * (1 + torch.log2((root / top).clamp_min(1e-30)) / OCTAVES)
            made[f"{name}|log"] = torch.where(root > 0, place.clamp_min(1).round(), 0).to(torch.uint8)
            made[f"{name}|top"] = top[None]
        elif x.dtype == torch.float32 and x.numel() > 1:
            made[f"{name}|half"] = x.to(torch.float16)
        else:
            made[name] = x
    return {name: x.contiguous() for name, x in made.items()}


def heavier(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What `lighter` was given, nearly."""
    made: dict[str, Tensor] = {}
    for key, x in tensors.items():
        name, _, kind = key.partition("|")
        if kind == "shape":
            made[name] = torch.zeros(x.tolist())
        elif kind == "log":
            root = tensors[f"{name}|top"] * torch.exp2(((x.float() - 1) / 254 - 1) * OCTAVES)
            made[name] = torch.where(x > 0, root, 0).square()
        elif kind == "half":
            made[name] = x.float()
        elif not kind:
            made[name] = x
    return made


def entries(source: Path) -> Iterator[tuple[str, bytes]]:
    """The files of a folder, lighter: weights wherever they lie, and of checkpoints the newest."""
    for path in sorted(source.rglob("*")):
        inner = path.relative_to(source)
        if path.is_file() and not set(inner.parts) & set(LEFT_OUT):
            data = path.read_bytes()
            yield inner.as_posix(), _light_file(data) if path.suffix == ".safetensors" else data
    if steps := Checkpoints(source / "checkpoints").steps():
        place = f"checkpoints/step-{steps[-1]:08d}"
        snapshot = read_checkpoint(source / place)
        for group, tensors in snapshot.tensors.items():
            kept, tied = _once(tensors)
            yield f"{place}/{group}.safetensors", save(lighter(kept))
            yield f"{place}/{group}.tied.json", json.dumps(tied).encode()
        facts = {"step": snapshot.step, "facts": snapshot.facts, "groups": list(snapshot.tensors)}
        yield f"{place}/{STATE}", json.dumps(facts).encode()


def _light_file(data: bytes) -> bytes:
    return save(lighter(load(data)), metadata={"format": "pt"})


def _once(tensors: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Tied weights once, and which names are which."""
    first: dict[int, str] = {}
    kept, tied = {}, {}
    for name, x in tensors.items():
        if x.numel() > 1 and x.data_ptr() in first:
            tied[name] = first[x.data_ptr()]
        else:
            first[x.data_ptr()] = name
            kept[name] = x
    return kept, tied


def pack(source: Path, out: Path, size: int) -> list[Path]:
    """Write the pieces; `size` is the most bytes of one."""
    if not source.is_dir():
        raise SystemExit(f"{source} is not a folder")
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for name, data in entries(source):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    # Exponents of weights repeat, their other bits do not: Huffman's code alone saves a tenth, in a second or two.
    squeeze = zlib.compressobj(strategy=zlib.Z_HUFFMAN_ONLY)
    whole = squeeze.compress(stream.getbuffer()) + squeeze.flush()
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    hashes, pieces = {}, []
    for number, at in enumerate(range(0, len(whole), size)):
        path = out / f"{out.name}.{number:02d}"
        path.write_bytes(whole[at : at + size])
        hashes[path.name] = hashlib.sha256(whole[at : at + size]).hexdigest()
        pieces.append(path)
    (out / f"{out.name}.json").write_text(json.dumps(hashes, indent=1) + "\n")
    return pieces


def join(pieces: Path, out: Path) -> None:
    """The folder that was packed, at `out`."""
    listed: dict[str, str] = json.loads((pieces / f"{pieces.name}.json").read_text())
    whole = b""
    for name, wanted in listed.items():
        path = pieces / name
        data = path.read_bytes() if path.is_file() else b""
        if hashlib.sha256(data).hexdigest() != wanted:
            raise SystemExit(f"{path} is missing or damaged: bring it again")
        whole += data
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    with tarfile.open(fileobj=io.BytesIO(zlib.decompress(whole))) as tar:
        tar.extractall(out, filter="data")
    for path in out.rglob("*.safetensors"):
        if "checkpoints" not in path.relative_to(out).parts:
            path.write_bytes(save(heavier(load(path.read_bytes())), metadata={"format": "pt"}))
    for state in out.glob(f"checkpoints/*/{STATE}"):
        _restore(state.parent)
    if (out / INTENT).exists():
        (out / LOCK).touch()  # a stage takes up nothing that has no lock of its own


def _restore(folder: Path) -> None:
    """A checkpoint as the training loop reads it."""
    told: dict[str, Any] = json.loads((folder / STATE).read_text())
    tensors = {}
    for group in told["groups"]:
        known = heavier(load((folder / f"{group}.safetensors").read_bytes()))
        tied = json.loads((folder / f"{group}.tied.json").read_text())
        tensors[group] = known | {name: known[source] for name, source in tied.items()}
    write_checkpoint(folder, Snapshot(told["step"], tensors, told["facts"]))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("pack")
    one.add_argument("source", type=Path)
    one.add_argument("out", type=Path)
    one.add_argument("--size", type=float, default=15.5, help="MiB of a piece [%(default)s]")
    two = commands.add_parser("join")
    two.add_argument("pieces", type=Path)
    two.add_argument("out", type=Path)
    given = parser.parse_args()
    if given.command == "join":
        join(given.pieces, given.out)
        return
    if not re.fullmatch(r"[\w.-]+", given.out.name):
        parser.error(f"{given.out.name!r} has signs that a file may lose on its way: use letters and digits")
    for path in pack(given.source, given.out, int(given.size * MIB)):
        print(f"{path}: {path.stat().st_size / MIB:.2f} MiB")


if __name__ == "__main__":
    main()
