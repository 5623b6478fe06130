"""The rule of the check: its constants are those that the stored measurements give, and it decides as the page says."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from liebig.builder import decide, signs

HERE = Path(__file__).parents[2] / "experiments" / "check"


@pytest.fixture(scope="module")
def fit():
    sys.path.insert(0, str(HERE))
    try:
        import fit
    finally:
        sys.path.remove(str(HERE))
    return fit


@pytest.fixture(scope="module")
def measured(fit):
    names, cases = fit.read(HERE / fit.MEASURED)
    return names, [case for case in cases if case.signs["unread"] <= signs.UNREADABLE]


def test_the_constants_are_fitted_from_the_stored_measurements(fit, measured):
    names, cases = measured
    changes = fit.trials(*fit.BUILDS)
    made = fit.tree(fit.fit(cases, names, fit.KINDS, changes))
    stored = json.loads(Path(decide.__file__).with_name("decide.json").read_text())
    assert made.keys() == stored.keys()
    for name in ("mean", "prior", "misjudged", "shape", "scatter"):
        assert np.array(made[name]) == pytest.approx(np.array(stored[name]), abs=1e-5)
    for name in ("names", "changes"):
        assert made[name] == stored[name] or tuple(made[name]) == tuple(stored[name])


@pytest.mark.parametrize(
    ("some", "gain", "regret", "share"), [(False, 0.022, 0.0085, 0.01), (True, 0.026, 0.0055, 0.02)]
)
def test_sources_that_were_left_out_are_decided_as_the_page_says(fit, measured, some, gain, regret, share):
    names, cases = measured
    made = fit.outcomes(cases, names, fit.KINDS, some)
    weights = fit.weights_of([one.case for one in made])
    assert weights @ np.array([one.true[one.choice] for one in made]) >= gain
    assert weights @ np.array([one.regret for one in made]) <= regret
    assert weights @ np.array([one.honest_regret for one in made]) <= 0.005
    losses = np.array([one.loss for one in made])
    assert (losses > fit.HARM).mean() <= share
    assert losses.max() <= 0.030
    assert not [one.case.name for one in made if one.is_harm]
    (is_better,) = (true for said, true, _ in fit.calibration(made) if 0.85 <= said < 0.95)
    assert 0.85 <= is_better <= 0.95
