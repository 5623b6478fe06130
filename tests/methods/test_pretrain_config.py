"""Recipes: presets fill what is open, and nonsense is refused with a sentence."""

from __future__ import annotations

import pytest

from liebig.base.config import dump, load, parse
from liebig.base.errors import RecipeError
from liebig.methods.pretraining import PretrainConfig, describe_preset, resolve

NEW = {"kind": "new", "layers": 2, "width": 16, "heads": 2}
MIXTURE = {"kind": "mixture", "parts": [{"source": {"kind": "spans"}}, {"source": {"kind": "crops"}}]}


def recipe(objective="mlm", source="blocks", **rest):
    """A recipe from kinds, or from whole tables."""
    tables = {"objective": objective, "source": source}
    chosen = {name: {"kind": x} if isinstance(x, str) else x for name, x in tables.items()}
    return parse(PretrainConfig, {"model": NEW, "stores": [{"path": "store"}], **chosen, **rest})


NONSENSE = [
    (("cocondenser", "blocks"), {}, "a block is one text"),
    (("simclr", "blocks"), {}, "use spans, crops"),
    (("moco", "crops"), {"batch_tokens": 4096}, "their number must be fixed"),
    (("simclr", "crops"), {"loop": {"batch": 1}}, "nothing to contrast"),
    (("mlm", "blocks"), {"batch_tokens": 4096, "loop": {"batch": 8}}, "not both"),
    (("mlm", "blocks"), {"stores": []}, "name at least one"),
    (("cotmae", {"kind": "spans", "single": "once"}), {}, "needs both spans"),
    (("cotmae", {"kind": "queries", "collection": "c"}), {}, "stores have no effect"),
    (
        ({"kind": "cocondenser", "distinct_documents": True}, {"kind": "spans", "single": "once"}),
        {},
        "no effect",
    ),
    (({"kind": "simclr", "distinct_documents": True}, MIXTURE), {}, "here are several"),
    (
        ({"kind": "cocondenser", "distinct_documents": True}, "spans"),
        {"stores": [{"path": "one"}, {"path": "two"}]},
        "here are several",
    ),
    (("mlm", "block"), {}, "blocks"),
    (
        ("simclr", {"kind": "crops", "shortest": 0.9}),
        {},
        "crops: shortest = 0.9 is more than longest = 0.5",
    ),
    (("simclr", {"kind": "cloze", "shortest": 0.9, "longest": 0.5}), {}, "is more than longest"),
    (("simclr", {"kind": "cloze", "shortest": 0.5}), {}, "shortest needs longest"),
    (({"kind": "cocondenser", "mlm": False, "mlm_weight": 2}, "spans"), {}, "mlm_weight has no effect"),
    (("mlm", "blocks"), {"max_length": 600}, "more than the new model's 512 positions"),
]


@pytest.mark.parametrize("kinds, rest, sentence", NONSENSE)
def test_nonsense_is_refused_with_a_sentence(kinds, rest, sentence):
    with pytest.raises(RecipeError, match=sentence):
        recipe(*kinds, **rest)


def test_the_two_settings_of_contriever():
    zero_shot = resolve(recipe("moco", "crops"))
    fine_tuned = resolve(recipe({"kind": "moco", "setting": "fine-tuned"}, "crops"))
    assert (zero_shot.objective.queue, zero_shot.objective.momentum) == (131_072, 0.9995)
    assert (fine_tuned.objective.queue, fine_tuned.objective.momentum) == (65_536, 0.999)
    assert (zero_shot.source.shortest, fine_tuned.source.shortest) == (0.05, 0.1)
    assert zero_shot.source.delete == 0.2


def test_the_reference_preset_follows_the_released_code():
    paper = resolve(recipe("cocondenser", "spans"))
    reference = resolve(recipe("cocondenser", "spans", preset="reference"))
    assert (paper.objective.mlm_weight, reference.objective.mlm_weight) == (1.0, 2.0)
    assert (paper.mix, reference.mix) == ("batch", "example")
    assert [resolve(recipe(kind, "spans")).mix for kind in ("cotmae", "mlm")] == ["batch", "example"]
    assert resolve(recipe("moco", "crops", preset="reference")).source.delete == 0.1
    queries = {"kind": "queries", "collection": "c"}
    assert resolve(recipe("cotmae", queries, stores=[], preset="reference")).objective.decoder == "causal"
    assert resolve(recipe("cotmae", queries, stores=[])).objective.decoder == "mlm"


def test_what_is_said_in_the_recipe_stays():
    config = recipe({"kind": "moco", "queue": 512, "momentum": 0.5}, {"kind": "crops", "delete": 0.0})
    full = resolve(config)
    assert (full.objective.queue, full.objective.momentum, full.source.delete) == (512, 0.5, 0.0)


def test_the_preset_says_what_it_decided():
    assert describe_preset(recipe("cocondenser", "spans", preset="reference")) == [
        "preset 'reference'",
        "objective.mlm_weight = 2.0",
    ]


def test_the_preset_says_how_several_stores_or_sources_are_mixed():
    stores = [{"path": "one"}, {"path": "two"}]
    assert "mix = batch" in describe_preset(recipe("simclr", "crops", stores=stores))
    assert "mix = example" in describe_preset(recipe("simclr", MIXTURE, preset="reference"))
    assert not any(
        "mix" in line for line in describe_preset(recipe("simclr", "crops", stores=stores, mix="batch"))
    )


def test_a_smaller_largest_crop_than_the_presets_smallest_is_the_only_size():
    assert resolve(recipe("simclr", {"kind": "crops", "longest": 0.04})).source.shortest == 0.04
    assert resolve(recipe("simclr", {"kind": "cloze", "longest": 0.04})).source.shortest == 0.04


def test_crops_are_not_thinned_out_under_masked_language_modelling():
    assert resolve(recipe("cocondenser", "crops")).source.delete == 0.0


@pytest.mark.parametrize("rest", [{"batch_tokens": 4096}, {"loop": {"minutes": 3, "seed": 5}}])
def test_a_plain_recipe_survives_being_written_down(rest, tmp_path):
    path = tmp_path / "recipe.toml"
    path.write_text(dump(recipe(**rest)))
    assert load(PretrainConfig, path) == recipe(**rest)


def test_a_recipe_survives_being_written_down(tmp_path):
    parts = [{"source": {"kind": "spans"}, "weight": 1}, {"source": {"kind": "crops"}, "weight": 2}]
    config = recipe("cocondenser", {"kind": "mixture", "parts": parts})
    path = tmp_path / "recipe.toml"
    path.write_text(dump(config))
    assert load(PretrainConfig, path) == config
