"""A retriever in an engine gives what its folder gives, and stays whole when it is changed or refused."""

import sys
import time
from dataclasses import replace
from importlib.util import find_spec
from types import SimpleNamespace

import pytest
from filelock import FileLock
from typer.testing import CliRunner

from liebig.base import pipeline
from liebig.base.errors import LiebigError
from liebig.builder.push import EngineConfig, push, push_again
from liebig.builder.update import update
from liebig.cli import make_app
from liebig.commands.doctor import examine
from liebig.engines.milvus import Milvus
from liebig.formats.convert import Converter
from liebig.search.answer import SearchOptions
from liebig.search.engine_generation import EngineFile
from liebig.search.retriever import Retriever
from liebig.search.retriever_folder import read, write
from liebig.stages import STAGES
from tests.search.conftest import make_folder
from tests.worlds.books import TOPICS, write_documents
from tests.worlds.opensearch import OpenSearchDouble, serving

needs_milvus = pytest.mark.skipif(find_spec("milvus_lite") is None, reason="milvus-lite is not installed")
DOCUMENTS = {
    "barley": ("Barley", {"language": "en", "year": "1840", "date": "1840-03-01", "path": "farm/barley.md"},
               "The growth of barley is limited by the scarcest nutrient. Nitrogen is taken by every harvest.",
               "Barley, barley and more barley: phosphorus and potassium leave the soil."),
    "steam": ("Steam engines", {"language": "en", "year": "1769", "date": "1769-01-05", "path": "art/steam.txt"},
              "A steam engine turns the pressure of hot vapour into motion.",
              "James Watt added a separate condenser. It saved three quarters of the fuel."),
    "comet": ("Kometen", {"language": "de", "year": "1066", "date": "1066-04-24", "path": "sky/comet.md"},
              "A comet is a small body of ice and dust. It grows a tail near the sun.",
              'Halley said: "The comet returns every seventy-six years." In the soil there is none.'),
    "violin": ("Violins", {"language": "de", "year": "viele", "modified": "1690-02-03"},
               "The violin has four strings tuned in perfect fifths.", "Its bow is strung with hair."),
}  # fmt: skip
QUESTIONS = [
    "what limits the growth of barley", "the soil", "Watt's separate condenser", "comet comet soil dust", "Kometen",
    "zzyzx", "strings of the engine in motion", "",
]  # fmt: skip
CHANGED = {
    **{id: row for id, row in DOCUMENTS.items() if id != "steam"},
    "comet": (
        "Kometen",
        {"language": "de", "year": "1758"},
        "One comet passage is left, with soil and barley.",
    ),
    "tea": ("Tea", {"language": "en", "year": "1840"}, "Tea grows on mountains. Its soil is sour."),
}


def with_sentences(out, model, documents=DOCUMENTS):
    """A retriever by hand whose hybrid has sentences."""
    make_folder(out, model, documents)
    recipe = {
        "sentences": {
            "kind": "encode",
            "source": str(out / "collection"),
            "model": str(model),
            "what": "sentences",
        }
    }
    pipeline.run(pipeline.plan_stages(STAGES, recipe, out), lambda line: None)
    write(out, replace(read(out), sentences="sentences", norm="spread", spread=0.2))
    return out


@pytest.fixture(scope="session")
def whole(small_model, tmp_path_factory):
    return with_sentences(tmp_path_factory.mktemp("engines") / "whole", small_model)


@pytest.fixture(scope="module", autouse=True)
def milvus_is_asked_more_often():
    """Its client sleeps for half a second before it asks whether an index is made."""
    with pytest.MonkeyPatch.context() as patch:
        if find_spec("pymilvus"):
            clock = SimpleNamespace(**{**vars(time), "sleep": lambda _: time.sleep(0.01)})
            patch.setattr("pymilvus.client.grpc_handler.time", clock)
        yield


@pytest.fixture(params=[pytest.param("milvus", marks=needs_milvus), "opensearch"])
def engine(request, tmp_path):
    """The settings of an engine that is empty."""
    if request.param == "milvus":
        config = EngineConfig(to="milvus", uri=str(tmp_path / "engine.db"))
        yield config
        Milvus.connect(config.uri).close()
        return
    with serving(OpenSearchDouble()) as uri:
        yield EngineConfig(to="opensearch", uri=uri)


