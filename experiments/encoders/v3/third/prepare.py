"""What `train.py` reads, as files in folders of at most 34 MiB: texts, teachers, evaluation sets with BM25's answers.

    python experiments/encoders/v3/prepare.py sets --data DATA --work WORK
    python experiments/encoders/v3/prepare.py texts --data DATA --work WORK
    python experiments/encoders/v3/prepare.py chunks --work WORK --teachers DIR --out OUT

`sets` reads every evaluation set with Liebig and asks BM25 its questions. `texts` takes DATA/general, a sixth of
Wikipedia, a sample of the Windows documentation and the training questions of SQuAD and NQ, without rows that share
running words with an evaluation set. `chunks` divides all of it, in the order of use; WORK/bert-tokenizer.json is the
tokenizer.json of bert-base-uncased.
"""

from __future__ import annotations

import argparse
import csv
import json
import lzma
import random
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

HERE = Path(__file__).parent
ROOT = Path(__file__).resolve().parents[4]
START = ROOT / "src" / "liebig" / "encoders" / "mini-v3"
CHUNK = 34 * 1024**2
WORD = re.compile(r"[a-z0-9]+")
QUESTION_RUN, DOCUMENT_RUN = 8, 13  # running words that a text may not share with a question or a document
DEV = ("medquad", "scifact", "cranfield", "squad", "cosqa")
TEST = (*DEV, "vaswani", "trec-dl21", "semeval-cqa")
PAGES = 3000
WIKI = "articles-2.jsonl.xz"  # the runs before had the first two parts


def rows(path: Path) -> Iterator[dict[str, Any]]:
    with lzma.open(path, "rt", encoding="utf-8") as file:
        yield from map(json.loads, file)


def write(path: Path, values: Iterator[Any] | list[Any]) -> None:
    with lzma.open(path, "wt", encoding="utf-8", preset=5) as file:
        file.writelines(
            json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n" for value in values
        )
    print(f"{path.name}: {path.stat().st_size / 1e6:.1f} MB", flush=True)


def sets(data: Path, work: Path) -> None:
    """Every evaluation set: passages, and of each split questions, judgements and the best 100 by BM25."""
    sys.path.append(str(HERE.parent))
    import evaluate as judge

    target = work / "sets"
    target.mkdir(parents=True, exist_ok=True)
    for name in TEST:
        if (target / f"{name}.jsonl.xz").exists():
            continue
        values: list[Any] = []
        for split in ("dev", "test"):
            if split == "dev" and name not in DEV:
                continue
            one = judge.read_set(data, name, split, work / "bm25")
            places = {passage.id: number for number, passage in enumerate(one.passages)}
            if not values:
                values.append([f"{passage.title} {passage.text}".strip() for passage in one.passages])
            values.append(split_of(data, name, split, one, places, work))
        write(target / f"{name}.jsonl.xz", values)
    for split in ("dev", "test"):
        shutil.copyfile(data / "stsb" / f"{split}.csv.xz", target / f"stsb-{split}.csv.xz")


def split_of(
    data: Path, name: str, split: str, one: Any, places: dict[str, int], work: Path
) -> dict[str, Any]:
    """A split's questions, what is relevant to each, and BM25's answers."""
    import splits

    folder = splits.folder(data, name, work / "splits")
    grades: dict[str, dict[int, int]] = {}
    for line in (folder / "qrels" / f"{split}.tsv").read_text(encoding="utf-8").splitlines()[1:]:
        query, passage, grade = line.split("\t")
        if int(grade) > 0:
            grades.setdefault(query, {})[places[passage]] = int(grade)
        else:
            grades.setdefault(query, {})
    return {
        "split": split,
        "queries": [query.text for query in one.queries],
        "grades": [list(map(list, grades[query.id].items())) for query in one.queries],
        "bm25": [[[places[id], round(score, 4)] for id, score in hits] for hits in one.bm25],
    }


def paragraphs(text: str, rng: random.Random) -> Iterator[str]:
    """Passages of whole paragraphs, of up to some length."""
    part: list[str] = []
    limit = rng.choice((500, 900, 1400, 2000))
    for line in filter(None, (piece.strip() for piece in text.split("\n"))):
        if line.startswith(("#", "|", "```")):
            continue
        if part and sum(map(len, part)) + len(line) > limit:
            yield "\n".join(part)
            part, limit = [], rng.choice((500, 900, 1400, 2000))
        part.append(line[:limit])
    if part:
        yield "\n".join(part)


