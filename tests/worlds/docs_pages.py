"""The code blocks of README and docs, and how each kind is tested.

A block names its language. `bash` blocks are commands: each line is run in a small workspace, in the order of the page.
A block below the comment `<!-- not run: WHY -->`, which readers do not see, is not run (it needs a GPU, much data, a
network, or does not end), but the command line must still accept every `liebig` line in it. `python` blocks are run,
`toml` and `json` are parsed, and written where they have a title="FILE"; `math` is LaTeX and must convert to MathML;
`text` is output or a listing and never run. Training in a block that is run is cut to two steps (`shortened`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
GENERATED = {"cli.md", "api.md"}
LANGUAGES = {"bash", "python", "toml", "yaml", "json", "jsonl", "math", "text"}
BLOCK = re.compile(
    r"^(?:<!-- not run: ([^\n]*) -->\n)?( *)```([\w-]*)([^\n]*)\n(.*?)^\2```[ \t]*$", re.MULTILINE | re.DOTALL
)
COMMANDS = ("liebig ", "make ", ". .venv", "pip ", "git ")
SHORTER = {
    r"\bstdlib: ": "stdlib:heapq,shutil,collections,json ",
    r"loop\.minutes=\S+": "loop.steps=2 loop.batch=8",
    r"minutes = [\d.]+": "steps = 2",
    r"--minutes \d+": "--minutes 0",
    r"\bminutes=\d+": "minutes=0",
    r"compile = true": "compile = false",
    r"batch_tokens = [\d_]+": "batch_tokens = 256",
    r"--vocab-size \d+": "--vocab-size 400",
}
COMMENT = re.compile(r"(^|\s)#(\s.*|$)")


@dataclass(frozen=True)
class Block:
    """A fenced block: where it stands, its language, its text, and why it is not run (None: it is)."""

    page: str
    line: int
    language: str
    title: str
    text: str
    not_run: str | None = None

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def is_run(self) -> bool:
        return self.not_run is None

    @property
    def commands(self) -> list[str]:
        """Lines with their continuations, without comments."""
        joined = re.sub(r"\\\n\s*", "", self.text)
        lines = (COMMENT.sub("", line).strip() for line in joined.splitlines())
        return [line for line in lines if line]


def pages() -> list[Path]:
    found = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [path for path in found if path.name not in GENERATED]


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def blocks(path: Path) -> list[Block]:
    text = path.read_text(encoding="utf-8")
    return [
        Block(
            name_of(path),
            text.count("\n", 0, found.start()) + 1,
            found[3] or guessed(found[5]),
            "".join(re.findall(r'title="([^"]+)"', found[4])),
            _unindented(found[5], len(found[2])),
            found[1],
        )
        for found in BLOCK.finditer(text)
    ]


def guessed(text: str) -> str:
    """The README is read as plain text too, so its blocks may be bare: commands, or a listing."""
    return "bash" if text.startswith(COMMANDS) else ""


def shortened(text: str) -> str:
    for long, short in SHORTER.items():
        text = re.sub(long, short, text)
    return text


def _unindented(text: str, by: int) -> str:
    return "".join(line[by:] if line[:by].isspace() else line for line in text.splitlines(keepends=True))
