"""Machines, as calibrations: what each sustains when it trains, encodes, tokenises and indexes, and what an hour costs.

| number | h200 | cpu2 |
| --- | --- | --- |
| matrix rate | 700 T, bf16 | 70 G, fp32: two cores of a small server |
| share in training | 0.42: packed, compiled, dropout 0.1 | 0.5 |
| share in encoding | 0.64: 32,238 passages/s, BERT-base, 82 tokens | 0.6: the lean forward |

`calibrate` measures the matrix rate here and now and keeps the shares. Prices are assumptions, to be given anew.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from liebig.errors import RecipeError
from liebig.explain import nearest

GIB = 2**30
SHARES = {"cuda": (0.42, 0.64), "cpu": (0.5, 0.6)}  # of the matrix rate: training, encoding


@dataclass(frozen=True)
class Machine:
    """Rates a second; `tokenise` and `lexical` are those of one core."""

    name: str
    kind: str
    matrix: float  # FLOP
    cores: int
    memory: float  # bytes the model may use
    price: float  # an hour, in dollars
    tokenise: float = 380_000.0  # tokens, wiki and novels by 16 processes
    lexical: float = 7_300.0  # passages of 100 words into BM25
    read: float = 20e6  # bytes of JSON lines into a collection

    @property
    def train(self) -> float:
        """FLOP a second in training."""
        return self.matrix * SHARES[self.kind][0]

    @property
    def encode(self) -> float:
        """FLOP a second in encoding."""
        return self.matrix * SHARES[self.kind][1]

    def at(self, price: float | None, devices: int) -> Machine:
        """Several of them, and what an hour of one costs where it is said."""
        each = self.price if price is None else price
        return replace(self, matrix=self.matrix * devices, cores=self.cores * devices, price=each * devices)


MACHINES = {
    "h200": Machine("one H200", "cuda", 700e12, 16, 139 * GIB, 4.0),
    "cpu2": Machine("two cores of a small server", "cpu", 70e9, 2, 4 * GIB, 0.08),
}


def machine(name: str) -> Machine:
    """A machine by its name; `calibrate` is this one."""
    if name == "calibrate":
        return calibrate()
    if name not in MACHINES:
        raise RecipeError(f"there is no machine {name!r}", fix=nearest(name, (*MACHINES, "calibrate")))
    return MACHINES[name]


def calibrate() -> Machine:
    """This machine: its own memory, its matrix rate measured for a third of a second."""
    import torch

    from liebig.machine import cores, memory
    from liebig.pretrain.plan import matrix_rate

    kind = "cuda" if torch.cuda.is_available() else "cpu"
    bytes_there = torch.cuda.mem_get_info()[1] if kind == "cuda" else memory()
    name = torch.cuda.get_device_name() if kind == "cuda" else f"this machine's {cores()} cores"
    return Machine(name, kind, matrix_rate(kind), cores(), bytes_there, 0.0)
