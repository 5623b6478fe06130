"""Encoders on sources of the check that are no test set: nDCG@10 alone, and with BM25 (min-max scores).

    python experiments/encoders/sources.py --data DATA --out DIR first=liebig:mini-v3 second=FOLDER

DATA has the folders of `../check/corpora.py`; `nq-*` are made by `../adaptation/natural_questions.py`. At most 4,000
passages and 400 of people's questions of each, passages in int8; vectors are kept in DIR. The differences to the first
encoder have 95 % intervals over questions; sources count the same. Ten minutes of a core for an encoder.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

sys.path.append(str(Path(__file__).parents[1] / "check"))

from corpora import Corpus, PeopleQuestion, source
from measure import Words, best

from liebig.base.hub import model_folder
from liebig.search.embed import Embedder
from liebig.search.fusion import Hits, weighted_by

SOURCES = (
    "nq-lead", "nq-articles", "nq-named", "stackexchange", "textbooks", "shell", "docstrings", "fquad-fr", "xquad-de",
)  # fmt: skip
MOST, ASKED, DEPTH, TOP = 4_000, 400, 100, 10
WEIGHTS = {"alone": 0.0, "BM25 .5": 0.5, "BM25 .4": 0.4}
DISCOUNT = 1 / np.log2(np.arange(2, TOP + 2))


def questions(corpus: Corpus) -> list[PeopleQuestion]:
    """Of many questions the same few each time."""
    order = np.random.default_rng(0).permutation(len(corpus.asked))[:ASKED]
    return [corpus.asked[number] for number in sorted(order)]


def ndcg(hits: Hits, grades: Mapping[str, int]) -> float:
    gains = np.array([grades.get(id, 0) for id, _ in hits[:TOP]], float)
    ideal = np.sort(np.array(list(grades.values()), float))[::-1][:TOP]
    return float(gains @ DISCOUNT[: len(gains)] / (ideal @ DISCOUNT[: len(ideal)]))


def vectors(file: Path, model: str, corpus: Corpus) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Those of the passages and of the questions, made once."""
    if not file.exists():
        folder = model_folder(model)
        passages = Embedder.load(folder, "cpu", precision="int8").vectors(corpus.texts, "passage")
        asked = Embedder.load(folder, "cpu").vectors([one.text for one in questions(corpus)], "query")
        np.savez(file, passages=passages, asked=asked)
    stored = np.load(file)
    return stored["passages"], stored["asked"]


def values(corpus: Corpus, words: list[Hits], found: NDArray[np.float32]) -> Iterator[list[float]]:
    """A row for each question, with every weight of BM25."""
    for question, by_words, scores in zip(questions(corpus), words, found):
        numbers, some = best(scores, DEPTH)
        dense = [(corpus.texts[n].id, float(s)) for n, s in zip(numbers.tolist(), some)]
        lists = [
            dense if not weight else weighted_by(weight, "minmax")((by_words, dense))
            for weight in WEIGHTS.values()
        ]
        yield [ndcg(hits, question.grades) for hits in lists]


def by_words(corpus: Corpus) -> list[Hits]:
    index, found = Words(corpus.texts), []
    for question in questions(corpus):
        numbers, scores = best(index.scores(question.text), DEPTH)
        found.append([(corpus.texts[n].id, float(s)) for n, s in zip(numbers.tolist(), scores) if s > 0])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="+", metavar="NAME=MODEL", help="a folder, or liebig:NAME")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--sources", nargs="+", default=SOURCES)
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    models = dict(one.split("=", 1) for one in asked.models)
    results: dict[str, list[NDArray[np.float64]]] = {name: [] for name in models}
    for place in asked.sources:
        corpus = source(asked.data, place, MOST)
        words = by_words(corpus)
        for name, model in models.items():
            passages, queries = vectors(asked.out / f"{name}-{place}.npz", model, corpus)
            results[name].append(np.array(list(values(corpus, words, queries @ passages.T))))
    first = next(iter(models))
    for column, label in enumerate(WEIGHTS):
        print(f"\n| {label} | " + " | ".join([*asked.sources, "mean", f"less {first}"]) + " |")
        print("| --- |" + " ---: |" * (len(asked.sources) + 2))
        for name, rows in results.items():
            means = [row[:, column].mean() for row in rows]
            gains = [(mine - other)[:, column] for mine, other in zip(rows, results[first])]
            error = np.sqrt(sum(gain.var() / len(gain) for gain in gains)) / len(gains)
            gain = (
                f"{np.mean([gain.mean() for gain in gains]):+.4f} ± {1.96 * error:.4f}"
                if name != first
                else ""
            )
            print(
                f"| {name} | "
                + " | ".join(f"{mean:.3f}" for mean in means)
                + f" | {np.mean(means):.4f} | {gain} |"
            )


if __name__ == "__main__":
    main()
