"""What a hybrid with a larger encoder answers, by its own questions or by a student's, beside MiniLM with BM25.

    python experiments/adaptation/teachers.py DATA OUT --sets squad scifact --encoders minilm=FOLDER bge=FOLDER
    python experiments/adaptation/teachers.py DATA OUT --sets squad scifact --table

For each set and encoder the passages and sentences are encoded as a build does it. The hits for the questions of the
test and the development split and for made-up ones are kept in OUT/SET-lists-ENCODER.npz (OUT/SET-asked.npz has the
judgements and BM25's hits), so that a hybrid is tried without encoding anything. `start` is the bundled encoder;
`students.py` adds lists by students. The table has every system in points over the plain hybrid of `minilm`, with the
unit of the cosines that a build would measure; the values of every question go to OUT/SET-values-SPLIT.npz.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from builds import DEV, arguments, judged
from numpy.typing import NDArray

from liebig.base.records import Query
from liebig.builder import build as building
from liebig.builder.build_config import BuildConfig
from liebig.builder.check import enough
from liebig.builder.judge import LEANED, PLAIN, Judge, unit_of
from liebig.builder.questions import Question, read as read_questions
from liebig.builder.runner import Builder, encode_passages, encode_sentences
from liebig.collection import Collection
from liebig.commands import STAGES
from liebig.model.encoder import Encoder
from liebig.search.systems import DEPTH, SENTENCE_SHARE, SENTENCES, Hits, open_system, weighted_by
from liebig.vectors import Vectors

DEV_MOST = 800  # development questions of a set
STEPS = 32767  # cosines are kept in steps of one part of this
ABSENT = -2  # the number of what is not among the passages
BASE = "minilm"  # with BM25, `minmax` and halves, what the others are compared with
Floats = NDArray[np.float32]
Arrays = dict[str, NDArray[Any]]


class Index:
    """Vectors on the device, every one of which is scored; the best of a passage's pieces or sentences counts."""

    def __init__(self, path: Path, number: Mapping[str, int], device: str) -> None:
        vectors = Vectors.open(path)
        parts = list(vectors.chunks(1 << 20))
        ids = [id for names, _ in parts for id in names]
        if vectors.about.get("pieces"):
            ids = [id.rsplit("#", 1)[0] for id in ids]
        self.matrix = torch.from_numpy(np.concatenate([part for _, part in parts])).to(device).float()
        self.owner = torch.tensor([number[id] for id in ids], device=device)
        self.count = len(number)

    def search(self, queries: Floats) -> tuple[NDArray[np.int32], Floats]:
        """Numbers and scores of the best DEPTH passages."""
        numbers, scores = [], []
        for part in torch.from_numpy(queries).to(self.matrix.device).float().split(256):
            best = torch.full((len(part), self.count), -9.0, device=part.device)
            best.scatter_reduce_(1, self.owner.expand(len(part), -1), part @ self.matrix.T, "amax")
            top = best.topk(min(DEPTH, self.count), dim=1)
            numbers.append(top.indices.to(torch.int32).cpu().numpy())
            scores.append(top.values.cpu().numpy())
        return np.concatenate(numbers), np.concatenate(scores)


