"""A judge's scores of pools and lists, and the bundled encoder taught by them, on one GPU.

    python pools.py score HOME      # scores of lists and pools; waits for HOME/in/judge.done
    python pools.py teach HOME      # beside it, after the lists of a set are there; HOME/until: seconds since 1970
    python pools.py pack HOME OUT

HOME/in has `sets` (by `pool_data.py`), `data/SET.jsonl.xz` (the corpora), `tokenizer.json`, `judge.z` and
`judge.changes.*` (by `list_data.py weights` and `lists.py judge`).
"""

from __future__ import annotations

import json
import lzma
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

import lists as L

HERE = Path(__file__).resolve().parent
L.ENCODER = Path(os.environ.get("ENCODER", L.ENCODER))
SETS = ("cranfield", "squad", "scifact", "semeval-cqa", "cosqa", "trec-dl21", "medquad", "vaswani")
if os.environ.get("SETS"):
    SETS = tuple(os.environ["SETS"].split())
FEW = int(os.environ.get("FEW", "0"))
if FEW:
    L.TRIAL.update(groups=16, step=8, steps=3, queries=2, batch=2, pairs=50)
FIRST, POOL = 30, 60
ARMS = (("both", 6e-5), ("log", 6e-5), ("judge", 6e-5))
LOGGED, TIMES = 100, 3  # questions of people that a log must have, and how often each is learned from


class Set:
    def __init__(self, home: Path, name: str) -> None:
        self.name = name
        told = json.loads(lzma.open(home / "in" / "sets" / f"{name}.json.xz").read())
        found = np.load(home / "in" / "sets" / f"{name}.npz")
        corpus = lzma.open(home / "in" / "data" / f"{name}.jsonl.xz").read().decode().splitlines()
        self.titled = [(row.get("title") or "", row["text"]) for row in map(json.loads, corpus)]
        self.texts = [f"{t} {x}".strip() for t, x in self.titled]
        if FEW:
            told["asked"], told["made"] = told["asked"][::25][:6], told["made"][: 4 * FEW]
            told["held"] = told["held"][:FEW]
            keep = {n for row in told["asked"] for n in row[2]} | {
                row[2] for k in ("made", "held") for row in told[k]
            }
            self.texts = [x if n in keep else x[:40] for n, x in enumerate(self.texts)]
        self.asked, self.made, self.held = told["asked"], told["made"], told["held"]
        step = {"asked": 25 if FEW else 1, "made": 1, "held": 1}
        self.words = {
            k: list(
                zip(found[k][:: step[k]].astype(int), found[f"{k}_scores"][:: step[k]].astype(np.float64))
            )
            for k in ("asked", "made", "held")
        }
        self.parts = np.array([row[0] for row in self.asked])

    def bares(self) -> dict[str, int]:
        """Passages without what was cut from them, in the order in which `score` numbered them."""
        found: dict[str, int] = {}
        for kind, _, source, cut in self.made:
            if kind in ("sentence", "claim", "title"):
                bare = self.bare(source, cut if kind != "title" else "")
                found.setdefault(bare, len(self.texts) + len(found))
        return found

    def log(self) -> list[int]:
        return [i for i, row in enumerate(self.asked) if row[0] == "label"]

    def bare(self, number: int, cut: str) -> str:
        text = self.titled[number][1]
        return (text.replace(cut, " ") if cut else text).strip() or text

    def vectors(self, model: L.Student, own: L.Words):
        if not hasattr(self, "tokens"):
            self.tokens = own(self.texts, L.WHOLE - 2)
            self.asked_tokens = own([row[1] for row in self.asked], L.LENGTH)
            self.held_tokens = own([row[1] for row in self.held], L.LENGTH)
            self.bare_tokens = own([row[3] or "x" for row in self.held], L.WHOLE - 2)
        return tuple(
            model.encode(rows)
            for rows in (self.tokens, self.asked_tokens, self.held_tokens, self.bare_tokens)
        )

    def measured(self, model: L.Student, own: L.Words) -> tuple[dict[str, Any], Any, Any]:
        passages, asked, held, bare = self.vectors(model, own)
        found: dict[str, Any] = {}
        right = [row[2] for row in self.asked]
        order = (asked @ passages.T).topk(10).indices.tolist()
        hybrid = L.Corpus.hybrids(self.words["asked"], asked, passages, 100)
        found["alone"] = np.array([L.ndcg(a, b) for a, b in zip(order, right)])
        found["hybrid"] = np.array([L.ndcg(a, b) for (a, _), b in zip(hybrid, right)])
        other = passages.clone()
        for i, row in enumerate(self.held):
            if row[3]:
                other[row[2]] = bare[i]
        right = [[row[2]] for row in self.held]
        order = (held @ other.T).topk(10).indices.tolist()
        of_held = L.Corpus.hybrids(self.words["held"], held, other, 100)
        found["made alone"] = np.array([L.ndcg(a, b) for a, b in zip(order, right)])
        found["made hybrid"] = np.array([L.ndcg(a, b) for (a, _), b in zip(of_held, right)])
        return found, hybrid, (passages, asked)


