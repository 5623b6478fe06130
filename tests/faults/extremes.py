"""Inputs at the edge of size and time: identical documents, a very long line, a clock that jumps."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

from liebig.bm25.search import BM25
from tests.faults.torture import Tally
from tests.worlds import faults
from tests.worlds.processes import liebig

JUMPS = (0, 946_684_800, 4_102_444_800)  # 1970, 2000 and 2100


def run(tally: Tally, out: Path, documents: int, megabytes: int) -> None:
    """Each once."""
    for part, argument in ((identical, documents), (long_line, megabytes), (clock, 0)):
        home = out / "extremes"
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        tally.save(part(tally, home, argument))
    shutil.rmtree(home)


def identical(tally: Tally, home: Path, count: int) -> list[str]:
    """So many documents of one text: all are indexed, and equal scores come in the order of the file."""
    row = {"title": "Barley", "text": "Barley grows in rows, and barley is sown in March."}
    with (home / "corpus.jsonl").open("w") as file:
        file.writelines(json.dumps({"_id": f"d{number}", **row}) + "\n" for number in range(count))
    for words in (
        ["init", "corpus.jsonl", "--out", "collection"],
        ["bm25", "collection", "--out", "bm25"],
    ):
        done = liebig(words, home)
        if done.returncode:
            return [f"{count} identical documents: {words[0]}: {done.stderr[-300:]!r}"]
    index = BM25.open(home / "bm25")
    ids = [index.id(number) for number, _ in index.search(["barley"], 10).row(0)]
    tally.add("identical documents", len(index))
    return [] if ids == [f"d{number}" for number in range(10)] else [f"identical documents: ranked {ids}"]


def long_line(tally: Tally, home: Path, megabytes: int) -> list[str]:
    """A line of so many megabytes: it is read, or left out and named."""
    with (home / "corpus.jsonl").open("w") as file:
        file.write('{"_id": "short", "text": "barley"}\n{"_id": "long", "text": "')
        for _ in range(megabytes):
            file.write("barley and oats " * (1 << 16))
        file.write('"}\n')
    done = liebig(["init", "corpus.jsonl", "--out", "collection"], home)
    tally.add("megabytes of a line", megabytes)
    tally.add("long lines read" if done.returncode == 0 else "long lines refused")
    fine = done.returncode == 0 or (done.returncode == 2 and "line 2" in done.stderr)
    return [] if fine and "Traceback" not in done.stderr else [f"a long line: {done.stderr[-300:]!r}"]


def clock(tally: Tally, home: Path, _: int) -> list[str]:
    """Files from the past and the future: nothing is made again, and answers stay."""
    source, model = faults.write_documents(home / "source", faults.TOPICS), faults.write_model(home / "model")
    faults.build_retriever(source, model, home / "out")
    faults.update_retriever(home / "out")  # writes its list of changes, which is empty
    before, answers, wrong = faults.contents(home / "out"), faults.answers(home / "out"), list[str]()
    for moment in JUMPS:
        for path in (home / "out").rglob("*"):  # the date of a document is part of its metadata, and stays
            os.utime(path, (moment, moment))
        faults.update_retriever(home / "out")
        tally.add("jumps of the clock")
        if faults.contents(home / "out") != before or faults.answers(home / "out") != answers:
            wrong.append(f"files of the time {moment}: an update changed the folder")
    return wrong
