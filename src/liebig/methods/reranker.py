"""The cross-encoder: query and passage in one sequence, and a linear score of its first token's state.

Its model, the objective that trains it, and its use: reranking a run, and scoring groups for distillation. Pairs are
sorted by length and packed up to a budget of tokens. A folder holds the backbone as any model folder, and beside it
`reranker.safetensors` and `reranker.json`. Cost: the backbone on the tokens of every pair.

B pairs, T packed tokens, D width.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from liebig import losses
from liebig.base.errors import ModelError
from liebig.base.records import Group, Hit, Passage, Query, Title
from liebig.formats.trec import by_query
from liebig.measures.evaluator import Judgements, block_from_mapping, evaluate
from liebig.measures.names import Measure
from liebig.methods.labelled import Examples
from liebig.methods.samplers import Sampler, pick_negatives, pick_positives
from liebig.model.backbone import Backbone
from liebig.model.encoder import TOKENS, TOKENS_CUDA, Encoder
from liebig.model.loading import readable
from liebig.model.packed import Packed
from liebig.ragged import Ragged, split_by_budget
from liebig.text.layout import RoleLayout
from liebig.text.tokenizer import Tokenizer
from liebig.train.batch import Batch, Side
from liebig.train.distributed import World
from liebig.train.objective import Objective, Represented

HEAD, SETTINGS = "reranker.safetensors", "reranker.json"


class CrossEncoder(nn.Module):
    """Backbone, tokenizer and a linear head on the first token."""

    def __init__(
        self,
        backbone: Backbone,
        tokenizer: Tokenizer,
        *,
        query_length: int,
        length: int,
        title: Title = "space",
    ) -> None:
        super().__init__()
        if length > backbone.max_positions:
            raise ModelError(
                f"pairs of {length} tokens are longer than the model's {backbone.max_positions} positions",
                fix=f"set length = {backbone.max_positions}",
            )
        self.backbone, self.tokenizer = backbone, tokenizer
        self.head = nn.Linear(backbone.width, 1)
        nn.init.normal_(self.head.weight, std=0.02)
        nn.init.zeros_(self.head.bias)
        self.query_length, self.length, self.title = query_length, length, title
        self.around = len(tokenizer.wrap_pair([], [])[0])

    def layouts(self, title: Title | None = None) -> tuple[RoleLayout, RoleLayout]:
        """How queries and passages become the two halves of a pair, without special tokens around them."""
        return (
            RoleLayout(self.tokenizer, self.query_length, title="no", bare=True),
            RoleLayout(self.tokenizer, self.length, title=title or self.title, bare=True),
        )

    def forward(self, packed: Packed) -> Tensor:
        """The score of each sequence, B."""
        first_BD = self.backbone(packed).last.index_select(0, packed.firsts)
        scores: Tensor = self.head(first_BD)[:, 0]
        return scores if scores.dtype == torch.float64 else scores.float()

    def pack(self, pairs: Sequence[tuple[Sequence[int], Sequence[int]]]) -> Packed:
        """Pairs of token ids without special tokens as one row; the passage gives way."""
        rows = [self._pair(query, passage) for query, passage in pairs]
        segments = (
            [row[1] for row in rows] if getattr(self.backbone.config, "type_vocab_size", 0) > 1 else None
        )
        return Packed.from_lists([row[0] for row in rows], segments)

    def _pair(self, query: Sequence[int], passage: Sequence[int]) -> tuple[list[int], list[int]]:
        cut = query[: self.query_length]
        return self.tokenizer.wrap_pair(cut, passage[: self.length - self.around - len(cut)])

    @torch.inference_mode()
    def scores(
        self, queries: Sequence[Sequence[int]], passages: Sequence[Sequence[int]]
    ) -> NDArray[np.float32]:
        """Scores of queries with passages, row by row; the mode of training is left as it was."""
        was_training = self.training
        self.eval()
        device = self.head.weight.device
        budget = TOKENS_CUDA if device.type == "cuda" else TOKENS
        lengths = np.array([len(q) + len(p) for q, p in zip(queries, passages)], np.int64) + self.around
        out = np.empty(len(lengths), np.float32)
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            for some in split_by_budget(np.minimum(lengths, self.length), budget):
                packed = self.pack([(queries[i], passages[i]) for i in some]).to(device)
                out[some] = self(packed).float().cpu().numpy()
        self.train(was_training)
        return out

    def save(self, folder: Path) -> None:
        """A model folder with the head beside the backbone."""
        Encoder(self.backbone, self.tokenizer, max_length=self.length).save(folder)
        head = {name: x.detach().cpu().contiguous() for name, x in self.head.state_dict().items()}
        save_file(head, folder / HEAD, metadata={"format": "pt"})
        settings = {"query_length": self.query_length, "length": self.length, "title": self.title}
        (folder / SETTINGS).write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> CrossEncoder:
        """What `save` wrote."""
        if not (folder / HEAD).is_file():
            raise ModelError(
                "this folder is not a reranker", file=folder, fix="train one with liebig rerank train"
            )
        with readable(folder):
            settings: dict[str, Any] = json.loads((folder / SETTINGS).read_text(encoding="utf-8"))
            made = cls(
                Backbone.load(folder),
                Tokenizer.from_folder(folder),
                query_length=int(settings["query_length"]),
                length=int(settings["length"]),
                title=settings.get("title", "space"),
            )
            made.head.load_state_dict(load_file(folder / HEAD))
        return made.eval()


class Reranker(Objective):
    """Softmax cross entropy of each query's positive over its own group; the first passage of a group is the positive.

    Each query is judged with its own passages, so a step is plain accumulation over chunks and needs no second pass.
    """

    def __init__(self, model: CrossEncoder) -> None:
        super().__init__()
        self.model = model

    def counts(self, batch: Batch) -> dict[str, int]:
        return {"rerank": batch.n}

    def represent(self, chunk: Batch) -> Represented:
        side = chunk.sides["pair"]
        scores, owner = self.model(side.packed), side.owner
        sizes = torch.bincount(owner, minlength=chunk.n)
        place = torch.arange(len(owner), device=owner.device) - (sizes.cumsum(0) - sizes)[owner]
        shape = (chunk.n, int(sizes.max()))
        table = scores.new_zeros(shape).index_put((owner, place), scores)
        mask = torch.zeros(shape, dtype=torch.bool, device=owner.device)
        mask[owner, place] = True
        return Represented(None, {"rerank": losses.grouped(table, mask=mask, total=1)})

    def compile(self, *args: Any, **kwargs: Any) -> None:
        self.model.backbone.compile(*args, **kwargs)


@dataclass(frozen=True)
class RerankBatches:
    """This process's share of the batch of a step: each query with a positive and its negatives."""

    model: CrossEncoder
    examples: Examples
    queries: Ragged
    passages: Ragged
    sampler: Sampler
    negatives: int
    seed: int
    world: World

    def __call__(self, step: int) -> Batch:
        chosen, epoch = self.sampler(step), self.sampler.epoch(step)
        first, last = self.world.share(len(chosen)) if self.world.size > 1 else (0, len(chosen))
        groups = [self._group(int(i), epoch) for i in chosen[first:last]]
        asked = self.queries.take(chosen[first:last]).to_lists()
        pairs = [
            (q, p)
            for q, group in zip(asked, groups)
            for p in self.passages.take(np.asarray(group)).to_lists()
        ]
        owner = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
        return Batch({"pair": Side(self.model.pack(pairs), torch.from_numpy(owner))}, len(groups))

    def _group(self, example: int, epoch: int) -> list[int]:
        mine, others = self.examples.positives[example], self.examples.negatives[example]
        (kept,) = pick_positives(len(mine), example, epoch, self.seed)
        places = pick_negatives(len(others), example, epoch, self.seed, self.negatives)
        return [int(mine[kept]), *others[places].tolist()]


