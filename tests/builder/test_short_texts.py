"""Short texts drawn from passages: the same for the same seed, with words that tell passages apart."""

from itertools import islice

from liebig.base.records import Passage
from liebig.bm25.analysis import Analyzer
from liebig.builder.short_texts import OPENERS, PIECE, ShortTexts, idf_of, salient

TEXTS = {
    "barley": "Barley grows best in soil with enough nitrogen. The farmer, who knows his fields, adds ash in spring. "
    "A late frost ruins the young barley.",
    "steam": "Steam drives the great engine of the mill. When the boiler is cold, nothing in the mill moves at all. "
    "The farmer brings coal for the boiler in spring.",
    "comet": "The comet returns after many years of darkness. Its tail is dust, and the dust shines in the sun. "
    "A young astronomer saw the comet in a cold spring night.",
}
PASSAGES = [Passage(f"{name}-0", text, f"The book of {name}", name) for name, text in TEXTS.items()]


def draw(passages, count, seed=0, language="english"):
    kinds = ShortTexts(passages, Analyzer(language), seed).kinds()
    return [[kind() for _ in range(count)] for kind in kinds]


def test_the_same_seed_gives_the_same_texts_and_another_gives_others():
    first, again, other = (draw(PASSAGES, 20, seed) for seed in (1, 1, 2))
    assert first == again != other


def test_pieces_are_words_of_one_passage_and_its_title():
    known = [set(f"{p.title} {p.text}".replace(".", "").replace(",", "").lower().split()) for p in PASSAGES]
    for text in draw(PASSAGES, 200)[0]:
        drawn = set(text.replace(".", "").replace(",", "").lower().split())
        assert any(drawn <= of_passage for of_passage in known)
        assert len(text.split()) <= PIECE[1] + 4, "and a title of four words"


def test_questions_have_first_words_only_in_english():
    _, questions = draw(PASSAGES, 50)
    assert all(text.lower().startswith(OPENERS["english"]) for text in questions)
    assert len(draw(PASSAGES, 5, language="german")) == 1


def test_passages_of_one_word_give_no_texts():
    assert draw([Passage("p", "barley", "A title", "")], 5) == []


def test_salient_words_are_those_of_few_passages_but_not_of_one():
    fillers = [Passage(str(n), "the of and", "", "") for n in range(10)]
    passages = [*PASSAGES, *fillers]
    idf = idf_of(passages, Analyzer("english"))
    assert {"farmer", "young", "cold", "spring"} >= set(idf) > {"farmer", "young"}
    assert salient(PASSAGES[0], idf) == [w for w in ("farmer", "spring", "young") if w in idf]
    assert list(islice(idf, 1)), "stop words are not among them"
    assert "the" not in idf
