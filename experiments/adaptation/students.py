"""How near does a student's question come to its teacher's, by which short texts it learns from?

    python experiments/adaptation/students.py DATA OUT --sets squad --teachers minilm=FOLDER --arms present questions

A teacher's passages are searched with a student's questions. The student (the bundled encoder with a least-squares
projection) learns the teacher's vectors and rankings on short texts of the corpus alone, no passages, in a plain loop
of PyTorch. Each arm is a line of OUT/SET-arms.jsonl: nDCG@10 of student and teacher, and their cosine, on questions of
the test and the development split, before training and after. The lists of hits of a teacher's best student, by
development questions (of the first arm where there are none), are kept for `teachers.py --table`. Needs a GPU: an arm
has thousands of steps.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
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
from liebig.builder.pseudo_queries import Frequencies, Material, Telling, pseudo_queries
from liebig.collection.lookup import hash64
from liebig.model.backbone import own_attention
from liebig.model.encoder import Encoder, Normalize, through

BATCH, LENGTH = 512, 40  # texts of a step, tokens of a text
FITTED = 30_000  # texts that the projection is fitted to
RANKED = 20_000  # passages of a ranking
MORE = 200_000  # texts of each kind that are drawn
PRESENT, SPANS, QUESTIONS = "present", "spans", "questions"
OPENERS = (
    "what is", "what are", "what was", "what were", "what does", "what did", "what do", "what kind of",
    "what type of", "what causes", "what happens to", "what is the name of", "who", "who was", "who is",
    "who did", "when did", "when was", "when is", "where is", "where was", "where did", "where are", "why did",
    "why is", "why do", "how many", "how much", "how is", "how are", "how did", "how does", "how do", "how to",
    "how long", "how often", "which", "in what year", "in which", "on what", "to what", "what can",
    "what percentage of", "is", "are", "does", "do", "can", "did", "was", "has", "should", "is there",
    "are there",
)  # fmt: skip


@dataclass(frozen=True)
class Arm:
    """Which texts, and how they are learnt."""

    kinds: tuple[str, ...]
    lr: float
    steps: int = 3000
    temperature: float = 0.05


ALL = (PRESENT, SPANS, QUESTIONS)
ARMS = {
    "present": Arm((PRESENT,), 2e-4, 2000),
    "spans": Arm((PRESENT, SPANS), 5e-4),
    "questions": Arm(ALL, 5e-4),
    "questions-fast": Arm(ALL, 1e-3),
    "questions-fast-sharp": Arm(ALL, 1e-3, temperature=0.02),
    "questions-fast-long": Arm(ALL, 1e-3, 10_000),
    "questions-fast-long-sharp": Arm(ALL, 1e-3, 10_000, 0.03),
}


def short_texts(passages: list[Passage], seed: int = 0) -> dict[str, list[str]]:
    """As a build cuts them, spans of any length, some with a title, and such spans behind a question's first words."""
    analyzer = Analyzer(language_name("en"))
    present: dict[str, None] = {}
    for number in range(ROUNDS):
        made = pseudo_queries(passages, [], analyzer, hash64(f"0 {number}") if number else 0)
        present |= dict.fromkeys(question.text for question in made)
    by, telling = random.Random(seed), Telling(Frequencies.of(passages), analyzer)
    some = []
    for material in (Material(passage, telling) for passage in passages):
        rows = [row for row in map(str.split, material.parts) if len(row) >= 2]
        if rows:
            some.append((rows, material.salient, material.passage.title.strip()))

    def piece(low: int, high: int) -> str:
        rows, salient, title = by.choice(some)
        kind = by.random()
        if kind < 0.12 and title:
            return title
        if kind < 0.3 and len(salient) >= 2:
            words = by.sample(salient, min(len(salient), by.randint(1, 5)))
            return " ".join(words + ([title] if title and by.random() < 0.3 else []))
        row = by.choice(rows)
        count = min(len(row), by.randint(low, high))
        begin = by.randint(0, len(row) - count)
        text = " ".join(row[begin : begin + count]).strip(" .,;:()\"'")
        if title and by.random() < 0.2:
            text = f"{title} {text}" if by.random() < 0.5 else f"{text} {title}"
        return text

    def question() -> str:
        opener = by.choice(OPENERS)
        opener = opener if by.random() < 0.4 else opener.capitalize()
        return f"{opener} {piece(1, 10)}" + ("?" if by.random() < 0.85 else "")

    spans = dict.fromkeys(piece(2, 24) for _ in range(MORE))
    drawn = {
        PRESENT: list(present)[:100_000],
        SPANS: [text for text in spans if text not in present],
        QUESTIONS: list(dict.fromkeys(question() for _ in range(MORE))),
    }
    return {kind: [text for text in texts if any(map(str.isalnum, text))] for kind, texts in drawn.items()}


