"""A build goes on without bad files, says how many there are and lists them in the retriever's folder."""

import pytest

from liebig.base.errors import DataError
from liebig.builder.build import BuildConfig
from liebig.builder.reading import read_collection, unread_lines
from liebig.builder.runner import Builder


def test_bad_files_are_counted_and_listed_until_they_are_mended(small_model, tmp_path):
    sources, out = tmp_path / "in", tmp_path / "out"
    sources.mkdir()
    out.mkdir()  # as a build finds it, which holds a lock there
    (sources / "a.md").write_text("# A\n\nSome text.\n")
    link = sources / "l.md"
    link.symlink_to("/nowhere/at/all")

    def read(strict: bool = False) -> list[str]:
        said: list[str] = []
        config = BuildConfig(sources=(str(sources),), strict=strict)
        read_collection(Builder(out, said.append), config, small_model)
        return unread_lines(out)

    _, line, row = read()
    assert line.startswith("2 files seen = 1 read + 1 not read. ")
    assert row.split() == ["1", ".md", "the", "symlink", "is", "broken"]
    assert "l.md: the symlink is broken" in (out / "skipped.txt").read_text()
    with pytest.raises(DataError, match="is broken"):
        read(strict=True)
    link.unlink()
    assert read() == []
    assert not (out / "skipped.txt").exists()
