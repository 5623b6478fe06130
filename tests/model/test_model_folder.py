"""Folders: what is saved is what transformers and sentence-transformers load, and theirs are what we load."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from liebig.base import workspace
from liebig.base.errors import CorruptError, ModelError
from liebig.methods import head_classes
from liebig.methods.condenser import CondenserHead
from liebig.model.backbone import padded_inputs
from liebig.model.encoder import Encoder
from liebig.model.folder import load_heads, written_beside
from liebig.model.loading import quiet
from liebig.model.pooling import Dense, Normalize
from liebig.model.settings import encoder_folder
from liebig.model.text_reader import text_reader
from liebig.search.embed import Embedder
from tests.worlds.models import PACKED, TEXTS, random_row, tiny, tokenizer

FULL: dict[str, Any] = {
    "pooling": "mean",
    "max_length": 12,
    "prompts": {"query": "fox: ", "document": "dog "},
    "default_prompt": "document",
    "similarity": "cosine",
}


def saved(folder: Path, family: str = "bert", **settings: Any) -> Encoder:
    encoder = Encoder(tiny(family, vocab_size=tokenizer().vocab_size), tokenizer(), **settings)
    encoder.save(folder)
    return encoder


def sentence_transformer(folder: Path) -> Any:
    from sentence_transformers import SentenceTransformer

    with quiet():
        return SentenceTransformer(str(folder), device="cpu")


@pytest.mark.parametrize("family", PACKED)
def test_a_saved_folder_is_the_same_model_for_transformers(family: str, tmp_path: Path) -> None:
    from transformers import AutoModel, AutoModelForMaskedLM

    encoder = saved(tmp_path, family)
    packed = random_row()
    packed = replace(packed, tokens=(packed.tokens % tokenizer().vocab_size).clamp_min(5))
    inputs = padded_inputs(packed, encoder.backbone.config.pad_token_id)
    real = inputs["attention_mask"].bool()
    hidden = encoder.backbone(packed)
    with quiet(), torch.no_grad():
        states = AutoModel.from_pretrained(tmp_path)(**inputs).last_hidden_state[real]
        logits = AutoModelForMaskedLM.from_pretrained(tmp_path)(**inputs).logits[real]
    assert (states - hidden.last).abs().max() < 1e-5
    assert (logits - encoder.backbone.mlm_logits(hidden.last)).abs().max() < 1e-4


@pytest.mark.parametrize(
    "pooling", ["cls", "mean", "max", "weightedmean", "mean_sqrt_len_tokens", "lasttoken"]
)
def test_a_saved_folder_gives_sentence_transformers_the_same_vectors(pooling: str, tmp_path: Path) -> None:
    encoder = saved(tmp_path, pooling=pooling)
    assert np.abs(sentence_transformer(tmp_path).encode(TEXTS) - encoder.encode_texts(TEXTS)).max() < 1e-5


@pytest.mark.parametrize("family", PACKED)
def test_every_family_gives_sentence_transformers_the_same_vectors(family: str, tmp_path: Path) -> None:
    encoder = saved(tmp_path, family, pooling="cls")
    assert np.abs(sentence_transformer(tmp_path).encode(TEXTS) - encoder.encode_texts(TEXTS)).max() < 1e-5


def test_projection_normalisation_prompts_and_length_reach_sentence_transformers(tmp_path: Path) -> None:
    tail = [Dense(32, 8, activation="torch.nn.modules.activation.Tanh"), Normalize()]
    encoder = saved(tmp_path, tail=tail, **FULL)
    model = sentence_transformer(tmp_path)
    assert (model.max_seq_length, model.similarity_fn_name) == (12, "cosine")
    assert np.abs(model.encode(TEXTS) - encoder.encode_texts(TEXTS)).max() < 1e-5
    assert (
        np.abs(model.encode(TEXTS, prompt_name="query") - encoder.encode_texts(TEXTS, prompt="query")).max()
        < 1e-5
    )
    assert not np.allclose(encoder.encode_texts(TEXTS), encoder.encode_texts(TEXTS, prompt="query"))


@pytest.mark.parametrize("settings", [{}, FULL], ids=["plain", "full"])
@pytest.mark.parametrize("family", PACKED)
def test_a_folder_says_how_its_encoder_reads_texts(family: str, settings: Any, tmp_path: Path) -> None:
    encoder, reader = saved(tmp_path, family, **settings), text_reader(tmp_path)
    assert (reader.max_positions, reader.max_length) == (encoder.max_positions, encoder.max_length)
    for role in ("query", "passage", None):
        assert reader.layout_for(role).lists(TEXTS) == encoder.layout_for(role).lists(TEXTS)


def test_saved_then_loaded_is_the_original(tmp_path: Path) -> None:
    encoder = saved(
        tmp_path, tail=[Dense(32, 8, bias=False), Normalize()], lowercase=True, pool_prompt=False, **FULL
    )
    loaded = Encoder.load(tmp_path)
    assert np.array_equal(
        loaded.encode_texts(TEXTS, prompt="query"), encoder.encode_texts(TEXTS, prompt="query")
    )
    for name in (
        "pooling",
        "max_length",
        "prompts",
        "default_prompt",
        "similarity",
        "lowercase",
        "pool_prompt",
    ):
        assert getattr(loaded, name) == getattr(encoder, name), name
    states = torch.randn(3, 32)
    assert torch.equal(loaded.backbone.mlm_logits(states), encoder.backbone.mlm_logits(states))


@pytest.mark.parametrize("include_prompt", [True, False])
@pytest.mark.parametrize("pooling", ["mean", "cls", "max"])
def test_folders_written_by_sentence_transformers_give_its_vectors(
    pooling: str, include_prompt: bool, tmp_path: Path
) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import (
        Dense as TheirDense,
        Normalize as TheirNormalize,
        Transformer,
    )
    from sentence_transformers.sentence_transformer.modules import Pooling

    saved(tmp_path / "plain")
    torch.manual_seed(0)
    with quiet():
        modules = [
            Transformer(str(tmp_path / "plain"), max_seq_length=20),
            Pooling(32, pooling, include_prompt=include_prompt),
            TheirDense(32, 16),
            TheirNormalize(),
        ]
        theirs = SentenceTransformer(modules=modules, prompts={"query": "fox dog "}, device="cpu")
        theirs.save(str(tmp_path / "theirs"))
    ours = Encoder.load(tmp_path / "theirs")
    assert ours.max_length == 20
    assert ours.similarity == "cosine"
    for prompt in ("query", None):
        vectors = theirs.encode(TEXTS, prompt_name=prompt)
        assert np.abs(vectors - ours.encode_texts(TEXTS, prompt=prompt)).max() < 1e-5


def test_the_oldest_layout_with_the_transformer_in_a_folder_of_its_own_loads(tmp_path: Path) -> None:
    encoder = saved(tmp_path / "new", pooling="mean", max_length=9)
    old = tmp_path / "old"
    (tmp_path / "new").rename(old)
    (old / "layout.json").unlink()  # only Liebig writes it
    inner = old / "0_Transformer"
    inner.mkdir()
    for name in (
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
        "sentence_bert_config.json",
    ):
        (old / name).rename(inner / name)
    modules = json.loads((old / "modules.json").read_text())
    modules[0]["path"] = "0_Transformer"
    (old / "modules.json").write_text(json.dumps(modules))
    (old / "config_sentence_transformers.json").unlink()
    assert np.array_equal(Encoder.load(old).encode_texts(TEXTS), encoder.encode_texts(TEXTS))
    assert encoder_folder(old) == old


def test_a_dense_layer_in_an_old_pickled_file_loads(tmp_path: Path) -> None:
    encoder = saved(tmp_path, tail=[Dense(32, 8)])
    file = tmp_path / "2_Dense" / "model.safetensors"
    torch.save(load_file(file), file.with_name("pytorch_model.bin"))
    file.unlink()
    assert np.array_equal(Encoder.load(tmp_path).encode_texts(TEXTS), encoder.encode_texts(TEXTS))


class Bomb:
    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, ...]:
        return (Path.touch, (self.mark,))


def test_a_malicious_pickle_of_a_dense_layer_is_refused_and_not_run(tmp_path: Path) -> None:
    saved(tmp_path, tail=[Dense(32, 8)])
    file, mark = tmp_path / "2_Dense" / "model.safetensors", tmp_path / "it ran"
    torch.save({"linear.weight": Bomb(mark)}, file.with_name("pytorch_model.bin"))
    file.unlink()
    with pytest.raises(ModelError, match="cannot be read"):
        Encoder.load(tmp_path)
    assert not mark.exists()


def test_a_plain_transformers_folder_is_pooled_by_cls_unless_said_otherwise(tmp_path: Path) -> None:
    encoder = saved(tmp_path)
    for name in ("modules.json", "layout.json"):
        (tmp_path / name).unlink()
    assert np.array_equal(Encoder.load(tmp_path).encode_texts(TEXTS), encoder.encode_texts(TEXTS))
    assert Encoder.load(tmp_path, pooling="mean").pooling == "mean"


def edit(path: Path, change: Any) -> None:
    value = json.loads(path.read_text())
    path.write_text(json.dumps(change(value) or value))


@pytest.mark.parametrize("modules", [True, False])
@pytest.mark.parametrize("kind", ["BertModel", "BertForMaskedLM", "BertForSequenceClassification"])
def test_only_a_classifier_without_a_pooling_is_not_an_encoder(
    kind: str, modules: bool, tmp_path: Path
) -> None:
    saved(tmp_path)
    edit(tmp_path / "config.json", lambda config: config.update(architectures=[kind]))
    if not modules:
        (tmp_path / "modules.json").unlink()
    if modules or kind != "BertForSequenceClassification":
        assert encoder_folder(tmp_path) == tmp_path
    else:
        with pytest.raises(ModelError, match="is a reranker or another classifier"):
            encoder_folder(tmp_path)


def module_type(name: str) -> Any:
    return lambda modules: modules[2].update(type=name)


@pytest.mark.parametrize(
    ("file", "change", "says"),
    [
        ("modules.json", module_type("sentence_transformers.models.LSTM"), "LSTM' is not supported"),
        ("modules.json", module_type("own_code.Normalize"), "own_code.Normalize' is not supported"),
        (
            "modules.json",
            module_type("sentence_transformers.models.Pooling"),
            "do not turn a text into one vector",
        ),
        ("modules.json", lambda m: m[2].update(path="../elsewhere"), "outside the model folder"),
        ("modules.json", lambda m: {"a": 1}, "should be a valid array"),
        ("modules.json", lambda m: m[1].update(path=None), "1.path = None"),
        ("sentence_bert_config.json", lambda c: c.update(max_seq_length="x"), "max_seq_length = 'x'"),
        ("sentence_bert_config.json", lambda c: c.update(max_seq_length=-1), "max_seq_length = -1"),
        ("config_sentence_transformers.json", lambda c: c.update(prompts=[1]), "prompts = "),
        ("1_Pooling/config.json", lambda c: c.update(include_prompt=3), "include_prompt = 3"),
        ("2_Dense/config.json", lambda c: c.update(in_features=10**9), "in_features = 1000000000"),
        ("tokenizer_config.json", lambda c: c.update(model_max_length=-5), "model_max_length.* -5"),
        ("tokenizer_config.json", lambda c: c.update(do_lower_case="no"), "do_lower_case = 'no'"),
        ("layout.json", lambda c: c.update(passage_length=1.5), "passage_length = 1.5"),
        ("modules.json", lambda m: m[:1], "do not turn a text into one vector"),
        (
            "1_Pooling/config.json",
            lambda c: c.update(pooling_mode_max_tokens=True),
            "pooling .* is not supported",
        ),
        (
            "1_Pooling/config.json",
            lambda c: c.update(pooling_mode="attention"),
            "pooling .* is not supported",
        ),
        ("2_Dense/config.json", lambda c: c.update(activation_function="os.system"), "unknown activation"),
        ("2_Dense/config.json", lambda c: c.update(module_input_name="token_embeddings"), "form of Dense"),
        ("2_Dense/config.json", lambda c: c.update(use_residual=True), "form of Dense"),
        ("2_Dense/config.json", lambda c: c.update(out_features=9), "cannot be read"),
        (
            "config_sentence_transformers.json",
            lambda c: c.update(similarity_fn_name="manhattan"),
            "similarity",
        ),
        (
            "sentence_bert_config.json",
            lambda c: c.update(transformer_task="text-generation"),
            "more than encode",
        ),
    ],
)
def test_what_is_not_known_is_refused(file: str, change: Any, says: str, tmp_path: Path) -> None:
    saved(tmp_path, tail=[Dense(32, 8)])
    edit(tmp_path / file, change)
    with pytest.raises(ModelError, match=says):
        Encoder.load(tmp_path)


def test_kinds_of_models_that_are_not_encoders_say_what_they_are(tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer, SparseEncoder
    from sentence_transformers.base.modules import Router, Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling, StaticEmbedding
    from sentence_transformers.sparse_encoder.modules import MLMTransformer, SpladePooling

    saved(tmp_path / "plain")
    body, pooling = Transformer(str(tmp_path / "plain")), Pooling(32)
    routes = Router.for_query_document([body, pooling], [body, pooling])
    table = StaticEmbedding(tokenizer().core, embedding_dim=8)
    kinds = {
        "a table of token vectors": SentenceTransformer(modules=[table], device="cpu"),
        "an encoder for questions and another": SentenceTransformer(modules=[routes], device="cpu"),
        "a sparse encoder": SparseEncoder(
            modules=[MLMTransformer(str(tmp_path / "plain")), SpladePooling()], device="cpu"
        ),
    }
    for says, model in kinds.items():
        model.save_pretrained(str(tmp_path / "other"))
        with pytest.raises(ModelError, match=f"not supported: it is {says}|not supported: it has {says}"):
            Encoder.load(tmp_path / "other")
        shutil.rmtree(tmp_path / "other")


def test_a_layer_norm_behind_the_pooling_gives_sentence_transformers_vectors(tmp_path: Path) -> None:
    tail = [Dense(32, 8), torch.nn.LayerNorm(8)]
    torch.nn.init.normal_(tail[1].weight)
    encoder = saved(tmp_path, tail=tail)
    theirs = sentence_transformer(tmp_path).encode(TEXTS)
    np.testing.assert_allclose(Encoder.load(tmp_path).encode(TEXTS), theirs, rtol=0, atol=1e-5)
    np.testing.assert_allclose(encoder.encode(TEXTS), theirs, rtol=0, atol=1e-5)
    light = Embedder.load(tmp_path, light=True, unit=False)
    np.testing.assert_allclose(light.vectors(TEXTS, None), theirs, rtol=0, atol=1e-5)


def test_heads_lie_apart_and_come_back(tmp_path: Path) -> None:
    encoder = Encoder(tiny("bert"), tokenizer())
    head = CondenserHead(encoder.backbone)
    encoder.save(tmp_path, heads={"condenser": head})
    assert not any("condenser" in name for name in load_file(tmp_path / "model.safetensors"))
    loaded = load_heads(tmp_path, Encoder.load(tmp_path).backbone, head_classes())["condenser"].state_dict()
    assert all(torch.equal(loaded[name], value) for name, value in head.state_dict().items())


def test_saving_again_replaces_the_model_and_leaves_no_traces(tmp_path: Path) -> None:
    saved(tmp_path, tail=[Dense(32, 8)])
    before = {path.name for path in tmp_path.iterdir()}
    encoder = Encoder(tiny("bert", seed=9), tokenizer(), tail=[Dense(32, 8)])
    encoder.save(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == before
    assert np.array_equal(Encoder.load(tmp_path).encode_texts(TEXTS), encoder.encode_texts(TEXTS))


def test_an_interrupted_first_save_is_not_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    moved: list[str] = []

    def stop(source: Path, target: Path) -> None:
        if Path(target).name == "config.json" and Path(target).parent == tmp_path:
            raise KeyboardInterrupt
        moved.append(Path(target).name)
        os.rename(source, target)

    monkeypatch.setattr("liebig.model.folder.replace", stop)
    with pytest.raises(KeyboardInterrupt):
        saved(tmp_path)
    assert "model.safetensors" in moved
    with pytest.raises(ModelError, match=r"no config\.json"):
        Encoder.load(tmp_path)


def test_the_model_card_says_pooling_similarity_and_length(tmp_path: Path) -> None:
    saved(tmp_path, **FULL)
    card = (tmp_path / "README.md").read_text()
    for said in (
        "library_name: sentence-transformers",
        "pooling: mean",
        "similarity: cosine",
        "12 tokens",
        "fox: ",
    ):
        assert said in card


OWN_FILES = ["modules.json", "sentence_bert_config.json", "config_sentence_transformers.json"]


@pytest.mark.parametrize("name", OWN_FILES)
def test_a_model_folder_that_lost_a_file_is_refused(tmp_path: Path, name: str) -> None:
    saved(tmp_path / "model", **FULL)
    (tmp_path / "model" / name).unlink()
    with pytest.raises(ModelError, match=f"{name} is missing"):
        Encoder.load(tmp_path / "model")


@pytest.mark.parametrize("name", [*OWN_FILES, "layout.json"])
@pytest.mark.parametrize("below", ["", "model"])
def test_a_lost_or_changed_file_of_a_stage_is_noticed_when_its_model_is_loaded(
    tmp_path: Path, name: str, below: str
) -> None:
    def stage(number: int) -> Path:
        out = tmp_path / str(number)
        with workspace.stage(out, kind="pretrain", recipe={}, inputs={}) as folder:
            saved(folder.path / below, **FULL)
        return out / below

    Encoder.load(stage(0))
    model = stage(1)
    (model / name).unlink()
    with pytest.raises(CorruptError, match=f"{name} is missing"):
        Encoder.load(model)
    if below:
        with pytest.raises(CorruptError, match=f"{name} is missing"):
            workspace.digest(model)
    (model / name).write_text((tmp_path / "0" / below / name).read_text().replace("1", "2", 1) + " ")
    with pytest.raises(CorruptError, match="does not match the manifest"):
        Encoder.load(model)


def test_what_a_killed_save_left_is_not_in_the_result(tmp_path, monkeypatch):
    recipe = {"kind": "t", "recipe": {}, "inputs": {}}
    with monkeypatch.context() as patch:
        patch.setattr("liebig.model.folder.shutil.rmtree", lambda *args, **options: None)
        with (
            pytest.raises(KeyboardInterrupt),
            workspace.stage(tmp_path / "out", **recipe) as folder,
            written_beside(folder.path / "model") as beside,
        ):
            (beside / "config.json").write_text("half")
            raise KeyboardInterrupt
    assert [*(tmp_path / "out.partial" / "model").iterdir()]
    with workspace.stage(tmp_path / "out", **recipe) as folder:
        assert folder.resumed
    assert not workspace.verify(tmp_path / "out").outputs
