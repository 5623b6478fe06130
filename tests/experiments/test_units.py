"""Units of cosines from kept lists of hits: the gain of a unit is that of the hybrid with it."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from liebig.builder.questions import OWN
from liebig.search.systems import SPREAD_TIMES

SCRIPTS = Path(__file__).parents[2] / "experiments" / "adaptation"


@pytest.fixture
def asked(monkeypatch):
    """Two questions: BM25 has the wrong passage first, vectors the right one, by .1 and by .3."""
    monkeypatch.syspath_prepend(str(SCRIPTS))
    for name in ("builds", "corpus", "units"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    from units import Asked

    vectors = np.array([[0.9, 0.8, 0.7], [0.9, 0.6, 0.5]], np.float32)
    lists = {
        "people-kinds": np.array([OWN, OWN]),
        "people-relevant": np.array([1, 1]), "people-relevant-of": np.array([0, 1]),
        "people-bm25-ids": np.array([[2, 1, -1]] * 2), "people-bm25-scores": np.array([[2.0, 1.5, 0.0]] * 2),
        "people-dense-ids": np.array([[1, 2, 3]] * 2), "people-dense-scores": vectors,
    }  # fmt: skip
    return Asked(lists, "people")


def test_the_unit_is_the_mean_or_the_median_and_may_leave_out_what_is_known(asked):
    assert asked.unit("mean") == pytest.approx(SPREAD_TIMES * 0.3, rel=1e-5)  # scores are float32
    assert asked.unit("others") == pytest.approx(SPREAD_TIMES * 0.1, rel=1e-5)


def test_a_larger_unit_gives_vectors_less_weight(asked):
    """BM25 says .25 for the wrong passage; vectors say .1 and .3 for the right one, over the unit."""
    first_only, both = asked.gains(0.6), asked.gains(0.2)
    assert first_only[0] < first_only[1]
    assert both[0] == both[1] == first_only[1]
