"""What is encoded: passages, queries or documents of a collection, a token store, any file that can be read, stdin.

Everything becomes a stream of ids and records (or tokens, from a store); how a record becomes text is the
layout's. A file is recognised as `liebig init` would recognise it; lines of standard input are JSON with `id` and
`text`, or plain text numbered from 1.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal

import numpy as np
from numpy.typing import NDArray

from liebig.data.collection import Collection, is_collection
from liebig.data.formats import find
from liebig.data.items import Options
from liebig.data.store import SUMMARY, TokenStore
from liebig.errors import DataError
from liebig.records import Document, Passage, Query
from liebig.text.layout import Record

What = Literal["passages", "queries", "documents"]
KINDS: dict[What, type[Passage | Query | Document]] = {
    "passages": Passage, "queries": Query, "documents": Document
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Item:
    """An id with its record or text, or with the tokens of one."""

    id: str
    record: Record
    tokens: NDArray[np.int32] | None = None


@dataclass(frozen=True)
class Wish:
    """What of a source is wanted."""

    what: What = "passages"
    split: str | None = None


def items(path: Path, wish: Wish, tokenizer: str | None = None) -> Iterator[Item]:
    """The items of a file or folder; a token store must be of the tokenizer with this digest."""
    if (path / SUMMARY).is_file():
        store = TokenStore.open(path)
        if tokenizer is not None and store.tokenizer.digest != tokenizer:
            raise DataError(
                "the token store was made with another tokenizer than the model's",
                file=path,
                fix="prepare it again with the model's tokenizer, or encode the collection",
            )
        return store_items(store)
    if is_collection(path):
        return _collection(Collection(path), wish)
    return _any_file(path, wish)


def total(path: Path, wish: Wish) -> int | None:
    """How many items there are, where that is known before they are read."""
    if (path / SUMMARY).is_file():
        store = TokenStore.open(path, hashes=False)
        return len(store) if store.passages is None else len(store.passages)
    if not is_collection(path):
        return None
    collection = Collection(path)
    if wish.what == "queries" and wish.split is not None:
        return len(set(collection.query_ids(wish.split)))
    return collection.count(wish.what)


def _collection(collection: Collection, wish: Wish) -> Iterator[Item]:
    if not collection.has(wish.what):
        raise DataError(f"the collection has no {wish.what}", file=collection.path, fix="encode what it has")
    records: Iterable[Passage | Query | Document]
    if wish.what == "queries":
        records = collection.queries(wish.split)
    else:
        records = collection.passages() if wish.what == "passages" else collection.documents()
    return (Item(record.id, record) for record in records)


def _any_file(path: Path, wish: Wish) -> Iterator[Item]:
    seen: Counter[type] = Counter()
    for found in find(path):
        for item in found.items(Options(split=wish.split)):
            seen[type(item.record)] += 1
            if isinstance(item.record, KINDS[wish.what]):
                yield Item(item.record.id, item.record)
    if not seen[KINDS[wish.what]]:
        others = [what for what, kind in KINDS.items() if seen[kind]]
        fix = f"it holds {' and '.join(others)}: --what {others[0]}" if others else "name another file"
        raise DataError(f"there are no {wish.what} in it", file=path, fix=fix)


def lines(stream: IO[str], wish: Wish) -> Iterator[Item]:
    """Lines of standard input; none with a text is a mistake."""
    empty = True
    try:
        for number, line in enumerate(stream, 1):
            text = line.rstrip("\r\n")
            if text.strip():
                empty = False
                yield _json(text, number, wish) if text.startswith("{") else Item(str(number), text)
    except UnicodeDecodeError:
        raise DataError(
            "is not UTF-8", file="standard input", fix="convert it, for example with iconv"
        ) from None
    if empty:
        raise DataError(
            "there is nothing to encode", file="standard input", fix="name a source, or pipe texts in"
        )


def _json(line: str, number: int, wish: Wish) -> Item:
    try:
        row = json.loads(line)
        id, text, title = row["id"] if "id" in row else row["_id"], row["text"], row.get("title") or ""
    except (ValueError, KeyError):
        id = text = title = None
    if not (isinstance(id, str | int) and isinstance(text, str) and isinstance(title, str)):
        raise DataError(
            "is not JSON with an id and a text", file="standard input", line=number, fix="or give plain lines"
        )
    record = Query(str(id), text) if wish.what == "queries" else Passage(str(id), text, title)
    return Item(record.id, record)


def store_items(store: TokenStore) -> Iterator[Item]:
    """Passages of a token store, named document#0, document#1, …; whole documents where none were cut."""
    if store.passages is None:
        for number in range(len(store)):
            yield Item(store.ids[number], "", store.document(number).astype(np.int32))
        return
    begins, _ = store.token_ranges(np.arange(len(store)))
    owners = np.searchsorted(begins, store.passages[:, 0], side="right") - 1
    last, place = -1, 0
    for owner, (begin, end) in zip(owners.tolist(), store.passages):
        place = place + 1 if owner == last else 0
        last = owner
        yield Item(f"{store.ids[owner]}#{place}", "", store.tokens[begin:end].astype(np.int32))
