"""What this machine lets a process use: cores, memory, threads by how busy it is, and the device a person names."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import platform
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from math import exp, inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from liebig.base.errors import RecipeError, ResourceError

if TYPE_CHECKING:
    from filelock import BaseFileLock

# The only place that asks which system this is.
WINDOWS, MACOS = sys.platform == "win32", sys.platform == "darwin"

BEGAN = time.monotonic()
_numpy_alone: list[bool] = []  # set before `base/compiled.py` is imported
_fixed: list[int] = []  # threads that the environment asks for


def process_count() -> int:
    """Processes that torchrun started together with this one, itself included."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def process_rank() -> int:
    """The number of this process among them."""
    return int(os.environ.get("RANK", "0"))


def cache_folder() -> Path:
    """Where files are kept that can be made again: LIEBIG_CACHE, or `liebig` in the user's cache folder."""
    told = os.environ.get("LIEBIG_CACHE")
    return (
        Path(told) if told else Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "liebig"
    )


def config_folder() -> Path:
    """Where the user's own configuration lies: `liebig` in the folder for configurations."""
    told = os.environ.get("XDG_CONFIG_HOME", "")
    return (Path(told) if os.path.isabs(told) else Path("~/.config").expanduser()) / "liebig"


def state_folder() -> Path:
    """Where notes about this user's work are kept: LIEBIG_STATE, or `liebig` in the user's folder for state."""
    told = os.environ.get("LIEBIG_STATE")
    return Path(told or Path(os.environ.get("XDG_STATE_HOME") or "~/.local/state") / "liebig").expanduser()


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


# Those that matter to products of small numbers, as Linux calls them.
VNNI = "avx512_vnni"  # sums of four products of bytes, on x86-64 with vectors of 512 bits
AVX_VNNI = "avx_vnni"  # the same with vectors of 256 bits: processors of desktops and laptops since 2021
DOT = "asimddp"  # and on aarch64
BYTE_PRODUCTS = VNNI, AVX_VNNI, DOT
INSTRUCTIONS = (
    "avx2", "avx512bw", VNNI, AVX_VNNI, "avx512_bf16", "amx_int8", DOT, "i8mm", "bf16"
)  # fmt: skip


# LLVM's names of those that Linux calls otherwise.
LLVM_NAMES = {
    "avx512vnni": VNNI, "avxvnni": AVX_VNNI, "avx512bf16": "avx512_bf16", "amx-int8": "amx_int8", "dotprod": DOT
}  # fmt: skip


@cache
def instructions() -> tuple[str, ...]:
    """Which of INSTRUCTIONS this processor has; none where neither the system nor LLVM tells."""
    path = Path("/proc/cpuinfo")
    if path.is_file():
        flags = set(path.read_text(encoding="utf-8", errors="replace").split())
    elif MACOS and platform.machine() == "arm64":
        flags = {DOT}  # every processor of the M series has it; LLVM does not tell there
    else:
        flags = _llvm_flags()
    return tuple(name for name in INSTRUCTIONS if name in flags)


def _llvm_flags() -> set[str]:
    if find_spec("llvmlite") is None:
        return set()
    from llvmlite.binding import get_host_cpu_features

    try:
        features = get_host_cpu_features()
    except RuntimeError:  # LLVM cannot tell either
        return set()
    return {LLVM_NAMES.get(name, name) for name, is_there in features.items() if is_there}


PRECISION = "LIEBIG_PRECISION"  # of passages on a CPU, where nothing names it: fp32, int8 or auto


def default_precision() -> str:
    named = os.environ.get(PRECISION, "auto")
    if named not in ("auto", "fp32", "int8"):
        raise RecipeError(f"{PRECISION} is {named!r}", fix="set it to fp32, int8 or auto")
    return named


LLM_KEY = "LIEBIG_LLM_KEY"  # of the server that `ask` and `serve --llm` talk to


def llm_key() -> str | None:
    return os.environ.get(LLM_KEY) or None


