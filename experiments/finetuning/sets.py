"""The sets that fine-tuning is compared on: passages, questions, what is relevant, and what BM25 finds for them.

- wiki: SQuAD and Natural Questions over SQuAD's paragraphs and a number of passages of Wikipedia articles. SQuAD is
  judged by its paragraphs. NQ is judged by answer match over all passages: a question is kept where 1 to 20 passages
  have its answer, and its positive for training is the first of them among BM25's 50 best.
- far: the same questions over three times as many passages, where less is found at once.
- medquad, scifact: as they come, with the splits of `experiments/splits.py`.
- cosqa, vaswani, trec-dl21: tests alone, for encoders that were trained on other questions.

What is slow is kept in the working folder, so that a second start goes on.
"""

from __future__ import annotations

import json
import lzma
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

sys.path.append(str(Path(__file__).parents[1]))

import splits

from liebig.base import pipeline
from liebig.base.records import Passage, Query
from liebig.bm25.search import BM25
from liebig.collection import Collection
from liebig.measures.answers import join, token_matcher, tokens
from liebig.stages import STAGES

Longs = NDArray[np.int64]
SPLITS = ("train", "dev", "test")
DEPTH, POSITIVE_DEPTH, MOST_ANSWERS = 100, 50, 20
WORDS = 100
FAR, DISTRACTORS = "far", 150_000
ZERO_SHOT = ("cosqa", "vaswani", "trec-dl21")


@dataclass(frozen=True)
class Split:
    """Questions, the passages relevant to each, and BM25's best, as numbers of passages."""

    queries: Sequence[Query]
    relevant: Sequence[Sequence[int]]
    found: Longs
    scores: NDArray[np.float32]

    def take(self, places: Sequence[int]) -> Split:
        """Some of the questions."""
        return Split(
            [self.queries[i] for i in places],
            [self.relevant[i] for i in places],
            self.found[list(places)],
            self.scores[list(places)],
        )


@dataclass(frozen=True)
class Set:
    """Passages and the splits; test splits have names of their own."""

    name: str
    passages: Sequence[Passage]
    train: Split
    dev: Split
    tests: Mapping[str, Split]


def read(name: str, data: Path, work: Path, distractors: int, most: int | None) -> Set:
    """A set by its name; `most` cuts every split, to try things out."""
    distractors = DISTRACTORS if name == FAR and most is None else distractors
    if name in ("wiki", FAR):
        source = wiki_folder(data, work, distractors)
    else:
        source = data / name if name in ZERO_SHOT else splits.folder(data, name, work / "splits")
    tree = {
        "collection": {"kind": "init", "paths": [str(source)]},
        "bm25": {"kind": "bm25", "collection": "@collection"},
    }
    planned = pipeline.plan_stages(STAGES, tree, work / name)
    pipeline.run(planned, lambda _: None)
    collection, index = Collection(planned[0].out), BM25.open(planned[1].out)
    passages = list(collection.passages())
    places = {passage.id: i for i, passage in enumerate(passages)}
    order = np.array([places[index.id(i)] for i in range(len(index))], np.int64)
    asked = {query.id: query for query in collection.queries()}

    def split(part: str) -> Split:
        judged: dict[str, list[int]] = defaultdict(list)
        for one in collection.judgements(part):
            if one.relevance > 0:
                judged[one.query].append(places[one.passage])
        return searched([asked[q] for q in islice(judged, most)], judged, index, order)

    if name in ZERO_SHOT:
        none = Split([], [], np.zeros((0, DEPTH), np.int64), np.zeros((0, DEPTH), np.float32))
        return Set(name, passages, none, none, {name: split("test")})
    made = {part: split(part) for part in SPLITS}
    if name not in ("wiki", FAR):
        return Set(name, passages, made["train"], made["dev"], {name: made["test"]})
    answers = {part: nq_split(data, part, passages, index, order, work, most) for part in SPLITS}
    return Set(
        name,
        passages,
        both(made["train"], answers["train"]),
        both(made["dev"], answers["dev"]),
        {"squad": made["test"], "nq": answers["test"]} if name == "wiki" else {"squad-far": made["test"]},
    )


def searched(queries: Sequence[Query], judged: Mapping[str, list[int]], index: BM25, order: Longs) -> Split:
    """Questions with what BM25 finds."""
    found = index.search([query.text for query in queries], DEPTH)
    numbers = np.where(found.numbers >= 0, order[np.maximum(found.numbers, 0)], -1)
    return Split(queries, [judged[query.id] for query in queries], numbers, found.scores.astype(np.float32))


