"""Encoders that come with the package: found by name, small, and loaded by everyone."""

import pytest

from liebig import encoders

LARGEST = 16_000_000  # bytes of a folder


def test_the_default_is_there_and_found_with_and_without_its_prefix():
    assert encoders.DEFAULT in encoders.names()
    assert encoders.folder() == encoders.folder(encoders.PREFIX + encoders.DEFAULT)
    assert (encoders.folder() / "model.safetensors").is_file()


def test_an_unknown_name_is_refused_with_those_there_are():
    with pytest.raises(ValueError, match=encoders.PREFIX + encoders.DEFAULT):
        encoders.folder("liebig:maxi")


@pytest.mark.parametrize("name", encoders.names())
def test_every_encoder_is_small_enough_for_the_package(name):
    files = [path for path in encoders.folder(name).rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= LARGEST
