"""The parts of an Office document or an e-book: XML files in a .zip.

Only the parts with text are unpacked, in memory, and together at most LARGEST_TEXT bytes of them, whatever the archive
says about its sizes. Parts are parsed without a network and without external entities, and a part that declares
entities is refused. Cost: one pass of the parser over each part, one part in memory at a time.
"""

from __future__ import annotations

import io
import posixpath
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any, NamedTuple, NoReturn

from lxml import etree

from liebig.formats.inputs import DAMAGE, InputSource
from liebig.formats.items import Where

LARGEST_TEXT = 1 << 26  # bytes of the parts that are read
OLE = b"\xd0\xcf\x11\xe0"  # how Office files from before 2007 begin, and those with a password


class PartLink(NamedTuple):
    """A link of a part: the path it leads to, and its kind (the last word of its type)."""

    path: str
    kind: str


class XmlPackage:
    """The parts of an opened .zip, unpacked one at a time; all together no larger than LARGEST_TEXT."""

    def __init__(self, file: IO[bytes], source: InputSource) -> None:
        self._archive, self._source, self._room = zipfile.ZipFile(file), source, LARGEST_TEXT
        self.where = Where(source.label)

    def __contains__(self, name: str) -> bool:
        return name in self._archive.NameToInfo

    def folder_of(self, name: str) -> str:
        """The folder that a part lies in, where a file was zipped with the folder around it; else nothing."""
        found = (path for path in self._archive.NameToInfo if path.endswith(f"/{name}"))
        return "" if name in self else next(found, name).removesuffix(name)

    def read(self, name: str) -> bytes:
        if name not in self:
            self.refuse(f"the file has no part {name!r}")
        with self._archive.open(name) as part:
            # Never what the archive says: it may promise less than it unpacks to.
            return self._checked(part.read(self._room + 1))

    def _checked(self, data: bytes) -> bytes:
        self._room -= len(data)
        if self._room < 0:
            self.refuse(f"unpacks to more than {LARGEST_TEXT >> 20} MiB of text", "split it")
        return data

    def xml(self, name: str) -> Any:
        parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False)
        try:
            root = etree.fromstring(self.read(name), parser)
        except etree.XMLSyntaxError as error:
            raise self._source.damaged(error) from None
        self._refuse_entities(root, name)
        return root

    def events(self, name: str) -> Iterator[tuple[str, Any]]:
        """The starts and ends of a part's elements; the caller clears what it has seen, to keep memory small."""
        stream = io.BytesIO(self.read(name))
        walk = etree.iterparse(
            stream, ("start", "end"), resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False
        )
        is_root = True
        try:
            for event, node in walk:
                if is_root:
                    self._refuse_entities(node, name)
                    is_root = False
                yield event, node
        except etree.XMLSyntaxError as error:
            raise self._source.damaged(error) from None

    def links(self, name: str) -> dict[str, PartLink]:
        """The links of a part of an Office document to other parts, by their ids."""
        folder = posixpath.dirname(name)
        path = posixpath.join(folder, "_rels", f"{posixpath.basename(name)}.rels")
        links: dict[str, PartLink] = {}
        for node in self.xml(path) if path in self else ():
            target = str(node.get("Target"))
            place = target.lstrip("/") if target.startswith("/") else posixpath.join(folder, target)
            links[str(node.get("Id"))] = PartLink(
                posixpath.normpath(place), str(node.get("Type")).rpartition("/")[2]
            )
        return links

    def main_part(self) -> str:
        """The part of an Office document that everything hangs on."""
        path = next((link.path for link in self.links("").values() if link.kind == "officeDocument"), None)
        if path is None:
            self.refuse("the file does not say which part is its document")
        return path

    def _refuse_entities(self, root: Any, name: str) -> None:
        dtd = root.getroottree().docinfo.internalDTD
        if dtd is not None and next(dtd.iterentities(), None) is not None:
            self.refuse(f"the part {name!r} declares XML entities, which are never expanded")

    def refuse(self, what: str, fix: str = "save it again with another program") -> NoReturn:
        """Raise an error about the file."""
        self.where.refuse(what, fix)


@contextmanager
def opened_package(source: InputSource, kind: type[XmlPackage] = XmlPackage) -> Iterator[XmlPackage]:
    """The parts of a file, and sentences for what is wrong with it."""
    refuse_old_office(source)
    try:
        with source.seekable() as file:
            yield kind(file, source)
    except DAMAGE as error:
        raise source.damaged(error) from None


def refuse_old_office(source: InputSource) -> None:
    """Refuse a file under a newer suffix that is in the old format, in which passwords are kept too."""
    if source.head(4) == OLE:
        Where(source.label).refuse(
            "is encrypted, or in the format from before 2007", "save it again without a password"
        )


def properties(package: XmlPackage) -> tuple[str, str]:
    """The title and the author that an Office document says it has."""
    if "docProps/core.xml" not in package:
        return "", ""
    core = package.xml("docProps/core.xml")
    return first_text(core, "title"), first_text(core, "creator")


def first_text(root: Any, name: str) -> str:
    """The text of the first element of this name, without its namespace; "" where there is none."""
    return " ".join("".join(next((e.itertext() for e in root.iter(f"{{*}}{name}")), ())).split())
