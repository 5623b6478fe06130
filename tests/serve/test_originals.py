"""Original files: only those of indexed documents, never by a path of the request, and nothing in them runs."""

import gzip
import json
import shutil
from dataclasses import replace
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from liebig.base import own_sources
from liebig.base.errors import DataError, RecipeError
from liebig.formats.ledger import Ledger
from liebig.search import retriever_folder
from liebig.search.retriever import Retriever

TEXTS = {
    "note.md": "# Note\n\nBarley <b>grows</b> & ripens.\n",
    "deep/page.html": "<p>Barley on a page.</p><script>alert(1)</script>",
    "soil.pdf": "%PDF-1.4 barley",
    "sheet.bin": "barley\0",
    "old.txt.gz": "Barley of last year.",
    "../secret.md": "Barley is a secret.",
    "/etc/hostname": "Barley at home.",
    "link.md": "Barley behind a link.",
    "gone.md": "Barley was here.",
}


@pytest.fixture(scope="module")
def top(tmp_path_factory, new_generation):
    """A retriever of files; some of its ids lead out of the source, which a crafted folder may try."""
    top = tmp_path_factory.mktemp("originals")
    source, out = top / "source", top / "out"
    (source / "deep").mkdir(parents=True)
    (top / "secret.md").write_text("secret")
    for name in ("note.md", "deep/page.html", "soil.pdf", "sheet.bin"):
        (source / name).write_text(TEXTS[name])
    (source / "old.txt.gz").write_bytes(gzip.compress(TEXTS["old.txt.gz"].encode()))
    (source / "link.md").symlink_to(top / "secret.md")
    documents = {id: (id, "en", [("", [text.rstrip("\n\0").split("\n")[-1]])]) for id, text in TEXTS.items()}
    new_generation(out, documents, 1)
    described = retriever_folder.read(out)
    retriever_folder.write(out, replace(described, more={"sources": ["stdlib:", str(source)]}))
    own_sources.note([str(source)])
    return top


@pytest.fixture(scope="module")
def site(top, serving):
    with serving(Retriever.from_folder(top / "out"), token="t") as address:
        yield address


@pytest.fixture
def opened(site):
    """The answer for the file of a document, by the address that /document gives; None where it gives none."""

    def get(id, **more):
        headers = {"Authorization": "Bearer t"}
        document = httpx.get(f"{site}/document", params={"passage": f"{id}#0"}, headers=headers).json()
        address = document["original"]
        return None if address is None else httpx.get(site + address.partition("#")[0], **more)

    return get


def test_text_is_shown_as_text_with_the_passage_marked(opened):
    answer = opened("note.md")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/html")
    assert "sandbox" in answer.headers["content-security-policy"]
    assert '<li id="passage"><mark>Barley &lt;b&gt;grows&lt;/b&gt; &amp; ripens.</mark></li>' in answer.text


def test_a_compressed_text_is_shown_as_what_it_holds(opened):
    shown = opened("old.txt.gz")
    assert shown.headers["content-type"].startswith("text/html")
    assert '<li id="passage"><mark>Barley of last year.</mark></li>' in shown.text


def test_html_is_sandboxed_and_loads_nothing(opened):
    answer = opened("deep/page.html")
    assert answer.text == TEXTS["deep/page.html"]
    assert answer.headers.get_list("content-security-policy") == [
        "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'none'; "
        "base-uri 'none'; form-action 'none'"
    ]
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_a_pdf_opens_in_the_viewer_and_other_files_are_downloaded(opened):
    pdf, other = opened("soil.pdf"), opened("sheet.bin")
    assert pdf.headers["content-type"] == "application/pdf"
    assert pdf.headers["content-disposition"] == 'inline; filename="soil.pdf"'
    assert other.headers["content-type"] == "application/octet-stream"
    assert other.headers["content-disposition"] == 'attachment; filename="sheet.bin"'
    assert opened("soil.pdf", headers={"Range": "bytes=0-3"}).content == b"%PDF"


@pytest.mark.parametrize("id", ["../secret.md", "/etc/hostname", "link.md", "gone.md"])
def test_no_file_outside_of_the_source_is_served(opened, id):
    assert opened(id) is None


def test_a_retriever_of_somebody_else_opens_no_folder_of_the_reader(top, serving, monkeypatch, tmp_path):
    def original(**engine):
        with serving(Retriever.from_folder(top / "out"), **engine) as address:
            return httpx.get(f"{address}/document", params={"passage": "note.md#0"}).json()["original"]

    monkeypatch.setenv("LIEBIG_STATE", str(tmp_path / "state"))
    assert original() is None
    assert original(originals=[top / "source"]) is not None
    assert original(originals=[tmp_path]) is None
    own_sources.note([str(top / "source")])
    assert original() is not None


