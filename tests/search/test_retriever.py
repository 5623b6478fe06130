"""A folder asked from Python: what each system finds, fused, filtered, explained, and taken over while it is in use."""

import json
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

import liebig
from liebig.base import pipeline, workspace
from liebig.base.errors import CorruptError, DataError, ModelError, RecipeError
from liebig.base.records import Passage, Query
from liebig.bm25.search import BM25
from liebig.cli import make_app
from liebig.indexes.exact import ExactIndex
from liebig.search.answer import Result, by_document
from liebig.search.embed import Embedder
from liebig.search.fusion import weighted_by
from liebig.search.retriever import Retriever
from liebig.search.retriever_folder import NAME, RetrieverDescription, read, write
from liebig.search.systems import Filtered, System, open_system
from liebig.stages import STAGES

QUESTION = "which nutrient limits the growth of barley"


def test_the_package_offers_it_without_importing_torch():
    assert liebig.Retriever is Retriever
    assert liebig.Result is Result
    with pytest.raises(AttributeError):
        _ = liebig.Nothing


@pytest.mark.parametrize("system", ["bm25", "dense"])
def test_one_system_finds_what_its_index_finds(folder, retriever, system):
    part = {"bm25": "bm25", "dense": "index"}[system]
    expected = open_system(folder / part).ask(QUESTION, 5)
    found = retriever.search(QUESTION, k=5, system=system)
    assert [(r.id, r.score) for r in found] == pairs_of(expected)
    assert [r.rank for r in found] == [r.ranks[system] for r in found] == list(range(1, len(found) + 1))


def pairs_of(found):
    return [(id, pytest.approx(score, rel=1e-5, abs=1e-6)) for id, score in found]


def test_hybrid_is_the_fusion_of_both(folder, retriever):
    lists = [open_system(folder / part).ask(QUESTION, 8) for part in ("bm25", "index")]
    expected = weighted_by(0.5, "minmax")(lists)[:3]
    found = retriever.search(QUESTION, k=3)
    assert [(r.id, r.score) for r in found] == pairs_of(expected)
    assert found[0].ranks == {"bm25": 1, "dense": 1 + [id for id, _ in lists[1]].index(found[0].id)}


@pytest.mark.parametrize("filters", [None, {"language": "en"}])
def test_an_id_is_looked_up_once_however_often_it_is_found(folder, monkeypatch, filters):
    numbers = []
    for index in (BM25, ExactIndex):

        def counted(self, number, look_up=index.id):
            numbers.append((type(self), number))
            return look_up(self, number)

        monkeypatch.setattr(index, "id", counted)
    retriever = Retriever.from_folder(folder)
    first = retriever.search(QUESTION, filters=filters)
    assert {index for index, _ in numbers} == {BM25, ExactIndex}
    assert retriever.search(QUESTION, filters=filters) == first
    assert len(numbers) == len(set(numbers))


def shown(folder, *options):
    result = CliRunner(env={"COLUMNS": "160"}).invoke(
        make_app(), ["search", str(folder), QUESTION, "--k", "3", *options]
    )
    assert result.exit_code == 0, result.stderr
    return result.stdout


@pytest.mark.parametrize("system", ["hybrid", "dense", "bm25"])
def test_the_command_answers_by_the_system_that_was_chosen(folder, tmp_path, system):
    chosen = tmp_path / "chosen"
    shutil.copytree(folder, chosen, symlinks=True)
    write(chosen, replace(read(chosen), system=system))
    found = Retriever.from_folder(chosen).search(QUESTION, k=3)
    page = shown(chosen)
    expected = [f"{r.rank}.  {r.score:.3f}  {r.id}" for r in found]
    assert sorted(re.findall(r"\d\.  -?\d+\.\d{3}  [\w-]+", page)) == expected
    assert f"{system} (" in page
    assert ("bm25 1, dense " in page) == (system == "hybrid")


