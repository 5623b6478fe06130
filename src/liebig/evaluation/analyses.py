"""What the `liebig analyse` commands compute: CLS attention, neighbourhood recall, the shape of a vector space.

The measures are functions on arrays; each cites its source. Below them are the functions that read models, runs and
texts for them. None of the measures replaces a retrieval measure: they describe how a space fails, not how well it
searches.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from liebig.base.errors import RecipeError
from liebig.base.records import Document, Passage
from liebig.base.rng import key, mix
from liebig.base.workspace import Folder
from liebig.collection.collection import Collection
from liebig.evaluation.answer_accuracy import ranked_in
from liebig.evaluation.encoders import ModelScorer
from liebig.evaluation.runs import needed_run
from liebig.evaluation.scoring import system_name
from liebig.evaluation.tables import markdown, rich_table, show
from liebig.evaluation.tasks import Task
from liebig.formats import detect
from liebig.formats.items import Options
from liebig.model.packed import Packed
from liebig.vectors.topk import topk

# CLS attention by layer (Condenser, Section 5 and Fig. 2; after Clark et al. 2019): the entropy of the attention from
# position 0 to all positions, averaged over heads and texts. High is broad, low is focused. A model whose curve hardly
# moves in fine-tuning was structurally ready. Shapes: L layers, H heads, T tokens of one text.

Floats = NDArray[np.floating]


@dataclass(frozen=True, eq=False)
class Curve:
    """Entropy per layer in nats: mean over texts, its standard error, and the share of the largest possible."""

    mean: NDArray[np.float64]
    error: NDArray[np.float64]
    relative: NDArray[np.float64]
    texts: int


def cls_entropy(attention_LHTT: Floats) -> NDArray[np.float64]:
    """Per layer: -sum p log p of the first row, mean over heads."""
    rows = np.asarray(attention_LHTT[:, :, 0, :], dtype=np.float64)
    logs = np.log(rows, out=np.zeros_like(rows), where=rows > 0)
    return -(rows * logs).sum(axis=-1).mean(axis=1)


def average(attentions: Iterable[Floats]) -> Curve:
    """The curve of a model from the attention of each text."""
    entropies, relative = [], []
    for attention_LHTT in attentions:
        entropy = cls_entropy(attention_LHTT)
        entropies.append(entropy)
        relative.append(entropy / max(np.log(attention_LHTT.shape[-1]), 1e-12))
    values = np.stack(entropies)
    spread = values.std(axis=0, ddof=1) if len(values) > 1 else np.zeros(values.shape[1])
    return Curve(
        values.mean(axis=0), spread / np.sqrt(len(values)), np.stack(relative).mean(axis=0), len(values)
    )


def movement(before: Curve, after: Curve) -> float:
    """Mean over layers of how far the entropy moved, in nats: what fine-tuning had to change."""
    assert before.mean.shape == after.mean.shape
    return float(np.abs(after.mean - before.mean).mean())


# Neighbourhood recall between two retrievers (coCondenser, Eq. 17 and Fig. 3), averaged over queries:
#
#     nb-recall^n@k = |top k of the first ∩ top n of the second| / n
#
# With the retrievers of training stages one and two, it measures how many of the negatives that stage two trains with
# the first retriever already finds.

Ranked = Mapping[str, Sequence[str]]


def nb_recall(first: Sequence[str], second: Sequence[str], n: int, ks: Sequence[int]) -> NDArray[np.float64]:
    """Of one query, for each k. A second retriever with fewer than n hits is still divided by n, as in the equation."""
    place = {passage: rank for rank, passage in enumerate(first, 1)}
    ranks = np.array([place.get(passage, len(first) + max(ks) + 1) for passage in second[:n]], dtype=np.int64)
    return np.array([np.sum(ranks <= k) / n for k in ks], dtype=np.float64)


def curve(first: Ranked, second: Ranked, n: int, ks: Sequence[int]) -> NDArray[np.float64]:
    """Queries × ks, over the queries that the second retriever has; one the first has not counts with 0."""
    return np.stack([nb_recall(first.get(query, ()), hits, n, ks) for query, hits in second.items()])


T = TypeVar("T")


def draw(items: Iterable[T], count: int, seed: int) -> list[T]:
    """`count` items of a stream, each equally likely, in the order of the stream; a function of seed and places."""
    stream = ((int(mix(key(seed), place)), place, item) for place, item in enumerate(items))
    chosen = heapq.nsmallest(count, stream, key=lambda entry: entry[:2])
    return [item for _, _, item in sorted(chosen, key=lambda entry: entry[1])]


def section_texts(path: Path) -> Iterator[str]:
    """The sections of a source's documents, or its passages where it has no documents."""
    for record in records(path):
        if isinstance(record, Document):
            for section in record.sections:
                text = " ".join(section.paragraphs).strip()
                if text:
                    yield text
        elif isinstance(record, Passage) and record.text.strip():
            yield record.text


