"""How near does a student's question come to its teacher's, by which short texts it learns from?

    python experiments/adaptation/students.py DATA OUT --sets squad --teachers minilm=FOLDER --arms present questions
    python experiments/adaptation/students.py DATA OUT --sets squad --teachers minilm=FOLDER --general FILE

A teacher's passages are searched with a student's questions. The student (the bundled encoder with a least-squares
projection) learns the teacher's vectors and rankings on short texts alone, no passages, in a plain loop of PyTorch:
those of the corpus, and general ones of a file with a text per line (`general_texts.py`). Each arm is a line of
OUT/SET-arms.jsonl: nDCG@10 of student and teacher, and their cosine, on questions of the test and the development
split, before training and after. The values of every question are kept for `teachers.py --table`. Needs a GPU: an arm
has thousands of steps.
"""

from __future__ import annotations

import json
import lzma
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from builds import arguments
from numpy.typing import NDArray
from teachers import Floats, Index, JudgedSet
from torch import Tensor
from torch.nn import functional as F

from liebig.base.records import Passage
from liebig.bm25.analysis import Analyzer, language_name
from liebig.builder.lessons import RIDGE, ROUNDS, projection
from liebig.builder.pseudo_queries import ShortTexts, pseudo_queries
from liebig.collection.lookup import hash64
from liebig.model.backbone import own_attention
from liebig.model.encoder import Encoder, Normalize, through

LENGTH = 40  # tokens of a text
POOL = 50  # batches that are filled by length: what is computed ends with the longest text of a batch
FITTED = 30_000  # texts that the projection is fitted to
RANKED = 20_000  # passages of a ranking
WARM = 0.05  # of a training, until the rate is reached
MORE = 200_000  # texts of each kind that are drawn, if not told otherwise
CORPUS, BESIDE, BEFORE = (
    "corpus",
    "beside",
    "before",
)  # where general texts take part: nowhere, in every step, first
PRESENT, SPANS, QUESTIONS = "present", "spans", "questions"


@dataclass(frozen=True)
class Arm:
    """Which texts, and how they are learnt."""

    kinds: tuple[str, ...]
    lr: float
    steps: int = 3000
    temperature: float = 0.05
    batch: int = 512
    general: str = CORPUS
    start: float = 0.0  # share of the start's own cosines in the rankings, beside the teacher's


ALL = (PRESENT, SPANS, QUESTIONS)
ARMS = {
    "present": Arm((PRESENT,), 2e-4, 2000),
    "spans": Arm((PRESENT, SPANS), 5e-4),
    "questions": Arm(ALL, 5e-4),
    "questions-fast": Arm(ALL, 1e-3),
    "questions-fast-sharp": Arm(ALL, 1e-3, temperature=0.02),
    "questions-fast-long": Arm(ALL, 1e-3, 10_000),
    "questions-fast-long-sharp": Arm(ALL, 1e-3, 10_000, 0.03),
    "corpus": Arm(ALL, 1e-3, 5000, batch=1024),  # the own texts of `general`, alone
    "general": Arm(ALL, 1e-3, 5000, batch=2048, general=BESIDE),
    "general-first": Arm(ALL, 5e-4, 1500, batch=1024, general=BEFORE),
    "alone": Arm(ALL, 5e-4, 1500, batch=256),
    "both": Arm(ALL, 5e-4, 1500, batch=256, start=0.5),  # the rankings of teacher and start
}
FIRST = Arm((), 1e-3, 8000, batch=2048)  # general texts alone, once for a teacher


def short_texts(passages: list[Passage], most: int = MORE, seed: int = 0) -> dict[str, list[str]]:
    """As a build cuts them, spans of any length, some with a title, and such spans behind a question's first words."""
    analyzer = Analyzer(language_name("en"))
    present: dict[str, None] = {}
    for number in range(ROUNDS):
        made = pseudo_queries(passages, [], analyzer, hash64(f"0 {number}") if number else 0)
        present |= dict.fromkeys(question.text for question in made)
    pieces = ShortTexts(passages, analyzer, seed)
    spans = dict.fromkeys(pieces.piece() for _ in range(most))
    drawn = {
        PRESENT: list(present)[:100_000],
        SPANS: [text for text in spans if text not in present],
        QUESTIONS: list(dict.fromkeys(pieces.question() for _ in range(most))),
    }
    return {kind: [text for text in texts if any(map(str.isalnum, text))] for kind, texts in drawn.items()}


