"""Why MedQuAD is easy for a tuned encoder and hard for BM25: what its questions are made of, and what BM25 finds.

    python experiments/finetuning/templates.py queries.npz --data data --work runs/finetuning-work

A question's template is the question without the title of its passage. Prints how many test questions are a title in a
template that 4,000 training questions have too, how many have a text, document or passage of training, what BM25 finds
first, and nDCG@10 by template for BM25 and for random batches. Fifteen seconds.
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from pathlib import Path

import numpy as np
from prepared import drawn
from sets import Set, Split, read


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("values", type=Path, help="queries.npz of run.py, with baselines")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True, help="as for prepare.py")
    parser.add_argument("--train", type=int, default=4_000)
    args = parser.parse_args()
    found = read("medquad", args.data, args.work, 0, None)
    train = found.train.take(drawn(len(found.train.queries), args.train, 0).tolist())
    test, values = found.tests["medquad"], np.load(args.values)
    tell_of_training(found, train, test)
    tell_of_bm25(found, test)
    by = {
        name: values[f"medquad|{name}|medquad"].mean(axis=0) / 10_000
        for name in ("bm25", "untuned", "random")
    }
    tell_of_templates(templates(found, train), templates(found, test), by)


def plain(text: str) -> str:
    return re.sub(r"\W+", " ", text.lower()).strip()


def templates(found: Set, split: Split) -> list[str]:
    """Questions with their passage's title taken out; nothing where the title is not in it."""
    made = []
    for query, relevant in zip(split.queries, split.relevant):
        text, title = plain(query.text), plain(found.passages[relevant[0]].title)
        made.append(text.replace(title, "X") if title and title in text else "")
    return made


def tell_of_training(found: Set, train: Split, test: Split) -> None:
    asked = {plain(query.text) for query in train.queries}
    shown = {p for row in train.relevant for p in row}
    documents = {found.passages[p].doc for p in shown}
    print("test questions:", len(test.queries))
    print("  with the words of a training question:", sum(plain(q.text) in asked for q in test.queries))
    print("  with a passage relevant in training:", sum(not shown.isdisjoint(row) for row in test.relevant))
    of = [{found.passages[p].doc for p in row} for row in test.relevant]
    print("  with a document of training:", sum(not documents.isdisjoint(some) for some in of))


def tell_of_bm25(found: Set, test: Split) -> None:
    docs = [p.doc for p in found.passages]
    pairs = list(zip(test.found[:, 0], test.relevant))
    print(f"BM25 puts first: a relevant passage {np.mean([top in row for top, row in pairs]):.3f},", end=" ")
    print(f"one of its document {np.mean([docs[top] in {docs[p] for p in row} for top, row in pairs]):.3f}")
    sizes = Counter(docs)
    print(f"passages of a question's document: {np.mean([sizes[docs[row[0]]] for row in test.relevant]):.2f}")


def tell_of_templates(train: list[str], test: list[str], by: dict[str, np.ndarray]) -> None:
    known = set(train) - {""}
    print(f"with the title of the passage: {np.mean([t != '' for t in test]):.3f}")
    seen = np.array([t in known for t in test])
    print(f"in a template of training: {seen.mean():.3f}, {means(by, seen)}; others {means(by, ~seen)}")
    for template, n in Counter(t for t in test if t).most_common(12):
        print(f"{n:5} {template}: {means(by, np.array([t == template for t in test]))}")


def means(by: dict[str, np.ndarray], which: np.ndarray) -> str:
    return ", ".join(f"{name} {values[which].mean():.3f}" for name, values in by.items())


if __name__ == "__main__":
    main()
