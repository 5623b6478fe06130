"""Cross-encoders of every family give sentence-transformers' own numbers, from its folders, transformers' and ours."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer as Core
from transformers import AutoConfig, AutoModelForSequenceClassification

from liebig.base.errors import DataError, LiebigError, ModelError, RecipeError
from liebig.base.records import Passage, Query
from liebig.model.cross_encoder import IDENTITY, SIGMOID, CrossEncoder, longest_first
from liebig.model.encoder import Encoder
from liebig.model.settings import encoder_folder
from liebig.stages.rerank_score import RerankScoreConfig
from liebig.text.tokenizer import Tokenizer
from tests.worlds.models import TEXTS, tiny, tokenizer

LENGTH = 40
FAMILIES = (
    "bert", "roberta", "xlm-roberta", "camembert", "distilbert", "electra", "modernbert", "mpnet",
    "deberta-v2",
)  # fmt: skip
PADDED = ("mpnet", "deberta-v2")
BYTES = ("roberta", "xlm-roberta", "camembert", "mpnet", "modernbert")  # with RoBERTa's tokens around a pair
LONG = " ".join(TEXTS)
PAIRS = [
    ("queries are short", "A retriever condenses a corpus."),
    ("queries are short", LONG),
    (LONG, "Soil."),
    (LONG, LONG[30:]),
    ("x", ""),
    ("The lazy dog.", "The fox jumps over the lazy dog."),
]
Change = Callable[[dict[str, Any]], None]


def words(family: str) -> Tokenizer:
    if family not in BYTES:
        return tokenizer()
    return Tokenizer.train(TEXTS * 3, "bpe", vocab_size=300, max_length=64)


def classifier(folder: Path, family: str = "bert", labels: int = 1, **settings: Any) -> Path:
    """A random sequence classifier in a folder of transformers, whose tokenizer takes 40 tokens."""
    own = words(family)
    start = tiny("bert" if family in PADDED else family, layers=2, vocab_size=own.vocab_size).config
    fields = start.to_dict()
    for name in ("model_type", "architectures", "layer_types", "id2label", "label2id"):
        fields.pop(name, None)
    if family == "deberta-v2":
        fields |= {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 8}
        fields |= {"type_vocab_size": 0, "norm_rel_ebd": "layer_norm", "share_att_key": True}
    if family in ("roberta", "xlm-roberta", "camembert", "mpnet"):
        fields |= {"pad_token_id": own.pad, "max_position_embeddings": 64 + own.pad + 1}
    config = AutoConfig.for_model(family, **fields | settings, num_labels=labels)
    torch.manual_seed(labels)
    with torch.random.fork_rng():
        model = AutoModelForSequenceClassification.from_config(config).eval()
    model.save_pretrained(folder)
    own.save(folder, max_length=LENGTH)
    return folder


def of_modules(folder: Path, family: str = "modernbert", labels: int = 1, pooling: str = "cls") -> Path:
    """A cross-encoder of modules, as sentence-transformers saves it: no class of transformers has its head."""
    from sentence_transformers import CrossEncoder as Theirs
    from sentence_transformers.base.modules import Dense, Transformer
    from sentence_transformers.sentence_transformer.modules import LayerNorm, Pooling

    own = words(family)
    inside = folder.parent / f"{folder.name}-start"
    backbone = tiny(family, layers=2, vocab_size=own.vocab_size)
    backbone.model.save_pretrained(inside)
    own.save(inside, max_length=LENGTH)
    with torch.random.fork_rng():
        torch.manual_seed(labels)
        modules = [
            Transformer(str(inside)),
            Pooling(backbone.width, pooling_mode=pooling),
            Dense(backbone.width, 24, bias=False, activation_function=torch.nn.GELU()),
            LayerNorm(24),
            Dense(24, labels, activation_function=torch.nn.Identity(), module_output_name="scores"),
        ]
    torch.nn.init.normal_(modules[3].norm.weight)
    Theirs(modules=modules, device="cpu", max_length=LENGTH).save_pretrained(str(folder))
    return folder


def edit(path: Path, change: Change) -> None:
    content = json.loads(path.read_text()) if path.exists() else {}
    change(content)
    path.write_text(json.dumps(content))


def theirs(folder: Path, pairs: list[tuple[str, str]] = PAIRS) -> np.ndarray[Any, Any]:
    from sentence_transformers import CrossEncoder as Theirs

    values: np.ndarray[Any, Any] = Theirs(str(folder), device="cpu", local_files_only=True).predict(pairs)
    return values


def assert_equal(folder: Path) -> CrossEncoder:
    model = CrossEncoder.load(folder, device="cpu")
    expected = theirs(folder)
    assert np.ptp(expected) > 1e-3, "the model tells pairs apart"
    np.testing.assert_allclose(model.predict(PAIRS), expected, rtol=0, atol=1e-4)
    return model


@pytest.mark.parametrize("labels", [1, 2])
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_gives_the_numbers_of_sentence_transformers(
    family: str, labels: int, tmp_path: Path
) -> None:
    model = assert_equal(classifier(tmp_path, family, labels))
    assert model.backbone.packed == (family not in PADDED)


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_modernbert_pools_as_its_configuration_says(pooling: str, tmp_path: Path) -> None:
    assert_equal(classifier(tmp_path, "modernbert", classifier_pooling=pooling))


@pytest.mark.parametrize(
    ("section", "activation"),
    [
        ({}, SIGMOID),
        ({"sentence_transformers": {"activation_fn": IDENTITY, "version": "4.1.0"}}, IDENTITY),
        ({"sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity"}, IDENTITY),
        ({"sentence_transformers": {"activation_fn": "torch.nn.Tanh"}}, "torch.nn.modules.activation.Tanh"),
        ({"sentence_transformers": {"activation_fn": "somewhere.Else"}}, SIGMOID),
    ],
)
def test_the_activation_is_the_one_the_folder_names(
    section: Mapping[str, Any], activation: str, tmp_path: Path
) -> None:
    classifier(tmp_path)
    edit(tmp_path / "config.json", lambda config: config.update(section))
    assert assert_equal(tmp_path).activation == activation


@pytest.mark.parametrize("labels", [1, 2])
@pytest.mark.parametrize(("family", "pooling"), [("modernbert", "cls"), ("bert", "mean"), ("electra", "max")])
def test_a_chain_of_modules_gives_the_numbers_of_sentence_transformers(
    family: str, pooling: str, labels: int, tmp_path: Path
) -> None:
    model = assert_equal(of_modules(tmp_path / "theirs", family, labels, pooling))
    assert (model.labels, model.length, model.pooling) == (labels, LENGTH, pooling)
    model.save(tmp_path / "ours")
    np.testing.assert_array_equal(assert_equal(tmp_path / "ours").predict(PAIRS), model.predict(PAIRS))


def test_a_chain_of_modules_is_trained_and_exported(tmp_path: Path) -> None:
    model = CrossEncoder.start(of_modules(tmp_path / "theirs"))
    names = [name for name, _ in model.named_parameters()]
    assert sum(name.startswith("tail.") for name in names) == 5, (
        "the modules behind the pooling are trained, too"
    )
    model.eval().export(tmp_path / "export", int8=False)
    exported = CrossEncoder.load(tmp_path / "export")
    assert exported.graph is not None
    np.testing.assert_allclose(exported.predict(PAIRS), model.predict(PAIRS), rtol=0, atol=1e-4)


def test_a_chain_of_modules_is_not_an_encoder_and_needs_its_parts(tmp_path: Path) -> None:
    folder = of_modules(tmp_path / "theirs")
    with pytest.raises(ModelError, match="a reranker or another classifier, not an encoder"):
        encoder_folder(folder)
    edit(folder / "1_Pooling" / "config.json", lambda config: config.update(include_prompt=False))
    with pytest.raises(ModelError, match="leaves its prompt out of pooling"):
        CrossEncoder.load(folder)
    edit(folder / "1_Pooling" / "config.json", lambda config: config.update(include_prompt=True))
    (folder / "3_LayerNorm" / "config.json").write_text("{}")
    with pytest.raises(ModelError, match="dimension is missing"):
        CrossEncoder.load(folder)


def test_what_is_no_pair_is_named(tmp_path: Path) -> None:
    ours = CrossEncoder.load(classifier(tmp_path))
    for wrong in ("ab", ("a",), ("a", None), ("a", "b", "c")):
        with pytest.raises(DataError, match=r"pair 1 is .*, not a question and a passage"):
            ours.predict([PAIRS[0], wrong])  # type: ignore[list-item]


def test_a_folder_may_be_named_by_a_string(tmp_path: Path) -> None:
    ours = CrossEncoder.load(classifier(tmp_path / "given"))
    ours.save(str(tmp_path / "saved"))
    np.testing.assert_array_equal(CrossEncoder.load(tmp_path / "saved").predict(PAIRS), ours.predict(PAIRS))


def test_one_model_may_stand_for_a_list_of_one(tmp_path: Path) -> None:
    fields = {"collection": tmp_path, "run": tmp_path}
    assert RerankScoreConfig(models="org/name", **fields).models == (Path("org/name"),)


def test_a_folder_saved_by_sentence_transformers_keeps_length_prompt_and_activation(tmp_path: Path) -> None:
    from sentence_transformers import CrossEncoder as Theirs

    model = Theirs(
        str(classifier(tmp_path / "plain")),
        device="cpu",
        max_length=24,
        prompts={"ask": "a query: "},
        default_prompt_name="ask",
        activation_fn=torch.nn.Identity(),
        local_files_only=True,
    )
    model.save_pretrained(str(tmp_path / "saved"))
    loaded = assert_equal(tmp_path / "saved")
    assert (loaded.length, loaded.prompt, loaded.activation) == (24, "a query: ", IDENTITY)
    loaded.save(tmp_path / "ours")
    np.testing.assert_array_equal(assert_equal(tmp_path / "ours").predict(PAIRS), loaded.predict(PAIRS))


@pytest.mark.parametrize("family", ["bert", "roberta", "modernbert"])
def test_our_folder_gives_sentence_transformers_the_same_numbers(family: str, tmp_path: Path) -> None:
    loaded = CrossEncoder.load(classifier(tmp_path / "first", family), device="cpu", length=30)
    loaded.activation = IDENTITY
    loaded.save(tmp_path / "saved")
    again = assert_equal(tmp_path / "saved")
    assert (again.length, again.activation, again.segments) == (30, IDENTITY, loaded.segments)
    np.testing.assert_array_equal(again.score(PAIRS), loaded.score(PAIRS))


def test_token_types_follow_the_tokenizer(tmp_path: Path) -> None:
    """A folder that names a class says nothing of token types itself; one that leaves them out gets none."""
    with_types = assert_equal(classifier(tmp_path))

    def by_class(config: dict[str, Any]) -> None:
        config.pop("model_input_names")
        config["tokenizer_class"] = "BertTokenizer"

    edit(tmp_path / "tokenizer_config.json", by_class)
    assert assert_equal(tmp_path).segments
    names = {"model_input_names": ["input_ids", "attention_mask"]}
    edit(tmp_path / "tokenizer_config.json", lambda config: config.update(names))
    without = assert_equal(tmp_path)
    assert not without.segments
    assert abs(without.score(PAIRS) - with_types.score(PAIRS)).max() > 1e-3


def test_the_raw_score_of_two_labels_is_the_log_odds_of_the_second(tmp_path: Path) -> None:
    model = CrossEncoder.load(classifier(tmp_path, labels=2), device="cpu")
    logits = model.predict(PAIRS)
    np.testing.assert_allclose(model.score(PAIRS), logits[:, 1] - logits[:, 0], rtol=1e-5, atol=1e-6)
    probability = torch.from_numpy(logits).softmax(1)[:, 1].numpy()
    np.testing.assert_allclose(1 / (1 + np.exp(-model.score(PAIRS))), probability, rtol=1e-5)


def test_the_raw_score_of_one_label_is_its_logit(tmp_path: Path) -> None:
    model = CrossEncoder.load(classifier(tmp_path), device="cpu")
    np.testing.assert_allclose(1 / (1 + np.exp(-model.score(PAIRS))), model.predict(PAIRS), rtol=1e-5)


def test_scores_do_not_depend_on_what_is_scored_together(tmp_path: Path, monkeypatch: Any) -> None:
    model = CrossEncoder.load(classifier(tmp_path, "deberta-v2"), device="cpu")
    together = model.score(PAIRS)
    monkeypatch.setattr("liebig.model.cross_encoder.TOKENS", 50)
    np.testing.assert_allclose(model.score(PAIRS), together, rtol=0, atol=1e-5)
    alone = np.concatenate([model.score([pair]) for pair in PAIRS])
    np.testing.assert_allclose(alone, together, rtol=0, atol=1e-5)
    assert model.score([]).shape == (0,)


def test_records_bring_their_titles(tmp_path: Path) -> None:
    model = CrossEncoder.load(classifier(tmp_path), device="cpu")
    record = [(Query("q", "queries"), Passage("p", "a corpus.", "A retriever"))]
    np.testing.assert_array_equal(model.score(record), model.score([("queries", "A retriever a corpus.")]))
    np.testing.assert_array_equal(model.score(record, title="no"), model.score([("queries", "a corpus.")]))


@pytest.mark.skipif(
    tuple(map(int, version("tokenizers").split(".")[:3])) < (0, 23, 3),
    reason="older ones cut a tie otherwise",
)
@pytest.mark.parametrize("room", [9, 10, 17])
def test_pairs_are_cut_as_the_tokenizers_library_cuts_them(room: int) -> None:
    core = Core.from_str(tokenizer().core.to_str())
    core.enable_truncation(room + 3, strategy="longest_first")
    text = ["x"] * 20
    for one in range(20):
        for two in range(20):
            ids = core.encode(" ".join(text[:one]), " ".join(text[:two])).type_ids
            kept = (ids.count(0) - 2, ids.count(1) - 1)
            assert longest_first(one, two, room) == kept, (one, two)


def broken(folder: Path, change: str) -> Path:
    classifier(folder, labels=3 if change == "labels" else 1)
    if change == "activation":
        odd = {"sentence_transformers": {"activation_fn": "torch.nn.Softmax"}}
        edit(folder / "config.json", lambda config: config.update(odd))
    if change == "modules":
        kinds = [{"type": "sentence_transformers.models.Transformer"}, {"type": "sentence_transformers.X"}]
        (folder / "modules.json").write_text(json.dumps(kinds))
    if change == "next token":
        kinds = [{"type": "sentence_transformers.cross_encoder.modules.logit_score.LogitScore", "path": "1"}]
        (folder / "modules.json").write_text(json.dumps(kinds))
    if change == "left":
        edit(folder / "tokenizer_config.json", lambda config: config.update(truncation_side="left"))
    if change == "decoder":
        edit(folder / "config.json", lambda config: config.update(architectures=["BertForMaskedLM"]))
    return folder


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("labels", "sorts pairs into 3 classes"),
        ("activation", "'torch.nn.Softmax' is not supported"),
        ("modules", "are not supported"),
        ("decoder", "is not a reranker"),
        ("next token", r"next token is the score \(LogitScore\), which is not supported"),
        ("left", "cuts the beginnings"),
    ],
)
def test_what_cannot_score_pairs_is_refused_in_a_sentence(change: str, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=sentence):
        CrossEncoder.load(broken(tmp_path, change))


def test_an_encoder_is_not_a_reranker_and_lengths_are_checked(tmp_path: Path) -> None:
    Encoder(tiny("bert"), tokenizer()).save(tmp_path / "encoder")
    with pytest.raises(ModelError, match="train one with liebig rerank train"):
        CrossEncoder.load(tmp_path / "encoder")
    with pytest.raises(RecipeError, match="length = 99 is more than the model's 64 positions"):
        CrossEncoder.load(classifier(tmp_path / "cross"), length=99)
    with pytest.raises(LiebigError, match="no such model folder"):
        CrossEncoder.load(tmp_path / "nowhere")


def test_an_export_gives_the_same_scores(tmp_path: Path) -> None:
    model = CrossEncoder.load(classifier(tmp_path / "model", num_hidden_layers=1), device="cpu")
    model.export(tmp_path / "export", int8=False)
    exported = CrossEncoder.load(tmp_path / "export")
    assert exported.graph is not None
    np.testing.assert_allclose(exported.predict(PAIRS), model.predict(PAIRS), rtol=0, atol=1e-4)


def test_an_export_in_int8_gives_nearly_the_same_scores(tmp_path: Path) -> None:
    """Seven bits of weights and inputs of a random model of width 32: a tenth of the spread was seen."""
    model = CrossEncoder.load(classifier(tmp_path / "model", "roberta", 2, num_hidden_layers=1), device="cpu")
    model.export(tmp_path / "export")
    exported, scores = CrossEncoder.load(tmp_path / "export").score(PAIRS), model.score(PAIRS)
    assert 0 < abs(exported - scores).max() < 0.3 * np.ptp(scores)
