"""The query language: how it is read, that its conditions hold for every system, and what is said about the rest."""

import random
from dataclasses import replace
from io import StringIO

import numpy as np
import pytest
from rich.console import Console

from liebig.base.errors import RecipeError
from liebig.commands.search import ask_retriever
from liebig.search.answer import NOTHING_FITS
from liebig.search.filters import Column, _year, seconds_of
from liebig.search.floor import Floor
from liebig.search.matching import pattern_of
from liebig.search.query_language import FieldCondition, ParsedQuery, WordCondition, date_span, parse
from liebig.search.retriever import Retriever
from liebig.search.suggest import _prefix_edits, distance
from tests.search.conftest import make_folder

DOCUMENTS = {
    "farm/barley.md": (
        "Barley in spring", {"language": "en", "modified": "2023-05-01", "size": "900"},
        "The growth of barley is limited by the scarcest nutrient of the soil.",
        "Nitrogen and phosphorus are taken from the ground by every harvest.",
    ),
    "farm/beer.txt": (
        "Fermentation", {"language": "en", "modified": "2024-02-29T10:00:00", "size": "20000"},
        "Fermentation of barley makes beer. Universities study the yeast.",
        "The soil of the brewery is not the growth of the barley.",
    ),
    "sky/comet.pdf": (
        "Kometen", {"language": "de", "modified": "2024-11-18", "size": "100"},
        "Ein Komet ist ein kleiner Körper aus Eis. 彗星は氷の天体です。",
        "Halley's comet returns; growth is of barley no concern.",
    ),
    "violin": ("Violins", {}, "The happiest violin has four strings.", "A bow of the barley field, of the soil."),
}  # fmt: skip
ALL = [f"{doc}-{i}" for doc in DOCUMENTS for i in range(2)]


@pytest.fixture(scope="module")
def retriever(small_model, tmp_path_factory):
    return Retriever.from_folder(
        make_folder(tmp_path_factory.mktemp("language") / "out", small_model, DOCUMENTS)
    )


def ids(retriever, query, system="hybrid", **more):
    return {result.id for result in retriever.answer(query, 8, system, **more).results}


def test_a_query_without_syntax_is_handed_on_unchanged():
    for query in (
        "what  is x?",
        "python -m venv",
        "std::vector",
        '19" rack',
        "-5 degrees",
        "a - b",
        "--flag",
        "e-mail",
    ):
        assert parse(query) == ParsedQuery(query, typed=query)


def test_every_piece_of_syntax_is_read():
    query = parse(
        'soil "of the soil" -beer -"two words" ferm* title:barley -type:pdf lang:de before:2024 path:"a b"'
    )
    assert query.text == "soil of the soil ferm"
    assert [str(word) for word in query.words] == ['"of the soil"', "-beer", '-"two words"', "ferm*"]
    assert [str(field) for field in query.fields] == [
        "title:barley",
        "-type:pdf",
        "lang:de",
        "before:2024",
        'path:"a b"',
    ]
    assert query.notes == ()
    assert parse("“curly quotes”, please").words == (WordCondition("phrase", "curly quotes"),)


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ('an "open quote', "not closed"),
        ("author:smith wrote", "author: is not a field"),
        ("before:soon", "is not a date"),
        ("after:2024-13", "is not a date"),
        ("title: barley", "has no value"),
        ("ab* cheese", "too short"),
        ("+beer barley", "+ is not an operator"),
        ("beer OR barley", "OR is not an operator"),
    ],
)
def test_what_is_not_understood_is_said(query, said):
    assert said in " ".join(parse(query).notes)
    assert parse(query).text


@pytest.mark.parametrize(
    ("query", "text"),
    [("before:soon barley", "barley"), ("type: barley", "barley"), ("before:soon", "before:soon")],
)
def test_a_condition_that_is_not_understood_is_no_word(query, text):
    assert parse(query).text == text