@dataclass(frozen=True)
class GroupRanking:
    """Evaluation while training: the groups of a split, ranked by the model."""

    examples: Examples
    queries: Ragged
    passages: Ragged
    judgements: Judgements
    measures: Sequence[Measure]

    def __call__(self, objective: Objective) -> dict[str, float]:
        assert isinstance(objective, Reranker), "a reranker is evaluated"
        run = {}
        for i, query in enumerate(self.examples.queries):
            group = np.concatenate((self.examples.positives[i], self.examples.negatives[i]))
            asked = [self.queries[i].tolist()] * len(group)
            scores = objective.model.scores(asked, self.passages.take(np.asarray(group)).to_lists())
            run[query] = {self.examples.passages[p]: float(s) for p, s in zip(group, scores)}
        return evaluate([block_from_mapping(run)], self.judgements, self.measures).means()


QueryPassages = tuple[Query, Sequence[Passage]]
Scorer = Callable[[Sequence[QueryPassages]], list[NDArray[np.float32]]]
T = TypeVar("T")
AT_ONCE = 64
"""Queries scored together, so that rows are full and memory does not grow with the run."""


def scorer(models: Sequence[CrossEncoder], title: Title | None = None) -> Scorer:
    """The mean of the models' scores of each query's passages; titles as each model was trained, unless given."""

    def score(asked: Sequence[QueryPassages]) -> list[NDArray[np.float32]]:
        flat = np.mean([_flat(model, asked, title) for model in models], axis=0, dtype=np.float32)
        return np.split(flat, np.cumsum([len(passages) for _, passages in asked])[:-1])

    return score