class Lesson(L.Lesson):
    """The lists of a set as `score` wrote them."""

    def __init__(self, one: Set, file: Path, start: L.Student, own: L.Words) -> None:
        stored = np.load(file)
        self.lists, self.hybrid, self.judged = (
            stored[k][: len(one.made)] for k in ("lists", "hybrid", "judged")
        )
        self.texts = one.texts + list(one.bares())
        self.lists = self.lists.astype(np.int64)
        log = one.log() if len(one.log()) >= (1 if FEW else LOGGED) else []
        self.cut = len(self.lists)
        if len(log):
            width = min(self.lists.shape[1], stored["log"].shape[1])
            for name in ("lists", "hybrid", "judged"):
                other = stored["log" if name == "lists" else f"log_{name}"][: len(log)]
                setattr(self, name, np.concatenate([getattr(self, name)[:, :width], other[:, :width]]))
        self.queries = own([row[1] for row in one.made] + [one.asked[i][1] for i in log], L.LENGTH)
        self.tokens = own(self.texts, L.LENGTH)
        used = np.unique(self.lists)
        self.before = torch.zeros(len(self.texts), start.dense.out_features, device=L.device())
        self.before[torch.from_numpy(used).to(L.device())] = start.encode([self.tokens[n] for n in used])
        self.asked_before = start.encode(self.queries)
        self.arm = ""

    def target(self, arm: str) -> Any:
        self.arm = arm
        return super().target("judge" if arm == "judge" else "both")

    def batches(self, rng: Any) -> Any:
        learned = np.array([n for n in range(self.cut) if n % L.HELD])
        if self.arm == "log":
            learned = np.concatenate([learned, np.repeat(np.arange(self.cut, len(self.lists)), TIMES)])
        size = L.TRIAL.get("batch", L.QUERIES)
        while True:
            order = rng.permutation(learned)
            for start in range(0, len(order) - size + 1, size):
                yield np.unique(order[start : start + size])

    @torch.no_grad()
    def held(self, model: Any, target: Any) -> float:
        whole, self.lists = self.lists, self.lists[: self.cut]
        value = super().held(model, target)
        self.lists = whole
        return value


def deadline(home: Path) -> float:
    file = home / "until"
    return float(file.read_text()) if file.exists() else time.time() + 200


def save(path: Path, **arrays: Any) -> None:
    tmp = path.with_name("tmp-" + path.name)
    np.savez_compressed(tmp, **arrays)
    tmp.rename(path)


def new_judge(home: Path) -> L.Judge:
    if FEW:
        torch.manual_seed(1)
        return L.Judge(48, 96, 2, 4).to(L.device()).eval()
    if os.environ.get("JUDGE"):
        from safetensors.torch import load_file

        model = L.Judge()
        model.load_state_dict(load_file(os.environ["JUDGE"]), strict=False)
    else:
        packed = b"".join(part.read_bytes() for part in sorted((home / "in").glob("judge.changes.[0-9]*")))
        changes = L.decoded(packed)
        model = L.new_judge(home)
        with torch.no_grad():
            for name, value in model.named_parameters():
                if name in changes:
                    value += changes[name].reshape(value.shape)
                else:
                    print("unchanged", name)
    model = model.to(L.device(), torch.float16 if torch.cuda.is_available() else torch.float32).eval()
    model.classifier.float()
    return model


