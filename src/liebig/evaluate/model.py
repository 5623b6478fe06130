"""A model folder as the system under evaluation: loads the encoder, and gives the other modules its vectors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from liebig.data.output import write_lines
from liebig.data.trec import run_lines
from liebig.errors import DataError
from liebig.evaluate.encoded import (
    Distance,
    Embed,
    Role,
    pair_similarities,
    rank_candidates,
    search_all,
    triplet_values,
)
from liebig.evaluate.scoring import Bootstrap, Scored, score_candidates, score_pairs, score_triplets
from liebig.evaluate.task import Task
from liebig.machine import chosen
from liebig.measures.blocks import Block
from liebig.measures.names import Measure
from liebig.measures.ranking import sort_hits
from liebig.model.encoder import Encoder
from liebig.model.topk import topk
from liebig.progress import Progress
from liebig.records import Hit, Query, Title
from liebig.text.layout import Record

PIECE, PIECE_CUDA = 256, 16_384  # passages encoded between two signs of progress


class ModelScorer:
    """An encoder, the device it runs on, and how deep it searches."""

    def __init__(
        self,
        path: Path,
        device: str,
        depth: int,
        *,
        title: Title | None = None,
        max_length: int | None = None,
        query_length: int | None = None,
    ) -> None:
        """`title` and lengths are the model's own where they are not given."""
        self.device = torch.device(chosen(None if device == "auto" else device))
        self.encoder = Encoder.load(path).to(self.device).eval()
        self.encoder.use(title=title, max_length=max_length, query_length=query_length)
        self.depth = depth

    def embed(self, texts: Sequence[Record], role: Role) -> NDArray[np.float32]:
        """Vectors, of length 1 where the model is compared by cosine."""
        unit = self.encoder.similarity == "cosine"
        return self.encoder.encode_texts(texts, prompt=role or None, unit=unit)

    def search(self, task: Task, exclude_self: bool) -> Block:
        """The hits of the task's queries; one more where a query's own id will be taken out."""
        queries = list(task.queries.values())
        with Progress(f"{task.label}: encoding and searching", unit="passages") as bar:
            return search_all(
                self._counted(bar),
                lambda queries_QD, passages_ND, k: topk(queries_QD, passages_ND, k, device=self.device),
                queries,
                task.passages(),
                self.depth + exclude_self,
            )

    def _counted(self, bar: Progress) -> Embed:
        """`embed` that says how far it is with the passages."""
        piece = PIECE if self.device.type == "cpu" else PIECE_CUDA

        def embed(texts: Sequence[Record], role: Role) -> NDArray[np.float32]:
            if role != "passage":
                return self.embed(texts, role)
            parts = []
            for first in range(0, len(texts), piece):
                parts.append(self.embed(texts[first : first + piece], role))
                bar.advance(len(parts[-1]))
            return np.concatenate(parts)

        return embed

    def score(self, task: Task, measures: Sequence[Measure], distance: Distance, how: Bootstrap) -> Scored:
        """Pairs, triplets or candidates, which need no search."""
        if task.kind == "pairs":
            return score_pairs(task, pair_similarities(self.embed, task.pairs), measures, how)
        if task.kind == "triplets":
            return score_triplets(task, triplet_values(self.embed, task.triplets, distance), measures, how)
        queries = [_asked(task, group.query) for group in task.groups]
        block = rank_candidates(self.embed, task.groups, queries, task.passages())
        return score_candidates(task, block, measures, how)

    def write_run(self, block: Block, path: Path) -> None:
        """The hits as a TREC run."""
        path.parent.mkdir(parents=True, exist_ok=True)
        write_lines(path, run_lines(hits_of(block)))


def _asked(task: Task, query: str) -> Query:
    if query not in task.queries:
        raise DataError(
            f"the text of query {query!r} is missing", file=task.path, fix="name a collection that has it"
        )
    return task.queries[query]


def hits_of(block: Block) -> Iterator[Hit]:
    """The hits of a block, ranked as trec_eval ranks them."""
    hits = block.hits
    for i, query in enumerate(block.queries):
        rows = sort_hits(hits, np.arange(hits.segments[i], hits.segments[i + 1]))
        for rank, row in enumerate(rows, 1):
            passage = hits.data[hits.starts[row] : hits.ends[row]].tobytes().decode()
            yield Hit(query.decode(), passage, float(hits.scores[row]), rank)
