"""Published checkpoints, in the layouts they were published in, become folders with the right pooling and head."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from liebig.base.config import parse
from liebig.base.errors import ModelError
from liebig.base.workspace import stage
from liebig.methods import head_classes
from liebig.methods.condenser import CondenserHead
from liebig.model.encoder import Encoder
from liebig.model.folder import load_heads
from liebig.model.loading import quiet
from liebig.stages.import_ import ImportConfig, import_checkpoint, run
from tests.worlds.models import TEXTS, random_row, tiny, tokenizer


def convert(source, out, **config):
    return import_checkpoint(ImportConfig(source=source, **config), out)


def bert_folder(folder: Path, *, contriever: bool = False) -> Encoder:
    """A published BERT folder: pickled weights, the tokenizer, no word about pooling."""
    encoder = Encoder(tiny("bert"), tokenizer(), pooling="mean" if contriever else "cls")
    with quiet():
        (encoder.backbone.body if contriever else encoder.backbone.model).save_pretrained(str(folder))
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    tokenizer().save(folder)
    if contriever:
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | {"architectures": ["Contriever"]}))
    return encoder


def test_a_condenser_keeps_its_head_and_is_pooled_by_cls(tmp_path: Path) -> None:
    original = bert_folder(tmp_path / "published")
    head = CondenserHead(original.backbone, 2)
    weights = {name.replace("layers.", "c_head.", 1): value for name, value in head.state_dict().items()}
    torch.save(weights, tmp_path / "published" / "model.pt")
    imported = convert(tmp_path / "published", tmp_path / "out")
    assert (imported.kind, imported.pooling, imported.heads) == ("condenser", "cls", ("condenser",))
    loaded = Encoder.load(tmp_path / "out")
    assert np.array_equal(loaded.encode_texts(TEXTS), original.encode_texts(TEXTS))
    hidden, packed = original.backbone(random_row(), layers=(2,)), random_row()
    again = load_heads(tmp_path / "out", loaded.backbone, head_classes())["condenser"]
    ours = again(loaded.backbone, hidden.last, hidden.layers[2], packed)
    assert torch.equal(ours, head(original.backbone, hidden.last, hidden.layers[2], packed))


def test_a_condenser_from_the_hub_has_no_head(tmp_path: Path) -> None:
    bert_folder(tmp_path / "published")
    assert convert(tmp_path / "published", tmp_path / "out").heads == ()


def test_contriever_is_pooled_by_the_mean(tmp_path: Path) -> None:
    original = bert_folder(tmp_path / "published", contriever=True)
    imported = convert(tmp_path / "published", tmp_path / "out")
    assert (imported.kind, imported.pooling) == ("contriever", "mean")
    assert "a fresh one was made" in imported.says
    assert np.array_equal(Encoder.load(tmp_path / "out").encode_texts(TEXTS), original.encode_texts(TEXTS))


def test_contriever_is_known_by_its_name_too(tmp_path: Path) -> None:
    """Copies that transformers saved again say BertModel."""
    bert_folder(tmp_path / "contriever-msmarco")
    assert convert(tmp_path / "contriever-msmarco", tmp_path / "out").pooling == "mean"


def test_what_is_said_overrides_what_is_known(tmp_path: Path) -> None:
    bert_folder(tmp_path / "published")
    convert(tmp_path / "published", tmp_path / "out", pooling="mean", similarity="cosine", max_length=7)
    loaded = Encoder.load(tmp_path / "out")
    assert (loaded.pooling, loaded.similarity, loaded.max_length) == ("mean", "cosine", 7)


def test_a_folder_of_sentence_transformers_keeps_what_it_says(tmp_path: Path) -> None:
    backbone = tiny("bert", vocab_size=tokenizer().vocab_size)
    original = Encoder(backbone, tokenizer(), pooling="mean", similarity="cosine", max_length=9)
    original.save(tmp_path / "theirs")
    convert(tmp_path / "theirs", tmp_path / "out")
    loaded = Encoder.load(tmp_path / "out")
    assert (loaded.pooling, loaded.similarity, loaded.max_length) == ("mean", "cosine", 9)
    assert np.array_equal(loaded.encode_texts(TEXTS), original.encode_texts(TEXTS))


class Bomb:
    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, ...]:
        return (Path.touch, (self.mark,))


def test_a_checkpoint_with_code_in_it_is_refused_and_not_run(tmp_path: Path) -> None:
    source = tmp_path / "published"
    bert_folder(source)
    mark = tmp_path / "it ran"
    torch.save({"model": {}, "c_head.0.x": Bomb(mark)}, source / "model.pt")
    with pytest.raises(ModelError, match="cannot be read: it is damaged, or pickled with more than tensors"):
        convert(source, tmp_path / "out", tokenizer=source)
    assert not mark.exists()


def test_a_checkpoint_that_was_cut_short_is_said_to_be(tmp_path: Path) -> None:
    bert_folder(tmp_path / "published")
    path = tmp_path / "published" / "model.pt"
    torch.save({"c_head.0.x": torch.zeros(4000)}, path)
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(ModelError, match="damaged or truncated"):
        convert(tmp_path / "published", tmp_path / "out")


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no such folder"):
        convert(tmp_path / "nowhere", tmp_path / "out")
    bert_folder(tmp_path / "published")
    torch.save({"something": torch.zeros(1)}, tmp_path / "published" / "model.pt")
    with pytest.raises(ModelError, match="no Condenser head"):
        convert(tmp_path / "published", tmp_path / "out")


def test_the_stage_leaves_a_model_folder_and_says_what_it_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    original = bert_folder(tmp_path / "published")
    config = parse(ImportConfig, {"source": str(tmp_path / "published")})
    with stage(tmp_path / "model", kind="import", recipe={}, inputs={}) as folder:
        run(config, folder)
    assert json.loads((tmp_path / "model" / "import.json").read_text())["kind"] == "condenser"
    said = capsys.readouterr().err
    assert "published is a condenser checkpoint: bert: 4 layers" in said
    assert "cls pooling" in said
    assert np.array_equal(Encoder.load(tmp_path / "model").encode_texts(TEXTS), original.encode_texts(TEXTS))
