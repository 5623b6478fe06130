"""What the server finds is what the retriever finds; documents, marks and explanations for the page."""

import json
from types import SimpleNamespace

import httpx
import numpy as np
import pytest

from liebig.base import pipeline
from liebig.bm25.analysis import MixedAnalyzer
from liebig.search.embed import Embedder
from liebig.search.retriever import Retriever
from liebig.search.retriever_folder import RetrieverDescription, write
from liebig.serve.engine import SearchQuery, ServingEngine, frozen, words_of
from liebig.serve.middleware import Limits
from liebig.stages import STAGES

QUESTION = "what limits the growth of barley?"


@pytest.mark.parametrize("system", ["hybrid", "dense", "bm25"])
def test_search_gives_what_the_retriever_gives(client, retriever, system):
    found = client.post("/search", json={"query": QUESTION, "k": 4, "system": system}).json()
    expected = retriever.search(QUESTION, 4, system)
    assert [row["id"] for row in found["results"]] == [result.id for result in expected]
    assert np.allclose([row["score"] for row in found["results"]], [result.score for result in expected])
    best, first = found["results"][0], expected[0]
    assert [best[name] for name in ("title", "text", "doc")] == [first.title, first.text, first.doc]
    assert (best["metadata"], best["ranks"]) == (dict(first.metadata), dict(first.ranks))


def test_search_by_address_gives_the_same(client):
    posted = client.post("/search", json={"query": QUESTION, "k": 3, "system": "bm25"}).json()
    got = client.get("/search", params={"q": QUESTION, "k": 3, "system": "bm25"}).json()
    assert got["results"] == posted["results"]


def test_passages_of_one_document_are_grouped_where_that_is_wanted(client):
    body = {"query": QUESTION, "k": 6, "system": "dense", "snippets": True}
    flat = client.post("/search", json=body).json()["results"]
    answer = client.post("/search", json={**body, "group": True}).json()
    assert "results" not in answer
    assert [d["doc"] for d in answer["documents"]] == list(dict.fromkeys(row["doc"] for row in flat))
    for document in answer["documents"]:
        assert document["results"] == [row for row in flat if row["doc"] == document["doc"]]
    got = client.get("/search", params={"q": QUESTION, "k": 6, "system": "dense", "group": True}).json()
    assert [d["title"] for d in got["documents"]] == [d["title"] for d in answer["documents"]]


def test_filters_keep_only_what_passes(client):
    found = client.post(
        "/search", json={"query": "the", "k": 10, "system": "dense", "filters": {"language": "de"}}
    )
    assert {row["doc"] for row in found.json()["results"]} == {"comet", "violin"}
    several = {"query": "the", "k": 10, "system": "dense", "filters": {"language": ["de", "en"]}}
    assert len(client.post("/search", json=several).json()["results"]) == 9


def test_a_field_that_no_document_has_is_named_in_the_error(client):
    answer = client.post("/search", json={"query": "a comet", "filters": {"colour": "red"}})
    assert answer.status_code == 422
    assert "colour" in answer.json()["error"]


def test_a_question_that_cannot_be_asked_does_not_fail_those_asked_together_with_it(retriever):
    engine = ServingEngine(retriever, Limits())
    wrong = SearchQuery("a comet", 3, ("bm25",), frozen({"colour": "red"}))
    before, failed, after = engine._search(
        [SearchQuery("comet", 3, ("bm25",)), wrong, SearchQuery("bow", 3, ("bm25",))]
    )
    assert "colour" in str(failed)
    assert [found.lists[0][0].doc for found in (before, after)] == ["comet", "violin"]


def test_snippets_mark_the_words_of_the_question(client):
    rows = client.post(
        "/search", json={"query": "growth of barley", "system": "bm25", "snippets": True}
    ).json()
    marked = {piece["text"] for piece in rows["results"][0]["snippet"] if piece["marked"]}
    assert marked == {"growth", "barley"}


