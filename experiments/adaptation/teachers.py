"""What a hybrid with a larger encoder answers, by its own questions or by a student's, beside MiniLM with BM25.

    python experiments/adaptation/teachers.py DATA OUT --sets squad scifact --encoders minilm=FOLDER bge=FOLDER
    python experiments/adaptation/teachers.py DATA OUT --sets squad scifact --table

For each set and encoder the passages and sentences are encoded as a build does it, and the questions of the test and
the development split are asked. OUT/SET-values.npz has nDCG@10 of every question by every system, as `SPLIT: SYSTEM`:
the encoder alone, with BM25 (plain; fused by spread with the unit that a build would measure on made-up questions), and
with its sentences. `start` is the bundled encoder. The table has every system of the files in points over the plain
hybrid of `minilm`; `teachers.json` has its cells.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from builds import DEV, arguments, judged
from numpy.typing import NDArray

from liebig.base.records import Query
from liebig.builder import reading
from liebig.builder.build_config import BuildConfig
from liebig.builder.check import enough
from liebig.builder.judge import BESIDE_SENTENCES, PLAIN, SystemJudge, unit_of
from liebig.builder.questions import STAGE as QUESTIONS, Question, QuestionsConfig, read as read_questions
from liebig.builder.runner import Builder, encode_passages, encode_sentences
from liebig.collection import Collection
from liebig.model.encoder import Encoder
from liebig.search.fusion import FUSION_DEPTH, SENTENCE_SHARE, SENTENCES, Hits, weighted_by
from liebig.search.systems import open_system
from liebig.stages.bm25 import STAGE as BM25, BM25Config
from liebig.vectors import Vectors

DEV_MOST = 800  # development questions of a set
MADE = "made"  # the split of made-up questions
ABSENT = -2  # the number of what is not among the passages
BASE = "minilm"  # with BM25, `minmax` and halves, what the others are compared with
Floats = NDArray[np.float32]
Values = dict[str, NDArray[np.float32]]


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
        """Numbers and scores of the best FUSION_DEPTH passages."""
        numbers, scores = [], []
        for part in torch.from_numpy(queries).to(self.matrix.device).float().split(256):
            best = torch.full((len(part), self.count), -9.0, device=part.device)
            best.scatter_reduce_(1, self.owner.expand(len(part), -1), part @ self.matrix.T, "amax")
            top = best.topk(min(FUSION_DEPTH, self.count), dim=1)
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
        self._builder = Builder(out / name, lambda line: None)
        self._collection = reading.read_collection(self._builder, config, config.start)
        self.passages = list(Collection(self._collection).passages())
        self.number = {passage.id: i for i, passage in enumerate(self.passages)}
        made = self._builder.work(
            "questions", QUESTIONS, QuestionsConfig(collection=self._collection, seed=config.seed)
        )
        self.asked = {"test": judged(data / name, "test"), MADE: enough(read_questions(made))}
        if name in DEV:
            dev = judged(data / name, DEV[name])
            self.asked["dev"] = [dev[i] for i in np.random.default_rng(0).permutation(len(dev))[:DEV_MOST]]
        self.judges = {
            split: SystemJudge([_numbered(question, self.number) for question in questions])
            for split, questions in self.asked.items()
        }

    @cached_property
    def words(self) -> dict[str, list[Hits]]:
        """BM25's hits, by split."""
        config = BM25Config(collection=self._collection, language="en")
        system, by_split = open_system(self._builder.work("bm25", BM25, config)), {}
        for split, questions in self.asked.items():
            lists = system.search([Query(str(i), q.text) for i, q in enumerate(questions)], FUSION_DEPTH)
            by_split[split] = [[(str(self.number[id]), score) for id, score in hits] for hits in lists]
        return by_split

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

    def keep(self, encoder: str, indexes: tuple[Index, Index], queries: Mapping[str, Floats]) -> None:
        """Write what the vectors of questions are worth: alone, with BM25 plain and by spread, and with sentences."""
        found: dict[str, dict[str, list[Hits]]] = {}
        for split, vectors in queries.items():
            found[split] = {p: hits_of(index, vectors) for p, index in zip(("dense", SENTENCES), indexes)}
        unit = unit_of(self.judges[MADE].questions, found.pop(MADE)["dense"])
        print(f"{self.name}: unit {encoder} {unit:.3f}", flush=True)
        plain, by_spread = weighted_by(PLAIN, "minmax"), weighted_by(PLAIN, "spread", 0.0, unit)
        with_sentences = weighted_by(BESIDE_SENTENCES, "spread", SENTENCE_SHARE, unit)
        kept = read_values(self.out, self.name)
        for split, parts in found.items():
            measure, words = self.judges[split].measure, self.words[split]
            passages, sentences = parts["dense"], parts[SENTENCES]
            systems = {
                "BM25": measure(words),
                encoder: measure(passages),
                f"BM25 + {encoder}, plain": measure(map(plain, zip(words, passages))),
                f"BM25 + {encoder}": measure(map(by_spread, zip(words, passages))),
                f"BM25 + {encoder} and its sentences": measure(
                    map(with_sentences, zip(words, passages, sentences))
                ),
            }
            kept |= {f"{split}: {system}": values.astype(np.float32) for system, values in systems.items()}
        np.savez_compressed(self.out / f"{self.name}-values.npz", allow_pickle=False, **kept)