def test_passages_of_one_document_stand_together(folder, retriever):
    results = retriever.search("a comet and barley", 8, "dense")
    documents = retriever.search_documents("a comet and barley", 8, "dense")
    assert [document.doc for document in documents] == list(dict.fromkeys(r.doc for r in results))
    for document in documents:
        assert document.results == tuple(r for r in results if r.doc == document.doc)
        assert document.title == retriever.document(document.doc).title


def test_a_passage_without_a_document_stands_for_itself():
    results = [Result(name, 1.0, rank, "", "", "") for rank, name in enumerate("ab", 1)]
    assert [(d.doc, d.results) for d in by_document(results)] == [("a", (results[0],)), ("b", (results[1],))]


def test_the_command_shows_a_document_once_with_its_path(folder, retriever):
    page = shown(folder, "--system", "dense", "--k", "8")
    order = re.findall(r"(Barley|Steam engines|Comets|Violins)  (\w+)", page)
    documents = retriever.search_documents(QUESTION, 8, "dense")
    assert order == [(document.title, document.doc) for document in documents]
    flat = shown(folder, "--system", "dense", "--k", "8", "--no-group")
    ranks = [int(rank) for rank in re.findall(r"(\d)\.  -?\d+\.\d{3}", flat)]
    assert ranks == list(range(1, 9))


def test_the_command_asks_another_system_where_one_is_named(folder, retriever):
    page = shown(folder, "--system", "bm25")
    assert "bm25 (" in page
    assert [r.id in page for r in retriever.search(QUESTION, k=3, system="bm25")] == [True] * 3


@pytest.mark.parametrize("words", [["--system", "sparse"], ["--filter", "name"]])
def test_what_a_retriever_has_not_is_one_sentence(folder, words):
    result = CliRunner().invoke(make_app(), ["search", str(folder), QUESTION, *words])
    assert (result.exit_code, len(result.stderr.strip().splitlines())) == (2, 1)


def test_a_result_carries_text_title_document_and_metadata(retriever):
    first = retriever.search(QUESTION, k=1, system="bm25")[0]
    assert first.id == "barley-0"
    assert (first.title, first.doc, first.metadata) == ("Barley", "barley", {"language": "en"})
    assert first.text == retriever.passage("barley-0").text
    assert retriever.document("barley").title == "Barley"
    assert retriever.document("nothing") is None


def test_many_questions_get_what_each_gets_alone(retriever):
    questions = [QUESTION, "comet", "horse hair of the bow", ""]
    together = retriever.search_many(questions, k=3)
    alone = [retriever.search(question, k=3) for question in questions]
    assert [[r.id for r in row] for row in together] == [[r.id for r in row] for row in alone]
    assert retriever.search_many([], k=3) == []


@pytest.mark.parametrize("system", ["bm25", "dense", "hybrid"])
def test_a_filter_leaves_the_ranking_of_what_passes(retriever, system):
    everything = retriever.search("a comet and a violin and barley", k=8, system=system)
    german = retriever.search("a comet and a violin and barley", 8, system, {"language": "de"})
    assert {r.metadata["language"] for r in german} == {"de"}
    if system != "hybrid":
        assert [r.id for r in german] == [r.id for r in everything if r.metadata["language"] == "de"]


def test_a_filter_looks_deeper_until_enough_pass_or_there_are_no_more():
    class Ranked(System):
        name, depths = "ranked", []

        def search(self, queries, k):
            self.depths.append((len(queries), k))
            return [[(f"{query.text}{i}", -i) for i in range(min(k, 100))] for query in queries]

    def passes(ids):
        return [id in ("a0", "a1", "a2", "b40", "b41", "b42", "c99") for id in ids]

    ranked = Ranked()
    found = Filtered(ranked, passes, 100).search([Query("", name) for name in "abc"], 2)
    assert [[id for id, _ in hits] for hits in found] == [["a0", "a1"], ["b40", "b41"], ["c99"]]
    assert ranked.depths == [(3, 8), (2, 32), (2, 100)]