def named_texts(path: Path) -> Iterator[tuple[str, str]]:
    """Every document or passage with its id."""
    for record in records(path):
        if isinstance(record, Document | Passage):
            yield record.id, f"{record.title} {record.text}"


def records(path: Path) -> Iterator[object]:
    """Documents, or passages where there are none, of a collection or anything that can be read."""
    found = detect(path)
    if [one.format.name for one in found] == ["collection"]:
        collection = Collection(path)
        yield from collection.documents() if collection.has("documents") else collection.passages()
        return
    for one in found:
        for item in one.items(Options()):
            yield item.record


def system_names(paths: Sequence[Path], given: Sequence[str]) -> list[str]:
    """The names given, else those of the files; they must differ."""
    names = list(given) or [system_name(path) for path in paths]
    if len(names) != len(paths) or len(set(names)) != len(names):
        raise RecipeError(
            f"{len(paths)} systems need as many different names, not {names}", fix="give names=[...]"
        )
    return names


def _ranked(path: Path, depth: int) -> dict[str, list[str]]:
    return ranked_in(needed_run(path), depth)


def _origins(names: Sequence[str], given: Sequence[str]) -> dict[str, str]:
    """The model each was fine-tuned from, for those that have one."""
    if given and len(given) != len(names):
        raise RecipeError(
            f"{len(given)} origins for {len(names)} models", fix=("give one origin per model, - for none")
        )
    found = {name: origin for name, origin in zip(names, given) if origin != "-"}
    for origin in found.values():
        if origin not in names:
            raise RecipeError(f"no model is called {origin!r}", fix="use one of " + ", ".join(names))
    for name in found:
        _root(name, found)
    return found


def _root(name: str, origins: dict[str, str]) -> str:
    """The model that a chain of fine-tuning began with."""
    seen = [name]
    while seen[-1] in origins:
        seen.append(origins[seen[-1]])
        if seen[-1] in seen[:-1]:
            raise RecipeError(f"the origins form a cycle: {', '.join(seen)}", fix="give - to the first model")
    return seen[-1]


def _write_table(folder: Folder, name: str, header: list[str], rows: list[list[str]], left: int = 2) -> None:
    folder.write_text(name, markdown(header, rows, left=left))
    show(rich_table("", header, rows, left=left))


# The shape of a vector space. Arrays are N × D; sums over all pairs are computed in tiles, so that N = 50,000 needs
# 0.1 GB instead of 20.

TILE = 2048


@dataclass(frozen=True, slots=True)
class Hubness:
    """How unevenly passages are found: skewness of the k-occurrence, share never found, largest share of finds."""

    skewness: float
    never: float
    largest: float


def unit(vectors_ND: Floats) -> NDArray[np.float64]:
    """Vectors of length 1; zero vectors stay zero."""
    vectors = np.asarray(vectors_ND, dtype=np.float64)
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.divide(vectors, norms, out=np.zeros_like(vectors), where=norms > 0)


def alignment(a_ND: Floats, b_ND: Floats, alpha: float = 2.0) -> float:
    """Mean distance of positive pairs on the sphere, to the power alpha (Wang and Isola 2020). Lower is nearer."""
    distances = np.linalg.norm(unit(a_ND) - unit(b_ND), axis=1)
    return float(np.mean(distances**alpha))


def uniformity(vectors_ND: Floats, t: float = 2.0) -> float:
    """log of the mean of exp(-t · squared distance) over all pairs on the sphere (Wang and Isola 2020).

    Lower is more even.
    """
    x = unit(vectors_ND)
    assert len(x) > 1
    total = sum(float(np.exp(2 * t * (tile - 1)).sum()) for tile in _upper_tiles(x))
    return float(np.log(total / (len(x) * (len(x) - 1) / 2)))


def mean_cosine(vectors_ND: Floats) -> float:
    """Mean cosine of all pairs (Ethayarajh 2019): 0 for directions spread evenly, near 1 for a narrow cone."""
    x = unit(vectors_ND)
    n = len(x)
    together = x.sum(axis=0)
    return float((together @ together - np.einsum("nd,nd->", x, x)) / (n * (n - 1)))


def isotropy(vectors_ND: Floats) -> float:
    """Least over largest partition function along the principal directions (Mu and Viswanath 2018): 1 is isotropic."""
    x = unit(vectors_ND)
    _, directions = np.linalg.eigh(x.T @ x)
    totals = np.exp(x @ directions).sum(axis=0)
    negative = np.exp(-(x @ directions)).sum(axis=0)
    both = np.concatenate([totals, negative])
    return float(both.min() / both.max())