@pytest.mark.parametrize("system", ["bm25", "dense", "hybrid"])
@pytest.mark.parametrize(
    "condition",
    [
        WordCondition("phrase", "growth of barley"),
        WordCondition("phrase", "of the"),  # stop words alone
        WordCondition("phrase", "Halley's comet"),
        WordCondition("phrase", "氷の天体"),
        WordCondition("phrase", "fermentation"),  # one word, without stemming
        WordCondition("prefix", "ferm"),
        WordCondition("prefix", "universi"),  # its term is univers
        WordCondition("prefix", "happy"),
        WordCondition("phrase", "growth of barley", excluded=True),
        WordCondition("prefix", "barl", excluded=True),
    ],
)
def test_a_condition_on_words_holds_for_every_system(retriever, system, condition):
    pattern = pattern_of(condition)
    texts = {id: retriever.passage(id) for id in ALL}
    having = {id for id, p in texts.items() if pattern.search(p.title) or pattern.search(p.text)}
    passing = set(ALL) - having if condition.excluded else having
    found = ids(retriever, f"growth barley {condition}", system)
    assert found <= passing
    if system != "bm25":  # which gives what shares a word with the query
        assert found == passing


def test_an_excluded_word_goes_with_its_other_forms(retriever):
    assert ids(retriever, "barley -comets", "dense") == {id for id in ALL if id != "sky/comet.pdf-1"}


@pytest.mark.parametrize(
    ("conditions", "documents"),
    [
        ("title:barley", {"farm/barley.md"}),
        ('title:"in spring"', {"farm/barley.md"}),
        ("path:farm", {"farm/barley.md", "farm/beer.txt"}),
        ("path:*.md", {"farm/barley.md"}),
        ("type:pdf", {"sky/comet.pdf"}),
        ("-type:.PDF", {"farm/barley.md", "farm/beer.txt", "violin"}),
        ("lang:de", {"sky/comet.pdf"}),
        ("lang:german", {"sky/comet.pdf"}),
        ("before:2024", {"farm/barley.md"}),
        ("after:2024-02", {"farm/beer.txt", "sky/comet.pdf"}),
        ("after:2024-02-29 before:2024-03", {"farm/beer.txt"}),
    ],
)
def test_fields_choose_documents(retriever, conditions, documents):
    for system in ("dense", "hybrid"):
        found = {result.doc for result in retriever.answer(f"barley {conditions}", 8, system).results}
        assert found == documents


def test_conditions_alone_list_the_documents_that_meet_them(retriever):
    answer = retriever.answer("lang:en", sort="newest")
    assert [result.id for result in answer.results] == ["farm/beer.txt-0", "farm/barley.md-0"]
    assert [result.id for result in retriever.search("lang:en")] == ["farm/barley.md-0", "farm/beer.txt-0"]


def test_a_phrase_that_no_passage_has_is_named(retriever):
    answer = retriever.answer('"barley of growth"')
    assert answer.results == []
    assert answer.notes == ('No passage has "barley of growth".',)


def test_a_field_that_no_document_has_is_left_out_and_said(small_model, tmp_path):
    plain = {"a": ("A", {}, "Barley grows."), "b": ("B", {}, "Barley rots.")}
    retriever = Retriever.from_folder(make_folder(tmp_path / "out", small_model, plain))
    answer = retriever.answer("barley lang:de", 5, "bm25")
    assert len(answer.results) == 2
    assert "lang:de" in answer.notes[0]


def test_a_document_is_of_its_own_date_where_it_has_one_and_of_its_files_where_not(small_model, tmp_path):
    file = {"modified": "2026-11-18T23:08:20Z"}
    documents = {
        "mails:1": ("A", {"date": "2023-11-02", **file}, "Barley grows."),
        "mails:2": ("B", {"date": "soon", **file}, "Barley rots."),
        "notes.md": ("C", file, "Barley ripens."),
        "2026.md": ("D", {"modified": "2023-11-02"}, "Barley is sown."),
    }
    retriever = Retriever.from_folder(make_folder(tmp_path / "out", small_model, documents))
    for conditions, expected in (
        ("before:2024", ["mails:1", "2026.md"]),
        ("after:2024", ["mails:2", "notes.md"]),
    ):
        assert sorted(r.doc for r in retriever.search(f"barley {conditions}", 9, "bm25")) == sorted(expected)
        bound = {"lt": "2024"} if "before" in conditions else {"gte": "2024"}
        hits = retriever.search("barley", 9, "bm25", {"date": bound})
        assert sorted(hit.doc for hit in hits) == sorted(expected)
    assert retriever.answer("barley", facets=["date"]).facets == {"date": {"2023": 2, "2026": 2}}
    assert [hit.doc for hit in retriever.search("barley", 9, "bm25", {"date": "soon"})] == ["mails:2"]
    newest = retriever.answer("barley", 9, "bm25", sort="newest").results
    assert {result.doc for result in newest[:2]} == {"mails:2", "notes.md"}


