"""Labels: the pool of all systems, the file of judgements, and what goes on after an interruption."""

import contextlib
import errno
import json
import os
import threading

import httpx
import pytest

from liebig.base.errors import DataError, RecipeError
from liebig.builder.user_questions import read_file
from liebig.search.answer import Result
from liebig.search.retriever import Retriever
from liebig.serve.label import Labelling, label_routes, pooled
from liebig.serve.middleware import Refusal


def result(id):
    return Result(id, 1.0, 1, "", "", "")


def test_systems_take_turns_and_a_passage_is_judged_once():
    lists = [[result("a"), result("b"), result("c")], [result("b"), result("d")], []]
    assert [one.id for one in pooled(lists)] == ["a", "b", "d", "c"]
    assert pooled([]) == []


def test_judgements_are_appended_and_the_last_word_counts(tmp_path):
    made = Labelling.open(tmp_path, None, None)
    made.ask("Why?")
    made.add("Why?", "p1", 1)
    made.add("why?", "p2", 0)
    made.add("Why?", "p1", None)
    assert made.file == tmp_path / "judgements.jsonl"
    assert [json.loads(line)["relevance"] for line in made.file.read_text().splitlines()] == [1, 0, None]
    assert made.progress == {"questions": 1, "judged": 1, "answered": 0, "judgements": 1}
    (question,), _ = read_file(made.file)
    assert question.grades == {"p1": None, "p2": 0}
    again = Labelling.open(tmp_path, None, None)
    assert (again.questions, again.grades) == (["Why?"], {"why?": {"p2": 0}})


def test_questions_of_the_last_build_wait_to_be_judged(tmp_path):
    (tmp_path / "work" / "given").mkdir(parents=True)
    (tmp_path / "work" / "given" / "unjudged.jsonl").write_text('{"text": "a"}\n{"text": "b"}\n')
    made = Labelling.open(tmp_path, None, None)
    made.add("a", "p", 1)
    assert made.questions == ["a", "b"]
    assert Labelling.open(tmp_path, None, None).first == 1
    assert made.ask("B ") == 1
    assert made.ask("c") == 2


def test_judgements_may_go_to_the_file_of_questions_itself(tmp_path):
    own = tmp_path / "questions.jsonl"
    own.write_text(
        '{"question": "Why?", "relevant": ["p1"]}\n{"question": "How?"}'
    )  # and no newline at the end
    made = Labelling.open(tmp_path, None, own)
    assert (made.questions, made.first) == (["Why?", "How?"], 1)
    made.add("How?", "p2", 1)
    made.add("How?", "p3", 0)
    questions, _ = read_file(own)
    assert {question.text: question.grades for question in questions} == {
        "Why?": {"p1": 1},
        "How?": {"p2": 1, "p3": 0},
    }


def test_judgements_are_not_written_into_another_format(tmp_path):
    with pytest.raises(RecipeError, match="lines of JSON"):
        Labelling.open(tmp_path, None, tmp_path / "questions.csv")


def test_a_file_of_questions_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(DataError, match="there is no such file"):
        Labelling.open(tmp_path, tmp_path / "nothing.txt", None)


def test_the_folder_of_the_judgements_is_made_for_the_first_of_them(tmp_path):
    made = Labelling.open(tmp_path, None, tmp_path / "new" / "folder" / "j.jsonl")
    assert not (tmp_path / "new").exists()
    made.add("q", "p", 1)
    assert made.file.is_file()


@contextlib.contextmanager
def files_of_at_most(size):
    """A full disk as the kernel shows it: a write is cut short, the next one fails."""
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_loses_no_judgement_and_leaves_no_part_of_one(tmp_path):
    made = Labelling(tmp_path / "j.jsonl", ["Why?"])
    made.add("Why?", "p1", 1)
    whole = made.file.read_bytes()
    for room in (0, 1, 20):  # a write that fails, and two that are cut short
        with (
            files_of_at_most(len(whole) + room),
            pytest.raises(Refusal, match="was not saved in ") as refused,
        ):
            made.add("Why?", "p2", 0)
        assert refused.value.status == 507
        assert made.file.read_bytes() == whole
        assert made.grades == {"why?": {"p1": 1}}
    made.add("Why?", "p2", 0)
    assert Labelling.open(tmp_path, None, made.file).grades == {"why?": {"p1": 1, "p2": 0}}