@torch.no_grad()
def score(home: Path) -> None:
    start = L.Student.load().to(L.device())
    words, own = (
        L.Words((home / "in" / "tokenizer.json").read_bytes()),
        L.Words((L.ENCODER / "tokenizer.json").read_bytes()),
    )
    kept = {}
    for name in SETS:
        one = Set(home, name)
        found, hybrid, (passages, asked) = one.measured(start, own)
        queries = start.encode(own([row[1] for row in one.made], L.LENGTH))
        save(home / f"start-{name}.npz", **found)
        save(
            home / f"vectors-{name}.npz",
            passages=passages.half().cpu().numpy(),
            asked=asked.half().cpu().numpy(),
            made=queries.half().cpu().numpy(),
        )
        one.judged_tokens = words(one.texts, L.LENGTH)
        kept[name] = one, hybrid, one_hybrids(one.words["made"], queries, passages)
        L.say(name, "start", {k: round(float(v.mean()), 4) for k, v in found.items()})
    while not FEW and not os.environ.get("JUDGE") and not (home / "in" / "judge.done").exists():
        time.sleep(0.2)
    judge = new_judge(home)
    L.say("ready to score")
    for name in SETS:
        one, hybrid, of_made = kept[name]
        cache, rows, scores = one.bares(), [], []
        for (kind, _, source, cut), (numbers, values) in zip(one.made, of_made):
            row, value = numbers[:FIRST], values[:FIRST]
            if source not in row:
                row = [*row[:-1], source]
            if kind in ("sentence", "claim", "title"):
                place = cache[one.bare(source, cut if kind != "title" else "")]
                row = [place if n == source else n for n in row]
            rows.append(row)
            scores.append(value)
        width = min(map(len, rows))
        listed = np.array([row[:width] for row in rows])
        more = words(list(cache), L.LENGTH)
        tokens = one.judged_tokens + more
        pairs = np.array([(q, n) for q, row in enumerate(listed.tolist()) for n in row])
        began = time.time()
        judged = L.scored(judge, words([row[1] for row in one.made], L.LENGTH), tokens, pairs).reshape(
            listed.shape
        )
        log = one.log()
        least = min(len(hybrid[i][0][:FIRST]) for i in log)
        of_log = np.array([hybrid[i][0][:least] for i in log])
        pairs = np.array([(q, n) for q, row in enumerate(of_log.tolist()) for n in row])
        logged = L.scored(judge, words([one.asked[i][1] for i in log], L.LENGTH), tokens, pairs).reshape(
            of_log.shape
        )
        save(
            home / f"lists-{name}.npz",
            lists=listed,
            hybrid=np.array([s[:width] for s in scores]),
            judged=judged,
            log=of_log,
            log_hybrid=np.array([hybrid[i][1][:least] for i in log]),
            log_judged=logged,
        )
        L.say(
            name,
            listed.shape,
            f"judged in {time.time() - began:.1f} s;",
            len(one.texts) + len(cache),
            "texts",
        )
    (home / "lists.done").touch()
    for name in SETS:
        if time.time() > deadline(home):
            L.say("no time for the pools of", name)
            continue
        one, hybrid, _ = kept[name]
        rows = [row[:POOL] for row, _ in hybrid]
        pairs = np.array([(q, n) for q, row in enumerate(rows) for n in row])
        began = time.time()
        values = L.scored(judge, words([row[1] for row in one.asked], L.LENGTH), one.judged_tokens, pairs)
        save(home / f"pools-{name}.npz", pairs=pairs.astype(np.int16), scores=values)
        found, at = {"judge": [], "judge and hybrid": []}, 0
        for (row, own_scores), first, (_, _, right) in zip(hybrid, rows, one.asked):
            mine, at = values[at : at + len(first)][:FIRST], at + len(first)
            first = first[:FIRST]
            found["judge"].append(L.ndcg([first[n] for n in np.argsort(-mine, kind="stable")], right))
            found["judge and hybrid"].append(
                L.ndcg(L.fused([(first, own_scores[:FIRST]), (first, mine)])[0], right)
            )
        save(home / f"judge-{name}.npz", **{k: np.array(v) for k, v in found.items()})
        L.say(
            name,
            len(pairs),
            f"pairs of pools in {time.time() - began:.1f} s",
            {k: round(float(np.mean(v)), 4) for k, v in found.items()},
        )
    (home / "score.done").touch()


def one_hybrids(words: Any, queries: Any, passages: Any) -> Any:
    return L.Corpus.hybrids(words, queries, passages, 50)


