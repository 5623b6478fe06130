"""Gains over the plain hybrid, in points, of what builds chose, and of the reranked system."""

import json, sys
from collections import defaultdict

rows = [json.loads(line) for line in open(sys.argv[1])]
cells = defaultdict(list)
for r in rows:
    split = "test" if r["split"] == "test" else "dev"
    cells[r["arm"], split, r["set"], "chosen"].append(100 * r["gain"])
    cells[r["arm"], split, r["set"], "questions"].append(r["questions"])
    cells[r["arm"], split, r["set"], "baseline"].append(r["baseline"])
    for name, value in r["systems"].items():
        if name.endswith("reranked"):
            cells[r["arm"], split, r["set"], "reranked"].append(100 * (value - r["baseline"]))
    cells[r["arm"], split, r["set"], "what"].append("r" if "reranked" in r["chosen"] else "h")
sets = list(dict.fromkeys(r["set"] for r in rows))
for split in ("dev", "test"):
    for what in ("questions", "baseline", "chosen", "reranked", "what"):
        for arm in dict.fromkeys(r["arm"] for r in rows):
            got = {s: cells[arm, split, s, what] for s in sets if cells.get((arm, split, s, what))}
            if not got or (what in ("questions", "baseline") and arm != rows[0]["arm"]):
                continue
            if what == "what":
                print(
                    split,
                    arm,
                    "answers by (h hybrid or parts, r reranked):",
                    {s: "".join(v) for s, v in got.items()},
                )
                continue
            mean = {s: sum(v) / len(v) for s, v in got.items()}
            form = "{:.0f}" if what == "questions" else "{:.4f}" if what == "baseline" else "{:+.2f}"
            print(
                split,
                arm,
                what,
                {s: form.format(v) for s, v in mean.items()},
                "mean",
                form.format(sum(mean.values()) / len(mean)),
            )
