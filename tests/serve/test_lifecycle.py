"""A server from start to end: the command, taking over a changed folder, and a quiet end."""

import contextlib
import json
import os
import re
import signal
import threading
import time

import httpx
import pytest
from typer.testing import CliRunner

from liebig.builder.build import BuildConfig, build
from liebig.builder.update import update
from liebig.cli import make_app
from liebig.search import retriever as retriever_module
from liebig.search.retriever import Retriever
from liebig.search.retriever_folder import NAME
from liebig.serve.middleware import Limits
from tests.serve.conftest import until
from tests.worlds.processes import running

COMET = {"comet": ("Comets", "de", [("", ["A comet is a small body of ice."])])}


def test_an_update_is_taken_over_without_a_request_failing(small_model, tmp_path, serving):
    source, out = tmp_path / "source", tmp_path / "notes"
    source.mkdir()
    for name, text in {
        "comet": "A comet is a small body of ice.",
        "violin": "A violin has four strings.",
    }.items():
        (source / f"{name}.md").write_text(f"# About the {name}\n\n{text}\n")
    build(BuildConfig(sources=(str(source),), model=str(small_model), minutes=0), out, lambda line: None)
    statuses, stop = [], threading.Event()
    with (
        serving(Retriever.from_folder(out), Limits(poll=0.05)) as address,
        httpx.Client(base_url=address) as client,
    ):

        def ask():
            while not stop.is_set():
                statuses.append(client.get("/search", params={"q": "a volcanic rock"}).status_code)

        asking = threading.Thread(target=ask)
        asking.start()
        try:
            (source / "basalt.md").write_text("# Basalt\n\nBasalt is a dark volcanic rock.\n")
            (source / "comet.md").unlink()
            update(out, [], lambda line: None)
            until(lambda: httpx.get(f"{address}/health").json()["generation"] == 2)
        finally:
            stop.set()
            asking.join()
        found = httpx.get(f"{address}/search", params={"q": "volcanic rock", "k": 5, "system": "bm25"}).json()
        assert [row["doc"] for row in found["results"]] == ["basalt.md"]
        assert httpx.get(f"{address}/search", params={"q": "comet", "system": "bm25"}).json()["results"] == []
        until(lambda: "liebig_takeovers_total 1.0" in httpx.get(f"{address}/metrics").text)
    assert set(statuses) == {200}


def test_a_folder_that_cannot_be_read_leaves_the_old_one_served(tmp_path, serving, new_generation):
    new_generation(tmp_path / "notes", COMET, 1)
    with serving(Retriever.from_folder(tmp_path / "notes"), Limits(poll=0.05)) as address:
        good = (tmp_path / "notes" / NAME).read_text()
        (tmp_path / "notes" / NAME).write_text(
            json.dumps(json.loads(good) | {"bm25": "gone", "generation": 2})
        )
        until(lambda: "liebig_takeover_failures_total 0.0" not in httpx.get(f"{address}/metrics").text)
        found = httpx.get(f"{address}/search", params={"q": "a comet"}).json()
        assert (found["generation"], len(found["results"])) == (1, 1)


def test_whatever_goes_wrong_once_the_next_generation_is_taken_over(
    tmp_path, serving, new_generation, monkeypatch
):
    new_generation(tmp_path / "notes", COMET, 1)
    retriever = Retriever.from_folder(tmp_path / "notes")
    plain, failed = retriever.reload, threading.Event()

    def once():
        if not failed.is_set():
            failed.set()
            raise RuntimeError("not enough memory")
        return plain()

    monkeypatch.setattr(retriever, "reload", once)
    with serving(retriever, Limits(poll=0.05)) as address:
        assert failed.wait(20)
        new_generation(tmp_path / "notes", COMET, 2)
        until(lambda: httpx.get(f"{address}/health").json()["generation"] == 2)
        until(lambda: "liebig_takeovers_total 1.0" in httpx.get(f"{address}/metrics").text)


def test_an_answer_names_the_generation_that_gave_it(tmp_path, serving, new_generation, monkeypatch):
    new_generation(tmp_path / "notes", COMET, 1)
    retriever = Retriever.from_folder(tmp_path / "notes")
    search = retriever_module.answers

    def slow(*args):
        """The folder is updated, and the new generation opened, while the old one answers."""
        results = search(*args)
        if retriever.generation == 1:
            new_generation(tmp_path / "notes", {}, 2)
            retriever.reload()
        return results

    with serving(retriever, Limits(poll=600)) as address:
        monkeypatch.setattr(retriever_module, "answers", slow)
        found = httpx.get(f"{address}/search", params={"q": "comet", "system": "bm25"}).json()
        assert httpx.get(f"{address}/health").json()["generation"] == 2
    assert (found["generation"], len(found["results"])) == (1, 1)


