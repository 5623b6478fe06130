"""Maps and weights learned from a few judged questions and a judge's lists: nDCG@10 of the hybrid, points over the plain one.

python few_labels.py HOME OUT.jsonl --sets ... --seeds 0 1 2 --labels 20 100 --arms ...
"""

import argparse
import json
import lzma
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

LR, STEPS, TEMP = 3e-4, 60, 0.05
FIRST, DEEP, MOST = 30, 100, 4000
SETS = ("cranfield", "squad", "scifact", "semeval-cqa", "cosqa", "trec-dl21", "medquad", "vaswani")
#: arm: weight of labels, weight of lists, what lists (o: own pools, l: log, m: made), target, steps
ARMS = {
    "labels": (1, 0, "", "both", 60),
    "own": (1, 1, "o", "both", 60),
    "own3": (1, 3, "o", "both", 60),
    "log": (1, 1, "ol", "both", 60),
    "log3": (1, 3, "ol", "both", 60),
    "logj": (1, 1, "ol", "judge", 60),
    "all": (1, 1, "olm", "both", 60),
    "all3": (1, 3, "olm", "both", 60),
    "allj": (1, 1, "olm", "judge", 60),
    "softlog": (0, 1, "ol", "both", 60),
    "softall": (0, 1, "olm", "both", 60),
    "all120": (1, 1, "olm", "both", 120),
}


def minmax(x):
    span = x.max() - x.min()
    return (x - x.min()) / span if span > 0 else np.ones(len(x))


def ndcg(order, right):
    right = set(right)
    gain = sum(1 / np.log2(r + 2) for r, n in enumerate(order[:10]) if n in right)
    return gain / sum(1 / np.log2(r + 2) for r in range(min(10, len(right))))


class Set:
    def __init__(self, home, name):
        self.name = name
        told = json.loads(lzma.open(home / "in" / "sets" / f"{name}.json.xz").read())
        found = np.load(home / "in" / "sets" / f"{name}.npz")
        self.asked = told["asked"]
        self.right = [row[2] for row in self.asked]
        self.part = np.array([row[0] for row in self.asked])
        self.bm25 = list(zip(found["asked"].astype(int), found["asked_scores"].astype(np.float64)))
        v = np.load(home / f"vectors-{name}.npz")
        self.p, self.q, self.m = (
            torch.from_numpy(v[k].astype(np.float32)) for k in ("passages", "asked", "made")
        )
        pools = np.load(home / f"pools-{name}.npz")
        self.pool = [{} for _ in self.asked]
        for (q, n), s in zip(pools["pairs"].astype(int).tolist(), pools["scores"].tolist()):
            self.pool[q][n] = s
        lists = np.load(home / f"lists-{name}.npz")
        self.made = lists["lists"], lists["hybrid"], lists["judged"]
        self.plain = self.hybrids(None)
        self.base = self.values(self.plain)

    def vectors(self, a):
        if a is None:
            return self.q, self.p
        return F.normalize(self.q + self.q @ a, dim=1), F.normalize(self.p + self.p @ a, dim=1)

    def hybrids(self, a, some=None, weight=0.5):
        q, p = self.vectors(a)
        some = range(len(self.asked)) if some is None else some
        out = {}
        some = list(some)
        s, n = (q[some] @ p.T).topk(min(DEEP, len(p)))
        for i, row, score in zip(some, n.tolist(), s.numpy().astype(np.float64)):
            numbers, values = self.bm25[i]
            there = numbers >= 0
            total = dict(zip(row, ((1 - weight) * minmax(score)).tolist()))
            if there.any():
                for k, x in zip(numbers[there].tolist(), (weight * minmax(values[there])).tolist()):
                    total[k] = total.get(k, 0.0) + x
            order = sorted(total, key=lambda k: -total[k])
            out[i] = order, np.array([total[k] for k in order])
        return out

    def values(self, hybrids):
        return {i: ndcg(order, self.right[i]) for i, (order, _) in hybrids.items()}

    def alone(self, a, some):
        q, p = self.vectors(a)
        n = (q[some] @ p.T).topk(10).indices.tolist()
        return {i: ndcg(row, self.right[i]) for i, row in zip(some, n)}

    def reranked(self, hybrids):
        out, missing = {}, 0
        for i, (order, scores) in hybrids.items():
            first = order[:FIRST]
            known = self.pool[i]
            least = min(known.values())
            judged = np.array([known.get(n, least) for n in first])
            missing += sum(n not in known for n in first)
            both = minmax(judged) / 2 + minmax(scores[:FIRST]) / 2
            out[i] = ndcg([first[k] for k in np.argsort(-both, kind="stable")], self.right[i])
        self.missing = missing / max(1, sum(len(o[:FIRST]) for o, _ in hybrids.values()))
        return out

    def soft_of(self, i, target):
        order, scores = self.plain[i]
        first = order[:FIRST]
        judged = np.array([self.pool[i][n] for n in first])
        value = judged / 2 if target == "judge" else 6 * (minmax(judged) / 2 + minmax(scores[:FIRST]) / 2)
        return first, value

    def draw(self, seed, count):
        big = (self.part == "label").sum() >= 100
        pool = np.flatnonzero((self.part == "label") | ((self.part == "dev") & (not big)))
        some = np.random.default_rng(seed).permutation(pool)
        labels = some[:count].tolist()
        log = some[count : count + 200].tolist() if big else []
        dev = [i for i in np.flatnonzero(self.part == "dev").tolist() if i not in set(labels)]
        return labels, log, dev, np.flatnonzero(self.part == "test").tolist()


