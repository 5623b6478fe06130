"""Run folders: a stage writes one folder, whole or not at all, with a manifest of what went in and came out.

Work happens in `<out>.partial`, under a lock; at the end every file is hashed into `manifest.json`, synced,
and the folder renamed to `<out>`. An interrupted stage leaves its partial folder, and the same recipe over the
same inputs takes it up again. "Up to date" is decided by hashes, never by times. What is not ours is never replaced
or removed. Cost: one read of the files that go in and one of those that come out.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
import shutil
import traceback
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from liebig.base.durable import atomic_write, remove, replace, sync
from liebig.base.errors import (
    AGAIN,
    CorruptError,
    LiebigError,
    RecipeError,
    ResourceError,
    TrainingError,
    WorkspaceError,
)
from liebig.base.hashes import hash_json, hash_output, hash_readable
from liebig.base.json_file import BelowPath, read_json
from liebig.base.machine import WINDOWS, try_lock
from liebig.base.progress import say

if TYPE_CHECKING:
    from filelock import BaseFileLock


MANIFEST = "manifest.json"
INTENT = ".intent.json"
LOCK = ".lock"
OWN = ".liebig"  # a retriever in the folder it was built from (`builder/project_file.py`)
PACKAGES = ("liebig", "torch", "transformers", "tokenizers", "numpy", "PyStemmer", "faiss-cpu")


@dataclass(frozen=True)
class Manifest:
    """What a finished folder says of itself."""

    kind: str
    recipe: Mapping[str, Any]
    inputs: Mapping[str, str]
    outputs: Mapping[BelowPath, str]
    sizes: Mapping[BelowPath, int]
    versions: Mapping[str, str]
    seed: int | None
    started: str
    finished: str
    part_of: str = ""  # the command that runs this stage, where it has none of its own
    part: str = ""  # which part of the result this is, as "2/8"; the whole where it is empty

    @property
    def digest(self) -> str:
        """One hash of all contents: it changes when an output does, and not with the time."""
        return hash_json({"kind": self.kind, "outputs": self.outputs})


@dataclass(frozen=True)
class StagePart:
    """Which pieces of a stage's work are made: those whose number is `place` modulo `of`."""

    place: int = 0
    of: int = 1

    @classmethod
    def parse(cls, text: str) -> StagePart:
        """From "2/8": the second of eight."""
        match = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text)
        place, of = (int(match[1]), int(match[2])) if match else (0, 0)
        if not 1 <= place <= of:
            raise RecipeError(f"{text!r} is not a part", fix="write 2/8 for the second of eight parts")
        return cls(place - 1, of)

    def __str__(self) -> str:
        return f"{self.place + 1}/{self.of}"

    def takes(self, number: int, rank: int = 0, size: int = 1) -> bool:
        """Whether a piece is this part's, and of `size` processes that make it together, that of one rank."""
        return number % (self.of * size) == self.place * size + rank


WHOLE = StagePart()


