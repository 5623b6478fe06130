"""Worlds for the tests of training: the smoke recipes' collection and store, a labelled collection and a model."""

from __future__ import annotations

from pathlib import Path

import pytest

from liebig.base import pipeline
from liebig.stages import STAGES
from liebig.store import TokenStore
from tests.worlds.finetuning import make_model, write_collection

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder all smoke recipes of a session are run into, so that what they share is made once."""
    out = tmp_path_factory.mktemp("smoke")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        stages = pipeline.plan(STAGES, ROOT / "recipes" / "smoke" / "mlm.toml", [], out)
        pipeline.run([s for s in stages if s.name != "model"], lambda _: None)
    return out


@pytest.fixture(scope="session")
def store(smoke: Path) -> TokenStore:
    return TokenStore.open(smoke / "store")


@pytest.fixture(scope="session")
def collection(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_collection(tmp_path_factory.mktemp("collection") / "c")


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("model") / "m")
