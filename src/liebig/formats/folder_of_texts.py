"""A folder of files of any kind: each is a document named after its path, or several, named after their parts too.

Which kinds are read, and by what, is the table of parsers.py. Files are read one at a time, in the order of their
names. One that is binary or empty is listed; one that cannot be read too, if the options allow it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace

from liebig.base.errors import DataError
from liebig.base.records import Document
from liebig.formats.base import Format
from liebig.formats.convert import convert
from liebig.formats.documents import unless_read_before
from liebig.formats.encoding import UTF_8
from liebig.formats.inputs import InputSource
from liebig.formats.items import Item, Options, Where, as_id
from liebig.formats.line_text import CUT
from liebig.formats.outline import Article
from liebig.formats.parsers import BY_SUFFIX, KINDS, FileKind, articles, kind_of, why_not
from liebig.formats.preview import Preview
from liebig.formats.rows import check_text

HALF = re.compile("[\ud800-\udfff]")
PLAIN = frozenset(KINDS["text"].suffixes)
# What Windows does not take in the name of a file: these characters, a dot or space at its end, names of devices.
# Suffixes of data: such a file is a document only in a folder, and where no format of data fits it.
SUFFIXES = frozenset(BY_SUFFIX) - {".csv", ".tsv", ".json", ".jsonl", ".ndjson"}


def is_text_file(preview: Preview) -> bool:
    """A file with a suffix of the table of documents, or a .txt with blank lines in it or not in UTF-8."""
    if preview.source.is_folder:
        return False  # decided by what else is in the folder
    if preview.source.suffix == ".json" and not preview.source.subpath:  # named: no data and no table
        return preview.container in ("json object", "json lines")
    if preview.source.suffix in PLAIN:
        body = "\n".join(preview.raw_lines).strip()
        return "\n\n" in body or not preview.is_utf8
    return preview.source.suffix in SUFFIXES


def read_texts(source: InputSource, options: Options) -> Iterator[Item]:
    """The documents of a folder, or of one file; symlinks come last, as copies of what they point to."""
    taken, links = set[str](), list[tuple[str, InputSource]]()
    for path, file in source.walk():
        if file.is_folder:
            continue
        if file.is_link:
            links.append((path, file))
        else:
            yield from _read_file(path or file.plain, file, options, taken)
    for path, file in links:
        yield from _read_file(path, file, options, taken)


def _read_file(name: str, file: InputSource, options: Options, taken: set[str]) -> Iterator[Item]:
    """The documents of a file, which is read or listed with the reason why it is not.

    Of a mailbox or workbook that is damaged in its middle, what stands before that is kept, and it is listed.
    """
    ledger, is_empty = options.ledger, True
    try:
        check_text(name, Where(file.label))
        stored = file.stored()
        if stored is not None and not stored.size:
            ledger.ignore(file.label, "empty")
            return
        if name in taken:  # notes.txt beside notes.txt.gz
            name = file.location or file.name
        taken.add(name)
        for item in unless_read_before(file, "texts", name, options, lambda: _items(name, file, options)):
            is_empty = False
            yield item
    except DataError as error:
        ledger.skip_file(file.label, error)
    except (
        Exception
    ) as error:  # a library may let anything out of a damaged file, which must not stop the others
        ledger.skip(file.damaged(error))
    else:
        if not is_empty:
            ledger.mark_read(file.label)
        elif not ledger.is_explained(file.label):
            ledger.ignore(file.label, "no text found")


def _items(name: str, file: InputSource, options: Options) -> Iterator[Item]:
    kind, converter = kind_of(file), options.converters.get(file.suffix)
    if kind is None and converter is None:
        options.ledger.ignore(file.label, why_not(file))
        return
    where, about = Where(file.label), file.metadata()
    if kind and file.suffix not in kind.suffixes and (kind is not KINDS["text"] or not file.suffix):
        about["type"] = kind.name

    def said(encoding: str) -> None:
        if encoding != UTF_8:
            options.ledger.guessed[file.label] = encoding

    for article in map(_whole, _articles(file, kind, converter, said)):
        if not article.title and not article.sections:
            continue
        if cut := article.metadata.get(CUT):
            options.ledger.cut[file.label] = cut
        id = as_id(f"{name}:{article.part}" if article.part else name, where)
        metadata = {**about, **{key: value for key, value in article.metadata.items() if key != CUT}}
        name_of_file = file.stem if file.suffix in BY_SUFFIX or converter else file.plain
        yield Item(Document(id, article.title or name_of_file, article.sections, metadata), where)


def _whole(article: Article) -> Article:
    """U+FFFD in place of half a character: files can name one, and UTF-8 cannot hold it."""
    texts = [article.title, *article.metadata.values()]
    texts += [text for section in article.sections for text in (section.heading, *section.paragraphs)]
    try:
        "".join(texts).encode("utf-8")
    except UnicodeEncodeError:
        sections = tuple(
            replace(one, heading=_filled(one.heading), paragraphs=tuple(map(_filled, one.paragraphs)))
            for one in article.sections
        )
        metadata = {name: _filled(value) for name, value in article.metadata.items()}
        return article._replace(title=_filled(article.title), sections=sections, metadata=metadata)
    return article


def _filled(text: str) -> str:
    return HALF.sub("\ufffd", text)


def _articles(
    file: InputSource, kind: FileKind | None, converter: tuple[str, ...] | None, said: Callable[[str], None]
) -> Iterator[Article]:
    """What the reader of a kind finds; the text of the user's converter where that is nothing."""
    if converter is None:
        assert kind is not None, "one of the two is there"
        yield from articles(file, kind, said)
        return
    try:
        made = [] if kind is None else list(articles(file, kind, said))
    except Exception:  # whatever it is that the reader cannot read
        made = []
    if any(article.sections for article in made):
        yield from made
        return
    converted = convert(converter, file)
    title = next((article.title for article in made if article.title), converted.title)
    yield converted._replace(title=title if converted.sections else "")


TEXTS = Format(
    name="texts",
    about="a folder or file of text",
    fields="every kind of file in the table above; headings become sections. Ids are paths in the folder",
    yields=("documents",),
    place="both",
    suffixes=SUFFIXES,
    rule=is_text_file,
    read=read_texts,
    sample={"guide.md": "# Guide\n\nFirst.\n\n## Install\n\nRun it.\n"},
)
