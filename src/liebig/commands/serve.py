"""`liebig serve`: options only; what it runs is imported when it runs."""

from __future__ import annotations

import contextlib
import os
import subprocess  # nosec B404
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from liebig.base.errors import RecipeError
from liebig.serve.middleware import Limits

DEFAULT = Limits()
HOST, PORT = "127.0.0.1", 8765

# Where a server listens; `liebig label` has these options too.
Host = Annotated[str, typer.Option(help="Address to listen on; anything but loopback needs a token.")]
Port = Annotated[int, typer.Option(help="Port to listen on; 0 takes any free port.", min=0, max=65535)]
Token = Annotated[
    str | None, typer.Option(help="Bearer token that clients must send.", envvar="LIEBIG_TOKEN")
]


def command(
    folder: Annotated[Path, typer.Argument(help="A retriever folder, made by liebig build.")],
    host: Host = HOST,
    port: Port = PORT,
    token: Token = None,
    workers: Annotated[
        int | None, typer.Option(help="Number of compute threads [default: one per core].", min=1)
    ] = None,
    reranker: Annotated[
        Path | None,
        typer.Option(
            help="A cross-encoder for reranked search and /rerank, by folder or org/name [default: the folder's own]."
        ),
    ] = None,
    device: Annotated[str | None, typer.Option(help="cpu or cuda [default: cpu].")] = None,
    batching: Annotated[
        bool, typer.Option("--batching/--no-batching", help="Batch texts of several requests.")
    ] = True,
    wait_ms: Annotated[
        float, typer.Option(help="Maximum time to wait for a batch to fill (ms).", min=0)
    ] = DEFAULT.wait_ms,
    queue: Annotated[int, typer.Option(help="Maximum number of texts in the queue.", min=1)] = DEFAULT.queue,
    max_body_mb: Annotated[int, typer.Option(help="Maximum size of a request (MB).", min=1)] = DEFAULT.body
    >> 20,
    max_texts: Annotated[
        int, typer.Option(help="Maximum number of texts per request.", min=1)
    ] = DEFAULT.texts,
    max_k: Annotated[int, typer.Option(help="Maximum number of passages per answer.", min=1)] = DEFAULT.k,
    timeout: Annotated[
        float, typer.Option(help="Maximum time to answer a request (s).", min=0.1)
    ] = DEFAULT.seconds,
    llm: Annotated[
        str | None,
        typer.Option(metavar="URL", help="A server that speaks the OpenAI API, for answers in sentences."),
    ] = None,
    llm_model: Annotated[str | None, typer.Option(help="The model's name on that server.")] = None,
    originals: Annotated[
        list[Path] | None,
        typer.Option(
            help="A folder from which the page may open original files [default: those that you built the retriever "
            "from]."
        ),
    ] = None,
    log: Annotated[
        Path | None,
        typer.Option(help="A file to append queries and opened documents to, as JSON lines [default: none]."),
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Update the folder whenever a file of its sources changes.")
    ] = False,
    convert: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SUFFIX=COMMAND",
            help="With --watch: a program that turns files into text, as for liebig build.",
        ),
    ] = None,
    open_page: Annotated[bool, typer.Option("--open", help="Open the search page in a browser.")] = False,
) -> None:
    """Serve a retriever over HTTP: a search page, and an API for search, embeddings and reranking.

    The API is compatible with clients of OpenAI and text-embeddings-inference. When `liebig update` changes the
    folder, the server switches to the new version without a restart.

    Example:

        liebig serve runs/notes --open
    """
    from liebig.formats.convert import given_converters
    from liebig.integrations.ask import ChatModel
    from liebig.serve.server import serve as run

    if (llm is None) != (llm_model is None):
        raise RecipeError("a language model needs both --llm and --llm-model", fix="name both, or none")
    chat = None if llm is None or llm_model is None else ChatModel(llm, llm_model)

    limits = Limits(
        body=max_body_mb << 20, texts=max_texts, k=max_k, seconds=timeout, queue=queue, wait_ms=wait_ms,
        batching=batching,
    )  # fmt: skip
    if given_converters(convert or []) and not watch:
        raise RecipeError("--convert is for the updates of --watch", fix="add --watch, or leave it out")
    with _updating(folder, convert or []) if watch else contextlib.nullcontext():
        run(
            folder, host=host, port=port, token=token, workers=workers, reranker=reranker, device=device,
            limits=limits, llm=chat, originals=[path.resolve() for path in originals or ()], log=log,
            open_page=open_page, say=lambda line: typer.echo(line, err=True),
        )  # fmt: skip


@contextlib.contextmanager
def _updating(folder: Path, converters: list[str]) -> Iterator[None]:
    """A process beside the server that follows the sources, so that answers do not wait for an update."""
    command = [sys.executable, "-m", "liebig", "update", str(folder), "--watch", "--quiet"]
    command += [f"--convert={converter}" for converter in converters]
    process = subprocess.Popen([*command, "--while-process", str(os.getpid())])  # nosec B603  our own command
    try:
        yield
    finally:
        process.terminate()
        process.wait()