def teach(home: Path) -> None:
    start = L.Student.load().to(L.device())
    own = L.Words((L.ENCODER / "tokenizer.json").read_bytes())
    left = len(SETS) * len(ARMS)
    for name in SETS:
        one, file = Set(home, name), home / f"lists-{name}.npz"
        while not file.exists():
            time.sleep(0.3)
            if time.time() > deadline(home):
                return
        lesson = Lesson(one, file, start, own)
        values: dict[str, Any] = {}
        facts: dict[str, Any] = {}
        for arm, rate in ARMS:
            if arm == "log" and lesson.cut == len(lesson.lists):
                left -= 1
                continue
            share = (deadline(home) - time.time()) / left
            left -= 1
            if share < 2 and not FEW:
                L.say("no time for", name, arm, rate)
                continue
            L.LESSON_RATE = rate
            began = time.time()
            try:
                model, said = L.taught(lesson, arm, 0.75 * share)
                label = f"{arm} {rate:g}"
                facts[label] = said
                for part, of in ((0.5, "half"), (1.0, "whole")):
                    if of == "whole" and arm == "judge" and share < 8:
                        continue
                    found, _, _ = one.measured(L.between(model, part), own)
                    values |= {f"{label} {of}: {k}": v for k, v in found.items()}
            except Exception as error:
                L.say(name, arm, "failed:", repr(error)[:300])
                torch.cuda.empty_cache()
                continue
            L.say(name, label, said, f"{time.time() - began:.1f} s")
        values["facts"] = np.array(json.dumps(facts))
        save(home / f"taught-{name}.npz", **values)
    (home / f"teach-{SETS[0]}.done").touch()


def show(home: Path) -> None:
    """Points over the encoder before, by part of the questions."""
    table = {}
    for name in SETS:
        if not (home / f"taught-{name}.npz").exists():
            continue
        told = json.loads(lzma.open(home / "in" / "sets" / f"{name}.json.xz").read())
        parts = np.array([row[0] for row in told["asked"]])
        if FEW:
            parts = parts[::25][:6]
        start = np.load(home / f"start-{name}.npz")
        taught = np.load(home / f"taught-{name}.npz")
        for key in taught.files:
            if key == "facts":
                continue
            arm, system = key.split(": ")
            gain = 100 * (taught[key] - start[system])
            if system.startswith("made"):
                table.setdefault((arm, system, "held"), {})[name] = gain.mean()
            else:
                for part in ("dev", "test"):
                    if (parts == part).any():
                        table.setdefault((arm, system, part), {})[name] = gain[parts == part].mean()
    sets = [n for n in SETS if any(n in row for row in table.values())]
    print("| | " + " | ".join(sets) + " | mean |")
    for key in sorted(table, key=lambda k: (k[2], k[1], k[0])):
        row = table[key]
        print(
            "|",
            ", ".join(key),
            "|",
            " | ".join(f"{row[n]:+.1f}" if n in row else "" for n in sets),
            "|",
            f"{np.mean(list(row.values())):+.2f} |",
            flush=True,
        )


def pack(home: Path, out: Path) -> None:
    import tarfile

    names = sorted(p.name for p in home.glob("*.npz")) + sorted(p.name for p in home.glob("*.log"))
    vectors = [n for n in names if n.startswith("vectors-")]
    with tarfile.open(out / "small.tar", "w") as tar:
        for n in names:
            if n not in vectors:
                tar.add(home / n, n)
    size, number, tar = 0, 0, None
    for n in sorted(vectors, key=lambda n: -(home / n).stat().st_size):
        if tar is None or size + (home / n).stat().st_size > 15 * 2**20:
            if tar:
                tar.close()
            tar, size, number = tarfile.open(out / f"vectors{number}.tar", "w"), 0, number + 1
        tar.add(home / n, n)
        size += (home / n).stat().st_size
    if tar:
        tar.close()


if __name__ == "__main__":
    part, home = sys.argv[1], Path(sys.argv[2])
    torch.set_float32_matmul_precision("high")
    (home / "out").mkdir(exist_ok=True)
    if part == "pack":
        if not FEW:
            show(home)
        pack(home, Path(sys.argv[3]))
    elif part == "show":
        show(home)
    else:
        {"score": score, "teach": teach}[part](home)
