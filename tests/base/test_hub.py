"""Names of models: folders win, `org/name` comes from the hub without code or pickles, and its cache works offline."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from liebig import Encoder, encoders
from liebig.base import hub, pipeline
from liebig.base.config import Config, ModelPath, inputs, parse, resolved
from liebig.base.errors import ModelError
from liebig.base.pipeline import Planned, Stage
from liebig.cli import make_app
from liebig.model.backbone import Backbone
from liebig.model.cross_encoder import CrossEncoder
from liebig.vectors import Vectors
from tests.worlds.hub import COMMIT, FakeHub, connect, serving
from tests.worlds.models import TEXTS, tiny, tokenizer

NAME = "someone/tiny"


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """The hub's models: an encoder with code, pickles and an ONNX folder beside, and one with pickles only."""
    folder = tmp_path / "models" / NAME
    Encoder(tiny("bert"), tokenizer()).save(folder)
    (folder / "modeling.py").write_text("raise SystemExit('code was run')")
    (folder / "pytorch_model.bin").write_bytes(b"pickle")
    (folder / "onnx").mkdir()
    (folder / "onnx" / "config.json").write_text("{}")
    old = tmp_path / "models" / "someone" / "pickled"
    old.mkdir()
    (old / "pytorch_model.bin").write_bytes(b"pickle")
    (old / "config.json").write_text("{}")
    return tmp_path / "models"


@pytest.fixture
def server(models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    """The hub at work, with an empty cache; the current folder is empty too."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with serving(models) as made:
        connect(monkeypatch, made, tmp_path / "cache")
        yield made


def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


def test_a_name_is_fetched_without_code_pickles_or_other_engines(server: FakeHub, models: Path) -> None:
    folder = hub.model_folder(NAME)
    files = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert {"config.json", "model.safetensors", "tokenizer.json", "1_Pooling/config.json"} <= files
    assert not files & {"modeling.py", "pytorch_model.bin", "onnx/config.json"}
    assert hub.name_of(folder) == NAME
    expected = Encoder.load(models / NAME).encode(TEXTS)
    np.testing.assert_array_equal(Encoder.load(NAME).encode(TEXTS), expected)
    assert Backbone.load(Path(NAME)).width == 32


def test_what_was_fetched_is_used_offline(server: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    fetched = hub.model_folder(NAME)
    asked = len(server.requests)
    offline(monkeypatch)
    assert hub.model_folder(NAME) == fetched
    assert len(server.requests) == asked


def test_offline_without_a_copy_is_one_sentence(server: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    offline(monkeypatch)
    with pytest.raises(
        ModelError, match=r"^someone/tiny: there is no such folder.*cannot be reached.*hf download"
    ):
        Encoder.load(NAME)
    assert server.requests == []


def test_a_hub_that_does_not_answer_is_one_sentence(server: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:1")  # nobody listens there
    with pytest.raises(ModelError, match="the Hugging Face hub cannot be reached"):
        CrossEncoder.load(NAME)


def test_a_name_that_does_not_exist_is_one_sentence(server: FakeHub) -> None:
    with pytest.raises(
        ModelError, match=r"someone/unknown: .* has no public model of this name.*check the name"
    ):
        hub.model_folder("someone/unknown")


def test_a_model_with_pickled_weights_only_is_refused(server: FakeHub) -> None:
    with pytest.raises(ModelError, match=r"someone/pickled: .* pickled ones are not fetched"):
        hub.model_folder("someone/pickled")


def test_a_folder_wins_over_a_name_and_the_package_over_both(server: FakeHub) -> None:
    Path(NAME).mkdir(parents=True)
    assert hub.model_folder(NAME) == Path(NAME)
    assert hub.model_folder(f"{encoders.PREFIX}{encoders.DEFAULT}") == encoders.folder()
    assert server.requests == []


@pytest.mark.parametrize("source", ["./a/b", "/nowhere/b", "a", "a/b/c", "../b", "~/b"])
def test_a_path_is_not_looked_for_on_the_hub(source: str, server: FakeHub) -> None:
    with pytest.raises(ModelError, match="there is no such model folder"):
        hub.model_folder(source)
    assert server.requests == []


class Inner(Config):
    models: tuple[ModelPath, ...]


class Outer(Config):
    inner: Inner
    model: ModelPath | None = None


def width(config: Outer, folder: object) -> None:
    assert config.model is not None
    assert Encoder.load(config.model).width == 32
    assert config.model.is_dir()


def test_a_recipe_is_parsed_without_the_hub_and_run_with_folders(
    server: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = parse(Outer, {"inner": {"models": [NAME]}, "model": NAME})
    assert server.requests == []
    planned = Planned("x", Stage("x", Outer, width), config, tmp_path / "out")
    assert not planned.up_to_date
    assert server.requests == []
    pipeline.run([planned], lambda said: None)
    offline(monkeypatch)
    assert planned.up_to_date
    assert {path.name for path in inputs(resolved(config)).values()} == {COMMIT}
    assert config.model == Path(NAME)


def test_a_command_takes_a_name(server: FakeHub, models: Path, tmp_path: Path) -> None:
    (tmp_path / "texts.jsonl").write_text('{"id": "1", "text": "soil"}\n')
    source, out = f"source={tmp_path / 'texts.jsonl'}", str(tmp_path / "vectors")
    done = CliRunner().invoke(
        make_app(), ["encode", source, "what=documents", f"model={NAME}", "device=cpu", "--out", out]
    )
    assert done.exit_code == 0, done.output
    ((_, vectors),) = Vectors.open(tmp_path / "vectors").chunks(9)
    expected = Encoder.load(models / NAME).encode(["soil"], prompt="passage")
    np.testing.assert_allclose(vectors, expected, rtol=1e-3, atol=1e-3)  # they are stored as float16


def test_a_command_refuses_a_wrong_name_in_a_sentence(server: FakeHub, tmp_path: Path) -> None:
    bad = CliRunner().invoke(make_app(), ["onnx", "model=someone/unknown", "--out", str(tmp_path / "out")])
    assert bad.exit_code == 2
    assert "has no public model of this name" in bad.output
    assert bad.output.strip().count("\n") == 0
