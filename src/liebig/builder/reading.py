"""Reading the sources of a build: documents and passages, what was not read, and the languages they are in.

What an earlier build has read by the same recipe is taken over where the files have not changed.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from liebig.base import workspace
from liebig.base.config import Config, inputs, recorded
from liebig.base.errors import WorkspaceError
from liebig.base.json_file import FileModel, read_json
from liebig.base.progress import counted
from liebig.builder.build_config import BuildConfig
from liebig.builder.runner import Builder
from liebig.formats.convert import user_converters
from liebig.formats.ledger import FILES, SKIPPED, summary_lines
from liebig.formats.output import json_line
from liebig.model.text_reader import text_reader
from liebig.search.retriever_folder import WORK
from liebig.stages.init import STAGE as INIT, InitConfig
from liebig.stages.passages import AUTO, COPIES, LENGTH, STAGE as PASSAGES, PassagesConfig
from liebig.text.languages import NAMES
from liebig.text.sentences import LANGUAGES

ROOM = 28  # tokens of the model's length left to titles and special tokens
TABLES_SHOWN = 5  # tables whose columns are printed
FILES_SHOWN = 20  # lines of the table of files that were not read
LANGUAGES_SHOWN = 8
# Share of other languages, among documents that have one, from which another encoder is recommended.
FOREIGN = 0.02


def earlier_run(folder: Path, config: Config, *same: str) -> tuple[Path, ...]:
    """The folder, if the same version of Liebig wrote it by the same recipe; but for the inputs named in `same`, what
    it was made of may have changed since."""
    try:
        manifest = workspace.verify(folder)
    except WorkspaceError:
        return ()
    recipe, versions = workspace.plain(recorded(config)), workspace.versions()
    if manifest.recipe != recipe or manifest.versions.get("liebig") != versions.get("liebig"):
        return ()
    paths = inputs(config)
    return (folder,) if all(manifest.inputs[name] == workspace.digest(paths[name]) for name in same) else ()


class ReadSummary(FileModel):
    """Of `summary.json`: what became of the files, and what the columns of tables were taken for."""

    files: dict[str, Any]
    tables: dict[str, str] = {}


def read_collection(builder: Builder, config: BuildConfig, model: Path) -> Path:
    """Documents and passages of the sources, and the list of files that could not be read."""
    reading = InitConfig(
        paths=config.sources,
        format=config.format,
        strict=config.strict,
        languages=config.language is None,
        exclude=config.exclude,
        include=config.include,
        ignore_files=config.ignore_files,
        convert=(*user_converters(), *config.convert),
    )
    before = earlier_run(builder.out / WORK / "read", reading)
    read = builder.work("read", INIT, reading.model_copy(update={"reuse": before}))
    summary = read_json(read / "summary.json", ReadSummary)
    (builder.out / FILES).write_text(json_line(summary.files), encoding="utf-8")
    skipped = builder.out / SKIPPED
    skipped.unlink(missing_ok=True)
    if (read / SKIPPED).is_file():
        shutil.copyfile(read / SKIPPED, skipped)
    for table, columns in list(summary.tables.items())[:TABLES_SHOWN]:
        builder.say(f"{table}: {columns}")
    cut = PassagesConfig(
        collection=read,
        tokenizer=model,
        length=passage_length(model),
        language=sentence_language(config.language),
        copies=True,
    )
    now = builder.before
    before = () if now is None else earlier_run(builder.out / now.collection, cut, "tokenizer")
    return builder.part("collection", PASSAGES, cut.model_copy(update={"reuse": before}))


def unread_lines(out: Path) -> list[str]:
    """What was not read, by suffix and reason; nothing where all files were read."""
    files = read_json(out / FILES, dict[str, Any])
    if not files["not_read"] and not files["cut"]:
        return []
    cut = f", of which {counted(len(files['cut']), 'files')} in part" if files["cut"] else ""
    first, *rows = summary_lines(files, FILES_SHOWN)
    return ["", f"{first}{cut}. {out / SKIPPED} lists each with its reason.", *rows]


def passage_length(model: Path) -> int:
    """Tokens of a passage that a model can read whole."""
    return max(8, min(LENGTH, text_reader(model).max_length - ROOM))


def sentence_language(language: str | None) -> str | None:
    """The language whose abbreviations are known, None of another one; AUTO where every document has its own."""
    return AUTO if language is None else language if language in LANGUAGES else None


def language_lines(counts: Mapping[str, int], bundled: bool) -> list[str]:
    """Which languages the documents are in, and what that means for the bundled encoder, as sentences."""
    known = {code: count for code, count in counts.items() if code}
    if not known:
        return []
    shown = [f"{NAMES[code].capitalize()} {count:,}" for code, count in list(known.items())[:LANGUAGES_SHOWN]]
    more = len(known) - len(shown)
    rest = [f"{more} more" if more else "", f"unknown {counts['']:,}" if counts.get("") else ""]
    lines = [f"Languages of the documents: {', '.join([*shown, *filter(None, rest)])}"]
    foreign = sum(known.values()) - known.get("en", 0)
    if bundled and foreign >= FOREIGN * sum(known.values()):
        are = "is" if foreign == 1 else "are"
        lines.append(
            f"{counted(foreign, 'documents')} {are} not in English, and the bundled encoder is made for English: "
            "words find them, its vectors hardly do. Name a multilingual encoder with --model, such as "
            "multilingual-e5 or bge-m3"
        )
    return lines


def count_copies(collection: Path) -> int:
    path = collection / COPIES
    return int(read_json(path, dict[str, int])["copies"]) if path.is_file() else 0