@pytest.mark.parametrize(("index", "system"), [(BM25, "bm25"), (ExactIndex, "dense")])
def test_a_selective_filter_names_only_what_passes(folder, monkeypatch, index, system):
    """All else is left out by its number: naming passages one by one is what costs, with many of them."""
    numbers, original = [], index.id
    monkeypatch.setattr(index, "id", lambda self, number: numbers.append(number) or original(self, number))
    question = "the a of is in comet horse violin barley"
    hits = Retriever.from_folder(folder).search(question, 3, system, {"id": ["violin-1", "no passage"]})
    assert [hit.id for hit in hits] == ["violin-1"]
    assert len(numbers) == 1


def test_of_many_that_pass_all_vectors_are_scored_once(retriever, monkeypatch):
    """Looking deeper and deeper would look at everything where what passes is far from the question."""
    expected = [(r.id, r.score) for r in retriever.search("comet", 3, "dense", {"language": "de"})]
    monkeypatch.setattr("liebig.search.systems.GATHERED", 0)
    monkeypatch.setattr(
        "liebig.search.systems.Filtered.search", lambda *given: pytest.fail("it looks deeper")
    )
    assert [(r.id, r.score) for r in retriever.search("comet", 3, "dense", {"language": "de"})] == expected


def test_a_search_that_would_look_very_deep_scores_all_vectors_instead(monkeypatch):
    class Ranked(System):
        name = "ranked"

        def search(self, queries, k):
            assert k <= 32, "it looks deeper"
            return [[(str(number), -float(number)) for number in range(k)] for _ in queries]

    class Thorough(System):
        name = "thorough"

        def search(self, queries, k):
            return [[(f"{query.text}90", 0.5)] for query in queries]

    monkeypatch.setattr("liebig.search.systems.DEEP", 50)
    found = Filtered(Ranked(), lambda ids: [id == "3" for id in ids], 10_000, Thorough)
    assert found.search([Query("", "a"), Query("", "b")], 2) == [[("a90", 0.5)], [("b90", 0.5)]]


def test_a_filter_passes_pieces_of_passages(small_model, tmp_path):
    from tests.search.conftest import make_folder

    folder = make_folder(tmp_path / "folder", small_model)
    recipe = {
        "kind": "encode",
        "source": str(folder / "collection"),
        "model": str(small_model),
        "max_length": 8,
    }
    recipe |= {"long": "max", "most_pieces": 4, "overlap": 0}
    pipeline.run(pipeline.plan_stages(STAGES, {"pieces": recipe}, folder), lambda line: None)
    write(folder, replace(read(folder), index="pieces"))
    retriever = Retriever.from_folder(folder)
    assert len(retriever.current.index) > len(retriever)
    everything = retriever.search("comet", 8, "dense")
    german = retriever.search("comet", 8, "dense", {"language": "de"})
    expected = [(r.id, r.score) for r in everything if r.metadata["language"] == "de"]
    assert [(r.id, r.score) for r in german] == expected
    assert len(expected) == 4


def test_filters_take_several_values_and_fields(retriever):
    both = retriever.search("comet", 8, "dense", {"language": ["de", "en"]})
    assert len(both) == 8
    one = retriever.search("comet", 8, "dense", {"language": "en", "doc": ["steam", "comet"]})
    assert {r.doc for r in one} == {"steam"}
    assert [r.id for r in retriever.search("comet", 8, "dense", {"id": "comet-1"})] == ["comet-1"]
    assert retriever.search("comet", 8, "dense", {"language": "fr"}) == []
    with pytest.raises(RecipeError, match="no document has the field 'langage'"):
        retriever.search("comet", 8, "dense", {"langage": "fr"})


