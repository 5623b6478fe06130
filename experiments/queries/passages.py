"""Wikipedia articles as a collection of passages: every section cut at 100 words, a rest under 20 words dropped.

python experiments/queries/passages.py DATA/wiki OUT --parts 0 1
"""

from __future__ import annotations

import argparse
import json
import lzma
from collections.abc import Iterator
from pathlib import Path
from typing import Any

WORDS, LEAST = 100, 20


def cut(article: dict[str, Any]) -> Iterator[dict[str, str]]:
    """The passages of an article."""
    number = 0
    for section in article["sections"]:
        words = " ".join(section["p"]).split()
        for start in range(0, len(words), WORDS):
            piece = words[start : start + WORDS]
            if len(piece) >= LEAST:
                text = " ".join(piece)
                yield {
                    "id": f"{article['id']}-{number}",
                    "title": article["title"],
                    "text": text,
                    "doc": str(article["id"]),
                }
                number += 1


def beir(folder: Path) -> Iterator[dict[str, str]]:
    """The passages of a BEIR folder."""
    with lzma.open(folder / "corpus.jsonl.xz", "rt", encoding="utf-8") as file:
        for row in map(json.loads, file):
            yield {
                "id": row["_id"],
                "title": row["title"],
                "text": row["text"],
                "doc": str(row.get("doc", "")),
            }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("wiki", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--parts", nargs="+", default=["0", "1", "2", "3", "4", "5"])
    parser.add_argument("--most", type=int, help="stop after so many passages")
    parser.add_argument("--beir", type=Path, help="a BEIR folder whose passages follow")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    count, partial = 0, given.out / "passages.partial"
    with partial.open("w", encoding="utf-8") as file:
        for part in given.parts:
            with lzma.open(given.wiki / f"articles-{part}.jsonl.xz", "rt", encoding="utf-8") as articles:
                for passage in (p for line in articles for p in cut(json.loads(line))):
                    if given.most is not None and count == given.most:
                        break
                    file.write(json.dumps(passage, ensure_ascii=False) + "\n")
                    count += 1
        for passage in beir(given.beir) if given.beir is not None else ():
            file.write(json.dumps(passage, ensure_ascii=False) + "\n")
            count += 1
    partial.replace(given.out / "passages.jsonl")
    print(f"{count:,} passages")


if __name__ == "__main__":
    main()
