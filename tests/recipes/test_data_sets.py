"""What is known of the papers' data: the checks of `liebig doctor DATA`, and the draw of ABS's part of MS MARCO."""

from __future__ import annotations

import hashlib
import runpy
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from liebig.cli import make_app
from liebig.evaluation.data_sets import check, data_sets, known
from liebig.reproduce import Reproduction, paper_rows
from liebig.stages import STAGES
from tests.worlds import papers

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    return papers.make(tmp_path_factory.mktemp("papers") / "data")


def test_every_set_that_rows_read_is_described(tmp_path):
    work = Reproduction(STAGES, tmp_path, tmp_path / "data")
    for row in paper_rows():
        if row.runs:
            work.add(row)
    names = {name for name in {**work.sources, **work.left_out} if "cqadupstack" not in name}
    assert names <= set(data_sets())


def test_a_set_is_known_by_the_end_of_its_path():
    assert known(Path("/disk/beir/nq")) == data_sets()["data/beir/nq"]
    assert known(Path("/disk/nq")) == data_sets()["data/nq"]
    assert known(Path("/disk/else")) is None


def test_counts_and_hashes_are_compared_and_unknown_ones_said(data):
    folder = data / "msmarco-passage"
    stated = replace(
        data_sets()["data/msmarco-passage"], passages=24, splits={"train": 24, "dev.small": 23}, md5={}
    )
    found = {one.name: one for one in check(folder, stated)}
    assert (found["passages"].what, found["passages"].good) == ("24 of 24", True)
    assert found["split train"].good
    assert not found["split dev.small"].good
    right = hashlib.md5((folder / "qrels.train.tsv").read_bytes(), usedforsecurity=False).hexdigest()
    hashes = {"qrels.train.tsv": right, "corpus.tsv": "0" * 32, "queries.tar.gz": right}
    found = {one.name: one for one in check(folder, replace(stated, md5=hashes))}
    assert found["qrels.train.tsv"].good
    assert not found["corpus.tsv"].good
    assert "not compared" in found["queries.tar.gz"].what
    guess = {one.name: one for one in check(data / "wikipedia", data_sets()["data/wikipedia"])}
    assert "unknown" in guess["documents"].what


def test_doctor_checks_a_data_set(data):
    result = CliRunner().invoke(make_app(), ["doctor", str(data / "msmarco-passage")])
    assert result.exit_code == 1
    assert "WRONG  passages: 24 of 8,841,823" in result.output
    assert CliRunner().invoke(make_app(), ["doctor", str(data / "bert-base-uncased")]).exit_code == 0


def test_the_abs_draw_is_the_same_each_time_and_splits_share_no_query(data, tmp_path):
    script = runpy.run_path(str(ROOT / "recipes" / "draw_abs.py"))
    sizes = {"train": 10, "dev": 4, "test": 3}
    for name in ("one", "two"):
        script["draw"](data / "msmarco-passage", tmp_path / name, sizes, 15, seed=1)
    files = ["corpus.jsonl", "queries.jsonl", *(f"qrels/{split}.tsv" for split in sizes)]
    assert [(tmp_path / "one" / f).read_text() for f in files] == [
        (tmp_path / "two" / f).read_text() for f in files
    ]
    rows = {s: (tmp_path / "one" / "qrels" / f"{s}.tsv").read_text().splitlines()[1:] for s in sizes}
    queries = {split: {row.split("\t")[0] for row in some} for split, some in rows.items()}
    assert {split: len(some) for split, some in queries.items()} == sizes
    assert len(set().union(*queries.values())) == 17
    corpus = (tmp_path / "one" / "corpus.jsonl").read_text()
    assert len(corpus.splitlines()) == 15
    assert all(f'"_id": "{row.split(chr(9))[1]}"' in corpus for some in rows.values() for row in some)
    with pytest.raises(SystemExit, match="fewer than"):
        script["draw"](data / "msmarco-passage", tmp_path / "three", {"train": 99}, 15, seed=1)
