"""Gains over the plain hybrid, in points: what builds chose, and the reranked system; each seed and the mean."""
import json, sys
from collections import defaultdict
rows = [json.loads(line) for line in open(sys.argv[1])]
rows = [r for r in rows if r["arm"] != "warm"]
SETS = "medquad squad scifact cranfield cosqa vaswani trec-dl21 semeval-cqa".split()
cells = defaultdict(dict)
for r in rows:
    cells[r["arm"], "test" if r["split"] == "test" else "dev", r["set"]][r["seed"]] = r
for split in ("dev", "test"):
    for arm in dict.fromkeys(r["arm"] for r in rows):
        got = {s: cells[arm, split, s] for s in SETS if (arm, split, s) in cells}
        if not got: continue
        print(f"## {split} {arm}")
        means, over = {}, {}
        for s, by in got.items():
            g = [100 * by[k]["gain"] for k in sorted(by)]
            rr = [100 * (v - by[k]["baseline"]) for k in sorted(by) for n, v in by[k]["systems"].items() if n.endswith("reranked")]
            means[s] = sum(g) / len(g)
            one = by[min(by)]
            print(f"{s:12} n {one['questions']:4} plain {one['baseline']:.4f} chosen {means[s]:+.2f} [{' '.join(f'{x:+.1f}' for x in g)}] ±{196*one['error']:.1f} reranked [{' '.join(f'{x:+.1f}' for x in rr)}] {'; '.join(by[k]['chosen'] for k in sorted(by))}")
        w = [v for s, v in means.items() if s != "medquad"]
        print(f"mean {sum(means.values())/len(means):+.2f} without medquad {sum(w)/len(w):+.2f}, seeds {sorted({k for by in got.values() for k in by})}")
