"""What every system of a build is worth on hundreds of corpora: by people's questions, and by the check's own.

    python experiments/check/measure.py DATA OUT [--model MODEL] [--processes 8]

DATA holds BEIR folders (those of `corpora.py`), OUT gets the vectors and `measured.csv`: a line per corpus and kind of
question with their number, the mean difference of each candidate to the plain hybrid and its standard error, in
hundred-thousandths. The lines of kind `signs` have what the corpus looks like to the encoder. People's questions have
the kind `people`; `some-0` and `rest-0` are 100 of them (or half) and the others, drawn by chance. `fit.py` reads them.

Every text is encoded once. Cost: with a GPU and 16 cores ten minutes.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from corpora import ASKED, FEWEST, MIXED, Corpus, cuts, mixed, source
from numpy.typing import NDArray

from liebig import encoders
from liebig.base.records import Passage
from liebig.bm25.analysis import HAS_UNSPACED, Analyzer, stop_words, words
from liebig.builder import questions as making
from liebig.builder.questions import Question, QuestionsConfig, _sample, bare, choose, draw_pool, hold_out
from liebig.collection.lookup import hash64
from liebig.search.systems import FUSION_DEPTH, SENTENCE_SHARE, SPREAD_RANK, SPREAD_TIMES
from liebig.text.sentences import spans

SOURCES = (
    "medquad", "scifact", "cranfield", "squad", "cosqa", "vaswani", "trec-dl21", "semeval-cqa", "fquad-fr", "xquad-de",
    "jsquad-ja", "nq-lead", "nq-articles", "nq-named",
)  # fmt: skip
K1, B, CUT = 0.9, 0.4, 10
DRAWS, SOME = 2, 100
AT_ONCE = 256
Floats = NDArray[np.float32]
# Weights of the six parts: BM25, vectors and sentences as `minmax` has them, then as `spread` has them.
CANDIDATES: dict[str, tuple[float, ...]] = {"bm25": (1, 0, 0, 0, 0, 0), "dense": (0, 1, 0, 0, 0, 0)}
for _w in (0.3, 0.5, 0.7):
    CANDIDATES[f"minmax-{_w:g}"] = (_w, 1 - _w, 0, 0, 0, 0)
for _w in (0.2, 0.35, 0.5, 0.65, 0.8):
    CANDIDATES[f"spread-{_w:g}"] = (0, 0, 0, _w, 1 - _w, 0)
for _w in (0.3, 0.45, 0.6, 0.75):
    CANDIDATES[f"sentences-{_w:g}"] = (
        0, 0, 0, _w, (1 - _w) * (1 - SENTENCE_SHARE), (1 - _w) * SENTENCE_SHARE
    )  # fmt: skip
BASE = "minmax-0.5"


class TextVectors:
    """The vectors of texts, each encoded once and kept in a folder; the encoders read lower case."""

    def __init__(self, folder: Path, model: str) -> None:
        self._folder, self._model, self._embedder = folder, model, None
        self._rows: dict[int, Floats] = {}
        folder.mkdir(parents=True, exist_ok=True)
        for path in sorted(folder.glob("*.npz")):
            part = np.load(path)
            self._rows.update(zip(part["texts"].tolist(), part["vectors"]))

    def encode(self, texts: Iterable[str]) -> None:
        """Encode those that are new."""
        new = {hash64(text.lower()): text for text in texts}
        new = {key: text for key, text in new.items() if key not in self._rows}
        keys = sorted(new, key=lambda key: len(new[key]))
        for start in range(0, len(keys), AT_ONCE):
            some = keys[start : start + AT_ONCE]
            vectors = self._load().vectors([new[key] for key in some], "passage").astype(np.float16)
            path = self._folder / f"{some[0]:020d}.npz"
            np.savez(path, texts=np.array(some, np.uint64), vectors=vectors)
            self._rows.update(zip(some, vectors))

    def _load(self):  # type: ignore[no-untyped-def]
        if self._embedder is None:
            import torch

            from liebig.base.hub import model_folder
            from liebig.search.embed import Embedder

            torch.set_num_threads(1)
            device = "cuda" if torch.cuda.is_available() else "cpu"
            precision = "fp32" if device == "cuda" else "int8"
            self._embedder = Embedder.load(model_folder(self._model), device, precision=precision)
        return self._embedder

    def __call__(self, texts: Sequence[str]) -> Floats:
        rows = [self._rows[hash64(text.lower())] for text in texts]
        return np.stack(rows).astype(np.float32) if rows else np.zeros((0, 1), np.float32)


_ANALYZERS: dict[str, Analyzer] = {}


@lru_cache(None)
def _terms(language: str, text: str) -> list[str]:
    return _ANALYZERS.setdefault(language, Analyzer(language)).terms(text)


making._words = lru_cache(None)(making._words)  # the same passages are in many cuts
making.spans = lru_cache(None)(making.spans)


class Words:
    """BM25 over texts in memory, as `liebig.bm25` computes it."""

    def __init__(self, texts: Sequence[str], analyzer: Analyzer) -> None:
        self._analyzer, self._count = analyzer, len(texts)
        postings: dict[str, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
        lengths = np.zeros(len(texts))
        for number, text in enumerate(texts):
            terms = _terms(analyzer.language, text)
            lengths[number] = len(terms)
            for term, times in Counter(terms).items():
                postings[term][0].append(number)
                postings[term][1].append(times)
        norm = K1 * (1 - B + B * lengths / max(lengths.mean(), 1e-9))
        self._postings = {}
        for term, (numbers, times) in postings.items():
            where, tf = np.array(numbers), np.array(times, float)
            idf = np.log(1 + (len(texts) - len(where) + 0.5) / (len(where) + 0.5))
            self._postings[term] = where, (idf * tf / (norm[where] + tf)).astype(np.float32)

    def scores(self, text: str) -> Floats:
        """The score of every passage."""
        total = np.zeros(self._count, np.float32)
        for term in self._analyzer.terms(text):
            if term in self._postings:
                where, added = self._postings[term]
                total[where] += added
        return total


def best(scores: Floats, depth: int = FUSION_DEPTH) -> NDArray[np.int64]:
    """The best passages; of equal ones the first."""
    some = np.argpartition(-scores, depth)[:depth] if len(scores) > depth else np.arange(len(scores))
    return some[np.lexsort((some, -scores[some]))]


@dataclass(frozen=True)
class Index:
    """Passages as a build indexes them: words, vectors, vectors of sentences."""

    ids: list[str]
    words: Words
    vectors: Floats
    sentences: Floats
    starts: NDArray[np.int64]  # of each passage's sentences

    @classmethod
    def of(cls, passages: Sequence[Passage], analyzer: Analyzer, encoded: TextVectors) -> Index:
        cut = [sentences_of(passage.text) for passage in passages]
        return cls(
            [passage.id for passage in passages],
            Words([f"{p.title} {p.text}" for p in passages], analyzer),
            encoded([titled(passage) for passage in passages]),
            encoded([sentence for of_one in cut for sentence in of_one]),
            np.cumsum([0, *(len(of_one) for of_one in cut[:-1])]),
        )

    def lists(self, text: str, vector: Floats) -> list[tuple[NDArray[np.int64], Floats]]:
        """What words, vectors and sentences find: numbers and scores, the best first."""
        by_words = self.words.scores(text)
        hits = best(by_words)
        dense = self.vectors @ vector
        of_sentences = np.maximum.reduceat(self.sentences @ vector, self.starts)
        everything = [
            (hits[by_words[hits] > 0], by_words),
            (best(dense), dense),
            (best(of_sentences), of_sentences),
        ]
        return [(numbers, scores[numbers]) for numbers, scores in everything]


def titled(passage: Passage) -> str:
    """What the encoder reads of a passage."""
    return f"{passage.title} {passage.text}" if passage.title else passage.text


@lru_cache(None)
def sentences_of(text: str) -> list[str]:
    """The sentences of a text; a text without any is one."""
    return [text[a:b] for a, b in spans(text)] or [text]


def values(
    lists: Sequence[tuple[NDArray[np.int64], Floats]], unit: float, gains: dict[int, float]
) -> NDArray[np.float64]:
    """nDCG@10 of every candidate for one question."""
    union = np.unique(np.concatenate([numbers for numbers, _ in lists]))
    parts = np.zeros((6, len(union)))
    for row, (numbers, scores) in enumerate(lists):
        if not len(numbers):
            continue
        places = np.searchsorted(union, numbers)
        low, high = float(scores[-1]), float(scores[0])
        parts[row, places] = (scores - low) / (high - low) if high > low else 1.0
        if row == 0:
            floor = 0.0 if len(numbers) < FUSION_DEPTH else low
            parts[3, places] = (scores - floor) / (high - floor) if high > floor else 0.0
        else:
            parts[3 + row, places] = (scores - low) / unit
    fused = np.array(list(CANDIDATES.values())) @ parts
    # A list alone has its own order, and nothing that it did not find.
    order = np.argsort(-fused, axis=1, kind="stable")[:, :CUT]
    gain = np.array([gains.get(int(number), 0.0) for number in union])
    ideal = np.sort(np.array(list(gains.values())))[::-1][:CUT]
    discount = 1 / np.log2(np.arange(2, CUT + 2))
    reached = np.take_along_axis(fused, order, 1) > 0
    return ((gain[order] * reached) @ discount[: order.shape[1]]) / (ideal @ discount[: len(ideal)])


def own_questions(corpus: Corpus) -> tuple[list[Question], list[Passage]]:
    """The questions that the check makes of a corpus, and the pool without what they cut."""
    config = QuestionsConfig(collection=Path("/"))
    in_sample = _sample(corpus, config.seed)  # type: ignore[arg-type]
    held = hold_out(corpus, in_sample, config.seed)  # type: ignore[arg-type]
    questions, _ = choose(corpus, held, in_sample, config)  # type: ignore[arg-type]
    taken: dict[str, list[str]] = defaultdict(list)
    for question in questions:
        for id in question.passages if question.cut else ():
            taken[id].append(question.cut)
    answers = {id for question in questions for id in question.passages}
    pool = draw_pool(corpus, answers, config.pool, config.seed)  # type: ignore[arg-type]
    return questions, [bare(passage, taken[passage.id]) for passage in pool]


def signs(corpus: Corpus, index: Index) -> dict[str, float]:
    """What a corpus looks like before anything is asked."""
    draw = np.random.default_rng(0)
    some = [corpus.texts[i] for i in draw.permutation(len(corpus.texts))[:150]]
    text = " ".join(titled(passage) for passage in some)
    parts = words(text)
    english = stop_words("english")
    rows = index.vectors[draw.permutation(len(index.vectors))[:400]]
    cosines = rows @ rows.T
    np.fill_diagonal(cosines, -1)
    letters = [c for c in text if c.isalpha()]
    encoder = _tokenizer()
    tokens = [encoder.encode(titled(passage), add_special_tokens=False) for passage in some]
    pieces = sum(len(one.ids) for one in tokens)
    return {
        "passages": np.log10(len(corpus.texts)),
        "characters": np.log10(np.mean([len(passage.text) for passage in some])),
        "sentences": float(np.mean([len(sentences_of(passage.text)) for passage in some])),
        "titles": float(np.mean([bool(passage.title) for passage in some])),
        "stops": sum(word in english for word in parts) / max(1, len(parts)),
        "unspaced": sum(HAS_UNSPACED.match(c) is not None for c in letters) / max(1, len(letters)),
        "ascii": sum(c.isascii() for c in letters) / max(1, len(letters)),
        "symbols": sum(c in "(){}[]_=<>" for c in text) / max(1, len(text)),
        "fragments": pieces / max(1, sum(len(passage.text.split()) for passage in some)),
        "pieces": sum(token.startswith("##") for one in tokens for token in one.tokens) / max(1, pieces),
        "unknown": sum(token == "[UNK]" for one in tokens for token in one.tokens) / max(1, pieces),
        "letters": sum(len(letter) for letter in [letters]) / max(1, pieces),
        "cosine": float(np.mean(cosines[cosines > -1])),
        "nearest": float(np.mean(cosines.max(1))),
    }


def _tokenizer():  # type: ignore[no-untyped-def]
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(encoders.folder() / "tokenizer.json"))


def measured(corpus: Corpus, own: Sequence[Question], pool: Sequence[Passage]) -> list[list[object]]:
    """The lines of one corpus."""
    analyzer = Analyzer(corpus.language)
    whole, bare_pool = (Index.of(some, analyzer, _ENCODED) for some in (corpus.texts, pool))
    gaps = defaultdict(list)
    for question, vector in zip(own, _ENCODED([question.text for question in own])):
        top = np.sort(np.partition(whole.vectors @ vector, -SPREAD_RANK)[-SPREAD_RANK:])
        gaps[question.kind].append(SPREAD_TIMES * (top[-1] - top[0]))
    standing = [float(np.median(of_kind)) for kind, of_kind in gaps.items() if len(of_kind) >= 10]
    unit = float(np.mean(standing)) if standing else 1.0
    by_kind: dict[str, list[NDArray[np.float64]]] = defaultdict(list)
    places = {id: number for number, id in enumerate(bare_pool.ids)}
    for question, vector in zip(own, _ENCODED([question.text for question in own])):
        gains = {places[id]: 1.0 for id in question.passages}
        by_kind[question.kind].append(values(bare_pool.lists(question.text, vector), unit, gains))
    places = {id: number for number, id in enumerate(whole.ids)}
    draw = np.random.default_rng(len(corpus.asked))
    asked = [corpus.asked[i] for i in draw.permutation(len(corpus.asked))[:ASKED]]
    people = np.array([
        values(whole.lists(question.text, vector), unit, {places[id]: g for id, g in question.grades.items() if g > 0})
        for question, vector in zip(asked, _ENCODED([question.text for question in asked]))
    ])  # fmt: skip
    head: list[object] = [corpus.name, "+".join(corpus.sources)]
    lines = [
        [*head, kind, *numbers(np.array(of_kind))] for kind, of_kind in by_kind.items() if len(of_kind) >= 10
    ]
    lines.append([*head, "people", *numbers(people)])
    for kind, each in (
        ("scatter-own", [np.array(of_kind) for of_kind in by_kind.values()]),
        ("scatter", [people]),
    ):
        lines += [[*head, kind, sum(map(len, each)), *scatter(each)]] if each else []
    for number in range(DRAWS):
        order = draw.permutation(len(people))
        some = min(SOME, len(people) // 2)
        lines.append([*head, f"some-{number}", *numbers(people[order[:some]])])
        lines.append([*head, f"rest-{number}", *numbers(people[order[some:]])])
    seen = signs(corpus, whole)
    lines.append(
        [*head, "signs", len(corpus.texts), *(f"{name}={value:.4g}" for name, value in seen.items())]
    )
    return lines


def numbers(rows: NDArray[np.float64]) -> list[object]:
    """Count, value of the baseline, then difference and standard error of every other candidate."""
    base = list(CANDIDATES).index(BASE)
    differences = np.delete(rows - rows[:, [base]], base, axis=1)
    errors = differences.std(0, ddof=1) / np.sqrt(len(rows))
    pairs = [round(1e5 * float(x)) for pair in zip(differences.mean(0), errors) for x in pair]
    return [len(rows), round(1e5 * float(rows[:, base].mean())), *pairs]


def scatter(groups: Sequence[NDArray[np.float64]]) -> list[object]:
    """The covariance of the candidates' differences from question to question: its upper triangle, row by row."""
    base = list(CANDIDATES).index(BASE)
    centred = [np.delete(rows - rows[:, [base]], base, axis=1) for rows in groups]
    centred = [rows - rows.mean(0) for rows in centred]
    matrix = sum(rows.T @ rows for rows in centred) / sum(len(rows) - 1 for rows in centred)
    return [round(1e5 * float(x)) for x in matrix[np.triu_indices(len(matrix))]]


