"""numba where it is installed; where it is not, the few kernels that a search needs run in numpy.

Building and training need numba (the extra `train`). Searching a folder that was built elsewhere does not: the kernels
on its way name a function that does the same in numpy, with the same results (`tests/base/test_compiled.py`). Whether
numba is there is decided here and nowhere else; a command that answers one question says before (`prefer_numpy`) that
importing it would take longer than the answer. A kernel without a numpy version refuses to run, because the plain
Python of a loop would be a thousand times slower without saying so.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from typing import Any

from liebig.base.errors import MissingDependency
from liebig.base.machine import AVX_VNNI, DOT, VNNI, instructions, prefers_numpy

try:
    if prefers_numpy():
        raise ModuleNotFoundError(name="numba")
    import numba
    from numba import types
    from numba.extending import overload, register_jitable
    from numba.typed import Dict
except ModuleNotFoundError as error:
    if error.name != "numba":
        raise
    numba = types = Dict = None

    def overload(function: Any, **options: Any) -> Any:
        """What a kernel calls in the place of a function; there are no kernels."""
        return lambda compiled: compiled

    def register_jitable(function: Any) -> Any:
        """A function that kernels may call; there are no kernels."""
        return function


__all__ = ["HAS_NUMBA", "Dict", "byte_products", "njit", "overload", "register_jitable", "types"]

HAS_NUMBA = numba is not None


@cache
def byte_products() -> str:
    """The int8 dot-product instruction that kernels use here; empty where there is none and int8 would be slow.

    None either where numba was told to compile for another processor: an instruction that it does not know of ends
    the process.
    """
    if numba is None or numba.config.CPU_NAME is not None or numba.config.CPU_FEATURES is not None:
        return ""
    for way in (VNNI, AVX_VNNI):
        if way in instructions():
            return way
    # on aarch64 numba looks up what a processor has by its name, where it knows that
    return DOT if DOT in instructions() and processor() not in ("", "generic") else ""


def processor() -> str:
    """What numba takes this processor for."""
    from llvmlite.binding import get_host_cpu_name

    return str(get_host_cpu_name())


def njit(*, numpy: Callable[..., Any] | None = None, **options: Any) -> Any:
    """`numba.njit(**options)`; without numba the function `numpy`, or a refusal that names the extra."""

    def compiled(function: Callable[..., Any]) -> Any:
        if numba is not None:
            return numba.njit(**options)(function)
        if numpy is not None:
            return numpy

        @wraps(function)
        def refuse(*arguments: Any, **keywords: Any) -> Any:
            raise MissingDependency("numba", "train", "building an index")

        return refuse

    return compiled