@pytest.mark.parametrize("before", ["", '{"question": "a", "passage": "p", "relevance": 1}\n'])
def test_an_incomplete_last_judgement_is_named_and_the_others_stay(tmp_path, before):
    file = tmp_path / "judgements.jsonl"
    file.write_text(before + '{"question": "b", "pas')
    made = Labelling.open(tmp_path, None, None)
    assert made.notes == [f'{file}: the last line was incomplete and was removed: {{"question": "b", "pas']
    made.add("c", "p", 0)
    grades = Labelling.open(tmp_path, None, None).grades
    assert grades == ({"a": {"p": 1}} if before else {}) | {"c": {"p": 0}}


def test_the_routes_show_questions_and_save_judgements(serving, retriever, tmp_path):
    made = Labelling(tmp_path / "j.jsonl", ["growth of barley"])
    with (
        serving(retriever, more=lambda engine: label_routes(engine, made)) as address,
        httpx.Client(base_url=address, timeout=60) as client,
    ):
        shown = client.get("/label/question").json()
        assert shown["question"] == "growth of barley"
        first = shown["passages"][0]
        assert first["relevance"] is None
        sent = {"question": shown["question"], "passage": first["id"], "relevance": 1}
        assert client.post("/label/judgement", json=sent).json()["progress"]["answered"] == 1
        assert client.get("/label/question").json()["passages"][0]["relevance"] == 1
        assert client.get("/label/question", params={"number": 5}).status_code == 404
        assert client.post("/label/judgement", json={**sent, "relevance": 7}).status_code == 422
        blank = client.post("/label/judgement", json={**sent, "question": " "})
        assert (blank.status_code, blank.json()["error"]) == (422, "The query is empty.")
        unknown = client.post("/label/judgement", json={**sent, "passage": "nosuch"})
        assert (unknown.status_code, "no passage 'nosuch'" in unknown.text) == (404, True)
        assert client.get("/label").status_code == 200
    assert json.loads((tmp_path / "j.jsonl").read_text()) == sent


def test_passages_are_judged_without_their_markup(serving, new_generation, tmp_path):
    text = "**Barley** grows by `work`."
    new_generation(tmp_path / "notes", {"barley": ("Barley", "en", [("", [text])])}, 1)
    labelling = Labelling(tmp_path / "out.jsonl", ["barley"])
    retriever = Retriever.from_folder(tmp_path / "notes")
    with serving(retriever, more=lambda engine: label_routes(engine, labelling)) as address:
        (passage,) = httpx.get(f"{address}/label/question").json()["passages"]
    assert passage["text"] == "Barley grows by work."


def test_without_questions_one_is_asked_for(serving, retriever, tmp_path):
    made = Labelling(tmp_path / "j.jsonl", [])
    with (
        serving(retriever, more=lambda engine: label_routes(engine, made)) as address,
        httpx.Client(base_url=address, timeout=60) as client,
    ):
        assert client.get("/label/question").json()["number"] is None
        assert client.post("/label/ask", json={"question": "comets"}).json() == {"number": 0}
        assert client.get("/label/question").json()["question"] == "comets"


def test_a_failed_judgement_takes_none_of_another_server_with_it(tmp_path, monkeypatch):
    file = tmp_path / "judgements.jsonl"
    first, second = (Labelling(file, ["a"]) for _ in range(2))
    first.add("a", "p0", 1)
    other = threading.Thread(target=second.add, args=("a", "p1", 1))
    sync = os.fsync

    def fail(descriptor):
        monkeypatch.setattr(os, "fsync", sync)
        other.start()
        other.join(2)  # it waits for the first, or it would be cut off with its line
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(Refusal, match="was not saved"):
        first.add("a", "p2", 1)
    other.join()
    assert [json.loads(line)["passage"] for line in file.read_text().splitlines()] == ["p0", "p1"]


def test_judgements_are_not_written_through_a_link_out_of_the_folder(tmp_path):
    (tmp_path / "profile").write_text("no end of a line")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "judgements.jsonl").symlink_to(tmp_path / "profile")
    with pytest.raises(RecipeError, match="leads out of the folder"):
        Labelling.open(tmp_path / "out", None, None)
    assert (tmp_path / "profile").read_text() == "no end of a line"
