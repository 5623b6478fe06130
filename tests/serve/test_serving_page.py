"""What docs/serving.md says is so: its examples run against a server, its limits are the defaults."""

import contextlib
import io
import re
import shlex
from pathlib import Path

from liebig.serve.middleware import Limits

PAGE = (Path(__file__).parents[2] / "docs" / "serving.md").read_text(encoding="utf-8")
ASKS = "<!-- not run: it asks a running server -->\n"


def blocks(language):
    return re.findall(rf"{ASKS}```{language}\n(.*?)```", PAGE, re.DOTALL)


def test_the_python_examples_run(server, retriever):
    width = retriever.encode(["a text"], "query").shape[1]
    assert blocks("python")
    for block in blocks("python"):
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            exec(compile(block.replace("http://127.0.0.1:8765", server), "serving.md", "exec"), {})
        assert said.getvalue().startswith(f"2 vectors of {width} numbers, ")


def test_the_shell_examples_are_answered(client):
    for line in (line for block in blocks("bash") for line in block.splitlines()):
        words = shlex.split(line)
        address = next(word for word in words if word.startswith("http")).removeprefix(
            "http://127.0.0.1:8765"
        )
        body = words[words.index("-d") + 1] if "-d" in words else None
        headers = {"Content-Type": "application/json"}
        answer = client.post(address, content=body, headers=headers) if body else client.get(address)
        assert (words[0], answer.status_code) == ("curl", 200)


def test_the_limits_are_the_defaults():
    limits = Limits()
    for said in (
        f"| {limits.body >> 20} MB |", f"| {limits.texts:,} | `--max-texts`",
        f"| {limits.characters:,}, {limits.query:,} |",
        f"| {limits.k:,} | `--max-k`", f"| {limits.queue:,} | `--queue`", f"| {limits.requests:,} |",
        f"| {limits.seconds:g} | `--timeout`", f"({limits.grace:g} seconds at the most)",
    ):  # fmt: skip
        assert said in PAGE


def test_every_route_is_listed(client):
    for path in client.get("/openapi.json").json()["paths"]:
        assert path in PAGE, path


def test_pictures_are_there_and_small():
    for name in re.findall(r"\((images/[\w.-]+)\)", PAGE):
        size = (Path(__file__).parents[2] / "docs" / name).stat().st_size
        assert 1_000 < size < 200_000, name