def test_vectors_are_those_of_the_index(retriever):
    passages = [retriever.passage(id) for id in ("barley-0", "violin-1")]
    vectors = retriever.encode([f"{p.title} {p.text}" for p in passages], kind="passage")
    index = retriever.current.index
    stored = np.concatenate([shard.vectors.decode() for shard in index.shards])
    rows = [index.find(p.id) for p in passages]
    np.testing.assert_allclose(vectors, stored[rows], atol=2e-3)
    assert retriever.encode([QUESTION], kind="query").dtype == np.float32
    with pytest.raises(RecipeError, match="kind"):
        retriever.encode(["x"], kind="other")


@pytest.mark.parametrize("kind", ["query", "passage"])
def test_vectors_are_those_of_the_plain_forward(retriever, kind):
    texts = ["barley", "", "a comet " * 90, "Straßen über Öl", "x" * 5000]
    plain = retriever.current.encoder.encode_texts(texts, prompt=kind)
    off = np.linalg.norm(retriever.encode(texts, kind) - plain, axis=1)
    assert (off < 1e-5 * np.linalg.norm(plain, axis=1)).all()
    assert retriever.encode([], kind).shape == (0, plain.shape[1])


def test_a_question_is_encoded_once_for_all_systems_and_depths(retriever, monkeypatch):
    encoded = []
    plain = Embedder.vectors

    def counted(self, texts, kind):
        encoded.append(list(texts))
        return plain(self, texts, kind)

    monkeypatch.setattr(Embedder, "vectors", counted)
    questions, filters = [QUESTION, "comet"], {"id": "violin-1"}  # so few pass that a search looks deeper
    together = retriever.search_systems(questions, 1, ["hybrid", "dense", "bm25"], filters)
    assert encoded == [questions]
    monkeypatch.undo()
    alone = [retriever.search_many(questions, 1, system, filters) for system in ("hybrid", "dense", "bm25")]
    assert together == alone


def test_passages_like_one_are_those_of_the_nearest_vectors(retriever):
    passages = [
        retriever.passage(f"{doc}-{n}") for doc in ("barley", "steam", "comet", "violin") for n in (0, 1)
    ]
    vectors = retriever.current.encode_passages(passages)
    scores = dict(zip((p.id for p in passages), (vectors @ vectors[0]).tolist()))
    found = retriever.similar("barley-0", 100)
    assert "barley-0" not in [result.id for result in found]
    assert [result.rank for result in found] == list(range(1, 8))
    # Vectors of the index are float16.
    expected = [scores[result.id] for result in found]
    np.testing.assert_allclose([result.score for result in found], expected, rtol=1e-2, atol=1e-2)
    assert len(retriever.similar("barley-0", 2)) == 2
    german = retriever.similar("barley-0", 9, {"language": "de"})
    assert {result.doc for result in german} == {"comet", "violin"}
    with pytest.raises(DataError, match="nowhere"):
        retriever.similar("nowhere")


def test_passages_like_one_share_its_words_where_there_are_no_vectors(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "words", symlinks=True)
    write(tmp_path / "words", RetrieverDescription(1, "bm25", "collection", "bm25"))
    retriever = Retriever.from_folder(tmp_path / "words")
    assert [result.doc for result in retriever.similar("comet-0", 1)] == ["comet"]  # the title is the same


def test_a_word_contributes_what_the_score_loses_without_it(retriever):
    query = retriever.encode([QUESTION], kind="query")[0]
    passage = retriever.passage("barley-0")
    for start, end, contribution in retriever.explain(QUESTION, passage.id)[3:5]:
        without = passage.text[:start] + passage.text[end:]
        vectors = retriever.encode([f"Barley {passage.text}", f"Barley {without}"])
        whole, part = vectors @ query
        assert contribution == pytest.approx(whole - part, abs=2e-5)


