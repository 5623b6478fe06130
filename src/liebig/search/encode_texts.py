"""The texts that `liebig encode` reads: of a collection, or of a file that liebig init reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Literal

from liebig.base.errors import DataError
from liebig.base.records import Document, Passage, Query
from liebig.collection import Collection, is_collection
from liebig.formats import detect
from liebig.formats.items import Options
from liebig.search.token_windows import TextItem
from liebig.text.layout import Role
from liebig.text.sentences import spans

What = Literal["passages", "queries", "documents", "sentences"]


KINDS: dict[What, type[Passage | Query | Document]] = {
    "passages": Passage, "queries": Query, "documents": Document, "sentences": Passage
}  # fmt: skip


def every(number: int) -> bool:
    return True


def read_items(
    path: Path, what: What, split: str | None = None, takes: Callable[[int], bool] = every
) -> Iterator[TextItem]:
    """The items of a collection, or of a file that liebig init reads; those not taken may be `OTHERS`."""
    if is_collection(path):
        items = _collection_items(Collection(path), what, split, takes if what != "sentences" else every)
    else:
        items = _file_items(path, what, split)
    return sentence_items(items) if what == "sentences" else items


def count_items(path: Path, what: What, split: str | None) -> int | None:
    """How many items there are, where that is known before they are read."""
    if not is_collection(path) or what == "sentences":
        return None
    collection = Collection(path)
    if what == "queries" and split is not None:
        return len(set(collection.query_ids(split)))
    return collection.count(what)


def sentence_items(items: Iterable[TextItem]) -> Iterator[TextItem]:
    """The sentences of passages, named passage#0, passage#1, …; a text without any is one."""
    for item in items:
        text = item.record if isinstance(item.record, str) else item.record.text
        for number, (begin, end) in enumerate(spans(text) or [(0, len(text))]):
            yield TextItem(name := f"{item.id}#{number}", Passage(name, text[begin:end]))


OTHERS = TextItem("", "")  # in place of a text that another process encodes


def _collection_items(
    collection: Collection, what: What, split: str | None, takes: Callable[[int], bool]
) -> Iterator[TextItem]:
    kind = "passages" if what == "sentences" else what
    if not collection.has(kind):
        raise DataError(f"the collection has no {kind}", file=collection.path, fix="encode what it has")
    if kind == "queries":
        return (TextItem(query.id, query) for query in collection.queries(split))
    return (
        OTHERS if record is None else TextItem(record.id, record) for record in collection.own(kind, takes)
    )


def _file_items(path: Path, what: What, split: str | None) -> Iterator[TextItem]:
    seen: Counter[type] = Counter()
    for file in detect(path):
        for item in file.items(Options(split=split)):
            seen[type(item.record)] += 1
            if isinstance(item.record, KINDS[what]):
                yield TextItem(item.record.id, item.record)
    if not seen[KINDS[what]]:
        others = [what for what, kind in KINDS.items() if seen[kind]]
        fix = f"it holds {' and '.join(others)}: --what {others[0]}" if others else "name another file"
        raise DataError(f"there are no {what} in it", file=path, fix=fix)


ROLES: dict[What, Role] = {
    "passages": "passage", "documents": "passage", "sentences": "passage", "queries": "query"
}  # fmt: skip
