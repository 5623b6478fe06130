"""New, changed and deleted documents, taken into both indexes of a retriever at once.

The sources are read again and cut as before; passages whose id and contents are the same stay where they are. What
changed becomes a segment of BM25 and a shard of vectors beside the old ones, by the same model, so that searches find
what they would find after a rebuild. The unit of the vectors' scores is measured again (`spread.py`). The next
generation stands beside the one in use until `retriever.json` names it. Cost: reading and cutting everything, encoding
what changed and the questions of the check; memory: 16 bytes per passage.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from liebig.base import workspace
from liebig.base.config import Config, InputPath
from liebig.base.errors import RecipeError
from liebig.base.json_file import read_json
from liebig.base.pipeline import Stage
from liebig.base.progress import Whole, counted
from liebig.base.records import Passage
from liebig.base.workspace import Folder
from liebig.builder.build import absolute, read_collection, unread_lines
from liebig.builder.build_config import READING, BuildConfig, reading_options
from liebig.builder.check import read as read_check, read_spread
from liebig.builder.judge import START
from liebig.builder.runner import Builder, Long, Part, passage_encoding, sentence_encoding
from liebig.builder.spread import STAGE as SPREAD, SpreadConfig
from liebig.collection import Collection
from liebig.collection.lookup import hash64
from liebig.collection.writer import CollectionWriter
from liebig.formats.items import Item, Where
from liebig.formats.output import write_lines
from liebig.indexes import open_index
from liebig.indexes.base import Index
from liebig.search import retriever_folder as description
from liebig.search.retriever_folder import WORK, RetrieverDescription
from liebig.stages.bm25 import STAGE as BM25, BM25Config
from liebig.stages.encode import IN_CONTEXT, SENTENCES, STAGE as ENCODE, EncodeConfig
from liebig.stages.index import STAGE as INDEX, IndexConfig
from liebig.vectors import SHARDS, Vectors, write_shard, write_summary
from liebig.vectors.quantise import Floats

GONE, STALE, STALE_SENTENCES, SUMMARY = "gone.txt", "stale.txt", "stale-sentences.txt", "changes.json"
SHARD_SIZE = 65_536  # vectors of a shard


@dataclass(frozen=True)
class Fingerprints:
    """Fingerprints of a collection's passages: sorted hashes of ids, beside hashes of contents."""

    ids: NDArray[np.uint64]
    contents: NDArray[np.uint64]

    @classmethod
    def of(cls, pairs: Iterable[tuple[int, int]]) -> Fingerprints:
        """From hashes of ids and contents in any order."""
        rows = np.fromiter(pairs, np.dtype((np.uint64, 2))).reshape(-1, 2)
        order = np.argsort(rows[:, 0], kind="stable")
        return cls(rows[order, 0], rows[order, 1])

    def __sub__(self, other: Fingerprints) -> int:
        """How many ids the other does not have."""
        return int((~np.isin(self.ids, other.ids)).sum())

    def changed(self, other: Fingerprints) -> int:
        """How many ids have other contents there."""
        _, mine, theirs = np.intersect1d(self.ids, other.ids, return_indices=True)
        return int((self.contents[mine] != other.contents[theirs]).sum())

    def find(self, id: str) -> int | None:
        """The hash of the content that an id has."""
        key = np.uint64(hash64(id))
        place = int(np.searchsorted(self.ids, key))
        there = place < len(self.ids) and self.ids[place] == key
        return int(self.contents[place]) if there else None


@dataclass
class Counts:
    """Documents (passages where there are no documents) of each kind, and passages to index and to delete."""

    new: int = 0
    changed: int = 0
    deleted: int = 0
    passages: int = 0
    gone: int = 0

    @property
    def nothing(self) -> bool:
        """Whether both generations are the same."""
        return not (self.passages or self.gone or self.new or self.changed or self.deleted)


class ChangesConfig(Config):
    """What is new, changed and gone between two generations of a collection."""

    before: InputPath = Field(description="The collection that the indexes were made of.")
    now: InputPath = Field(description="The collection as it is now.")
    index: InputPath | None = Field(None, description="The vectors of the older one, where it has any.")
    sentences: InputPath | None = Field(None, description="The vectors of its sentences.")


