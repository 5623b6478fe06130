"""A map of 20 or 100 labels with a judge beside it: values of every question, and of the labels cross-fitted."""

import sys
import time
from pathlib import Path

import numpy as np
import torch

from few_labels import FIRST, Set, learn, minmax, ndcg

torch.set_num_threads(1)
W, S = [0.3, 0.5], [0.0, 0.5]
home = Path(sys.argv[1])


def table(one, a, some):
    out = np.zeros((len(some), len(W), len(S)))
    for k, w in enumerate(W):
        h = one.hybrids(a, some, weight=w)
        for r, i in enumerate(some):
            order, scores = h[i]
            first, least = order[:FIRST], min(one.pool[i].values())
            judged, own = minmax(np.array([one.pool[i].get(x, least) for x in first])), minmax(scores[:FIRST])
            for j, s in enumerate(S):
                out[r, k, j] = ndcg(
                    [first[x] for x in np.argsort(-(s * judged + (1 - s) * own), kind="stable")], one.right[i]
                )
    return out


def main():
    sets = ("cranfield", "squad", "scifact", "semeval-cqa", "cosqa", "trec-dl21", "medquad", "vaswani")
    known = {n: Set(home, n) for n in sets}
    for seed in range(3):
        for name, one in known.items():
            for count in (100, 20):
                c = 50 if name in ("cranfield", "semeval-cqa") and count == 100 else count
                labels, log, dev, test = one.draw(seed, c)
                file = home / f"final-{name}-{count}-{seed}.npz"
                if len(labels) < c or file.exists():
                    continue
                began = time.process_time()
                a = learn(one, labels, log, "labels")
                asked = dev + test
                out = {
                    "labels": np.array(labels),
                    "dev": np.array(dev, int),
                    "test": np.array(test),
                    "asked": table(one, a, asked),
                }
                cross = np.zeros((len(labels), len(W), len(S)))
                order = np.random.default_rng(5).permutation(len(labels))
                for k in range(3):
                    left = order[k::3]
                    b = learn(one, [labels[j] for j in order if j not in set(left.tolist())], log, "labels")
                    cross[left] = table(one, b, [labels[j] for j in left])
                out["cross"] = cross
                np.savez_compressed(file, **out)
                print(name, count, seed, round(time.process_time() - began, 1), flush=True)


main()
