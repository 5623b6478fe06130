"""A model that judges: its prompt, its file, and a comparison of systems that people's judgements correct."""

import json
import os
import re
import signal
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import numpy as np
import pytest
from typer.testing import CliRunner

from liebig.base.errors import RecipeError, ResourceError
from liebig.builder.user_questions import read_file
from liebig.cli import make_app
from liebig.search.answer import Result
from liebig.serve.label import Labelling, key_of
from liebig.serve.model_judge import (
    FEWEST,
    ModelGrades,
    client_of,
    compare_systems,
    grade_of,
    in_random_order,
    judge_pools,
    pools,
    prompt_of,
    sentences,
)
from tests.serve.conftest import until
from tests.worlds.processes import running

QUESTIONS = [
    f"{word} {more}" for word in ("barley", "comet", "violin", "steam") for more in ("a", "b", "c", "d", "e")
]


class Judge(ThreadingHTTPServer):
    """Speaks the OpenAI API; grades with `grade(prompt)`."""

    daemon_threads = True

    def __init__(self, grade):
        super().__init__(("127.0.0.1", 0), JudgeHandler)
        self.grade, self.bodies, self.keys = grade, [], []
        self.url = f"http://127.0.0.1:{self.server_address[1]}/v1"


class JudgeHandler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.bodies.append(body)
        self.server.keys.append(self.headers.get("Authorization"))
        said = self.server.grade(body["messages"][0]["content"])
        if said is None:
            self.send_error(400, "no such model")
            return
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"choices": [{"message": {"content": said}}]}).encode())

    def log_message(self, *_):
        pass


@pytest.fixture
def judge():
    made = []

    def started(grade):
        server = Judge(grade)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        made.append(server)
        return server

    yield started
    for server in made:
        server.shutdown()
        server.server_close()


def by_word(prompt):
    """3 for a passage that has the first word of the question, 1 otherwise."""
    question, text = re.search(r"Question: (\w+).*?\n\w{16}\n(.*)\n\w{16}\n", prompt, re.S).groups()
    return f"Grade: {3 if question in text.lower() else 1}"


@pytest.mark.parametrize(
    "answer, grade",
    [("2", 2), ("Grade: 3", 3), ("2/3", 2), ("<think>1 or 2?</think>\n0.", 0), ("12", None), ("0.5", None)],
)  # fmt: skip
def test_the_grade_is_the_last_digit_that_stands_alone(answer, grade):
    assert grade_of(answer) == grade


def test_no_passage_can_end_its_own_fence():
    passage = Result("p", 1.0, 1, "A title", "text {question} {fence}", "")
    first, second = prompt_of("why?", passage), prompt_of("why?", passage)
    fences = [re.findall(r"^\w{16}$", prompt, re.M) for prompt in (first, second)]
    assert [len(set(one)) for one in fences] == [1, 1]
    assert fences[0] != fences[1]
    assert "A title\ntext {question} {fence}" in first


def test_the_model_grades_the_pool_once_and_its_file_says_whose_grades_it_has(retriever, judge, tmp_path):
    server = judge(by_word)
    questions = ["barley", "comet"]
    passages, _ = pools(retriever, questions)
    model = ModelGrades.open(tmp_path / "judgements.jsonl", "org/judge:7b")
    assert judge_pools(client_of(server.url, "org/judge:7b", "k"), model, questions, passages) == 0
    rows = [json.loads(line) for line in model.file.read_text().splitlines()]
    assert model.file == tmp_path / "judgements.org-judge-7b.jsonl"
    assert len(rows) == sum(map(len, passages)) == len(server.bodies)
    assert {row["judge"] for row in rows} == {"org/judge:7b"}
    assert {row["relevance"] for row in rows} == {1, 3}
    assert set(server.keys) == {"Bearer k"}
    assert server.bodies[0]["temperature"] == 0
    again = ModelGrades.open(tmp_path / "judgements.jsonl", "org/judge:7b")
    assert again.grades == model.grades
    assert judge_pools(client_of(server.url, "org/judge:7b", None), again, questions, passages) == 0
    assert len(server.bodies) == len(rows), "nothing is asked twice"
    questions_read, notes = read_file(model.file)
    assert any(
        f"{len(rows)} judgements are those of the language model org/judge:7b" in note for note in notes
    )
    assert {grade for question in questions_read for grade in question.by_model.values()} == {0, 1}, (
        "1 is no answer"
    )


