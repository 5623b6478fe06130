"""Windows or macOS, as far as Liebig's own code can tell: what they lack is missing, what Windows refuses is refused.

Python imports this module at its start where its folder is on PYTHONPATH, also in processes that are started by others.
LIEBIG_SYSTEM names the system; `python -m pytest --system win32` sets both. Only code of the package `liebig` sees it:
other libraries bring their own code for each system, which cannot be run here. For code of Liebig

- `sys.platform` and `os.name` are the system's, and modules and functions that it lacks are not there;
- there is no /proc and no /sys;
- worker processes are spawned, and a text file that is opened without naming its encoding is an error;
- on Windows a file that any process has open or mapped cannot be removed, replaced or moved, nor can a folder with it
  in it; a name of a device (`con`), one that ends with a dot, one with a colon, and two names that differ in case are
  refused; folders cannot be opened, and what is open for reading cannot be synced.

Not simulated: threads, signals, sockets and consoles of Windows, long paths, drives, newlines of text files.
"""

from __future__ import annotations

import builtins
import contextlib
import ctypes
import errno
import fcntl
import importlib.util
import io
import multiprocessing
import os
import re
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from types import ModuleType
from typing import Any

SYSTEM = os.environ.get("LIEBIG_SYSTEM", "")
WINDOWS = SYSTEM == "win32"
OF_THIS_TEST = f"LIEBIG_CACHE={os.environ.get('LIEBIG_CACHE')}".encode()
NO_MODULES = (
    {"fcntl", "resource", "pwd", "grp", "termios", "tty", "pty", "syslog", "posix", "uvloop"}
    if WINDOWS
    else set()
)
NOWHERE = {"sched_getaffinity", "posix_fallocate", "posix_fadvise", "memfd_create"}  # on neither of the two
NO_FUNCTIONS: dict[str, set[str]] = {
    "os": NOWHERE | {
        "sysconf", "getloadavg", "fork", "getuid", "geteuid", "chown", "uname", "killpg", "setsid", "pread", "mkfifo",
        "statvfs", "fchmod", "nice", "sync", "O_NONBLOCK", "O_NOFOLLOW", "O_DIRECTORY", "O_SYNC",
    } if WINDOWS else NOWHERE,
    "signal": {"SIGKILL", "SIGHUP", "SIGALRM", "SIGUSR1", "SIGUSR2", "setitimer", "pause"} if WINDOWS else set(),
    "mmap": {"PROT_READ", "PROT_WRITE", "MAP_SHARED", "MAP_PRIVATE"} if WINDOWS else set(),
    "time": {"tzset", "clock_gettime"} if WINDOWS else set(),
    "socket": {"AF_UNIX"} if WINDOWS else set(),
}  # fmt: skip
OTHER: dict[str, dict[str, Any]] = {
    "sys": {"platform": SYSTEM},
    "os": {"name": "nt"} if WINDOWS else {},
    "ctypes": {},
}
THROUGH = {
    "pathlib",
    "pathlib._local",
    "shutil",
    "os",
    "contextlib",
    "tempfile",
    "weakref",
    "posixpath",
    "genericpath",
}
DEVICES = re.compile(r"(?i)^(con|prn|aux|nul|com\d|lpt\d)(\..*)?$")
REFUSED = re.compile(r'[<>:"|?*\\\x00-\x1f]|[. ]$')
HIDDEN = re.compile(r"^/(proc|sys)(/|$)")
MAPPED = re.compile(r"(?m) (/.*)$")


def ours(depth: int = 2) -> bool:
    """Whether code of Liebig makes this call, itself or through the modules of files of the standard library."""
    frame = sys._getframe(depth)
    while frame is not None and frame.f_globals.get("__name__") in {*THROUGH, __name__}:
        frame = frame.f_back  # type: ignore[assignment]
    return frame is not None and is_ours(frame.f_globals)


def is_ours(names: dict[str, Any] | None) -> bool:
    return str((names or {}).get("__name__", "")).partition(".")[0] == "liebig"


