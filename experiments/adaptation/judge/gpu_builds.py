"""builds.py with the judge on the GPU: each pair of texts is scored once a process.  gpu_builds.py HOME [builds.py's arguments]"""

import sys
from pathlib import Path
import numpy as np

home = Path(sys.argv[1])
sys.path.insert(
    0,
    str(Path(__file__).parent / "repo" / "experiments" / "adaptation")
    if (Path(__file__).parent / "repo").is_dir()
    else str(Path(__file__).parents[1]),
)
sys.argv = ["builds.py", *sys.argv[2:]]
from liebig.model import cross_encoder


class Table:
    title = None
    judge = words = None
    known = {}

    def score(self, pairs, *, title=None, half=None):
        import lists

        if "--trial" in sys.argv or Table.trial:
            lists.TRIAL.update(tiny=1)
        if Table.judge is None:
            Table.judge = lists.load_judge(home)
            Table.words = lists.Words(lists.joined(home, "tokenizer.json"))
        keys = [
            (
                q if isinstance(q, str) else q.text,
                p if isinstance(p, str) else f"{p.title} {p.text}" if p.title else p.text,
            )
            for q, p in pairs
        ]
        new = [key for key in dict.fromkeys(keys) if key not in Table.known]
        if new:
            texts = list(dict.fromkeys(text for key in new for text in key))
            place = {text: n for n, text in enumerate(texts)}
            tokens = Table.words(texts, lists.LENGTH)
            scores = lists.scored(
                Table.judge, tokens, tokens, np.array([[place[a], place[b]] for a, b in new])
            )
            Table.known.update(zip(new, scores.tolist()))
        return np.array([Table.known[key] for key in keys], np.float32)

    predict = score

    def to(self, *a):
        return self

    def eval(self):
        return self


import os

Table.trial = bool(os.environ.get("JUDGE_TRIAL"))
if "--reranker" in sys.argv:
    cross_encoder.CrossEncoder.load = classmethod(lambda cls, source, *, device=None, length=None: Table())
import builds

builds.main()
print("pairs scored:", len(Table.known), flush=True)