def alike(local, pushed, questions=QUESTIONS, **options):
    """Asserts that both give the same answers with every system."""
    assert local.systems == pushed.systems
    for system in local.systems:
        options = {"k": 5, "systems": (system,), "suggest": False, **options}
        ours = local.answers(questions, SearchOptions(**options))
        theirs = pushed.answers(questions, SearchOptions(**options))
        for mine, other in zip(ours, theirs):
            assert mine.notes == other.notes
            assert [r.score for r in other.results] == pytest.approx(
                [r.score for r in mine.results], rel=1e-4, abs=1e-5
            )
            assert [r.id for r in other.results] == [r.id for r in mine.results]
            for a, b in zip(mine.results, other.results):
                assert replace(a, score=0, ranks={}) == replace(b, score=0, ranks={})
                assert a.ranks.keys() == b.ranks.keys()


def test_the_engine_gives_what_the_folder_gives(whole, engine, tmp_path):
    said = push(whole, tmp_path / "out", engine)
    assert said.startswith("8 passages written and 0 deleted")
    local, pushed = Retriever.from_folder(whole), Retriever.from_folder(tmp_path / "out")
    alike(local, pushed)
    alike(local, pushed, k=1)
    assert len(pushed) == len(local)
    assert pushed.passage("barley-1").text == local.passage("barley-1").text
    assert pushed.document("steam").text == local.document("steam").text
    assert pushed.document("nothing") is None
    names = ("barley-1", "nothing", "barley-1")
    assert [p.id for p in pushed.current.collection.some_passages(iter(names))] == ["barley-1"]
    assert [r.id for r in pushed.similar("barley-0", 3)] == [r.id for r in local.similar("barley-0", 3)]
    assert pushed.explain("barley soil", "barley-1", "bm25") == local.explain(
        "barley soil", "barley-1", "bm25"
    )


@pytest.mark.parametrize(
    "filters",
    [
        {"language": "de"},
        {"language": ["en", "fr"], "year": "1840"},
        {"year": {"gte": 1769, "lt": 1840}},
        {"date": {"gt": "1066", "lte": "1840-03"}},
        {"date": {"lt": "1769-01-05"}},
        {"folder": "farm"},
        {"type": ["md"]},
        {"id": ["barley-1", "comet-0"]},
    ],
    ids=str,
)
def test_filters_run_in_the_engine(filters, whole, engine, tmp_path):
    push(whole, tmp_path / "out", engine)
    local, pushed = Retriever.from_folder(whole), Retriever.from_folder(tmp_path / "out")
    alike(local, pushed, ["the soil of the barley comet", "engine strings"], filters=filters)


def test_conditions_run_in_the_engine_or_are_said_to_be_left_out(whole, engine, tmp_path):
    push(whole, tmp_path / "out", engine)
    local, pushed = Retriever.from_folder(whole), Retriever.from_folder(tmp_path / "out")
    questions = [
        "soil lang:de",
        "soil -lang:de",
        "soil type:md",
        "soil before:1500",
        "soil after:1769",
        "type:txt",
    ]
    for question in questions:
        alike(local, pushed, [question])
    (note,) = pushed.answer('soil "every harvest"').notes
    assert note == 'The engine has no conditions on words, so "every harvest" was left out.'
    (note,) = pushed.answer("soil title:barley").notes
    assert note == "The engine cannot evaluate title:barley, so it was left out."
    with pytest.raises(LiebigError, match="no document has the field 'colour'"):
        pushed.search("soil", filters={"colour": "red"})


def test_what_changed_is_sent_in_place_with_the_statistics_of_the_whole(
    whole, small_model, engine, tmp_path, monkeypatch
):
    push(whole, tmp_path / "out", engine)
    first = EngineFile.read(tmp_path / "out" / "engine-1")
    assert push(whole, tmp_path / "out", engine).startswith("0 passages written and 0 deleted")
    assert EngineFile.read(tmp_path / "out" / "engine-2").tables == first.tables
    changed = with_sentences(tmp_path / "changed", small_model, CHANGED)
    monkeypatch.setattr("liebig.builder.push.MEAN", 1.0)  # few passages have a mean that moves far
    assert push(changed, tmp_path / "out", engine).startswith("2 passages written and 3 deleted")
    third = EngineFile.read(tmp_path / "out" / "engine-3")
    assert (third.tables, third.key) == (first.tables, first.key)
    assert not (tmp_path / "out" / "engine-2").exists()
    retriever = Retriever.from_folder(tmp_path / "out")
    assert len(retriever) == 6
    assert retriever.document("steam") is None
    assert retriever.search("comet", 1, "bm25")[0].text == CHANGED["comet"][2]
    terms = Retriever.from_folder(changed).current.terms
    assert [retriever.current.terms.idf(word) for word in ("soil", "steam")] == [
        terms.idf(word) for word in ("soil", "steam")
    ]


