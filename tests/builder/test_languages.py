"""A folder of several languages: every document has its own, words are found in each, and the build says so."""

import pytest

from liebig.builder.reading import language_lines
from liebig.builder.update import update
from liebig.search.query_language import parse
from liebig.search.retriever import Retriever
from liebig.search.retriever_folder import read
from liebig.search.suggest import suggestion

ENGLISH = "The {0} was repaired in the spring, and the owner of the house has paid for all of it. It was the best {0}."
FRENCH = "Les congés payés sont dus à tous les employés de la société. La sécurité des {0} est une priorité pour nous."
GERMAN = "Die Küche wurde im letzten Jahr renoviert, und der Vermieter hat die Kosten für {0} übernommen."


def write(folder):
    folder.mkdir()
    for word in ("roof", "window", "cellar", "door", "wall", "garden"):
        (folder / f"{word}.md").write_text(f"# The {word}\n\n{ENGLISH.format(word)}\n")
    (folder / "conges.md").write_text(f"# Congés\n\n{FRENCH.format('enfants')}\n")
    (folder / "kueche.md").write_text(f"# Küche\n\n{GERMAN.format('das Material')}\n")
    (folder / "list.txt").write_text("roof\n\nwindow\n")
    (folder / "notizen" / "alt").mkdir(parents=True)
    for word in ("Material", "Werkzeug", "Fenster"):
        (folder / "notizen" / f"{word}.md").write_text(f"# {word}\n\n{GERMAN.format(f'das {word}')}\n")
    (folder / "notizen" / "alt" / "list.txt").write_text("Dächer\n\nFenster\n")
    return folder


@pytest.fixture(scope="module")
def mixed(made, tmp_path_factory):
    folder = tmp_path_factory.mktemp("mixed")
    lines = made(write(folder / "source"), folder / "out", model=None)
    return folder / "out", lines


def test_a_build_says_its_languages_and_names_a_multilingual_model(mixed):
    _, lines = mixed
    assert "Languages of the documents: English 6, German 4, French 1, unknown 2" in lines
    [advice] = [line for line in lines if "multilingual" in line]
    assert advice.startswith("5 documents are not in English")
    assert "--model" in advice


def test_the_share_of_other_languages_is_that_of_documents_with_a_language():
    assert len(language_lines({"en": 5, "": 90_000}, True)) == 1
    said = language_lines({"de": 1, "en": 5, "": 90_000}, True)
    assert said[1].startswith("1 document is not in English")


@pytest.mark.parametrize(
    "query, doc",
    [("conges", "conges.md"), ("kuche", "kueche.md"), ("securite", "conges.md"), ("repairs roof", "roof.md")],
)
def test_words_are_found_in_the_language_of_their_document(mixed, query, doc):
    hit = Retriever.from_folder(mixed[0]).search(query, k=1, system="bm25")[0]
    assert hit.doc == doc


def test_the_language_is_metadata_that_searches_filter_by(mixed):
    retriever = Retriever.from_folder(mixed[0])
    hits = retriever.search("roof", k=10, filters={"language": ["fr", "de"]})
    assert {hit.metadata["language"] for hit in hits} == {"fr", "de"}
    assert retriever.info()["languages"] == {"en": 6, "de": 4, "fr": 1, "": 2}
    texts = {passage.id: passage.language for passage in retriever.current.collection.passages()}
    assert texts["list.txt-0"] == "en", "what is not known is taken to be in the language of most"
    assert texts["notizen/alt/list.txt-0"] == "de", "of its folder, or of the one above it"


def test_a_long_table_leaves_the_documents_their_languages(made, tmp_path):
    source = write(tmp_path / "source")
    rows = "".join(f"B{row};{row % 97}\n" for row in range(2000))
    (source / "bookings.csv").write_text(f"voucher;amount\n{rows}")
    lines = made(source, tmp_path / "out")
    assert "Languages of the documents: English 6, German 4, French 1, unknown 2,002" in lines
    collection = Retriever.from_folder(tmp_path / "out").current.collection
    languages = {passage.id: passage.language for passage in collection.passages()}
    assert (languages["conges.md-0"], languages["bookings.csv:3-0"]) == ("fr", "en")


def test_a_language_that_is_named_is_that_of_all_documents(made, tmp_path):
    lines = made(write(tmp_path / "source"), tmp_path / "out", language="de", model=None)
    assert not any("Languages" in line or "multilingual" in line for line in lines)
    retriever = Retriever.from_folder(tmp_path / "out")
    assert retriever.current.bm25.settings.language == "german"
    assert "language" not in retriever.search("kuche", k=1)[0].metadata


def test_an_update_takes_in_another_language(made, tmp_path):
    source = write(tmp_path / "source")
    (source / "kueche.md").unlink()
    made(source, tmp_path / "out")
    (source / "kueche.md").write_text(f"# Küche\n\n{GERMAN.format('das Material')}\n")
    update(tmp_path / "out", [], lambda line: None)
    retriever = Retriever.from_folder(tmp_path / "out")
    assert retriever.search("kuche", k=1, system="bm25")[0].doc == "kueche.md"
    assert read(tmp_path / "out").more["languages"] == {"en": 6, "de": 4, "fr": 1, "": 2}


@pytest.mark.parametrize(
    "query, docs",
    [
        ('"Kosten für das Material"', {"kueche.md"}),
        ('"was repaired" -roof -window -cellar -door -wall', {"garden.md"}),
        ("renov*", {"kueche.md"}),
        ("employ* congés", {"conges.md"}),
    ],
)
def test_phrases_and_beginnings_of_words_are_found_in_every_language(mixed, query, docs):
    hits = Retriever.from_folder(mixed[0]).search(query, k=10, system="bm25")
    assert hits[0].doc in docs
    assert '"' not in query or {hit.doc for hit in hits} == docs


def test_a_misspelt_word_of_another_language_is_suggested(mixed):
    bm25 = Retriever.from_folder(mixed[0]).current.bm25
    assert suggestion(bm25, parse("vermeiter kitchen")) == "vermieter kitchen"
