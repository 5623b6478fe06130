"""A set's passages and judged questions, BM25 and an encoder over them, and their hybrid, as plain arrays.

Small corpora only: every query is scored against every passage.
"""

from __future__ import annotations

import json
import lzma
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import Stemmer
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import normalize

from liebig.bm25 import analysis

Floats = NDArray[np.float32]
State = dict[str, Tensor]
WORD = re.compile(r"(?u)\b\w\w+\b")


def rows(path: Path) -> list[dict[str, Any]]:
    """A file of JSON lines, which may be compressed."""
    with (lzma.open if path.suffix == ".xz" else open)(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


class Words:
    """BM25 over a small corpus as one sparse matrix; terms of a text by our stemmer and stop words."""

    def __init__(self, texts: list[str], k1: float = 0.9, b: float = 0.4) -> None:
        stop_words = Path(analysis.__file__).parent / "stop_words.json"
        self.stop = set(json.loads(stop_words.read_text(encoding="utf-8"))["english"])
        self.stemmer = Stemmer.Stemmer("english")
        self.number: dict[str, int] = {}
        terms = [[self.number.setdefault(w, len(self.number)) for w in self.terms(t)] for t in texts]
        lengths = np.array([len(t) for t in terms])
        weights = self._counts(terms)
        frequency = np.bincount(weights.indices, minlength=len(self.number))
        self.idf = np.log(1 + (len(texts) - frequency + 0.5) / (frequency + 0.5))
        row = np.repeat(np.arange(len(texts)), np.diff(weights.indptr))
        saturation = k1 * (1 - b + b * lengths[row] / lengths.mean())
        weights.data = weights.data / (weights.data + saturation) * self.idf[weights.indices]
        self.weights = weights.astype(np.float32)

    def terms(self, text: str) -> list[str]:
        return list(self.stemmer.stemWords([w for w in WORD.findall(text.lower()) if w not in self.stop]))

    def _counts(self, terms: list[list[int]]) -> Any:
        lengths = [len(t) for t in terms]
        columns = np.fromiter((number for t in terms for number in t), np.int64, sum(lengths))
        places = (np.repeat(np.arange(len(terms)), lengths), columns)
        return sp.coo_matrix((np.ones(len(columns)), places), (len(terms), len(self.number))).tocsr()

    def scores(self, queries: list[str]) -> Floats:
        terms = [[self.number[w] for w in self.terms(q) if w in self.number] for q in queries]
        return np.asarray((self._counts(terms) @ self.weights.T).todense(), np.float32)


@dataclass
class Corpus:
    """A set's passages, and the questions of one split with the grades of what answers them."""

    name: str
    ids: list[str]
    titles: list[str]
    texts: list[str]
    questions: list[str]
    relevant: list[dict[int, int]]

    @classmethod
    def read(cls, data: Path, name: str, split: str) -> Corpus:
        corpus = rows(data / name / "corpus.jsonl.xz")
        ids = [row["_id"] for row in corpus]
        place = {id: number for number, id in enumerate(ids)}
        texts = {row["_id"]: row["text"] for row in rows(data / name / "queries.jsonl.xz")}
        grades: dict[str, dict[int, int]] = {}
        for line in (data / name / "qrels" / f"{split}.tsv").read_text(encoding="utf-8").splitlines()[1:]:
            query, passage, grade = line.split("\t")[:3]
            if int(grade) > 0 and passage in place:
                grades.setdefault(query, {})[place[passage]] = int(grade)
        titles = [row["title"] for row in corpus]
        questions = [texts[query] for query in grades]
        return cls(name, ids, titles, [row["text"] for row in corpus], questions, list(grades.values()))

    @cached_property
    def whole(self) -> list[str]:
        return [f"{title} {text}".strip() for title, text in zip(self.titles, self.texts)]

    @cached_property
    def words(self) -> Words:
        return Words(self.whole)

    def ndcg(self, scores: Tensor, k: int = 10) -> Floats:
        top = scores.topk(min(k, scores.shape[1]), dim=1).indices.cpu().numpy()
        discount = 1 / np.log2(np.arange(2, k + 2))
        values = []
        for hits, grades in zip(top, self.relevant):
            gain = np.array([grades.get(int(hit), 0) for hit in hits], float)
            best = np.sort(np.array(list(grades.values()), float))[::-1][:k]
            values.append((gain * discount[: len(gain)]).sum() / (best * discount[: len(best)]).sum())
        return np.array(values, np.float32)


def spread(scores: Tensor, n: int = 100) -> Tensor:
    """Min-max over the best n of each query; 0 below."""
    best = scores.topk(min(n, scores.shape[1]), dim=1).values
    low, high = best[:, -1:], best[:, :1]
    return ((scores - low) / (high - low).clamp_min(1e-9)).clamp_min(0)


def hybrid(weights: Iterable[float], *scores: Tensor) -> Tensor:
    return torch.stack([weight * spread(part) for weight, part in zip(weights, scores)]).sum(dim=0)


def best_per_owner(queries: Tensor, vectors: Tensor, owners: Tensor, count: int) -> Tensor:
    """The highest cosine among the vectors of each owner; -1 for owners without any."""
    best = torch.full((len(queries), count), -1.0, device=queries.device)
    for at in range(0, len(queries), 200):
        cosines = queries[at : at + 200] @ vectors.T
        columns = owners[None].expand_as(cosines)
        best[at : at + 200] = best[at : at + 200].scatter_reduce(1, columns, cosines, "amax")
    return best


class Encoder:
    """A sentence-transformers folder; forward passes in bf16 on a GPU."""

    def __init__(self, folder: Path, device: str, length: int) -> None:
        from sentence_transformers import SentenceTransformer

        self.model = SentenceTransformer(str(folder), device=device)
        self.device = device
        self.length = min(length, self.model.max_seq_length or length)

    def state(self) -> State:
        return {name: value.detach().clone() for name, value in self.model.state_dict().items()}

    def tokens(self, texts: list[str]) -> list[list[int]]:
        return list(self.model.tokenizer(texts, truncation=True, max_length=self.length)["input_ids"])

    def forward(self, tokens: list[list[int]]) -> Tensor:
        longest = -(-max(map(len, tokens)) // 8) * 8
        pad = self.model.tokenizer.pad_token_id
        ids = torch.tensor([t + [pad] * (longest - len(t)) for t in tokens]).to(self.device)
        lengths = torch.tensor([len(t) for t in tokens]).to(self.device)
        mask = (torch.arange(longest, device=self.device)[None] < lengths[:, None]).long()
        with torch.autocast(self.device, torch.bfloat16, enabled=self.device == "cuda"):
            out = self.model({"input_ids": ids, "attention_mask": mask})
        return normalize(out["sentence_embedding"].float(), dim=1)

    @torch.no_grad()
    def encode(self, tokens: list[list[int]], budget: int = 262_144) -> Tensor:
        order = sorted(range(len(tokens)), key=lambda i: len(tokens[i]))
        batches = [list[int]()]
        for i in order:
            if batches[-1] and (len(batches[-1]) + 1) * (len(tokens[i]) + 8) > budget:
                batches.append([])
            batches[-1].append(i)
        vectors = torch.cat([self.forward([tokens[i] for i in batch]) for batch in batches])
        return torch.empty_like(vectors).index_copy_(0, torch.tensor(order, device=self.device), vectors)
