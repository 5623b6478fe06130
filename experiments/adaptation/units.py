"""Which unit of cosines should a build measure, and how far do 20 questions of a user's own move it?

    python experiments/adaptation/units.py DATA OUT --sets cranfield squad scifact medquad

For each set the default is built in OUT/SET, unless it is there, and the hits of BM25, passages and sentences for
made-up and for judged questions are kept in OUT/SET-lists.npz; then nothing has to be encoded to try a unit. Printed
are, per set, the unit by each rule and what the hybrid with it gains over the untrained hybrid of halves (nDCG@10
points), and the gains with draws of 20 judged questions, by how many of them the made-up ones count as much as
(`judge.MADE_UP`).
Judged questions are those of the development split; of sets without one, those of the test split.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from builds import DEV, arguments, judged
from numpy.typing import NDArray

import liebig
from liebig.base.records import Query
from liebig.builder.check import EncodedOnce, enough
from liebig.builder.judge import LEANED, PLAIN, Judge
from liebig.builder.questions import Question, read as read_questions
from liebig.search import retriever_folder
from liebig.search.systems import (
    DEPTH,
    SENTENCE_SHARE,
    SENTENCES,
    Hits,
    open_system,
    spread_at,
    weighted_by,
)

MOST = 600  # judged questions of a set
ASKED = {"made-pool": "made-up, pool", "made-whole": "made-up, whole index", "people": "people's"}
DRAWN, DRAWS = 20, 300
WEIGHTS = (0, 10, 20, 30, 60, 1_000_000)  # own questions that made-up ones count as much as
Lists = dict[str, NDArray[np.generic]]


def default_build(data: Path, out: Path, name: str) -> Path:
    """The retriever that `liebig build` makes of a set; one that is there is up to date."""
    folder = out / name / "retriever"
    liebig.build(str(data / name / "corpus.jsonl.xz"), folder)
    return folder


def people_of(data: Path, name: str) -> list[Question]:
    """Judged questions of a set, MOST of them."""
    people = judged(data / name, DEV.get(name, "test"))
    return [people[i] for i in np.random.default_rng(0).permutation(len(people))[:MOST]]


def write_lists(data: Path, out: Path, name: str) -> None:
    """The hits of every system for made-up questions, in the pool and in the whole index, and for judged ones."""
    folder = default_build(data, out, name)
    now = retriever_folder.read(folder)
    number: dict[str, int] = {}
    kept: Lists = {}

    def numbered(id: str) -> int:
        return number.setdefault(id, len(number))

    def ask(key: str, questions: list[Question], bm25: Path, passages: Path, sentences: Path | None) -> None:
        queries = [Query(f"{key}{i}", question.text) for i, question in enumerate(questions)]
        encoded, model = EncodedOnce(), folder / str(now.model)
        systems = {"bm25": open_system(bm25), "dense": encoded.system(passages, model)}
        if sentences is not None:
            systems[SENTENCES] = encoded.system(sentences, model, SENTENCES)
        for system, lists in ((name, one.search(queries, DEPTH)) for name, one in systems.items()):
            ids = np.full((len(lists), DEPTH), -1, np.int32)
            scores = np.zeros((len(lists), DEPTH), np.float32)
            for row, hits in enumerate(lists):
                ids[row, : len(hits)] = [numbered(id) for id, _ in hits[:DEPTH]]
                scores[row, : len(hits)] = [score for _, score in hits[:DEPTH]]
            kept[f"{key}-{system}-ids"] = ids
            # Sixteen bits of the mantissa are enough, and take half of the room.
            kept[f"{key}-{system}-scores"] = (scores.view(np.uint32) & np.uint32(0xFFFFFF00)).view(np.float32)
        pairs = [(numbered(id), i) for i, question in enumerate(questions) for id in question.passages]
        kept[f"{key}-relevant"], kept[f"{key}-relevant-of"] = np.array(pairs, np.int32).T
        kept[f"{key}-kinds"] = np.array([question.kind for question in questions])

    made, work = enough(read_questions(folder / str(now.checks))), folder / "work"
    whole = folder / str(now.bm25), folder / str(now.index), now.sentences and folder / now.sentences
    ask("made-pool", made, work / "pool-bm25", work / "pool-start", work / "pool-start-sentences")
    ask("made-whole", made, *whole)
    ask("people", people_of(data, name), *whole)
    np.savez_compressed(out / f"{name}-lists.npz", allow_pickle=False, **kept)


class Asked:
    """Questions of one kind of origin, with their hits."""

    def __init__(self, lists: Lists, key: str) -> None:
        relevant: list[list[str]] = [[] for _ in lists[f"{key}-kinds"]]
        for passage, question in zip(lists[f"{key}-relevant"], lists[f"{key}-relevant-of"]):
            relevant[int(question)].append(str(passage))
        self.questions = [
            Question(str(i), tuple(passages), str(kind))
            for i, (passages, kind) in enumerate(zip(relevant, lists[f"{key}-kinds"]))
        ]
        self.judge = Judge(self.questions)
        self.hits: dict[str, list[Hits]] = {}
        for system in ("bm25", "dense", SENTENCES):
            if f"{key}-{system}-ids" in lists:
                both = zip(lists[f"{key}-{system}-ids"], lists[f"{key}-{system}-scores"])
                self.hits[system] = [
                    [(str(id), float(score)) for id, score in zip(ids, scores) if id >= 0]
                    for ids, scores in both
                ]
        self.spreads = np.array([spread_at(hits) for hits in self.hits["dense"]])
        self._gains: dict[float, NDArray[np.float64]] = {}

    def unit(self, rule: str) -> float:
        """The mean over kinds of their means or medians; `others`: without the passages that are known to answer."""
        spreads = self.spreads
        if rule == "others":
            known = [set(question.passages) for question in self.questions]
            rest = (
                [hit for hit in hits if hit[0] not in ids] for hits, ids in zip(self.hits["dense"], known)
            )
            spreads = np.array([spread_at(hits) for hits in rest])
        typical = np.median if rule == "median" else np.mean
        by_kind = self.judge.by_kind(spreads, self.judge.every)
        return float(np.mean([typical(of_kind) for of_kind in by_kind.values()]))

    def gains(self, unit: float) -> NDArray[np.float64]:
        """What every question gains over the untrained hybrid, in points; units are rounded to .005."""
        unit = round(200 * unit) / 200
        if unit not in self._gains:
            sentences = SENTENCES in self.hits
            share, weight = (SENTENCE_SHARE, LEANED) if sentences else (0.0, PLAIN)
            with_unit = self._values(list(self.hits), weighted_by(weight, "spread", share, unit))
            self._gains[unit] = 100 * (
                with_unit - self._values(["bm25", "dense"], weighted_by(PLAIN, "minmax"))
            )
        return self._gains[unit]

    def _values(self, systems: list[str], fuse: liebig.search.systems.Fuse) -> NDArray[np.float64]:
        return self.judge.measure([fuse(lists) for lists in zip(*(self.hits[name] for name in systems))])


def compare(name: str, lists: Lists) -> None:
    """Print the units by each rule, and draws of a user's own questions."""
    asked = {key: Asked(lists, key) for key in ASKED}
    people, pool, whole = asked["people"], asked["made-pool"], asked["made-whole"]
    units = {
        f"{ASKED[key]}, {rule}": one.unit(rule) for key, one in asked.items() for rule in ("mean", "median")
    }
    for rule in ("mean", "median"):
        units[f"pool's {rule} x others, whole / pool"] = (
            pool.unit(rule) * whole.unit("others") / pool.unit("others")
        )
    print(f"{name}: {len(people.questions)} judged questions")
    for label, unit in units.items():
        print(f"  {label:45} {unit:.3f}  {people.gains(unit).mean():+.2f}")
    print("  " + "  ".join(f"{unit}: {people.gains(unit).mean():+.2f}" for unit in np.arange(4, 12) / 25))
    made = whole.unit("median")
    drawn: dict[int, list[float]] = {weight: [] for weight in WEIGHTS}
    generator = np.random.default_rng(7)
    for _ in range(DRAWS):
        order = generator.permutation(len(people.questions))
        own, others = order[:DRAWN], order[DRAWN:]
        for weight, gains in drawn.items():
            unit = (people.spreads[own].sum() + weight * made) / (DRAWN + weight)
            gains.append(float((people.gains(unit) - people.gains(made))[others].mean()))
    for weight, gains in drawn.items():
        told = f"{np.mean(gains):+.3f}, 5 % {np.quantile(gains, 0.05):+.2f}, worst {np.min(gains):+.2f}"
        print(f"  {DRAWN} own, made-up as {weight}: to made-up alone {told}")


def main() -> None:
    given = arguments(__doc__).parse_args()
    for name in given.sets:
        file = given.out / f"{name}-lists.npz"
        if not file.is_file():
            write_lists(given.data, given.out, name)
        with np.load(file) as lists:
            compare(name, dict(lists))


if __name__ == "__main__":
    main()
