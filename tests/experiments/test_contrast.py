"""The trials that choose liebig-small's pairs: all alike but for the pairs, and the best one becomes its recipe."""

import json
import sys
from pathlib import Path

import pytest

from liebig.base import pipeline
from liebig.stages import STAGES

ROOT = Path(__file__).parents[2]
HOME = ROOT / "experiments" / "encoders"
TRIALS = {
    "contrast": ("cloze", "cloze-kept", "both", "both-kept", "both-sharp"),
    "neighbours": ("apart", "near", "nearer", "near-spoilt"),
}
CHOICES = [(recipe, name) for recipe, names in TRIALS.items() for name in names]


@pytest.fixture
def choose(monkeypatch):
    monkeypatch.syspath_prepend(str(HOME))
    import choose

    yield choose
    sys.modules.pop("choose", None)


def planned(recipe, overrides=()):
    stages = pipeline.plan(STAGES, recipe, list(overrides), Path("runs"))
    return {stage.name: stage.config for stage in stages}


@pytest.mark.parametrize("recipe", TRIALS)
def test_trials_differ_in_what_they_try_alone(recipe):
    trials = planned(HOME / f"{recipe}.toml")
    tried = {"source": True, "mix": True, "neighbours": True, "objective": {"temperature"}}
    assert len({trials[name].model_dump_json(exclude=tried) for name in TRIALS[recipe]}) == 1
    assert set(trials) - {"wiki", "store"} == set(TRIALS[recipe])


@pytest.mark.parametrize(("recipe", "name"), CHOICES)
def test_the_best_trial_becomes_the_recipe_of_small(choose, tmp_path, monkeypatch, capsys, recipe, name):
    value = {"squad-wiki": {"RR@10": 0.1}}
    means = dict.fromkeys(TRIALS[recipe], value) | {name: {"squad-wiki": {"RR@10": 0.2}}}
    means["bm25"] = means[f"{name} + bm25 (rrf)"] = {"squad-wiki": {"RR@10": 0.9}}
    (tmp_path / "results.json").write_text(json.dumps({"split": "dev", "means": means}))
    trials = HOME / f"{recipe}.toml"
    monkeypatch.setattr(sys, "argv", ["choose.py", str(tmp_path / "results.json"), "--trials", str(trials)])
    choose.main()
    words = capsys.readouterr().out.splitlines()
    small = planned(ROOT / "recipes" / "encoders" / "small.toml", words)["unsupervised"]
    trial = planned(trials)[name]
    assert (small.source, small.objective) == (trial.source, trial.objective)
    assert small.neighbours == trial.neighbours
    assert small.mix == trial.mix or small.source.kind != "mixture"
