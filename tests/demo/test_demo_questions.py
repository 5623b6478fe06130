"""The demo's questions: enough of them, every answer in the corpus, none given away."""

import json
from collections import Counter
from inspect import isbuiltin

import pytest

from liebig.demo import FILE, JudgedQuestion, questions, questions_for


@pytest.fixture(scope="module")
def documents(whole_library):
    return {name: text for name, text, _ in whole_library["texts"]}


def rows():
    return [json.loads(line) for line in FILE.read_text(encoding="utf-8").splitlines()]


def test_there_are_more_than_300_questions_about_more_than_100_modules():
    modules = {document.partition(".")[0] for row in rows() for document in row["answers"]}
    assert len(rows()) >= 300
    assert len(modules) >= 100


def test_ids_and_texts_are_unique_and_grades_are_1_or_2():
    assert len({row["id"] for row in rows()}) == len({row["text"].lower() for row in rows()}) == len(rows())
    assert {grade for row in rows() for grade in row["answers"].values()} == {1, 2}


@pytest.mark.skipif(not isbuiltin(open), reason="open is that of a simulated system")
def test_every_answer_is_a_document_of_this_python(documents):
    assert [(row["text"], d) for row in rows() for d in row["answers"] if d not in documents] == []


def test_no_question_is_a_sentence_of_its_answer(documents):
    copied = {
        question.text
        for question in questions_for(documents)
        for document in question.grades
        if question.text.lower() in " ".join(documents[document].lower().split())
    }
    assert len(copied) <= len(rows()) * 0.02  # a few are what anybody would say, such as "number of CPUs"


def test_both_halves_are_large_and_every_question_has_an_answer(documents):
    kept = questions_for(documents)
    assert len(kept) == len(questions())
    assert min(Counter(question.split for question in kept).values()) > 130


def test_a_question_whose_answers_are_not_there_is_left_out():
    assert questions_for({"heapq.merge"}) == [
        JudgedQuestion("q001", "merge two sorted iterables", {"heapq.merge": 2})
    ]
