"""Training without labels and without a teacher: an encoder learns how its own hybrid with BM25 ranks cut queries.

    work/drills          queries cut from the corpus, with the passage that each is about
    work/drills-bm25, work/drills-vectors                 both indexes of the passages
    work/ranked          for every query, the hybrid's best passages with their scores, as groups for `liebig finetune`

Half of the queries are a title with a few words of the text, the others sentences and keywords. The passage that a
query was cut from gets BONUS on its score: what the hybrid finds by words and by meaning is right more often than not,
and that one is right for sure. A query whose passage the hybrid does not find among its first FOUND says too little and
is left out, and so is a candidate that nearly repeats the passage. The encoder goes half of the way to what it learns
(`training.py`): all of the way did harm on two of three dev sets.

It pays where people ask in the words of the texts: +.003 to +.015 nDCG@10 in every build about MedQuAD and SQuAD, but
-.002 to -.015 on questions typed into a search engine, so a build does it only on request (`training.may_train`). Where
each passage has a title of its own, the title alone finds it, and the encoder learns to look at titles: -.002 to -.017
in every build about SciFact and Cranfield; `tells_apart` leaves those out. Cost: the start on every passage and query,
one search by each index.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import islice

from pydantic import Field

from liebig.base.config import Config, InputPath
from liebig.base.machine import chosen, threads
from liebig.base.pipeline import Stage
from liebig.base.progress import Progress
from liebig.base.records import Group, Judgement, Passage, Query
from liebig.base.workspace import Folder
from liebig.bm25.analysis import Analyzer, language_name
from liebig.builder.pseudo_queries import cut_queries
from liebig.collection import Collection
from liebig.collection.writer import CollectionWriter
from liebig.formats.items import Item, Where
from liebig.formats.output import json_line, write_lines
from liebig.indexes import open_index
from liebig.queries.labelled_pairs import GENERATION
from liebig.search.mine import triples, words
from liebig.search.systems import QueryEncoder, of_texts, open_system, weighted_by

SPLIT = "train"
QUERIES = 10_000  # at most; training sees 7,200 of those that find their passage
SHARES = {"titled": 0.5, "sentence": 0.3, "keywords": 0.2}  # of the queries, by kind
WEIGHT = 0.5  # of BM25 in the hybrid that teaches
BONUS = 0.3  # on the score, from 0 to 1, of the passage that a query is about
FOUND = 20  # hits among which that passage must be
DEPTH = 100  # passages of each index that are fused
CANDIDATES = 15  # of a query, beside its passage
SEVERAL = 0.5  # share of the passages that have their title in common with others
DUPLICATE = 0.8  # share of word triples that makes a candidate the same text as the passage
TOGETHER = 256  # queries searched at once


def tells_apart(passages: Iterable[Passage]) -> bool:
    """Whether titles are shared by several passages, so that queries with a title teach more than titles."""
    counts = Counter(passage.title for passage in passages)
    having = sum(count for title, count in counts.items() if title and count > 1)
    return having >= SEVERAL * max(1, counts.total())


class DrillsConfig(Config):
    """Queries cut from a corpus, and the passages they are asked against."""

    passages: InputPath = Field(description="A collection of the passages that may be trained on.")
    language: str = Field("en", description="Language of the texts.")
    most: int = Field(QUERIES, ge=1, description="Maximum number of queries.")
    seed: int = Field(0, ge=0, description="Draws them.")


def write_drills(config: DrillsConfig, folder: Folder) -> None:
    """Write queries, what they are about, and all passages."""
    known = list(Collection(config.passages).passages())
    analyzer = Analyzer(language_name(config.language))
    where = Where(str(config.passages))
    with CollectionWriter(folder.path) as writer:
        for passage in known:
            writer.add(Item(passage, where))
        for number, question in enumerate(cut_queries(known, analyzer, SHARES, config.most, config.seed)):
            writer.add(Item(Query(str(number), question.text), where, SPLIT))
            writer.add(Item(Judgement(str(number), question.passages[0], 1), where, SPLIT))
    write_lines(folder.path / GENERATION, [json_line({"of_the_corpus": True})])


class RankedConfig(Config):
    """The best passages of every query by BM25 and an encoder together."""

    drills: InputPath = Field(description="What the drills stage wrote.")
    bm25: InputPath = Field(description="BM25 index of its passages.")
    vectors: InputPath = Field(description="Vectors of its passages by the encoder.")


def write_ranked(config: RankedConfig, folder: Folder) -> None:
    """Write the same collection with groups: a query's passage, its candidates, and the hybrid's scores of both."""
    drills = Collection(config.drills)
    about = {judgement.query: judgement.passage for judgement in drills.judgements(SPLIT)}
    queries = list(drills.queries(SPLIT)) if about else []
    texts = {passage.id: passage.text for passage in drills.passages()}
    where = Where(str(config.drills))
    device = chosen(None)
    index = open_index(config.vectors, device=device)
    # In float32 on a GPU too: the scores of a hybrid are close to each other.
    systems = [
        open_system(config.bm25, threads=threads()),
        of_texts(index, QueryEncoder(index, device=device, half=False)),
    ]
    fuse = weighted_by(WEIGHT, "minmax")
    with CollectionWriter(folder.path) as writer, Progress("candidates", len(queries), "queries") as bar:
        for passage in drills.passages():
            writer.add(Item(passage, where))
        for begin in range(0, len(queries), TOGETHER):
            some = queries[begin : begin + TOGETHER]
            hits = zip(*(system.search(some, DEPTH) for system in systems))
            for query, lists in zip(some, hits):
                group = ranked_group(query.id, about[query.id], dict(fuse(lists)), texts)
                if group is not None:
                    writer.add(Item(query, where, SPLIT))
                    writer.add(Item(group, where, SPLIT))
                    writer.add(Item(Judgement(query.id, about[query.id], 1), where, SPLIT))
            bar.advance(len(some))
    write_lines(folder.path / GENERATION, [json_line({"of_the_corpus": True})])


@lru_cache(maxsize=1 << 17)
def marks(text: str) -> array[int]:
    """The hashes of three words in a row, all of them: some kilobytes, because candidates come again and again."""
    return array("q", map(hash, triples(words(text))))


def repeats(text: str, own: frozenset[int]) -> bool:
    """Whether a text has nearly the same triples as another one: at least DUPLICATE of the smaller set."""
    found = marks(text)
    smaller = min(len(found), len(own))
    # Most texts share next to nothing: enough triples that the other one lacks say so, and the rest is not looked at.
    enough = len(found) - int(DUPLICATE * smaller) + 1
    if smaller == 0 or own.isdisjoint(found[:enough]):
        return False
    return len(own.intersection(found)) / smaller >= DUPLICATE


def ranked_group(
    query: str, about: str, scores: Mapping[str, float], texts: Mapping[str, str]
) -> Group | None:
    """The group of a query; None where the hybrid does not find what it is about, or nothing beside it."""
    level = scores.get(about)
    if level is None or sum(score > level for score in scores.values()) >= FOUND:
        return None
    own = frozenset(marks(texts[about]))
    ordered = sorted((id for id in scores if id != about), key=scores.__getitem__, reverse=True)
    kept = tuple(islice((id for id in ordered if not repeats(texts[id], own)), CANDIDATES))
    if not kept:
        return None
    return Group(query, (about,), kept, (level + BONUS,), tuple(scores[id] for id in kept))


STAGES = (
    Stage("drills", DrillsConfig, write_drills, part_of="build"),
    Stage("ranked", RankedConfig, write_ranked, part_of="build"),
)
