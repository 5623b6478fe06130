"""Prometheus metrics at /metrics: requests, latencies, batches, queues, tokens, generations.

Each server has its own registry, so that several can run in one process.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
TEXTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class Metrics:
    """The metrics of one server."""

    def __init__(self) -> None:
        own = self._registry = CollectorRegistry()
        self.requests = Counter(
            "liebig_requests", "Requests by path and status.", ["path", "status"], registry=own
        )
        self.seconds = Histogram(
            "liebig_request_seconds", "Latency of a request.", ["path"], buckets=SECONDS, registry=own
        )
        self.batch = Histogram(
            "liebig_batch_items", "Texts in a batch.", ["work"], buckets=TEXTS, registry=own
        )
        self.batch_seconds = Histogram(
            "liebig_batch_seconds", "Time of a batch.", ["work"], buckets=SECONDS, registry=own
        )
        self.tokens = Counter("liebig_tokens", "Tokens embedded.", registry=own)
        self.waiting = Gauge("liebig_waiting_items", "Texts in the queue.", ["work"], registry=own)
        self.generation = Gauge("liebig_generation", "Generation of the folder being served.", registry=own)
        self.takeovers = Counter("liebig_takeovers", "New generations loaded while serving.", registry=own)
        self.failures = Counter(
            "liebig_takeover_failures", "New generations that could not be loaded.", registry=own
        )

    def served(self, path: str, status: int, seconds: float) -> None:
        """Count a finished request."""
        self.requests.labels(path, str(status)).inc()
        self.seconds.labels(path).observe(seconds)

    def batched(self, work: str, size: int, seconds: float) -> None:
        """Count a finished batch."""
        self.batch.labels(work).observe(size)
        self.batch_seconds.labels(work).observe(seconds)

    def text(self) -> bytes:
        """The metrics in Prometheus' text format."""
        return generate_latest(self._registry)
