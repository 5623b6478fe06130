"""Builds with a tiny random encoder, for all tests of builds that are not about the bundled one."""

import pytest

from liebig.builder.build import BuildConfig, build
from liebig.stages import STAGES


@pytest.fixture(scope="session")
def made(small_model):
    """Builds a folder from a source, without training unless told otherwise; gives the lines it says."""

    def make(source, out, **config):
        lines = []
        fields = {"minutes": 0, "model": str(small_model), **config}
        build(STAGES, BuildConfig(sources=(str(source),), **fields), out, lines.append)
        return lines

    return make
