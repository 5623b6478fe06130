"""Differences between two systems, from the values that were kept."""

import json
import lzma
import sys
from pathlib import Path

import pytest

HOME = Path(__file__).parents[2] / "experiments" / "encoders"


@pytest.fixture
def differences(monkeypatch):
    monkeypatch.syspath_prepend(str(HOME))
    import differences

    yield differences
    sys.modules.pop("differences", None)


def test_questions_are_paired_by_their_ids_and_every_difference_is_corrected(
    differences, tmp_path, capsys, monkeypatch
):
    ids = [f"q{i}" for i in range(40)]
    systems = {"a": {id: [0.75, 1.0] for id in ids}, "b": {id: [0.5, 1.0] for id in reversed(ids)}}
    with lzma.open(tmp_path / "queries.jsonl.xz", "wt") as file:
        for name, queries in systems.items():
            row = {
                "set": "s",
                "split": "test",
                "system": name,
                "measures": ["nDCG@10", "R@100"],
                "queries": queries,
            }
            file.write(json.dumps(row) + "\n")
    monkeypatch.setattr(sys, "argv", ["differences.py", str(tmp_path), "a=b", "a=a"])
    differences.main()
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].startswith("| a against b | s | +0.250 | +0.250 to +0.250 |")
    assert lines[3] == "| a against a | s | +0.000 | +0.000 to +0.000 | 1.000 |"
    monkeypatch.setattr(sys, "argv", ["differences.py", str(tmp_path), "a=c"])
    with pytest.raises(SystemExit, match="2"):
        differences.main()
    assert "there is no 'c'" in capsys.readouterr().err
