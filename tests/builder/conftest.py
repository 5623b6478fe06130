"""Builds with a tiny random encoder, for all tests of builds that are not about the bundled one."""

import pytest

from liebig.builder.build import BuildConfig, build


@pytest.fixture(scope="session")
def made(small_model):
    """Builds a folder from a source, without training unless told otherwise; gives the lines it says."""

    def make(source, out, **config):
        lines = []
        fields = {"minutes": 0, "model": str(small_model), **config}
        build(BuildConfig(sources=(str(source),), **fields), out, lines.append)
        return lines

    return make
