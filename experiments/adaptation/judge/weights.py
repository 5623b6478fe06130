"""BM25's weight in the hybrid chosen by labels, by a judge's lists, or both."""

import sys
from pathlib import Path

import numpy as np
import torch

from few_labels import SETS, Set, ndcg

torch.set_num_threads(1)
W = np.round(np.arange(0.2, 0.81, 0.1), 1)
home = Path(sys.argv[1])
res = {}
for name in sys.argv[2:] or SETS:
    one = Set(home, name)
    n = len(one.asked)
    true, soft = np.zeros((n, len(W))), {t: np.zeros((n, len(W))) for t in ("both", "judge")}
    for k, w in enumerate(W):
        h = one.hybrids(None, weight=float(w))
        for i, (order, _) in h.items():
            true[i, k] = ndcg(order, one.right[i])
    for t in soft:
        for i in range(n):
            first, v = one.soft_of(i, t)
            p = np.exp(v - v.max())
            p /= p.sum()
            one_p = dict(zip(first, p))
            one.__dict__.setdefault("_p", {})[i] = one_p
        for k, w in enumerate(W):
            h = one.hybrids(None, weight=float(w))
            for i, (order, _) in h.items():
                soft[t][i, k] = sum(one._p[i].get(x, 0.0) / np.log2(r + 2) for r, x in enumerate(order[:10]))
    base = list(W).index(0.5)
    for count in (20, 100):
        for seed in range(3):
            c = count if name not in ("cranfield", "semeval-cqa") or count == 20 else 50
            labels, log, dev, test = one.draw(seed, c)
            if len(labels) < c:
                continue

            def pick(score):
                return int(np.argmax(score - 1e-9 * np.abs(W - 0.5)))

            choices = {"labels": pick(true[labels].mean(0))}
            for t in soft:
                some = labels + log
                s = soft[t][some].mean(0)
                choices[f"soft {t}"] = pick(s)
                choices[f"labels + soft {t}"] = pick(true[labels].mean(0) + s)
            choices["labels, shrunk"] = pick(
                (true[labels] - true[labels][:, [base]]).mean(0) * len(labels) / (len(labels) + 60)
                - 0.002 * (W != 0.5)
                - 0.01 * np.abs(W - 0.5)
            )
            for a, k in choices.items():
                for part, some in (("dev", dev), ("test", test)):
                    if some:
                        res.setdefault((count, a, part), {}).setdefault(name, []).append(
                            100 * (true[some, k] - true[some, base]).mean()
                        )
            res.setdefault((count, "best by test", "test"), {}).setdefault(name, []).append(
                100 * (true[test].mean(0).max() - true[test][:, base].mean())
            )
    print(
        name,
        dict(zip(W.tolist(), (100 * (true - true[:, [base]]).mean(0)).round(2).tolist())),
        {
            t: dict(zip(W.tolist(), (100 * (soft[t] - soft[t][:, [base]]).mean(0)).round(2).tolist()))
            for t in soft
        },
        flush=True,
    )
for key, row in sorted(res.items()):
    print(
        key,
        {n: round(float(np.mean(v)), 2) for n, v in row.items()},
        "mean",
        round(float(np.mean([np.mean(v) for v in row.values()])), 2),
    )
