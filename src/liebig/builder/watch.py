"""Follow the sources of a retriever: an update whenever files in them are saved, added, renamed or deleted.

The operating system says what changed (watchfiles). Changes that come together are taken in by one update, which works
beside whatever answers from the folder and replaces the generation at its end. What folders leave out by name (hidden
files, caches) starts no update, nor does the retriever's own folder if it lies inside a source. An update that fails is
said, and the next change tries again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from liebig.base.errors import LiebigError, RecipeError
from liebig.builder.build_config import BuildConfig
from liebig.builder.update import built_with, update
from liebig.formats.convert import Converter
from liebig.formats.left_out import IGNORE_FILES, by_name
from liebig.search import retriever_folder as description
from liebig.search.embed import keep_models

QUIET_MS, LONGEST_MS = 100, 800  # without a further change, and in all, before an update begins
ASKED_MS = 500  # between two looks at whether to stop


def watch(
    out: Path,
    sources: Sequence[str],
    say: Callable[[str], None],
    strict: bool = False,
    stop: Callable[[], bool] = lambda: False,
    reading: BuildConfig | None = None,
    convert: tuple[Converter, ...] = (),
) -> None:
    """Update now, and then with every change, until `stop` says so or the process is interrupted."""
    import watchfiles  # late: few commands watch

    config = built_with(description.read(out), out, sources, strict, convert)
    folders = _folders(config.sources, out)

    def counts(change: watchfiles.Change, path: str) -> bool:
        return is_meant(Path(path), folders, out.resolve())

    seen = watchfiles.watch(
        *folders,
        watch_filter=counts,
        step=QUIET_MS,
        debounce=LONGEST_MS,
        rust_timeout=ASKED_MS,
        yield_on_timeout=True,
        raise_interrupt=True,
    )
    next(seen)  # what is saved while the first update reads is seen from now on
    with keep_models():
        update(out, sources, say, strict, reading, convert)
        say(f"Watching {', '.join(map(str, folders))}; Ctrl-C ends it.")
        for changes in seen:
            if stop():
                return
            if not changes:
                continue
            try:
                update(out, sources, say, strict, reading, convert)
            except LiebigError as error:
                say(f"Nothing was updated: {error}")


def _folders(sources: Sequence[str], out: Path) -> list[Path]:
    """The files and folders to watch; sources that are only names do not change."""
    paths = [Path(source).resolve() for source in sources if Path(source).exists()]
    if not paths:
        raise RecipeError(
            f"{', '.join(sources)} cannot be watched",
            file=out,
            fix="name a file or folder as the source",
        )
    return paths


def is_meant(path: Path, folders: Sequence[Path], out: Path) -> bool:
    """Whether a change of a path can change what is read."""
    if path.is_relative_to(out):
        return False
    for folder in folders:
        if path.is_relative_to(folder):
            *parents, name = path.relative_to(folder).parts or (path.name,)
            left_out = any(by_name(part, True) for part in parents) or by_name(name, False)
            return path == folder or name in IGNORE_FILES or not left_out
    return False