def write_changes(config: ChangesConfig, folder: Folder) -> None:
    """Write what changed: passages to index, ids to delete from BM25 (gone.txt) and from the vectors (stale.txt)."""
    before, now = Collection(config.before), Collection(config.now)
    index = None if config.index is None else open_index(config.index)
    old, new = Fingerprints.of(_passages(before)), Fingerprints.of(_passages(now))
    counts, stale = Counts(), list[str]()
    in_pieces = index is not None and bool(index.about.get("pieces"))
    with CollectionWriter(folder.path) as writer:
        for passage in now.passages():
            content = old.find(passage.id)
            if content == _content(passage):
                continue
            writer.add(Item(passage, Where(str(now.path))))
            counts.passages += 1
            # One vector under the passage's own id is replaced by itself; a passage in pieces may now have fewer.
            stale += _vector_ids(index, passage.id) if content is not None and in_pieces else []
    gone = [passage.id for passage in before.passages() if new.find(passage.id) is None]
    counts.gone = len(gone)
    stale += [id for name in gone for id in _vector_ids(index, name)]
    write_lines(folder.path / GONE, gone)
    write_lines(folder.path / STALE, stale)
    if config.sentences is not None:
        there = open_index(config.sentences)
        changed = (p.id for p in now.passages() if old.find(p.id) not in (None, _content(p)))
        write_lines(
            folder.path / STALE_SENTENCES,
            [id for name in (*gone, *changed) for id in _vector_ids(there, name)],
        )
    old, new = Fingerprints.of(_documents(before)), Fingerprints.of(_documents(now))
    counts.new, counts.deleted, counts.changed = new - old, old - new, new.changed(old)
    folder.write_json(SUMMARY, asdict(counts))


def _passages(collection: Collection) -> Iterator[tuple[int, int]]:
    return ((hash64(p.id), _content(p)) for p in collection.passages())


def _content(passage: Passage) -> int:
    return hash64("\0".join((passage.title, passage.text, passage.doc, passage.language)))


def _vector_ids(index: Index | None, id: str) -> list[str]:
    """The ids of the vectors of a passage."""
    if index is None:
        return []
    if not index.about.get("pieces"):
        return [id]
    ids: list[str] = []
    while index.find(piece := f"{id}#{len(ids)}") is not None:
        ids.append(piece)
    return ids


def _documents(collection: Collection) -> Iterator[tuple[int, int]]:
    """Hashes of documents; of passages, where a collection has no documents."""
    if not collection.has("documents"):
        yield from _passages(collection)
        return
    for document in collection.documents():
        sections = [text for s in document.sections for text in (s.heading, *s.paragraphs)]
        # A file that was touched says what it said before.
        metadata = [
            f"{name}={value}" for name, value in sorted(document.metadata.items()) if name != "modified"
        ]
        yield hash64(document.id), hash64("\0".join((document.title, *sections, "", *metadata)))


class CompactConfig(Config):
    """Vectors of many updates to write anew, in few shards."""

    index: InputPath = Field(description="The vectors.")


def compact(config: CompactConfig, folder: Folder) -> None:
    """Write the vectors that are not deleted, one shard at a time."""
    vectors = Vectors.open(config.index)
    names: list[str] = []
    count = 0
    for ids, rows in _shards(vectors):
        names.append(f"{len(names):05d}")
        place = folder.path / SHARDS / names[-1]
        shutil.rmtree(place, ignore_errors=True)  # an interrupted run may have left one
        write_shard(place, ids, rows, vectors.type)
        count += len(ids)
    write_summary(folder.path, vectors.type, vectors.width, names, vectors.about, count)


def _shards(vectors: Vectors) -> Iterator[tuple[list[str], Floats]]:
    """Ids and vectors, as many together as make a shard."""
    names: list[str] = []
    parts: list[Floats] = []
    for ids, rows in vectors.chunks(SHARD_SIZE):
        names += ids
        parts.append(rows)
        if len(names) >= SHARD_SIZE:
            yield names, np.concatenate(parts)
            names, parts = [], []
    if names:
        yield names, np.concatenate(parts)


CHANGES = Stage("changes", ChangesConfig, write_changes, part_of="update")
COMPACT = Stage("compact", CompactConfig, compact, part_of="update")


def update(
    out: Path,
    sources: Sequence[str],
    say: Callable[[str], None],
    strict: bool = False,
    reading: BuildConfig | None = None,
) -> Counts:
    """Bring a retriever's folder up to date with its sources, or with others; `reading` says how they are read now."""
    description.read(out)  # before the lock is written: it may be no retriever
    with description.exclusive(out):
        before = description.read(out)
        if reading is not None:
            before = replace(before, more={**before.more, **reading_options(reading)})
        return _update(Builder(out, say), before, sources, strict)


PHASES = {"read": "Read the documents and find what changed", "index": "Index the changes"}


