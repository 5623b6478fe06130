"""Rich text (.rtf): its text as paragraphs, and title and author where it says them. striprtf reads it."""

from __future__ import annotations

import re

from liebig.base.errors import DataError
from liebig.formats.markup import parse_plain
from liebig.formats.outline import Article

LARGEST = 1 << 26
FIELD = re.compile(r"\{\\(title|author) ([^{}\\]{1,300})\}")


def parse_rtf(text: str) -> Article:
    from striprtf.striprtf import rtf_to_text  # late: only folders with rich text pay for it

    if not text.lstrip().startswith("{\\rtf"):
        raise DataError("this is not rich text", fix="give it another suffix")
    if len(text) > LARGEST:
        raise DataError(f"the file is larger than {LARGEST >> 20} MiB", fix="split it")
    fields = {match[1]: match[2].strip() for match in FIELD.finditer(text[: 1 << 16])}
    plain = rtf_to_text(text, errors="replace").replace("\0", "")
    sections = parse_plain(plain.replace("\n", "\n\n")).unplaced
    author = fields.get("author", "")
    return Article(fields.get("title", ""), sections, metadata={"author": author} if author else {})
