"""The page of `liebig queries inspect`: the table, and passages beside their queries, with common words marked."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from liebig.queries.rouge import words

if TYPE_CHECKING:
    from liebig.queries.inspection import Row, Shown

STYLE = """
body{font:16px/1.5 system-ui,sans-serif;max-width:75rem;margin:2rem auto;padding:0 1rem;color:#222;background:#fff}
table{border-collapse:collapse;width:100%}th,td{text-align:left;vertical-align:top;padding:.4rem .7rem;
border-bottom:1px solid #ccc}td.number{text-align:right}mark{background:#fdeeb5}ul{margin:0;padding-left:1.1rem}
@media(prefers-color-scheme:dark){body{color:#ddd;background:#181818}mark{background:#5b4a00;color:#fff}}
"""


def page(rows: Sequence[Row], shown: Sequence[Shown]) -> str:
    """One self-contained HTML page."""
    body = f"<h1>Generated queries</h1>{_table(rows)}<h2>{len(shown)} passages, drawn at random</h2>"
    head = "".join(f"<th>{escape(row.name)}</th>" for row in rows)
    body += f"<table><tr><th>passage</th>{head}</tr>{''.join(map(_shown, shown))}</table>"
    meta = '<meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">'
    return (
        f'<!doctype html><html lang="en"><head>{meta}<title>Generated queries</title><style>{STYLE}</style></head>'
        f"<body>{body}</body></html>\n"
    )


def _table(rows: Sequence[Row]) -> str:
    names = ["queries", "labels behind them", "passages", "queries", "words", "overlap", "repeated"]
    head = "".join(f"<th>{escape(name)}</th>" for name in [*names, *rows[0].found])
    lines = []
    for row in rows:
        numbers = [f"{row.passages:,}", f"{row.queries:,}", f"{row.words:.1f}"]
        numbers += [f"{value:.3f}" for value in (row.overlap, row.repeated, *row.found.values())]
        cells = f"<td>{escape(row.name)}</td><td>{escape(row.labels)}</td>"
        lines.append(f"<tr>{cells}{''.join(f'<td class=number>{n}</td>' for n in numbers)}</tr>")
    return f"<table><tr>{head}</tr>{''.join(lines)}</table>"


def _shown(one: Shown) -> str:
    asked = {word for queries in one.queries for query in queries for word in words(query) if len(word) > 3}
    text = f"<b>{escape(one.passage.title)}</b> {_marked(one.passage.text, asked)}"
    lists = (
        f"<td><ul>{''.join(f'<li>{escape(q)}</li>' for q in queries)}</ul></td>" for queries in one.queries
    )
    return f"<tr><td>{text}</td>{''.join(lists)}</tr>"


def _marked(text: str, asked: set[str]) -> str:
    """The text with the words that are asked about marked."""
    parts = re.split(r"(\w+)", text)
    return "".join(f"<mark>{escape(p)}</mark>" if p.lower() in asked else escape(p) for p in parts)
