"""numba where it is installed; where it is not, the few kernels that a search needs run in numpy.

Building and training need numba (the extra `train`). Searching a folder that was built elsewhere does not: the kernels
on its way name a function that does the same in numpy, with the same results (`tests/base/test_compiled.py`). Whether
numba is there is decided here and nowhere else; a command that answers one question says before (`prefer_numpy`) that
importing it would take longer than the answer, and a server that has begun so turns its kernels into compiled ones
later (`load_numba`). A kernel without a numpy version refuses to run, because the plain Python of a loop would be a
thousand times slower without saying so.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from threading import local
from typing import Any

from liebig.base.errors import MissingDependency
from liebig.base.machine import AVX_VNNI, DOT, VNNI, instructions, prefers_numpy

__all__ = ["byte_products", "has_numba", "load_numba", "njit", "overload", "products_of", "register_jitable"]


def _imported() -> Any:
    """numba; None where it is not installed."""
    try:
        import numba.extending
    except ModuleNotFoundError as error:
        if error.name != "numba":
            raise
        return None
    return numba


numba: Any = None if prefers_numpy() else _imported()


class _Kernels(local):
    """What kernels are in this thread; what the class says goes for all threads that nothing else was said to."""

    compiled = numba is not None


_kernels = _Kernels()
_waiting: list[Callable[[], object]] = []  # what is to be done once numba is there


def has_numba() -> bool:
    """Whether kernels are compiled."""
    return _kernels.compiled


def load_numba(warm: Callable[[], object]) -> None:
    """Turn the kernels of a process that prefers numpy into compiled ones, those of modules in use, too.

    First they are so in this thread alone, where `warm` calls those that will be needed: other threads go on without
    waiting for a compiler.
    """
    global numba
    numba = numba or _imported()
    if numba is not None:
        while _waiting:
            _waiting.pop(0)()
        _kernels.compiled = True
        try:
            warm()
        finally:
            del _kernels.compiled
        _Kernels.compiled = True


def _once_there(step: Callable[[], object]) -> None:
    if numba is None:
        _waiting.append(step)
    else:
        step()


def overload(function: Any, **options: Any) -> Any:
    """What a kernel calls in the place of a function."""

    def registered(generate: Any) -> Any:
        _once_there(lambda: numba.extending.overload(function, **options)(generate))
        return generate

    return registered


def register_jitable(function: Any) -> Any:
    """A function that kernels may call."""
    _once_there(lambda: numba.extending.register_jitable(function))
    return function


def byte_products() -> str:
    """The int8 dot-product instruction that kernels use here; empty where there is none and int8 would be slow."""
    return products_of(numba.config) if has_numba() else ""


def products_of(config: Any) -> str:
    """The same for what numba compiles, also while numpy still does its work: constants of kernels depend on it.

    None where numba was told to compile for another processor: an instruction that it does not know of ends the
    process.
    """
    if config.CPU_NAME is not None or config.CPU_FEATURES is not None:
        return ""
    for way in (VNNI, AVX_VNNI):
        if way in instructions():
            return way
    # on aarch64 numba looks up what a processor has by its name, where it knows that
    return DOT if DOT in instructions() and processor() not in ("", "generic") else ""


@cache
def processor() -> str:
    """What numba takes this processor for."""
    from llvmlite.binding import get_host_cpu_name

    return str(get_host_cpu_name())


def njit(*, numpy: Callable[..., Any] | None = None, **options: Any) -> Any:
    """`numba.njit(**options)`; without numba the function `numpy`, or a refusal that names the extra."""

    def compiled(function: Callable[..., Any]) -> Any:
        if numba is not None:
            return numba.njit(**options)(function)
        made: Any = None

        def refuse(*arguments: Any, **keywords: Any) -> Any:
            raise MissingDependency("numba", "train", "building an index")

        @wraps(function)
        def kernel(*arguments: Any, **keywords: Any) -> Any:
            return (made if _kernels.compiled else numpy or refuse)(*arguments, **keywords)

        def turn() -> None:
            nonlocal made
            there = _imported()
            made = there.njit(**options)(function)
            made.typingctx.insert_global(kernel, there.typeof(made))  # for kernels that call this one

        _waiting.append(turn)
        return kernel

    return compiled