@pytest.mark.parametrize("source", ["/a\0b", "loop", "/" + "x" * 5000, "/../..//", ""])
def test_sources_that_are_no_paths_open_nothing(top, serving, tmp_path, source):
    (tmp_path / "loop").symlink_to("loop")
    source = str(tmp_path / source) if source == "loop" else source
    shutil.copytree(top / "out", tmp_path / "out", symlinks=True)
    described = retriever_folder.read(tmp_path / "out")
    retriever_folder.write(tmp_path / "out", replace(described, more={"sources": [source]}))
    with serving(Retriever.from_folder(tmp_path / "out"), originals=[]) as address:
        answer = httpx.get(f"{address}/document", params={"passage": "note.md#0"})
    assert (answer.status_code, answer.json()["original"]) == (200, None)


def test_a_loop_of_links_is_no_file(top, opened):
    loop = top / "source" / "gone.md"
    loop.symlink_to("gone.md")
    try:
        assert opened("gone.md") is None
    finally:
        loop.unlink()


def test_what_a_build_was_given_is_opened_and_what_a_folder_names_is_not(top, tmp_path, monkeypatch):
    from liebig.builder import update

    monkeypatch.setenv("LIEBIG_STATE", str(tmp_path / "state"))
    monkeypatch.setattr(update, "_update", lambda *given: None)
    with pytest.raises(RecipeError, match="was not indexed by you on this machine"):
        update.update(top / "out", (), print)
    assert not own_sources.is_noted(str(top / "source"))
    update.update(top / "out", (str(top / "source"),), print)
    assert own_sources.is_noted(str(top / "source"))


def test_notes_that_cannot_be_written_are_said(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LIEBIG_STATE", str(tmp_path / "file"))
    assert "Not a directory" in own_sources.note(["/srv/notes"])
    assert own_sources.note(["stdlib:"]) == ""


def test_an_address_needs_its_key(site, opened):
    query = parse_qs(urlsplit(str(opened("note.md").url)).query)
    other = {"passage": "soil.pdf#0", "key": query["key"][0]}
    for params in (other, {"passage": "note.md#0", "key": ""}, {"passage": "../secret.md", "key": "é"}):
        assert httpx.get(f"{site}/original", params=params).status_code == 403
    assert httpx.get(f"{site}/original", params={"passage": "note.md#0"}).status_code == 422


def test_a_file_that_disappears_is_named(opened, top):
    file = top / "source" / "gone.md"
    file.write_text("Barley was here.")
    try:
        answer = opened("gone.md")
        assert answer.status_code == 200
    finally:
        file.unlink()
    again = httpx.get(answer.url)
    assert (again.status_code, again.json()["error"]) == (
        404,
        "The file of 'gone.md' is not where it was when it was indexed.",
    )


def test_the_files_that_were_not_read_are_listed(site, top):
    def files():
        return httpx.get(f"{site}/files", headers={"Authorization": "Bearer t"}).json()

    assert files() == {"summary": None, "files": [], "more": 0}
    ledger = Ledger(strict=False)
    for name in ("a.docx", "b.md"):
        ledger.see(f"{top}/source/{name}")
    ledger.mark_read(f"{top}/source/b.md")
    ledger.skip(DataError("is not a zip file", file=f"{top}/source/a.docx"))
    (top / "out" / "files.json").write_text(json.dumps(ledger.summary()))
    assert files() == {"summary": ledger.summary(), "files": [], "more": 0}
    (top / "out" / "skipped.txt").write_text("".join(f"{line}\n" for line in ledger.listing()))
    assert files() == {"summary": ledger.summary(), "files": ["a.docx: is not a zip file."], "more": 0}


def test_a_crafted_list_of_files_is_refused_in_a_sentence_and_a_link_is_not_followed(site, top, tmp_path):
    headers = {"Authorization": "Bearer t"}
    listing, skipped = top / "out" / "files.json", top / "out" / "skipped.txt"
    for text in ("[" * 100_000, "null", '{"seen": "x"}', '{"seen": 1e999}'):
        listing.write_text(text)
        answer = httpx.get(f"{site}/files", headers=headers)
        assert (answer.status_code, "files.json" in answer.json()["error"]) == (422, True)
    listing.write_text(json.dumps(Ledger(strict=False).summary()))
    (tmp_path / "private").write_text("a\n\nsecret")
    skipped.unlink(missing_ok=True)
    skipped.symlink_to(tmp_path / "private")
    try:
        answer = httpx.get(f"{site}/files", headers=headers)
        assert (answer.status_code, "secret" in answer.text) == (422, False)
    finally:
        skipped.unlink()
        listing.unlink()
