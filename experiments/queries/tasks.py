"""What pre-trained models are tuned and tested on, as arrays: everything tokenised once, BM25's negatives drawn once.

SQuAD and MedQuAD are searched together, in all their passages; SciFact in its own. A task is one compressed file of a
few megabytes: tokens of passages and questions, which passages are relevant, negatives of the training questions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from liebig.base import rng
from liebig.base.records import Query
from liebig.bm25.search import BM25
from liebig.collection import Collection
from liebig.measures import parse
from liebig.measures.evaluator import (
    block_from_matrix as from_matrix,
    evaluate,
    judgements_from_mapping as from_mapping,
)
from liebig.methods.labelled import Examples
from liebig.model.encoder import Encoder
from liebig.ragged import Ragged
from liebig.text.layout import RoleLayout
from liebig.text.tokenizer import Tokenizer
from liebig.vectors.topk import topk

Longs, Floats, Values = NDArray[np.int64], NDArray[np.float32], NDArray[np.float64]
MEASURES = ("nDCG@10", "RR@10", "R@100")
QUERY, PASSAGE = 32, 128
DEPTH, POOL = 100, 16
"""How deep BM25 looks for negatives, and how many are kept for a question."""


@dataclass(frozen=True)
class Questions:
    """Tokens of questions, the passages relevant to each, and the documents of those."""

    texts: Ragged
    relevant: Ragged
    documents: Longs  # equal for questions whose first relevant passages are of one document

    def __len__(self) -> int:
        return len(self.texts)


@dataclass(frozen=True)
class Task:
    """Passages; training questions with negatives, where there are any; test questions by the name of their set."""

    passages: Ragged
    content: Longs  # equal for passages of equal text
    train: Questions
    negatives: Ragged
    tests: dict[str, Questions]

    def examples(self) -> Examples:
        """The training questions, the first relevant passage of each, and its negatives."""
        relevant = self.train.relevant
        return Examples(
            tuple(map(str, range(len(self.train)))),
            tuple(map(str, range(len(self.passages)))),
            Ragged.from_lists([relevant[i][:1].tolist() for i in range(len(relevant))]),
            self.negatives,
            Ragged.from_lists(
                [sorted(set(self.content[relevant[i]].tolist())) for i in range(len(relevant))]
            ),
            self.content,
            None,
        )

    def vectors(self, encoder: Encoder) -> dict[str, Floats]:
        """Of the passages, under "", and of each test's questions."""
        texts = {"": self.passages, **{name: asked.texts for name, asked in self.tests.items()}}
        return {name: encoder.encode_rows(some) for name, some in texts.items()}

    def values(self, vectors: Mapping[str, Floats], device: torch.device, cosine: bool) -> dict[str, Values]:
        """The measures of every test question by exact search, questions x measures."""
        unit = {
            name: x / np.linalg.norm(x, axis=1, keepdims=True) if cosine else x for name, x in vectors.items()
        }
        ids, found = list(map(str, range(len(self.passages)))), {}
        for name, asked in self.tests.items():
            scores, numbers = topk(unit[name], unit[""], 100, device=device)
            names = list(map(str, range(len(asked))))
            block = from_matrix(names, ids, numbers, scores)
            right = {q: {ids[p]: 1 for p in asked.relevant[i]} for i, q in enumerate(names)}
            found[name] = evaluate([block], from_mapping(right), [parse(m) for m in MEASURES]).values
        return found


