"""Builds of `experiments/adaptation` with a cross-encoder: asked as served, and with both scores."""

from __future__ import annotations

import json
import lzma
import sys
from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest

from liebig.model.cross_encoder import CrossEncoder

SCRIPTS = Path(__file__).parents[2] / "experiments" / "adaptation"
WORDS = ("plum", "river", "stone", "bread", "comet", "salt", "wheat", "glass", "horse", "tower")


@pytest.mark.parametrize("served", [False, True])
def test_a_build_with_a_cross_encoder_is_asked_with_it_and_without(
    small_model, tmp_path, monkeypatch, served
):
    monkeypatch.syspath_prepend(str(SCRIPTS))
    monkeypatch.delitem(sys.modules, "builds", raising=False)
    import builds

    def ask(result, *rest):
        result.checks["choice"]["system"] = "reranked" if served else "hybrid"
        return asked_of(result, *rest)

    asked_of = builds.asked_of
    monkeypatch.setattr(builds, "asked_of", ask)

    data = tmp_path / "data" / "toy"
    (data / "qrels").mkdir(parents=True)
    texts = [f"The {a} of the {b} is old." for a in WORDS for b in WORDS if a != b]
    for name, rows in {
        "corpus": [{"_id": f"p{i}", "title": "", "text": text} for i, text in enumerate(texts)],
        "queries": [{"_id": f"q{i}", "text": " ".join(texts[i].split()[1:5])} for i in range(0, 80, 8)],
    }.items():
        with lzma.open(data / f"{name}.jsonl.xz", "wt") as file:
            file.write("".join(json.dumps(row) + "\n" for row in rows))
    judged = "".join(f"q{i}\tp{i}\t1\n" for i in range(0, 80, 8))
    (data / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + judged)
    CrossEncoder.start(small_model, length=64).save(tmp_path / "cross")

    given = Namespace(
        split=["test"], labels=0, most=None, one_folder=False, name="judge", minutes=0, teacher=None, texts=None,
        keep=False, model=str(small_model), reranker=str(tmp_path / "cross"), depth=4,
    )  # fmt: skip
    [row] = builds.one(data.parent, tmp_path / "out", "toy", 0, given)
    [name] = [name for name in row["systems"] if name.endswith(", reranked")]
    assert row["questions"] == 10
    assert name in [line["system"] for line in row["compared"]], "as predicted, and as it is"
    values = np.load(tmp_path / "out" / "toy-judge-0.npz")
    assert values[name].mean() == pytest.approx(row["systems"][name], abs=1e-4)
    assert (row["chosen"] == name) == served
