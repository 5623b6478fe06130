"""A small retriever, ways to damage its files, and builds that are killed: shared by tests and `make torture`.

A damaged file is put back afterwards, so one folder serves all cases. A killed process is forked from a server that has
imported everything, so a kill at a random moment meets the work, not the imports.
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from liebig.base import pipeline, workspace
from liebig.base.errors import LiebigError
from liebig.base.progress import set_volume
from liebig.builder.build import BuildConfig, build
from liebig.builder.update import update
from liebig.model.encoder import Encoder
from liebig.search.retriever import Retriever
from liebig.search.retriever_folder import NAME, PARTS, read
from liebig.stages import STAGES
from liebig.text.tokenizer import Tokenizer
from tests.worlds import kill_points
from tests.worlds.models import TEXTS, tiny
from tests.worlds.processes import PATIENCE, SERVER
from tests.worlds.smoke import ROOT

TOPICS = ["barley", "steam", "comet", "violin", "glacier", "harbour"]
QUESTIONS = ["the origin of the comet", "violin strings"]
# What answers do not depend on: its damage may go unnoticed, as long as the answers stay the same.
UNREAD = (workspace.MANIFEST, "README.md", "checks.json", "questions.jsonl", "summary.json")


def write_documents(folder: Path, topics: list[str]) -> Path:
    """A Markdown file for each topic."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, topic in enumerate(topics):
        text = (
            f"# The book of {topic}\n\n## Origin of {topic}\n\nIt is {number + 3} centuries since {topic} came.\n\n"
            f"## Use of {topic}\n\nEvery house keeps some {topic}. Children learn about {topic} at school.\n"
        )
        (folder / f"{topic}.md").write_text(text, encoding="utf-8")
    return folder


def write_model(folder: Path) -> Path:
    """A tiny random encoder that knows the letters of the documents."""
    letters = " ".join("abcdefghijklmnopqrstuvwxyz0123456789")
    words = Tokenizer.train([*TEXTS, letters, letters.replace(" ", "")] * 3, vocab_size=240, max_length=64)
    made = Encoder(tiny("bert", vocab_size=words.vocab_size), words, pooling="mean", max_length=64)
    made.save(folder)
    return folder


def build_retriever(source: Path, model: Path, out: Path) -> None:
    """Build without training, which is deterministic."""
    config = BuildConfig(sources=(str(source),), model=str(model), minutes=0)
    build(config, out, lambda line: None)


def build_with_teacher(source: Path, model: Path, teacher: Path, out: Path) -> None:
    """Build with a teacher and a moment of training."""
    config = BuildConfig(sources=(str(source),), model=str(model), teacher=str(teacher), minutes=0.05)
    build(config, out, lambda line: None)


def update_retriever(out: Path) -> None:
    """Take in what has changed."""
    update(out, [], lambda line: None)


def answers(folder: Path) -> list[list[tuple[str, float]]]:
    """Ids and scores of every system, from a retriever that is opened anew."""
    retriever = Retriever.from_folder(folder)
    found = retriever.search_systems(QUESTIONS, 8, ["bm25", "dense", "hybrid"])
    return [[(result.id, result.score) for result in row] for system in found for row in system]


@dataclass(frozen=True)
class Damage:
    """One way to damage a file."""

    how: str
    data: bytes


def damages(data: bytes, cuts: int, flips: int, rng: random.Random) -> Iterator[Damage]:
    """The file cut off at some lengths, and with single bits flipped."""
    lengths = {0, len(data) - 1, *(rng.randrange(len(data)) for _ in range(cuts))} if data else set()
    for length in sorted(lengths)[: cuts + 1]:
        yield Damage(f"cut to {length} of {len(data)} bytes", data[:length])
    for _ in range(flips if data else 0):
        place, bit = rng.randrange(len(data)), rng.randrange(8)
        changed = bytearray(data)
        changed[place] ^= 1 << bit
        yield Damage(f"bit {bit} of byte {place} flipped", bytes(changed))


def described_files(folder: Path) -> list[Path]:
    """Every file of every part of a retriever; retriever.json apart, which people may edit."""
    description = read(folder)
    parts = [folder / str(getattr(description, part)) for part in PARTS if getattr(description, part)]
    return [path for part in parts for path in sorted(part.rglob("*")) if path.is_file()]


def outcome(folder: Path, path: Path, damage: Damage, expected: list[list[tuple[str, float]]]) -> str:
    """`refused` by an error of ours that names the file or its part, `same` answers, or what went wrong."""
    before = path.read_bytes()
    path.write_bytes(damage.data)
    try:
        found = answers(folder)
    except LiebigError as error:
        part = path.relative_to(folder).parts[0]
        return "refused" if part in str(error) else f"refused without naming the file: {error}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    finally:
        path.write_bytes(before)
    if found != expected:
        return "loaded, with other answers"
    return "same" if path.name in UNREAD else "loaded without a word"


def corrupt(folder: Path, cuts: int, flips: int, seed: int) -> dict[str, list[str]]:
    """The outcomes of damaging every file, each with the cases that had it."""
    rng, expected = random.Random(seed), answers(folder)
    found: dict[str, list[str]] = {}
    for path in described_files(folder):
        for damage in damages(path.read_bytes(), cuts, flips, rng):
            case = f"{path.relative_to(folder)}: {damage.how}"
            found.setdefault(outcome(folder, path, damage, expected), []).append(case)
    return found


def contents(folder: Path) -> dict[str, str]:
    """What a run made, without times: the digest of every stage, and every other file."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.name == workspace.MANIFEST:
            found[str(path.parent.relative_to(folder))] = workspace.verify(path.parent).digest
        elif not any((parent / workspace.MANIFEST).is_file() for parent in path.parents) and path.is_file():
            found[str(path.relative_to(folder))] = workspace.digest(path)
    return found


def finish(function: str, *args: Path) -> float:
    """Run a function to its end in a process of its own; seconds it took."""
    began = time.monotonic()
    process = SERVER.Process(target=_run, args=(function, args), daemon=False)
    process.start()
    process.join(PATIENCE)
    process.kill()  # one that hangs
    process.join()
    assert process.exitcode == 0, f"{function} ended with {process.exitcode}"
    return time.monotonic() - began


def kill(function: str, seconds: float, *args: Path) -> bool:
    """Run a function and kill its process after so many seconds; False if it had finished before."""
    process = SERVER.Process(target=_run, args=(function, args), daemon=False)
    process.start()
    process.join(seconds)
    if process.exitcode is not None:
        return False
    os.kill(process.pid or 0, signal.SIGKILL)
    process.join(PATIENCE)
    return True


def run_one(recipe: Path, out: Path, name: Path) -> None:
    """Run one stage of a recipe, whose other stages are there."""
    os.chdir(ROOT)
    (item,) = (item for item in pipeline.plan(STAGES, recipe, [], out) if item.name == str(name))
    pipeline.run_stage(item.stage, item.config, item.out)


FUNCTIONS: dict[str, Callable[..., None]] = {
    "build": build_retriever,
    "taught": build_with_teacher,
    "update": update_retriever,
    "stage": run_one,
    "points": kill_points.run,
}


def _run(function: str, args: tuple[Path, ...]) -> None:
    import torch

    torch.set_num_threads(1)
    set_volume("quiet")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    FUNCTIONS[function](*args)


def generation(folder: Path) -> int:
    """The generation that readers of a folder see; 0 where there is none yet."""
    return int(json.loads((folder / NAME).read_text())["generation"]) if (folder / NAME).is_file() else 0
