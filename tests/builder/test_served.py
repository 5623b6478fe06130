"""What a build serves has been compared as it is served, and is not worse than what anybody can put together."""

import json
import lzma
import os
import random
from pathlib import Path

import numpy as np
import pytest

from liebig import encoders
from liebig.base.records import Passage
from liebig.base.statistics import ALPHA
from liebig.builder import check
from liebig.builder.judge import BASELINE, PLAIN, SystemJudge
from liebig.builder.questions import Question
from liebig.builder.signs import signs_of, signs_of_texts
from liebig.builder.update import update
from liebig.collection.writer import CollectionWriter
from liebig.formats.items import Item, Where
from liebig.model.text_reader import text_reader
from liebig.ragged import Ragged
from liebig.search.fusion import weighted_by
from liebig.search.retriever import Retriever
from liebig.search.retriever_folder import read

DATA = Path(os.environ.get("LIEBIG_DATA", Path(__file__).parents[3] / "shared" / "data"))

# Letters that the bundled encoder does not know: Ethiopic, and rare Han characters, which stand without spaces.
SCRIPTS = {"spaced": ("\u1200", 300, " ", ". "), "unspaced": ("\u3400", 2000, "", "。")}


def write_unreadable(path, script, documents=90):
    """Documents of a few sentences that share some words, in letters that only BM25 can tell apart."""
    first, letters, space, stop = SCRIPTS[script]
    draw = random.Random(0)

    def word():
        return "".join(chr(ord(first) + draw.randrange(letters)) for _ in range(2 if space == "" else 4))

    words = [word() for _ in range(100)]
    rows = []
    for number in range(documents):
        own = draw.sample(words, 6)
        # Of any length, because the encoder sees that a passage is shorter than others.
        sentences = [
            space.join([*draw.sample(own, 3), *draw.sample(words, draw.randint(2, 12))])
            for _ in range(draw.randint(3, 6))
        ]
        rows.append({"_id": f"d{number}", "title": "", "text": stop.join(sentences) + stop.strip()})
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.mark.parametrize("script", SCRIPTS)
def test_an_encoder_that_cannot_read_the_texts_is_not_used(made, tmp_path, script):
    source, out = write_unreadable(tmp_path / "corpus.jsonl", script), tmp_path / "out"
    lines = made(source, out, model=None, language="none")
    description = read(out)
    assert (description.system, description.systems) == ("bm25", ("bm25",))
    assert not any((out / "work").glob("*vectors*")), "nothing was encoded"
    assert not any((out / "work").glob("pool*"))
    checks = check.read(out / description.checks)
    assert checks["headline"] in lines
    assert "the bundled encoder cannot read 9" in checks["headline"]
    word = json.loads(source.read_text(encoding="utf-8").splitlines()[7])["text"][:12]
    retriever = Retriever.from_folder(out)
    assert retriever.search(word, k=3)
    source.write_text(
        source.read_text(encoding="utf-8") + json.dumps({"_id": "new", "text": "quince marmalade"})
    )
    assert update(out, [], lines.append).new == 1
    assert Retriever.from_folder(out).search("quince", k=1)[0].id.startswith("new")


@pytest.mark.parametrize(
    ("text", "readable"),
    [
        ("The growth of barley is limited by what is scarcest.", True),
        ("La croissance de l'orge est limitée par ce qui est le plus rare.", True),
        ("def grow(barley, rain):\n    return min(barley, rain)", True),
        ("Рост ячменя ограничен тем, чего меньше всего.", False),
        ("大麦の成長は最も不足しているものによって制限される。", False),
    ],
)
def test_signs_tell_whether_the_bundled_encoder_reads_a_text(tmp_path, text, readable):
    with CollectionWriter(tmp_path) as writer:
        writer.add(Item(Passage("p", text), Where("test")))
    assert signs_of(tmp_path, encoders.folder()).readable == readable


class Bytes:
    """A vocabulary of bytes, which has no unknown pieces."""

    special = np.zeros(256, bool)
    continues = np.zeros(256, bool)

    def encode_packed(self, texts):
        return Ragged.from_lists([list(text.encode()) for text in texts])

    def tokens(self, ids):
        return [f"byte {id}" for id in ids]


@pytest.mark.parametrize(("text", "readable"), [("Barley grows.", True), ("Рост ячменя", False)])
def test_a_vocabulary_of_bytes_reads_no_text_that_it_takes_apart_into_bytes(text, readable):
    assert signs_of_texts([Passage("p", text)], Bytes()).readable == readable


def test_passages_in_languages_that_the_encoder_was_not_made_for_are_counted():
    texts = (
        "The farmers of the valley sold their barley to the brewers of the town before the winter came.",
        "A function that returns the first element of a list, or a default where the list is empty.",
        "Les agriculteurs de la vallée vendaient leur orge aux brasseurs de la ville avant l'arrivée de l'hiver.",
        "Die Bauern verkauften ihre Gerste vor dem Wintereinbruch an die Brauereien der benachbarten Stadt.",
    )
    seen = signs_of_texts([Passage("p", text) for text in texts], text_reader(encoders.folder()).tokenizer)
    assert seen.abroad == 0.5
    assert seen.of_rule["abroad"] == 0.5


def test_an_encoder_that_is_named_and_cannot_read_the_texts_is_not_used(made, tmp_path):
    source, model = write_unreadable(tmp_path / "corpus.jsonl", "spaced"), str(encoders.folder())
    lines = made(source, tmp_path / "out", model=model, language="none")
    assert read(tmp_path / "out").systems == ("bm25",)
    assert any(f"the encoder {model} cannot read" in line for line in lines)


def test_an_encoder_that_reads_by_letters_is_told_by_what_it_does_not_know(small_model, tmp_path):
    with CollectionWriter(tmp_path) as writer:
        writer.add(Item(Passage("p", "Barley grows where the rain falls."), Where("test")))
    assert signs_of(tmp_path, small_model).readable


def test_the_check_compares_with_the_score_scale_of_the_folder():
    lists = [[(str(rank), 1 - rank / 100) for rank in range(20)]]
    judge = SystemJudge(
        [Question("q", ("3",), "title")], {"bm25": [[("3", 2.0)]], "start": lists}, scales={"start": 0.5}
    )
    fuse = weighted_by(PLAIN, "spread", spread=0.5)
    assert judge.answers(BASELINE.as_deployed)[0] == fuse([[("3", 2.0)], lists[0]])


@pytest.mark.parametrize(("name", "language"), [("fquad-fr", "fr"), ("jsquad-ja", "ja")])
def test_texts_of_other_languages_are_not_served_worse_than_by_the_plain_hybrid(
    made, tmp_path, name, language
):
    corpus = DATA / name / "corpus.jsonl.xz"
    if not corpus.is_file():
        pytest.skip(f"{corpus} is not there")
    with lzma.open(corpus, "rt", encoding="utf-8") as file:
        lines = file.readlines()
    spread = lines[:: len(lines) // 60][:60]  # neighbours are of one article, which leaves too few questions
    (tmp_path / "corpus.jsonl").write_text("".join(spread), encoding="utf-8")
    made(tmp_path / "corpus.jsonl", tmp_path / "out", model=None, language=language)
    checks = check.read(tmp_path / "out" / read(tmp_path / "out").checks)
    if name == "jsquad-ja":
        assert checks["choice"]["system"] == "bm25"
        return
    difference = {row["name"]: row["difference"] for row in checks["rows"]}[checks["chosen"]]
    assert difference["high"] >= 0 or difference["p"] >= ALPHA