@dataclass(frozen=True)
class Folder:
    """A folder being written."""

    path: Path
    out: Path
    resumed: bool
    part: StagePart = WHOLE

    def write_bytes(self, name: str, data: bytes) -> Path:
        """Write a file of the folder atomically."""
        target = self.path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(target, data)
        return target

    def write_text(self, name: str, text: str) -> Path:
        """Write a text file of the folder atomically, as UTF-8."""
        return self.write_bytes(name, text.encode("utf-8"))

    def write_json(self, name: str, value: Any) -> Path:
        """Write a JSON file of the folder atomically."""
        return self.write_text(name, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


@contextlib.contextmanager
def stage(
    out: Path,
    *,
    kind: str,
    recipe: Mapping[str, Any],
    inputs: Mapping[str, Path],
    seed: int | None = None,
    resume: bool = True,
    part_of: str = "",
    part: StagePart = WHOLE,
    lasting: bool = True,
) -> Iterator[Folder]:
    """A folder to write into; it becomes `out` when the block ends.

    What is not `lasting` is not waited for on its way to the disk: nothing but later runs reads it, and they look at
    hashes. On a disk that is slow to sync, waiting is most of the time of a small update.

    Bad input (a LiebigError) leaves nothing behind; training that broke off, a lack of memory, Ctrl-C and a kill
    leave the partial folder, to be looked at and taken up again.
    """
    out, partial = places(out)
    _refuse_foreign(out, partial)
    _refuse_overlap(out, inputs)
    with ThreadPoolExecutor() as pool:  # hashing lets other threads run
        digests = dict(zip(inputs, pool.map(digest, inputs.values())))
    intent = {"kind": kind, "recipe": plain(recipe), "inputs": digests}
    if part != WHOLE:
        intent["part"] = str(part)
    with locked(partial, "another process is writing this folder") as lock:
        if out.exists():  # a run that was killed at its end may have left the older folder
            remove_old(out)
        left = _left_intent(partial)
        resumed = resume and left == intent
        if resumed:
            for stray in (partial / MANIFEST, *partial.rglob(".*.tmp")):  # checkpoints are folders
                remove(stray)
        else:
            if resume and left is not None:
                changed = ", ".join(_changes(_flat(left), _flat(intent)))
                say(f"{partial} was left by a run that differs in {changed}: it is begun anew")
            _clear(partial)
            (partial / INTENT).write_bytes(json.dumps(intent).encode())  # cut off by a kill, it is no intent
        started = _now()
        try:
            yield Folder(partial, out, resumed, part)
        except LiebigError as error:
            if not resumed and not isinstance(error, TrainingError | ResourceError):
                if WINDOWS:  # maps that the frames of the error hold would keep their files
                    traceback.clear_frames(error.__traceback__)
                with contextlib.suppress(*((PermissionError,) if WINDOWS else ())):
                    _clear(partial)
                _allow_to_move(lock)
                shutil.rmtree(partial, ignore_errors=True)
            raise
        _finish(partial, intent, seed, started, part_of, lasting)
        _allow_to_move(lock)
        _swap(partial, out)
        (out / INTENT).unlink()
        (out / LOCK).unlink()


def _flat(tree: Any, at: str = "") -> dict[str, Any]:
    """The values of nested tables by their dotted names."""
    if not isinstance(tree, Mapping):
        return {at: tree}
    return {
        k: v for name, inner in tree.items() for k, v in _flat(inner, f"{at}.{name}" if at else name).items()
    }


def _changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Names whose values differ, a handful of them."""
    names = [n for n in {**before, **after} if before.get(n, before) != after.get(n, after)]
    return [*(name.removeprefix("recipe.") for name in names[:5]), *(["…"] if len(names) > 5 else [])]


def places(out: Path) -> tuple[Path, Path]:
    """The folder itself, with links followed so that both are on one disk, and the folder it is made in."""
    out = Path(os.path.realpath(out))
    if not out.name or out.is_symlink():
        what = "symlink loop" if out.name else "the root of the disk cannot be a run folder"
        raise WorkspaceError(what, file=out, fix="give another --out")
    return out, out.with_name(out.name + ".partial")


def _finish(
    partial: Path, intent: Mapping[str, Any], seed: int | None, started: str, part_of: str, lasting: bool
) -> None:
    """Hash and sync every file, then write the manifest."""
    paths = [p for p in partial.rglob("*") if p.name not in (LOCK, INTENT)]
    names = {p.relative_to(partial).as_posix(): p for p in sorted(paths) if p.is_file()}
    if lasting:
        with ThreadPoolExecutor() as pool:  # one commit of the file system takes in many of them
            list(pool.map(sync, paths))
    manifest = Manifest(
        kind=intent["kind"],
        recipe=intent["recipe"],
        inputs=intent["inputs"],
        outputs={name: hash_output(path) for name, path in names.items()},
        sizes={name: path.stat().st_size for name, path in names.items()},
        versions=versions(),
        seed=seed,
        started=started,
        finished=_now(),
        part_of=part_of,
        part=intent.get("part", ""),
    )
    atomic_write(partial / MANIFEST, (json.dumps(asdict(manifest), indent=2) + "\n").encode())


def read_manifest(folder: Path) -> Manifest:
    begun = any((place / LOCK).is_file() for place in (folder, folder.with_name(folder.name + ".partial")))
    if begun and not (folder / MANIFEST).exists():
        raise WorkspaceError("is not finished", file=folder, fix="run the same command again")
    if not folder.is_dir():
        raise WorkspaceError(
            "there is no such folder", file=folder, fix="run the command that writes it first"
        )
    manifest = read_json(folder / MANIFEST, Manifest)
    if manifest.outputs.keys() != manifest.sizes.keys():
        raise CorruptError("outputs and sizes name different files", file=folder / MANIFEST, fix=AGAIN)
    return manifest


def verify(folder: Path, *, hashes: bool = True, below: str = "", largest: int | None = None) -> Manifest:
    """Check a folder's files, or those below a subfolder, against its manifest.

    `hashes=False` compares sizes only; with `largest`, files of more bytes are compared by size.
    """
    manifest = read_manifest(folder)
    for name, recorded in manifest.outputs.items():
        if not PurePosixPath(name).is_relative_to(below):
            continue
        path, size = folder / name, manifest.sizes[name]
        if not path.is_file():
            raise CorruptError(f"{name} is missing", file=folder, fix=AGAIN)
        hashed = hashes and (largest is None or size <= largest)
        if path.stat().st_size != size or (hashed and hash_output(path) != recorded):
            raise CorruptError(f"{name} does not match the manifest", file=folder, fix=AGAIN)
    return manifest


def verify_part(path: Path, *, hashes: bool = True, largest: int | None = None) -> None:
    """Check a folder that a stage wrote, or one inside it, against the stage's manifest; other folders have none."""
    path = Path(os.path.realpath(path))
    home = _home(path)
    if home is not None:
        verify(home, hashes=hashes, below=path.relative_to(home).as_posix(), largest=largest)


def checked_outputs(path: Path, *, hashes: bool = True) -> set[str]:
    """The files of a stage's folder, or of one inside it, after they were checked against the stage's manifest."""
    real = Path(os.path.realpath(path))
    home = _home(real) or path
    below = "" if home in (path, real) else real.relative_to(home).as_posix()
    names = map(PurePosixPath, verify(home, hashes=hashes, below=below).outputs)
    return {name.relative_to(below).as_posix() for name in names if name.is_relative_to(below)}


def _home(path: Path) -> Path | None:
    """The stage folder that a path is, or is in."""
    return next((folder for folder in (path, *path.parents) if _is_ours(folder)), None)


def is_up_to_date(
    out: Path, *, kind: str, recipe: Mapping[str, Any], inputs: Mapping[str, Path], part: StagePart = WHOLE
) -> bool:
    """Was `out` made by this recipe from these inputs, and is it still what was made?"""
    try:
        manifest = verify(out)
    except WorkspaceError:
        return False
    said = "" if part == WHOLE else str(part)
    same = (
        manifest.kind == kind
        and manifest.part == said
        and manifest.recipe == plain(recipe)
        and set(manifest.inputs) == set(inputs)
    )
    return same and all(manifest.inputs[name] == digest(path) for name, path in inputs.items())


def digest(path: Path) -> str:
    """A file's sha256; a stage folder's manifest digest; for any other folder a hash over names and contents.

    What a stage wrote is checked against its manifest first, so that no native library opens damaged files.
    """
    if not path.is_file() and not path.is_dir():
        raise WorkspaceError("there is no such file or folder", file=path, fix="check the path")
    if _is_ours(path):
        return verify(path).digest
    hashes = {name: hash_readable(file) for name, file in _files(path)}
    _hold_against_manifest(path, hashes)
    return hashes[""] if path.is_file() else hash_json(hashes)


def _files(path: Path) -> list[tuple[str, Path]]:
    """A file under the name "", or the contents of a folder, by name; a folder that cannot be listed counts as itself.

    Without recursion: folders may be deeper than Python's stack. Links to folders are not followed, and a retriever
    that lies in the folder it was built from (`.liebig`) is no part of it.
    """
    if path.is_file():
        return [("", path)]
    files: list[tuple[str, Path]] = []
    folders = [("", path)]
    while folders:
        name, folder = folders.pop()
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    inner = f"{name}/{entry.name}" if name else entry.name
                    if entry.name == OWN:
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        folders.append((inner, folder / entry.name))
                    else:
                        files.append((inner, folder / entry.name))
        except OSError:
            files.append((name, folder))
    return files


def _hold_against_manifest(path: Path, hashes: Mapping[str, str]) -> None:
    """A file or folder inside a stage folder is what the stage's manifest says of it."""
    path = Path(os.path.realpath(path))
    home = _home(path.parent)
    if home is None:
        return
    outputs, base = read_manifest(home).outputs, path.relative_to(home)
    inside = [PurePosixPath(name) for name in outputs if PurePosixPath(name).is_relative_to(base)]
    missing = [name for name in inside if name.relative_to(base).as_posix() not in hashes]
    if missing and path.is_dir():
        raise CorruptError(f"{missing[0]} is missing", file=home, fix=AGAIN)
    for name, actual in hashes.items():
        recorded = outputs.get((base / name).as_posix())
        if recorded is not None and recorded != actual:
            raise CorruptError(f"{base / name} does not match the manifest", file=home, fix=AGAIN)


@cache
def versions() -> dict[str, str]:
    packages = {"python": platform.python_version(), "platform": f"{platform.system()} {platform.machine()}"}
    for package in PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            packages[package] = version(package)
    return packages


@contextlib.contextmanager
def locked(folder: Path, what: str) -> Iterator[BaseFileLock]:
    """Lock a folder against a second writer; the lock is released when its process ends."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (
        FileNotFoundError,
        FileExistsError,
        NotADirectoryError,
    ) as error:  # /proc says that it is not found
        raise WorkspaceError(
            f"the folder cannot be made: {error.strerror}", file=folder, fix="give another --out"
        ) from None
    try:
        lock = try_lock(folder / LOCK)
    except FileNotFoundError:
        lock = None
    try:
        if lock is None or not (folder / LOCK).exists():  # another has it, or has just finished and moved it
            raise WorkspaceError(what, file=folder, fix="wait until it has finished, then run this again")
        yield lock
    finally:
        if lock is not None:
            lock.release()


def _allow_to_move(lock: BaseFileLock) -> None:
    """Let a folder be moved or removed with its lock's file: Windows refuses that while the file is open."""
    if WINDOWS:
        lock.release()


def _refuse_foreign(out: Path, partial: Path) -> None:
    """Only what a stage made is ever replaced or taken up."""
    for path, ours in ((out, _is_ours(out)), (partial, (partial / LOCK).is_file())):
        if path.exists() and not ours and (not path.is_dir() or any(path.iterdir())):
            raise WorkspaceError(
                "already exists and was not created by Liebig; refusing to overwrite it",
                file=path,
                fix="give another --out",
            )
    above = next(parent for parent in out.parents if parent.exists())
    if not above.is_dir():
        raise WorkspaceError("is a file, not a folder", file=above, fix="give another --out")


def _refuse_overlap(out: Path, inputs: Mapping[str, Path]) -> None:
    """A stage that replaces what it reads would lose data; one that writes into a finished folder, too."""
    for name, path in inputs.items():
        real = Path(os.path.realpath(path))
        if real.is_relative_to(out) or (out.is_relative_to(real) and _is_ours(real)):
            raise WorkspaceError(
                f"cannot be written while {name} = {path} is read: one is inside the other",
                file=out,
                fix="give an --out beside it",
            )


def _is_ours(folder: Path) -> bool:
    """Whether a folder's manifest is a stage's, even a damaged one; other programs have a manifest.json too."""
    try:
        text = (folder / MANIFEST).read_bytes()
    except OSError:
        return False
    return b'"kind"' in text and b'"recipe"' in text


def _swap(partial: Path, out: Path) -> None:
    """Put the finished folder in place; an older one is moved aside first and removed last."""
    old = remove_old(out)
    if out.exists():
        try:
            replace(out, old)
        except PermissionError as error:
            raise WorkspaceError(
                f"cannot be replaced ({error.strerror}): a program has it open, or its parent is not writable",
                file=out,
                fix="close what uses it, then run the same command again to finish",
            ) from None
    replace(partial, out)
    sync(out.parent)
    remove_old(out)


def discard(out: Path) -> None:
    """Remove a stage's folder. Under another name first: half of it could not be told from a person's folder.

    On Windows one that a server still reads stays; the next run removes it.
    """
    with contextlib.suppress(*((PermissionError,) if WINDOWS else ())):
        os.replace(out, remove_old(out))
        remove_old(out)


def remove_old(out: Path) -> Path:
    """Remove what a folder replaced; returns the name it is moved aside to, which no person gives to a copy."""
    old = out.with_name(f".{out.name}.liebig.old")
    shutil.rmtree(old, ignore_errors=True)
    return old


def _clear(folder: Path) -> None:
    """Empty a partial folder but for its lock; the intent goes first, so that what remains is never taken up."""
    (folder / INTENT).unlink(missing_ok=True)
    for path in folder.iterdir():
        if path.name != LOCK:
            remove(path)


def plain(value: Mapping[str, Any]) -> Any:
    """The recipe as JSON gives it back, so that a comparison with a stored one is exact.

    Bytes of a file's name that are not UTF-8 become question marks: JSON has no place for them.
    """
    return json.loads(json.dumps(value, default=str, ensure_ascii=False).encode("utf-8", "replace"))


def _left_intent(partial: Path) -> Any:
    """The recipe and inputs of an interrupted run; None where nothing can be resumed."""
    try:
        return json.loads((partial / INTENT).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
