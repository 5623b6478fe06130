"""Questions that people typed into a search engine (Natural Questions), as retrieval sets over Wikipedia.

    python experiments/adaptation/natural_questions.py DATA OUT

DATA has `nq/*.jsonl.xz` (questions with answer strings) and `wiki/articles-*.jsonl.xz`. A passage counts as relevant
where an answer is in it word for word, which is often by accident; a question with more than a few such passages is
left out. OUT gets three BEIR folders:

lead       the first 150 words of 20,000 articles: one passage per title
articles   all passages, of 100 words, of one article in eighteen
named      passages of articles whose title is in a question and whose text has its answer: the cleanest judgements
"""

from __future__ import annotations

import argparse
import hashlib
import json
import lzma
import random
import re
import unicodedata
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

STOP = frozenset(
    "the a an of in and on is was who what when where which how did do does to for by s are were".split()  # noqa: SIM905
)
LEAD, LEADS, WORDS, SHORTEST = 150, 20_000, 100, 20
MOST, MOST_NAMED = 5, 6  # relevant passages of a question
ROOM = 36_000  # passages of `named`
Row = dict[str, Any]


def plain(text: str) -> str:
    """Words in small letters, one space between them."""
    return " ".join(re.findall(r"\w+", unicodedata.normalize("NFD", text.lower())))


def rows(path: Path) -> Iterator[Row]:
    with lzma.open(path, "rt", encoding="utf-8") as file:
        yield from map(json.loads, file)


def passages_of(article: Row) -> list[Row]:
    """An article in passages of 100 words that end with their section."""
    made = []
    for number, section in enumerate(article["sections"]):
        words = " ".join(section["p"]).split()
        for start in range(0, len(words), WORDS):
            part = words[start : start + WORDS]
            if len(part) >= SHORTEST:
                id = f"{article['id']}-{number}-{start // WORDS}"
                made.append({"_id": id, "title": article["title"], "text": " ".join(part)})
    return made


def leads_of(articles: Iterable[Row]) -> list[Row]:
    """The beginnings of articles, in random order."""
    found: dict[str, Row] = {}
    for article in articles:
        paragraphs = [paragraph for section in article["sections"] for paragraph in section["p"]]
        text = " ".join(" ".join(paragraphs[:3]).split()[:LEAD])
        if text and article["title"] not in found:
            found[article["title"]] = {"_id": str(article["id"]), "title": article["title"], "text": text}
    long = [row for row in found.values() if len(row["text"].split()) >= 30]
    random.Random(0).shuffle(long)
    return long[:LEADS]


def by_answer(questions: list[Row], passages: list[Row]) -> dict[str, list[str]]:
    """The passages that hold an answer of each question, where they are few."""
    texts = [f" {plain(row['title'] + ' ' + row['text'])} " for row in passages]
    having: dict[str, list[int]] = {}
    for number, text in enumerate(texts):
        for word in set(text.split()):
            having.setdefault(word, []).append(number)
    found = {}
    for question in questions:
        hits: set[int] = set()
        for answer in filter(None, map(plain, question["answers"])):
            rarest = min((having.get(word, []) for word in answer.split()), key=len)
            hits |= {number for number in rarest if f" {answer} " in texts[number]}
        if 1 <= len(hits) <= MOST:
            found[question["_id"]] = [passages[number]["_id"] for number in sorted(hits)]
    return found


def named(questions: list[Row], articles: Iterable[Row]) -> tuple[list[Row], dict[str, list[str]]]:
    """Articles that a question names and that answer it, and what answers each question."""
    texts = [f" {plain(question['text'])} " for question in questions]
    answers = [[plain(answer) for answer in question["answers"] if plain(answer)] for question in questions]
    having: dict[str, list[int]] = {}
    for number, text in enumerate(texts):
        for word in set(text.split()) - STOP:
            having.setdefault(word, []).append(number)
    found: dict[int, list[str]] = {}
    kept: dict[int, list[Row]] = {}
    for article in articles:
        title = plain(re.sub(r"\(.*?\)", "", article["title"]))
        words = [word for word in title.split() if word not in STOP]
        if not words or len(title) < 4:
            continue
        asked = [
            number
            for number in min((having.get(word, []) for word in words), key=len)
            if f" {title} " in texts[number]
        ]
        if not asked:
            continue
        passages = passages_of(article)
        bodies = [f" {plain(row['text'])} " for row in passages]
        for number in asked:
            own = [f" {answer} " for answer in answers[number]]
            hits = [
                row["_id"] for row, body in zip(passages, bodies) if any(answer in body for answer in own)
            ]
            if 1 <= len(hits) <= MOST_NAMED and not any(answer in texts[number] for answer in own):
                found.setdefault(number, []).extend(hits)
                kept[article["id"]] = passages
    ids = sorted(kept)
    random.Random(0).shuffle(ids)
    chosen: list[Row] = []
    for id in ids:
        if len(chosen) > ROOM:
            break
        chosen += kept[id]
    there = {row["_id"] for row in chosen}
    relevant = {
        questions[number]["_id"]: [id for id in hits if id in there] for number, hits in found.items()
    }
    return chosen, {question: hits for question, hits in relevant.items() if hits}


def write(out: Path, passages: list[Row], questions: list[Row], relevant: dict[str, list[str]]) -> None:
    """A BEIR folder with one split, `test`."""
    (out / "qrels").mkdir(parents=True, exist_ok=True)
    asked = [{"_id": row["_id"], "text": row["text"]} for row in questions if row["_id"] in relevant]
    for name, some in (("corpus", passages), ("queries", asked)):
        with lzma.open(out / f"{name}.jsonl.xz", "wt", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in some)
    lines = [f"{question}\t{passage}\t1\n" for question, hits in relevant.items() for passage in hits]
    (out / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(lines), encoding="utf-8")
    print(f"{out.name}: {len(passages):,} passages, {len(asked):,} questions")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    given = parser.parse_args()
    questions = [
        row for split in ("train", "dev", "test") for row in rows(given.data / f"nq/{split}.jsonl.xz")
    ]
    files = sorted((given.data / "wiki").glob("articles-*.jsonl.xz"))
    articles = [article for path in files for article in rows(path)]
    leads = leads_of(articles)
    write(given.out / "lead", leads, questions, by_answer(questions, leads))
    some = [a for a in articles if hashlib.md5(str(a["id"]).encode(), usedforsecurity=False).digest()[0] < 14]
    passages = [row for article in some for row in passages_of(article)]
    write(given.out / "articles", passages, questions, by_answer(questions, passages))
    chosen, relevant = named(questions, articles)
    write(given.out / "named", chosen, questions, relevant)


if __name__ == "__main__":
    main()