_ENCODED: TextVectors


def measure(corpora: Iterable[Corpus], writer: Any) -> None:
    """Write the lines of corpora, as far as people ask enough about them."""
    for corpus in corpora:
        if len(corpus.asked) < FEWEST or len(corpus.texts) < 100:
            continue
        own, pool = own_questions(corpus)
        for texts in (
            (titled(passage) for passage in corpus.texts),
            (s for passage in (*corpus.texts, *pool) for s in sentences_of(passage.text)),
            (titled(passage) for passage in pool),
            (question.text for question in (*corpus.asked, *own)),
        ):
            _ENCODED.encode(texts)
        writer.writerows(measured(corpus, own, pool))
        print(time.strftime("%H:%M:%S"), corpus.name, len(_ENCODED._rows), flush=True)


def arguments(about: str) -> argparse.Namespace:
    """Of the command line."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--model", default=encoders.PREFIX + encoders.DEFAULT)
    parser.add_argument("--sources", nargs="*", default=SOURCES)
    parser.add_argument("--mixed", action="store_true", help="only mixtures of two sources")
    return parser.parse_args()


def corpora_of(given: argparse.Namespace) -> Iterator[tuple[str, Iterable[Corpus]]]:
    """Every source with its cuts, or the mixtures."""
    if given.mixed:
        pairs = [(a, b) for a, b in MIXED if a in given.sources and b in given.sources]
        for number, (a, b) in enumerate(pairs):
            yield f"{a}+{b}", mixed(source(given.data / a, a), source(given.data / b, b), number)
        return
    for name in given.sources:
        corpus = source(given.data / name, name)
        _ENCODED.encode(titled(passage) for passage in corpus.texts)
        yield name, cuts(corpus, _ENCODED([titled(passage) for passage in corpus.texts]), len(name))


def main() -> None:
    global _ENCODED
    given = arguments(__doc__ or "")
    _ENCODED = TextVectors(given.out / "vectors", given.model)
    others = [name for name in CANDIDATES if name != BASE]
    columns = [f"{name}{error}" for name in others for error in ("", "±")]
    for name, corpora in corpora_of(given):
        path = given.out / f"measured-{name}.csv"
        if path.is_file():
            continue
        partial = path.with_suffix(".partial")
        with partial.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["corpus", "sources", "kind", "questions", BASE, *columns])
            measure(corpora, writer)
        partial.rename(path)
        print(time.strftime("%H:%M:%S"), name, flush=True)


if __name__ == "__main__":
    main()