def make(
    collections: Mapping[str, Collection], index: BM25 | None, tokenizer: Tokenizer, most: int | None = None
) -> Task:
    """From collections by the names of their sets; with an index of them all, training questions and negatives.

    `most` takes the first passages of each alone, and the questions they answer, to try things out.
    """
    passages = [p for one in collections.values() for p in islice(one.passages(), most)]
    places = {passage.id: i for i, passage in enumerate(passages)}
    shape, asked = RoleLayout(tokenizer, PASSAGE), RoleLayout(tokenizer, QUERY)
    content = np.unique([p.text for p in passages], return_inverse=True)[1].astype(np.int64)
    splits = [_split(one, "train", places) for one in collections.values() if index is not None]
    train = [query for queries, _ in splits for query in queries]
    relevant = [row for _, rows in splits for row in rows]
    documents = [passage.doc or passage.id for passage in passages]

    def questions(queries: Sequence[Query], relevant: Sequence[Sequence[int]]) -> Questions:
        texts = asked.all_ids(queries)
        first = np.unique([documents[row[0]] for row in relevant], return_inverse=True)[1]
        return Questions(texts, Ragged.from_lists(relevant), first.astype(np.int64))

    return Task(
        shape.all_ids(passages),
        content,
        questions(train, relevant),
        Ragged.from_lists([] if index is None else _negatives(train, relevant, places, content, index)),
        {name: questions(*_split(one, "test", places)) for name, one in collections.items()},
    )


def _split(
    collection: Collection, split: str, places: Mapping[str, int]
) -> tuple[list[Query], list[list[int]]]:
    """The judged questions of a split with what is relevant to them."""
    found: dict[str, list[int]] = {}
    for one in collection.judgements(split):
        if one.relevance > 0 and one.passage in places:
            found.setdefault(one.query, []).append(places[one.passage])
    asked = {query.id: query for query in collection.queries() if query.id in found}
    return [asked[name] for name in found], list(found.values())


def _negatives(
    queries: Sequence[Query],
    relevant: Sequence[Sequence[int]],
    places: Mapping[str, int],
    content: Longs,
    index: BM25,
) -> list[list[int]]:
    """Some of BM25's best that do not say what a relevant passage says."""
    order = np.array([places.get(index.id(i), -1) for i in range(len(index))], np.int64)
    found = index.search([query.text for query in queries], DEPTH).numbers
    drawn = []
    for i, (row, known) in enumerate(zip(found, relevant)):
        same = set(content[known].tolist())
        wrong = [p for p in order[row[row >= 0]].tolist() if p >= 0 and int(content[p]) not in same]
        mixed = np.argsort(rng.uniform(rng.key(3, i), np.arange(len(wrong))), kind="stable")
        drawn.append([wrong[j] for j in mixed[:POOL]] or [(known[0] + 1) % len(places)])
    return drawn


def save(task: Task, path: Path) -> None:
    """As one compressed file; tokens in 16 bits, numbers in 32."""
    arrays = {
        "content": task.content,
        **_flat("passages", task.passages, "tokens"),
        **_flat("negatives", task.negatives),
    }
    for name, asked in {"train": task.train, **{f"test:{n}": q for n, q in task.tests.items()}}.items():
        arrays |= {
            **_flat(f"{name}/texts", asked.texts, "tokens"),
            **_flat(f"{name}/relevant", asked.relevant),
        }
        arrays[f"{name}/documents"] = asked.documents
    small = {name: x.astype(np.uint16 if name.endswith("tokens") else np.int32) for name, x in arrays.items()}
    np.savez_compressed(path, **small)


def _flat(name: str, rows: Ragged, values: str = "values") -> dict[str, NDArray[np.generic]]:
    return {f"{name}/{values}": rows.values, f"{name}/offsets": rows.offsets}


def load(path: Path) -> Task:
    """What `save` wrote."""
    kept = dict(np.load(path).items())

    def texts(name: str) -> Ragged:
        return Ragged(kept[f"{name}/tokens"].astype(np.int32), kept[f"{name}/offsets"].astype(np.int64))

    def ragged(name: str) -> Ragged:
        return Ragged(kept[f"{name}/values"].astype(np.int64), kept[f"{name}/offsets"].astype(np.int64))

    def questions(name: str) -> Questions:
        documents = kept[f"{name}/documents"].astype(np.int64)
        return Questions(texts(f"{name}/texts"), ragged(f"{name}/relevant"), documents)

    tests = dict.fromkeys(name.split("/")[0] for name in kept if name.startswith("test:"))
    return Task(
        texts("passages"),
        kept["content"].astype(np.int64),
        questions("train"),
        ragged("negatives"),
        {name.removeprefix("test:"): questions(name) for name in tests},
    )