class JudgedSet:
    """A corpus as a build reads it, with people's questions of two splits, and made-up ones."""

    def __init__(self, data: Path, out: Path, name: str, encoders: Mapping[str, Path]) -> None:
        self.name, self.out = name, out
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        config = BuildConfig(sources=(str(data / name / "corpus.jsonl.xz"),))
        self.encoders = {"start": config.start, **encoders}
        (out / name).mkdir(parents=True, exist_ok=True)
        self._builder = Builder(STAGES, out / name, lambda line: None, building.STAGES)
        self._collection = building.read_collection(self._builder, config, config.start)
        self.passages = list(Collection(self._collection).passages())
        self.number = {passage.id: i for i, passage in enumerate(self.passages)}
        made = self._builder.work("questions", {"collection": str(self._collection), "seed": config.seed})
        self.asked = {"test": judged(data / name, "test"), "made": enough(read_questions(made))}
        if name in DEV:
            dev = judged(data / name, DEV[name])
            self.asked["dev"] = [dev[i] for i in np.random.default_rng(0).permutation(len(dev))[:DEV_MOST]]
        self.judges = {
            split: Judge([_numbered(question, self.number) for question in questions])
            for split, questions in self.asked.items()
        }

    def write_asked(self) -> None:
        """Judgements, and BM25's hits."""
        file = self.out / f"{self.name}-asked.npz"
        if file.is_file():
            return
        fields = {"kind": "bm25", "collection": str(self._collection), "language": "en"}
        system = open_system(self._builder.work("bm25", fields))
        kept: Arrays = {}
        for split, questions in self.asked.items():
            lists = system.search([Query(str(i), q.text) for i, q in enumerate(questions)], DEPTH)
            numbers = np.full((len(lists), DEPTH), -1, np.int16)
            scores = np.zeros((len(lists), DEPTH), np.float32)
            for row, hits in enumerate(lists):
                numbers[row, : len(hits)] = [self.number[id] for id, _ in hits]
                scores[row, : len(hits)] = [score for _, score in hits]
            kept |= {f"{split}-bm25-ids": numbers, f"{split}-bm25-scores": scores}
            relevant = enumerate(self.judges[split].questions)
            pairs = [(int(id), i) for i, question in relevant for id in question.passages]
            kept[f"{split}-relevant"], kept[f"{split}-relevant-of"] = np.array(pairs, np.int32).T
            kept[f"{split}-kinds"] = np.array([question.kind for question in questions])
        np.savez_compressed(file, allow_pickle=False, **kept)

    def indexes(self, encoder: str) -> tuple[Index, Index]:
        """Vectors of the passages, and of the sentences."""
        model, made = self.encoders[encoder], []
        for encode, name in (
            (encode_passages, f"all-{encoder}"),
            (encode_sentences, f"all-{encoder}-sentences"),
        ):
            made.append(Index(encode(self._builder, name, self._collection, model), self.number, self.device))
        return made[0], made[1]

    def queries(self, model: Encoder, prompt: str | None = "query") -> dict[str, Floats]:
        """Vectors of the questions, by split."""
        return {
            split: model.encode_texts([q.text for q in questions], prompt=prompt, unit=True)
            for split, questions in self.asked.items()
        }

    def write_lists(self, encoder: str, indexes: tuple[Index, Index], queries: Mapping[str, Floats]) -> None:
        """The hits of passages and sentences for the vectors of questions."""
        kept: Arrays = {}
        for split, vectors in queries.items():
            for part, index in zip(("dense", SENTENCES), indexes):
                numbers, scores = index.search(vectors)
                kept[f"{split}-{part}-ids"] = numbers.astype(np.int16)
                kept[f"{split}-{part}-scores"] = np.round(np.clip(scores, -1, 1) * STEPS).astype(np.int16)
        np.savez_compressed(self.out / f"{self.name}-lists-{encoder}.npz", allow_pickle=False, **kept)

    def values(self, index: Index, split: str, vectors: Floats) -> NDArray[np.float64]:
        """nDCG@10 of passages alone."""
        rows, scores = (part[:, :10].tolist() for part in index.search(vectors))
        return self.judges[split].measure(
            [[(str(i), s) for i, s in zip(*hits)] for hits in zip(rows, scores)]
        )


def _numbered(question: Question, number: Mapping[str, int]) -> Question:
    # A document without words is no passage, and is judged relevant nevertheless (one of Cranfield's): never found.
    passages = tuple(str(number.get(id, ABSENT)) for id in question.passages)
    return Question(question.text, passages, question.kind)


