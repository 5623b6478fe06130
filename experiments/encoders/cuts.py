"""Questions without labels: pieces of a passage's sentences, which have to find their passage again.

    python experiments/encoders/cuts.py WIKI OUT [--passages 350000] [--hard 150000]

reads WIKI/corpus.jsonl (of open.py) and writes OUT, a BEIR folder of the same passages with questions, each judged to
be answered by the passage it was cut from: two of so many passages (split `cuts`), and one of about `hard` others
(split `hard`), for which BM25 is to say what is hard to tell from the right passage. The hash of its id draws a
passage. A question is a stretch of 6 to 16 words of one sentence, some left out, half of the time after a question
word, at times with the article's title.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))

import splits

from liebig.text.sentences import split

SHORTEST, LONGEST, LEFT_OUT, ABOUT = 6, 16, 0.15, 0.3
EACH = 2
ASKING = ("what", "what", "who", "when", "where", "which", "how", "how many", "why")
HEADER = "query-id\tcorpus-id\tscore\n"


def question(title: str, text: str, draw: random.Random) -> str | None:
    """A question of a passage; none if it has no sentence that is long enough."""
    sentences = [s.split() for s in split(text)]
    long = [words for words in sentences if len(words) > SHORTEST]
    if not long:
        return None
    words = draw.choice(long)
    length = draw.randint(SHORTEST, min(LONGEST, len(words)))
    start = draw.randint(0, len(words) - length)
    kept = [word for word in words[start : start + length] if draw.random() >= LEFT_OUT]
    if len(kept) < SHORTEST - 2:
        return None
    if draw.random() < ABOUT:
        kept.append(title)
    asking = [draw.choice(ASKING)] if draw.random() < 0.5 else []
    return " ".join([*asking, *kept]).strip(" ,.;:") + ("?" if asking else "")


def kinds(name: str, drawn: float, shares: tuple[float, float]) -> list[tuple[str, str]]:
    """Split and id of each question that a passage gets."""
    cuts, hard = shares
    if drawn < cuts:
        return [("cuts", f"c{number}-{name}") for number in range(EACH)]
    return [("hard", f"h-{name}")] if drawn < cuts + hard else []


def questions(corpus: Path, shares: tuple[float, float]) -> Iterator[tuple[str, str, str, str]]:
    """Split, id, passage and text of every question."""
    with corpus.open(encoding="utf-8") as file:
        for row in map(json.loads, file):
            draw, name = random.Random(splits.order(row["_id"])), row["_id"]
            for kind, key in kinds(name, draw.random(), shares):
                if asked := question(row["title"], row["text"], draw):
                    yield kind, key, name, asked


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wiki", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--passages", type=int, default=350_000)
    parser.add_argument("--hard", type=int, default=150_000)
    asked = parser.parse_args()
    corpus, out = (asked.wiki / "corpus.jsonl").resolve(), asked.out
    (out / "qrels").mkdir(parents=True, exist_ok=True)
    if not (out / "corpus.jsonl").exists():
        (out / "corpus.jsonl").symlink_to(corpus)
    with corpus.open("rb") as file:
        total = sum(1 for _ in file)
    shares = asked.passages / total, asked.hard / total
    judged: dict[str, list[str]] = {"cuts": [HEADER], "hard": [HEADER]}
    with (out / "queries.jsonl").open("w", encoding="utf-8") as queries:
        for kind, key, passage, text in questions(corpus, shares):
            queries.write(json.dumps({"_id": key, "text": text}, ensure_ascii=False) + "\n")
            judged[kind].append(f"{key}\t{passage}\t1\n")
    for kind, rows in judged.items():
        (out / "qrels" / f"{kind}.tsv").write_text("".join(rows), encoding="utf-8")
        print(f"{kind}: {len(rows) - 1:,} questions")


if __name__ == "__main__":
    main()
