"""Source code: a document per function, class and method, and one for what stands outside of them.

Python is parsed; other languages are cut by a rule on lines: a definition begins with the comments and annotations
above it and goes on to the next one, so that no line is lost. Names are qualified by the class or module they stand
in, and the title is the name with the first sentence of the docstring or comment. Paragraphs are whole lines. Cost:
one pass; definitions are looked for only in lines of at most WIDEST characters.
"""

from __future__ import annotations

import ast
import inspect
import re
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from liebig.formats.outline import Article, line_blocks, numbered_section

WIDEST = 300  # characters of a line that may begin a definition
DOCSTRING = 160  # characters of a docstring in a title
MODIFIERS = (
    r"(?:(?:export|default|declare|public|private|protected|internal|static|final|abstract|async|override|virtual|inline"
    r"|extern|unsafe|open|sealed|data|partial|local|suspend|fileprivate|synchronized|native|pub(?:\([a-z]+\))?)[ \t]+)*"
)
CONTAINERS = (
    "class", "struct", "interface", "trait", "impl", "module", "namespace", "object", "protocol", "enum", "defmodule",
    "extension", "union", "record", "package",
)  # fmt: skip
FUNCTIONS = (
    "function",
    "func",
    "fun",
    "fn",
    "def",
    "defp",
    "sub",
    "proc",
    "procedure",
    "macro",
    "defun",
    "type",
)
KEYWORD = re.compile(
    rf"[ \t]*[(]?{MODIFIERS}(?P<keyword>{'|'.join((*CONTAINERS, *FUNCTIONS))})\b\*?"
    r"(?:[ \t]*<[^<>]*>|[ \t]*\([^()]*\))?[ \t]+(?:class[ \t]+)?(?P<name>[\w$.:!?-]+)"
)
ASSIGNED = re.compile(
    r"[ \t]*(?:export[ \t]+)?(?:(?:const|let|var)[ \t]+)?(?P<name>[\w$.]+)[ \t]*(?:=|<-|:)[ \t]*(?:async[ \t]*)?"
    r"(?:function\b|(?:\([^()]*\)|\w+)[ \t]*=>)"
)
SHELL = re.compile(r"(?P<name>[\w-]+)[ \t]*\(\)[ \t]*\{?[ \t]*$")
SQL = re.compile(
    r"[ \t]*create[ \t]+(?:or[ \t]+replace[ \t]+)?(?:temporary[ \t]+|unique[ \t]+)?"
    r"(?:table|view|function|procedure|trigger|index|type)[ \t]+(?:if[ \t]+not[ \t]+exists[ \t]+)?(?P<name>[\w.\"`]+)",
    re.IGNORECASE,
)
TYPES = re.compile(r"[ \t]*[A-Za-z_][\w \t*&<>:,.\[\]~]*")
STATEMENTS = frozenset(
    (
        "if", "for", "while", "switch", "return", "else", "case", "throw", "new", "await", "do", "try", "catch",
        "using", "goto", "in", "and", "or", "not", "echo", "print", "elif", "when", "match", "raise", "yield", "with",
        "foreach",
    )
)  # fmt: skip
COMMENT = re.compile(r"[ \t]*(?://+!?|/\*+|\*+/?|#+|--+\[*|;+|@|#\[|\[[A-Z]|<!--|%+)")
MARKS = re.compile(r"^[ \t]*(?://+!?|/\*+!?|\*+/?|#+|--+\[*|;+|%+)[ \t]?|\*+/[ \t]*$|\]\][ \t]*$")
ANNOTATION = re.compile(r"[ \t]*(?:@|#\[|\[[A-Z])")
WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


class Definition(NamedTuple):
    """A function or class: where it begins and ends (lines from 0), its qualified name, and what it is said to do."""

    start: int
    end: int
    name: str
    about: str


def parse_python(text: str) -> list[Article]:
    """The functions, classes and methods of a Python file; one that does not parse is cut by its lines."""
    try:
        with warnings.catch_warnings(action="ignore"):
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return parse_code(text)
    lines = text.split("\n")
    return _articles(
        lines, sorted(_python_definitions(tree.body, "")), first_sentence(ast.get_docstring(tree) or "")
    )


def _python_definitions(body: Sequence[ast.stmt], prefix: str) -> Iterator[Definition]:
    for node in body:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        name = prefix + node.name
        start = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)]) - 1
        about = first_sentence(ast.get_docstring(node) or "")
        yield Definition(start, node.end_lineno or node.lineno, name, about)
        if isinstance(node, ast.ClassDef):
            yield from _python_definitions(node.body, f"{name}.")