def hits_of(index: Index, vectors: Floats) -> list[Hits]:
    """The hits of every question by its vector, with the numbers of passages as their names."""
    rows, scores = (part[:, :FUSION_DEPTH].tolist() for part in index.search(vectors))
    return [[(str(i), score) for i, score in zip(*hits)] for hits in zip(rows, scores)]


def _numbered(question: Question, number: Mapping[str, int]) -> Question:
    # A document without words is no passage, and is judged relevant nevertheless (one of Cranfield's): never found.
    passages = tuple(str(number.get(id, ABSENT)) for id in question.passages)
    return Question(question.text, passages, question.kind)


def read_values(out: Path, name: str) -> Values:
    """What is kept of a set so far."""
    file = out / f"{name}-values.npz"
    if not file.is_file():
        return {}
    with np.load(file) as values:
        return dict(values)


def table(out: Path, names: list[str], split: str) -> None:
    """Print nDCG@10 of every system, and points over the plain hybrid of BASE with 95 % over questions."""
    kept: dict[str, Values] = {}
    for name in names:
        values = read_values(out, name)
        asked = split if f"{split}: BM25" in values else "test"  # Cranfield has one split
        kept[name] = {
            key.removeprefix(f"{asked}: "): v for key, v in values.items() if key.startswith(f"{asked}: ")
        }
    written: dict[str, dict[str, list[float]]] = {}
    print("| |" + "".join(f" {name} |" for name in names) + " mean |")
    for system in dict.fromkeys(system for one in kept.values() for system in one):
        cells, means, squares = [], [], []
        for name, one in kept.items():
            if system not in one:
                cells.append("")
                continue
            values, base = (one[key].astype(np.float64) for key in (system, f"BM25 + {BASE}, plain"))
            gain = 100 * (values - base)
            means.append(gain.mean())
            squares.append(gain.var() / len(gain))
            error = 1.96 * squares[-1] ** 0.5
            cells.append(f"{values.mean():.4f} ({means[-1]:+.2f} ± {error:.2f})")
            numbers = [round(float(values.mean()), 4), round(float(means[-1]), 2), round(float(error), 2)]
            written.setdefault(system, {})[name] = numbers
        total = f"{np.mean(means):+.2f} ± {1.96 * sum(squares) ** 0.5 / len(squares):.2f}"
        print(f"| {system} |" + "".join(f" {cell} |" for cell in cells) + f" {total} of {len(means)} |")
    (out / "teachers.json").write_text(json.dumps({split: written}, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--encoders", nargs="*", default=[], metavar="NAME=FOLDER")
    parser.add_argument("--table", action="store_true", help="print what is kept")
    parser.add_argument("--split", default="test", help="of the table: test or dev")
    given = parser.parse_args()
    encoders = {name: Path(path) for name, path in (one.split("=", 1) for one in given.encoders)}
    for name in given.sets if not given.table else ():
        judged_set = JudgedSet(given.data, given.out, name, encoders)
        for encoder, folder in judged_set.encoders.items():
            model = Encoder.load(folder).to(judged_set.device)
            judged_set.keep(encoder, judged_set.indexes(encoder), judged_set.queries(model))
    table(given.out, given.sets, given.split)


if __name__ == "__main__":
    main()
