"""BM25's weight and the judge's share beside it, chosen by labels: points over the plain hybrid."""

import sys
from pathlib import Path

import numpy as np
import torch

from few_labels import FIRST, SETS, Set, minmax, ndcg

torch.set_num_threads(1)
W, S = [0.2, 0.3, 0.4, 0.5, 0.6], [0.0, 0.3, 0.5, 0.7, 1.0]
home, res = Path(sys.argv[1]), {}
for name in SETS:
    one = Set(home, name)
    n = len(one.asked)
    true, missing = np.zeros((n, len(W), len(S))), 0
    for k, w in enumerate(W):
        for i, (order, scores) in one.hybrids(None, weight=w).items():
            first, least = order[:FIRST], min(one.pool[i].values())
            missing += sum(x not in one.pool[i] for x in first)
            judged = minmax(np.array([one.pool[i].get(x, least) for x in first]))
            own = minmax(scores[:FIRST])
            for j, s in enumerate(S):
                true[i, k, j] = ndcg(
                    [first[x] for x in np.argsort(-(s * judged + (1 - s) * own), kind="stable")], one.right[i]
                )
    np.save(home / f"shares-{name}.npy", true)
    base, mid = true[:, 3:4, 0:1], (3, 2)
    print(
        name,
        "missing",
        round(missing / n / 30 / len(W), 4),
        np.round(100 * (true - base).mean(0), 1).tolist(),
        flush=True,
    )
    flat = (true - base).reshape(n, -1)
    half = 3 * len(S) + 2
    for count in (20, 100):
        c = count if name not in ("cranfield", "semeval-cqa") or count == 20 else 50
        for seed in range(3):
            labels, log, dev, test = one.draw(seed, c)
            if len(labels) < c:
                continue

            def pick(allowed, to, cost):
                g = flat[labels] - flat[labels][:, [to]]
                score = g.mean(0) * len(labels) / (len(labels) + 40) - cost * (np.arange(flat.shape[1]) != to)
                score[[x for x in range(flat.shape[1]) if x not in allowed]] = -9
                return int(score.argmax())

            every = range(flat.shape[1])
            weights = [k * len(S) for k in range(len(W))]
            rer = [k * len(S) + 2 for k in range(len(W))]
            share = [3 * len(S) + j for j in range(len(S))]
            low = [k * len(S) + j for k in range(len(W)) for j in (0, 1, 2, 3)]
            choices = {
                "plain": 3 * len(S),
                "weight": pick(weights, 3 * len(S), 0.002),
                "reranked": half,
                "reranked, weight": pick(rer, half, 0.002),
                "reranked, share": pick(share, half, 0.002),
                "reranked, both": pick(every, half, 0.002),
                "reranked, both, share <= .7": pick(low, half, 0.002),
            }
            for a, x in choices.items():
                for part, some in (("dev", dev), ("test", test)):
                    if some:
                        res.setdefault((count, part, a), {}).setdefault(name, []).append(
                            100 * flat[some, x].mean()
                        )
for key, row in res.items():
    if key[2] != "plain":
        no = [np.mean(v) for k, v in row.items() if k != "medquad"]
        print(
            key,
            {k: round(float(np.mean(v)), 2) for k, v in row.items()},
            "mean",
            round(float(np.mean([np.mean(v) for v in row.values()])), 2),
            "without medquad",
            round(float(np.mean(no)), 2),
            "worst",
            round(float(min(min(v) for v in row.values())), 2),
        )
