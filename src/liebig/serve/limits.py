"""What a server allows: sizes, times, and how texts are put together; every refusal names the limit it met."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Of requests: bytes, texts and characters, results, seconds; of the line: texts and requests that may wait."""

    body: int = 8 << 20
    texts: int = 1024
    characters: int = 100_000
    query: int = 4096
    k: int = 1000
    seconds: float = 30.0
    queue: int = 4096
    requests: int = 1024
    wait_ms: float = 1.0
    budget: int | None = None
    batching: bool = True
    poll: float = 1.0
    grace: float = 20.0


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
