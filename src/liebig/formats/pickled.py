"""Vectors out of the pickles that Tevatron's encoder writes, without trusting them.

A pickle is a program. It is run in a process of its own, without the environment, by an unpickler that knows numpy
arrays, lists and strings and refuses every other name; what comes back is vectors.npy and ids.txt, checked again.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from liebig.base.errors import DataError
from liebig.formats.items import Where, as_id

ALLOWED = frozenset(
    (module, name)
    for core in ("numpy.core", "numpy._core")
    for module, name in (
        (f"{core}.multiarray", "_reconstruct"),
        (f"{core}.numeric", "_frombuffer"),
        ("numpy", "ndarray"),
        ("numpy", "dtype"),
        ("_codecs", "encode"),
    )
)
REFUSED = 3


class ArrayUnpickler(pickle.Unpickler):
    """An unpickler of arrays, lists and strings."""

    def find_class(self, module: str, name: str) -> Any:
        """Only what numpy arrays are made of."""
        if (module, name) not in ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return super().find_class(module, name)


def convert(source: Path, folder: Path) -> None:
    """Write vectors.npy and ids.txt into the folder, from a pickle of (vectors, ids)."""
    command = [
        sys.executable,
        "-I",
        "-m",
        "liebig.formats.pickled",
        str(source.absolute()),
        str(folder.absolute()),
    ]
    done = subprocess.run(
        command, env={}, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode:
        why = done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"exit code {done.returncode}"
        raise DataError(f"the pickle cannot be converted: {why}", file=source)


def main(source: str, folder: str) -> None:
    """The other process: read the pickle, write the arrays."""
    try:
        with open(source, "rb") as file:
            found = ArrayUnpickler(file).load()
        vectors, ids = checked(found, Where(source))
    except Exception as error:  # a pickle can fail in any way it likes
        sys.stderr.write(f"{getattr(error, 'what', error)}\n")
        sys.exit(REFUSED)
    np.save(Path(folder) / "vectors.npy", vectors, allow_pickle=False)
    (Path(folder) / "ids.txt").write_text("".join(f"{name}\n" for name in ids), encoding="utf-8")


def checked(found: Any, where: Where) -> tuple[np.ndarray[Any, Any], list[str]]:
    """Vectors and ids that fit each other."""
    if not isinstance(found, tuple | list) or len(found) != 2:
        where.refuse("it does not contain a pair of vectors and ids")
    vectors, names = found
    if not isinstance(vectors, np.ndarray) or vectors.ndim != 2 or vectors.dtype.kind != "f":
        where.refuse("its first part is not a matrix of numbers")
    ids = [as_id(name, where) for name in (names.tolist() if isinstance(names, np.ndarray) else names)]
    if len(ids) != len(vectors):
        where.refuse(f"it has {len(vectors):,} vectors and {len(ids):,} ids")
    return vectors, ids


if __name__ == "__main__":
    main(*sys.argv[1:])
