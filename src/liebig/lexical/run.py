"""`liebig bm25`: reads a collection (and an older index), writes a BM25 index."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from liebig.data.collection import Collection
from liebig.data.lines import text_lines
from liebig.data.sources import DiskSource
from liebig.errors import DataError, RecipeError
from liebig.lexical.analysis import language_name
from liebig.lexical.bm25 import Settings
from liebig.lexical.build import Expanded, plain
from liebig.lexical.config import BM25Config
from liebig.lexical.expand import Generated
from liebig.lexical.update import settings_of, write_index
from liebig.progress import Progress, track
from liebig.workspace import Folder


def run(config: BM25Config, folder: Folder) -> None:
    """Write the index."""
    settings = _settings(config) if config.base is None else _kept(config, settings_of(config.base))
    generated = Generated(config.queries) if config.queries is not None else None
    unknown = write_index(
        folder,
        _passages(config.collection, generated),
        settings,
        texts=config.texts,
        words=config.segment_words,
        base=config.base,
        delete=read_ids(config.delete) if config.delete is not None else (),
        compact=config.compact,
    )
    _report(unknown, generated)


def _settings(config: BM25Config) -> Settings:
    return Settings(
        language=language_name(config.language),
        stop_words=config.stop_words,
        title_weight=config.title_weight,
        body_weight=config.body_weight,
        query_weight=config.query_weight,
        k1=config.k1,
        b=config.b,
    )


def _kept(config: BM25Config, settings: Settings) -> Settings:
    """The settings of an index that is added to; a recipe that names others is refused."""
    for name, value in asdict(_settings(config)).items():
        kept = getattr(settings, name)
        if name in config.model_fields_set and value != kept:
            raise RecipeError(
                f"{name} = {value}: base was indexed with {kept}, which is kept",
                file=config.base,
                fix=f"leave it out; {name} is set in liebig retrieve"
                if name in ("k1", "b")
                else "index anew",
            )
    return settings


def _passages(collection: Path | None, generated: Generated | None) -> Iterable[Expanded]:
    if collection is None:
        return ()
    found = Collection(collection)
    if not found.has("passages"):
        raise DataError(
            "the collection has no passages to index",
            file=collection,
            fix=f"cut its documents first: liebig convert {collection} --to passages --out PASSAGES, then liebig init",
        )
    passages = track(found.passages(), "BM25", unit="passages")
    return plain(passages) if generated is None else generated.expand(passages)


def read_ids(path: Path) -> list[str]:
    """One id a line."""
    return [line for _, line in text_lines(DiskSource(path))]


def _report(unknown: list[str], generated: Generated | None) -> None:
    say = Progress("BM25").say
    if unknown:
        say(f"{len(unknown):,} ids to delete are not in the index, the first is {unknown[0]!r}")
    if generated is not None and generated.used < len(generated):
        say(f"{len(generated) - generated.used:,} lines of generated queries belong to no passage indexed")