def test_another_mean_length_fills_fresh_tables(whole, small_model, engine, tmp_path):
    push(whole, tmp_path / "out", engine)
    before = EngineFile.read(tmp_path / "out" / "engine-1")
    changed = with_sentences(tmp_path / "changed", small_model, CHANGED)
    push(changed, tmp_path / "out", engine)
    now = EngineFile.read(tmp_path / "out" / "engine-2")
    assert not set(now.tables) & set(before.tables)
    pushed = Retriever.from_folder(tmp_path / "out")
    alike(Retriever.from_folder(changed), pushed)
    assert [pushed.current.engine.mark(name) for name in before.tables] == [None] * len(before.tables)


def test_a_search_in_the_terminal_and_a_run_know_no_difference(whole, engine, tmp_path):
    push(whole, tmp_path / "out", engine)
    asked = ["search", str(tmp_path / "out"), "Watt's condenser", "--json"]
    result = CliRunner().invoke(make_app(), asked)
    assert result.exit_code == 0
    assert '"steam-1"' in result.stdout


def test_a_foreign_table_is_neither_written_nor_read(whole, engine, tmp_path):
    push(whole, tmp_path / "out", engine)
    with pytest.raises(LiebigError, match=r"a table 'passages' at .* already, which is not this retriever's"):
        push(whole, tmp_path / "other", engine)
    assert not (tmp_path / "other").exists()
    assert Retriever.from_folder(tmp_path / "out").search("barley", 1)
    summary = tmp_path / "out" / "engine-1" / "engine.json"
    pushed = EngineFile.read(summary.parent)
    with pytest.raises(LiebigError, match="another retriever has the table 'passages'"):
        pushed.model_copy(update={"key": "liebig 0"}).connect()
    with pytest.raises(LiebigError, match="there is no table 'gone'"):
        pushed.model_copy(update={"tables": ("gone",)}).connect()