class OtherModule(ModuleType):
    """A module of the standard library without what the other system does not have."""

    def __init__(self, real: ModuleType) -> None:
        super().__init__(real.__name__)
        self.__dict__.update(_real=real, _patched={}, __path__=getattr(real, "__path__", None))

    def __getattr__(self, name: str) -> Any:
        real = self.__dict__["_real"]
        if name in NO_FUNCTIONS.get(real.__name__, ()):
            raise AttributeError(f"module {real.__name__!r} has no attribute {name!r} on {SYSTEM}")
        return OTHER.get(real.__name__, {}).get(name) or getattr(real, name)

    def __setattr__(self, name: str, value: Any) -> None:
        """A patch is seen by all code, and the real one is kept for `__delattr__`, as pytest undoes it."""
        real = self.__dict__["_real"]
        self.__dict__["_patched"].setdefault(name, getattr(real, name))
        setattr(real, name, value)

    def __delattr__(self, name: str) -> None:
        setattr(self.__dict__["_real"], name, self.__dict__["_patched"].pop(name))


def _no_library(name: Any, *rest: Any, **named: Any) -> Any:
    if name is None:
        raise TypeError("expected a name: Windows has no library of all symbols")
    return _CDLL(name, *rest, **named)


_import, _find_spec, _CDLL = builtins.__import__, importlib.util.find_spec, ctypes.CDLL
_proxies: dict[str, OtherModule] = {}


def _imported(
    name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0
) -> ModuleType:
    if not is_ours(globals):
        return _import(name, globals, locals, fromlist, level)
    if name in NO_MODULES:
        raise ModuleNotFoundError(f"No module named {name!r} on {SYSTEM}", name=name)
    module = _import(name, globals, locals, fromlist, level)
    if name in {*NO_FUNCTIONS, *OTHER}:
        return _proxies.setdefault(name, OtherModule(module))
    return module


def _spec(name: str, package: str | None = None) -> Any:
    return None if name in NO_MODULES and ours() else _find_spec(name, package)


def _text(path: Any) -> str:
    return os.fsdecode(path) if isinstance(path, str | bytes | os.PathLike) else ""


def _hidden(path: Any) -> bool:
    return HIDDEN.match(_text(path)) is not None and ours(3)


def _hiding(function: Callable[..., Any]) -> Callable[..., Any]:
    def hidden(path: Any = ".", *rest: Any, **named: Any) -> Any:
        if _hidden(path):
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        return function(path, *rest, **named)

    return hidden


_readlink, _listdir, _stat, _real_open, _open_number = os.readlink, os.listdir, os.stat, open, os.open