ENGINE_TOKEN = "LIEBIG_ENGINE_TOKEN"  # of the search engine that a retriever is in: user:password, or a token
ENGINE_URI = (
    "LIEBIG_ENGINE_URI"  # the address that the token is for, where the user pushed nothing to it from here
)


def engine_token() -> tuple[str, str]:
    """What ENGINE_TOKEN and ENGINE_URI say, if anything."""
    return os.environ.get(ENGINE_TOKEN, ""), os.environ.get(ENGINE_URI, "")


# How libraries say that memory ran out, of a GPU and of the machine; their errors have no common class.
GPU_FULL = (
    "CUDA out of memory", "CUDA error: out of memory", "HIP out of memory", "MPS backend out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED",
)  # fmt: skip
MEMORY_FULL = ("can't allocate memory", "std::bad_alloc")

# Version 2 of control groups says "max" where there is no limit, version 1 a number beyond any machine.
LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


def memory() -> int:
    """Bytes of memory this process may use: the machine's, or a container's where that is less."""
    if hasattr(os, "sysconf"):
        physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    else:  # Windows
        import psutil

        physical = psutil.virtual_memory().total
    said = (path.read_text(encoding="ascii").strip() for path in LIMITS if path.is_file())
    return min([physical, *(int(limit) for limit in said if limit.isdecimal())])


def fix_threads(number: str | None) -> None:
    """Take a number of threads from the environment for every later `threads()`; anything else is ignored."""
    if number is not None and number.isdecimal() and int(number) > 0:
        _fixed.append(int(number))


def wait_passively() -> None:
    """Let threads that wait for each other sleep instead of spin; to be called before torch is loaded.

    A thread that spins at a barrier takes the core that the thread it waits for needs: with other processes on the
    machine, training and encoding would get a small part of their share. What the user has set stays.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # libgomp, which torch brings along on Linux
    os.environ.setdefault("KMP_BLOCKTIME", "0")  # LLVM's and Intel's OpenMP


def threads(told: int | None = None) -> int:
    """Threads to compute with on a CPU: as given, else OMP_NUM_THREADS, else this process's fair share of busy cores.

    Never more than torch has been given.

    Threads of one run wait for each other, and a thread whose core is taken keeps all others waiting: on two busy cores
    one thread encodes 3 to 5 times faster than two.
    """
    if told is not None:
        return told
    if _fixed:
        return _fixed[-1]
    return min(free_cores(), set_threads())


def free_cores() -> int:
    """This process's fair share of the cores it may use, beside what else runs on the machine."""
    # The load of a whole machine, of which this process may use some of the cores.
    mine = cores()
    return fair_share(mine, others_load() * mine / max(mine, os.cpu_count() or 1))


def tokenizer_threads() -> bool:
    """Whether the tokenizers library may use several threads: it reads the same variable in the same way."""
    told = os.environ.get("TOKENIZERS_PARALLELISM", "true")
    return told.lower() not in ("", "0", "n", "f", "no", "off", "false")


def set_threads() -> int:
    """Threads that the calling thread may compute with: as torch was told, where it is there."""
    told = getattr(_alone, "threads", None)
    if told is not None:
        return int(told)
    if "torch" in sys.modules:
        return int(sys.modules["torch"].get_num_threads())
    number = os.environ.get("OMP_NUM_THREADS", "")
    return int(number) if number.isdecimal() and int(number) > 0 else cores()


def compute_alone() -> None:
    """Let the calling thread compute without others beside it; torch too, where the model at hand needed it."""
    _alone.threads = 1
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)


_alone = threading.local()


def fair_share(mine: int, others: float) -> int:
    """How many of `mine` cores a scheduler gives to as many threads, beside `others` that want to run there too."""
    return min(mine, max(1, round(mine * mine / (mine + others))))