def test_passages_without_a_grade_are_counted_and_a_refusal_is_one_sentence(retriever, judge, tmp_path):
    passages, _ = pools(retriever, ["barley"])
    model = ModelGrades.open(tmp_path / "j.jsonl", "m")
    mute = client_of(judge(lambda prompt: "I cannot say.").url, "m", None)
    assert judge_pools(mute, model, ["barley"], passages) == len(passages[0])
    assert compare_systems(retriever, Labelling(tmp_path / "j.jsonl", ["barley"]), model) is None
    refusing = client_of(judge(lambda prompt: None).url, "m", None)
    with pytest.raises(ResourceError, match=r"refuses the request \(400\)"):
        judge_pools(refusing, model, ["barley"], passages)
    with pytest.raises(RecipeError, match="is not the URL of a server"):
        client_of("localhost:11434", "m", None)


def graded(retriever, tmp_path, people, generous):
    """A model that calls everything relevant where `generous`, and people who call relevant what has the word."""
    labelling = Labelling(tmp_path / "j.jsonl", in_random_order(QUESTIONS))
    model = ModelGrades(tmp_path / "m.jsonl", "m")
    passages, _ = pools(retriever, labelling.questions)
    for number, (question, pool) in enumerate(zip(labelling.questions, passages)):
        truth = {hit.id: int(question.split()[0] in f"{hit.title} {hit.text}".lower()) for hit in pool}
        model.grades[key_of(question)] = dict.fromkeys(truth, 1) if generous else truth
        if number < people:
            labelling.grades[key_of(question)] = truth
    return compare_systems(retriever, labelling, model)


def test_people_correct_a_model_that_calls_everything_relevant(retriever, tmp_path):
    truth = graded(retriever, tmp_path, len(QUESTIONS), generous=False)
    biased = graded(retriever, tmp_path, 0, generous=True)
    corrected = graded(retriever, tmp_path, 12, generous=True)
    for right, wrong, both in zip(truth.systems, biased.systems, corrected.systems):
        assert right.name == "bm25" or wrong.value.mean > max(0.95, right.value.mean + 0.1)
        assert both.value.low <= right.value.mean <= both.value.high
        assert both.difference is None or both.difference.low <= right.difference.mean <= both.difference.high
    assert (corrected.questions, corrected.by_people) == (20, 12)
    assert corrected.agreement < 0.5
    assert truth.agreement == truth.kappa == 1.0


def test_the_models_grades_alone_are_called_that_and_have_no_interval(retriever, tmp_path):
    alone = graded(retriever, tmp_path, FEWEST - 1, generous=True)
    said = "\n".join(sentences(alone))
    assert "the model's alone and may be wrong by its bias" in said
    assert "[" not in said
    assert all(np.isnan(system.value.low) for system in alone.systems)
    both = "\n".join(sentences(graded(retriever, tmp_path, FEWEST, generous=True)))
    assert "20 questions judged by m, 10 of them by people, whose judgements correct the model's." in both
    assert both.count("[") == 2 * len(alone.systems) - 1


def test_questions_come_in_an_order_that_does_not_depend_on_the_file():
    order = in_random_order(QUESTIONS)
    assert order == in_random_order(QUESTIONS[::-1]) != sorted(QUESTIONS)
    assert sorted(order) == sorted(QUESTIONS)


def test_a_judge_needs_a_model(folder):
    result = CliRunner().invoke(make_app(), ["label", str(folder), "--judge", "http://localhost:1/v1"])
    assert result.exit_code == 2
    assert "a language model needs both --judge and --model" in result.stderr


def test_the_command_lets_the_model_judge_and_compares_systems_at_the_end(folder, judge, tmp_path):
    server = judge(by_word)
    (tmp_path / "questions.txt").write_text("barley\ncomet\n")
    options = ["--questions", "questions.txt", "--out", "j.jsonl", "--judge", server.url, "--model", "tiny"]
    with running(["label", str(folder), *options, "--port", "0"], tmp_path) as (process, said):
        until(lambda: "Serving" in said.read_text(), 200)
        address = re.search(r"http://[\d.:]+", said.read_text().partition("Serving")[2])[0]
        shown = httpx.get(f"{address}/label/question").json()
        rest = {"question": shown["question"], "passages": [one["id"] for one in shown["passages"]]}
        assert httpx.post(f"{address}/label/rest", json=rest).json()["progress"]["judged"] == 1
        os.kill(process.pid, signal.SIGINT)
        process.join(60)
        output = said.read_text()
    assert "The grades of tiny are in j.tiny.jsonl." in output
    assert output.count("2 questions judged by tiny") == 2
    assert "2 questions judged by tiny, 1 of them by people. The values below are the model's alone" in output
    assert len((tmp_path / "j.jsonl").read_text().splitlines()) == len(shown["passages"])
