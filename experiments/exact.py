"""Does a question that names something letter by letter find it? For EXACT_ALONE and EXACT_AMONG of `search/fusion.py`.

    python experiments/exact.py FOLDER ...     # retriever folders

Up to 200 names that at most ten passages have are drawn from each folder and asked for alone and in two sentences. A
row has the share of names that one of the first three hits contains, by the weight of BM25 in the folder's hybrid and
the least weight for such questions.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from pathlib import Path

from liebig import Retriever
from liebig.base.records import Query
from liebig.search.fusion import EXACT, FUSION_DEPTH, QUOTING, weighted_by

FORMS = ("{}", "what does {} do", "how do I use {} with a file")
NAMES, RARE, LENGTHS = 200, 10, range(4, 41)
WEIGHTS, LEAST = (
    ((0.5, "minmax"), (0.45, "spread"), (0.3, "spread"), (0.15, "spread")),
    (0, 0.4, 0.5, 0.6, 0.7, 0.8),
)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", type=Path, nargs="+")
    for folder in parser.parse_args().folders:
        now = Retriever.from_folder(folder).current
        texts = {passage.id: passage.text for passage in now.collection.passages()}
        rare: Counter[str] = Counter()
        for text in texts.values():
            rare.update({name for word in text.split() if EXACT.fullmatch(name := word.strip(QUOTING))})
        names = sorted(name for name, count in rare.items() if count <= RARE and len(name) in LENGTHS)
        random.Random(0).shuffle(names)
        names = names[:NAMES]
        asked = [[Query("", form.format(name)) for name in names] for form in FORMS]
        parts = [now.systems()["hybrid"].answer(queries, FUSION_DEPTH).parts for queries in asked]
        found = [list(zip(part["bm25"], part["dense"])) for part in parts]
        print(
            f"\n{folder.name}: {len(texts):,} passages, {len(names)} names\n\n| BM25 | least | {' | '.join(FORMS)} |"
        )
        print("| --- | --- |" + " ---: |" * len(FORMS))
        for weight, norm in WEIGHTS:
            for least in (one for one in LEAST if not one or one > weight):
                fuse = weighted_by(max(weight, least), norm, spread=now.description.spread)
                shares = []
                for lists in found:
                    hits = [fuse(each)[:3] for each in lists]
                    there = [any(name in texts[id] for id, _ in top) for name, top in zip(names, hits)]
                    shares.append(f"{sum(there) / len(there):.3f}")
                print(f"| {weight}, {norm} | {least or ''} | {' | '.join(shares)} |", flush=True)


if __name__ == "__main__":
    main()
