"""What a build that has a reranker and labels would serve, by rules on the cross-fitted labels alone."""

import collections
import sys
from pathlib import Path

import numpy as np

W5, S5 = [0.2, 0.3, 0.4, 0.5, 0.6], [0.0, 0.3, 0.5, 0.7, 1.0]
home = Path(sys.argv[1])
sets = ["scifact", "cranfield", "squad", "medquad", "cosqa", "vaswani", "trec-dl21", "semeval-cqa"]
res = collections.defaultdict(lambda: collections.defaultdict(list))
for count in (20, 100):
    for name in sets:
        true = np.load(home / f"shares-{name}.npy")
        for f in sorted(home.glob(f"final-{name}-{count}-*.npz")):
            z = np.load(f)
            labels = z["labels"]
            asked = np.concatenate([z["dev"], z["test"]])
            parts = np.array(["dev"] * len(z["dev"]) + ["test"] * len(z["test"]))
            base, base_l = true[asked, 3, 0], true[labels, 3, 0]
            cand, cand_l = {}, {}
            for k, w in enumerate((0.3, 0.5)):
                for j, s in enumerate((0.0, 0.5)):
                    tag = f"w{w}{' reranked' if s else ''}"
                    cand[tag] = true[asked, W5.index(w), S5.index(s)] - base
                    cand_l[tag] = true[labels, W5.index(w), S5.index(s)] - base_l
                    cand["map " + tag] = z["asked"][:, k, j] - base
                    cand_l["map " + tag] = z["cross"][:, k, j] - base_l
            n = len(labels)

            def best(allowed, prior):
                m = {t: (cand_l[t].sum() + 60 * prior.get(t, 0.0)) / (n + 60) for t in allowed}
                return max(m, key=m.get)

            every = list(cand)
            prior = {t: 0.01 * ("reranked" in t) + (0.005 if t == "w0.5" else 0) + 0.0 for t in every}
            prior0 = {"w0.5": 0.002}
            rules = {
                "weight .3": "w0.3",
                "map": "map w0.5",
                "map w.3": "map w0.3",
                "reranked": "w0.5 reranked",
                "map, reranked": "map w0.5 reranked",
                "map, reranked, w .3": "map w0.3 reranked",
                "reranked, w .3": "w0.3 reranked",
                "labels choose, no reranker": best([t for t in every if "reranked" not in t], prior0),
                "labels choose, reranker, no map": best(
                    [t for t in every if "map" not in t], {"w0.5 reranked": 0.012, "w0.3 reranked": 0.01}
                ),
                "labels choose of all": best(
                    every,
                    {t: 0.01 * ("reranked" in t) + 0.002 * (t.endswith("w0.5 reranked")) for t in every},
                ),
                "labels choose of all, no prior": best(every, {}),
            }
            for rule, t in rules.items():
                for part in ("dev", "test"):
                    x = cand[t][parts == part]
                    if len(x):
                        res[count, part, rule][name].append(100 * x.mean())
for key, row in res.items():
    mean = [np.mean(row[s]) for s in sets if s in row]
    no = [np.mean(row[s]) for s in sets if s in row and s != "medquad"]
    print(
        f"{key[0]} {key[1]} {key[2]:32s} |",
        " | ".join(f"{np.mean(row[s]):+.1f}" if s in row else "" for s in sets),
        f"| {np.mean(mean):+.2f} | {np.mean(no):+.2f} | worst {min(min(v) for v in row.values()):+.1f}",
    )
