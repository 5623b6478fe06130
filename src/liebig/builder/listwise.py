"""Training without labels and without a teacher: an encoder learns how its own hybrid with BM25 ranks cut queries.

    work/drills          queries cut from the corpus, and the passages with what was cut taken out of them
    work/drills-bm25, work/drills-vectors                 both indexes of those passages
    work/ranked          for every query, the hybrid's best passages with their scores, as groups for `liebig finetune`
    work/distilled       the encoder after listwise distillation, with a small contrastive term beside it

The passages of half of the documents have no titles, and only those are asked for by title or heading, which would be
too easy otherwise. A candidate that nearly repeats a passage the query is about is left out. One that the hybrid ranks
above it is kept for its score, and judged relevant, so that the contrastive term does not push it away. Cost: the
start on every passage and query, one search by each index.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from pydantic import Field

from liebig.base.config import Config, InputPath
from liebig.base.errors import DataError
from liebig.base.pipeline import Stage
from liebig.base.progress import track
from liebig.base.records import Group, Judgement, Passage, Query
from liebig.base.workspace import Folder
from liebig.bm25.analysis import Analyzer, language_name
from liebig.builder.lessons import read_sections
from liebig.builder.pseudo_queries import pseudo_queries
from liebig.builder.questions import Question, bare
from liebig.collection.collection import Collection
from liebig.collection.lookup import hash64
from liebig.collection.writer import CollectionWriter
from liebig.evaluation.label_origin import GENERATION
from liebig.formats.items import Item, Where
from liebig.formats.output import json_line, write_lines
from liebig.search.mine import nearly, triples, words
from liebig.search.systems import open_system, weighted_by

SPLIT = "train"
QUERIES = 20_000  # at most
KINDS = ("title", "question", "keywords", "claim", "span")
TITLED = 0.5  # share of the documents whose passages keep their titles
WEIGHT = 0.5  # of BM25 in the hybrid that teaches
DEPTH = 100  # passages of each index that are fused
KEEP = 24  # candidates of a query
DUPLICATE = 0.8  # share of word triples that makes a candidate the same text as a positive
TOGETHER = 256  # queries searched at once


class DrillsConfig(Config):
    """Queries cut from a corpus, and the passages they are asked against."""

    collection: InputPath = Field(description="The whole collection, with its sections.")
    passages: InputPath = Field(description="A collection of the passages that may be trained on.")
    language: str = Field("en", description="Language of the texts.")
    most: int = Field(QUERIES, ge=1, description="Maximum number of queries.")
    seed: int = Field(0, ge=0, description="Draws them.")


def write_drills(config: DrillsConfig, folder: Folder) -> None:
    """Write queries, what they are about, and all passages as they are asked."""
    known = list(Collection(config.passages).passages())
    titled = {p.id for p in known if hash64(f"{config.seed} {p.doc or p.id}") < TITLED * 2**64}
    made = pseudo_queries(
        known, read_sections(config.collection), Analyzer(language_name(config.language)), config.seed
    )
    kept = sorted(_asked(made, titled), key=lambda q: hash64(f"{config.seed} {q.text}"))[: config.most]
    cuts = {question.passages[0]: question.cut for question in kept if question.cut}
    where = Where(str(config.passages))
    with CollectionWriter(folder.path) as writer:
        for passage in known:
            writer.add(Item(as_asked(passage, cuts.get(passage.id, ""), passage.id in titled), where))
        for number, question in enumerate(kept):
            writer.add(Item(Query(str(number), question.text), where, SPLIT))
            for id in question.passages:
                writer.add(Item(Judgement(str(number), id, 1), where, SPLIT))
    write_lines(folder.path / GENERATION, [json_line({"of_the_corpus": True})])


def _asked(questions: Iterable[Question], titled: set[str]) -> Iterator[Question]:
    """The queries that do not find their own title in the passage."""
    for question in questions:
        by_title = question.kind in ("title", "question")
        if question.kind in KINDS and not (by_title and titled.intersection(question.passages)):
            yield question


def as_asked(passage: Passage, cut: str, titled: bool) -> Passage:
    """A passage without what a query took from it, and without its title unless it keeps that."""
    without = bare(passage, [cut] if cut else [])
    return Passage(without.id, without.text, passage.title if titled else "", without.doc)


class RankedConfig(Config):
    """The best passages of every query by BM25 and an encoder together."""

    drills: InputPath = Field(description="What the drills stage wrote.")
    bm25: InputPath = Field(description="BM25 index of its passages.")
    vectors: InputPath = Field(description="Vectors of its passages by the encoder.")
    weight: float = Field(WEIGHT, ge=0, le=1, description="BM25's weight in the hybrid.")
    keep: int = Field(KEEP, ge=1, description="Candidates of a query.")


def write_ranked(config: RankedConfig, folder: Folder) -> None:
    """Write the same collection with groups: positives, candidates, and the hybrid's scores of both."""
    drills = Collection(config.drills)
    about: dict[str, list[str]] = {}
    for judgement in drills.judgements(SPLIT):
        about.setdefault(judgement.query, []).append(judgement.passage)
    queries = list(drills.queries(SPLIT))
    texts = {passage.id: passage.text for passage in drills.passages()}
    where = Where(str(config.drills))
    systems = [open_system(config.bm25), open_system(config.vectors)]
    fuse = weighted_by(config.weight, "minmax")
    with CollectionWriter(folder.path) as writer:
        for passage in drills.passages():
            writer.add(Item(passage, where))
        for begin in track(range(0, len(queries), TOGETHER), "candidates", unit=f"x {TOGETHER} queries"):
            some = queries[begin : begin + TOGETHER]
            hits = zip(*(system.search(some, DEPTH) for system in systems))
            for query, lists in zip(some, hits):
                group, relevant = ranked_group(
                    query.id, about[query.id], dict(fuse(lists)), texts, config.keep
                )
                if not group.negatives:
                    continue
                writer.add(Item(query, where, SPLIT))
                writer.add(Item(group, where, SPLIT))
                for id in relevant:
                    writer.add(Item(Judgement(query.id, id, 1), where, SPLIT))
    if not writer.counts[f"groups/{SPLIT}"]:
        raise DataError("no query has a candidate", file=config.drills, fix="build with --minutes 0")
    write_lines(folder.path / GENERATION, [json_line({"of_the_corpus": True})])


def ranked_group(
    query: str, about: Sequence[str], scores: Mapping[str, float], texts: Mapping[str, str], keep: int
) -> tuple[Group, list[str]]:
    """The group of a query, and all that must not be pushed away from it.

    The positive is the passage the query is about that the hybrid likes best. Of the others, those that nearly repeat
    it are left out, and those with a higher score are relevant.
    """
    positive = max(about, key=lambda id: scores.get(id, 0.0))
    own = triples(words(texts[positive]))
    candidates = sorted((id for id in scores if id not in about), key=lambda id: -scores[id])
    kept: list[str] = []
    copies: list[str] = []
    for id in candidates:
        if len(kept) == keep:
            break
        found = words(texts[id])
        (copies if nearly(found, own, DUPLICATE) else kept).append(id)
    level = scores.get(positive, 0.0)
    above = [id for id in kept if scores[id] > level]
    group = Group(query, (positive,), tuple(kept), (level,), tuple(scores[id] for id in kept))
    return group, [*about, *copies, *above]


STAGES = (
    Stage("drills", DrillsConfig, write_drills, part_of="build"),
    Stage("ranked", RankedConfig, write_ranked, part_of="build"),
)