def spectrum(vectors_ND: Floats) -> NDArray[np.float64]:
    """Share of the variance along each principal direction, descending."""
    x = np.asarray(vectors_ND, dtype=np.float64)
    x = x - x.mean(axis=0)
    values = np.clip(np.linalg.eigvalsh(x.T @ x)[::-1], 0, None)
    return values / values.sum() if values.sum() > 0 else values


def participation_ratio(shares: NDArray[np.float64]) -> float:
    """Effective dimension as (sum)^2 / sum of squares of the variances."""
    return float(shares.sum() ** 2 / (shares**2).sum()) if shares.sum() > 0 else 0.0


def effective_rank(shares: NDArray[np.float64]) -> float:
    """Effective dimension as exp of the spectrum's entropy (Roy and Vetterli 2007)."""
    kept = shares[shares > 0]
    return float(np.exp(-(kept * np.log(kept)).sum())) if kept.size else 0.0


def k_occurrence(neighbours_QK: NDArray[np.integer], passages: int) -> NDArray[np.int64]:
    """How often each passage is among the k found (Radovanović et al. 2010)."""
    return np.bincount(neighbours_QK[neighbours_QK >= 0], minlength=passages).astype(np.int64)


def hubness(counts: NDArray[np.integer]) -> Hubness:
    """The skewness of the k-occurrence, and its two ends."""
    values = counts.astype(np.float64)
    deviation = values.std()
    skewness = float(np.mean((values - values.mean()) ** 3) / deviation**3) if deviation > 0 else 0.0
    return Hubness(skewness, float(np.mean(values == 0)), float(values.max() / max(values.sum(), 1)))


def _upper_tiles(x_ND: NDArray[np.float64]) -> Iterator[NDArray[np.float64]]:
    """Cosines of all pairs i < j, a tile at a time."""
    for a in range(0, len(x_ND), TILE):
        for b in range(a, len(x_ND), TILE):
            tile = x_ND[a : a + TILE] @ x_ND[b : b + TILE].T
            yield tile[np.triu_indices(len(tile), 1)] if a == b else tile


DEEPER = 16


@torch.inference_mode()
def attentions(
    model: Path, texts: Sequence[str], max_length: int, device: str
) -> Iterator[NDArray[np.float32]]:
    """Attention probabilities of each text, layers × heads × tokens × tokens, a few texts at a time."""
    scorer = ModelScorer(model, device, depth=1)
    encoder = scorer.encoder
    encoder.max_length = min(encoder.max_length, max_length)
    for first in range(0, len(texts), DEEPER):
        packed = Packed.from_lists(encoder.tokenize(texts[first : first + DEEPER])).to(scorer.device)
        for attention in encoder.backbone.attentions(packed):
            yield attention.float().cpu().numpy()


def describe_space(
    model: Path, task: Task, passages: Sequence[Passage], k: int, device: str
) -> dict[str, float]:
    """The numbers of one encoder's space over some passages and, where there are any, the task's positive pairs."""
    scorer = ModelScorer(model, device, depth=k)
    vectors = scorer.embed(passages, "passage")
    queries, relevant = _positive_pairs(scorer, task)
    shares = spectrum(vectors)
    hubs = hubness(k_occurrence(_neighbours(vectors, k, scorer.device), len(vectors)))
    return ({"alignment": alignment(queries, relevant)} if len(queries) else {}) | {
        "uniformity": uniformity(vectors),
        "mean cosine": mean_cosine(vectors),
        "isotropy": isotropy(vectors),
        "participation ratio": participation_ratio(shares),
        "effective rank": effective_rank(shares),
        "hubness skewness": hubs.skewness,
        "share never found": hubs.never,
        "largest share of finds": hubs.largest,
    }


def _neighbours(vectors_ND: NDArray[np.float32], k: int, device: torch.device) -> NDArray[np.int64]:
    """The k nearest other vectors of each, by inner product."""
    _, found = topk(vectors_ND, vectors_ND, k + 1, device=device)
    others = found != np.arange(len(found))[:, None]
    others[others.all(axis=1), -1] = False
    return found[others].reshape(len(found), -1)


def _positive_pairs(scorer: ModelScorer, task: Task) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Vectors of queries and of a relevant passage of each."""
    assert task.judgements is not None
    best = {name: _best(task.judgements.grades(name)) for name in task.queries}
    named = set(best.values())
    passages = {passage.id: passage for passage in task.passages() if passage.id in named}
    pairs = [(query, best[name]) for name, query in task.queries.items() if best[name] in passages]
    used = dict.fromkeys(name for _, name in pairs)
    vectors = dict(zip(used, scorer.embed([passages[name] for name in used], "passage")))
    asked = scorer.embed([query for query, _ in pairs], "query")
    return asked, np.stack([vectors[name] for _, name in pairs]) if pairs else asked


def _best(grades: dict[str, int]) -> str:
    return max((p for p, grade in grades.items() if grade > 0), key=lambda p: (grades[p], p), default="")