class Kept:
    """The lists of a set, read again; the values of every system that they make."""

    def __init__(self, out: Path, name: str, split: str) -> None:
        with np.load(out / f"{name}-asked.npz") as asked:
            self._asked = dict(asked)
        self.split = split if f"{split}-kinds" in self._asked else "test"
        self._made = self._questions("made")
        self._judge = Judge(self._questions(self.split))
        words = self._hits(self._asked, self.split, "bm25")
        self.values = {"BM25": self._judge.measure(words)}
        self.units: dict[str, float] = {}
        for file in sorted(out.glob(f"{name}-lists-*.npz")):
            with np.load(file) as lists:
                self._add(file.stem.removeprefix(f"{name}-lists-"), words, dict(lists))

    def _add(self, encoder: str, words: list[Hits], lists: Arrays) -> None:
        """The encoder alone, and with BM25: plain, fused by spread, and with sentences."""
        unit = self.units[encoder] = unit_of(self._made, self._hits(lists, "made", "dense"))
        passages, sentences = (self._hits(lists, self.split, part) for part in ("dense", SENTENCES))
        plain, by_spread = weighted_by(PLAIN, "minmax"), weighted_by(PLAIN, "spread", 0.0, unit)
        with_sentences = weighted_by(LEANED, "spread", SENTENCE_SHARE, unit)
        self.values |= {
            encoder: self._judge.measure(passages),
            f"BM25 + {encoder}, plain": self._judge.measure(map(plain, zip(words, passages))),
            f"BM25 + {encoder}": self._judge.measure(map(by_spread, zip(words, passages))),
            f"BM25 + {encoder} and its sentences": self._judge.measure(
                map(with_sentences, zip(words, passages, sentences))
            ),
        }

    def _questions(self, split: str) -> list[Question]:
        kinds = self._asked[f"{split}-kinds"].tolist()
        relevant: list[list[str]] = [[] for _ in kinds]
        pairs = zip(self._asked[f"{split}-relevant"].tolist(), self._asked[f"{split}-relevant-of"].tolist())
        for passage, question in pairs:
            relevant[question].append(str(passage))
        return [Question(str(i), tuple(ids), kind) for i, (ids, kind) in enumerate(zip(relevant, kinds))]

    @staticmethod
    def _hits(lists: Arrays, split: str, part: str) -> list[Hits]:
        numbers, scores = lists[f"{split}-{part}-ids"], lists[f"{split}-{part}-scores"]
        cosines = scores / STEPS if scores.dtype == np.int16 else scores
        return [
            [(str(i), score) for i, score in zip(*row) if i >= 0]
            for row in zip(numbers.tolist(), cosines.tolist())
        ]


def table(out: Path, names: list[str], split: str) -> None:
    """Print nDCG@10 of every system, and points over the plain hybrid of BASE with 95 % over questions."""
    kept = {name: Kept(out, name, split) for name in names}
    for name, one in kept.items():
        print(f"{name}: units " + ", ".join(f"{encoder} {unit:.3f}" for encoder, unit in one.units.items()))
        np.savez_compressed(out / f"{name}-values-{split}.npz", allow_pickle=False, **one.values)
    print("| |" + "".join(f" {name} |" for name in names) + " mean |")
    for system in dict.fromkeys(system for one in kept.values() for system in one.values):
        cells, means, squares = [], [], []
        for one in kept.values():
            if system not in one.values:
                cells.append("")
                continue
            values = one.values[system]
            gain = 100 * (values - one.values[f"BM25 + {BASE}, plain"])
            means.append(gain.mean())
            squares.append(gain.var() / len(gain))
            cells.append(f"{values.mean():.4f} ({means[-1]:+.2f} ± {1.96 * squares[-1] ** 0.5:.2f})")
        total = f"{np.mean(means):+.2f} ± {1.96 * sum(squares) ** 0.5 / len(squares):.2f}"
        print(f"| {system} |" + "".join(f" {cell} |" for cell in cells) + f" {total} |")


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--encoders", nargs="*", default=[], metavar="NAME=FOLDER")
    parser.add_argument("--table", action="store_true", help="print what the kept lists give")
    parser.add_argument("--split", default="test", help="of the table: test or dev")
    given = parser.parse_args()
    encoders = {name: Path(path) for name, path in (one.split("=", 1) for one in given.encoders)}
    for name in given.sets if not given.table else ():
        judged_set = JudgedSet(given.data, given.out, name, encoders)
        judged_set.write_asked()
        for encoder, folder in judged_set.encoders.items():
            model = Encoder.load(folder).to(judged_set.device)
            judged_set.write_lists(encoder, judged_set.indexes(encoder), judged_set.queries(model))
    table(given.out, given.sets, given.split)


if __name__ == "__main__":
    main()