def others_load() -> float:
    """How many threads of other processes want to run, on average over the last minute; 0 where no one counts them."""
    try:
        load = os.getloadavg()[0]
    except (OSError, AttributeError):  # Windows has no such function
        return 0.0
    age = max(time.monotonic() - BEGAN, 1e-3)
    used = sum(os.times()[:4])
    own = min(used / age, cores()) * (1 - exp(-age / 60))  # the load is a mean that forgets within a minute
    return max(0.0, load - own)


@contextmanager
def computing_threads(told: int | None = None) -> Iterator[int]:
    """Let this thread, and torch if it is there, compute with `threads(told)` threads, and as before afterwards."""
    torch, before = sys.modules.get("torch"), set_threads()
    count, alone = threads(told), getattr(_alone, "threads", None)
    if torch is None:
        _alone.threads = count
    else:
        torch.set_num_threads(count)
    try:
        yield count
    finally:
        if torch is None:
            _alone.threads = alone
        else:
            torch.set_num_threads(before)


def prefer_numpy() -> None:
    """Do without numba in this process, where it has not been imported: that takes longer than a small search."""
    _numpy_alone.append(True)
    multiply_alone()


def multiply_alone() -> None:
    """Let numpy, where it has not been imported, multiply with one thread.

    A question's matrices are so small that threads waiting for each other took ten times its CPU time where others
    work, too.
    """
    if "OMP_NUM_THREADS" not in os.environ:
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def prefers_numpy() -> bool:
    """Whether this process does without numba."""
    return bool(_numpy_alone)


def checked(name: str | None) -> str | None:
    """A device that is there, by its name (cpu, cuda, cuda:1); None stays None."""
    if name is None or name == "cpu":
        return name
    import torch

    kind, colon, number = name.partition(":")
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if kind != "cuda" or (colon and not number.isdecimal()) or int(number or 0) >= count:
        raise RecipeError(f"device = {name}: this machine has no such device", fix="use cpu, or leave it out")
    return name


def wants_mps() -> bool:
    """Whether training was asked to use Apple's GPU, by LIEBIG_DEVICE=mps. It was never run on one."""
    name = os.environ.get("LIEBIG_DEVICE")
    if not name:
        return False
    import torch

    if name != "mps" or not torch.backends.mps.is_available():
        raise RecipeError(f"LIEBIG_DEVICE = {name}: expected mps, on a Mac that has it", fix="unset it")
    return True


def may_have_gpu() -> bool:
    """Whether torch is worth asking for a GPU, which takes seconds: not without a driver's device."""
    if os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        return False
    # CUDA, the same in WSL, on a Jetson board, and ROCm
    drivers = map(Path, ("/dev/nvidiactl", "/dev/dxg", "/dev/nvmap", "/dev/kfd"))
    return WINDOWS or any(driver.exists() for driver in drivers)


def chosen(name: str | None) -> str:
    """The device that is named, if it is there; without a name the GPU if there is one, else the CPU."""
    import torch

    return checked(name) or ("cuda" if torch.cuda.is_available() else "cpu")


# Worker processes are spawned, not forked: a fork would copy locks held by other threads. They ignore Ctrl-C, which
# the parent handles, and exit when the parent does. Each imports its modules anew, which takes a second or, where many
# start on a busy machine, ten: so a process works alone until `Pace` says that the rest is long enough to share.

T = TypeVar("T")
R = TypeVar("R")
START = 15.0  # seconds of this process's work that a helper has to take over to be worth its start