def parse_code(text: str) -> list[Article]:
    """The definitions of a file in any other language, found by their first lines."""
    lines = text.split("\n")
    starts = list(_starts(lines))
    ends = [start for start, _, _ in starts[1:]] + [len(lines)]
    definitions = [Definition(start, end, name, about) for (start, name, about), end in zip(starts, ends)]
    return _articles(lines, definitions, _comment(lines[: starts[0][0] if starts else len(lines)]))


def _starts(lines: Sequence[str]) -> Iterator[tuple[int, str, str]]:
    """The first line of every definition at the top or directly in a class, with its name and comment.

    What is indented below a function belongs to it, whatever it looks like.
    """
    inside: list[
        tuple[int, str, bool]
    ] = []  # indentation, name, and whether definitions are looked for in it
    ended = 0
    for number, line in enumerate(lines):
        defined = (
            _definition(line) if line.strip() and len(line) <= WIDEST and not COMMENT.match(line) else None
        )
        if defined is None:
            continue
        name, is_container = defined
        indent = len(line) - len(line.lstrip())
        while inside and inside[-1][0] >= indent:
            inside.pop()
        if indent and not (inside and inside[-1][2]):
            continue
        full = ".".join((*(outer for _, outer, _ in inside), name))
        inside.append((indent, name, is_container))
        start = number
        while start > ended and COMMENT.match(lines[start - 1]):
            start -= 1
        ended = number + 1
        yield start, full, _comment(lines[start:number])


def _definition(line: str) -> tuple[str, bool] | None:
    """The name that a line defines, and whether it is of a class or the like; None if it defines nothing."""
    if match := KEYWORD.match(line):
        return match["name"].strip(".:"), match["keyword"] in CONTAINERS
    for pattern in (ASSIGNED, SQL, SHELL):
        if match := pattern.match(line):
            return match["name"].strip('"`'), False
    return _typed(line)


def _typed(line: str) -> tuple[str, bool] | None:
    """A function by its types: `int main(int argc)`, `public String name() throws X {`, `void Parser::feed(`.

    Types, a name, and a list that is not ended by a semicolon; a statement or a call is none.
    """
    head, bracket, rest = line.partition("(")
    head = head.rstrip()
    at = len(head)
    while at and (head[at - 1].isalnum() or head[at - 1] in "_:~"):
        at -= 1
    types, name = head[:at], head[at:]
    is_named = bool(bracket and types.strip() and name) and ";" not in rest and types[-1] in " \t*&>"
    if not is_named or not TYPES.fullmatch(types) or not STATEMENTS.isdisjoint((*types.split(), name)):
        return None
    return name, False


def _comment(lines: Sequence[str]) -> str:
    told = [
        MARKS.sub("", line).strip() for line in lines if COMMENT.match(line) and not ANNOTATION.match(line)
    ]
    return first_sentence("\n".join(line for line in told if not line.startswith("!")))


def first_sentence(text: str) -> str:
    """The first paragraph of a docstring up to its first full stop, on one line."""
    paragraph = " ".join(inspect.cleandoc(text).strip().partition("\n\n")[0].split())
    sentence, stop, _ = paragraph.partition(". ")
    return (sentence + stop).strip()[:DOCSTRING]


def _articles(lines: Sequence[str], definitions: Sequence[Definition], about: str) -> list[Article]:
    """An article per definition, each line in the innermost one that holds it, and one for the lines in none."""
    owner = [-1] * len(lines)
    for number, definition in enumerate(definitions):
        owner[definition.start : definition.end] = [number] * (definition.end - definition.start)
    own: dict[int, list[tuple[int, str]]] = {}
    for place, (line, number) in enumerate(zip(lines, owner), 1):
        own.setdefault(number, []).append((place, line))
    articles = []
    names: Counter[str] = Counter()
    for number in sorted(own):
        section = numbered_section("", line_blocks(own[number]), "line")
        if not section.paragraphs:
            continue
        if number < 0:
            articles.append(Article(about, (section,)))
            continue
        definition = definitions[number]
        names[definition.name] += 1  # overloads have one name
        again = names[definition.name]
        part = definition.name if again == 1 else f"{definition.name}~{again}"
        articles.append(Article(_title(definition), (section,), part))
    return articles


def _title(definition: Definition) -> str:
    """The name and what it does; where nothing says that, the words of the name."""
    if definition.about:
        return f"{definition.name}: {definition.about}"
    words = " ".join(WORDS.findall(definition.name)).lower()
    return definition.name if words == definition.name.lower() else f"{definition.name} ({words})"