def _update(builder: Builder, before: RetrieverDescription, sources: Sequence[str], strict: bool) -> Counts:
    out, say = builder.out, builder.say
    config = built_with(before, out, sources, strict)
    with Whole(PHASES, say) as whole:
        builder.whole = whole
        whole.begin("read")
        # Passages were cut for the model that was trained, or is: of two it is the one of questions.
        collection = read_collection(builder, config, out / str(before.query or before.model))
        changes = builder.work(
            "changes",
            CHANGES,
            ChangesConfig(
                before=out / before.collection,
                now=collection,
                index=None if before.index is None else out / before.index,
                sentences=None if before.sentences is None else out / before.sentences,
            ),
        )
        counts = read_json(changes / SUMMARY, Counts)
        if counts.nothing:
            whole.drop(*PHASES)  # the sentence below says all of it
            for line in ("Nothing has changed.", *unread_lines(out)):
                say(line)
            if collection.name != before.collection:
                workspace.discard(collection)
            return counts
        whole.begin("index")
        now = replace(
            before,
            generation=before.generation + 1,
            collection=collection.name,
            bm25=_update_bm25(builder, before, changes, counts),
            index=_update_index(builder, before, changes, counts),
            sentences=_update_sentences(builder, before, changes, counts),
            more={
                **before.more,
                "sources": list(config.sources),
                "languages": Collection(out / WORK / "read").languages,
            },
        )
        now = replace(now, spread=_update_spread(builder, before, now))
    description.write(out, now)
    description.remove_old(out, now)
    say(
        f"{counts.new:,} new, {counts.changed:,} changed and {counts.deleted:,} deleted documents: "
        f"{counted(counts.passages, 'passages')} indexed and {counts.gone:,} deleted. Generation {now.generation}."
    )
    for line in unread_lines(out):
        say(line)
    return counts


def built_with(
    before: RetrieverDescription, out: Path, sources: Sequence[str] = (), strict: bool = False
) -> BuildConfig:
    """The sources and the language a folder was built with, or other sources."""
    given = tuple(map(absolute, sources)) or tuple(before.more.get("sources", ()))
    if not given:
        raise RecipeError("the folder does not say what it was built from", file=out, fix="name the source")
    if before.model is None or before.bm25 is None:
        raise RecipeError(
            "only a folder with a BM25 index and a model can be updated", file=out, fix="run liebig build"
        )
    known = {name: before.more[name] for name in READING if name in before.more}
    return BuildConfig(sources=given, strict=strict, **known)


def _update_bm25(builder: Builder, before: RetrieverDescription, changes: Path, counts: Counts) -> str:
    if not (counts.passages or counts.gone):
        return str(before.bm25)
    config = BM25Config(
        base=builder.out / str(before.bm25),
        collection=changes if counts.passages else None,
        delete=changes / GONE if counts.gone else None,
    )
    return builder.part("bm25", BM25, config).name


def _update_index(
    builder: Builder, before: RetrieverDescription, changes: Path, counts: Counts
) -> str | None:
    if before.index is None:
        return None
    base = builder.out / before.index
    return _extended(
        builder, "index", base, _passage_encoding(builder, before, changes), changes / STALE, counts
    )


def _passage_encoding(builder: Builder, before: RetrieverDescription, changes: Path) -> EncodeConfig:
    """As the folder was built: in pieces or not, with sentences or not."""
    pieces = open_index(builder.out / str(before.index), hashes=False).about.get("pieces")
    long: Long = "max" if pieces else "first"
    inner = before.sentences is not None and _in_context(builder, before.sentences)
    return passage_encoding(changes, builder.out / str(before.model), long, sentences=inner)


def _in_context(builder: Builder, sentences: str) -> bool:
    """Whether sentences were pooled from the states of their passages."""
    return bool(open_index(builder.out / sentences, hashes=False).about.get(IN_CONTEXT))


def _update_sentences(
    builder: Builder, before: RetrieverDescription, changes: Path, counts: Counts
) -> str | None:
    if before.sentences is None:
        return None
    base, stale = builder.out / before.sentences, changes / STALE_SENTENCES
    if _in_context(builder, before.sentences):  # they come with the passages
        encoding = _passage_encoding(builder, before, changes)
        return _extended(builder, "sentences", base, encoding, stale, counts, inner=SENTENCES)
    encoding = sentence_encoding(changes, builder.out / str(before.model))
    return _extended(builder, "sentences", base, encoding, stale, counts)


def _update_spread(builder: Builder, before: RetrieverDescription, now: RetrieverDescription) -> float:
    """The unit of the vectors' scores, measured again where they changed, if it was measured over all passages."""
    if now.index == before.index or now.norm != "spread" or now.checks is None:
        return before.spread
    checks = builder.out / now.checks
    if read_check(checks)["choice"]["encoder"] != START:
        return before.spread
    index, model = builder.out / str(now.index), builder.out / str(now.query or now.model)
    config = SpreadConfig(questions=checks, index=index, model=model)
    return read_spread(builder.work("spread", SPREAD, config))


def _extended(
    builder: Builder,
    part: Part,
    base: Path,
    encoding: EncodeConfig,
    stale: Path,
    counts: Counts,
    *,
    inner: str = "",
) -> str:
    """The name of an index with what changed: new vectors (those in the folder `inner`), without the stale ones."""
    has_stale = stale.stat().st_size > 0
    if not (counts.passages or has_stale):
        return base.name
    if open_index(base, hashes=False).fragmented:
        base = builder.work(f"compact-{part}", COMPACT, CompactConfig(index=base))
    config = IndexConfig(
        base=base,
        vectors=builder.work(f"changed-{'index' if inner else part}", ENCODE, encoding) / inner
        if counts.passages
        else None,
        delete=stale if has_stale else None,
    )
    return builder.part(part, INDEX, config).name