def test_a_long_document_leaves_room_for_others_among_the_newest(small_model, tmp_path):
    documents = {
        "pump.log": ("Log", {"modified": "2026-11-18"}, *[f"Barley pump {n}." for n in range(9)]),
        "notes.md": ("Notes", {"modified": "2025-11-18"}, "Barley ripens."),
    }
    retriever = Retriever.from_folder(make_folder(tmp_path / "out", small_model, documents))
    newest = retriever.answer("barley", 5, "bm25", sort="newest").results
    assert [result.doc for result in newest] == ["pump.log"] * 3 + ["notes.md"]
    assert [result.rank for result in newest] == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("filters", "documents"),
    [
        ({"size": {"gte": 100, "lt": 900}}, {"sky/comet.pdf"}),
        ({"size": {"gt": 100, "lte": 900}}, {"farm/barley.md"}),
        ({"modified": {"gte": "2024"}}, {"farm/beer.txt", "sky/comet.pdf"}),
        ({"modified": {"lte": "2024-02-29"}}, {"farm/barley.md", "farm/beer.txt"}),
        ({"modified": {"gt": "2024-02"}, "language": ["de", "en"]}, {"sky/comet.pdf"}),
        ({"folder": "farm", "type": "md"}, {"farm/barley.md"}),
    ],
)
def test_ranges_compare_numbers_and_dates(retriever, filters, documents):
    found = {result.doc for result in retriever.search("barley", 8, "dense", filters)}
    assert found == documents


@pytest.mark.parametrize("bounds", [{}, {"above": 5}, {"gte": True}, {"gte": "soon"}, {"gte": None}])
def test_a_range_that_is_none_is_refused(retriever, bounds):
    with pytest.raises(RecipeError, match=r"range|bound"):
        retriever.search("barley", 3, "dense", {"size": bounds})


def test_facets_count_documents_and_ignore_a_filter_on_their_own_field(retriever):
    names = ("folder", "type", "language", "modified", "colour")
    answer = retriever.answer("barley", facets=names)
    assert answer.facets == {
        "folder": {"farm": 2, "sky": 1},
        "type": {"md": 1, "pdf": 1, "txt": 1},
        "language": {"en": 2, "de": 1},
        "modified": {"2024": 2, "2023": 1},
        "colour": {},
    }
    narrowed = retriever.answer("barley", facets=names, filters={"type": "md"}).facets
    assert narrowed["type"] == answer.facets["type"]
    assert narrowed["language"] == {"en": 1}
    assert retriever.answer("barley -comet", facets=("type",)).facets["type"] == {"md": 1, "txt": 1}


@pytest.mark.parametrize(
    "date", ["inf", "1e400", "99999999999999999", "-99999999999999", "nan", "0001-01-01T00:00+23:59"]
)
def test_a_date_of_no_year_is_no_date(date):
    """Metadata come from documents, of anybody."""
    assert np.isnan(seconds_of(date))
    dates = Column({date: 1, "2024-05": 2}, np.array([0, 1, 2], np.int32)).mapped(_year)
    assert dates.counts(np.ones(3, bool)) == {"2024": 1}


def test_a_bound_of_very_many_digits_and_a_range_of_ids_are_refused(retriever):
    with pytest.raises(RecipeError, match="digits"):
        retriever.search("barley", 3, "dense", {"size": {"lt": 10**400}})
    with pytest.raises(RecipeError, match="the filter id"):
        retriever.search("barley", 3, "dense", {"id": {"lt": 5}})


def test_newest_orders_the_best_by_date(retriever):
    answer = retriever.answer("barley", 8, "bm25", sort="newest")
    docs = list(dict.fromkeys(result.doc for result in answer.results))
    assert docs == ["sky/comet.pdf", "farm/beer.txt", "farm/barley.md", "violin"]
    assert [result.rank for result in answer.results] == list(range(1, len(answer.results) + 1))


def test_questions_asked_together_are_answered_as_alone(retriever):
    queries = ["barley", '"growth of barley"', "soil -beer", "type:pdf", "comet"]
    together = retriever.search_many(queries, 5, "bm25")
    assert together == [retriever.search(query, 5, "bm25") for query in queries]


