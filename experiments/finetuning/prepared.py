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
from liebig.methods.labelled import Ragged, Texts
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

    bare: Texts
    relevant: Ragged
    found: Longs
    scores: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.bare)

    def take(self, places: Longs) -> Asked:
        """Some of the questions."""
        return Asked(
            some(self.bare, places),
            Ragged.of([self.relevant[i].tolist() for i in places]),
            self.found[places],
            self.scores[places],
        )


@dataclass(frozen=True)
class Prepared:
    """Passages without special tokens, numbers equal for equal texts, the splits, and where dev is searched."""

    name: str
    bare: Texts
    content: Longs
    train: Asked
    dev: Asked
    tests: Mapping[str, Asked]
    dev_passages: Longs
    tokenizer: str

    def limited(self, n: int, seed: int = 0) -> Prepared:
        """The same with so many training questions, drawn by seed; a smaller draw lies in a larger one."""
        return replace(self, train=self.train.take(drawn(len(self.train), n, seed)))


def drawn(count: int, n: int, seed: int) -> Longs:
    """n of `count` places, in order."""
    order = np.argsort(rng.uniform(rng.key(seed, 7), np.arange(count)), kind="stable")
    return np.sort(order[:n])


def dev_places(judged: set[int], n: int) -> Longs:
    """What is judged on dev, and some other passages."""
    others = np.argsort(rng.uniform(rng.key(5), np.arange(n)), kind="stable")[:DEV_PASSAGES]
    return np.array(sorted(judged | set(others.tolist())), np.int64)


def some(texts: Texts, places: Longs) -> Texts:
    """Some of the texts, in the order given."""
    if not len(places):
        return Texts(texts.tokens[:0], np.zeros(1, np.int64))
    rows = [texts.tokens[texts.offsets[i] : texts.offsets[i + 1]] for i in places]
    return Texts(np.concatenate(rows), offsets_of(np.array([len(row) for row in rows])))


def offsets_of(lengths: NDArray[np.integer]) -> Longs:
    return np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))


def wrapped(bare: Texts, tokenizer: Tokenizer, length: int) -> Texts:
    """Texts cut to `length` with their special tokens: what `RoleLayout.lists` gives, without a loop."""
    before, after = tokenizer.template.before, tokenizer.template.after
    kept = np.minimum(np.diff(bare.offsets), length - len(before) - len(after))
    offsets = offsets_of(kept + len(before) + len(after))
    place = np.arange(kept.sum()) - np.repeat(np.cumsum(kept) - kept, kept)
    tokens = np.empty(offsets[-1], np.int32)
    tokens[np.repeat(offsets[:-1] + len(before), kept) + place] = bare.tokens[
        np.repeat(bare.offsets[:-1], kept) + place
    ]
    for i, token in enumerate(before):
        tokens[offsets[:-1] + i] = token
    for i, token in enumerate(reversed(after), 1):
        tokens[offsets[1:] - i] = token
    return Texts(tokens, offsets)


def digest(tokenizer: Tokenizer) -> str:
    """What a set was tokenised with: the vocabulary, which every version of the library spells alike."""
    words = sorted(tokenizer.core.get_vocab().items())
    return hashlib.sha256(json.dumps(words).encode()).hexdigest()[:16]


def save(folder: Path, found: Prepared, facts: Mapping[str, object]) -> None:
    """Write the folder; facts last, so that they say that all is there."""
    assert found.bare.tokens.max(initial=0) < 2**16, "token ids take two bytes"
    arrays = _texts("passages", found.bare) | {
        "content": found.content.astype(np.int32),
        "dev_passages": found.dev_passages.astype(np.int32),
    }
    for name, split in splits(found).items():
        arrays |= _texts(name, split.bare)
        arrays[f"{name}/relevant"] = split.relevant.values.astype(np.int32)
        arrays[f"{name}/relevant_counts"] = np.diff(split.relevant.bounds).astype(np.int32)
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


def _texts(name: str, texts: Texts) -> dict[str, NDArray[np.uint16]]:
    lengths = np.diff(texts.offsets).astype(np.uint16)
    return {f"{name}/tokens": texts.tokens.astype(np.uint16), f"{name}/lengths": lengths}


def _read(arrays: Mapping[str, NDArray[np.uint16]], name: str) -> Texts:
    return Texts(arrays[f"{name}/tokens"].astype(np.int32), offsets_of(arrays[f"{name}/lengths"]))


def tokenised(texts: Sequence[str], tokenizer: Tokenizer, length: int) -> Texts:
    """Texts without special tokens, cut to `length`."""
    return Texts.of(texts, RoleLayout(tokenizer, length, bare=True))