def learn(one, labels, log, arm, seed=0):
    of_labels, of_lists, kinds, target, steps = ARMS[arm]
    rows = []
    if "o" in kinds:
        rows += [(one.q[i], *one.soft_of(i, target)) for i in labels]
    if "l" in kinds:
        rows += [(one.q[i], *one.soft_of(i, target)) for i in log]
    made = []
    if "m" in kinds:
        lists, hybrid, judged = one.made
        for k in range(len(lists)):
            there = lists[k] < len(one.p)  # the bare text of the source has no vector: the rest of the list
            value = (
                judged[k][there] / 2
                if target == "judge"
                else 6 * (minmax(judged[k]) / 2 + minmax(hybrid[k]) / 2)[there]
            )
            if there.sum() >= 10:
                made.append((one.m[k], lists[k][there].tolist(), value))
    used = {n for i in labels for n in one.right[i]} | {n for _, r, _ in rows for n in r}
    rng = np.random.default_rng(seed)
    rest = [n for n in rng.permutation(len(one.p)).tolist() if n not in used]
    some = sorted(used) + rest[: max(0, MOST - len(used))]
    place = {n: k for k, n in enumerate(some)}
    p, q = one.p[some], one.q[labels]
    good = torch.zeros(len(labels), len(some), dtype=torch.bool)
    for k, i in enumerate(labels):
        good[k, [place[n] for n in one.right[i]]] = True
    d = p.shape[1]
    a = torch.zeros(d, d, requires_grad=True)
    opt = torch.optim.AdamW([a], lr=LR, weight_decay=0.1)

    def mapped(x):
        return F.normalize(x + x @ a, dim=1)

    def kl(some_rows):
        queries = mapped(torch.stack([r[0] for r in some_rows]))
        numbers = sorted({n for r in some_rows for n in r[1]})
        at = {n: k for k, n in enumerate(numbers)}
        scores = queries @ mapped(one.p[numbers]).T / TEMP
        width = max(len(r[1]) for r in some_rows)
        index = torch.zeros(len(some_rows), width, dtype=torch.long)
        goal = torch.full((len(some_rows), width), -1e9)
        for k, r in enumerate(some_rows):
            index[k, : len(r[1])] = torch.tensor([at[n] for n in r[1]])
            goal[k, : len(r[1])] = torch.from_numpy(np.asarray(r[2], np.float32))
        got = scores.gather(1, index).masked_fill(goal < -1e8, -1e9)
        return F.kl_div(got.log_softmax(1), goal.softmax(1), reduction="batchmean")

    for step in range(steps):
        rise = min(1.0, (step + 1) / (0.1 * steps))
        opt.param_groups[0]["lr"] = LR * rise * (1 - step / steps)
        loss = 0
        if of_labels:
            s = mapped(q) @ mapped(p).T / TEMP
            loss = loss + of_labels * (s.logsumexp(1) - s.masked_fill(~good, -torch.inf).logsumexp(1)).mean()
        if of_lists:
            if rows:
                loss = loss + of_lists * kl([rows[k] for k in rng.permutation(len(rows))[:64]])
            if made:
                loss = loss + of_lists * kl([made[k] for k in rng.permutation(len(made))[:64]])
        opt.zero_grad()
        loss.backward()
        opt.step()
    return a.detach()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("home", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--sets", nargs="+", default=SETS)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--labels", nargs="+", type=int, default=[20, 100])
    parser.add_argument("--arms", nargs="+", default=list(ARMS))
    parser.add_argument(
        "--cross", action="store_true", help="what three cross-fitted parts of the labels say"
    )
    given = parser.parse_args()
    torch.set_num_threads(1)
    known = {name: Set(given.home, name) for name in given.sets}
    done = (
        {(r["set"], r["seed"], r["count"], r["arm"]) for r in map(json.loads, given.out.open())}
        if given.out.exists()
        else set()
    )
    for seed in given.seeds:
        for name, one in known.items():
            for count in given.labels:
                labels, log, dev, test = one.draw(seed, count)
                if len(labels) < count or (name in ("cranfield", "semeval-cqa") and count > 50):
                    if count == 100 and name in ("cranfield", "semeval-cqa"):
                        labels, log, dev, test = one.draw(seed, 50)
                    else:
                        continue
                for arm in given.arms:
                    if (name, seed, count, arm) in done or ("log" in arm and not log):
                        continue
                    began = time.process_time()
                    a = learn(one, labels, log, arm)
                    row = {"set": name, "seed": seed, "count": count, "labels": len(labels), "arm": arm}
                    for part, some in (("dev", dev), ("test", test)):
                        if not some:
                            continue
                        h = one.hybrids(a, some)
                        v = one.values(h)
                        plain = {i: one.plain[i] for i in some}
                        r0, r = one.reranked(plain), one.reranked(h)
                        row[part] = {
                            "n": len(some),
                            "base": np.mean([one.base[i] for i in some]),
                            "gain": 100 * np.mean([v[i] - one.base[i] for i in some]),
                            "reranked": 100 * np.mean([r0[i] - one.base[i] for i in some]),
                            "both": 100 * np.mean([r[i] - one.base[i] for i in some]),
                            "missing": one.missing,
                        }
                    if given.cross:
                        cross = {}
                        order = np.random.default_rng(5).permutation(len(labels))
                        for k in range(3):
                            left = [labels[j] for j in order[k::3]]
                            kept = [i for i in labels if i not in set(left)]
                            b = learn(one, kept, log, arm)
                            h = one.hybrids(b, left)
                            v, r, r0 = (
                                one.values(h),
                                one.reranked(h),
                                one.reranked({i: one.plain[i] for i in left}),
                            )
                            for i in left:
                                cross[i] = v[i] - one.base[i], r[i] - one.base[i], r0[i] - one.base[i]
                        g = np.array(list(cross.values()))
                        row["cross"] = (100 * g.mean(0)).tolist()
                        row["cross_se"] = (100 * g.std(0) / len(g) ** 0.5).tolist()
                    row["cpu"] = time.process_time() - began
                    with given.out.open("a") as file:
                        file.write(json.dumps(row) + "\n")
                    print(
                        name,
                        seed,
                        count,
                        arm,
                        {
                            k: (round(row[k]["gain"], 2), round(row[k]["both"], 2))
                            for k in ("dev", "test")
                            if k in row
                        },
                        round(row["cpu"], 1),
                        flush=True,
                    )


if __name__ == "__main__":
    main()
