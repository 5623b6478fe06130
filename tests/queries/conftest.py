"""Small generators and a collection for the tests of query generation."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.worlds.queries import make_encoder, make_t5, write_collection


@pytest.fixture(scope="session")
def t5(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_t5(tmp_path_factory.mktemp("t5") / "m")


@pytest.fixture(scope="session")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_encoder(tmp_path_factory.mktemp("encoder") / "m")


@pytest.fixture(scope="session")
def collection(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_collection(tmp_path_factory.mktemp("collection") / "c")
