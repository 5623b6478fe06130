"""Print the summary of a collection: sources, counts, lengths, samples and warnings.

Texts of the collection are escaped: their brackets and colons are not rich mark-up.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from liebig.base.progress import visible

MANY = 6


def show(summary: Mapping[str, Any], console: Console) -> None:
    _sources(summary["sources"], console)
    for name, columns in list(summary.get("tables", {}).items())[:MANY]:
        console.print(f"[bold]{escape(name)}[/bold]: {escape(columns)}")
    _counts(summary, console)
    for kind, lengths in summary["lengths"].items():
        median = f"median {lengths['median']:,.0f}, longest {lengths['longest']:,}"
        console.print(f"[bold]Length of {kind}[/bold], characters: {median}\n")
    for kind, samples in summary["samples"].items():
        _samples(kind, samples, console)
    _warnings(summary["warnings"], console)


def _sources(sources: list[dict[str, str]], console: Console) -> None:
    for source in sources[:MANY]:
        line = f"[bold]{escape(source['path'])}[/bold]: {source['format']} [dim]({escape(source['because'])})[/dim]"
        console.print(line)
    if len(sources) > MANY:
        console.print(f"and {len(sources) - MANY:,} more files")


def _counts(summary: Mapping[str, Any], console: Console) -> None:
    table = Table(box=box.SIMPLE, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(justify="right")
    for name, count in summary["counts"].items():
        table.add_row(escape(name), f"{count:,}")
    for name, count in summary["repeated"].items():
        table.add_row(f"{name} that came again, kept once", f"{count:,}")
    for name, lengths in summary["lengths"].items():
        table.add_row(f"characters of {name}", f"{lengths['total']:,}")
    console.print(table)


def _samples(kind: str, samples: list[dict[str, Any]], console: Console) -> None:
    console.print(f"[bold]Samples of {kind}[/bold]")
    for sample in samples:
        parts = [
            f"[dim]{name}[/dim] {escape(visible(_plain(value)))}" for name, value in sample.items() if value
        ]
        console.print("  " + "\n  ".join(parts))
        console.print()


def _plain(value: Any) -> str:
    text = " | ".join(map(str, value)) if isinstance(value, list) else str(value)
    return "".join(c if c.isprintable() else " " for c in text)


def _warnings(warnings: list[dict[str, Any]], console: Console) -> None:
    if not warnings:
        console.print("[green]Nothing suspicious.[/green]")
    for entry in warnings:
        examples = ", ".join(_plain(name)[:60] for name in entry["examples"])
        rest = f" [dim](e.g. {escape(examples)})[/dim]" if examples else ""
        console.print(f"[yellow]look at:[/yellow] {escape(entry['sentence'])}{rest}")