@pytest.mark.parametrize("manner", [{"title": "no"}, {"title": "separator"}, {"max_length": 8}])
def test_passages_are_encoded_and_explained_as_their_index_was_made(folder, tmp_path, manner):
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy, symlinks=True)
    description = read(copy)
    recipe = {"source": str(copy / description.collection), "model": str(copy / description.model), **manner}
    planned = pipeline.plan_stages(STAGES, {"other": {"kind": "encode", "type": "fp32", **recipe}}, copy)
    pipeline.run(planned, lambda line: None)
    write(copy, replace(description, index="other"))
    retriever = Retriever.from_folder(copy)
    best = retriever.search(QUESTION, 1, "dense")[0]
    opened = retriever.current
    vector = opened.encode_passages([retriever.passage(best.id)])[0]
    assert vector @ retriever.encode([QUESTION], "query")[0] == pytest.approx(best.score, rel=1e-5)
    start, end, gain = retriever.explain(QUESTION, best.id)[0]
    without = opened.encode_passages([Passage(best.id, best.text[:start] + best.text[end:], best.title)])[0]
    whole, part = np.stack([vector, without]).astype(float) @ retriever.encode([QUESTION], "query")[0]
    assert gain == pytest.approx(whole - part, abs=1e-4)


def test_words_of_the_question_carry_bm25_and_its_formula_is_the_indexs(retriever):
    passage = retriever.passage("barley-0")
    found = retriever.explain(QUESTION, passage.id, system="bm25")
    useful = {passage.text[a:b] for a, b, value in found if value > 0.01}
    assert useful == {"growth", "barley", "limited", "nutrient"}
    from liebig.search.explain import bm25_score

    score = bm25_score(retriever.current.bm25, QUESTION)([passage])[0]
    assert score == pytest.approx(retriever.search(QUESTION, 1, "bm25")[0].score, rel=1e-5)
    with pytest.raises(RecipeError, match="parts"):
        retriever.explain(QUESTION, passage.id, system="hybrid")


def test_threads_that_ask_at_once_get_the_same(folder):
    fresh = Retriever.from_folder(folder)
    with ThreadPoolExecutor(4) as pool:
        answers = list(
            pool.map(lambda _: [r.id for r in fresh.search(QUESTION, filters={"language": "en"})], range(8))
        )
    assert all(answer == answers[0] for answer in answers)


def test_reload_takes_over_what_changed_and_nothing_else(folder, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy, symlinks=True)
    opened = Retriever.from_folder(copy)
    assert not opened.reload()
    opened.search(QUESTION)
    before = opened.current
    encoder = before.encoder
    description = read(copy)
    shutil.copytree(copy / "bm25", copy / "bm25-2")
    write(copy, RetrieverDescription(2, "bm25", "collection", "bm25-2", "index", "model"))
    shutil.rmtree(copy / "bm25")
    assert opened.reload()
    assert (opened.generation, opened.system) == (2, "bm25")
    assert opened.current.encoder is encoder
    assert (before.description, before.bm25.search([QUESTION], 1).row(0)[0][0]) == (description, 0)
    assert opened.search(QUESTION)[0].id == "barley-0"
    assert description.generation == 1


def test_the_bound_of_nonsense_is_measured_again_without_encoding_it_again(folder, tmp_path, monkeypatch):
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy, symlinks=True)
    opened = Retriever.from_folder(copy)
    assert opened.search("xyzzyqwert") == []
    before = opened.current.floor
    write(copy, replace(read(copy), generation=2))
    assert opened.reload()
    encoded = []
    monkeypatch.setattr(Embedder, "vectors", lambda self, texts, kind: encoded.extend(texts))
    assert opened.current.floor is not before
    assert opened.current.floor.bound == before.bound
    assert encoded == []


def test_a_model_of_the_same_name_that_is_another_is_loaded(folder, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy, symlinks=True)
    opened = Retriever.from_folder(copy)
    before = opened.current.encoder
    shutil.copytree(copy / "model", copy / "anew")
    (copy / "model").unlink()
    (copy / "anew").rename(copy / "model")
    write(copy, replace(read(copy), generation=2))
    assert opened.reload()
    assert opened.current.encoder is not before


