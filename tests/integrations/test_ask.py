"""Contexts for prompts, and `liebig ask` against a server that speaks the OpenAI API."""

import json

import pytest
from typer.testing import CliRunner

from liebig.base.errors import RecipeError
from liebig.cli import make_app
from liebig.integrations.ask import ChatModel, CitationCheck, messages_of
from liebig.search.answer import Result
from liebig.search.context import tokens_in, within_budget
from liebig.search.retriever import Retriever
from tests.search.conftest import make_folder
from tests.worlds.chat_server import chatting

QUESTION = "what limits the growth of barley?"


@pytest.fixture(scope="module")
def folder(small_model, tmp_path_factory):
    return make_folder(tmp_path_factory.mktemp("ask") / "folder", small_model)


def ask(folder, *more):
    return CliRunner().invoke(make_app(), ["ask", str(folder), QUESTION, "--model", "tiny", *more])


def results(*texts, **metadata):
    return [Result(f"p{i}", 1.0, i + 1, "Title", text, f"d{i}", metadata) for i, text in enumerate(texts)]


def test_a_context_keeps_to_its_budget_in_whole_sentences():
    texts = ["One is first. Two is second. Three is third.", "Four is fourth. Five is fifth."]
    for budget in range(1, 80):
        context = within_budget(QUESTION, results(*texts), budget)
        used = sum(tokens_in(source.label) + tokens_in(source.text) for source in context.sources)
        assert used == context.tokens <= budget
        assert all(source.text.endswith((".", "third.")) for source in context.sources)
    assert [source.text for source in context.sources] == texts
    assert [source.number for source in context.sources] == [1, 2]


def test_no_sentence_comes_twice():
    context = within_budget(
        "", results("Rain falls. Snow melts.", "Snow  melts. Wind blows.", "rain falls."), 1000
    )
    assert [source.text for source in context.sources] == ["Rain falls. Snow melts.", "Wind blows."]


def test_a_sentence_larger_than_the_budget_is_passed_over():
    context = within_budget("", results("A table | " * 50, "Rain falls.", "Snow melts."), 12)
    assert [(source.number, source.id) for source in context.sources] == [(1, "p1")]


def test_a_source_says_its_file_and_page():
    (source,) = within_budget("", results("A is b.", path="x/y.pdf", page="3"), 100).sources
    assert source.label == "[1] Title (x/y.pdf, page 3)"
    (source,) = within_budget("", results("A is b."), 100).sources
    assert source.label == "[1] Title (d0)"


def test_a_retriever_gives_the_context_of_a_question(folder):
    retriever = Retriever.from_folder(folder)
    context = retriever.context(QUESTION, tokens=60, system="bm25")
    best = retriever.search(QUESTION, 1, "bm25")[0]
    assert (context.sources[0].id, context.sources[0].text) == (best.id, best.text)
    assert context.text.startswith("[1] Barley (barley)\n")
    with pytest.raises(RecipeError, match="tokens"):
        retriever.context(QUESTION, tokens=0)


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_citations_are_checked_however_the_answer_is_cut(folder, size):
    sources = Retriever.from_folder(folder).context(QUESTION, system="bm25").sources[:2]
    answer = "By [1] and [2, 7], see [note] and a[0] [12 and [99] end ["
    check = CitationCheck(sources)
    parts = [answer[i : i + size] for i in range(0, len(answer), size)]
    assert "".join(check.checked(parts)) == "By [1] and [2][?], see [note] and a[?] [12 and [?] end ["
    assert (check.cited, check.unknown) == ({1, 2}, {0, 7, 99})


@pytest.mark.parametrize("stream", [True, False])
def test_an_answer_is_printed_with_the_sources_it_cites(folder, stream, monkeypatch):
    monkeypatch.setenv("LIEBIG_LLM_KEY", "secret")
    with chatting("The scarcest nutrient limits it [1].", stream=stream) as server:
        result = ask(folder, "--llm", server.url, "--system", "bm25")
    assert result.exit_code == 0, result.output
    assert result.stdout == "The scarcest nutrient limits it [1].\n\n[1] Barley (barley)\n"
    (request,) = server.requests
    assert (request["model"], request["stream"], server.keys) == ("tiny", True, ["Bearer secret"])
    context = Retriever.from_folder(folder).context(QUESTION, system="bm25")
    assert context.text in request["messages"][1]["content"]


def test_a_citation_of_a_source_that_does_not_exist_is_refused(folder):
    with chatting("It is so [1], it is said [42].") as server:
        result = ask(folder, "--llm", server.url, "--system", "bm25")
        as_json = ask(folder, "--llm", server.url, "--system", "bm25", "--json")
    assert (result.exit_code, result.stdout.startswith("It is so [1], it is said [?].")) == (2, True)
    assert "[42]" in result.stderr
    assert (as_json.exit_code, json.loads(as_json.stdout)["unknown"]) == (2, [42])


def test_text_of_documents_cannot_leave_its_fence(folder):
    context = Retriever.from_folder(folder).context(QUESTION, system="bm25")
    (rules, prompt), (_, again) = messages_of(context), messages_of(context)
    fence = prompt["content"].split("--- sources ")[1].split(" ---")[0]
    assert fence in rules["content"]
    assert prompt["content"].count(fence) == 2
    assert fence not in again["content"]  # another for each request, so that no document can know it


def test_what_cannot_be_asked_is_said_in_one_sentence(folder):
    for url, said in (("file:///etc/passwd", "not the URL"), ("http://127.0.0.1:9/v1", "does not answer")):
        result = ask(folder, "--llm", url, "--system", "bm25")
        assert (result.exit_code, said in result.stderr, result.stdout) == (2, True, "")
    with chatting("") as server:
        refused = ask(folder, "--llm", server.url + "/wrong", "--system", "bm25")
        assert (refused.exit_code, "refuses the request (404)" in refused.stderr) == (2, True)
        for question, said in (("xyzzyqwert", "model was not asked"), (" ", "the question is empty")):
            words = ["ask", str(folder), question, "--llm", server.url, "--model", "tiny"]
            nothing = CliRunner().invoke(make_app(), words)
            assert (nothing.exit_code, said in nothing.stderr) == (2, True)
        narrow = ask(folder, "--llm", server.url, "--system", "bm25", "--tokens", "3")
        assert (narrow.exit_code, "no room" in narrow.stderr, "--tokens" in narrow.stderr) == (2, True, True)
        assert len(server.requests) == 1
    with pytest.raises(RecipeError):
        ChatModel("localhost:11434", "tiny")


def test_a_citation_of_very_many_digits_is_text():
    answer = f"So [{'1' * 5000}] and [1]."
    assert "".join(CitationCheck(()).checked([answer])) == f"So [{'1' * 5000}] and [?]."
