"""The splits of every set, written down once: what is chosen on (dev), and what is looked at once (test).

SQuAD, MedQuAD and NQ come with a dev split. SciFact's is a fifth of its training claims, Cranfield's are 75 of its
225 queries; both are drawn by the SHA-256 of the query's id, so they never change. `folder` gives a BEIR folder
with train, dev and test judgements: `python experiments/splits.py DATA OUT` writes those of both sets.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
from collections.abc import Collection, Iterable
from pathlib import Path

DIVIDED = ("scifact", "cranfield")
SCIFACT_SHARE = 5  # one of so many training claims is a dev claim
CRANFIELD_DEV = 75  # queries
HEADER = "query-id\tcorpus-id\tscore\n"  # of a BEIR folder's judgements


def order(name: str) -> int:
    """Where an id stands in the order of hashes."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest(), "big")


def scifact_dev(train: Iterable[str]) -> set[str]:
    """A fifth of the training claims."""
    return {name for name in train if order(name) % SCIFACT_SHARE == 0}


def cranfield_dev(queries: Iterable[str]) -> set[str]:
    """The 75 queries whose hashes are smallest."""
    return set(sorted(set(queries), key=order)[:CRANFIELD_DEV])


def folder(data: Path, name: str, out: Path) -> Path:
    """The folder of a set with a dev split: the data's own, or one written to `out`."""
    source, made = data / name, out / name
    if name not in DIVIDED:
        return source
    made.mkdir(parents=True, exist_ok=True)
    for file in ("corpus.jsonl.xz", "queries.jsonl.xz"):
        shutil.copyfile(source / file, made / file)
    for split, rows in _divided(source, name).items():
        (made / "qrels").mkdir(exist_ok=True)
        text = HEADER + "".join(row + "\n" for row in rows)
        (made / "qrels" / f"{split}.tsv").write_text(text, encoding="utf-8")
    return made


def _divided(source: Path, name: str) -> dict[str, list[str]]:
    """The judgements of each split."""
    test = _rows(source / "qrels" / "test.tsv")
    if name == "cranfield":
        dev = cranfield_dev(map(_query, test))
        return {"dev": _only(test, dev), "test": [row for row in test if _query(row) not in dev]}
    train = _rows(source / "qrels" / "train.tsv")
    dev = scifact_dev(map(_query, train))
    rest = [row for row in train if _query(row) not in dev]
    return {"train": rest, "dev": _only(train, dev), "test": test}


def _rows(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()[1:]


def _query(row: str) -> str:
    return row.split("\t")[0]


def _only(rows: Iterable[str], queries: Collection[str]) -> list[str]:
    return [row for row in rows if _query(row) in queries]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    asked = parser.parse_args()
    for name in DIVIDED:
        made = folder(asked.data, name, asked.out)
        for path in sorted((made / "qrels").iterdir()):
            rows = _rows(path)
            print(f"{name} {path.stem}: {len(set(map(_query, rows)))} queries, {len(rows)} judgements")


if __name__ == "__main__":
    main()
