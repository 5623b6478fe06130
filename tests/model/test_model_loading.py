"""Loading says what is wrong, makes up no weights, and runs nothing a folder brings along."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from liebig.base.errors import ModelError
from liebig.model.backbone import Backbone
from liebig.model.loading import quiet
from tests.worlds.models import PACKED, random_row, tiny


def saved(folder: Path, family: str = "bert") -> Path:
    with quiet():
        tiny(family).model.save_pretrained(str(folder))
    return folder


def edit_config(folder: Path, **values: object) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | values))


def edit_weights(folder: Path, keep: str = "", drop: str = "\0", rename: tuple[str, str] = ("", "")) -> None:
    weights = load_file(folder / "model.safetensors")
    kept = {
        name.replace(*rename) if rename[0] else name: value
        for name, value in weights.items()
        if name.startswith(keep) and drop not in name
    }
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})


@pytest.mark.parametrize("family", PACKED)
def test_a_saved_model_loads_with_its_masked_lm_head(family: str, tmp_path: Path) -> None:
    original, loaded = tiny(family), Backbone.load(saved(tmp_path, family))
    states = original(random_row()).last
    assert not loaded.fresh_mlm_head
    assert torch.equal(loaded(random_row()).last, states)
    assert torch.equal(loaded.mlm_logits(states), original.mlm_logits(states))


def test_a_model_without_masked_lm_head_gets_a_fresh_one_and_says_so(tmp_path: Path) -> None:
    with quiet():
        tiny("bert").body.save_pretrained(str(tmp_path))
    loaded = Backbone.load(tmp_path)
    assert loaded.fresh_mlm_head
    assert "a fresh one was made" in loaded.describe()
    assert torch.equal(loaded(random_row()).last, tiny("bert")(random_row()).last)
    weight = loaded.kind.decoder(loaded.model).weight
    assert weight is loaded.body.get_input_embeddings().weight


def test_weights_of_half_precision_are_loaded_as_float32(tmp_path: Path) -> None:
    with quiet():
        tiny("bert").half().model.save_pretrained(str(tmp_path))
    assert {p.dtype for p in Backbone.load(tmp_path).parameters()} == {torch.float32}


def test_old_names_of_norm_weights_are_understood(tmp_path: Path) -> None:
    saved(tmp_path)
    edit_weights(tmp_path, rename=("LayerNorm.weight", "LayerNorm.gamma"))
    edit_weights(tmp_path, rename=("LayerNorm.bias", "LayerNorm.beta"))
    assert torch.equal(Backbone.load(tmp_path)(random_row()).last, tiny("bert")(random_row()).last)


def test_pickled_weights_are_read_by_the_restricted_reader(tmp_path: Path) -> None:
    saved(tmp_path)
    torch.save(load_file(tmp_path / "model.safetensors"), tmp_path / "pytorch_model.bin")
    (tmp_path / "model.safetensors").unlink()
    assert torch.equal(Backbone.load(tmp_path)(random_row()).last, tiny("bert")(random_row()).last)


class Bomb:
    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, ...]:
        return (Path.touch, (self.mark,))


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
@pytest.mark.parametrize("write", [torch.save, lambda value, path: path.write_bytes(pickle.dumps(value))])
def test_a_malicious_pickle_is_refused_and_not_run(write: object, tmp_path: Path) -> None:
    saved(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    mark = tmp_path / "it ran"
    write({"bert.embeddings.word_embeddings.weight": Bomb(mark)}, tmp_path / "pytorch_model.bin")  # type: ignore[operator]
    with pytest.raises(ModelError, match="cannot be read"):
        Backbone.load(tmp_path)
    assert not mark.exists()


def shards(folder: Path) -> dict[str, str]:
    """The folder's weights in several files, and which weight lies in which."""
    (folder / "model.safetensors").unlink()
    with quiet():
        tiny("bert").model.save_pretrained(str(folder), max_shard_size="8KB")
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    places: dict[str, str] = index["weight_map"]
    assert len(set(places.values())) > 2
    return places


def test_weights_in_several_files_are_all_read(tmp_path: Path) -> None:
    saved(tmp_path)
    places = shards(tmp_path)
    assert torch.equal(Backbone.load(tmp_path)(random_row()).last, tiny("bert")(random_row()).last)
    (tmp_path / next(iter(places.values()))).unlink()
    with pytest.raises(ModelError, match="cannot be read"):
        Backbone.load(tmp_path)


