"""The small collection and model of the tests of fine-tuning."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "finetune"))


@pytest.fixture(scope="session")
def collection(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from finetune_worlds import write_collection

    return write_collection(tmp_path_factory.mktemp("collection") / "c")


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from finetune_worlds import make_model

    return make_model(tmp_path_factory.mktemp("model") / "m")
