"""Similarity files as their tasks publish them: STS 2012–2016, SICK, and STS benchmark's own csv.

STS years: `STS.input.NAME.txt` (two sentences, tab) beside `STS.gs.NAME.txt` (a score a line, blank where not judged).
SICK: tab-separated with a header, `relatedness_score` from 1 to 5; the file of all pairs names the set of each. STS
benchmark: tab-separated genre, file, year, number, score, sentence, sentence. (The csv of sentence,sentence,score is
read by `liebig.data`.)
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from liebig.data.fields import as_score
from liebig.data.items import Where
from liebig.data.lines import lines, text_lines
from liebig.data.sources import DiskSource
from liebig.errors import DataError
from liebig.records import ScoredPair

SICK_COLUMNS = ("sentence_A", "sentence_B", "relatedness_score")
SICK_SET = "SemEval_set"
SICK_SETS = {"train": "TRAIN", "dev": "TRIAL", "test": "TEST"}


def is_sts_folder(path: Path) -> bool:
    """Whether a path is one of these: a folder with STS.input files, a SICK file, or STS benchmark's own csv."""
    if path.is_dir():
        return any(path.glob("STS.input.*.txt"))
    return path.is_file() and path.suffix in (".txt", ".csv") and (_is_sick(path) or _is_benchmark(path))


def read_folder(path: Path, split: str = "test") -> Iterator[ScoredPair]:
    """The scored pairs of any of them; of SICK's file of all pairs, those of a split."""
    if path.is_dir():
        for inputs in sorted(path.glob("STS.input.*.txt")):
            yield from read_year(inputs, inputs.with_name(inputs.name.replace("STS.input.", "STS.gs.")))
    elif _is_sick(path):
        yield from read_sick(path, split)
    else:
        yield from read_benchmark(path)


def read_year(inputs: Path, gold: Path) -> Iterator[ScoredPair]:
    """One set of STS 2012–2016; pairs without a score were not judged and are left out."""
    if not gold.is_file():
        raise DataError(
            "the gold scores are missing", file=gold, fix="put the STS.gs file beside its STS.input file"
        )
    texts, scores = list(lines(DiskSource(inputs))), list(lines(DiskSource(gold)))
    if len(texts) != len(scores):
        raise DataError(
            f"there are {len(texts)} pairs and {len(scores)} scores", file=gold, fix="copy both files again"
        )
    for (number, line), (_, score) in zip(texts, scores):
        if score.strip():
            fields = line.split("\t")
            if len(fields) < 2:
                where = Where(str(inputs), number)
                where.refuse("the line has no two sentences with a tab between", "copy the file again")
            yield ScoredPair(fields[0], fields[1], as_score(score.strip(), Where(str(gold), number)))


def read_sick(path: Path, split: str) -> Iterator[ScoredPair]:
    """The pairs of a SICK file; where it has all sets in one, those of the split."""
    rows = text_lines(DiskSource(path))
    header = next(rows)[1].split("\t")
    first, second, score = (header.index(name) for name in SICK_COLUMNS)
    place = header.index(SICK_SET) if SICK_SET in header else None
    for number, line in rows:
        fields, where = line.split("\t"), Where(str(path), number)
        if len(fields) != len(header):
            where.refuse(
                f"the line has {len(fields)} columns instead of {len(header)}", "copy the file again"
            )
        if place is None or fields[place] == SICK_SETS.get(split):
            yield ScoredPair(fields[first], fields[second], as_score(fields[score], where))


def read_benchmark(path: Path) -> Iterator[ScoredPair]:
    """The pairs of sts-train.csv, sts-dev.csv or sts-test.csv."""
    for number, line in text_lines(DiskSource(path)):
        fields, where = line.split("\t"), Where(str(path), number)
        if len(fields) < 7:
            where.refuse(f"the line has {len(fields)} columns instead of 7", "copy the file again")
        yield ScoredPair(fields[5], fields[6], as_score(fields[4], where))


def _head(path: Path) -> list[str]:
    with path.open("rb") as file:
        return file.readline(1 << 16).decode("utf-8", "replace").rstrip("\r\n").split("\t")


def _is_sick(path: Path) -> bool:
    return set(SICK_COLUMNS) <= set(_head(path))


def _is_benchmark(path: Path) -> bool:
    fields = _head(path)
    return len(fields) >= 7 and fields[0].startswith("main-")