@pytest.mark.parametrize("listed", ["model.safetensors.index.json", "pytorch_model.bin.index.json"])
def test_a_malicious_pickle_among_several_files_is_refused_and_not_run(listed: str, tmp_path: Path) -> None:
    saved(tmp_path)
    places, mark = shards(tmp_path), tmp_path / "it ran"
    first = next(iter(places))
    torch.save({first: Bomb(mark)}, tmp_path / "bomb.bin")
    (tmp_path / "model.safetensors.index.json").unlink()
    index = {"metadata": {"total_size": 1}, "weight_map": {**places, first: "bomb.bin"}}
    (tmp_path / listed).write_text(json.dumps(index))
    with pytest.raises(ModelError, match=r"cannot be read|missing"):
        Backbone.load(tmp_path)
    assert not mark.exists()


def test_an_attention_kernel_named_by_the_folder_is_not_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved(tmp_path)
    edit_config(tmp_path, attn_implementation="someone/kernel", _attn_implementation="someone/kernel")
    asked: list[object] = []
    monkeypatch.setattr(
        "transformers.modeling_utils.lazy_import_flash_attention", lambda *a, **_: asked.append(a)
    )
    assert torch.equal(Backbone.load(tmp_path)(random_row()).last, tiny("bert")(random_row()).last)
    assert not asked


def test_code_in_the_folder_is_refused_and_not_run(tmp_path: Path) -> None:
    saved(tmp_path)
    mark = tmp_path / "it ran"
    (tmp_path / "own.py").write_text(f"open({str(mark)!r}, 'w')\nclass Own: ...\nclass OwnConfig: ...\n")
    edit_config(tmp_path, auto_map={"AutoModelForMaskedLM": "own.Own", "AutoConfig": "own.OwnConfig"})
    with pytest.raises(ModelError, match="code of its own"):
        Backbone.load(tmp_path)
    assert not mark.exists()


def test_weights_that_are_missing_are_an_error_and_not_random(tmp_path: Path) -> None:
    saved(tmp_path)
    edit_weights(tmp_path, drop="layer.2.attention.self.query.weight")
    with pytest.raises(ModelError, match=r"1 weights are missing, the first is 'bert\.encoder\.layer\.2"):
        Backbone.load(tmp_path)


def test_weights_of_another_shape_are_an_error(tmp_path: Path) -> None:
    saved(tmp_path)
    edit_config(tmp_path, vocab_size=7)
    with pytest.raises(ModelError, match="cannot be read"):
        Backbone.load(tmp_path)


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda folder: (folder / "config.json").unlink(), "has no config.json"),
        (lambda folder: (folder / "config.json").write_text("{"), "not JSON"),
        (lambda folder: (folder / "config.json").write_text("[]"), "should be an object"),
        (
            lambda folder: edit_config(folder, num_hidden_layers=10**9),
            "num_hidden_layers = 1000000000: .* 1024",
        ),
        (lambda folder: edit_config(folder, num_hidden_layers=1024, hidden_size=1 << 16), "larger model"),
        (lambda folder: edit_config(folder, vocab_size=1 << 24), "larger model"),
        (lambda folder: edit_config(folder, num_attention_heads=0), "num_attention_heads = 0"),
        (lambda folder: edit_config(folder, num_attention_heads=-1), "num_attention_heads = -1"),
        (lambda folder: edit_config(folder, num_attention_heads=3), "not a multiple of the 3 heads"),
        (lambda folder: edit_config(folder, pad_token_id=10**30), "is none of the .* tokens"),
        (lambda folder: edit_config(folder, hidden_size="32"), "hidden_size = '32'"),
        (lambda folder: edit_config(folder, hidden_dropout_prob=float("nan")), "hidden_dropout_prob = nan"),
        (lambda folder: edit_config(folder, max_position_embeddings=True), "max_position_embeddings = True"),
        (lambda folder: edit_config(folder, dtype=[]), "cannot be read"),
        (lambda folder: edit_config(folder, hidden_act=7), "cannot be read"),
        (lambda folder: (folder / "model.safetensors").unlink(), "has no weights"),
        (lambda folder: (folder / "model.safetensors").write_bytes(b"\0" * 40), "cannot be read"),
        (lambda folder: edit_config(folder, model_type="alchemy"), "cannot be read"),
        (lambda folder: edit_config(folder, is_decoder=True), "decoder"),
    ],
)
def test_what_a_folder_lacks_is_said(spoil: object, says: str, tmp_path: Path) -> None:
    saved(tmp_path)
    spoil(tmp_path)  # type: ignore[operator]
    with pytest.raises(ModelError, match=says):
        Backbone.load(tmp_path)


def test_a_truncated_weights_file_is_an_error(tmp_path: Path) -> None:
    saved(tmp_path)
    file = tmp_path / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(ModelError, match="cannot be read"):
        Backbone.load(tmp_path)


@pytest.mark.parametrize("source", ["./nowhere", "/nowhere/at/all", Path("nowhere")])
def test_a_folder_that_is_not_there_is_not_looked_for_on_the_hub(source: str | Path) -> None:
    with pytest.raises(ModelError, match="no such model folder"):
        Backbone.load(source)
