"""What Prometheus reads at /metrics: requests, their times, batches, the line, tokens, generations.

Each server has a registry of its own, so that several can live in one process.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
TEXTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class Metrics:
    """The counters of a server."""

    def __init__(self) -> None:
        own = self._registry = CollectorRegistry()
        self.requests = Counter(
            "liebig_requests", "Requests by path and status.", ["path", "status"], registry=own
        )
        self.seconds = Histogram(
            "liebig_request_seconds", "Time of a request.", ["path"], buckets=SECONDS, registry=own
        )
        self.batch = Histogram(
            "liebig_batch_items", "Texts computed together.", ["work"], buckets=TEXTS, registry=own
        )
        self.batch_seconds = Histogram(
            "liebig_batch_seconds", "Time of a batch.", ["work"], buckets=SECONDS, registry=own
        )
        self.tokens = Counter("liebig_tokens", "Tokens embedded.", registry=own)
        self.waiting = Gauge("liebig_waiting_items", "Texts in line.", ["work"], registry=own)
        self.generation = Gauge("liebig_generation", "Generation of the folder that is served.", registry=own)
        self.takeovers = Counter("liebig_takeovers", "Generations taken over while serving.", registry=own)
        self.failures = Counter(
            "liebig_takeover_failures", "Generations that could not be taken over.", registry=own
        )

    def served(self, path: str, status: int, seconds: float) -> None:
        """A request was answered."""
        self.requests.labels(path, str(status)).inc()
        self.seconds.labels(path).observe(seconds)

    def batched(self, work: str, size: int, seconds: float) -> None:
        """A batch was computed."""
        self.batch.labels(work).observe(size)
        self.batch_seconds.labels(work).observe(seconds)

    def text(self) -> bytes:
        """In Prometheus' own format."""
        return generate_latest(self._registry)