def test_a_push_that_fails_leaves_no_table_and_the_older_generation(
    whole, small_model, engine, tmp_path, monkeypatch
):
    push(whole, tmp_path / "out", engine)
    before = read(tmp_path / "out")
    changed = with_sentences(tmp_path / "changed", small_model, CHANGED)
    monkeypatch.setattr("liebig.builder.push._describe", lambda *args: 1 / 0)
    monkeypatch.setattr("liebig.builder.push._fingerprint", lambda tables: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        push(changed, tmp_path / "out", engine)
    assert read(tmp_path / "out") == before
    alike(Retriever.from_folder(whole), Retriever.from_folder(tmp_path / "out"))
    assert Retriever.from_folder(tmp_path / "out").current.engine.mark("passages_2") is None


@pytest.mark.parametrize("kind", [pytest.param("milvus", marks=needs_milvus), "opensearch"])
def test_a_cluster_that_does_not_answer_is_one_sentence(kind, whole, tmp_path):
    with pytest.raises(LiebigError, match=r"at http://127\.0\.0\.1:1 does not answer"):
        push(whole, tmp_path / "out", EngineConfig(to=kind, uri="http://127.0.0.1:1"))
    assert not (tmp_path / "out" / "retriever.json").exists()


@needs_milvus
def test_a_file_that_another_process_has_open_is_one_sentence(whole, tmp_path, capsys):
    (tmp_path / "engine.db").mkdir()
    config = EngineConfig(to="milvus", uri=str(tmp_path / "engine.db"))
    said = pytest.raises(LiebigError, match="another process holds the lock")
    with FileLock(tmp_path / "engine.db" / "LOCK"), said:
        push(whole, tmp_path / "out", config)
    assert "Traceback" not in capsys.readouterr().err


@needs_milvus
def test_a_token_that_milvus_refuses_is_one_sentence(whole, tmp_path, monkeypatch):
    from pymilvus.exceptions import MilvusException

    def refuse(uri, token, **options):
        raise MilvusException(message=f"auth check failure for {token}" if token == "u:p" else "no token")

    monkeypatch.setattr("pymilvus.MilvusClient", refuse)
    monkeypatch.setenv("LIEBIG_ENGINE_TOKEN", "u:p")
    with pytest.raises(LiebigError, match=r"auth check failure.*check the address and LIEBIG_ENGINE_TOKEN"):
        push(whole, tmp_path / "out", EngineConfig(to="milvus", uri="http://127.0.0.1:1"))
    assert not (tmp_path / "out" / "retriever.json").exists()


def test_wrong_settings_are_one_sentence(whole, tmp_path):
    with pytest.raises(LiebigError, match="there is no engine 'solr'"):
        push(whole, tmp_path / "out", EngineConfig(to="solr", uri="http://127.0.0.1:1"))
    with pytest.raises(LiebigError, match="is a retriever with its own indexes"):
        push(whole, whole, EngineConfig(to="opensearch", uri="http://127.0.0.1:1"))
    with pytest.raises(LiebigError, match="'localhost:9200' is not the address of a server"):
        push(whole, tmp_path / "out", EngineConfig(to="opensearch", uri="localhost:9200"))


def test_a_token_is_sent_and_a_wrong_one_refused(whole, tmp_path, monkeypatch):
    with serving(OpenSearchDouble("Basic dTpw")) as uri:
        config = EngineConfig(to="opensearch", uri=uri)
        monkeypatch.setenv("LIEBIG_ENGINE_TOKEN", "u:wrong")
        with pytest.raises(LiebigError, match=r"refuses GET / \(401\)"):
            push(whole, tmp_path / "out", config)
        monkeypatch.setenv("LIEBIG_ENGINE_TOKEN", "u:p")
        push(whole, tmp_path / "out", config)
    assert not any(
        b"dTpw" in f.read_bytes() or b"u:p" in f.read_bytes() for f in (tmp_path / "out").rglob("*.json")
    )


def test_a_list_goes_past_what_one_answer_of_the_engine_holds(whole, engine, tmp_path, monkeypatch):
    push(whole, tmp_path / "out", engine)
    local, pushed = Retriever.from_folder(whole), Retriever.from_folder(tmp_path / "out")
    monkeypatch.setattr(type(pushed.current.engine), "deepest", 2)
    for options in ({}, {"k": 1}, {"sort": "newest"}):
        alike(local, pushed, ["lang:en", "-lang:fr"], **options)
    monkeypatch.setattr(type(pushed.current.engine), "deepest", 1)
    assert pushed.document("barley").text == local.document("barley").text


def test_the_token_goes_only_to_an_address_that_the_user_named(whole, tmp_path, monkeypatch):
    monkeypatch.setenv("LIEBIG_STATE", str(tmp_path / "theirs"))
    double = OpenSearchDouble()
    with serving(double) as uri:
        push(whole, tmp_path / "out", EngineConfig(to="opensearch", uri=uri))  # by somebody else
        monkeypatch.setenv("LIEBIG_STATE", str(tmp_path / "mine"))
        assert Retriever.from_folder(tmp_path / "out").search("soil", 1)
        monkeypatch.setenv("LIEBIG_ENGINE_TOKEN", "u:p")
        double.requests.clear()
        for use in (Retriever.from_folder, lambda out: push_again(out, read(out))):
            with pytest.raises(LiebigError, match=f"set LIEBIG_ENGINE_URI={uri}"):
                use(tmp_path / "out")
        assert double.requests == []
        double.password = "Basic dTpw"
        monkeypatch.setenv("LIEBIG_ENGINE_URI", uri)
        assert Retriever.from_folder(tmp_path / "out").search("soil", 1)
        monkeypatch.delenv("LIEBIG_ENGINE_URI")
        push(whole, tmp_path / "out", EngineConfig(to="opensearch", uri=uri))  # now the user names it
        assert Retriever.from_folder(tmp_path / "out").search("soil", 1)


@needs_milvus
def test_build_and_update_keep_the_engine_as_the_folder(small_model, tmp_path):
    source, out, uri = tmp_path / "source", tmp_path / "out", str(tmp_path / "engine.db")
    write_documents(source, TOPICS[:4])
    options = ["--model", str(small_model), "--minutes", "0", "--engine", "milvus"]
    refused = CliRunner().invoke(make_app(), ["build", str(source), "--out", str(out), *options])
    assert refused.exit_code == 2
    assert "--engine and --uri belong together" in refused.output
    built = CliRunner().invoke(make_app(), ["build", str(source), "--out", str(out), *options, "--uri", uri])
    assert built.exit_code == 0, built.output
    retriever = Retriever.from_folder(out)
    alike(Retriever.from_folder(out / "built"), retriever, ["origin of the comet"])
    write_documents(source, TOPICS[2:5])
    (source / "scan.odd").write_bytes(b"\x00\x01")
    print_ = (sys.executable, "-c", "print('what the converter of tides says')", "{path}")
    update(out, (), lambda line: None, convert=(Converter(".odd", print_),))
    assert retriever.reload()
    assert retriever.document("scan.odd").text == "what the converter of tides says"
    alike(Retriever.from_folder(out / "built"), retriever, ["origin of the comet"])
    assert all(finding.good for finding in examine(out))
    assert retriever.info()["bm25"]["where"] == uri
    Milvus.connect(uri).close()