def test_did_you_mean_a_word_of_the_corpus(retriever):
    assert retriever.answer("fermentaton of barly").suggestion == "fermentation of barley"
    assert retriever.answer("fermentation of barley").suggestion is None
    assert retriever.answer("xyzzyqwert").suggestion is None


def test_a_query_of_many_unknown_words_is_not_looked_up_word_by_word(retriever, monkeypatch):
    monkeypatch.setattr(
        "liebig.search.suggest.nearest_word", lambda bm25, word: pytest.fail(f"looks for {word}")
    )
    assert retriever.answer("fermentaton barly nitrogn harvst phosphrus").suggestion is None
    assert retriever.answer("fermentatio" + "n" * 100).suggestion is None


def test_only_so_many_conditions_count():
    parsed = parse("barley " + "title:a -steam " * 400)
    assert len(parsed.words) + len(parsed.fields) == 32
    assert parsed.notes == ("Only the first 32 conditions count.",)


@pytest.mark.parametrize(
    "query", ['"\uff9e"', "-\u037a\u037a", '"\ufe70 \ufe72" barley', "\uff9e\uff9e\uff9e*"]
)
def test_letters_that_are_marks_when_they_are_normalised_are_no_error(retriever, query):
    """The Python pattern for letters has them; their compatibility form has no letter."""
    assert retriever.answer(query, 3, "bm25").notes in ((), (f"No passage has {query.split(' barley')[0]}.",))


def test_the_values_of_a_facet_are_those_of_most_documents_by_name_where_they_tie(monkeypatch):
    monkeypatch.setattr("liebig.search.filters.MOST_VALUES", 7)
    rng = np.random.default_rng(0)
    values = {f"v{name}": place + 1 for place, name in enumerate(rng.permutation(50).tolist())}
    column = Column(values, rng.integers(0, 51, 400).astype(np.int32))
    documents = rng.random(400) < 0.5
    every = {v: int(np.count_nonzero(column.codes[documents] == code)) for v, code in values.items()}
    expected = sorted(((-count, value) for value, count in every.items() if count))[:7]
    assert list(column.counts(documents).items()) == [(value, -count) for count, value in expected]
    assert column.counts(np.zeros(400, bool)) == {}


def test_nonsense_finds_nothing_and_says_so(retriever):
    answer = retriever.answer("xyzzyqwert")
    assert (answer.results, answer.notes) == ([], (NOTHING_FITS,))
    assert retriever.answer("xyzzyqwert", floor=False).results
    shown = Console(file=StringIO(), width=100)
    ask_retriever(retriever.folder, console=shown)("xyzzyqwert")
    assert shown.file.getvalue().splitlines() == [
        NOTHING_FITS,
        "To see the passages that have words of it: --system bm25",
    ]


def test_what_words_find_is_shown_where_they_have_the_say(retriever, monkeypatch):
    monkeypatch.setattr(Floor, "fits", lambda self, question, best: False)
    assert not retriever.answer("barley").results
    generation = retriever.current
    monkeypatch.setattr(generation, "description", replace(generation.description, weight=0.75))
    found = retriever.answer("barley")
    assert found.results
    assert NOTHING_FITS not in found.notes
    assert not retriever.answer("barley", system="dense").results
    assert retriever.answer("xyzzyqwert").notes == (NOTHING_FITS,)


def test_edits_to_a_prefix_are_the_fewest_to_any_beginning():
    rng = random.Random(0)
    words = ["".join(rng.choices("abc", k=rng.randint(1, 7))) for _ in range(300)]
    for word in words[:20]:
        expected = [min(distance(term, word[:end]) for end in range(len(word) + 1)) for term in words]
        assert _prefix_edits(words, word).tolist() == expected
    assert distance("preasure", "pressure") == 1
    assert distance("wrod", "word") == 1


def test_dates_are_spans():
    assert date_span("2024-02")[1] == date_span("2024-03")[0]
    assert date_span("2023-12")[1] == date_span("2024")[0]
    assert date_span("2024-05-01T00:00:00Z")[0] == date_span("2024-05-01")[0]
    assert date_span("last week") is None
    assert str(FieldCondition("path", "a b", excluded=True)) == '-path:"a b"'