def replaced(folder, copy, *parts):
    """A retriever of a copy whose next generation has other folders; those of the one before are gone."""
    shutil.copytree(folder, copy, symlinks=True)
    opened = Retriever.from_folder(copy)
    names = {part: f"{part}-2" for part in parts}
    for part, name in names.items():
        shutil.copytree(copy / part, copy / name)
        (copy / part).unlink() if (copy / part).is_symlink() else shutil.rmtree(copy / part)
    write(copy, replace(read(copy), generation=2, **names))
    return opened


def test_a_generation_that_was_removed_answers_as_long_as_it_is_open(folder, tmp_path, retriever):
    opened = replaced(folder, tmp_path / "copy", "collection", "index")
    for system in ("bm25", "dense", "hybrid"):
        assert opened.search(QUESTION, 5, system) == retriever.search(QUESTION, 5, system)
    assert (len(opened), opened.document("comet").metadata) == (8, {"language": "de"})
    assert (opened.passage("comet-1").doc, opened.generation) == ("comet", 1)


def test_what_a_removed_generation_cannot_answer_its_successor_does(folder, tmp_path, retriever):
    german = {"language": "de"}
    for part, system, filters in (("collection", "dense", german), ("bm25", "bm25", None)):
        opened = replaced(folder, tmp_path / part, part)
        assert opened.search("comet", 3, system, filters) == retriever.search("comet", 3, system, filters)
        assert opened.generation == 2
    unloaded = replaced(folder, tmp_path / "unloaded", "model")
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: unloaded.search(QUESTION, 3, "dense"), range(4)))
    assert found == [retriever.search(QUESTION, 3, "dense")] * 4
    assert unloaded.generation == 2


@pytest.mark.parametrize("part", ["collection", "bm25", "index"])
def test_a_generation_that_is_replaced_while_it_is_opened_is_left_for_the_newer(
    folder, tmp_path, part, monkeypatch
):
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy, symlinks=True)
    shutil.copytree(copy / part, copy / "newer")
    for file in list((copy / part).rglob("*.npy")) or [copy / part / "passages.jsonl"]:
        file.unlink()
    monkeypatch.setattr("liebig.base.workspace.verify", unverified(copy, part, workspace.verify))
    assert Retriever.from_folder(copy).generation == 2


def unverified(copy, part, verify):
    """Nothing is found to be missing; whoever looks finds the next generation described right after."""

    def look(path, **how):
        write(copy, replace(read(copy), generation=2, **{part: "newer"}))
        return workspace.read_manifest(path) if path == copy / part else verify(path, **how)

    return look


def test_one_text_is_no_list_of_texts(retriever):
    for ask in (retriever.encode, retriever.search_many):
        with pytest.raises(RecipeError, match="give a list"):
            ask("comet")
    assert retriever.search_many((text for text in ["comet"]), 1) == [retriever.search("comet", 1)]


@pytest.mark.parametrize("value", [2024, None, ["de", 7]])
def test_a_filter_by_what_is_no_text_is_refused(retriever, value):
    with pytest.raises(RecipeError, match=r"the filter language = .* is not text"):
        retriever.search("comet", 3, "bm25", {"language": value})


@pytest.mark.parametrize("system", ["bm25", "dense", "hybrid"])
def test_any_text_and_any_depth_can_be_asked(retriever, system):
    for text in ("", " ", "comet " * 20_000, "a\0comet", "☄️ كومة \u200f", "half \ud800 a sign"):
        found = retriever.search(text, 1000, system)
        assert len(found) == len({result.id for result in found}) <= 8
    assert len(retriever.search("comet", 10**9, "dense")) == 8


def test_a_device_that_is_not_there_is_said_when_it_is_opened(folder):
    with pytest.raises(RecipeError, match="device = abacus"):
        Retriever.from_folder(folder, device="abacus")


