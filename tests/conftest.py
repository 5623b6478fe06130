"""For all tests: no example of a property may fail because the machine is busy or slow, and libraries keep quiet."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.worlds.shared import made_once

settings.register_profile("liebig", deadline=None)
settings.load_profile("liebig")
# A database that one test started logs to stderr from its own threads, in the middle of what another test captures.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")


@pytest.fixture(scope="session", autouse=True)
def disk_is_not_waited_for() -> Iterator[None]:
    """No test pulls the plug. Processes that tests start do wait for the disk, as users' do."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture(scope="session")
def small_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a tiny random encoder, in place of the bundled one."""
    from tests.worlds.models import small_encoder  # not every process of a run needs torch

    return made_once(tmp_path_factory, "small-model", small_encoder)
