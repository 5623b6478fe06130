"""What a doctor says: a line each, good or not, with what to do about it."""

from __future__ import annotations

from dataclasses import dataclass


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
