"""Which training without labels adds to the hybrid of BM25 and an untrained encoder? Trials on development questions.

    python experiments/adaptation/trial.py DATA OUT --sets scifact medquad squad --arms self self-contrast prf

DATA holds BEIR folders (`corpus.jsonl.xz`, `queries.jsonl.xz`, `qrels/`) and, for arms with another encoder as teacher
(`self,teacher=encoder:NAME`), folders of models under `DATA/models`. An arm trains the bundled encoder for a few
hundred steps on pseudo-queries of the corpus, with candidates scored by a teacher. It is judged at several shares of
the way from the old weights to the new ones: the encoder alone, its hybrid with BM25, and BM25 with both encoders. Each
result is a line of OUT/trials.jsonl; the values of every question are in OUT/ARM-SET-SEED.npz. Development questions
are asked, unless `--test` is given.
"""

from __future__ import annotations

import argparse
import json
import lzma
import re
import time
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import Stemmer
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import normalize

from liebig import encoders
from liebig.text.sentences import spans

Floats = NDArray[np.float32]
DEV = {"scifact": "train", "medquad": "dev", "squad": "dev", "cranfield": "test"}
WORD = re.compile(r"(?u)\b\w\w+\b")
SHARES = (0.25, 0.5, 0.75, 1.0)


def rows(path: Path) -> list[dict[str, Any]]:
    with lzma.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


class Words:
    """BM25 over a small corpus as one sparse matrix; terms of a text by our stemmer and stop words."""

    def __init__(self, texts: list[str], k1: float = 0.9, b: float = 0.4) -> None:
        from liebig.bm25 import analysis

        known = json.loads((Path(analysis.__file__).parent / "stop_words.json").read_text(encoding="utf-8"))
        self.stop = set(known["en"] if "en" in known else known["english"])
        self.stemmer = Stemmer.Stemmer("english")
        self.number: dict[str, int] = {}
        found = [[self.number.setdefault(w, len(self.number)) for w in self.terms(t)] for t in texts]
        lengths = np.array([len(f) for f in found])
        tf = self._matrix(found, len(self.number))
        df = np.bincount(tf.indices, minlength=len(self.number))
        self.idf = np.log(1 + (len(texts) - df + 0.5) / (df + 0.5))
        row = np.repeat(np.arange(len(texts)), np.diff(tf.indptr))
        tf.data = (
            tf.data / (tf.data + k1 * (1 - b + b * lengths[row] / lengths.mean())) * self.idf[tf.indices]
        )
        self.weights = tf.astype(np.float32)

    def terms(self, text: str) -> list[str]:
        return list(self.stemmer.stemWords([w for w in WORD.findall(text.lower()) if w not in self.stop]))

    def _matrix(self, numbers: list[list[int]], width: int) -> Any:
        lengths = [len(n) for n in numbers]
        flat = np.fromiter((x for n in numbers for x in n), np.int64, sum(lengths))
        made = sp.coo_matrix(
            (np.ones(len(flat)), (np.repeat(np.arange(len(numbers)), lengths), flat)),
            shape=(len(numbers), width),
        )
        return made.tocsr()

    def scores(self, queries: list[str]) -> Floats:
        numbers = [[self.number[w] for w in self.terms(q) if w in self.number] for q in queries]
        return np.asarray((self._matrix(numbers, len(self.number)) @ self.weights.T).todense(), np.float32)


