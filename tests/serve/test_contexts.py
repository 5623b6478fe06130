"""/context and /ask: passages for a prompt, and the answer of a language model as events."""

import json

import httpx
import pytest

from liebig.integrations.ask import ChatModel
from tests.worlds.chat_server import chatting

BODY = {"query": "what limits the growth of barley?", "tokens": 120, "system": "bm25"}


def test_context_gives_what_the_retriever_gives(client, retriever):
    answer = client.post("/context", json=BODY).json()
    expected = retriever.context(BODY["query"], 120, "bm25")
    assert (answer["text"], answer["tokens"]) == (expected.text, expected.tokens)
    assert [source["id"] for source in answer["sources"]] == [source.id for source in expected.sources]


def test_a_server_without_a_language_model_says_so(client):
    answer = client.post("/ask", json=BODY)
    assert (answer.status_code, "--llm" in answer.json()["error"]) == (400, True)
    assert client.get("/info").json()["llm"] is None


@pytest.mark.parametrize(("said", "problem"), [("So it is [1].", None), ("Or not [9].", "[9]")])
def test_the_answer_of_a_language_model_is_streamed(retriever, serving, said, problem):
    with (
        chatting(said) as llm,
        serving(retriever, llm=ChatModel(llm.url, "tiny")) as address,
        httpx.stream("POST", f"{address}/ask", json=BODY, timeout=60) as answer,
    ):
        events = [json.loads(line[5:]) for line in answer.iter_lines() if line.startswith("data:")]
    text = "".join(event.get("delta", "") for event in events)
    assert text == said.replace("[9]", "[?]")
    assert [source["number"] for source in events[-1]["sources"]] == ([] if problem else [1])
    assert (events[-1]["problem"] or "").count(problem or "[") == (1 if problem else 0)


def test_a_language_model_that_fails_ends_the_events_with_a_sentence(retriever, serving):
    with serving(retriever, llm=ChatModel("http://127.0.0.1:9/v1", "tiny")) as address:
        answer = httpx.post(f"{address}/ask", json=BODY)
    assert "does not answer" in json.loads(answer.text[5:])["error"]