class Lessons:
    """Short texts of a set as tokens on the device, and a teacher's vectors of them."""

    def __init__(self, judged_set: JudgedSet) -> None:
        self.set, self.device = judged_set, judged_set.device
        by_kind = short_texts(judged_set.passages)
        self.texts = [text for texts in by_kind.values() for text in texts]
        self.kinds = np.repeat(list(by_kind), [len(texts) for texts in by_kind.values()])
        start = Encoder.load(judged_set.encoders["start"])
        rows = start.layout_for("query").ids(self.texts)
        tokens = np.zeros((len(self.texts), LENGTH), np.int16)
        for number, (begin, end) in enumerate(zip(rows.offsets[:-1], rows.offsets[1:])):
            row = rows.values[begin:end]
            cut = row if len(row) <= LENGTH else np.concatenate([row[: LENGTH - 1], row[-1:]])
            tokens[number, : len(cut)] = cut
        self.tokens = torch.from_numpy(tokens).to(self.device)
        self.lengths = torch.from_numpy(np.minimum(rows.lengths, LENGTH)).to(self.device)

    def taught_by(self, teacher: str) -> Tensor:
        """The teacher's vectors of the texts, as questions."""
        model = Encoder.load(self.set.encoders[teacher]).to(self.device)
        return torch.from_numpy(model.encode_texts(self.texts, prompt="query", unit=True)).to(self.device)

    def student(self, numbers: NDArray[np.int64], targets: Tensor) -> Encoder:
        """The start with a projection that is fitted to some of the texts."""
        start = Encoder.load(self.set.encoders["start"])

        def with_tail(*tail: torch.nn.Module) -> Encoder:
            return Encoder(
                start.backbone, start.tokenizer, pooling=start.pooling, tail=tail, max_length=start.max_length,
                similarity="cosine", layout=start.layout,
            )  # fmt: skip

        sample = numbers[np.random.default_rng(1).permutation(len(numbers))[:FITTED]]
        states = with_tail().to(self.device).encode_texts([self.texts[i] for i in sample])
        fitted = projection(states, targets[sample].cpu().numpy(), RIDGE)
        return with_tail(fitted, Normalize()).to(self.device)

    def train(
        self, model: Encoder, arm: Arm, numbers: NDArray[np.int64], targets: Tensor, index: Index
    ) -> None:
        """Distance to the teacher's vectors, and KL of the rankings of its passages."""
        torch.manual_seed(0)
        cuda = self.device == "cuda"
        passages = F.normalize(index.matrix, dim=-1)
        passages = passages[torch.randperm(len(passages), device=self.device)[:RANKED]]
        passages = passages.bfloat16() if cuda else passages
        optimizer = torch.optim.AdamW(model.parameters(), lr=arm.lr, weight_decay=0.01, fused=cuda)
        warm = max(1, arm.steps // 20)
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda step: min((step + 1) / warm, (arm.steps - step) / max(1, arm.steps - warm))
        )

        def rankings(vectors: Tensor) -> Tensor:
            return ((vectors.to(passages.dtype) @ passages.T).float() / arm.temperature).log_softmax(-1)

        model.train()
        with own_attention(model.backbone.model, "sdpa"):
            for batch in self._batches(numbers, arm.steps):
                mask = torch.arange(LENGTH, device=self.device) < self.lengths[batch, None]
                with torch.autocast(self.device, torch.bfloat16, enabled=cuda):
                    inputs = {"input_ids": self.tokens[batch].long(), "attention_mask": mask.long()}
                    states = model.backbone.body(**inputs).last_hidden_state.float()
                pooled = (states * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
                mine, theirs = through(model.tail, pooled), targets[batch]
                with torch.no_grad():
                    wanted = rankings(theirs)
                ranking = F.kl_div(rankings(mine), wanted, log_target=True, reduction="batchmean")
                loss = (1 - (mine * theirs).sum(-1)).mean() + ranking
                optimizer.zero_grad(set_to_none=True)
                loss.backward()  # type: ignore[no-untyped-call]
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                schedule.step()
        model.eval()

    def _batches(self, numbers: NDArray[np.int64], steps: int) -> Iterable[Tensor]:
        every, order, at = torch.from_numpy(numbers).to(self.device), None, 0
        for _ in range(steps):
            if order is None or at + BATCH > len(order):
                order, at = every[torch.randperm(len(every), device=self.device)], 0
            yield order[at : at + BATCH]
            at += BATCH


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


def run(judged_set: JudgedSet, teachers: Iterable[str], arms: Iterable[str]) -> None:
    """Every arm with every teacher."""
    lessons = Lessons(judged_set)
    for teacher in teachers:
        targets, indexes = lessons.taught_by(teacher), judged_set.indexes(teacher)
        theirs = judged_set.queries(Encoder.load(judged_set.encoders[teacher]).to(judged_set.device))
        best = -1.0
        for name in arms:
            arm, began = ARMS[name], time.time()
            numbers = np.flatnonzero(np.isin(lessons.kinds, arm.kinds))
            model = lessons.student(numbers, targets)
            before = measure(judged_set, indexes[0], judged_set.queries(model, None), theirs)
            lessons.train(model, arm, numbers, targets, indexes[0])
            mine = judged_set.queries(model, None)
            after = measure(judged_set, indexes[0], mine, theirs)
            row: dict[str, Any] = {
                "set": judged_set.name, "teacher": teacher, "arm": name, "texts": len(numbers), **asdict(arm),
                "seconds": round(time.time() - began), "before": before, "after": after,
            }  # fmt: skip
            with (judged_set.out / f"{judged_set.name}-arms.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
            print(json.dumps(row), flush=True)
            value = after["dev"]["student"] if "dev" in after else 0.0
            if value > best:
                best = value
                judged_set.write_lists(f"{teacher}-student", indexes, mine)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--teachers", nargs="+", required=True, metavar="NAME=FOLDER")
    parser.add_argument("--arms", nargs="+", default=list(ARMS), choices=ARMS)
    given = parser.parse_args()
    teachers = {name: Path(path) for name, path in (one.split("=", 1) for one in given.teachers)}
    for name in given.sets:
        judged_set = JudgedSet(given.data, given.out, name, teachers)
        judged_set.write_asked()
        run(judged_set, teachers, given.arms)


if __name__ == "__main__":
    main()
