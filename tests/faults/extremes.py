"""Inputs at the edge of size and time: identical documents, filters, a long line, a clock that jumps, no rights."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from liebig.bm25.search import BM25
from liebig.search.retriever import Retriever
from liebig.search.retriever_folder import RetrieverDescription, write
from tests.faults.torture import Tally
from tests.worlds import faults
from tests.worlds.processes import liebig

JUMPS = (0, 946_684_800, 4_102_444_800)  # 1970, 2000 and 2100


def run(tally: Tally, out: Path, documents: int, megabytes: int) -> None:
    """Each once."""
    parts = (
        (identical, documents),
        (filters, 10 * documents),
        (long_line, megabytes),
        (clock, 0),
        (read_only, 0),
    )
    for part, argument in parts:
        home = out / "extremes"
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        tally.save(part(tally, home, argument))
    shutil.rmtree(home)


def identical(tally: Tally, home: Path, count: int) -> list[str]:
    """Many documents of one text: all are indexed, and equal scores come in the order of the file."""
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


def filters(tally: Tally, home: Path, count: int) -> list[str]:
    """Filters that let one, a thousandth or half of very many passages through: the best of those, and no other."""
    out = home / "out"
    (out / "collection").mkdir(parents=True)
    with (
        (out / "collection" / "documents.jsonl").open("w") as documents,
        (out / "collection" / "passages.jsonl").open("w") as passages,
    ):
        for n in range(count):
            metadata = {"number": str(n), "shelf": str(n % 1000), "half": str(n % 2)}
            text = "barley " * (1 + n % 7) + f"and oats of field {n}"
            document = {"id": f"d{n}", "title": "", "sections": [{"heading": "", "paragraphs": [text]}]}
            documents.write(json.dumps(document | {"metadata": metadata}) + "\n")
            passages.write(json.dumps({"id": f"p{n}", "title": "", "text": text, "doc": f"d{n}"}) + "\n")
    done = liebig(["bm25", "out/collection", "--out", "out/bm25"], home)
    if done.returncode:
        return [f"{count} passages: bm25: {done.stderr[-300:]!r}"]
    write(out, RetrieverDescription(1, "bm25", collection="collection", bm25="bm25"))
    retriever, wrong = Retriever.from_folder(out), list[str]()
    for query in ("barley", "oats of field", f"barley field {count - 1}"):
        everything = retriever.search(query, count)
        for kept in (
            {"number": [str(count - 1)]},
            {"shelf": ["7", "8"]},
            {"half": ["1"]},
            {"half": ["1"], "shelf": ["7"]},
        ):
            expected = [
                (result.id, result.score)
                for result in everything
                if all(result.metadata[name] in values for name, values in kept.items())
            ][:20]
            results = [(result.id, result.score) for result in retriever.search(query, 20, filters=kept)]
            tally.add("filtered searches")
            if results != expected:
                wrong.append(f"{query!r}, {kept} of {count}: {results[:3]}, not {expected[:3]}")
    tally.add("passages that are filtered", len(retriever))
    return wrong


def read_only(tally: Tally, home: Path, _: int) -> list[str]:
    """A folder that nobody may write: it is searched, and commands that would write are refused in a sentence."""
    source, model = faults.write_documents(home / "source", faults.TOPICS), faults.write_model(home / "model")
    faults.build_retriever(source, model, home / "out")
    before, wrong = faults.contents(home / "out"), list[str]()
    faults.write_documents(source, ["quince"])
    subprocess.run(["chmod", "-R", "a-w", str(home)], check=True)
    build = ["build", "source", "--model", "model", "--minutes", "0", "--out"]
    commands = {
        ("search", "out", "comet"): 0,
        ("update", "out"): 2,
        (*build, "out"): 2,
        (*build, "new"): 2,
        ("bm25", "out/collection-1", "--out", "out/bm25-1"): 2,
    }
    # Root may write whatever the mode of a folder is, unless it gives that up.
    rights = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.geteuid() == 0 else []
    for words, expected in commands.items():
        command = [*rights, sys.executable, "-m", "liebig", *words]
        done = subprocess.run(command, cwd=home, capture_output=True, text=True, check=False)
        tally.add("commands on a read-only folder")
        said = done.stderr.strip().splitlines() or [""]
        if done.returncode != expected or "Traceback" in done.stderr:
            wrong.append(f"read-only: {' '.join(words)}: {done.returncode}: {done.stderr[-300:]!r}")
        elif expected and "ermission denied" not in said[-1]:
            wrong.append(f"read-only: {' '.join(words)}: {said[-1]!r}")
    subprocess.run(["chmod", "-R", "u+w", str(home)], check=True)
    return wrong if faults.contents(home / "out") == before else [*wrong, "read-only: the folder has changed"]


def long_line(tally: Tally, home: Path, megabytes: int) -> list[str]:
    """A line of this many megabytes: it is read, or left out and named."""
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
