"""Copies of documents: found however they are named, and never at the price of a text that only one of them has."""

import numpy as np
import pytest

from liebig.base.records import Document, Section
from liebig.collection import copies
from liebig.collection.copies import BINS, find_copies, signature

WORDS = [f"word{i}" for i in range(2000)]


def text(seed, n=200):
    return " ".join(np.random.default_rng(seed).choice(WORDS, n))


def document(id, *paragraphs):
    return Document(id, id, (Section("", paragraphs),))


def row(text):
    out = np.empty(BINS, np.uint32)
    count = signature(np.frombuffer(text.encode(), np.uint8), out)
    return count, out


def test_the_share_of_equal_bins_estimates_the_similarity():
    errors = []
    for seed in range(40):
        words = text(seed, 400).split()
        changed = words[: 30 * (seed % 10)] + text(seed + 100, 400 - 30 * (seed % 10)).split()
        sets = [set(zip(w, w[1:], w[2:])) for w in (words, changed)]
        true = len(sets[0] & sets[1]) / len(sets[0] | sets[1])
        errors.append(float((row(" ".join(words))[1] == row(" ".join(changed))[1]).mean()) - true)
    assert abs(np.mean(errors)) < 0.03
    assert np.sqrt(np.mean(np.square(errors))) < 0.08


@pytest.mark.parametrize(
    "other",
    [
        "the same text, in other\n> lines and QUOTED, with “marks”.",
        "The same text in other lines and quoted with marks",
    ],
)
def test_quote_marks_case_and_lines_do_not_matter(other):
    count, bins = row("The same text in other lines and quoted, with marks.")
    assert count == 8
    assert row(other)[0] == count
    assert (row(other)[1] == bins).all()


def test_texts_without_spaces_are_compared_by_characters():
    assert row("休暇の申請は人事部へ")[0] == 8
    assert (row("休暇の 申請は\n人事部へ")[1] == row("休暇の申請は人事部へ")[1]).all()


def test_identical_and_nearly_identical_documents_are_copies_of_the_first():
    original, other = text(0), text(1)
    changed = " ".join([*original.split()[:-4], "only", "this", "is", "new"])
    found = find_copies(
        [
            document("a", original),
            document("b", other),
            document("c", original.upper()),
            document("d", changed),
            document("e", ""),
            document("f", ""),
            document("g", "two words"),
            document("h", "Two words!"),
            document("i", "two other"),
        ]
    )
    assert found.originals == {"c": "a", "d": "a", "h": "g"}
    assert found.copies == {"a": ["c", "d"], "g": ["h"]}


def test_documents_of_one_template_are_not_copies():
    frame = text(5, 60)
    assert find_copies([document(str(i), f"{frame} {text(i + 10, 60)}") for i in range(50)]).originals == {}


def test_the_same_copies_are_found_among_many_in_any_bucket(monkeypatch):
    monkeypatch.setattr(copies, "NEAR", 2)
    rows = [document(f"{i}-{j}", f"{text(i)} end {j}") for i in range(100) for j in range(3)]
    found = find_copies(rows)
    assert found.originals == {f"{i}-{j}": f"{i}-0" for i in range(100) for j in (1, 2)}


def test_no_documents_have_no_copies():
    assert find_copies([]).originals == {}