class Pace:
    """How long the rest of some work would take this process, by how fast it has been, and so how many helpers pay.

    The fastest part so far counts: the first one loads and compiles what later ones find. Where nobody knows how much
    work there is, as much again is expected as was done.
    """

    def __init__(self, total: int | None, threads: int = 1) -> None:
        """`total` is the size of the whole work, in any unit; `threads` do it side by side."""
        self._total, self._done, self._spent, self._fastest = total, 0, 0.0, inf
        self._threads, self._counting = threads, threading.Lock()

    def run(self, size: int, work: Callable[..., R], *args: Any) -> R:
        """Do a part of the work here, and count it."""
        begin = time.monotonic()
        result = work(*args)
        self.count(size, time.monotonic() - begin)
        return result

    def count(self, size: int, seconds: float) -> None:
        """A part of this size took this process so long."""
        with self._counting:
            self._done += size
            self._spent += seconds
            self._fastest = min(self._fastest, seconds / max(size, 1))

    def helpers(self, most: int) -> int:
        """How many helpers to start for the rest, at most `most`; 0 where it is done sooner without."""
        if self._done == 0:
            return 0
        rest = self._spent if self._total is None else self._fastest * (self._total - self._done)
        count = min(most, int(rest / self._threads / START))
        return count if count > 1 else 0


def spread(work: Callable[[T], R], tasks: Sequence[T], told: int | None = None) -> Iterator[R]:
    """The results of tasks of about the same size, in their order, from this process and helpers if they pay.

    `told` is a number of processes that a person asked for: they are started at once. `work` is copied to each of them.
    """
    pace, done = Pace(len(tasks)), 0
    count = 0 if told is None else min(told, len(tasks))
    while count < 2 and done < len(tasks):
        yield pace.run(1, work, tasks[done])
        done += 1
        count = pace.helpers(min(free_cores(), len(tasks) - done)) if told is None else 0
    if done < len(tasks):
        with helpers(count, _take, work) as pool:
            yield from in_order(pool, _work_on, tasks[done:], 2 * count)


_work: list[Callable[[Any], Any]] = []  # of this process, where it is a helper


def _take(work: Callable[[Any], Any]) -> None:
    _work.append(work)


def _work_on(task: Any) -> Any:
    return _work[0](task)


@contextmanager
def helpers(
    count: int, set_up: Callable[..., None] | None = None, *args: Any
) -> Iterator[ProcessPoolExecutor]:
    """That many processes, in each of which `set_up` has been called with these arguments."""
    spawn = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(count, mp_context=spawn, initializer=_begin, initargs=(set_up, args))
    try:
        yield pool
    except BrokenProcessPool:
        raise ResourceError(
            f"one of {count} worker processes was killed, most likely because memory ran out",
            fix="run the same command again with fewer of them (where it has no option for that, taskset gives it "
            "fewer cores); a script of your own has to start it under if __name__ == '__main__'",
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def in_order(
    pool: ProcessPoolExecutor, work: Callable[[T], R], tasks: Iterable[T], ahead: int
) -> Iterator[R]:
    """The results of tasks, in their order; at most `ahead` are under way, so memory does not grow."""
    pending: deque[Future[R]] = deque()
    for task in tasks:
        pending.append(pool.submit(work, task))
        if len(pending) >= ahead:
            yield pending.popleft().result()
    while pending:
        yield pending.popleft().result()


def _begin(set_up: Callable[..., None] | None, args: tuple[Any, ...]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.putenv("TOKENIZERS_PARALLELISM", "false")  # one thread here: there is a process for every core
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if set_up is not None:
        set_up(*args)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def is_running(parent: int) -> bool:
    """Whether the process that started this one still runs."""
    if not WINDOWS:
        return os.getppid() == parent  # an orphan is given another parent
    import psutil

    return bool(psutil.pid_exists(parent))


def try_lock(path: Path) -> BaseFileLock | None:
    """A lock on a file, held until it is released or its process ends; None while another holds it."""
    from filelock import FileLock, Timeout

    lock = FileLock(path, thread_local=False)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        return None
    return lock


def remove_lock(lock: BaseFileLock) -> None:
    """Release a lock and remove its file: while it is still held, or another's could be removed."""
    path = Path(lock.lock_file)
    if WINDOWS:  # removes no file that is open, neither ours nor that of who has just taken the lock
        lock.release()
        with contextlib.suppress(PermissionError):
            path.unlink(missing_ok=True)
    else:
        path.unlink(missing_ok=True)
        lock.release()
