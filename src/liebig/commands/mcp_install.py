"""`liebig mcp install`: put a retriever into the settings of an assistant.

Every client has one entry in `CLIENTS`: its file, and how an entry of that file looks. What will be written is shown
first, an existing file is copied beside itself, and only the entry of this retriever changes. Settings that cannot be
read, as JSON with comments, are left alone.
"""

from __future__ import annotations

import json
import shutil
import sys
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from liebig.base.durable import atomic_write
from liebig.base.errors import DataError, RecipeError
from liebig.base.mistakes import nearest
from liebig.base.progress import say, visible
from liebig.base.toml_text import as_table
from liebig.search.retriever_folder import read

COPY = ".before-liebig"  # behind the name of a file, for its copy


@dataclass(frozen=True)
class ServerEntry:
    """How a client starts the server: a name, a command and its arguments."""

    name: str
    command: str
    args: tuple[str, ...]


@dataclass(frozen=True)
class MCPClient:
    """An assistant: where its settings are, and how they look with an entry added to what they are."""

    file: Path
    merged: Callable[[str, ServerEntry, Path], str]


def _in_json(table: str, **more: str) -> Callable[[str, ServerEntry, Path], str]:
    def merged(text: str, entry: ServerEntry, file: Path) -> str:
        try:
            settings: Any = json.loads(text) if text.strip() else {}
        except ValueError:
            settings = None
        if not isinstance(settings, dict) or not isinstance(settings.get(table, {}), dict):
            raise DataError(
                "is not JSON that can be changed", file=file, fix="add what --print shows by hand"
            )
        row = {**more, "command": entry.command, "args": list(entry.args)}
        settings[table] = {**settings.get(table, {}), entry.name: row}
        return json.dumps(settings, indent=2, ensure_ascii=False) + "\n"

    return merged


def _in_toml(text: str, entry: ServerEntry, file: Path) -> str:
    """Appended as text, so that comments stay; an entry of the same name has to be removed by hand."""
    row = {"command": entry.command, "args": list(entry.args)}
    lines = "\n".join(as_table({"mcp_servers": {entry.name: row}}, ()))
    added = f"{text.rstrip()}\n{lines}\n".lstrip()
    try:
        known = tomllib.loads(text).get("mcp_servers")
        if isinstance(known, dict) and entry.name in known:
            if known[entry.name] == row:
                return text
            what = f"already has mcp_servers.{entry.name}"
            raise DataError(what, file=file, fix="remove it, or choose another --name")
        tomllib.loads(added)  # a table that is written in one line takes no other
    except tomllib.TOMLDecodeError:
        what = "is not TOML that can be changed"
        raise DataError(what, file=file, fix="add what --print shows by hand") from None
    return added


def clients() -> dict[str, MCPClient]:
    """Every client by its name."""
    servers, home = _in_json("mcpServers"), Path.home()
    return {
        "claude-code": MCPClient(Path(".mcp.json"), servers),
        "cursor": MCPClient(home / ".cursor" / "mcp.json", servers),
        "codex": MCPClient(home / ".codex" / "config.toml", _in_toml),
        "vscode": MCPClient(Path(".vscode") / "mcp.json", _in_json("servers", type="stdio")),
    }


def command(
    folder: Annotated[Path, typer.Argument(help="A retriever folder, made by liebig build.")],
    client: Annotated[str, typer.Option(help="The assistant: claude-code, cursor, codex or vscode.")],
    name: Annotated[
        str | None, typer.Option(help="The name of the server there [default: the folder's name].")
    ] = None,
    only_print: Annotated[
        bool, typer.Option("--print", help="Print what would be added, and change nothing.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Write without asking.")] = False,
) -> None:
    """Put a retriever into the settings of an assistant, which then starts liebig mcp by itself.

    The settings of Cursor and Codex are those of the user, those of Claude Code and VS Code are of the folder that
    you are in. What will be written is shown first, and a copy of the old file is kept beside it.

    Example:

        liebig mcp install runs/articles --client claude-code --print
    """
    read(folder)
    if client not in clients():
        raise RecipeError(f"there is no client {client!r}", fix=nearest(client, list(clients())))
    target = clients()[client]
    path = folder.resolve()
    entry = ServerEntry(name or path.name, sys.executable, ("-m", "liebig", "mcp", str(path)))
    if only_print:
        typer.echo(target.merged("", entry, target.file), nl=False)
        say(f"It belongs into {visible(str(target.file))}.")
        return
    file = target.file.resolve()  # a link stays a link: what it points to is changed
    try:
        before = file.read_text(encoding="utf-8") if file.exists() else ""
    except UnicodeDecodeError:
        raise DataError("is not text in UTF-8", file=file, fix="add what --print shows by hand") from None
    after = target.merged(before, entry, file)
    if after == before:
        say(f"{visible(str(file))} has it already.")
        return
    typer.echo(f"{visible(str(file))} will have:\n\n{visible(after)}")
    if not yes and not (sys.stdin.isatty() and typer.confirm("Write it?")):
        say("Nothing was written; --yes writes without asking.")
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    if file.exists():
        shutil.copy2(file, file.with_name(file.name + COPY))
    atomic_write(file, after.encode())
    say(f"Written. Restart {client}, or reload its MCP servers, and ask it to search {entry.name}.")
