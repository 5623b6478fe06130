"""`liebig push`: a retriever put into a search engine whole, and a folder that searches there (`builder/push.py`)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from liebig.base.config import parse
from liebig.base.progress import say


def command(
    retriever: Annotated[Path, typer.Argument(help="Folder of the retriever.")],
    to: Annotated[str, typer.Option(help="The engine: milvus or opensearch.")],
    uri: Annotated[
        str, typer.Option(help="Address of the server; for milvus also the path of a file (milvus-lite).")
    ],
    out: Annotated[Path, typer.Option(help="The folder that searches there; again, to send what changed.")],
    name: Annotated[str, typer.Option(help="Name of the table to fill.")] = "passages",
) -> None:
    """Put a retriever into Milvus or OpenSearch: passages, metadata, vectors, and BM25 as sparse vectors.

    The environment variable LIEBIG_ENGINE_TOKEN has the password (user:password) or token of the server.

    Example:

        liebig push runs/articles --to milvus --uri http://milvus:19530 --out runs/articles-milvus
    """
    from liebig.builder.push import EngineConfig, push

    say(push(retriever, out, parse(EngineConfig, {"to": to, "uri": uri, "name": name})))
