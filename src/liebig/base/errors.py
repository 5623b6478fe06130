"""Errors a user can act on: one small tree, one clear sentence each.

A message says what is wrong, where (file and line) and how to fix it. The command line prints it without a
traceback and exits with code 2. Mistakes of a programmer are assertions, not these.
"""

from __future__ import annotations

import json
import shlex
from pathlib import Path

AGAIN = "run the command that wrote it again"  # how most damaged files are mended


class LiebigError(Exception):
    """Something the user can fix."""

    exit_code = 2

    def __init__(
        self, what: str, *, file: str | Path | None = None, line: int | None = None, fix: str | None = None
    ) -> None:
        self.what = what.rstrip(". ")
        self.file = None if file is None else str(file)
        self.line = line
        self.fix = None if fix is None else fix.rstrip(". ")
        super().__init__(self.sentence())

    def sentence(self) -> str:
        """`file, line 3: what is wrong. To fix it: do this.`"""
        where = ""
        if self.file is not None:
            where = self.file + (f", line {self.line}" if self.line is not None else "") + ": "
        fix = f" To fix it: {self.fix}." if self.fix else ""
        return f"{where}{self.what}.{fix}".replace("\n", " ")


class DataError(LiebigError):
    """A file or record that cannot be read as what it should be."""


class RecipeError(LiebigError):
    """A recipe with an unknown key, a wrong type, or a combination that makes no sense."""


class WorkspaceError(LiebigError):
    """A run folder that is locked, not ours, or missing."""


class CorruptError(WorkspaceError):
    """A folder whose contents do not match its manifest."""


class ModelError(LiebigError):
    """A model folder that cannot be loaded, or does not fit its use."""


class TrainingError(LiebigError):
    """Training cannot continue: the loss is not finite, or there is not enough memory."""


class ResourceError(LiebigError):
    """The machine ran out of something; what was finished is kept, and the same command resumes from there."""


def install_command(extra: str) -> str:
    """The command that adds an extra to this installation, from where it was installed: PyPI does not have Liebig."""
    clone = Path(__file__).parents[3]
    if (clone / "pyproject.toml").is_file():
        return f"pip install -e {shlex.quote(f'{clone}[{extra}]')}"
    source = _installed_from()
    if source is None:
        return f"pip install '.[{extra}]' in a clone of its repository"
    if isinstance(source, Path):
        return f"pip install {shlex.quote(f'{source}[{extra}]')}"
    return f"pip install {shlex.quote(f'liebig[{extra}] @ {source}')}"


def _installed_from() -> Path | str | None:
    """The clone, the wheel or the address that pip installed this package from; None where that is gone or unknown."""
    from importlib.metadata import PackageNotFoundError, distribution  # only errors need it
    from urllib.parse import unquote, urlsplit

    try:
        said = json.loads(distribution("liebig").read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        return None
    url = str(said.get("url", ""))
    if url.startswith("file:"):
        path = Path(unquote(urlsplit(url).path))
        return path if path.exists() else None
    tool = said.get("vcs_info", {}).get("vcs")
    return f"{tool}+{url}" if tool and url else url or None


class MissingDependency(LiebigError):
    """An optional package is needed for this."""

    def __init__(self, package: str, extra: str, need: str, otherwise: str = "") -> None:
        super().__init__(
            f"{need} needs the package {package}, which is not installed",
            fix=install_command(extra) + (f"; {otherwise}" if otherwise else ""),
        )
