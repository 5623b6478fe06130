"""Files of folders changed by someone who also rewrites the manifest: hashes fit, contents do not.

JSON files get values of other types, sizes and signs, and lose keys; arrays get other types, shapes, orders and
numbers. A crafted folder may be refused in one sentence, or searched with scores that are numbers; nothing else.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from liebig.base import workspace
from liebig.base.errors import LiebigError
from tests.worlds import faults
from tests.worlds.faults import Damage

VALUES: list[Any] = [
    None, False, True, -1, 0, 1.5, 10**9, 10**30, math.nan, math.inf, "x", "", "../..", "/etc", [], {}, [None],
    {"x": 1},
]  # fmt: skip


def rewrite_manifest(path: Path) -> None:
    """Make the manifest of the stage that a file is in say what the file now is."""
    home = next(folder for folder in path.parents if (folder / workspace.MANIFEST).is_file())
    row = json.loads((home / workspace.MANIFEST).read_text())
    name = path.relative_to(home).as_posix()
    row["outputs"][name] = hashlib.sha256(path.read_bytes()).hexdigest()
    row["sizes"][name] = path.stat().st_size
    (home / workspace.MANIFEST).write_text(json.dumps(row))


def places(tree: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value in a tree of JSON, the root first."""
    yield at
    inner = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in inner:
        yield from places(value, (*at, key))


def changed_json(data: bytes, count: int, rng: random.Random) -> Iterator[Damage]:
    """A value of another kind somewhere in the tree, or a key that is gone."""
    listed = list(places(json.loads(data)))
    for _ in range(count):
        tree, place, value = json.loads(data), rng.choice(listed), rng.choice([*VALUES, "gone"])
        if not place:
            tree = value
        else:
            inner = tree
            for key in place[:-1]:
                inner = inner[key]
            if value == "gone":
                del inner[place[-1]]
            else:
                inner[place[-1]] = value
        yield Damage(f"{'.'.join(map(str, place)) or 'the file'} = {value!r}", json.dumps(tree).encode())


def changed_array(data: bytes, count: int, rng: random.Random) -> Iterator[Damage]:
    """Another type, shape, order or other numbers."""
    array = np.load(io.BytesIO(data))
    for _ in range(count):
        how = rng.choice(
            ["type", "shape", "reversed", "cut", "longer", "empty", "value", "values", "repeated"]
        )
        yield Damage(how, _saved(_changed(array, how, rng)))


def _changed(array: NDArray[Any], how: str, rng: random.Random) -> NDArray[Any]:
    if how == "type":
        return array.astype(rng.choice(["f8", "f4", "f2", "i8", "i4", "u8", "u1", "i1", ">i8", "?"]))
    if how == "shape":
        return rng.choice([array[None], array.reshape(-1), array.reshape(-1, 1), array[..., None]])
    if how == "longer":
        return np.concatenate([array, array])
    if how == "repeated":
        return np.repeat(array[:1], len(array), axis=0)
    if how in ("value", "values") and array.size:
        changed = array.copy()
        wrong: list[float] = [0, -1, 1, 255, 1 << 30, -(1 << 62), (1 << 62)]
        wrong += [np.nan, np.inf, -np.inf, 1e30, 3e38] if array.dtype.kind == "f" else []
        flat = changed.reshape(-1)
        number = np.array(rng.choice(wrong)).astype(array.dtype)
        flat[rng.randrange(flat.size) if how == "value" else slice(None)] = number
        return changed
    return {"reversed": array[::-1], "cut": array[: len(array) // 2]}.get(how, array[:0])


def _saved(array: NDArray[Any]) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.ascontiguousarray(array), allow_pickle=False)
    return buffer.getvalue()


def changes(path: Path, count: int, rng: random.Random) -> Iterator[Damage]:
    """Changed contents of a file, by what it is."""
    data = path.read_bytes()
    if path.suffix == ".json":
        yield from changed_json(data, count, rng)
    elif path.suffix == ".npy":
        with np.errstate(all="ignore"):
            yield from changed_array(data, count, rng)
    else:
        yield from faults.damages(data, count // 2, count // 2, rng)


def outcome(folder: Path, path: Path, damage: Damage) -> str:
    """`refused`, `answered` with numbers, or what went wrong."""
    manifests = {file: file.read_bytes() for file in folder.glob(f"*/{workspace.MANIFEST}")}
    before = path.read_bytes()
    path.write_bytes(damage.data)
    try:
        if path.name != workspace.MANIFEST and path.parent != folder:
            rewrite_manifest(path)
        answers = faults.answers(folder)
    except LiebigError as error:
        return "refused" if "\n" not in str(error) else f"refused in several lines: {error}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    finally:
        path.write_bytes(before)
        for file, data in manifests.items():
            file.write_bytes(data)
    finite = all(math.isfinite(score) for row in answers for _, score in row)
    return "answered" if finite else "a score is not a number"


def craft(folder: Path, count: int, seed: str) -> dict[str, list[str]]:
    """The outcomes of changing every file of a retriever, each with the cases that had it."""
    rng = random.Random(seed)
    outcomes: dict[str, list[str]] = {}
    for path in (folder / faults.NAME, *faults.described_files(folder)):
        for damage in changes(path, count, rng):
            case = f"{path.relative_to(folder)}: {damage.how}"
            outcomes.setdefault(outcome(folder, path, damage), []).append(case)
    return outcomes
