"""What this machine has: versions, cores, GPUs, and which attention each would run."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import torch

from liebig import encoders
from liebig.base import workspace
from liebig.base.machine import cores
from liebig.model.attention import varlen_kernel, varlen_runs


@dataclass(frozen=True)
class Finding:
    """One thing looked at; `fix` where something is wrong."""

    name: str
    what: str
    good: bool = True
    fix: str = ""

    def __str__(self) -> str:
        fix = f" To fix it: {self.fix}." if self.fix else ""
        return f"{'ok   ' if self.good else 'WRONG'}  {self.name}: {self.what}.{fix}"


GIB = 2**30
HEAD = 64  # width of a usual attention head
EXTRAS = {
    "pypdf": "reading PDF", "pymilvus": "Milvus", "onnxruntime": "ONNX", "fastapi": "liebig serve",
    "sentence_transformers": "comparison", "langchain_core": "LangChain", "llama_index": "LlamaIndex",
    "pyarrow": "Parquet", "mcp": "liebig mcp",
}  # fmt: skip


def machine() -> Iterator[Finding]:
    """Versions, processor, GPUs, attention, extras, bundled encoders."""
    versions = ", ".join(f"{name} {version}" for name, version in workspace.versions().items())
    yield Finding("versions", versions)
    yield Finding("processor", f"{platform.machine()}, {cores()} cores for this process, {_memory()}")
    yield from _gpus()
    there = [f"{package} ({use})" for package, use in EXTRAS.items() if find_spec(package) is not None]
    yield Finding("extras", ", ".join(there) or "none")
    yield Finding("encoders", ", ".join(encoders.PREFIX + name for name in encoders.names()) or "none")


def _memory() -> str:
    """Total memory, where the system tells."""
    path = Path("/proc/meminfo")
    if not path.is_file():
        return "memory unknown"
    first = path.read_text(encoding="ascii").split("\n")[0]
    return f"{int(first.split()[1]) * 1024 / GIB:.0f} GiB of memory"


def _gpus() -> Iterator[Finding]:
    if not torch.cuda.is_available():
        yield Finding("GPU", "torch finds none")
        yield Finding("attention", attention(torch.device("cpu"), torch.float32))
        return
    for number in range(torch.cuda.device_count()):
        found = torch.cuda.get_device_properties(number)
        yield Finding("GPU", f"{found.name}, {found.total_memory / GIB:.0f} GiB")
        yield Finding("attention", attention(torch.device("cuda", number), torch.bfloat16))


def attention(device: torch.device, dtype: torch.dtype) -> str:
    """The path that attention takes on a device, in words."""
    if varlen_runs(device, dtype, HEAD):
        return f"{device.type} in {dtype}: torch's variable-length kernel, without padding"
    if device.type == "cpu":
        return "cpu in float32: products sequence by sequence when encoding, buckets of one length and SDPA in training"
    missing = (
        "this torch has no variable-length kernel"
        if varlen_kernel() is None
        else "the GPU is older than Ampere"
    )
    return f"{device.type} in {dtype}: buckets of one length and SDPA, because {missing}"
