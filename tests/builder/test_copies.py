"""Copies in a folder: one hit that names the others, before and after an update, and nothing is lost."""

from pathlib import Path

import pytest

from liebig.bm25.analysis import Analyzer
from liebig.builder.update import update
from liebig.commands.search import document_cell
from liebig.search.answer import by_document
from liebig.search.retriever import Retriever

TEXT = "".join(
    f"The {name} was opened in {1900 + n} by the mayor, and {n + 3} thousand people came to see it. "
    for n, name in enumerate(
        ("harbour", "library", "station", "museum", "theatre", "bridge", "market", "school")
    )
)


def write(folder: Path) -> Path:
    folder.mkdir()
    for word in ("roof", "window", "cellar"):
        (folder / f"{word}.md").write_text(
            f"# The {word}\n\nNobody has seen the {word} of this house for a long time.\n"
        )
    (folder / "opened.md").write_text(f"# Opened\n\n{TEXT}\n")
    (folder / "copy.txt").write_text(TEXT + "\n\n")
    (folder / "mail.txt").write_text(
        "Thank you, see you at the aquarium.\n\n" + "\n".join(f"> {line}." for line in TEXT.split(". "))
    )
    (folder / "link.md").symlink_to("opened.md")
    return folder


@pytest.fixture(scope="module")
def built(made, tmp_path_factory):
    folder = tmp_path_factory.mktemp("copies")
    return folder, made(write(folder / "source"), folder / "out")


def test_a_text_is_one_hit_that_names_where_else_it_is(built):
    folder, lines = built
    retriever = Retriever.from_folder(folder / "out")
    hits = retriever.search("museum opened by the mayor", k=10, system="bm25")
    assert [hit.doc for hit in hits if "museum" in hit.text] == ["copy.txt"]
    assert hits[0].metadata["also_in"] == "mail.txt, opened.md, link.md"
    cell = document_cell(by_document(hits[:1])[0], "museum", Analyzer())
    assert cell.plain.split("\n")[0].endswith(", also in mail.txt, opened.md, link.md")
    assert (
        "3 documents are copies of others, wholly or nearly; a hit says where else it is (also in)" in lines
    )


def test_what_only_the_copy_says_is_found(built):
    retriever = Retriever.from_folder(built[0] / "out")
    assert retriever.search("aquarium", k=1, system="bm25")[0].doc == "mail.txt"
    assert retriever.document("mail.txt").metadata["copy_of"] == "copy.txt"


def test_a_copy_in_the_same_file_is_named_by_its_id(made, tmp_path):
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "roof.md").write_text("# The roof\n\nNobody has seen the roof of this house.\n")
    gate = '    def close(self):\n        """Close the sluice when the river rises."""\n        self.gate.drop()\n'
    (tmp_path / "source" / "mill.py").write_text(f"class Upper:\n{gate}\n\nclass Lower:\n{gate}")
    made(tmp_path / "source", tmp_path / "out")
    [hit] = Retriever.from_folder(tmp_path / "out").search("close the sluice", k=1, system="bm25")
    assert (hit.doc, hit.metadata["also_in"]) == ("mill.py:Upper.close", "mill.py:Lower.close")


def test_an_update_follows_copies_that_come_and_go(made, tmp_path):
    source = write(tmp_path / "source")
    made(source, tmp_path / "out")
    (source / "copy.txt").unlink()
    (source / "mail.txt").unlink()
    counts = update(tmp_path / "out", [], lambda line: None)
    assert counts.deleted == 2
    hit = Retriever.from_folder(tmp_path / "out").search("museum opened", k=1, system="bm25")[0]
    assert (hit.doc, hit.metadata["also_in"]) == ("opened.md", "link.md")
