"""Text as it comes out of files, made clean: ligatures, broken words, headers and footers of pages.

A broken word is joined without its hyphen, unless the document writes it with a hyphen elsewhere and never without.
Lines at the top and bottom of pages are dropped where most pages have the same one but for its numbers. Cost: linear.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence

LIGATURES = {
    code: unicodedata.normalize("NFKC", chr(code))
    for code in (*range(0xFB00, 0xFB07), *range(0xFB13, 0xFB18))
}
SOFT_HYPHEN = "\u00ad"
BREAK = re.compile(r"(?<=[^\W\d_])[-\u2010]\n[ \t]*(?=[^\W\d_])")
WORD = re.compile(r"[^\W\d_]+(?:[-\u2010][^\W\d_]+)*")
LONGEST = 40  # letters of either half of a broken word
NUMBERS = re.compile(r"\d+|^[ivxlc]+$")  # a Roman one only where it is all of the line
EDGE = 2  # lines at the top and bottom of a page that may be its header and footer
FEWEST = 3  # pages that must have a line before it counts as repeated


def without_ligatures(text: str) -> str:
    """`ﬁnd` -> `find`; other characters that have a plainer form stay what they are."""
    return text.translate(LIGATURES)


def without_breaks(text: str) -> str:
    """`infor-⏎mation` -> `information`, `well-⏎known` -> `well-known` where the text has that elsewhere.

    The line break moves to the space before the word, if there is one, so that lines keep their numbers.
    """
    text = text.replace(SOFT_HYPHEN + "\n", "").replace(SOFT_HYPHEN, "")
    breaks = [match for match in BREAK.finditer(text) if text[match.end()].islower()]
    if not breaks:
        return text
    words = {word.lower().replace("\u2010", "-") for word in WORD.findall(text)}
    at, kept = 0, list[str]()
    for match in breaks:
        left, right = _before(text, match.start()).lower(), _after(text, match.end()).lower()
        hyphen = "-" if f"{left}-{right}" in words and left + right not in words else ""
        start = match.start() - len(left)
        moved = start - 1 > at and text[start - 1] == " " and text[start - 2] != "\n"
        before = (
            f"{text[at : start - 1]}\n{text[start : match.start()]}" if moved else text[at : match.start()]
        )
        kept += (before, hyphen)
        at = match.end()
    return "".join((*kept, text[at:]))


def _before(text: str, end: int) -> str:
    start = end
    while start > max(0, end - LONGEST) and text[start - 1].isalpha():
        start -= 1
    return text[start:end]


def _after(text: str, start: int) -> str:
    end = start
    while end < min(len(text), start + LONGEST) and text[end].isalpha():
        end += 1
    return text[start:end]


def without_margins(pages: Sequence[str]) -> list[str]:
    """Pages without lines that most of them have at their top or bottom, whatever numbers those hold."""
    lines = [page.split("\n") for page in pages]
    edges = [_edges(page) for page in lines]
    counts = Counter(key for page in edges for key in set(page.values()))
    enough = max(FEWEST, len(pages) / 2)
    return [
        "\n".join(line for at, line in enumerate(page) if at not in edge or counts[edge[at]] < enough)
        for page, edge in zip(lines, edges)
    ]


def _edges(lines: Sequence[str]) -> dict[int, tuple[bool, str]]:
    """The outer lines of a page by their place: whether they stand at the top, and their text without numbers."""
    full = [at for at, line in enumerate(lines) if line.strip()]
    if len(full) <= EDGE:  # a page of a line or two is all content, or nothing that is missed
        return {}
    top, bottom = full[:EDGE], [at for at in full[-EDGE:] if at not in full[:EDGE]]
    return {at: (at in top, NUMBERS.sub("#", " ".join(lines[at].lower().split()))) for at in (*top, *bottom)}