@dataclass
class Corpus:
    """A set's passages, and the questions of one split with what answers them."""

    name: str
    titles: list[str]
    texts: list[str]
    docs: list[str]
    questions: list[str] = field(default_factory=list)
    relevant: list[dict[int, int]] = field(default_factory=list)

    @classmethod
    def read(cls, data: Path, name: str, split: str, most: int | None) -> Corpus:
        corpus = rows(data / name / "corpus.jsonl.xz")
        place = {row["_id"]: n for n, row in enumerate(corpus)}
        text_of = {row["_id"]: row["text"] for row in rows(data / name / "queries.jsonl.xz")}
        grades: dict[str, dict[int, int]] = {}
        for line in (data / name / "qrels" / f"{split}.tsv").read_text(encoding="utf-8").splitlines()[1:]:
            query, passage, grade = line.split("\t")[:3]
            if int(grade) > 0 and passage in place:
                grades.setdefault(query, {})[place[passage]] = int(grade)
        ids = list(grades)[:most]
        docs = [row.get("doc", row["_id"]) for row in corpus]
        return cls(
            name, [r["title"] for r in corpus], [r["text"] for r in corpus], docs,
            [text_of[i] for i in ids], [grades[i] for i in ids],
        )  # fmt: skip

    @cached_property
    def whole(self) -> list[str]:
        return [f"{title} {text}".strip() for title, text in zip(self.titles, self.texts)]

    @cached_property
    def words(self) -> Words:
        return Words(self.whole)

    def ndcg(self, scores: Tensor, k: int = 10) -> Floats:
        top = scores.topk(min(k, scores.shape[1]), dim=1).indices.cpu().numpy()
        discount = 1 / np.log2(np.arange(2, k + 2))
        values = []
        for found, grades in zip(top, self.relevant):
            gain = np.array([grades.get(int(d), 0) for d in found], float)
            best = np.sort(np.array(list(grades.values()), float))[::-1][:k]
            values.append((gain * discount[: len(gain)]).sum() / (best * discount[: len(best)]).sum())
        return np.array(values, np.float32)


def spread(scores: Tensor, n: int = 100) -> Tensor:
    """Min-max over the best n of each query; 0 below."""
    best = scores.topk(min(n, scores.shape[1]), dim=1).values
    low, high = best[:, -1:], best[:, :1]
    return ((scores - low) / (high - low).clamp_min(1e-9)).clamp_min(0)


def hybrid(*scores: Tensor, weights: tuple[float, ...] | None = None) -> Tensor:
    parts = weights or (1 / len(scores),) * len(scores)
    return torch.stack([w * spread(s) for w, s in zip(parts, scores)]).sum(dim=0)


