"""Run files are read in pieces, exactly, and with errors that name the line."""

from __future__ import annotations

import contextlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from liebig.base.errors import DataError
from liebig.evaluation.runs import open_run, read_blocks
from liebig.measures.evaluator import RunBlock


def hits_of(blocks: list[RunBlock]) -> list[tuple[str, str, int, float]]:
    return [
        (query.decode(), passage, int(block.hits.ranks[first + i]), float(block.hits.scores[first + i]))
        for block in blocks
        for row, query in enumerate(block.queries)
        for first in [int(block.hits.segments[row])]
        for i, passage in enumerate(block.passages(row))
    ]


def write(tmp_path: Path, text: str | bytes) -> Path:
    path = tmp_path / "run"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize("piece", [1, 7, 30, 64, 1 << 20])
def test_pieces_of_any_size_give_the_same_hits(tmp_path: Path, piece: int) -> None:
    lines = [
        f"query{q} Q0 doc{d} {d + 1} {1 / (d + q + 1)!r} tag" for q in range(9) for d in range(q * 3 % 7 + 1)
    ]
    path = write(tmp_path, "\n".join(lines))
    expected = [(f[0], f[2], int(f[3]), float(np.float32(float(f[4])))) for f in map(str.split, lines)]
    blocks = list(read_blocks(path, piece=piece))
    assert hits_of(blocks) == expected
    assert len({query for block in blocks for query in block.queries}) == sum(
        len(block.queries) for block in blocks
    )


@given(st.lists(st.floats(allow_nan=False, allow_infinity=True), min_size=1, max_size=20), st.data())
def test_scores_become_float32_as_c_reads_them(values: list[float], data: st.DataObject) -> None:
    forms = [
        repr,
        "{:.6f}".format,
        "{:.3e}".format,
        "{:.25g}".format,
        "{:+}".format,
    ]
    texts = [data.draw(st.sampled_from(forms))(value) for value in values]
    path = Path(_folder.name) / "run"
    path.write_text("".join(f"q Q0 d{i} 1 {text} t\n" for i, text in enumerate(texts)))
    with np.errstate(over="ignore"):
        expected = np.array([float(text) for text in texts]).astype(np.float32)
    found = np.concatenate([block.hits.scores for block in read_blocks(path)])
    assert found.tobytes() == expected.tobytes()


@pytest.fixture(autouse=True, scope="module")
def _scratch(tmp_path_factory: pytest.TempPathFactory) -> None:
    _folder.name = str(tmp_path_factory.mktemp("scores"))


class _folder:
    name = ""


def test_white_space_of_any_kind_and_blank_lines_are_fine(tmp_path: Path) -> None:
    path = write(tmp_path, "\r\nq1\tQ0\td1\t1\t2.5\tt\r\n\n  q1 Q0  d2 2 1.5 t \n\nq2 Q0 d1 1 1 t")
    assert hits_of(list(read_blocks(path))) == [
        ("q1", "d1", 1, 2.5),
        ("q1", "d2", 2, 1.5),
        ("q2", "d1", 1, 1.0),
    ]


def test_ms_marco_runs_have_ranks_and_no_scores(tmp_path: Path) -> None:
    path = write(tmp_path, "1\t10\t2\n1\t11\t1\n2\t10\t7\n")
    assert hits_of(list(read_blocks(path, "marco"))) == [
        ("1", "10", 2, -2),
        ("1", "11", 1, -1),
        ("2", "10", 7, -7),
    ]


@pytest.mark.parametrize("text", ["1\t10\t2\n1\t11\t1\n2\t10\t7\n", "1\t10\t20\n2\t12\t1\n1\t11\t1\n"])
def test_ms_marco_runs_are_told_in_any_order_of_lines(tmp_path: Path, text: str) -> None:
    path = write(tmp_path, text)
    assert hits_of(list(open_run(path))) == hits_of(list(read_blocks(path, "marco")))


@pytest.mark.parametrize("text", ["1\t10\t1\n1\t11\t1\n", "1\t10\t1\n2\t11\t1\n", "1\t10\t0\n1\t11\t1\n"])
def test_judgements_are_not_taken_for_a_run(tmp_path: Path, text: str) -> None:
    with pytest.raises(DataError, match="not like a run"):
        open_run(write(tmp_path, text))


def test_runs_of_scores_have_their_place_as_rank(tmp_path: Path) -> None:
    path = write(tmp_path, "a x 0.5\na y 0.25\nb x -1\n")
    assert hits_of(list(read_blocks(path, "scores"))) == [
        ("a", "x", 1, 0.5),
        ("a", "y", 2, 0.25),
        ("b", "x", 1, -1),
    ]


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("q Q0 d 1 0.5", "fewer than 6 columns"),
        ("q Q0 d 1 0.5 t x", "more than 6 columns"),
        ("q Q0 d 1 nan t", "not a number"),
        ("q Q0 d 1 x t", "not a number"),
        ("q Q0 d 1 1.2.3 t", "not a number"),
        ("q Q0 d 1 - t", "not a number"),
        ("q Q0 d 1 1e t", "not a number"),
        ("q Q0 d 1 1ex t", "not a number"),
        ("q Q0 d 1 0x10 t", "not a number"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, line: str, what: str) -> None:
    path = write(tmp_path, f"q Q0 a 1 1 t\nq Q0 b 1 1 t\n{line}\n")
    with pytest.raises(DataError, match=what) as error:
        list(read_blocks(path))
    assert error.value.line == 3
    assert error.value.fix


def test_a_rank_that_is_no_number_matters_only_without_scores(tmp_path: Path) -> None:
    assert len(hits_of(list(read_blocks(write(tmp_path, "q Q0 d x 1 t\n"))))) == 1
    with pytest.raises(DataError, match="rank"):
        list(read_blocks(write(tmp_path, "q d x\n"), "marco"))


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file"):
        list(read_blocks(tmp_path / "nothing"))


@given(st.binary(max_size=300), st.integers(1, 50))
def test_any_bytes_are_read_or_refused(text: bytes, piece: int) -> None:
    path = Path(_folder.name) / "noise"
    path.write_bytes(text)
    with contextlib.suppress(DataError):
        blocks = list(read_blocks(path, piece=piece))
        assert sum(len(block.hits.scores) for block in blocks) <= text.count(b"\n") + 1
