"""Questions without labels: pieces of a passage's sentences, which have to find their passage again.

    python experiments/encoders/cuts.py WIKI OUT [--passages 350000] [--each 3] [--asking 0.5] [--titled 0.3]

reads WIKI/corpus.jsonl (of open.py) and writes OUT, a BEIR folder of that many passages, drawn by the hashes of
their ids, with `each` questions, which are judged to be answered by the passage they were cut from (split `cuts`).
A question is a stretch of 6 to 16 words of one sentence, some left out, a share `titled` of them before the article's
title, a share `asking` after a question word.
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

SHORTEST, LONGEST, LEFT_OUT = 6, 16, 0.15
ASKING = ("what", "what", "who", "when", "where", "which", "how", "how many", "why")


def question(
    title: str, text: str, draw: random.Random, *, asking: float = 0.5, titled: float = 0.3
) -> str | None:
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
    if draw.random() < titled:
        kept.append(title)
    first = [draw.choice(ASKING)] if draw.random() < asking else []
    return " ".join([*first, *kept]).strip(" ,.;:") + ("?" if first else "")


def chosen(corpus: Path, share: float) -> Iterator[tuple[dict, random.Random]]:
    """A share of the passages, and what draws their questions."""
    with corpus.open(encoding="utf-8") as file:
        for row in map(json.loads, file):
            draw = random.Random(splits.order(row["_id"]))
            if draw.random() < share:
                yield row, draw


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wiki", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--passages", type=int, default=350_000)
    parser.add_argument("--each", type=int, default=3)
    parser.add_argument("--asking", type=float, default=0.5)
    parser.add_argument("--titled", type=float, default=0.3)
    asked = parser.parse_args()
    corpus, out = asked.wiki / "corpus.jsonl", asked.out
    with corpus.open("rb") as file:
        share = asked.passages / sum(1 for _ in file)
    (out / "qrels").mkdir(parents=True, exist_ok=True)
    judgements = [splits.HEADER]
    with (
        (out / "corpus.jsonl").open("w", encoding="utf-8") as passages,
        (out / "queries.jsonl").open("w", encoding="utf-8") as queries,
    ):
        for row, draw in chosen(corpus, share):
            passages.write(json.dumps(row, ensure_ascii=False) + "\n")
            for number in range(asked.each):
                if text := question(
                    row["title"], row["text"], draw, asking=asked.asking, titled=asked.titled
                ):
                    key = f"c{number}-{row['_id']}"
                    queries.write(json.dumps({"_id": key, "text": text}, ensure_ascii=False) + "\n")
                    judgements.append(f"{key}\t{row['_id']}\t1\n")
    (out / "qrels" / "cuts.tsv").write_text("".join(judgements), encoding="utf-8")
    print(f"{len(judgements) - 1:,} questions")


if __name__ == "__main__":
    main()
