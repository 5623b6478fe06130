"""LaTeX files (.tex): \\section and the like become sections; comments, the preamble and references are dropped.

The text of a command's last argument is kept (\\emph{x}), formulas stay as they are written. Cost: linear, by lines.
"""

from __future__ import annotations

import re

from liebig.formats.outline import LONG_LINE, Article, Outline

COMMENT = re.compile(r"(?<!\\)%.*")
HEADING = re.compile(r"[ \t]*\\(?:part|chapter|(?:sub)*section|paragraph)\*?(?:\[[^\]\n]*\])?\{(.*)")
NAMED = re.compile(r"\\(title|author)(?:\[[^\]]*\])?\{([^{}]*(?:\{[^{}]*\}[^{}]*)*)\}")
ENVIRONMENT = re.compile(r"\\(?:begin|end)\{[^{}\n]*\}(?:\[[^\]\n]*\])?")
REFERENCE = re.compile(
    r"~?\\(?:cite\w*|ref|eqref|pageref|autoref|label|bibliography\w*|usepackage|input|include\w*|vspace|hspace)"
    r"\*?(?:\[[^\]\n]*\])*\{[^{}\n]*\}"
)
ITEM = re.compile(r"\\item\b[ \t]*")
COMMAND = re.compile(r"\\[a-zA-Z]+\*?(?:\[[^\]\n]*\])?")
PLAIN = str.maketrans({"{": "", "}": "", "~": " "})
ESCAPED = re.compile(r"\\([%$&#_{}])")


def parse_tex(text: str) -> Article:
    """Sections and paragraphs of a document, and its title and author."""
    named = {match[1]: plain(" ".join(match[2].split())) for match in NAMED.finditer(text[: 1 << 16])}
    lines = text.split("\n")
    begins = next((n for n, line in enumerate(lines) if "\\begin{document}" in line), -1)
    outline = Outline("line")
    for number, line in enumerate(lines[begins + 1 :], begins + 2):
        bare = COMMENT.sub("", line) if len(line) <= LONG_LINE else line
        if heading := HEADING.match(bare):
            outline.heading(plain(heading[1]))
        elif told := plain(bare):
            outline.line(told, number)
        elif not line.lstrip().startswith("%"):
            outline.end_paragraph()
    author = re.split(r"\s*\\and\b|\s*,\s*", named.get("author", ""))[0]
    return Article(
        named.get("title", ""), outline.parsed().sections, metadata={"author": author} if author else {}
    )


def plain(text: str) -> str:
    """A line without commands, their braces, and references."""
    if len(text) > LONG_LINE:
        return text
    text = REFERENCE.sub("", ENVIRONMENT.sub("", NAMED.sub("", text)))
    text = COMMAND.sub(" ", ITEM.sub("- ", ESCAPED.sub(r"\1", text))).replace("\\\\", " ").translate(PLAIN)
    return " ".join(text.split())