class Student:
    """A sentence-transformers folder: tokens of texts in one ragged array, vectors in bf16 on a GPU."""

    def __init__(self, folder: Path, device: str, length: int = 256, prompt: str = "") -> None:
        from sentence_transformers import SentenceTransformer

        self.model = SentenceTransformer(str(folder), device=device)
        self.device, self.length, self.prompt = (
            device,
            min(length, self.model.max_seq_length or length),
            prompt,
        )
        self.tokenizer = self.model.tokenizer

    def tokens(self, texts: list[str], prompt: str | None = None) -> list[list[int]]:
        before = self.prompt if prompt is None else prompt
        made = self.tokenizer([before + t for t in texts], truncation=True, max_length=self.length)
        return list(made["input_ids"])

    def forward(self, tokens: list[list[int]]) -> Tensor:
        longest = -(-max(map(len, tokens)) // 8) * 8
        pad = self.tokenizer.pad_token_id
        ids = torch.tensor([t + [pad] * (longest - len(t)) for t in tokens]).to(
            self.device, non_blocking=True
        )
        lengths = torch.tensor([len(t) for t in tokens]).to(self.device)
        mask = (torch.arange(longest, device=self.device)[None] < lengths[:, None]).long()
        with torch.autocast(self.device, torch.bfloat16, enabled=self.device == "cuda"):
            out = self.model({"input_ids": ids, "attention_mask": mask})
        return normalize(out["sentence_embedding"].float(), dim=1)

    @torch.no_grad()
    def encode(self, tokens: list[list[int]], budget: int = 262_144) -> Tensor:
        order = sorted(range(len(tokens)), key=lambda i: len(tokens[i]))
        parts, batch = [], list[int]()
        for i in order:
            if batch and (len(batch) + 1) * (len(tokens[i]) + 8) > budget:
                parts.append(self.forward([tokens[j] for j in batch]))
                batch = []
            batch.append(i)
        parts.append(self.forward([tokens[j] for j in batch]))
        vectors = torch.cat(parts)
        back = torch.empty_like(vectors)
        back[torch.tensor(order, device=vectors.device)] = vectors
        return back


@dataclass(frozen=True)
class Pseudo:
    """Pseudo-queries with the passage each was cut from, and the kind."""

    texts: list[str]
    sources: NDArray[np.int64]
    kinds: list[str]


def pseudo_queries(corpus: Corpus, kinds: dict[str, float], count: int, seed: int) -> Pseudo:
    """Draw pseudo-queries: title, span (4 to 12 words of a sentence), keywords (2 to 6 salient words), sentence."""
    random = np.random.default_rng(seed)
    names, shares = list(kinds), np.array(list(kinds.values()))
    stem = corpus.words.stemmer.stemWord
    texts, sources, chosen = [], [], []
    while len(texts) < count:
        i = int(random.integers(len(corpus.texts)))
        kind = str(random.choice(names, p=shares / shares.sum()))
        if kind == "title":
            made = corpus.titles[i]
        else:
            places = [(a, b) for a, b in spans(corpus.texts[i]) if len(corpus.texts[i][a:b].split()) >= 5]
            if not places:
                continue
            a, b = places[int(random.integers(len(places)))]
            sentence = corpus.texts[i][a:b].split()
            if kind == "span":
                n = min(int(random.integers(4, 13)), len(sentence))
                at = int(random.integers(len(sentence) - n + 1))
                made = " ".join(sentence[at : at + n])
            elif kind == "keywords":
                known = {}
                for word in WORD.findall(corpus.whole[i].lower()):
                    number = corpus.words.number.get(stem(word)) if word not in corpus.words.stop else None
                    if number is not None:
                        known[word] = float(corpus.words.idf[number])
                best = sorted(known, key=known.__getitem__, reverse=True)[:15]
                n = min(int(random.integers(2, 7)), len(best))
                made = " ".join(random.permutation(best)[:n]) if n else ""
            else:
                made = " ".join(sentence[:30])
        if len(made.split()) >= 2:
            texts.append(made)
            sources.append(i)
            chosen.append(kind)
    return Pseudo(texts, np.array(sources), chosen)


@dataclass(frozen=True)
class Arm:
    """A training: who teaches, on which pseudo-queries, how long."""

    teacher: str = "self"  # self, dense, bm25, sentence, prf, encoder:NAME; several joined by +
    kinds: tuple[tuple[str, float], ...] = (("span", 0.5), ("title", 0.25), ("keywords", 0.25))
    steps: int = 150
    batch: int = 48
    candidates: int = 16
    lr: float = 2e-5
    sharp: float = 8.0
    contrast: float = 0.0
    scale: float = 20.0
    random: int = 0  # of the candidates, drawn from beyond the teacher's best


def train(
    student: Student, corpus: Corpus, passages: list[list[int]], arm: Arm, scores: Any, seed: int
) -> float:
    """Listwise distillation: KL between softmaxes of the teacher's scores and of cosines over a query's candidates."""
    pseudo = pseudo_queries(corpus, dict(arm.kinds), arm.steps * arm.batch, seed)
    queries = student.tokens(pseudo.texts)
    optimiser = torch.optim.AdamW(student.model.parameters(), lr=arm.lr, weight_decay=0.01)
    warm = max(1, arm.steps // 10)
    random = np.random.default_rng((seed, 1))
    student.model.train()
    last = 0.0
    for step in range(arm.steps):
        for group in optimiser.param_groups:
            group["lr"] = arm.lr * min((step + 1) / warm, (arm.steps - step) / max(1, arm.steps - warm))
        at = slice(step * arm.batch, (step + 1) * arm.batch)
        teacher = scores(pseudo.texts[at], pseudo.sources[at])
        best = teacher.topk(arm.candidates - arm.random, dim=1).indices
        if arm.random:
            pool = teacher.topk(min(200, teacher.shape[1]), dim=1).indices.cpu().numpy()
            more = np.stack([random.choice(row[arm.candidates :], arm.random, replace=False) for row in pool])
            best = torch.cat([best, torch.from_numpy(more).to(best.device)], dim=1)
        wanted = (teacher.gather(1, best) * arm.sharp).softmax(dim=1)
        flat, inverse = np.unique(best.cpu().numpy(), return_inverse=True)
        vectors = student.forward([passages[i] for i in flat])
        asked = student.forward(queries[at])
        members = vectors[torch.from_numpy(inverse.reshape(best.shape)).to(vectors.device)]
        cosines = (asked[:, None] * members).sum(dim=2) * arm.scale
        loss = -(wanted * cosines.log_softmax(dim=1)).sum(dim=1).mean()
        if arm.contrast:
            where = {int(p): n for n, p in enumerate(flat)}
            rows_ = [n for n, s in enumerate(pseudo.sources[at]) if int(s) in where]
            if rows_:
                target = torch.tensor(
                    [where[int(pseudo.sources[at][n])] for n in rows_], device=vectors.device
                )
                every = asked[rows_] @ vectors.T * arm.scale
                # A query's own candidates may be right too: only those of other queries are negatives.
                columns = torch.from_numpy(inverse.reshape(best.shape)).to(vectors.device)[rows_]
                mask = torch.zeros_like(every, dtype=torch.bool).scatter(1, columns, True)
                mask[torch.arange(len(rows_), device=mask.device), target] = False
                loss = loss + arm.contrast * torch.nn.functional.cross_entropy(
                    every.masked_fill(mask, -torch.inf), target
                )
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(student.model.parameters(), 1.0)
        optimiser.step()
        last = float(loss.detach()) if step == arm.steps - 1 else last
    student.model.eval()
    return last


ARMS: dict[str, Arm] = {
    "self": Arm(),
    "self-contrast": Arm(contrast=0.1),
    "self-dense": Arm(teacher="dense"),
    "sentence": Arm(teacher="sentence"),
    "prf": Arm(teacher="prf"),
    "bm25": Arm(teacher="bm25"),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--sets", nargs="+", default=["scifact", "medquad", "squad"])
    parser.add_argument("--arms", nargs="+", default=["self"], help="NAME or NAME,field=value,...")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--most", type=int, default=None, help="questions of a set at most")
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--test", action="store_true")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    for name in args.sets:
        Trial(args, name, device).run()


class Trial:
    """All arms on one set."""

    def __init__(self, args: argparse.Namespace, name: str, device: str) -> None:
        self.args, self.device = args, device
        split = "test" if args.test else DEV[name]
        self.corpus = Corpus.read(args.data, name, split, args.most)
        self.student = Student(encoders.folder(), device, args.length)
        self.start = {k: v.detach().clone() for k, v in self.student.model.state_dict().items()}
        self.passages = self.student.tokens(self.corpus.whole)
        self.questions = self.student.tokens(self.corpus.questions)
        self.bm25 = torch.from_numpy(self.corpus.words.scores(self.corpus.questions)).to(device)
        self.old = self.student.encode(self.passages)
        self.old_dense = self.student.encode(self.questions) @ self.old.T
        self.base = self.corpus.ndcg(hybrid(self.bm25, self.old_dense))

    def say(self, **row: Any) -> None:
        row = {"set": self.corpus.name, **row}
        with (self.args.out / "trials.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        print(
            " ".join(f"{k}={v:+.4f}" if isinstance(v, float) else f"{k}={v}" for k, v in row.items()),
            flush=True,
        )

    def run(self) -> None:
        alone = {"bm25": self.bm25, "dense": self.old_dense, "hybrid": hybrid(self.bm25, self.old_dense)}
        self.say(
            arm="start",
            questions=len(self.base),
            **{n: float(self.corpus.ndcg(s).mean()) for n, s in alone.items()},
        )
        for named in self.args.arms:
            base, *changes = named.split(",")
            fields = dict(change.split("=") for change in changes)
            arm = Arm(
                **{**ARMS[base].__dict__, **{k: type(getattr(ARMS[base], k))(v) for k, v in fields.items()}}
            )
            for seed in self.args.seeds:
                self.arm(named, arm, seed)

    def teacher(self, name: str) -> Any:
        """Scores of pseudo-queries against all passages, in [0, 1] by min-max over the best hundred."""
        words, device = self.corpus.words, self.device
        start = Student(encoders.folder(), device, self.args.length)

        def dense(texts: list[str], _: Any) -> Tensor:
            return start.encode(start.tokens(texts)) @ self.old.T

        def lexical(texts: list[str], _: Any) -> Tensor:
            return torch.from_numpy(words.scores(texts)).to(device)

        def feedback(texts: list[str], where: Any) -> Tensor:
            asked = start.encode(start.tokens(texts))
            top = hybrid(lexical(texts, where), asked @ self.old.T).topk(5, dim=1).indices
            return normalize(0.6 * asked + 0.4 * self.old[top].mean(dim=1), dim=1) @ self.old.T

        def sentence(texts: list[str], _: Any) -> Tensor:
            found = start.encode(start.tokens(texts)) @ self.sentences[0].T
            best = torch.full((len(texts), len(self.corpus.texts)), -1.0, device=device)
            return best.scatter_reduce(1, self.sentences[1].expand_as(found), found, "amax")

        parts = []
        for one in name.split("+"):
            if one.startswith("encoder:"):
                parts.append(self.other(one.removeprefix("encoder:")))
            elif one == "self":
                parts += [lexical, dense]
            else:
                parts.append({"dense": dense, "bm25": lexical, "prf": feedback, "sentence": sentence}[one])
        if name in ("sentence", "prf"):
            parts += [lexical, dense]
        return lambda texts, where: hybrid(*(part(texts, where) for part in parts))

    @cached_property
    def sentences(self) -> tuple[Tensor, Tensor]:
        texts, owners = [], []
        for i, text in enumerate(self.corpus.texts):
            for a, b in spans(text) or [(0, len(text))]:
                texts.append(text[a:b] or "-")
                owners.append(i)
        start = Student(encoders.folder(), self.device, self.args.length)
        return start.encode(start.tokens(texts)), torch.tensor(owners, device=self.device)[None]

    def other(self, name: str) -> Any:
        prompt = {
            "bge-small": "Represent this sentence for searching relevant passages: ",
            "e5-small": "query: ",
        }
        before = {"e5-small": "passage: "}
        model = Student(self.args.data / "models" / name, self.device, self.args.length)
        known = model.encode(model.tokens(self.corpus.whole, before.get(name, "")))
        return lambda texts, _: model.encode(model.tokens(texts, prompt.get(name, ""))) @ known.T

    def arm(self, named: str, arm: Arm, seed: int) -> None:
        torch.manual_seed(seed)
        started = time.time()
        self.student.model.load_state_dict(self.start)
        loss = train(self.student, self.corpus, self.passages, arm, self.teacher(arm.teacher), seed)
        after = {k: v.detach().clone() for k, v in self.student.model.state_dict().items()}
        took, kept = time.time() - started, {"base": self.base}
        for share in SHARES:
            mixed = {
                k: v + share * (after[k] - v) if v.is_floating_point() else v for k, v in self.start.items()
            }
            self.student.model.load_state_dict(mixed)
            dense = self.student.encode(self.questions) @ self.student.encode(self.passages).T
            systems = {
                "dense": dense,
                "hybrid": hybrid(self.bm25, dense),
                "three": hybrid(self.bm25, self.old_dense, dense, weights=(0.5, 0.25, 0.25)),
            }
            values = {n: self.corpus.ndcg(s) for n, s in systems.items()}
            kept |= {f"{n}-{share}": v for n, v in values.items()}
            gain = values["hybrid"] - self.base
            self.say(
                arm=named, seed=seed, share=share, dense=float(values["dense"].mean()), hybrid=float(gain.mean()),
                error=float(gain.std() / len(gain) ** 0.5), three=float((values["three"] - self.base).mean()),
                loss=loss, seconds=round(took),
            )  # fmt: skip
        np.savez_compressed(
            self.args.out / f"{named.replace(':', '_')}-{self.corpus.name}-{seed}.npz", **kept
        )


if __name__ == "__main__":
    main()
