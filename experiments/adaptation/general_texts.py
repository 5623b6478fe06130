"""General short texts for `liebig build --teacher --texts`: pieces of Wikipedia, and questions.

    python experiments/adaptation/general_texts.py DATA FILE.xz

Spans of two paragraphs of every article, as many behind a question's first words, and the train questions of Natural
Questions, a text per line. SQuAD's passages are of Wikipedia too, but none of its articles is among these.
"""

from __future__ import annotations

import argparse
import json
import lzma
import random
from pathlib import Path

from builds import rows

from liebig.base.records import Passage
from liebig.bm25.analysis import Analyzer, language_name
from liebig.builder.short_texts import ShortTexts

PARAGRAPHS = 2  # of an article
WORDS = 40  # of a paragraph at least
LONGEST = 200  # characters of a text at most


def passages(folder: Path, parts: int, seed: int = 0) -> list[Passage]:
    """Paragraphs drawn from every article."""
    by, found = random.Random(seed), []
    for number in range(parts):
        with lzma.open(folder / f"articles-{number}.jsonl.xz", "rt", encoding="utf-8") as file:
            for article in map(json.loads, file):
                long = [p for s in article["sections"] for p in s["p"] if len(p.split()) >= WORDS]
                for text in by.sample(long, min(PARAGRAPHS, len(long))):
                    found.append(Passage(str(len(found)), text, article["title"], str(article["id"])))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--count", type=int, default=300_000, help="pieces of each kind")
    parser.add_argument("--parts", type=int, default=6, help="of the six parts of Wikipedia")
    given = parser.parse_args()
    pieces = ShortTexts(passages(given.data / "wiki", given.parts), Analyzer(language_name("en")))
    texts = [row["text"] for row in rows(given.data / "nq" / "train.jsonl.xz")]
    texts += [make() for _ in range(given.count) for make in (pieces.piece, pieces.question)]
    lines = dict.fromkeys(" ".join(text.split())[:LONGEST] for text in texts if any(map(str.isalnum, text)))
    with lzma.open(given.out, "wt", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
    print(f"{len(lines):,} texts")


if __name__ == "__main__":
    main()