def both(one: Split, two: Split) -> Split:
    """Two splits as one."""
    return Split(
        [*one.queries, *two.queries],
        [*one.relevant, *two.relevant],
        np.concatenate((one.found, two.found)),
        np.concatenate((one.scores, two.scores)),
    )


def nq_split(
    data: Path,
    part: str,
    passages: Sequence[Passage],
    index: BM25,
    order: Longs,
    work: Path,
    most: int | None,
) -> Split:
    """NQ's questions that some passages answer; in training the positive is what BM25 finds first."""
    rows = list(islice(lines(data / "nq" / f"{part}.jsonl.xz"), most))
    queries = [Query(f"nq-{part}-{row['_id']}", row["text"]) for row in rows]
    kept = work / f"nq-{part}-{len(passages)}-{len(rows)}.json"
    if not kept.exists():
        kept.write_text(json.dumps(answering([row["answers"] for row in rows], passages)))
    relevant = json.loads(kept.read_text())
    some = [i for i, found in enumerate(relevant) if 1 <= len(found) <= MOST_ANSWERS]
    made = searched([queries[i] for i in some], {queries[i].id: relevant[i] for i in some}, index, order)
    if part != "train":
        return made
    firsts = [
        [p for p in row[:POSITIVE_DEPTH].tolist() if p in set(known)][:1]
        for row, known in zip(made.found, made.relevant)
    ]
    there = [i for i, first in enumerate(firsts) if first]
    made = made.take(there)
    # The positive comes first; the other passages with the answer are known to be relevant, so no negatives.
    relevant = [firsts[i] + [p for p in row if p not in firsts[i]] for i, row in zip(there, made.relevant)]
    return Split(made.queries, relevant, made.found, made.scores)


def answering(answers: Sequence[Sequence[str]], passages: Sequence[Passage]) -> list[list[int]]:
    """For each question the passages that have one of its answers, word for word."""
    wanted = {word for some in answers for answer in some for word in tokens(answer)}
    joined = [join(passage.text) for passage in passages]
    holders: dict[str, list[int]] = defaultdict(list)
    for i, passage in enumerate(passages):
        for word in wanted.intersection(tokens(passage.text)):
            holders[word].append(i)
    found = []
    for some in answers:
        near: set[int] = set()
        for words in filter(None, map(tokens, some)):
            near |= set.intersection(
                *(set(holders[word]) for word in sorted(words, key=lambda w: len(holders[w])))
            )
        matches = token_matcher(some)
        found.append(sorted(i for i in near if matches(joined[i])))
    return found


def wiki_folder(data: Path, work: Path, distractors: int) -> Path:
    """A BEIR folder with SQuAD's paragraphs and questions, and passages of Wikipedia beside them."""
    out = work / f"wiki-{distractors}"
    if (out / "done").exists():
        return out
    (out / "qrels").mkdir(parents=True, exist_ok=True)
    with (out / "corpus.jsonl").open("w", encoding="utf-8") as file:
        for row in lines(data / "squad" / "corpus.jsonl.xz"):
            file.write(json.dumps(row) + "\n")
        for i, (title, text) in enumerate(islice(wiki_passages(data / "wiki"), distractors)):
            file.write(json.dumps({"_id": f"wiki-{i}", "title": title, "text": text}) + "\n")
    with (out / "queries.jsonl").open("w", encoding="utf-8") as file:
        for row in lines(data / "squad" / "queries.jsonl.xz"):
            file.write(json.dumps({"_id": row["_id"], "text": row["text"]}) + "\n")
    for part in SPLITS:
        (out / "qrels" / f"{part}.tsv").write_text((data / "squad" / "qrels" / f"{part}.tsv").read_text())
    (out / "done").write_text("")
    return out


def wiki_passages(folder: Path) -> Iterator[tuple[str, str]]:
    """Title and passages of 100 words, section by section; a rest under 20 words is dropped."""
    for path in sorted(folder.glob("articles-*.jsonl.xz")):
        for article in lines(path):
            for section in article["sections"]:
                words = " ".join(section["p"]).split()
                for start in range(0, len(words), WORDS):
                    piece = words[start : start + WORDS]
                    if len(piece) >= 20:
                        yield article["title"], " ".join(piece)


def lines(path: Path) -> Iterator[dict]:
    """The rows of a compressed file."""
    with lzma.open(path, "rt", encoding="utf-8") as file:
        yield from map(json.loads, file)
