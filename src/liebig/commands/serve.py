"""The command `liebig serve`, apart from what it loads."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from liebig.serve.middleware import Limits

DEFAULT = Limits()


def command(
    folder: Annotated[Path, typer.Argument(help="A retriever's folder, as liebig build writes it.")],
    host: Annotated[str, typer.Option(help="The address; others than loopback need a token.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port; 0 takes any that is free.", min=0, max=65535)] = 8765,
    token: Annotated[
        str | None, typer.Option(help="What clients send as bearer token.", envvar="LIEBIG_TOKEN")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Threads that compute [default: one a core].", min=1)
    ] = None,
    reranker: Annotated[
        Path | None, typer.Option(help="A cross-encoder for /rerank [default: the folder's encoder].")
    ] = None,
    device: Annotated[str | None, typer.Option(help="cpu or cuda [default: cpu].")] = None,
    batching: Annotated[
        bool, typer.Option("--batching/--no-batching", help="Compute texts of several requests together.")
    ] = True,
    wait_ms: Annotated[
        float, typer.Option(help="Milliseconds a text waits for company.", min=0)
    ] = DEFAULT.wait_ms,
    queue: Annotated[int, typer.Option(help="Texts that may wait in line.", min=1)] = DEFAULT.queue,
    max_body_mb: Annotated[int, typer.Option(help="Megabytes of the largest request.", min=1)] = DEFAULT.body
    >> 20,
    max_texts: Annotated[int, typer.Option(help="Texts of a request.", min=1)] = DEFAULT.texts,
    max_k: Annotated[int, typer.Option(help="Passages of an answer.", min=1)] = DEFAULT.k,
    timeout: Annotated[float, typer.Option(help="Seconds of an answer.", min=0.1)] = DEFAULT.seconds,
    open_page: Annotated[bool, typer.Option("--open", help="Show the search page in a browser.")] = False,
) -> None:
    """Serve a retriever's folder over HTTP: a search page, search, vectors and scores for other programs.

    A folder that `liebig update` changes is taken over without stopping.

    Example:

        liebig serve runs/notes --open
    """
    from liebig.serve.server import serve as run

    limits = Limits(
        body=max_body_mb << 20, texts=max_texts, k=max_k, seconds=timeout, queue=queue, wait_ms=wait_ms,
        batching=batching,
    )  # fmt: skip
    run(
        folder, host=host, port=port, token=token, workers=workers, reranker=reranker, device=device,
        limits=limits, open_page=open_page, say=lambda line: typer.echo(line, err=True),
    )  # fmt: skip
