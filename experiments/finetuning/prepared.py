"""Sets as runs need them: token ids and numbers, without a text, in one small folder each.

`save` writes what `sets.py` read: `NAME/arrays.npz` (token ids without special tokens, cut to the longest length in
use, in two bytes each) and `NAME/facts.json`. `load` is a second for 50,000 passages; nothing is tokenised, searched or
compiled after it. Questions and passages are numbered from 0 here.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from liebig.base import rng
from liebig.ragged import Ragged, offsets_of
from liebig.text.layout import RoleLayout
from liebig.text.tokenizer import Tokenizer

Longs = NDArray[np.int64]
QUERY, PASSAGE, PAIR = 32, 144, 192
"""The most tokens of a question, a passage and both together, special ones included."""
DEV_PASSAGES = 5_000
"""Passages beside the judged ones that dev is searched in."""


@dataclass(frozen=True)
class Asked:
    """Questions without special tokens, what is relevant to each, and BM25's best where they are for training."""

    bare: Ragged
    relevant: Ragged
    found: Longs
    scores: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.bare)

    def take(self, places: Longs) -> Asked:
        """Some of the questions."""
        return Asked(
            self.bare.take(places),
            self.relevant.take(places),
            self.found[places],
            self.scores[places],
        )


@dataclass(frozen=True)
class Prepared:
    """Passages without special tokens, numbers equal for equal texts, the splits, and where dev is searched."""

    name: str
    bare: Ragged
    content: Longs
    train: Asked
    dev: Asked
    tests: Mapping[str, Asked]
    dev_passages: Longs
    tokenizer: str

    def limited(self, n: int, seed: int = 0) -> Prepared:
        """The same with fewer training questions, drawn by seed; a smaller draw is part of a larger one."""
        return replace(self, train=self.train.take(drawn(len(self.train), n, seed)))


def drawn(count: int, n: int, seed: int) -> Longs:
    """n of `count` places, in order."""
    order = np.argsort(rng.uniform(rng.key(seed, 7), np.arange(count)), kind="stable")
    return np.sort(order[:n])


def dev_places(judged: set[int], n: int) -> Longs:
    """What is judged on dev, and some other passages."""
    others = np.argsort(rng.uniform(rng.key(5), np.arange(n)), kind="stable")[:DEV_PASSAGES]
    return np.array(sorted(judged | set(others.tolist())), np.int64)


def wrapped(bare: Ragged, tokenizer: Tokenizer, length: int) -> Ragged:
    """Texts cut to `length` with their special tokens, as `RoleLayout.ids` gives them."""
    return bare.wrap(tokenizer.template.before, tokenizer.template.after, length)


def digest(tokenizer: Tokenizer) -> str:
    """What a set was tokenised with: the vocabulary, which every version of the library spells alike."""
    words = sorted(tokenizer.core.get_vocab().items())
    return hashlib.sha256(json.dumps(words).encode()).hexdigest()[:16]


def save(folder: Path, found: Prepared, facts: Mapping[str, object]) -> None:
    """Write the folder; facts last, so that they say that all is there."""
    assert found.bare.values.max(initial=0) < 2**16, "token ids take two bytes"
    arrays = _texts("passages", found.bare) | {
        "content": found.content.astype(np.int32),
        "dev_passages": found.dev_passages.astype(np.int32),
    }
    for name, split in splits(found).items():
        arrays |= _texts(name, split.bare)
        arrays[f"{name}/relevant"] = split.relevant.values.astype(np.int32)
        arrays[f"{name}/relevant_counts"] = split.relevant.lengths.astype(np.int32)
    arrays |= {"train/found": found.train.found.astype(np.int32), "train/scores": found.train.scores}
    folder.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(folder / "arrays.npz", **arrays)
    said = {"name": found.name, "tests": list(found.tests), "tokenizer": found.tokenizer, **facts}
    (folder / "facts.json").write_text(json.dumps(said, indent=1) + "\n")


def splits(found: Prepared) -> dict[str, Asked]:
    return {"train": found.train, "dev": found.dev} | {f"test-{n}": s for n, s in found.tests.items()}


def load(folder: Path) -> Prepared:
    """What `save` wrote."""
    facts = json.loads((folder / "facts.json").read_text())
    with np.load(folder / "arrays.npz") as file:
        arrays = {name: file[name] for name in file.files}

    def split(name: str) -> Asked:
        relevant = Ragged(
            arrays[f"{name}/relevant"].astype(np.int64), offsets_of(arrays[f"{name}/relevant_counts"])
        )
        none = np.zeros((len(relevant), 0))
        return Asked(
            _read(arrays, name),
            relevant,
            arrays.get(f"{name}/found", none).astype(np.int64),
            arrays.get(f"{name}/scores", none).astype(np.float32),
        )

    return Prepared(
        facts["name"],
        _read(arrays, "passages"),
        arrays["content"].astype(np.int64),
        split("train"),
        split("dev"),
        {name: split(f"test-{name}") for name in facts["tests"]},
        arrays["dev_passages"].astype(np.int64),
        facts["tokenizer"],
    )


def _texts(name: str, texts: Ragged) -> dict[str, NDArray[np.uint16]]:
    lengths = texts.lengths.astype(np.uint16)
    return {f"{name}/tokens": texts.values.astype(np.uint16), f"{name}/lengths": lengths}


def _read(arrays: Mapping[str, NDArray[np.uint16]], name: str) -> Ragged:
    return Ragged(arrays[f"{name}/tokens"].astype(np.int32), offsets_of(arrays[f"{name}/lengths"]))


def tokenised(texts: Sequence[str], tokenizer: Tokenizer, length: int) -> Ragged:
    """Texts without special tokens, cut to `length`."""
    return RoleLayout(tokenizer, length, bare=True).all_ids(texts)
