"""New, changed and deleted documents, taken into both indexes of a retriever at once.

The sources are read again and cut as before; passages whose id and contents are the same stay where they are. What
changed becomes a segment of BM25 and a shard of vectors beside the old ones, by the same model, so that searches find
what they would find after a rebuild. The unit of the vectors' scores is measured again (`spread.py`). The next
generation stands beside the one in use until `retriever.json` names it. Cost: reading and cutting everything, encoding
what changed and the questions of the check; memory: 16 bytes per passage.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from liebig.base import own_sources, workspace
from liebig.base.config import Config, InputPath
from liebig.base.errors import RecipeError
from liebig.base.json_file import read_json
from liebig.base.pipeline import Stage
from liebig.base.progress import Whole, counted
from liebig.base.records import Document, Passage
from liebig.base.workspace import Folder
from liebig.builder.build import absolute
from liebig.builder.build_config import READING, BuildConfig, reading_options
from liebig.builder.check import read as read_check, read_spread
from liebig.builder.judge import START
from liebig.builder.push import push_again, pushed_source
from liebig.builder.reading import read_collection, unread_lines
from liebig.builder.runner import Builder, Long, Part, passage_encoding, sentence_encoding
from liebig.builder.spread import STAGE as SPREAD, SpreadConfig
from liebig.collection import Collection
from liebig.collection.lookup import hash64
from liebig.collection.writer import CollectionWriter
from liebig.formats.convert import Converter, config_file, user_converters
from liebig.formats.items import Item, Where
from liebig.formats.output import write_lines
from liebig.indexes import open_index
from liebig.indexes.base import Index
from liebig.search import retriever_folder as description
from liebig.search.encode_shards import SENTENCES
from liebig.search.retriever_folder import WORK, RetrieverDescription
from liebig.search.taken import STAGE as TAKEN, TakenConfig
from liebig.stages.bm25 import STAGE as BM25, BM25Config
from liebig.stages.encode import IN_CONTEXT, STAGE as ENCODE, EncodeConfig
from liebig.stages.index import STAGE as INDEX, IndexConfig
from liebig.vectors import Vectors, write_vectors
from liebig.vectors.quantise import Floats

GONE, STALE, STALE_SENTENCES, SUMMARY = "gone.txt", "stale.txt", "stale-sentences.txt", "changes.json"
MOVED = "moved"
CHANGED, DRIFT = (
    "changed",
    0.01,
)  # passages changed since the unit of scores was measured; share that measures it again
Kind = Literal["documents", "passages"]
Lines = NDArray[np.bool_]
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
        return int((~np.isin(self.ids, other.ids)).sum())

    def changed(self, other: Fingerprints) -> int:
        """How many ids have other contents there."""
        _, mine, theirs = np.intersect1d(self.ids, other.ids, return_indices=True)
        return int((self.contents[mine] != other.contents[theirs]).sum())

    def find(self, id: str) -> int | None:
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

    before: InputPath  # collection that the indexes were made of
    now: InputPath  # collection as it is now
    index: InputPath | None = None  # vectors of the older one, where it has any
    sentences: InputPath | None = None  # vectors of its sentences


def write_changes(config: ChangesConfig, folder: Folder) -> None:
    """Write what changed: passages to index, ids to delete from BM25 (gone.txt) and from the vectors (stale.txt), and
    old passages whose text is now another's, which has their vectors (moved)."""
    before, now = Collection(config.before), Collection(config.now)
    index = None if config.index is None else open_index(config.index)
    is_old, is_new = differing_lines(before, now, "passages")
    old, new = (
        Fingerprints.of(map(_passage, c.some("passages", m))) for c, m in ((before, is_old), (now, is_new))
    )
    counts, stale = Counts(), list[str]()
    in_pieces = index is not None and bool(index.about.get("pieces"))
    texts = {_text(passage): passage.id for passage in before.some("passages", is_old)}
    moved = set[str]()
    changed = list[str]()
    with CollectionWriter(folder.path) as writer:
        for passage in now.some("passages", is_new):
            content = old.find(passage.id)
            if content == _content(passage):
                continue
            writer.add(Item(passage, Where(str(now.path))))
            counts.passages += 1
            moved |= {texts[_text(passage)]} if _text(passage) in texts else set()
            if content is not None:
                changed.append(passage.id)
    # One vector under the passage's own id is replaced by itself; a passage in pieces may now have fewer.
    stale += [id for name in changed if in_pieces for id in _vector_ids(index, name)]
    gone = [passage.id for passage in before.some("passages", is_old) if new.find(passage.id) is None]
    counts.gone = len(gone)
    stale += [id for name in gone for id in _vector_ids(index, name)]
    write_lines(folder.path / GONE, gone)
    write_lines(folder.path / STALE, stale)
    if config.sentences is not None:
        there = open_index(config.sentences)
        write_lines(
            folder.path / STALE_SENTENCES,
            [id for name in (*gone, *changed) for id in _vector_ids(there, name)],
        )
    if moved and index is not None:
        (folder.path / MOVED).mkdir(exist_ok=True)
        with CollectionWriter(folder.path / MOVED) as writer:
            for passage in before.some_passages(moved):
                writer.add(Item(passage, Where(str(before.path))))
    if before.has("documents"):
        is_old, is_new = differing_lines(before, now, "documents")
        old, new = (
            Fingerprints.of(map(_document, c.some("documents", m)))
            for c, m in ((before, is_old), (now, is_new))
        )
    counts.new, counts.deleted, counts.changed = new - old, old - new, new.changed(old)
    folder.write_json(SUMMARY, asdict(counts))


