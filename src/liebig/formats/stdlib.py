"""The standard library's own documentation: real text that every Python has, named like `heapq.merge`.

Modules written in Python are parsed, never imported: their docstrings, and those of their public classes, functions
and methods, are read from the source. Modules written in C have no source; a fixed list of harmless ones is
imported and asked. About 7,000 documents, which differ a little from one version of Python to the next.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import os
import sys
import sysconfig
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from liebig.base.errors import DataError
from liebig.base.records import Document
from liebig.formats.base import Format
from liebig.formats.inputs import InputSource
from liebig.formats.items import Item, Options, Where
from liebig.formats.markup import parse_plain
from liebig.formats.preview import Preview

PREFIX = "stdlib:"
LEFT_OUT = frozenset(
    (
        "test",
        "tests",
        "idlelib",
        "lib2to3",
        "site-packages",
        "dist-packages",
        "turtledemo",
        "ensurepip",
        "pydoc_data",
    )
)
BUILT_IN = (
    "array", "atexit", "binascii", "builtins", "cmath", "errno", "faulthandler", "fcntl", "gc", "grp", "itertools",
    "marshal", "math", "mmap", "pwd", "resource", "select", "sys", "syslog", "termios", "time", "unicodedata", "zlib",
)  # fmt: skip
HIDDEN_IN_C = {
    "_asyncio": "asyncio", "_bisect": "bisect", "_bz2": "bz2", "_codecs": "codecs", "_collections": "collections",
    "_contextvars": "contextvars", "_csv": "csv", "_datetime": "datetime", "_decimal": "decimal",
    "_functools": "functools", "_hashlib": "hashlib", "_heapq": "heapq", "_io": "io", "_json": "json",
    "_lzma": "lzma", "_operator": "operator", "_pickle": "pickle", "_queue": "queue", "_random": "random",
    "_signal": "signal", "_socket": "socket", "_sqlite3": "sqlite3", "_ssl": "ssl", "_struct": "struct",
    "_thread": "threading", "_tracemalloc": "tracemalloc", "_weakref": "weakref", "posix": "os", "nt": "os",
}  # fmt: skip
SHORTEST = 20


def is_stdlib(preview: Preview) -> bool:
    """The name stdlib:, or stdlib:json,heapq."""
    return preview.source.label.startswith(PREFIX)


def read_stdlib(name: str) -> Iterator[Item]:
    """The documents of `stdlib:`, or of the modules named behind the colon: `stdlib:json,heapq`."""
    modules = {part.strip() for part in name.removeprefix(PREFIX).split(",") if part.strip()}
    known = {module.partition(".")[0] for module, _ in sources()} | set(BUILT_IN)
    for module in sorted(modules - known):
        raise DataError(f"the standard library of this Python has no module {module!r}", file=name)
    seen: set[str] = set()
    for item in _all(modules):
        assert isinstance(item.record, Document)
        if item.record.id not in seen:
            seen.add(item.record.id)
            yield item


def _all(modules: set[str]) -> Iterator[Item]:
    for module, path in sources():
        if not modules or module.partition(".")[0] in modules:
            yield from from_source(module, path)
    for hidden, public in [*((name, name) for name in BUILT_IN), *HIDDEN_IN_C.items()]:
        if not modules or public in modules:
            yield from from_module(hidden, public)


def sources() -> list[tuple[str, Path]]:
    """Public modules with their source files, by name; a package's private files count as the package's own."""
    root = Path(sysconfig.get_paths()["stdlib"])
    modules: list[tuple[str, Path]] = []
    for folder, below, files in os.walk(root):
        below[:] = [name for name in below if _public(name) and name.isidentifier() and name not in LEFT_OUT]
        package = Path(folder).relative_to(root).parts
        for name in files:
            stem = name.removesuffix(".py")
            parts = (*package, stem) if _public(stem) else package
            if name.endswith(".py") and parts and stem.isidentifier() and stem != "__main__":
                modules.append((".".join(parts), Path(folder) / name))
    return sorted(modules)


def from_source(module: str, path: Path) -> Iterator[Item]:
    """The documents of one module's source, without running it."""
    label = f"{PREFIX}{module}"
    try:
        with warnings.catch_warnings(action="ignore"):
            tree = ast.parse(path.read_bytes(), filename=str(path))
    except (SyntaxError, ValueError, OSError, RecursionError):
        return  # a few files of the library are broken or templates on purpose
    is_whole = _public(path.stem) or path.stem == "__init__"
    if is_whole and (text := ast.get_docstring(tree)):
        yield from _item(module, "module", text, Where(label, 1))
    yield from _members(tree.body, module, label)