def test_a_generation_that_a_search_took_over_is_counted(tmp_path, serving, new_generation):
    new_generation(tmp_path / "notes", COMET, 1)
    retriever = Retriever.from_folder(tmp_path / "notes")
    with serving(retriever, Limits(poll=0.5)) as address:
        new_generation(tmp_path / "notes", COMET, 2)
        assert retriever.reload()
        until(lambda: "liebig_generation 2.0" in httpx.get(f"{address}/metrics").text)
        until(lambda: "liebig_takeovers_total 1.0" in httpx.get(f"{address}/metrics").text)


def test_the_command_serves_and_ends_with_code_0_after_the_last_answer(folder, tmp_path):
    words = ["serve", str(folder), "--port", "0", "--workers", "1"]
    with running(words, tmp_path) as (process, said):
        until(lambda: re.search(r"http://[\d.]+:\d+\D", said.read_text()), 200)
        [address, *_] = re.findall(r"http://[\d.]+:\d+", said.read_text())
        answers, asking, stopped = [], [], threading.Event()
        body = {"inputs": ["a long text about barley and steam " * 10] * 120}

        def ask():
            with contextlib.suppress(httpx.TransportError):  # those that come after the signal
                answer = httpx.post(f"{address}/embed", json=body, timeout=60)
                answers.append((stopped.is_set(), answer))

        def busy():
            """Another request each time, until one of them is waiting."""
            asking.append(threading.Thread(target=ask))
            asking[-1].start()
            return 'liebig_waiting_items{work="embed"} 0.0' not in httpx.get(f"{address}/metrics").text

        until(busy)
        stopped.set()
        os.kill(process.pid, signal.SIGTERM)
        for thread in asking:
            thread.join(60)
        process.join(60)
        assert process.exitcode == 0
        late = [answer for after, answer in answers if after and answer.status_code == 200]
        assert late, "what was being answered when the signal came is answered"
        assert all(len(answer.json()) == 120 for answer in late)
        assert "Stopped." in said.read_text()


def test_a_request_that_outlasts_the_shutdown_is_refused_in_one_sentence(retriever, serving, monkeypatch):
    begun, answers = threading.Event(), []

    def explain(*args):
        begun.set()
        time.sleep(4)

    monkeypatch.setattr(type(retriever), "explain", explain)
    with serving(retriever, Limits(grace=1)) as address:
        body = {"query": "a", "id": "comet#0"}
        asking = threading.Thread(
            target=lambda: answers.append(httpx.post(f"{address}/explain", json=body, timeout=60))
        )
        asking.start()
        assert begun.wait(60)
    asking.join(60)
    assert answers[0].status_code == 503
    assert answers[0].json()["error"] == "The server is shutting down."


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--host", "0.0.0.0"], "a server at 0.0.0.0 can be reached from other machines and needs a token"),
        (["--host", "no.such.name.invalid", "--token", "t"], "cannot listen on no.such.name.invalid"),
        (["--token", ""], "the token is empty"),
        (["--reranker", "nowhere"], "no such model folder"),
        (["--device", "abacus"], "device = abacus: this machine has no such device"),
    ],
)
def test_mistakes_end_with_one_sentence_and_code_2(folder, arguments, said):
    result = CliRunner().invoke(make_app(), ["serve", str(folder), "--port", "0", *arguments])
    assert result.exit_code == 2
    assert said in result.output
    assert result.output.strip().count("\n") == 0


def test_a_folder_that_is_no_retriever_is_told(tmp_path):
    result = CliRunner().invoke(make_app(), ["serve", str(tmp_path), "--port", "0"])
    assert result.exit_code == 2
    assert "the folder is not a retriever" in result.output


def test_a_model_that_cannot_be_loaded_is_told_before_the_server_runs(tmp_path, new_generation):
    new_generation(tmp_path / "notes", COMET, 1)
    (tmp_path / "notes" / "model").unlink()
    (tmp_path / "notes" / "model").mkdir()
    result = CliRunner().invoke(make_app(), ["serve", str(tmp_path / "notes"), "--port", "0"])
    assert result.exit_code == 2
    assert "model" in result.output
    assert "Traceback" not in result.output


def test_the_token_can_come_from_the_environment(tmp_path):
    arguments = ["serve", str(tmp_path), "--host", "0.0.0.0", "--port", "0"]
    result = CliRunner().invoke(make_app(), arguments, env={"LIEBIG_TOKEN": "s3cret"})
    assert "the folder is not a retriever" in result.output  # so the token was taken