def differing_lines(before: Collection, now: Collection, kind: Kind) -> tuple[Lines, Lines]:
    """Which lines of each collection the other one does not have: only these are parsed."""
    mine, theirs = before.line_hashes(kind), now.line_hashes(kind)
    return ~np.isin(mine, theirs), ~np.isin(theirs, mine)


def _passage(passage: Passage) -> tuple[int, int]:
    return hash64(passage.id), _content(passage)


def _content(passage: Passage) -> int:
    return hash64("\0".join((passage.title, passage.text, passage.doc, passage.language)))


def _text(passage: Passage) -> int:
    """A hash of what a model reads of a passage."""
    return hash64(f"{passage.title}\0{passage.text}")


def _document(document: Document) -> tuple[int, int]:
    sections = [text for s in document.sections for text in (s.heading, *s.paragraphs)]
    # A file that was touched says what it said before.
    metadata = [f"{name}={value}" for name, value in sorted(document.metadata.items()) if name != "modified"]
    return hash64(document.id), hash64("\0".join((document.title, *sections, "", *metadata)))


def _vector_ids(index: Index | None, id: str) -> list[str]:
    if index is None:
        return []
    if not index.about.get("pieces"):
        return [id]
    return [piece for piece, _ in index.vectors_of(id, pieces=True)]


class CompactConfig(Config):
    """Vectors of many updates to write anew, in few shards."""

    index: InputPath  # vectors


def compact(config: CompactConfig, folder: Folder) -> None:
    """Write the vectors that are not deleted, one shard at a time."""
    vectors = Vectors.open(config.index)
    write_vectors(folder.path, _shards(vectors), vectors.type, vectors.width, vectors.about)


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
    convert: tuple[Converter, ...] = (),
) -> Counts:
    """Bring a retriever's folder up to date with its sources, or with others; `reading` says how they are read now."""
    now = description.read(out)  # before the lock is written: it may be no retriever
    if now.engine is not None:
        counts = update(pushed_source(out, now), sources, say, strict, reading, convert)
        say(push_again(out, now))
        return counts
    with description.exclusive(out):
        before = description.read(out)
        if reading is not None:
            before = replace(before, more={**before.more, **reading_options(reading)})
        if failed := own_sources.note(map(absolute, sources)):
            say(f"{failed}; a server will open the original files only with --originals.")
        return _update(Builder(out, say), before, built_with(before, out, sources, strict, convert))


PHASES = {"read": "Read the documents and find what changed", "index": "Index the changes"}


def _update(builder: Builder, before: RetrieverDescription, config: BuildConfig) -> Counts:
    out, say = builder.out, builder.say
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
                "converted": sorted({one.suffix for one in (*user_converters(), *config.convert)}),
                "sources": list(config.sources),
                "languages": Collection(out / WORK / "read").languages,
            },
        )
        now = _with_spread(builder, before, now, counts)
    description.write(out, now)
    builder.opened.clear()  # on Windows nothing goes that is open
    description.remove_old(out, now)
    say(
        f"{counts.new:,} new, {counts.changed:,} changed and {counts.deleted:,} deleted documents: "
        f"{counted(counts.passages, 'passages')} indexed and {counts.gone:,} deleted. Generation {now.generation}."
    )
    for line in unread_lines(out):
        say(line)
    return counts


