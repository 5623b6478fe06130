"""`liebig mcp`: options only; the server is imported when it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from liebig.base.machine import prefer_numpy
from liebig.search.retriever_folder import is_small


def command(
    folder: Annotated[Path, typer.Argument(help="A retriever folder, made by liebig build.")],
    reranker: Annotated[
        str | None,
        typer.Option(
            help="A cross-encoder for reranked search, by folder or org/name [default: the folder's own]."
        ),
    ] = None,
    device: Annotated[str | None, typer.Option(help="cpu or cuda [default: cpu].")] = None,
) -> None:
    """Let an assistant search a retriever: an MCP server over standard input and output.

    Assistants start it themselves: name this command in their MCP settings. It has the tools search, open and
    similar.

    Example:

        liebig mcp runs/articles
    """
    if is_small(folder):
        prefer_numpy()
    from liebig.integrations.mcp import serve

    serve(folder, reranker=reranker, device=device)
