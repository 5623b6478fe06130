"""The trials that choose liebig-small's pairs: all alike but for the pairs, and the best one becomes its recipe."""

import json
import sys
from pathlib import Path

import pytest

from liebig import pipeline
from liebig.stages import STAGES

ROOT = Path(__file__).parents[2]
HOME = ROOT / "experiments" / "encoders"
TRIALS = ("cloze", "cloze-kept", "both", "both-kept", "both-sharp")


@pytest.fixture
def choose(monkeypatch):
    monkeypatch.syspath_prepend(str(HOME))
    import choose

    yield choose
    sys.modules.pop("choose", None)


def planned(recipe, overrides=()):
    stages = pipeline.plan(STAGES, recipe, list(overrides), Path("runs"))
    return {stage.name: stage.config for stage in stages}


def test_trials_differ_in_their_pairs_and_temperature_alone():
    trials = planned(HOME / "contrast.toml")
    alike = {
        trials[name].model_dump_json(exclude={"source": True, "mix": True, "objective": {"temperature"}})
        for name in TRIALS
    }
    assert len(alike) == 1
    assert set(trials) == {"wiki", "store", *TRIALS}


@pytest.mark.parametrize("name", TRIALS)
def test_the_best_trial_becomes_the_recipe_of_small(choose, tmp_path, monkeypatch, capsys, name):
    value = {"squad-wiki": {"RR@10": 0.1}}
    means = dict.fromkeys(TRIALS, value) | {name: {"squad-wiki": {"RR@10": 0.2}}}
    means["bm25"] = means[f"{name} + bm25 (rrf)"] = {"squad-wiki": {"RR@10": 0.9}}
    (tmp_path / "results.json").write_text(json.dumps({"split": "dev", "means": means}))
    monkeypatch.setattr(sys, "argv", ["choose.py", str(tmp_path / "results.json")])
    choose.main()
    words = capsys.readouterr().out.splitlines()
    small = planned(ROOT / "recipes" / "encoders" / "small.toml", words)["unsupervised"]
    trial = planned(HOME / "contrast.toml")[name]
    assert (small.source, small.objective) == (trial.source, trial.objective)
    assert small.mix == trial.mix or small.source.kind != "mixture"