def built_with(
    before: RetrieverDescription,
    out: Path,
    sources: Sequence[str] = (),
    strict: bool = False,
    convert: tuple[Converter, ...] = (),
) -> BuildConfig:
    """The sources and the language a folder was built with, or other sources."""
    named = tuple(map(absolute, sources))
    given = named or tuple(before.more.get("sources", ()))
    if not given:
        raise RecipeError("the folder does not say what it was built from", file=out, fix="name the source")
    # A retriever of somebody else may name any folder of the reader.
    unknown = (
        () if named else (path for path in given if os.path.exists(path) and not own_sources.is_noted(path))
    )
    if path := next(iter(unknown), ""):
        raise RecipeError(
            f"{path!r} was not indexed by you on this machine, so it is not read because the folder says so",
            file=out,
            fix=f"name what to read: liebig update {out} SOURCE",
        )
    if before.model is None or before.bm25 is None:
        raise RecipeError(
            "only a folder with a BM25 index and a model can be updated", file=out, fix="run liebig build"
        )
    known = {name: before.more[name] for name in READING if name in before.more}
    lost = set(before.more.get("converted", ())) - {one.suffix for one in (*user_converters(), *convert)}
    if lost:
        raise RecipeError(
            f"was built with a converter for {', '.join(sorted(lost))}, and there is none now",
            file=out,
            fix=f"write it in {config_file()}, or give --convert to liebig update",
        )
    return BuildConfig(sources=given, strict=strict, convert=convert, **known)


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
    pieces = builder.index(str(before.index)).about.get("pieces")
    long: Long = "max" if pieces else "first"
    inner = before.sentences is not None and _in_context(builder, before.sentences)
    encoding = passage_encoding(changes, builder.out / str(before.model), long, sentences=inner)
    return _taking(builder, "taken", changes, encoding, before.index, before.sentences if inner else None)


def _taking(
    builder: Builder,
    name: str,
    changes: Path,
    encoding: EncodeConfig,
    index: str | None,
    sentences: str | None = None,
) -> EncodeConfig:
    """The encoding, with the vectors of texts that stand under another id now (a renamed file) taken over."""
    if not (changes / MOVED).is_dir():
        return encoding
    config = TakenConfig(
        source=changes / MOVED,
        model=encoding.model,
        index=builder.out / str(index),
        sentences=None if sentences is None else builder.out / sentences,
        what=encoding.what,
        long=encoding.long,
        most_pieces=encoding.most_pieces,
    )
    return encoding.model_copy(update={"reuse": (builder.work(name, TAKEN, config),)})


def _in_context(builder: Builder, sentences: str) -> bool:
    """Whether sentences were pooled from the states of their passages."""
    return bool(builder.index(sentences).about.get(IN_CONTEXT))


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
    encoding = _taking(builder, "taken-sentences", changes, encoding, before.sentences)
    return _extended(builder, "sentences", base, encoding, stale, counts)


def _with_spread(
    builder: Builder, before: RetrieverDescription, now: RetrieverDescription, counts: Counts
) -> RetrieverDescription:
    """With the unit of the vectors' scores measured again, if it was measured over all passages and enough of them
    have changed since then."""
    if now.index == before.index or now.norm != "spread" or now.checks is None:
        return now
    checks = builder.out / now.checks
    if read_check(checks)["choice"]["encoder"] != START:
        return now
    changed = int(before.more.get(CHANGED, 0)) + counts.passages + counts.gone
    if changed < DRIFT * Collection(builder.out / now.collection).count("passages"):
        return replace(now, more={**now.more, CHANGED: changed})
    index, model = builder.out / str(now.index), builder.out / str(now.query or now.model)
    config = SpreadConfig(questions=checks, index=index, model=model)
    spread = read_spread(builder.work("spread", SPREAD, config))
    return replace(now, spread=spread, more={**now.more, CHANGED: 0})


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
    if builder.index(base.name).fragmented:
        base = builder.work(f"compact-{part}", COMPACT, CompactConfig(index=base))
    config = IndexConfig(
        base=base,
        vectors=builder.work(f"changed-{'index' if inner else part}", ENCODE, encoding) / inner
        if counts.passages
        else None,
        delete=stale if has_stale else None,
    )
    return builder.part(part, INDEX, config).name
