"""What every system of a build is worth on hundreds of corpora: by people's questions, and by the check's own.

    python experiments/check/measure.py DATA OUT [--model MODEL] [--processes 16] [--most 2000] [--sources NAME ...]

DATA holds the sources of `corpora.py`. OUT gets `NAME.npz` for every corpus: the nDCG@10 of each candidate on every
question (rows; the candidates are columns), the questions' kinds, and what the corpus looks like to the encoder.
`fit.py --join OUT` makes the table of them that the rule is fitted on.

Everything is computed as a build and a folder compute it: sentences are pooled from the states of their passages, the
pool of the check has lost its titles and the sentences that are asked, the score scale is measured over all passages,
and every system is fused as it is served. Passages are encoded once, by a GPU where there is one. With `--most 300` a
corpus takes about ten seconds of a CPU's core. What OUT has is not measured again; its `corpora` and `vectors` may go.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import argparse
import hashlib
import json
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from functools import cache, lru_cache
from importlib import import_module
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from liebig.base.machine import prefer_numpy, prefers_numpy

# A stand-in, where numba cannot travel to a GPU, has no version.
if find_spec("numba") is None or not hasattr(import_module("numba"), "__version__"):
    prefer_numpy()

from corpora import (
    AMONG,
    ASKED,
    FEWEST,
    FEWEST_PASSAGES,
    PAIRS,
    SOURCES,
    Corpus,
    among,
    cuts,
    mixed,
    source,
    topics_of,
)  # fmt: skip
from numpy.typing import NDArray

from liebig import encoders
from liebig.base.records import Passage
from liebig.bm25.analysis import AUTO, Analyzer, MixedAnalyzer, analyzed_as
from liebig.builder import questions as making
from liebig.builder.judge import HYBRIDS
from liebig.builder.questions import Question, QuestionsConfig, _sample, bare, choose, draw_pool, hold_out
from liebig.builder.signs import CorpusSigns, signs_of_texts
from liebig.search.fusion import FUSION_DEPTH, SENTENCE_SHARE, SPREAD_RANK, SPREAD_TIMES

K1, B, TOP = 0.9, 0.4, 10
LEAST_OF_KIND = 10
AT_ONCE = 512  # questions
WINDOW, AT_A_TIME = 2048, 4096  # passages encoded together, and by a process
Floats = NDArray[np.float32]
# Weights of the six parts: BM25, vectors and sentences as `minmax` has them, then as `spread` has them.
CANDIDATES: dict[str, tuple[float, ...]] = {"bm25": (1, 0, 0, 0, 0, 0), "dense": (0, 1, 0, 0, 0, 0)}
for (_norm, _by_sentences), _weights in HYBRIDS.items():
    for _w in _weights:
        _share = SENTENCE_SHARE if _by_sentences else 0.0
        _vectors = ((1 - _w) * (1 - _share), (1 - _w) * _share)
        _name = f"{'sentences' if _by_sentences else _norm}-{_w:g}"
        CANDIDATES[_name] = (0, 0, 0, _w, *_vectors) if _norm == "spread" else (_w, *_vectors, 0, 0, 0)


@dataclass(frozen=True)
class Encoded:
    """The vector of a text, and those of its sentences."""

    vector: Floats
    sentences: Floats


class TextVectors:
    """The vectors of texts, each encoded once by this process, or before it by another one."""

    def __init__(self, folder: Path, model: str, device: str) -> None:
        self._folder, self._model, self._device = folder, model, device
        self._rows: dict[bytes, Encoded] = {}
        self._loaded: set[str] = set()

    def keep(self, name: str, passages: Sequence[Passage]) -> None:
        """Encode passages into a file, for all processes."""
        rows = [self._rows[_key(passage)] for passage in self.encode(passages)]
        counts = np.array([len(row.sentences) for row in rows])
        keys = np.array([np.frombuffer(_key(passage), np.uint8) for passage in passages])
        folder = self._folder / name
        folder.mkdir(parents=True)
        np.save(folder / "keys.npy", keys)
        np.save(folder / "counts.npy", counts)
        np.save(folder / "vectors.npy", np.stack([row.vector for row in rows]).astype(np.float16))
        np.save(folder / "sentences.npy", np.concatenate([row.sentences for row in rows]).astype(np.float16))

    def load(self, names: Sequence[str]) -> None:
        """What was kept of some sources."""
        new = [name for name in names if name not in self._loaded]
        self._loaded.update(new)
        for folder in sorted(path for name in new for path in self._folder.glob(f"{name}~*")):
            keys, counts, vectors, sentences = (
                np.load(folder / f"{part}.npy", mmap_mode="r")
                for part in ("keys", "counts", "vectors", "sentences")
            )
            starts = np.concatenate([[0], np.cumsum(counts)]).tolist()
            for number, key in enumerate(keys):
                self._rows[key.tobytes()] = Encoded(
                    vectors[number], sentences[starts[number] : starts[number + 1]]
                )

    def encode(self, passages: Sequence[Passage]) -> Sequence[Passage]:
        """Encode those that are new, sorted by length."""
        from liebig.search.token_windows import TextItem, Workers
        from liebig.search.window_vectors import encode

        new = {_key(passage): passage for passage in passages}
        new = {key: passage for key, passage in new.items() if key not in self._rows}
        order = sorted(new, key=lambda key: len(new[key].text))
        if not order:
            return passages
        embedder = self._embedder
        layout = embedder.layout("passage")
        groups = (
            [TextItem(str(n), new[order[n]]) for n in range(start, min(start + WINDOW, len(order)))]
            for start in range(0, len(order), WINDOW)
        )
        with Workers(embedder.reader.tokenizer, None) as workers:
            batches = workers.windows(groups, layout, sentences=True)
            for window in encode(batches, embedder.model(layout, unit=True), embedder.plan(layout)):
                assert window.sentences is not None
                owners = np.array([int(id.split("#")[0]) for id in window.sentences.ids])
                first = int(window.ids[0])
                ends = np.searchsorted(owners, np.arange(first, first + len(window.ids) + 1))
                for place, vector in enumerate(window.vectors):
                    inner = window.sentences.vectors[ends[place] : ends[place + 1]]
                    self._rows[order[first + place]] = Encoded(
                        vector.astype(np.float16), inner.astype(np.float16)
                    )
        return passages

    @property
    def _embedder(self) -> Any:
        return _embedder(self._model, self._device)

    def questions(self, texts: Sequence[str]) -> Floats:
        """The vectors of questions."""
        return np.asarray(self._embedder.vectors(list(texts), "query"), np.float32)

    def of(self, passages: Sequence[Passage]) -> list[Encoded]:
        """The vectors of passages, and of their sentences."""
        self.encode(passages)
        return [self._rows[_key(passage)] for passage in passages]


@cache
def _embedder(model: str, device: str) -> Any:
    import torch

    from liebig.base.hub import model_folder
    from liebig.search.embed import Embedder

    torch.set_num_threads(1)
    if device == "cuda" or prefers_numpy():  # bfloat16 needs no compiled code
        return Embedder.load(model_folder(model), device, half=True)
    return Embedder.load(model_folder(model), device, precision="int8")


def _key(passage: Passage) -> bytes:
    return hashlib.blake2b(f"{passage.title}\0{passage.text}".encode(), digest_size=16).digest()


_terms = lru_cache(200_000)(lambda language, text: _analyzer((language,)).of(language).terms(text))
making._words = lru_cache(100_000)(making._words)  # the same passages are in many cuts
making.spans = lru_cache(200_000)(making.spans)


@cache
def _analyzer(codes: tuple[str, ...]) -> Analyzer:
    return MixedAnalyzer(AUTO, fold=True, languages=tuple(analyzed_as(code) for code in codes))


class Words:
    """BM25 over texts in memory, as `liebig.bm25` computes it for texts of several languages."""

    def __init__(self, passages: Sequence[Passage]) -> None:
        self._analyzer = _analyzer(tuple(sorted({passage.language for passage in passages})))
        self._count = len(passages)
        numbers: dict[str, int] = {}
        terms, owners, times, lengths = [], [], [], np.zeros(len(passages))
        for number, passage in enumerate(passages):
            text = f"{passage.title} {passage.text}" if passage.title else passage.text
            counts = Counter(_terms(passage.language, text))
            lengths[number] = counts.total()
            terms += [numbers.setdefault(term, len(numbers)) for term in counts]
            owners += [number] * len(counts)
            times += counts.values()
        order = np.argsort(np.array(terms, np.int64), kind="stable")
        self._owners, self._times = np.array(owners)[order], np.array(times, np.float32)[order]
        self._starts = np.searchsorted(np.array(terms)[order], np.arange(len(numbers) + 1))
        self._numbers = numbers
        self._norm = (K1 * (1 - B + B * lengths / max(lengths.mean(), 1e-9))).astype(np.float32)

    def scores(self, text: str) -> Floats:
        """The score of every passage."""
        total = np.zeros(self._count, np.float32)
        for word in self._analyzer.query_words(text):
            places = [
                slice(*self._starts[number : number + 2])
                for term in self._analyzer.variants(word)
                if (number := self._numbers.get(term)) is not None
            ]
            if not places:
                continue
            owners = np.concatenate([self._owners[at] for at in places])
            times = np.concatenate([self._times[at] for at in places])
            count = min(len(owners), self._count)
            idf = np.log(1 + (self._count - count + 0.5) / (count + 0.5))
            np.add.at(total, owners, (idf * times / (self._norm[owners] + times)).astype(np.float32))
        return total


Found = tuple[NDArray[np.int64], Floats]  # numbers of passages and their scores, the best first


def best(scores: Floats, depth: int = FUSION_DEPTH) -> Found:
    """The best passages; of equal ones the first."""
    some = np.argpartition(-scores, depth)[:depth] if len(scores) > depth else np.arange(len(scores))
    some = some[np.lexsort((some, -scores[some]))]
    return some, scores[some]


class Index:
    """Passages as a build indexes them: words, vectors, vectors of sentences."""

    def __init__(self, passages: Sequence[Passage], encoded: TextVectors) -> None:
        self.ids = [passage.id for passage in passages]
        self.words = Words(passages)
        rows = encoded.of(passages)
        self.vectors = np.stack([row.vector for row in rows]).astype(np.float32)
        self._sentences = np.concatenate([row.sentences for row in rows]).astype(np.float32)
        self._starts = np.concatenate([[0], np.cumsum([len(row.sentences) for row in rows])])

    def by_meaning(self, queries: Floats) -> Iterator[tuple[Found, Found]]:
        """What vectors and vectors of sentences find for every question."""
        import torch

        cuda = torch.cuda.is_available()
        step = max(1, min(AT_ONCE, 60_000_000 // len(self._sentences)))
        if cuda:
            vectors, sentences = (torch.from_numpy(x).cuda() for x in (self.vectors, self._sentences))
            owners = torch.arange(len(self.ids)).repeat_interleave(torch.from_numpy(np.diff(self._starts)))
            owners = owners.cuda()[:, None]
        for start in range(0, len(queries), step):
            some = queries[start : start + step]
            if cuda:
                asked = torch.from_numpy(some).cuda().T
                depth = min(FUSION_DEPTH, len(self.ids))
                inner = torch.full((len(self.ids), len(some)), -2.0, device="cuda")
                inner.scatter_reduce_(0, owners.expand(-1, len(some)), sentences @ asked, "amax")
                tops = [torch.topk(x, depth, dim=0) for x in (vectors @ asked, inner)]
                parts = [(top.indices.T.cpu().numpy(), top.values.T.cpu().numpy()) for top in tops]
                for row in range(len(some)):
                    one, two = ((numbers[row], scores[row]) for numbers, scores in parts)
                    yield one, two
            else:
                dense = some @ self.vectors.T
                inner = np.maximum.reduceat(some @ self._sentences.T, self._starts[:-1], axis=1)
                for row in range(len(some)):
                    yield best(dense[row]), best(inner[row])

    def lists(self, texts: Sequence[str], queries: Floats) -> Iterator[list[Found]]:
        """What words, vectors and sentences find."""
        for text, (dense, inner) in zip(texts, self.by_meaning(queries)):
            numbers, scores = best(self.words.scores(text))
            yield [(numbers[scores > 0], scores[scores > 0]), dense, inner]


WEIGHTS = np.array(list(CANDIDATES.values()))
DISCOUNT = 1 / np.log2(np.arange(2, TOP + 2))


def values(lists: Sequence[Found], unit: float, gains: dict[int, float]) -> NDArray[np.float64]:
    """nDCG@10 of every candidate for one question."""
    # Equal results keep the order of the first system.
    union = np.array(list(dict.fromkeys(np.concatenate([numbers for numbers, _ in lists]).tolist())))
    sorter = np.argsort(union)
    parts = np.zeros((6, len(union)))
    for row, (numbers, scores) in enumerate(lists):
        if not len(numbers):
            continue
        places = sorter[np.searchsorted(union, numbers, sorter=sorter)]
        low, high = float(scores[-1]), float(scores[0])
        parts[row, places] = (scores - low) / (high - low) if high > low else 1.0
        if row == 0:
            floor = 0.0 if len(numbers) < FUSION_DEPTH else low
            parts[3, places] = (scores - floor) / (high - floor) if high > floor else 0.0
        else:
            parts[3 + row, places] = (scores - low) / unit
    fused = WEIGHTS @ parts
    gain = np.array([gains.get(int(number), 0.0) for number in union])
    ideal = np.sort(np.array(list(gains.values())))[::-1][:TOP]
    order = np.argsort(-fused, axis=1, kind="stable")[:, :TOP]
    # A list alone has its own order, and nothing that it did not find.
    reached = gain[order]
    for row, (numbers, _) in enumerate(lists[:2]):
        top = sorter[np.searchsorted(union, numbers[:TOP], sorter=sorter)]
        reached[row] = 0.0
        reached[row, : len(top)] = gain[top]
    return (reached @ DISCOUNT[: reached.shape[1]]) / (ideal @ DISCOUNT[: len(ideal)])  # type: ignore[no-any-return]


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
    counts = Counter(question.kind for question in questions)
    return [question for question in questions if counts[question.kind] >= LEAST_OF_KIND], [
        bare(passage, taken[passage.id]) for passage in pool
    ]


def measured(corpus: Corpus, encoded: TextVectors) -> dict[str, Any]:
    """Values of every question, their kinds, and the signs of one corpus."""
    own, pool = own_questions(corpus)
    draw = np.random.default_rng(len(corpus.asked))
    asked = [corpus.asked[i] for i in draw.permutation(len(corpus.asked))[:ASKED]]
    whole, bare_pool = Index(corpus.texts, encoded), Index(pool, encoded)
    texts, kinds = [question.text for question in own], [question.kind for question in own]
    vectors = encoded.questions([*texts, *(question.text for question in asked)])
    gaps: dict[str, list[float]] = defaultdict(list)
    for kind, (dense, _) in zip(kinds, whole.by_meaning(vectors[: len(own)])):
        gaps[kind].append(SPREAD_TIMES * float(dense[1][0] - dense[1][:SPREAD_RANK][-1]))
    unit = float(np.mean([np.median(of_kind) for of_kind in gaps.values()])) if gaps else 1.0
    rows = []
    places = {id: number for number, id in enumerate(bare_pool.ids)}
    for question, lists in zip(own, bare_pool.lists(texts, vectors[: len(own)])):
        rows.append(values(lists, unit, {places[id]: 1.0 for id in question.passages}))
    places = {id: number for number, id in enumerate(whole.ids)}
    for person, lists in zip(asked, whole.lists([one.text for one in asked], vectors[len(own) :])):
        gains = {places[id]: float(grade) for id, grade in person.grades.items() if grade > 0}
        rows.append(values(lists, unit, gains))
    seen = signs(corpus, encoded) | {"passages": float(np.log10(len(corpus.texts))), "unit": unit}
    return {
        "values": np.array(rows, np.float16),
        "kinds": np.array([*kinds, *["people"] * len(asked)]),
        "about": json.dumps({"name": corpus.name, "sources": corpus.sources, "signs": seen}),
        "names": np.array(list(CANDIDATES)),
    }


def signs(corpus: Corpus, encoded: TextVectors) -> dict[str, float]:
    """What a corpus looks like before anything is asked, and how alike its vectors are."""
    some = [corpus.texts[i] for i in np.random.default_rng(0).permutation(len(corpus.texts))[:300]]
    seen: CorpusSigns = signs_of_texts(some, encoded._embedder.reader.tokenizer)
    rows = np.stack([row.vector for row in encoded.of(some)]).astype(np.float32)
    cosines = rows @ rows.T
    np.fill_diagonal(cosines, -1)
    text = " ".join(passage.text for passage in some)
    return {
        **asdict(seen),
        "ascii": sum(map(str.isascii, text)) / len(text),
        "symbols": sum(c in "(){}[]_=<>" for c in text) / len(text),
        "cosine": float(cosines[cosines > -1].mean()), "nearest": float(cosines.max(1).mean()),
    }  # fmt: skip


def _corpora(name: str, encoded: TextVectors) -> Iterator[Corpus]:
    """The corpora of a source, or of two sources (`a+b` mixed, `a<b` among)."""
    if "+" in name or "<" in name:
        a, b = map(_source, name.replace("<", "+").split("+"))
        seed = PAIRS.index((a.name, b.name)) if "+" in name else AMONG.index((a.name, b.name))
        yield from mixed(a, b, seed) if "+" in name else among(a, b, seed)
        return
    corpus, topics = _source(name), None
    if len(corpus.texts) >= 600:
        topics = topics_of(np.stack([row.vector for row in encoded.of(corpus.texts)]).astype(np.float32))
    yield from cuts(corpus, topics, len(name))


_STATE: dict[str, Any] = {}


def _started(options: dict[str, Any]) -> None:
    """In a new process."""
    _STATE.update(options)
    _STATE["encoded"] = TextVectors(options["vectors"], options["model"], options["device"])


def _read(name: str) -> tuple[str, int]:
    """Read a source once, into a file."""
    if not _file(name).is_file():
        source(_STATE["data"], name, _STATE["most"]).write(_file(name))
    return name, len(_source(name).texts)


def _source(name: str) -> Corpus:
    return Corpus.read(_file(name))


def _file(name: str, ending: str = "source") -> Path:
    return _STATE["corpora"] / f"{name.replace('/', '~')}.{ending}.jsonl"  # type: ignore[no-any-return]


def _keep(name: str, start: int) -> str:
    _STATE["encoded"].keep(f"{name}~{start}", _source(name).texts[start : start + AT_A_TIME])
    return f"{name} {start}"


def _prepared(name: str) -> list[Path]:
    """The corpora of a source as files, one for each process that measures one."""
    _STATE["encoded"].load([name])
    paths = []
    for corpus in _corpora(name, _STATE["encoded"]):
        if len(corpus.asked) < FEWEST or len(corpus.texts) < FEWEST_PASSAGES:
            continue
        path = _file(corpus.name, "cut")
        corpus.write(path)
        paths.append(path)
    return paths


def _measured(path: Path) -> str:
    name = path.name.removesuffix(".cut.jsonl")
    out = _STATE["out"] / f"{name}.npz"
    if out.is_file():
        return f"{name} is there"
    began = time.perf_counter()
    corpus = Corpus.read(path)
    encoded: TextVectors = _STATE["encoded"]
    encoded.load(corpus.sources)
    result = measured(corpus, encoded)
    with out.with_suffix(".partial").open("wb") as file:
        np.savez_compressed(file, **result)
    out.with_suffix(".partial").rename(out)
    return f"{corpus.name} {len(corpus.texts)} {len(result['kinds'])} {time.perf_counter() - began:.1f} s"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--model", default=encoders.PREFIX + encoders.DEFAULT)
    parser.add_argument("--sources", nargs="*", default=SOURCES)
    parser.add_argument("--most", type=int, help="passages of a source [default: as corpora.py says]")
    parser.add_argument("--processes", type=int, default=1)
    given = parser.parse_args()
    import torch

    corpora, vectors = given.out / "corpora", given.out / "vectors"
    for folder in (corpora, vectors):
        folder.mkdir(parents=True, exist_ok=True)
    options = {
        "data": given.data, "out": given.out, "most": given.most, "model": given.model,
        "vectors": vectors, "corpora": corpora,
        "device": "cuda" if torch.cuda.is_available() else "cpu",
    }  # fmt: skip

    def say(text: str) -> None:
        print(time.strftime("%H:%M:%S"), text, flush=True)

    pool = ProcessPoolExecutor(given.processes, get_context("spawn"), _started, (options,))
    with pool:
        done = {path.name for path in vectors.glob("*~*")}
        parts = []
        for name, count in pool.map(_read, given.sources):
            starts = [start for start in range(0, count, AT_A_TIME) if f"{name}~{start}" not in done]
            parts += [pool.submit(_keep, name, start) for start in starts]
            say(f"{name}: {count} passages")
        for part in parts:
            part.result()
        say("passages are encoded")
        there = set(given.sources)
        names = [
            *given.sources,
            *(f"{a}+{b}" for a, b in PAIRS if {a, b} <= there),
            *(f"{a}<{b}" for a, b in AMONG if {a, b} <= there),
        ]
        waiting = [pool.submit(_prepared, name) for name in names]
        tasks = [task for one in waiting for task in enumerate(one.result())]
        say(f"{len(tasks)} corpora are drawn")
        # Each source in turn, so that a run that is cut short has some corpora of all.
        order = [path for _, path in sorted(tasks, key=lambda task: task[0])]
        failed = 0
        for number, one in enumerate(as_completed([pool.submit(_measured, path) for path in order]), 1):
            failed += one.exception() is not None
            say(f"{number}/{len(tasks)} {one.exception() or one.result()}")
    if failed:
        raise SystemExit(f"{failed} corpora could not be measured")


if __name__ == "__main__":
    main()