def test_compare_gives_each_result_its_rank_in_the_other_system(client, retriever):
    answer = client.post("/compare", json={"query": QUESTION, "systems": ["bm25", "dense"], "k": 5}).json()
    dense = {result.id: result.rank for result in retriever.search(QUESTION, 50, "dense")}
    bm25 = {result.id: result.rank for result in retriever.search(QUESTION, 50, "bm25")}
    left, right = answer["lists"]
    assert [row["other"] for row in left["results"]] == [dense[row["id"]] for row in left["results"]]
    assert [row["other"] for row in right["results"]] == [bm25.get(row["id"]) for row in right["results"]]
    assert (left["found"], right["found"]) == (len(bm25), len(dense))


def test_compare_encodes_a_question_once_for_hybrid_and_dense(client, monkeypatch):
    encoded = []
    plain = Embedder.vectors

    def counted(self, texts, kind):
        encoded.extend(texts)
        return plain(self, texts, kind)

    monkeypatch.setattr(Embedder, "vectors", counted)
    answer = client.post("/compare", json={"query": QUESTION, "systems": ["hybrid", "dense"], "k": 5}).json()
    assert [len(item["results"]) for item in answer["lists"]] == [5, 5]
    assert encoded == [QUESTION]


def test_nothing_found_is_explained(client):
    def said(query, **more):
        body = {"query": query, "systems": ["bm25"], **more}
        return client.post("/compare", json=body).json()["lists"][0]["nothing"]

    assert "“zymurgy”" in said("zymurgy")
    assert "too common" in said("of the")
    assert "filters" in said("comet", filters={"language": "en"})
    assert said("comet") is None


def test_words_of_a_question_are_counted(client):
    words = client.post("/compare", json={"query": "the comets zymurgy", "systems": ["bm25"]}).json()["words"]
    assert [(word["text"], word["passages"]) for word in words] == [
        ("the", None),
        ("comets", 2),
        ("zymurgy", 0),
    ]


def test_stop_words_of_several_languages_and_conditions_are_not_words_that_no_passage_has():
    analyzer = MixedAnalyzer("auto", True, languages=("english", "french"))
    index = SimpleNamespace(settings=SimpleNamespace(analyzer=analyzer), frequency=lambda *terms: 0)
    retriever = SimpleNamespace(current=SimpleNamespace(terms=index))
    words = words_of(retriever, '"law of the minimum" type:md -beer')
    assert [word.text for word in words if word.term] == ["law", "minimum"]


@pytest.mark.parametrize("system", ["dense", "bm25"])
def test_explain_gives_what_each_word_adds(client, retriever, system):
    body = {"query": QUESTION, "id": "plants/barley#0", "system": system}
    answer = client.post("/explain", json=body).json()
    expected = retriever.explain(QUESTION, "plants/barley#0", system)
    assert [(w["start"], w["end"]) for w in answer["words"]] == [(a, b) for a, b, _ in expected]
    assert np.allclose([w["contribution"] for w in answer["words"]], [c for *_, c in expected], atol=1e-4)


def test_a_document_comes_whole_with_the_passage_marked(client, retriever):
    found = client.get("/document", params={"passage": "plants/barley#2"}).json()
    (mark,) = found["marks"]
    text = found["sections"][mark["section"]]["paragraphs"][mark["paragraph"]]
    assert text[mark["start"] : mark["end"]] == retriever.passage("plants/barley#2").text
    assert [section["heading"] for section in found["sections"]] == ["Growth", "Harvest"]


@pytest.mark.parametrize(
    "path", ["/document?passage=../../etc/passwd", "/page/../run.py", "/page/%2e%2e%2frun.py"]
)
def test_nothing_outside_the_collection_and_the_page_is_read(client, path):
    answer = client.get(path)
    assert answer.status_code == 404
    assert "error" in answer.json()


def test_the_pages_and_all_they_load_are_served(client):
    for page in ("/", "/docs"):
        text = client.get(page).text
        assert 'id="token"' in text  # a part that pages share
        assert "<!--" not in text
        parts = [part.split('"')[0] for part in text.split('="/page/')[1:]]
        assert parts
        assert all(client.get(f"/page/{part}").status_code == 200 for part in parts)
        assert "//" not in text.replace("<!doctype", "").replace("//cdn", "CDN").split("<body>")[0]


