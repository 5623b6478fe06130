"""What `pools.py` reads on a machine with a GPU: questions of people and queries cut from eight corpora, with BM25's hits.

    python experiments/adaptation/judge/pool_data.py DATA WORK [SET ...]

Of each set: the questions that are asked (dev, test), those that may be labels (or queries of a log), and queries that
are cut from the corpus; a tenth of these are held out, and are asked of an index in which their passage lacks them.
"""

from __future__ import annotations

import json
import lzma
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path += [str(HERE.parent), str(HERE.parents[1])]
import splits
from builds import drawn, judged, rows
from liebig.collection.lookup import hash64

import list_data
from list_data import ask, bm25_of, cut, index_of

SETS = ("scifact", "cranfield", "squad", "medquad", "cosqa", "vaswani", "trec-dl21", "semeval-cqa")
EACH = {"sentence": 450, "claim": 450, "keywords": 300, "related": 300, "title": 300}
list_data.EACH.update(EACH)
HELD, DEPTH, MADE_DEPTH = 10, 100, 50
POOL, DEV, TEST = 300, 300, 400


def asked_of(data: Path, name: str):
    """Questions of people, each with its part: `label` (may be judged), `dev` or `test`."""
    folder = data / name
    test = drawn(judged(folder, "test"), TEST)
    known = {q.text for q in test}
    if name in ("squad", "medquad"):
        label, dev = judged(folder, "train"), judged(folder, "dev")
        label = [q for q in label if q.text not in known]
    else:
        if name in ("scifact", "cosqa"):
            first = [
                q for q in judged(folder, {"scifact": "train", "cosqa": "dev"}[name]) if q.text not in known
            ]
        elif name == "cranfield":
            texts = {row["_id"]: row["text"] for row in rows(folder / "queries.jsonl.xz")}
            wanted = {texts[i] for i in splits.cranfield_dev(texts)}
            first = [q for q in test if q.text in wanted]
        else:
            order = sorted(test, key=lambda q: hash64(q.text))
            first = order[: len(order) // 2]
        out = {q.text for q in first}
        test = [q for q in test if q.text not in out]
        order = sorted(first, key=lambda q: hash64("7 " + q.text))
        label, dev = order[::2], order[1::2]
    label = [label[i] for i in np.random.default_rng(1).permutation(len(label))[:POOL]]
    known = {q.text for q in test + label}
    dev = drawn([q for q in dev if q.text not in known], DEV)
    return [(part, q) for part, some in (("label", label), ("dev", dev), ("test", test)) for q in some]


def one(data: Path, work: Path, name: str) -> None:
    out = work / "sets"
    out.mkdir(parents=True, exist_ok=True)
    began = time.time()
    collection, index = bm25_of([data / name], work / "bm25" / name)
    passages = list(collection.passages())
    place = {passage.id: number for number, passage in enumerate(passages)}
    asked = asked_of(data, name)
    made = list({q.text: q for q in cut(collection)}.values())
    made.sort(key=lambda q: hash64("9 " + q.text))
    held = made[::HELD]
    bare = {}
    kept, busy = [], set()
    for q in held:  # one held query a passage
        number = place[q.passages[0]]
        if number in busy:
            continue
        busy.add(number)
        kept.append(q)
        if q.cut or q.kind == "title":
            text = passages[number].text
            bare[number] = (text.replace(q.cut, " ") if q.cut else text).strip() or text
    held = kept
    texts = {q.text for q in made[::HELD]}
    made = [q for q in made if q.text not in texts]
    triples = [(p.id, "" if n in bare else p.title, bare.get(n, p.text)) for n, p in enumerate(passages)]
    told = {
        "asked": [[part, q.text, [place[i] for i in q.passages]] for part, q in asked],
        "made": [[q.kind, q.text, place[q.passages[0]], q.cut] for q in made],
        "held": [[q.kind, q.text, place[q.passages[0]], bare.get(place[q.passages[0]])] for q in held],
    }
    with lzma.open(out / f"{name}.json.xz", "wt", encoding="utf-8", preset=6) as file:
        json.dump(told, file, ensure_ascii=False, separators=(",", ":"))
    a = ask(index, [q.text for _, q in asked], place, DEPTH)
    b = ask(index, [q.text for q in made], place, MADE_DEPTH)
    other = index_of(work / "held" / name, triples)
    c = ask(other, [q.text for q in held], place, DEPTH)
    np.savez_compressed(
        out / f"{name}.npz",
        **{
            f"{k}{s}": v.astype(t)
            for k, pair in (("asked", a), ("made", b), ("held", c))
            for s, v, t in (("", pair[0], np.int16), ("_scores", pair[1], np.float16))
        },
    )
    print(
        "DONE",
        name,
        len(passages),
        "passages,",
        Counter(part for part, _ in asked),
        Counter(q.kind for q in made),
        len(held),
        "held",
        f"{time.time() - began:.0f} s",
        flush=True,
    )


if __name__ == "__main__":
    for name in sys.argv[3:] or SETS:
        one(Path(sys.argv[1]), Path(sys.argv[2]), name)
