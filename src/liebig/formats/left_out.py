"""What nobody means when they name a folder: which of the files and folders in it are left out, and why.

Three kinds of rules, later ones first: patterns of the user (`exclude`, `include`), ignore files (.gitignore and
.liebigignore, for the folder they lie in and all below), and names that are left out everywhere (hidden files,
dependencies, virtual environments, caches, minified code). Patterns are those of gitignore, so `!name` takes back what
an earlier rule leaves out. A folder that is left out is not entered. What was named by the user is always read. Cost:
some microseconds per file and pattern.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from liebig.base.errors import DataError, RecipeError

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

IGNORE_FILES = (".gitignore", ".liebigignore")
LARGEST = 1 << 20  # bytes of an ignore file
DEPENDENCIES = frozenset(("node_modules", "bower_components", "site-packages", "__pypackages__"))
CACHES = frozenset(("__pycache__", "__MACOSX"))
CLUTTER = frozenset(("Thumbs.db", "desktop.ini"))
LOCKS = frozenset(
    (
        "package-lock.json", "npm-shrinkwrap.json", "yarn.lock", "pnpm-lock.yaml", "composer.lock", "Pipfile.lock",
        "uv.lock", "poetry.lock", "Cargo.lock", "Gemfile.lock", "go.sum", "flake.lock",
    )
)  # fmt: skip
MINIFIED = (".min.js", ".min.css", ".min.mjs", ".js.map", ".css.map")
MARKS = {
    "pyvenv.cfg": "a virtual environment",
    "conda-meta": "a conda environment",
    "CACHEDIR.TAG": "a cache",
}
"""What lies in a folder that is left out."""


def by_name(name: str, is_folder: bool) -> str:
    """Why a name is left out everywhere; "" if it is not."""
    if name.startswith("."):
        return "hidden"
    if name.startswith("~$"):
        return "a lock file of Office"
    if is_folder:
        return "dependencies" if name in DEPENDENCIES else "a cache" if name in CACHES else ""
    if name == "liebig.toml":
        return "settings of Liebig"
    if name in LOCKS:
        return "versions and hashes of dependencies"
    if name in CLUTTER or name.endswith("~"):
        return "left by a program"
    return "minified code" if name.lower().endswith(MINIFIED) else ""


@dataclass(frozen=True)
class LeaveOut:
    """The rules of a source: what is left out, which files alone are read, and whether ignore files count.

    >>> LeaveOut(exclude=("drafts/", "*.bak"), include=("*.md",))
    """

    exclude: tuple[str, ...] = ()
    include: tuple[str, ...] = ()
    ignore_files: bool = True

    @cached_property
    def exclude_spec(self) -> GitIgnoreSpec | None:
        return compiled(self.exclude, "--exclude")

    @cached_property
    def include_spec(self) -> GitIgnoreSpec | None:
        """The patterns of files that alone are read."""
        return compiled(self.include, "--include")


USUAL = LeaveOut()


def compiled(patterns: Iterable[str], place: str | Path) -> GitIgnoreSpec | None:
    """Patterns as gitignore has them; None if there are none."""
    from pathspec import GitIgnoreSpec  # late: a machine that only searches reads no folders

    lines = list(patterns)
    if not any(line.strip() for line in lines):
        return None
    try:
        return GitIgnoreSpec.from_lines(lines)
    except ValueError as error:
        what = f"has a pattern that cannot be read ({error})"
        if isinstance(place, Path):
            raise DataError(what, file=place, fix="write patterns as in a .gitignore") from None
        raise RecipeError(f"{place} {what}", fix="write patterns as in a .gitignore") from None


@dataclass(frozen=True)
class IgnoreFile:
    """The patterns of an ignore file, which hold below its folder."""

    folder: str  # its path below the source; "" for the source itself
    name: str
    spec: GitIgnoreSpec

    def verdict(self, path: str) -> bool | None:
        """Whether a path below the source is left out; None if no pattern fits."""
        below = path[len(self.folder) + 1 :] if self.folder else path
        return self.spec.check_file(below).include


@dataclass(frozen=True)
class FolderRules:
    """The rules in one folder of a source: those of the whole source, and the ignore files in it and above it."""

    rules: LeaveOut
    files: tuple[IgnoreFile, ...] = ()

    def inside(self, folder: Path, subpath: str, names: Sequence[str]) -> FolderRules:
        texts = {
            name: _read(folder / name) for name in IGNORE_FILES if self.rules.ignore_files and name in names
        }
        return self.with_files(subpath, texts, folder)

    def with_files(self, subpath: str, texts: Mapping[str, str], folder: Path = Path()) -> FolderRules:
        """The rules with those of a folder's ignore files."""
        if not self.rules.ignore_files:
            return self
        made = [(name, compiled(text.splitlines(), folder / name)) for name, text in texts.items()]
        more = tuple(IgnoreFile(subpath, name, spec) for name, spec in made if spec is not None)
        return FolderRules(self.rules, self.files + more) if more else self

    def reason(self, name: str, subpath: str, is_folder: bool) -> str:
        """Why an entry of the folder is left out; "" if it is read."""
        path = f"{subpath}/{name}" if subpath else name
        path += "/" if is_folder else ""
        verdict: bool | None = None
        reason = ""
        for file in self.files:
            said = file.verdict(path)
            if said is not None:
                verdict, reason = said, f"listed in {file.name}"
        if (spec := self.rules.exclude_spec) is not None and (
            said := spec.check_file(path).include
        ) is not None:
            verdict, reason = said, "excluded"
        if verdict is None and (usual := by_name(name, is_folder)):
            verdict, reason = True, usual
        if verdict:
            return reason
        only = self.rules.include_spec
        return "not included" if only is not None and not is_folder and not only.match_file(path) else ""


def marked(folder: Path) -> str:
    """Why a folder is left out for what lies in it; "" if it is not."""
    return next((reason for mark, reason in MARKS.items() if os.path.exists(folder / mark)), "")


def _read(path: Path) -> str:
    try:
        if not path.is_file():
            return ""
        with path.open("rb") as stream:
            raw = stream.read(LARGEST + 1)
    except OSError:
        return ""
    return patterns(raw, path)


def patterns(raw: bytes, place: Path) -> str:
    """The text of an ignore file, of which one byte more than the LARGEST was read."""
    if len(raw) > LARGEST:
        raise DataError(
            f"larger than {LARGEST >> 20} MiB, so its patterns are not used", file=place, fix="shorten it"
        )
    return raw.decode("utf-8", "replace")


def is_left_out(path: Path, source: Path, rules: LeaveOut) -> bool:
    """Whether a path below a source, which need not exist, would be left out as a folder."""
    here = FolderRules(rules)
    folder, subpath = source, ""
    for part in path.relative_to(source).parts:
        names = os.listdir(folder) if folder.is_dir() else []
        with suppress(DataError):  # of an ignore file that is not used: reading the folder lists it
            here = here.inside(folder, subpath, names)
        if here.reason(part, subpath, True):
            return True
        folder, subpath = folder / part, f"{subpath}/{part}" if subpath else part
    return False
