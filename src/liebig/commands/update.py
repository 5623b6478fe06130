"""`liebig update`: documents that are new, changed or gone, taken into both indexes at once.

The sources are read again and cut as before; passages whose id and contents are the same stay where they are. What
changed becomes a segment of BM25 and a shard of vectors beside the old ones, by the same model, so searches find what
they would find after a rebuild. The next generation lies beside the one in use until `retriever.json` names it.
Cost: reading and cutting everything, encoding what changed.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from liebig.base.errors import RecipeError
from liebig.base.pipeline import Stage
from liebig.base.progress import say
from liebig.builder.stages import GONE, STALE, SUMMARY, Counts, is_due
from liebig.commands import STAGES
from liebig.commands.build import PIECES, STRICT, Wish, Works, absolute, read_collection
from liebig.indexes import open_index
from liebig.search import retriever_folder as description
from liebig.search.retriever_folder import Described


def update(
    table: Mapping[str, Stage],
    out: Path,
    sources: Sequence[str],
    say: Callable[[str], None],
    strict: bool = False,
) -> Counts:
    """Bring a retriever's folder up to date with its sources, or with others."""
    works = Works(table, out, say)
    if works.before is None:
        description.read(out)
        raise AssertionError("reading says what is missing")
    before, wish = works.before, replace(_wish(works.before, out, sources), strict=strict)
    assert before.model is not None, "a wish has a model"
    collection = read_collection(works, wish, out / before.model)
    changes = works.work("changes", {
        "before": str(out / before.collection), "now": str(collection), "index": str(out / str(before.index))
    })  # fmt: skip
    counts = Counts(**json.loads((changes / SUMMARY).read_text(encoding="utf-8")))
    if counts.nothing:
        say("Nothing has changed.")
        if collection.name != before.collection:
            shutil.rmtree(collection)
        return counts
    described = replace(
        before,
        generation=before.generation + 1,
        collection=collection.name,
        bm25=_bm25(works, before, changes, counts),
        index=_index(works, before, changes, counts),
        more={**before.more, "sources": list(wish.sources)},
    )
    description.write(out, described)
    description.remove_old(out, before, described)
    say(_sentence(counts, described))
    return counts


def _wish(before: Described, out: Path, sources: Sequence[str]) -> Wish:
    """How the folder was built."""
    given = tuple(map(absolute, sources)) or tuple(before.more.get("sources", ()))
    if not given:
        raise RecipeError("the folder does not say what it was built from", file=out, fix="name the source")
    if before.model is None or before.index is None or before.bm25 is None:
        raise RecipeError("only a folder with both indexes and a model is updated", file=out, fix="build it")
    return Wish(given, language=before.more.get("language", "en"))


def _bm25(works: Works, before: Described, changes: Path, counts: Counts) -> str:
    fields: dict[str, Any] = {"base": str(works.out / str(before.bm25))}
    fields |= {"collection": str(changes)} if counts.passages else {}
    fields |= {"delete": str(changes / GONE)} if counts.gone else {}
    return works.part("bm25", fields).name if len(fields) > 1 else str(before.bm25)


def _index(works: Works, before: Described, changes: Path, counts: Counts) -> str:
    base = works.out / str(before.index)
    opened = open_index(base, hashes=False)
    if is_due(opened):
        base = works.work("compact", {"index": str(base)})
    fields: dict[str, Any] = {"base": str(base)}
    if counts.passages:
        long = "max" if opened.about.get("pieces") else "first"
        model = str(works.out / str(before.model))
        recipe = {"source": str(changes), "model": model, "long": long, "most_pieces": PIECES}
        fields["vectors"] = str(works.work("changed-vectors", {"kind": "encode", **recipe}))
    if (changes / STALE).stat().st_size:
        fields["delete"] = str(changes / STALE)
    return works.part("index", fields).name if len(fields) > 1 else str(before.index)


def _sentence(counts: Counts, described: Described) -> str:
    documents = f"{counts.new:,} new, {counts.changed:,} changed and {counts.deleted:,} deleted documents"
    passages = f"{counts.passages:,} passages indexed and {counts.gone:,} taken out"
    return f"{documents}: {passages}. Generation {described.generation}."


def command(
    folder: Annotated[Path, typer.Argument(help="A retriever's folder.")],
    sources: Annotated[
        list[str] | None,
        typer.Argument(metavar="[SOURCE]...", help="What it is now built from [default: as before]."),
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help=STRICT)] = False,
) -> None:
    """Take new, changed and deleted documents into a retriever's indexes; a running server takes them over.

    Example:

        liebig update runs/articles
    """

    update(STAGES, folder, sources or [], say, strict)
