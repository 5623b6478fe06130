"""The sampler that schedules: before an epoch, batches are made from what the model finds hard, and kept in a file.

`schedule/epoch-N.npy` holds the order of an epoch, a function of seed, epoch and the vectors at its start; a run that
goes on reads it instead of making another. The first process makes it, the others read. The similarity of the first
epoch may come from a run (BM25), later ones from the towers as they are. Hardness of each epoch, and of random batches
beside it, goes into `epoch-N.json`. Cost: encoding all queries and first positives once an epoch, and the schedule.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from io import BytesIO
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from liebig import rng
from liebig.data.items import Options
from liebig.data.sources import DiskSource
from liebig.data.trec import read_run
from liebig.errors import DataError
from liebig.finetune.contrastive import Retriever
from liebig.finetune.hardness import Similarity, Vectors, from_run, hardness
from liebig.finetune.schedule import Improve, Order, Schedule, Start, Way, beam, greedy, in_parts, schedule
from liebig.finetune.written import written
from liebig.progress import Progress
from liebig.records import Hit
from liebig.train.distributed import World
from liebig.train.labelled.examples import Examples
from liebig.train.labelled.samplers import Sampler, steps_of
from liebig.train.labelled.texts import Texts
from liebig.workspace import atomic_write

Longs = NDArray[np.int64]
SAMPLE = 200
"""Random batches that the hardness of a schedule is held against."""


@dataclass(frozen=True)
class Adaptive:
    """How schedules are made: batch, ways of which the hardest counts, order, seed, and parts scheduled apart."""

    batch: int
    ways: Sequence[Way]
    order: Order
    seed: int
    parts: int = 1

    def sampler(
        self,
        n: int,
        folder: Path,
        begin: Callable[[int], None],
        world: World,
        close: Callable[[], None] = lambda: None,
    ) -> Sampler:
        """A sampler of the epochs that `begin(epoch)`, called in the first process, leaves in the folder."""

        def begins(epoch: int) -> None:
            if world.first:
                begin(epoch)
            world.barrier()

        @lru_cache(maxsize=2)
        def order(epoch: int) -> Longs:
            found: Longs = np.load(path_of(folder, epoch))
            return found

        return Sampler(order, n, self.batch, steps_of(n, self.batch, world.size), begins, close)

    def now(self, folder: Path, similarity: Callable[[int], Similarity]) -> Callable[[int], None]:
        """Schedules an epoch when it begins, unless its file is there."""

        def begin(epoch: int) -> None:
            if not path_of(folder, epoch).exists():
                found = similarity(epoch)
                total = len(self.ways) * (len(found) // self.batch)
                with Progress(f"scheduling epoch {epoch}", total, "batches") as bar:
                    bar.say(self.store(folder, epoch, found, bar.advance))

        return begin

    def store(
        self,
        folder: Path,
        epoch: int,
        similarity: Similarity,
        advance: Callable[[int], None] = lambda n: None,
    ) -> str:
        """Make the schedule of an epoch and write it whole; returns a sentence about it."""
        seed = int(rng.key(self.seed, epoch) >> 1)
        found = in_parts(similarity, self.batch, self.ways, self.parts, seed=seed, advance=advance)
        usual = random_hardness(similarity, self.batch, seed)
        folder.mkdir(parents=True, exist_ok=True)
        facts = {
            "batches": len(found.batches),
            "hardness": mean(found),
            "random": usual,
            "rest": len(found.rest),
        }
        atomic_write(path_of(folder, epoch).with_suffix(".json"), json.dumps(facts, indent=2).encode())
        out = BytesIO()
        np.save(out, found.order(self.order, seed))
        atomic_write(path_of(folder, epoch), out.getvalue())
        return f"hardness of a batch {mean(found):.4g}, of a random one {usual:.4g}"


def mean(found: Schedule) -> float:
    """Hardness of a batch, on average."""
    return found.total / max(1, len(found.batches))


def random_hardness(similarity: Similarity, batch: int, seed: int, sample: int = SAMPLE) -> float:
    """The same for random batches, a sample of them."""
    n = len(similarity)
    order = np.argsort(rng.uniform(rng.key(seed, 19), np.arange(n)), kind="stable")
    picked = [order[i * batch : (i + 1) * batch] for i in range(min(sample, n // batch))]
    values = [hardness(similarity, torch.from_numpy(b).to(similarity.device)) for b in picked]
    return float(np.mean(values)) if values else 0.0


def model_similarity(
    objective: Retriever, examples: Examples, queries: Texts, passages: Texts, unit: bool
) -> Similarity:
    """From the towers as they are: each example's query and first positive."""
    firsts = examples.positives.values[examples.positives.bounds[:-1]]
    device = objective.tower("query").device
    q = objective.tower("query").encode_rows(queries.rows(), unit=unit)
    once, back = np.unique(firsts, return_inverse=True)
    p = objective.tower("passage").encode_rows(passages.rows(once), unit=unit)[back]
    twin = torch.from_numpy(twins(examples))
    return Vectors.of(torch.from_numpy(q).to(device), torch.from_numpy(p).to(device), twin)


def run_similarity(run: Path, examples: Examples) -> Similarity:
    """From a TREC run of the training queries: what it scores of other examples' positives."""
    holders: dict[str, list[int]] = {}
    for example in range(len(examples)):
        holders.setdefault(examples.passages[examples.positives[example][0]], []).append(example)
    numbers = {name: i for i, name in enumerate(examples.queries)}
    found = from_run(_hits(run), numbers, holders, twins(examples))
    if not len(found.values):
        raise DataError(
            "the run finds no positive of another training query",
            file=run,
            fix="give a run of the training queries over the passages of the collection",
        )
    return found


def _hits(path: Path) -> Iterator[tuple[str, str, float]]:
    """Query, passage and score of every line of a TREC run."""
    for item in read_run(DiskSource(path), Options()):
        assert isinstance(item.record, Hit), "a run holds hits"
        yield item.record.query, item.record.passage, item.record.score


def twins(examples: Examples) -> Longs:
    """A number for each example, equal where first positives have the same text."""
    firsts = examples.positives.values[examples.positives.bounds[:-1]]
    return examples.content[firsts]


def searching(
    kind: Literal["greedy", "beam"],
    k: int = 3,
    candidates: int | Literal["auto", "all"] = "auto",
    start: Start = "near",
) -> tuple[Way, ...]:
    """Greedy swaps; or beam search of width k too, the harder epoch of both being kept."""
    improves: tuple[Improve, ...] = (greedy,) if kind == "greedy" else (greedy, partial(beam, k=k))
    return tuple(
        partial(schedule, improve=improve, candidates=candidates, start=start) for improve in improves
    )


def as_written(kind: Literal["greedy", "beam"], k: int = 3, lists: int = 100) -> tuple[Way, ...]:
    """The paper's greedy over all that is left, or its beam search in lists."""
    return (written,) if kind == "greedy" else (partial(written, k=k, lists=lists),)


def path_of(folder: Path, epoch: int) -> Path:
    """Where the order of an epoch lies."""
    return folder / f"epoch-{epoch:03d}.npy"
