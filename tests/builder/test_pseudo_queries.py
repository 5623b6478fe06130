"""Queries cut from text: of every kind, held out where they must be, the same for the same seed."""

import pytest

from liebig.base.records import Passage
from liebig.bm25.analysis import Analyzer
from liebig.builder import pseudo_queries as made
from liebig.builder.pseudo_queries import Frequencies, Material, Section, Telling

TEXTS = {
    "barley": "Barley grows best in soil with enough nitrogen. The farmer, who knows his fields, adds ash in spring. "
    "A late frost ruins the young barley.",
    "steam": "Steam drives the great engine of the mill. When the boiler is cold, nothing in the mill moves at all. "
    "The farmer brings coal for the boiler in spring.",
    "comet": "The comet returns after many years of darkness. Its tail is dust, and the dust shines in the sun. "
    "A young astronomer saw the comet in a cold spring night.",
}


def passages():
    return [Passage(f"{name}-0", text, f"The book of {name}", name) for name, text in TEXTS.items()]


def material(passage):
    return Material(passage, Telling(Frequencies.of([passage]), Analyzer()))


def test_every_kind_is_made_of_every_passage():
    sections = [Section("Origin", ("barley-0",)), Section("Use", ("steam-0", "elsewhere-0"))]
    found = made.pseudo_queries(passages(), sections, Analyzer())
    kinds = {kind: [q for q in found if q.kind == kind] for kind in {q.kind for q in found}}
    assert {kind: len(of_kind) for kind, of_kind in kinds.items()} == {
        "title": 3, "question": 1, "keywords": 3, "claim": 3, "span": 3, "sentence": len(kinds["sentence"])
    }  # fmt: skip
    assert kinds["question"][0].passages == ("barley-0",), "a section with a passage elsewhere is no question"
    assert "Origin" in kinds["question"][0].text
    assert {q.text for q in kinds["title"]} == {f"The book of {name}" for name in TEXTS}


def test_the_same_seed_gives_the_same_queries_and_another_gives_others():
    found = [made.pseudo_queries(passages(), (), Analyzer(), seed) for seed in (1, 1, 2)]
    assert found[0] == found[1] != found[2]


def test_no_text_is_a_query_twice():
    twice = [*passages(), Passage("copy-0", TEXTS["barley"], "The book of barley", "copy")]
    texts = [q.text.casefold() for q in made.pseudo_queries(twice, (), Analyzer())]
    assert len(texts) == len(set(texts))


def test_keywords_are_words_of_the_passage_that_few_passages_have():
    frequencies = Frequencies({"barley": 2, "soil": 3, "frost": 2, "the": 90, "ash": 1}, 100)
    telling = Telling(frequencies, Analyzer())
    for seed in range(20):
        words = made.keywords(Material(passages()[0], telling), seed).split()
        assert made.KEYWORDS[0] <= len(words) <= made.KEYWORDS[1]
        assert set(words) <= {"barley", "soil", "frost"}, "neither common words nor words of one passage"
    assert made.keywords(Material(Passage("p", "the ash", "", ""), telling)) == ""


def test_a_claim_is_a_sentence_or_a_clause_that_is_taken_out_of_the_passage():
    texts = set()
    for seed in range(40):
        found = made.claim(material(passages()[1]), seed)
        assert found.cut in TEXTS["steam"]
        assert found.text in found.cut
        assert made.CLAIM[0] <= len(found.text.split()) <= made.CLAIM[1]
        texts.add(found.text)
    assert "nothing in the mill moves at all" in texts, "clauses too"
    alone = Passage("p", "Barley grows best in soil with nitrogen.", "", "")
    assert made.claim(material(alone)) is None, "nothing would be left"


@pytest.mark.parametrize("seed", range(5))
def test_a_span_is_some_words_in_a_row(seed):
    for passage in passages():
        found = made.span(material(passage), seed)
        assert found in passage.text
        assert made.SPAN[0] <= len(found.split()) <= made.SPAN[1]
    assert made.span(material(Passage("p", "too short", "", ""))) == ""


def test_a_title_of_many_documents_or_many_passages_is_no_query():
    shared = [Passage(f"{i}-0", "text", "Notes", str(i)) for i in range(made.SHARED + 1)]
    long = [Passage(f"d-{i}", "text", "A long book", "d") for i in range(made.UNDER + 1)]
    numbers = [Passage("n-0", "text", "1840", "n")]
    assert not list(made.titles([*shared, *long, *numbers]))
