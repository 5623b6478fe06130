"""The encoders that come with the package: one folder each, which `liebig:NAME` stands for in every recipe.

`DEFAULT` is the one that `demo`, `build` and the library use where no model is named. The package stores matrices as
int8 rows with one scale each, a quarter of their size. `folder` expands them once into the user's cache, as an ordinary
model folder in half precision that transformers and sentence-transformers load too. Cost: a second, the first time.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from functools import cache
from pathlib import Path

from liebig.base.errors import WorkspaceError
from liebig.base.machine import cache_folder

DEFAULT = "mini-v3"
PREFIX = "liebig:"
RETIRED = ("mini-v0", "mini-v1", "mini-v2")  # names that recipes and scripts may still have
HOME = Path(__file__).parent
ADVICE = (
    "A larger encoder often finds more. Use any sentence-transformers folder: "
    "liebig build SOURCE --model FOLDER --out DIR"
)
STORED, WEIGHTS = "model.int8.safetensors", "model.safetensors"
SCALE = ".scale"  # behind a matrix's name: the scales of its rows


def names() -> list[str]:
    """The names of all encoders that are there."""
    return sorted(path.parent.name for path in HOME.glob("*/config.json"))


def folder(name: str = DEFAULT) -> Path:
    """The folder of an encoder, by its name with or without `liebig:`."""
    packaged = HOME / name.removeprefix(PREFIX)
    if packaged.name in RETIRED:
        raise ValueError(
            f"{PREFIX}{packaged.name} is no longer in the package; name {PREFIX}{DEFAULT}, and build again what was "
            "built with it"
        )
    if packaged.name not in names():
        there = ", ".join(PREFIX + each for each in names())
        raise ValueError(f"the package has no encoder of this name; it has {there}")
    return expanded(packaged, cache_folder()) if (packaged / STORED).is_file() else packaged


@cache
def expanded(packaged: Path, home: Path) -> Path:
    """The packaged encoder as an ordinary model folder below `home`; made when it is not there yet."""
    files = sorted(path for path in packaged.rglob("*") if path.is_file())
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in files))
    target = home / "encoders" / f"{packaged.name}-{digest.hexdigest()[:12]}"
    if target.is_dir():
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(prefix=f".{packaged.name}-", dir=target.parent))
        shutil.copytree(packaged, made, ignore=shutil.ignore_patterns(STORED), dirs_exist_ok=True)
        expand(packaged / STORED, made / WEIGHTS)
        made.chmod(0o755)
        os.rename(made, target)
    except OSError as error:
        if target.is_dir():  # another process was quicker
            shutil.rmtree(made, ignore_errors=True)
            return target
        raise WorkspaceError(
            f"the bundled encoder cannot be unpacked: {error.strerror or error}",
            file=target,
            fix="set LIEBIG_CACHE to a folder that can be written, with 40 MB free",
        ) from error
    return target


def expand(stored: Path, weights: Path) -> None:
    """Write a file of int8 rows and scales as one of half precision."""
    import numpy as np
    from safetensors.numpy import load_file, save_file

    tensors = load_file(stored)
    whole = {
        name: (value.astype(np.float32) * tensors[name + SCALE].astype(np.float32)).astype(np.float16)
        if name + SCALE in tensors
        else value
        for name, value in tensors.items()
        if not name.endswith(SCALE)
    }
    save_file(whole, weights, metadata={"format": "pt"})
