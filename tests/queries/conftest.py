"""Small generators and a collection for the tests of query generation."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def t5(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from queries_worlds import make_t5

    return make_t5(tmp_path_factory.mktemp("t5") / "m")


@pytest.fixture(scope="session")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from queries_worlds import make_encoder

    return make_encoder(tmp_path_factory.mktemp("encoder") / "m")


@pytest.fixture(scope="session")
def collection(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from queries_worlds import write_collection

    return write_collection(tmp_path_factory.mktemp("collection") / "c")