class Texts:
    """Short texts as tokens of the start on the device, with vectors of a teacher and of the start, as questions."""

    def __init__(self, texts: list[str], start: Encoder, teacher: Encoder, device: str) -> None:
        self.texts = texts
        rows = start.layout_for("query").ids(texts)
        tokens = np.zeros((len(texts), LENGTH), np.int16)
        for number, (begin, end) in enumerate(zip(rows.offsets[:-1], rows.offsets[1:])):
            row = rows.values[begin:end]
            cut = row if len(row) <= LENGTH else np.concatenate([row[: LENGTH - 1], row[-1:]])
            tokens[number, : len(cut)] = cut
        self.tokens = torch.from_numpy(tokens).to(device)
        self.lengths = torch.from_numpy(np.minimum(rows.lengths, LENGTH)).to(device)
        self.targets, self.own = (
            torch.from_numpy(model.encode_texts(texts, prompt="query", unit=True)).to(device)
            for model in (teacher, start.to(device))
        )

    def __len__(self) -> int:
        return len(self.texts)

    def among(self, numbers: NDArray[np.int64]) -> Texts:
        """Some of them."""
        few, on_device = Texts.__new__(Texts), torch.from_numpy(numbers).to(self.tokens.device)
        few.texts = [self.texts[i] for i in numbers]
        few.tokens, few.lengths, few.targets, few.own = (
            part[on_device] for part in (self.tokens, self.lengths, self.targets, self.own)
        )
        return few

    def batches(self, size: int) -> Iterator[Tensor]:
        """Numbers of texts, without end, each text once before any comes again; those of a batch are of like length."""
        size, device = min(size, len(self)), self.tokens.device
        while True:
            order = torch.randperm(len(self), device=device)
            for pool in order[: len(self) // size * size].split(POOL * size):
                together = pool[self.lengths[pool].argsort()].view(-1, size)
                yield from together[torch.randperm(len(together), device=device)]


class School:
    """A start that learns from a teacher."""

    def __init__(self, start: Path, teacher: Path, device: str, general: Path | None, seconds: float) -> None:
        self.start, self.teacher, self.device = start, teacher, device
        self._general, self._seconds = general, seconds

    def texts(self, texts: list[str]) -> Texts:
        """Texts for it to learn from."""
        teacher = Encoder.load(self.teacher).to(self.device)
        return Texts(texts, Encoder.load(self.start), teacher, self.device)

    @cached_property
    def general(self) -> Texts:
        """The general texts."""
        if self._general is None:
            raise SystemExit("this arm needs --general FILE")
        with lzma.open(self._general, "rt", encoding="utf-8") as lines:
            return self.texts(lines.read().splitlines())

    @cached_property
    def schooled(self) -> Encoder:
        """The student that has learnt from general texts alone."""
        model = self.student(self.general)
        self.train(model, FIRST, [self.general], (self.general.targets, self.general.own))
        return model

    def student(self, texts: Texts) -> Encoder:
        """The start with a projection that is fitted to some of the texts."""
        start = Encoder.load(self.start)

        def with_tail(*tail: torch.nn.Module) -> Encoder:
            return Encoder(
                start.backbone, start.tokenizer, pooling=start.pooling, tail=tail, max_length=start.max_length,
                similarity="cosine", layout=start.layout,
            )  # fmt: skip

        sample = np.random.default_rng(1).permutation(len(texts))[:FITTED]
        states = with_tail().to(self.device).encode_texts([texts.texts[i] for i in sample])
        fitted = projection(states, texts.targets[torch.from_numpy(sample)].cpu().numpy(), RIDGE)
        return with_tail(fitted, Normalize()).to(self.device)

    def train(self, model: Encoder, arm: Arm, sources: list[Texts], ranked: tuple[Tensor, Tensor]) -> None:
        """Distance to the teacher's vectors, and KL of its rankings; of several sources the same number of texts.

        What is ranked has vectors by the teacher and by the start. The rankings to learn are by the teacher's cosines,
        or by a mean of both; the student's own are always by the teacher's vectors.
        """
        torch.manual_seed(0)
        cuda, began = self.device == "cuda", time.time()
        some = torch.randperm(len(ranked[0]), device=self.device)[:RANKED]
        dtype = torch.bfloat16 if cuda else torch.float32
        passages, own = (F.normalize(rows[some], dim=-1).to(dtype) for rows in ranked)
        optimizer = torch.optim.AdamW(model.parameters(), lr=arm.lr, weight_decay=0.01, fused=cuda)
        drawn = [source.batches(arm.batch // len(sources)) for source in sources]

        def cosines(vectors: Tensor, rows: Tensor) -> Tensor:
            return (vectors.to(dtype) @ rows.T).float()

        model.train()
        with own_attention(model.backbone.model, "sdpa"):
            for step in range(arm.steps):
                if cuda and step % 10 == 0:
                    torch.cuda.synchronize()  # the clock is that of the device
                done = max(step / arm.steps, (time.time() - began) / self._seconds)
                if done >= 1:
                    break
                for group in optimizer.param_groups:
                    group["lr"] = arm.lr * min((done + 1e-3) / WARM, (1 - done) / (1 - WARM))
                numbers = list(zip(sources, map(next, drawn)))
                tokens, lengths, theirs, before = (
                    torch.cat([getattr(source, part)[batch] for source, batch in numbers])
                    for part in ("tokens", "lengths", "targets", "own")
                )
                width = int(lengths.max())
                tokens, mask = tokens[:, :width], torch.arange(width, device=self.device) < lengths[:, None]
                with torch.autocast(self.device, torch.bfloat16, enabled=cuda):
                    inputs = {"input_ids": tokens.long(), "attention_mask": mask.long()}
                    states = model.backbone.body(**inputs).last_hidden_state.float()
                pooled = (states * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
                mine = through(model.tail, pooled)
                with torch.no_grad():
                    target = (1 - arm.start) * cosines(theirs, passages)
                    if arm.start:
                        target += arm.start * cosines(before, own)
                    target = (target / arm.temperature).log_softmax(-1)
                logs = (cosines(mine, passages) / arm.temperature).log_softmax(-1)
                ranking = F.kl_div(logs, target, log_target=True, reduction="batchmean")
                loss = (1 - (mine * theirs).sum(-1)).mean() + ranking
                optimizer.zero_grad(set_to_none=True)
                loss.backward()  # type: ignore[no-untyped-call]
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
        model.eval()
        print(
            f"{step + 1} steps in {time.time() - began:.0f} s, last loss {float(loss.detach()):.4f}",
            flush=True,
        )


def by_passage(index: Index) -> Tensor:
    """A row for each passage: the mean of its pieces."""
    rows = torch.zeros((index.count, index.matrix.shape[1]), device=index.matrix.device)
    return rows.index_add_(0, index.owner, F.normalize(index.matrix, dim=-1))


def measure(
    judged_set: JudgedSet, index: Index, mine: dict[str, Floats], theirs: dict[str, Floats]
) -> dict[str, dict[str, float]]:
    """The teacher's passages by the student's questions and by its own."""
    told: dict[str, dict[str, float]] = {}
    for split in (name for name in ("test", "dev") if name in mine):
        a, b = (judged_set.values(index, split, vectors[split]) for vectors in (mine, theirs))
        told[split] = {
            "student": float(a.mean()), "teacher": float(b.mean()), "gap": float((a - b).mean()),
            "error": float((a - b).std() / len(a) ** 0.5), "cosine": float((mine[split] * theirs[split]).sum(1).mean()),
        }  # fmt: skip
    return told


def run(judged_set: JudgedSet, schools: dict[str, School], arms: Iterable[str], most: int) -> None:
    """Every arm with every teacher."""
    by_kind = short_texts(judged_set.passages, most)
    kinds = np.repeat(list(by_kind), [len(texts) for texts in by_kind.values()])
    for teacher, school in schools.items():
        lessons = school.texts([text for texts in by_kind.values() for text in texts])
        indexes = judged_set.indexes(teacher)
        ranked = by_passage(indexes[0]), by_passage(judged_set.indexes("start")[0])
        theirs = judged_set.queries(Encoder.load(school.teacher).to(judged_set.device))
        for name in arms:
            arm, began = ARMS[name], time.time()
            own = lessons.among(np.flatnonzero(np.isin(kinds, arm.kinds)))
            sources = [own, school.general] if arm.general == BESIDE else [own]
            model = school.student(own)
            if arm.general == BEFORE:
                model.load_state_dict(school.schooled.state_dict())
            before = measure(judged_set, indexes[0], judged_set.queries(model, None), theirs)
            school.train(model, arm, sources, ranked)
            mine = judged_set.queries(model, None)
            after = measure(judged_set, indexes[0], mine, theirs)
            row: dict[str, Any] = {
                "set": judged_set.name, "teacher": teacher, "arm": name, "texts": sum(map(len, sources)), **asdict(arm),
                "seconds": round(time.time() - began), "before": before, "after": after,
            }  # fmt: skip
            with (judged_set.out / f"{judged_set.name}-arms.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
            print(json.dumps(row), flush=True)
            judged_set.keep(f"{teacher}, questions by student {name}", indexes, mine)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--teachers", nargs="+", required=True, metavar="NAME=FOLDER")
    parser.add_argument("--arms", nargs="+", default=list(ARMS), choices=ARMS)
    parser.add_argument("--general", type=Path, help="a file of general texts (xz)")
    parser.add_argument("--most", type=int, default=MORE, help="pieces of a kind that are drawn of a corpus")
    parser.add_argument("--seconds", type=float, default=3600, help="of a training at most")
    given = parser.parse_args()
    teachers = {name: Path(path) for name, path in (one.split("=", 1) for one in given.teachers)}
    schools: dict[str, School] = {}
    for name in given.sets:
        judged_set = JudgedSet(given.data, given.out, name, teachers)
        for teacher, folder in teachers.items():
            start = judged_set.encoders["start"]
            schools.setdefault(
                teacher, School(start, folder, judged_set.device, given.general, given.seconds)
            )
        run(judged_set, schools, given.arms, given.most)


if __name__ == "__main__":
    main()