def test_info_health_and_metrics_say_what_is_served(client, retriever):
    assert client.get("/health").json() == {"status": "ok", "generation": 1}
    info = client.get("/info").json()
    assert (info["retriever"]["passages"], info["dimensions"]) == (
        9,
        retriever.encode(["a text"], "query").shape[1],
    )
    client.post("/embed", json={"inputs": "a text"})
    metrics = client.get("/metrics").text
    assert 'liebig_requests_total{path="/embed",status="200"}' in metrics
    assert "liebig_generation 1.0" in metrics


def test_metrics_count_tokens_batches_and_the_line(client):
    before = _metrics(client)
    usage = client.post("/v1/embeddings", json={"input": ["a text", "one more"]}).json()["usage"]
    client.post("/search", json={"query": "a comet"})
    after = _metrics(client)
    grown = {name: after[name] - before.get(name, 0) for name in after}
    assert grown["liebig_tokens_total"] == usage["total_tokens"]
    assert grown['liebig_batch_items_sum{work="embed"}'] == 2
    assert grown['liebig_batch_items_sum{work="search"}'] == 1
    assert grown['liebig_batch_seconds_sum{work="search"}'] > 0
    assert after['liebig_waiting_items{work="embed"}'] == 0


def _metrics(client):
    lines = client.get("/metrics").text.splitlines()
    return {name: float(value) for name, value in (x.rsplit(" ", 1) for x in lines if not x.startswith("#"))}


def test_openapi_lists_every_route(client):
    paths = client.get("/openapi.json").json()["paths"]
    wanted = {
        "/search",
        "/compare",
        "/explain",
        "/document",
        "/embed",
        "/v1/embeddings",
        "/rerank",
        "/health",
        "/info",
    }
    assert wanted <= set(paths)


def test_a_folder_of_passages_and_bm25_alone_is_served_too(tmp_path, serving):
    (tmp_path / "collection").mkdir()
    rows = [{"id": "one", "title": "", "text": "a comet", "doc": ""}]
    (tmp_path / "collection" / "passages.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    recipe = {"bm25": {"collection": str(tmp_path / "collection")}}
    pipeline.run(pipeline.plan_stages(STAGES, recipe, tmp_path), lambda line: None)
    write(tmp_path, RetrieverDescription(1, "bm25", "collection", bm25="bm25"))
    with serving(Retriever.from_folder(tmp_path)) as address, httpx.Client(base_url=address) as client:
        assert client.get("/search?q=comet").json()["results"][0]["id"] == "one"
        whole = client.get("/document?passage=one").json()
        assert (whole["sections"][0]["paragraphs"], whole["marks"][0]["end"]) == (["a comet"], 7)
        refused = client.post("/embed", json={"inputs": "a comet"})
        assert (refused.status_code, refused.json()["error_type"]) == (400, "invalid_request")
        no_dense = client.post("/search", json={"query": "comet", "system": "dense"})
        assert (no_dense.status_code, "has no dense" in no_dense.json()["error"]) == (422, True)
        assert client.get("/info").json()["dimensions"] is None


def test_the_query_language_is_that_of_the_library(client, retriever):
    query = '"the scarcest nutrient" -comet lang:en'
    body = {"query": query, "system": "dense", "facets": ["folder", "language"], "sort": "newest"}
    answer = client.post("/search", json=body).json()
    expected = retriever.answer(query, system="dense", facets=("folder", "language"), sort="newest")
    assert (
        [row["id"] for row in answer["results"]]
        == [result.id for result in expected.results]
        == ["plants/barley#0"]
    )
    assert answer["facets"] == expected.facets == {"folder": {"plants": 1}, "language": {"en": 1}}
    assert (answer["notes"], answer["suggestion"]) == ([], None)


def test_what_was_not_understood_comes_with_the_answer(client):
    answer = client.post("/search", json={"query": "barly before:soon"}).json()
    assert "before:soon is not a date" in answer["notes"][0]
    assert answer["suggestion"] == "barley before:soon"
    assert "facets" not in answer
    nothing = client.post("/search", json={"query": "xyzzyqwert"}).json()
    assert (nothing["results"], len(nothing["notes"])) == ([], 1)
    wrong = client.post("/search", json={"query": "barley", "filters": {"language": {"above": 3}}})
    assert wrong.status_code == 422