def _is_free(place: str) -> bool:
    """Whether nobody has the file open or mapped, nor one in the folder; the kernel says so by granting a lease.

    It knows at once what a look at every process takes tens of milliseconds for.
    """
    if os.path.isdir(place):
        return all(_is_free(os.path.join(place, name)) for name in _listdir(place))
    try:
        number = _open_number(place, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError as error:
        return error.errno in (errno.ENOENT, errno.ELOOP)  # nothing, or a link
    try:
        fcntl.fcntl(number, fcntl.F_SETSIG, signal.SIGURG)  # who opens it meanwhile does not end this process
        fcntl.fcntl(number, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    except OSError:
        return False
    finally:
        os.close(number)
    return True


def _in_use() -> set[str]:
    """What the processes of this test have open or mapped: those with the same cache."""
    used = set[str]()
    for pid in filter(_is_of_this_test, filter(str.isdecimal, _listdir("/proc"))):
        with contextlib.suppress(OSError):
            for number in _listdir(f"/proc/{pid}/fd"):
                with contextlib.suppress(OSError):
                    used.add(_readlink(f"/proc/{pid}/fd/{number}"))
            with _real_open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as lines:
                used.update(MAPPED.findall(lines.read()))
    return used


@cache
def _is_of_this_test(pid: str) -> bool:
    with contextlib.suppress(OSError), _real_open(f"/proc/{pid}/environ", "rb") as variables:
        return OF_THIS_TEST in variables.read().split(b"\0")
    return False


def _refuse_in_use(*paths: Any) -> None:
    if all(_is_free(os.path.realpath(_text(path))) for path in paths):
        return
    used = _in_use()
    for path in paths:
        place = os.path.realpath(_text(path))
        names = {place, *_other_names(place, used)}
        for name in used:
            if name in names or name.startswith(place + "/"):
                raise PermissionError(errno.EACCES, f"is in use by a process ({name})", _text(path))


def _other_names(place: str, used: set[str]) -> Iterator[str]:
    """Those that are hard links of the file at a place."""
    with contextlib.suppress(OSError):
        if os.path.isfile(place) and _stat(place).st_nlink > 1:
            for name in used:
                with contextlib.suppress(OSError):
                    if os.path.samestat(_stat(name), _stat(place)):
                        yield name


def _refuse_name(path: Any) -> None:
    """What Windows does not take as the name of a new file."""
    folder, name = os.path.split(_text(path))
    if DEVICES.match(name) or REFUSED.search(name):
        raise OSError(errno.EINVAL, "Invalid argument", _text(path))
    with contextlib.suppress(OSError):
        for other in _listdir(folder or "."):
            assert other == name or other.casefold() != name.casefold(), (
                f"{other} is {name} on {SYSTEM}: {folder}"
            )


def _moving(function: Callable[..., Any]) -> Callable[..., Any]:
    def moved(source: Any, target: Any, **named: Any) -> Any:
        if ours():
            _refuse_name(target)
            _refuse_in_use(source, target)
        return function(source, target, **named)

    return moved


def _removing(function: Callable[..., Any]) -> Callable[..., Any]:
    def removed(path: Any, **named: Any) -> Any:
        if ours():
            _refuse_in_use(path)
        return function(path, **named)

    return removed


def _making(function: Callable[..., Any]) -> Callable[..., Any]:
    def made(path: Any, *rest: Any, **named: Any) -> Any:
        if ours() and not os.path.isdir(path):
            _refuse_name(path)
        return function(path, *rest, **named)

    return made


def _opening(function: Callable[..., Any], *, descriptor: bool) -> Callable[..., Any]:
    def opened(path: Any, mode: Any = "r", *rest: Any, **named: Any) -> Any:
        anonymous = "opener" in named or (descriptor and mode & os.O_TMPFILE == os.O_TMPFILE)
        if _text(path) and not anonymous and ours():
            if HIDDEN.match(_text(path)):
                raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
            new = bool(mode & os.O_CREAT) if descriptor else any(letter in mode for letter in "wax")
            if WINDOWS and new:
                _refuse_name(path)
            if WINDOWS and os.path.isdir(path):
                raise PermissionError(errno.EACCES, "Permission denied", path)
        return function(path, mode, *rest, **named)

    return opened


def _synced(number: Any) -> None:
    real = number if isinstance(number, int) else number.fileno()
    if ours() and fcntl.fcntl(real, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
        raise OSError(errno.EBADF, "Bad file descriptor")
    _fsync(number)


_fsync = os.fsync

if SYSTEM:
    builtins.__import__, importlib.util.find_spec = _imported, _spec
    multiprocessing.set_start_method("spawn", force=True)
    warnings.filterwarnings("error", category=EncodingWarning, module=r"liebig(\.|$)")
    builtins.open = io.open = _opening(open, descriptor=False)
    for each in ("stat", "lstat", "listdir", "scandir", "readlink"):
        setattr(os, each, _hiding(getattr(os, each)))
    if WINDOWS:
        import shutil

        shutil._use_fd_functions = False  # type: ignore[attr-defined]  # by names, as on Windows
        OTHER["ctypes"]["CDLL"] = _no_library
        OTHER["os"]["O_BINARY"] = 0
        os.replace, os.rename = _moving(os.replace), _moving(os.rename)
        os.unlink, os.remove, os.rmdir = _removing(os.unlink), _removing(os.remove), _removing(os.rmdir)
        os.mkdir = _making(os.mkdir)
        os.fsync = _synced  # type: ignore[assignment]
        signal.SIGBREAK = signal.SIGTERM  # type: ignore[attr-defined]
    os.open = _opening(os.open, descriptor=True)
