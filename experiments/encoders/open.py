"""Questions over Wikipedia: the collections that liebig-small is trained and judged on.

    python experiments/encoders/open.py DATA OUT [--distractors 150000] [--parts 0 1 2 3 4 5]

writes three folders. OUT/wiki: all passages of 100 words (the rest of a section under 20 words is dropped), which NQ
is judged on by answers. OUT/squad-wiki: SQuAD's paragraphs among 150,000 of them, drawn by the hash of their ids, with
SQuAD's judgements. OUT/train: the passages of both, with SQuAD's training questions, and NQ's, whose positive is the
first of BM25's hundred passages that holds an answer, as DPR did; a question without one is left out. All but `wiki`
are BEIR folders.
"""

from __future__ import annotations

import argparse
import heapq
import json
import lzma
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))

import splits

from liebig.base import pipeline
from liebig.bm25.search import BM25
from liebig.measures.answers import join, token_matcher
from liebig.stages import STAGES

WORDS, LEAST, DEPTH, BATCH = 100, 20, 100, 1024
Row = Mapping[str, str]


def read(path: Path) -> Iterator[dict]:
    """Rows of a file of JSON lines, packed or not."""
    with (lzma.open if path.suffix == ".xz" else open)(path, "rt", encoding="utf-8") as file:
        yield from map(json.loads, file)


def passages(article: Mapping) -> Iterator[Row]:
    """The passages of an article."""
    number = 0
    for section in article["sections"]:
        words = " ".join(section["p"]).split()
        for start in range(0, len(words), WORDS):
            if start and len(words) - start < LEAST:
                break
            text = " ".join(words[start : start + WORDS])
            yield {"_id": f"w{article['id']}-{number}", "title": article["title"], "text": text}
            number += 1


def write(path: Path, rows: Iterable[Mapping]) -> int:
    """Write JSON lines; how many."""
    path.parent.mkdir(parents=True, exist_ok=True)
    count = 0
    with path.open("w", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
            count += 1
    return count


def squad_wiki(squad: Path, wiki: Path, out: Path, distractors: int) -> None:
    """SQuAD's paragraphs among some of Wikipedia's passages."""
    chosen = heapq.nsmallest(distractors, read(wiki), key=lambda row: splits.order(row["_id"]))
    write(out / "corpus.jsonl", (*read(squad / "corpus.jsonl.xz"), *chosen))
    write(out / "queries.jsonl", read(squad / "queries.jsonl.xz"))
    shutil.copytree(squad / "qrels", out / "qrels", dirs_exist_ok=True)


def nq_positives(questions: Sequence[Mapping], index: BM25) -> Iterator[tuple[str, str]]:
    """A question and the first passage BM25 finds that holds an answer."""
    for start in range(0, len(questions), BATCH):
        asked = questions[start : start + BATCH]
        found = index.search([row["text"] for row in asked], DEPTH)
        for row, numbers in zip(asked, found.numbers.tolist()):
            matches = token_matcher(row["answers"])
            for number in (n for n in numbers if n >= 0):
                passage = index.passage(number)
                if matches(join(passage.text)):
                    yield row["_id"], passage.id
                    break


def train(data: Path, wiki: Path, out: Path, work: Path) -> int:
    """Training questions of SQuAD and NQ over all passages; how many of NQ's have a positive."""
    squad = data / "squad"
    write(out / "corpus.jsonl", (*read(squad / "corpus.jsonl.xz"), *read(wiki)))
    tree = {
        "collection": {"kind": "init", "paths": [str(wiki.parent)]},
        "bm25": {"kind": "bm25", "collection": "@collection"},
    }
    planned = pipeline.plan_stages(STAGES, tree, work)
    pipeline.run(planned, lambda said: print(said, file=sys.stderr))
    questions = [{**row, "_id": f"nq-{row['_id']}"} for row in read(data / "nq" / "train.jsonl.xz")]
    positives = list(nq_positives(questions, BM25.open(planned[1].out)))
    named = {query for query, _ in positives}
    kept = ({"_id": row["_id"], "text": row["text"]} for row in questions if row["_id"] in named)
    write(out / "queries.jsonl", (*read(squad / "queries.jsonl.xz"), *kept))
    (out / "qrels").mkdir(exist_ok=True)
    own = (squad / "qrels" / "train.tsv").read_text(encoding="utf-8").splitlines(keepends=True)[1:]
    rows = [*own, *(f"{query}\t{passage}\t1\n" for query, passage in positives)]
    (out / "qrels" / "train.tsv").write_text(splits.HEADER + "".join(rows), encoding="utf-8")
    shutil.copyfile(squad / "qrels" / "dev.tsv", out / "qrels" / "dev.tsv")
    return len(positives)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--distractors", type=int, default=150_000)
    parser.add_argument("--parts", nargs="+", default=["0", "1", "2", "3", "4", "5"])
    asked = parser.parse_args()
    wiki = asked.out / "wiki" / "corpus.jsonl"
    articles = (
        row for part in asked.parts for row in read(asked.data / "wiki" / f"articles-{part}.jsonl.xz")
    )
    count = write(wiki, (passage for article in articles for passage in passages(article)))
    squad_wiki(asked.data / "squad", wiki, asked.out / "squad-wiki", asked.distractors)
    found = train(asked.data, wiki, asked.out / "train", asked.out / "work")
    print(f"{count:,} passages of Wikipedia; {found:,} questions of NQ have a positive")


if __name__ == "__main__":
    main()