class Kept:
    """What evaluation sets have: runs of words of their questions and documents, and whole short texts, as numbers."""

    def __init__(self, data: Path, work: Path) -> None:
        self.words: dict[str, int] = {}
        self.factors = np.random.default_rng(0).integers(1, 2**63, DOCUMENT_RUN, dtype=np.uint64) | np.uint64(
            1
        )
        questions, documents = [], []
        for path in sorted((work / "sets").glob("*.jsonl.xz")):
            with lzma.open(path, "rt", encoding="utf-8") as file:
                passages, *parts = map(json.loads, file)
            documents += passages
            questions += [query for part in parts for query in part["queries"]]
        for split in ("dev", "test"):
            with lzma.open(data / "stsb" / f"{split}.csv.xz", "rt", encoding="utf-8") as file:
                questions += [text for row in csv.reader(file) for text in row[:2]]
        self.whole = {tuple(WORD.findall(text.lower())) for text in (*questions, *documents)}
        self.runs = {
            QUESTION_RUN: self.all_runs(questions, QUESTION_RUN),
            DOCUMENT_RUN: self.all_runs(documents, DOCUMENT_RUN),
        }

    def numbers(self, words: Sequence[str]) -> NDArray[np.uint64]:
        known = self.words
        return np.array([known.setdefault(word, len(known) + 1) for word in words], np.uint64)

    def hashes(self, numbers: NDArray[np.uint64], run: int) -> NDArray[np.uint64]:
        """One number for each run of words: a sum of their numbers, scrambled, each with its own factor."""
        total = np.zeros(max(0, len(numbers) - run + 1), np.uint64)
        for place in range(run):
            part = numbers[place : place + len(total)] * self.factors[place]
            total += (part ^ (part >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
        return total

    def all_runs(self, texts: Sequence[str], run: int) -> NDArray[np.uint64]:
        return np.unique(
            np.concatenate([self.hashes(self.numbers(WORD.findall(t.lower())), run) for t in texts])
        )

    def shares(self, texts: Sequence[str]) -> list[bool]:
        """Of each text whether it has a run of words of an evaluation set, or is one of its texts."""
        rows = [WORD.findall(text.lower()) for text in texts]
        flat = self.numbers([word for row in rows for word in row])
        ends = np.cumsum([len(row) for row in rows])
        out = np.array([len(row) >= 4 and tuple(row) in self.whole for row in rows])
        for run, known in self.runs.items():
            hashes = self.hashes(flat, run)
            places = np.flatnonzero(known[np.searchsorted(known, hashes).clip(max=len(known) - 1)] == hashes)
            owners = np.searchsorted(ends, places, side="right")
            out[owners[places + run <= ends[owners]]] = True  # runs that lie in one text
        return out.tolist()


def without(kept: Kept, path: Path, target: Path) -> None:
    """A file's rows that share nothing with an evaluation set; of an article, its paragraphs."""
    values = list(rows(path))
    if "sections" in values[0]:
        parts = [section for row in values for section in row["sections"]]
        marks = kept.shares([text for section in parts for text in section["p"]])
        each = iter(marks)
        for section in parts:
            section["p"] = [text for text in section["p"] if not next(each)]
    else:
        marks = kept.shares([row["text"] for row in values])
        values = [row for row, mark in zip(values, marks) if not mark]
    if any(marks):
        write(target, values)
    else:
        shutil.copyfile(path, target)
    print(f"{path.name}: {sum(marks)} of {len(marks)} left out", flush=True)


def texts(data: Path, work: Path) -> None:
    """Files of texts, each `{"text", "title"?, "kind"}`; articles of Wikipedia stay as they are."""
    target = work / "texts"
    target.mkdir(parents=True, exist_ok=True)
    rng = random.Random(4)
    pages = list(rows(data / "win32" / "docs.jsonl.xz"))
    write(work / "win32.jsonl.xz", [
        {"text": part, "title": page["title"], "kind": "passage"}
        for page in rng.sample(pages, PAGES) for part in list(paragraphs(page["text"], rng))[:4] if len(part) > 80
    ])  # fmt: skip
    del pages
    train = {
        line.split("\t")[0] for line in (data / "squad" / "qrels" / "train.tsv").read_text().splitlines()[1:]
    }
    asked = [row["text"] for row in rows(data / "squad" / "queries.jsonl.xz") if row["_id"] in train]
    asked += [row["text"] for row in rows(data / "nq" / "train.jsonl.xz")]
    write(work / "nq_squad_questions.jsonl.xz", [{"text": text, "kind": "question"} for text in asked])
    kept = Kept(data, work)
    own = [work / name for name in ("win32.jsonl.xz", "nq_squad_questions.jsonl.xz", "captions.jsonl.xz")]
    for path in (data / "wiki" / WIKI, *own, *sorted((data / "general").glob("*.xz"))):
        without(kept, path, target / path.name.replace(WIKI, "wiki.jsonl.xz"))


def chunks(work: Path, teachers: Path, out: Path) -> None:
    """Everything in folders of at most CHUNK bytes; a file that does not fit is cut into parts."""
    for old in out.glob("c[0-9]*"):
        shutil.rmtree(old)
    files = [("student/tokenizer.json", START / "tokenizer.json")]
    files += [("student/bert-tokenizer.json", work / "bert-tokenizer.json")]
    files += [
        (f"texts/{path.name}", path)
        for path in sorted((work / "texts").glob("*.xz"), key=lambda p: -p.stat().st_size)
    ]
    files += [(f"teachers/{name}.npz.z", teachers / f"{name}.npz.z") for name in ("minilm", "bge", "mpnet")]
    files += [(f"sets/{path.name}", path) for path in sorted((work / "sets").glob("*.xz"))]
    number, room, names = 0, CHUNK, []
    for name, path in files:
        rest = path.read_bytes()
        names.append([name, len(rest)])
        part = 0
        while True:
            piece, rest = rest[:room], rest[room:]
            target = out / f"c{number}" / f"{name}.{part:03d}"
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(piece)
            room -= len(piece)
            part += 1
            if room < 4096:
                number, room = number + 1, CHUNK
            if not rest:
                break
    (out / "files.json").write_text(json.dumps({"files": names, "chunks": number + 1}))
    for folder in sorted(out.glob("c[0-9]*")):
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        print(
            folder.name,
            f"{size / 1024**2:.2f} MiB",
            sorted({str(p.relative_to(folder)).split(".")[0] for p in folder.rglob("*") if p.is_file()}),
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=("sets", "texts", "chunks"))
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--teachers", type=Path)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    if args.part == "chunks":
        chunks(args.work, args.teachers, args.out)
    else:
        {"sets": sets, "texts": texts}[args.part](args.data, args.work)


if __name__ == "__main__":
    main()