def test_what_is_no_retriever_is_said_in_a_sentence(folder, tmp_path):
    with pytest.raises(DataError, match="liebig build"):
        Retriever.from_folder(tmp_path)
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy, symlinks=True)
    (copy / NAME).write_text("{")
    with pytest.raises(CorruptError):
        Retriever.from_folder(copy)
    row = read(folder).row()
    (copy / NAME).write_text(json.dumps(row | {"bm25": "../elsewhere"}))
    with pytest.raises(DataError, match="not a path below"):
        Retriever.from_folder(copy)
    for wrong in ({"norm": "max"}, {"weight": 1.5}, {"weight": True}, {"generation": "1"}):
        (copy / NAME).write_text(json.dumps(row | wrong))
        with pytest.raises(DataError, match=next(iter(wrong))):
            Retriever.from_folder(copy)
    (copy / NAME).write_text(json.dumps(row | {"version": 9}))
    with pytest.raises(DataError, match="version 9"):
        Retriever.from_folder(copy)


@pytest.mark.parametrize(
    "name", ["model/model.safetensors", "model/1_Pooling/config.json", "texts/passages.jsonl"]
)
def test_a_flipped_byte_in_weights_and_texts_is_found_when_it_is_opened(folder, tmp_path, name):
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("model"))
    for part, source in (("model", folder / "model"), ("texts", folder / "collection")):
        with workspace.stage(copy / part, kind=part, recipe={}, inputs={}) as made:
            shutil.copytree(source, made.path, dirs_exist_ok=True)
    write(copy, replace(read(copy), collection="texts"))
    Retriever.from_folder(copy)
    data = bytearray((copy / name).read_bytes())
    data[len(data) // 2] ^= 1
    (copy / name).write_bytes(data)
    with pytest.raises(CorruptError, match=f"{name.partition('/')[2]} does not match the manifest"):
        Retriever.from_folder(copy)
    Retriever.from_folder(copy, verify=False)


def test_the_relative_model_of_an_index_is_found_from_any_directory(folder, tmp_path, monkeypatch):
    """Never as a name on the hub; an index and its model are found where they were moved to together."""
    made, moved = tmp_path / "made", tmp_path / "moved"
    (made / "org").mkdir(parents=True)
    shutil.copytree(folder / "model", made / "org" / "model")
    monkeypatch.chdir(made)
    recipe = {"kind": "encode", "source": str(folder / "collection"), "model": "org/model"}
    pipeline.run(pipeline.plan_stages(STAGES, {"index": recipe}, made / "runs"), lambda line: None)
    made.rename(moved)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("socket.socket.connect", lambda *_: pytest.fail("connects to the network"))
    expected = open_system(folder / "index").ask("barley", 8)
    assert pairs_of(open_system(moved / "runs" / "index").ask("barley", 8)) == expected
    shutil.rmtree(moved / "org")
    with pytest.raises(ModelError, match="no such model folder"):
        open_system(moved / "runs" / "index").ask("barley", 1)


def test_a_flipped_byte_is_found_when_it_is_opened(folder, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy, symlinks=True)
    target = next((copy / "index").rglob("vectors.npy"))
    data = bytearray(target.read_bytes())
    data[-5] ^= 1
    target.write_bytes(data)
    with pytest.raises(CorruptError, match="vectors"):
        Retriever.from_folder(copy)


def test_a_system_that_is_not_there_is_refused(folder, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy, symlinks=True)
    write(copy, RetrieverDescription(1, "bm25", "collection", "bm25"))
    only = Retriever.from_folder(copy)
    assert only.systems == ("bm25",)
    assert only.info()["passages"] == 8
    with pytest.raises(RecipeError, match="no dense"):
        only.search(QUESTION, system="dense")
    with pytest.raises(RecipeError, match="no system"):
        only.search(QUESTION, system="colbert")
    with pytest.raises(RecipeError, match="k must be at least 1"):
        only.search(QUESTION, k=0)