def _flat(model: CrossEncoder, asked: Sequence[QueryPassages], title: Title | None) -> NDArray[np.float32]:
    """Scores of all pairs, query after query."""
    query_layout, passage_layout = model.layouts(title)
    queries = query_layout.lists([query for query, _ in asked])
    passages = passage_layout.lists([passage for _, some in asked for passage in some])
    return model.scores([ids for ids, (_, some) in zip(queries, asked) for _ in some], passages)


def rerank(
    hits: Iterable[Hit],
    depth: int,
    score: Scorer,
    query_of: Callable[[str], Query],
    passage_of: Callable[[str], Passage],
) -> Iterator[Hit]:
    """The hits of each query (which lie together), the first `depth` in the order of their new scores."""
    ranked = (sorted(found, key=lambda hit: hit.rank) for found in by_query(hits))
    for some in _batched(ranked):
        asked = [(query_of(r[0].query), [passage_of(hit.passage) for hit in r[:depth]]) for r in some]
        for found, values in zip(some, score(asked)):
            yield from _reordered(found, values)


def _reordered(ranked: Sequence[Hit], values: NDArray[np.float32]) -> Iterator[Hit]:
    """The first hits by their new scores; the others keep their order below them."""
    scored = [(ranked[i].passage, float(values[i])) for i in np.argsort(-values, kind="stable")]
    floor = scored[-1][1]
    scored += [(hit.passage, floor - place) for place, hit in enumerate(ranked[len(values) :], 1)]
    for rank, (passage, value) in enumerate(scored, 1):
        yield Hit(ranked[0].query, passage, value, rank)


def soft_labels(
    groups: Iterable[Group],
    score: Scorer,
    query_of: Callable[[str], Query],
    passage_of: Callable[[str], Passage],
) -> Iterator[Group]:
    """Groups with the scores of all their passages."""
    for some in _batched(groups):
        asked = [(query_of(g.query), [passage_of(i) for i in (*g.positives, *g.negatives)]) for g in some]
        for group, found in zip(some, score(asked)):
            values, cut = found.tolist(), len(group.positives)
            yield replace(group, positive_scores=tuple(values[:cut]), negative_scores=tuple(values[cut:]))


def _batched(items: Iterable[T]) -> Iterator[list[T]]:
    stream = iter(items)
    while some := list(islice(stream, AT_ONCE)):
        yield some
