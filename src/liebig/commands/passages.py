"""A collection whose documents are cut into passages that fit the model, with the section each one comes from.

Passages are whole sentences of one section, up to a number of tokens; their title stands beside them. Passages that
the source brought along are kept as they are, and documents that have some are not cut. `sections.jsonl` says which
passages each headed section became. Cost: one pass over the documents, a tokenisation, and the ids of documents
that came with passages in memory.
"""

from __future__ import annotations

from liebig.base.errors import DataError
from liebig.base.pipeline import Stage
from liebig.base.progress import track
from liebig.base.workspace import Folder
from liebig.builder.cutting import SECTIONS, PassagesConfig, _keep_generated, _keep_passages, _write, cut
from liebig.collection.collection import Collection
from liebig.collection.writer import CollectionWriter
from liebig.formats.items import Item, Where
from liebig.text.passages import by_tokens
from liebig.text.tokenizer import Tokenizer


def run(config: PassagesConfig, folder: Folder) -> None:
    """Write the collection."""
    source = Collection(config.collection)
    cutter = by_tokens(Tokenizer.from_folder(config.tokenizer), config.length, language=config.language)
    for name in ("documents", "passages", "queries"):
        (folder.path / f"{name}.jsonl").unlink(missing_ok=True)
    where = Where(str(source.path))
    with (
        CollectionWriter(folder.path) as writer,
        (folder.path / SECTIONS).open("w", encoding="utf-8") as sections,
    ):
        covered = _keep_passages(source, writer, where)
        for document in track(source.documents(), "passages", unit="documents"):
            writer.add(Item(document, where))
            if document.id not in covered:
                for line in _write(cut(document, cutter), writer, where):
                    sections.write(line + "\n")
        _keep_generated(source, writer, where)
    if not writer.counts["passages"]:
        raise DataError("there is no text in it", file=source.path, fix="look at it with liebig init")


STAGE = Stage(
    "passages",
    PassagesConfig,
    run,
    "liebig passages runs/collection --tokenizer runs/tokenizer --length 144 --out runs/passages",
    positional="collection",
)