def _members(body: list[ast.stmt], prefix: str, label: str) -> Iterator[Item]:
    """Public classes and functions, and what is inside the classes."""
    for node in body:
        if isinstance(node, ast.If | ast.Try):
            inner = [*node.body, *node.orelse, *(s for h in getattr(node, "handlers", ()) for s in h.body)]
            yield from _members(inner, prefix, label)
        elif isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and _public(node.name):
            name = f"{prefix}.{node.name}"
            kind = "class" if isinstance(node, ast.ClassDef) else "function"
            if text := ast.get_docstring(node):
                yield from _item(name, kind, text, Where(label, node.lineno), _signature(node))
            if isinstance(node, ast.ClassDef):
                yield from _members(node.body, name, label)


def _public(name: str) -> bool:
    return not name.startswith("_")


def _signature(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    return "" if isinstance(node, ast.ClassDef) else f"{node.name}({ast.unparse(node.args)})"


def from_module(hidden: str, public: str) -> Iterator[Item]:
    """The documents of a module written in C, asked of the module itself."""
    try:
        module = importlib.import_module(hidden)
    except ImportError:
        return  # not every Python is built with every module
    if getattr(module, "__file__", None) and not str(module.__file__).endswith((".so", ".pyd")):
        return
    label = f"{PREFIX}{public}"
    if hidden == public and (text := inspect.getdoc(module)):
        yield from _item(public, "module", text, Where(label))
    for name, member in _documented(module):
        full = name if public == "builtins" else f"{public}.{name}"
        kind = "class" if inspect.isclass(member) else "function"
        yield from _item(full, kind, inspect.getdoc(member) or "", Where(label))
        if inspect.isclass(member):
            for inner, method in _documented(member):
                yield from _item(f"{full}.{inner}", "function", inspect.getdoc(method) or "", Where(label))


def _documented(owner: ModuleType | type) -> Iterator[tuple[str, object]]:
    """Public classes and functions of a module or class, its own and not inherited, by name."""
    for name in sorted(vars(owner)):
        member = vars(owner)[name]
        told = inspect.isclass(member) or inspect.isroutine(member)
        if _public(name) and told and inspect.getdoc(member):
            yield name, member


def _item(name: str, kind: str, text: str, where: Where, signature: str = "") -> Iterator[Item]:
    """A document, where there is enough to read."""
    text = inspect.cleandoc(text).encode("utf-8", "replace").decode("utf-8").replace("\0", "")
    if len(text) < SHORTEST:
        return
    about = {"kind": kind, "python": f"{sys.version_info.major}.{sys.version_info.minor}"}
    if signature:
        about["signature"] = signature
    yield Item(Document(name, name, parse_plain(text).unplaced, about), where)


def _read(source: InputSource, options: Options) -> Iterator[Item]:
    return read_stdlib(source.label)


STDLIB = Format(
    name="stdlib",
    about="Python's own documentation",
    fields="the docstrings of the standard library of this Python: `heapq`, `heapq.merge`, "
    "`collections.OrderedDict.move_to_end`; `stdlib:json,heapq` reads only some modules",
    yields=("documents",),
    prefix=PREFIX,
    rule=is_stdlib,
    read=_read,
)
