"""Regular expressions in a tokenizer's files: those that can take exponential time are refused.

Tokenizers split and replace by expressions that a model's folder brings along, in a library that backtracks. A repeated
group that repeats or chooses inside, `(a+)+` or `(a|b)*`, can match a text in exponentially many ways, and a long chain
of repetitions in polynomially many. No tokenizer in use has either, nor calls, back references or conditions. The check
reads an expression once and is stricter than needed: it takes an expression for what it looks like.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

LONGEST = 20_000  # characters of an expression
CHAIN = 4  # unbounded repetitions behind each other, which is a polynomial of that degree
_REPEAT = re.compile(r"[*+]|\{\d*,\}")
_BOUNDED = re.compile(r"\?|\{\d*,?\d*\}")


def expressions(tree: Any) -> Iterator[str]:
    """Every expression in a described part of a tokenizer."""
    if isinstance(tree, dict):
        if isinstance(tree.get("Regex"), str):
            yield tree["Regex"]
        for inner in tree.values():
            yield from expressions(inner)
    elif isinstance(tree, list):
        for inner in tree:
            yield from expressions(inner)


def is_safe(expression: str) -> bool:
    """Whether an expression takes time that grows moderately with a text, by its looks."""
    if len(expression) > LONGEST:
        return False
    # Of each open group: whether something in it repeats without bound, whether it has alternatives, and how many
    # repetitions follow each other in its present alternative.
    repeats, chooses, chain = [False], [False], [0]
    at = 0
    while at < len(expression):
        char, inner_repeats, inner_chooses = expression[at], False, False
        if char == "\\":
            if expression[at + 1 : at + 2] in tuple("123456789gk"):
                return False
            at += 2
        elif char == "[":
            at = _end_of_class(expression, at)
        elif char == "(":
            if expression.startswith(("(?(", "(?R", "(?&", "(?P", "(?{", "(*"), at):
                return False
            repeats.append(False)
            chooses.append(False)
            chain.append(0)
            at += 1
            continue
        elif char == ")":
            if len(repeats) == 1:
                return False
            inner_repeats, inner_chooses, inside = repeats.pop(), chooses.pop(), chain.pop()
            repeats[-1] |= inner_repeats
            chain[-1] += inside
            at += 1
        elif char == "|":
            chooses[-1], chain[-1] = True, 0
            at += 1
            continue
        else:
            at += 1
        if repeat := _REPEAT.match(expression, at):
            if inner_repeats or inner_chooses:
                return False
            repeats[-1] = True
            chain[-1] += 1
            at = repeat.end()
        elif bounded := _BOUNDED.match(expression, at):
            if inner_repeats and bounded[0] != "?":
                return False
            at = bounded.end()
        if at < len(expression) and expression[at] in "?+":  # lazy or possessive
            at += 1
        if chain[-1] > CHAIN:
            return False
    return len(repeats) == 1


def _end_of_class(expression: str, at: int) -> int:
    """Past a class of characters, which may have classes in it."""
    depth = 0
    while at < len(expression):
        char = expression[at]
        at += 2 if char == "\\" else 1
        depth += (char == "[") - (char == "]")
        if depth == 0:
            return at
    return at
