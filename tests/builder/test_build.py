"""From documents to a folder that answers, and what an update changes: equal to a rebuild, atomic, resumable."""

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from liebig import encoders
from liebig.base import workspace
from liebig.base.errors import DataError, LiebigError, MissingDependency, ModelError, WorkspaceError
from liebig.base.records import Passage, Query
from liebig.builder import check, training, update as update_module
from liebig.builder.build import phases
from liebig.builder.build_config import LEFT_OUT, BuildConfig
from liebig.builder.judge import unit_of
from liebig.builder.questions import OWN, Question, bare, read as read_questions
from liebig.builder.update import built_with, update
from liebig.cli import main, make_app
from liebig.model import onnx_graph
from liebig.model.cross_encoder import CrossEncoder
from liebig.model.encoder import Encoder, TorchModel
from liebig.search.fusion import SPREAD_TIMES
from liebig.search.retriever import Retriever
from liebig.search.retriever_folder import RetrieverDescription, read
from liebig.stages import encode as encode_command
from liebig.train.log import read_log
from liebig.train.stopping import FEW
from tests.worlds import books
from tests.worlds.books import write_documents
from tests.worlds.shared import made_once

TOPICS = [*books.TOPICS, "candle", "orchard"]


def refresh(out, *sources):
    lines = []
    counts = update(out, [str(source) for source in sources], lines.append)
    return counts, lines


@pytest.fixture(scope="session")
def built(made, tmp_path_factory):
    """A retriever with the bundled encoder, which tests only read, and what its build said."""

    def make(folder):
        folder.mkdir()
        lines = made(write_documents(folder / "source", TOPICS), folder / "out", model=None)
        (folder / "lines.json").write_text(json.dumps(lines))

    folder = made_once(tmp_path_factory, "built", make)
    return folder / "out", json.loads((folder / "lines.json").read_text())


def answers(folder, system):
    retriever = Retriever.from_folder(folder)
    found = retriever.search_many(
        ["origin of the comet", "steam at school", "house with pepper", "quince"], 50, system
    )
    return [sorted((r.id, round(r.score, 2)) for r in row) for row in found]


def test_documents_become_a_folder_that_answers(built):
    out, lines = built
    retriever = Retriever.from_folder(out)
    assert retriever.search("where does the violin come from", k=1)[0].doc == "violin.md"
    assert retriever.info()["documents"] == len(TOPICS)
    assert "sources" not in retriever.info()
    checks = json.loads((out / read(out).checks / "checks.json").read_text())
    assert checks["questions"]["heading"] == 12
    assert [row["name"] for row in checks["rows"]][:2] == ["BM25", "encoder before training"]
    assert checks["baseline"] == "BM25 + encoder before training, plain"
    chosen = next(row for row in checks["rows"] if row["name"] == checks["chosen"])
    assert chosen["expected"] == max(row["expected"] for row in checks["rows"])
    assert checks["headline"] in lines
    assert any("nDCG@10" in line for line in lines)
    assert checks["choice"]["system"] == retriever.system


def test_questions_are_held_out_of_the_text_they_are_asked_against(built):
    out, _ = built
    rows = [json.loads(line) for line in (out / "work/questions/passages.jsonl").read_text().splitlines()]
    assert {row["title"] for row in rows} == {""}
    assert not any("Origin of" in row["text"] or "The book of" in row["text"] for row in rows)


def test_words_are_taken_out_whatever_their_case():
    passage = Passage("p", "Barley is grown. BARLEY (barley) is eaten.", "Barley")
    assert bare(passage, ["barley"]).text == "is grown.   ( ) is eaten."
    assert bare(Passage("p", "Barley", "Barley"), ["barley"]).text == "Barley"


def test_a_second_build_changes_nothing(made, tmp_path):
    source, out = write_documents(tmp_path / "source", TOPICS), tmp_path / "out"
    made(source, out)
    before = (out / "retriever.json").read_bytes()
    lines = made(source, out)
    phases = [line for line in lines if line.startswith("[")]
    assert len(phases) == 5
    assert all(line.endswith(": up to date") for line in phases)
    assert (out / "retriever.json").read_bytes() == before


def test_an_interrupted_build_goes_on(made, tmp_path, monkeypatch):
    source = write_documents(tmp_path / "source", TOPICS[:3])
    with monkeypatch.context() as patch:
        patch.setattr(
            "liebig.builder.build.index_vectors", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt)
        )
        with pytest.raises(KeyboardInterrupt):
            made(source, tmp_path / "out")
    assert not (tmp_path / "out" / "retriever.json").exists()
    lines = made(source, tmp_path / "out")
    assert "[2/5] Index the words (BM25): up to date" in lines
    assert len(Retriever.from_folder(tmp_path / "out")) == 6


def unit_on_index(out):
    """The unit of the scores of the whole index, for the questions of the check."""
    description, questions = read(out), check.enough(read_questions(out / read(out).checks))
    system = Retriever.from_folder(out).current.systems()["dense"]
    hits = system.search([Query(str(n), question.text) for n, question in enumerate(questions)], 10)
    assert description.norm == "spread"
    return unit_of(questions, hits)


def test_the_unit_of_scores_is_that_of_the_whole_index(built):
    out, _ = built
    assert read(out).spread == pytest.approx(unit_on_index(out), rel=1e-5)  # batches round otherwise
    checks = check.read(out / read(out).checks)
    assert read(out).spread == checks["spread"], (
        "systems are compared with the unit that they are served with"
    )


def test_the_unit_of_scores_is_that_of_made_up_questions_where_there_are_some():
    def hits(difference):
        return [("a", 1.0), *((str(rank), 1 - difference) for rank in range(9))]

    lists = [hits(difference) for difference in (0.1, 0.2, 0.6, 0.4)]
    made_up = [Question("q", ("a",), kind) for kind in ("title", "title", "title", "keywords")]
    yours = [Question("q", ("a",), OWN) for _ in lists]
    times = SPREAD_TIMES
    assert unit_of(made_up, lists) == pytest.approx(times * (0.2 + 0.4) / 2)
    assert unit_of(yours, lists) == pytest.approx(times * 0.3)
    assert unit_of([*yours, *made_up], [*lists[::-1], *lists]) == unit_of(made_up, lists)
    assert unit_of([], []) == 1.0


def test_the_unit_of_scores_stays_the_checks_where_the_questions_trained_the_encoder(built, tmp_path):
    source, out = write_documents(tmp_path / "source", TOPICS), tmp_path / "out"
    shutil.copytree(built[0], out)
    path = out / read(out).checks / check.CHECKS
    checks = check.read(path.parent)
    path.write_text(json.dumps({**checks, "choice": {**checks["choice"], "encoder": OWN}}))
    before = read(out).spread
    write_documents(source, ["quince", "pear", "lamp", "mill"])
    refresh(out, source)
    assert read(out).spread == before


def test_an_update_measures_the_unit_of_scores_again(built, tmp_path):
    source, out = write_documents(tmp_path / "source", TOPICS), tmp_path / "out"
    shutil.copytree(built[0], out)
    before = read(out).spread
    shutil.rmtree(out / "work")  # the questions are in the folder of the check
    write_documents(source, ["quince", "pear", "lamp", "mill", "ferry", "wheel", "tower", "bridge"])
    refresh(out, source)
    assert read(out).spread == pytest.approx(unit_on_index(out), rel=1e-5)
    assert read(out).spread != pytest.approx(before, rel=1e-3)


def test_an_update_refuses_damaged_questions_and_changes_nothing(built, tmp_path):
    source, out = write_documents(tmp_path / "source", TOPICS), tmp_path / "out"
    shutil.copytree(built[0], out)
    before = read(out)
    questions = out / before.checks / "questions.jsonl"
    questions.write_bytes(questions.read_bytes()[:-9])
    write_documents(source, ["quince"])
    with pytest.raises(LiebigError, match=r"questions\.jsonl"):
        refresh(out, source)
    assert read(out) == before


@pytest.mark.parametrize("system", ["bm25", "dense"])
def test_an_update_finds_what_a_rebuild_finds(made, tmp_path, system):
    source = write_documents(tmp_path / "source", TOPICS[:6])
    made(source, tmp_path / "out")
    (source / "steam.md").unlink()
    (source / "comet.md").write_text("# Comets\n\nThe origin of the comet is a cloud.\n\nIt has a tail.\n")
    write_documents(source, ["pepper", "quince"])
    counts, _ = refresh(tmp_path / "out")
    assert (counts.new, counts.changed, counts.deleted) == (2, 1, 1)
    made(source, tmp_path / "again")
    assert answers(tmp_path / "out", system) == answers(tmp_path / "again", system)
    assert read(tmp_path / "out").generation == 2
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert not names & {"collection-1", "bm25-1", "index-1"}


def test_shards_of_many_updates_are_put_together(made, tmp_path, monkeypatch):
    source = write_documents(tmp_path / "source", TOPICS[:3])
    made(source, tmp_path / "out")
    write_documents(source, ["quince"])
    refresh(tmp_path / "out")
    monkeypatch.setattr("liebig.indexes.exact.MOST_SHARDS", 1)
    (source / "steam.md").unlink()
    write_documents(source, ["pepper"])
    refresh(tmp_path / "out")
    index = Retriever.from_folder(tmp_path / "out").current.index
    assert (len(index.shards), len(index)) == (2, 8)
    made(source, tmp_path / "again")
    assert answers(tmp_path / "out", "dense") == answers(tmp_path / "again", "dense")


def test_vectors_that_are_mostly_deleted_are_put_together(made, tmp_path):
    source = write_documents(tmp_path / "source", TOPICS[:3])
    made(source, tmp_path / "out")
    for topic in TOPICS[:2]:
        (source / f"{topic}.md").unlink()
    refresh(tmp_path / "out")
    assert len(Retriever.from_folder(tmp_path / "out").current.index.deleted()) == 4
    write_documents(source, ["quince"])
    refresh(tmp_path / "out")
    index = Retriever.from_folder(tmp_path / "out").current.index
    assert (len(index.deleted()), len(index)) == (0, 4)


def test_metadata_that_changed_are_taken_over_without_encoding_anything(made, tmp_path):
    source, rows = (
        tmp_path / "notes.jsonl",
        [{"id": "a", "text": "Barley and rye.", "metadata": {"year": "1840"}}],
    )
    source.write_text(json.dumps(rows[0]) + "\n", encoding="utf-8")
    made(source, tmp_path / "out")
    before = read(tmp_path / "out")
    rows[0]["metadata"]["year"] = "1841"
    source.write_text(json.dumps(rows[0]) + "\n", encoding="utf-8")
    counts, _ = refresh(tmp_path / "out")
    now = read(tmp_path / "out")
    assert (counts.changed, counts.passages, counts.gone) == (1, 0, 0)
    assert (now.bm25, now.index) == (before.bm25, before.index)
    found = Retriever.from_folder(tmp_path / "out").search("barley", filters={"year": "1841"})
    assert [result.metadata for result in found] == [{"year": "1841"}]


def test_an_update_reads_in_the_language_of_the_build(tmp_path):
    description = RetrieverDescription(
        1, "hybrid", "c", "b", "i", "m", more={"sources": ["notes"], "language": "de"}
    )
    assert built_with(description, tmp_path) == BuildConfig(sources=("notes",), language="de")


def test_a_language_without_a_stemmer_is_refused_before_anything_is_read(tmp_path):
    words = ["build", str(tmp_path), "--language", "klingon", "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(make_app(), words)
    assert result.exit_code == 2
    said = " ".join(result.stderr.split())
    assert "language = 'klingon': is none of the choices. To fix it: use one of arabic" in said
    assert not (tmp_path / "out").exists()


def test_many_vectors_are_indexed_approximately(made, tmp_path, monkeypatch):
    monkeypatch.setattr("liebig.builder.runner.EXACT", 5)
    made(write_documents(tmp_path / "source", TOPICS[:3]), tmp_path / "out")
    assert Retriever.from_folder(tmp_path / "out").info()["dense"]["kind"] == "faiss"


def test_a_build_loads_its_encoder_once_for_passages_and_once_for_questions(made, tmp_path, monkeypatch):
    loaded, load = [], Encoder.load
    monkeypatch.setattr(Encoder, "load", lambda path: loaded.append(path) or load(path))
    made(write_documents(tmp_path / "source"), tmp_path / "out")
    assert len(loaded) == 2  # their precisions differ


def test_pieces_of_changed_passages_go(made, tmp_path):
    source = tmp_path / "passages.jsonl"

    def write(**texts):
        rows = [{"_id": id, "title": "", "text": text} for id, text in texts.items()]
        source.write_text("".join(json.dumps(row) + "\n" for row in rows))

    long = " ".join(f"word{i} barley" for i in range(200))
    write(a=long, b=long + " comet", c="a short one")
    made(source, tmp_path / "out")
    retriever = Retriever.from_folder(tmp_path / "out")
    before = len(retriever.current.index)
    assert before > 3
    write(a="barley", b=long + " comet", d="quince")
    refresh(tmp_path / "out")
    assert retriever.reload()
    assert retriever.current.index.find("a#1") is None
    assert {r.id for r in retriever.search("barley", 5, "dense")} == {"a", "b", "d"}


def test_an_update_without_changes_is_no_generation(made, tmp_path):
    out = tmp_path / "out"
    made(write_documents(tmp_path / "source", TOPICS[:3]), out)
    before = sorted(path.name for path in out.iterdir())
    counts, lines = refresh(out)
    assert counts.nothing
    assert lines[-1] == "Nothing has changed."
    assert sorted(path.name for path in out.iterdir()) == before


def test_an_update_that_fails_leaves_the_old_generation(made, tmp_path, monkeypatch):
    source = write_documents(tmp_path / "source", TOPICS[:3])
    made(source, tmp_path / "out")
    expected = answers(tmp_path / "out", "bm25")
    write_documents(source, ["quince"])
    with monkeypatch.context() as patch:
        patch.setattr(
            "liebig.builder.update._update_index", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt)
        )
        with pytest.raises(KeyboardInterrupt):
            refresh(tmp_path / "out")
    assert answers(tmp_path / "out", "bm25") == expected
    refresh(tmp_path / "out")
    assert answers(tmp_path / "out", "bm25") != expected


@pytest.mark.parametrize("held", ["_update_bm25", "_update_index", "read_collection"])
def test_updates_that_overlap_lose_no_document(made, tmp_path, monkeypatch, held):
    """The first is held inside a stage, at different places, while a second one starts."""
    source, out = write_documents(tmp_path / "source", TOPICS[:3]), tmp_path / "out"
    made(source, out)
    write_documents(source, ["quince"])
    inside, go_on = Event(), Event()
    original = getattr(update_module, held)

    def waiting(*given):
        if not inside.is_set():
            inside.set()
            assert go_on.wait(120)
        return original(*given)

    monkeypatch.setattr(update_module, held, waiting)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(refresh, out)
        assert inside.wait(120)
        write_documents(source, ["medlar"])
        with pytest.raises(WorkspaceError, match="another liebig build or update is writing this retriever"):
            refresh(out)
        with pytest.raises(WorkspaceError, match="another liebig build or update"):
            made(source, out)
        go_on.set()
        first.result()
    refresh(out)
    retriever = Retriever.from_folder(out)
    assert {r.doc for r in retriever.search("quince medlar", 10, "bm25")} == {"quince.md", "medlar.md"}
    assert len(retriever) == len(retriever.current.index) == 10
    assert refresh(out)[1][-1] == "Nothing has changed."
    assert not (out / "work" / ".lock").exists()


def test_what_killed_updates_left_is_removed_by_the_next(made, tmp_path, monkeypatch):
    source, out = write_documents(tmp_path / "source", TOPICS[:3]), tmp_path / "out"
    made(source, out)
    write_documents(source, ["quince"])
    with monkeypatch.context() as patch:
        patch.setattr("liebig.search.retriever_folder.remove_old", lambda *_: None)
        refresh(out)  # killed before it removed the older generation
    (out / "work" / ".read.liebig.old").mkdir()
    shutil.copytree(out / "bm25-2", out / "work" / ".pool.liebig.old")
    (out / "index-0").mkdir()
    (out / "index-0" / "mine.txt").write_text("a person put this here")
    for finished in (out / "collection-2", out / "work" / "read"):  # killed before it removed its lock
        (finished / ".lock").touch()
    assert (out / "bm25-1").is_dir()
    refresh(out)
    assert not list(out.rglob(".lock"))
    left = {path.name for path in out.iterdir() if path.name not in vars(read(out)).values()}
    assert left == {"retriever.json", "files.json", "work", "index-0"}
    assert not list((out / "work").glob(".*"))


@pytest.mark.parametrize("stage", ["read", "collection-1"])
def test_a_build_killed_before_its_last_rename_is_taken_up(made, tmp_path, monkeypatch, stage):
    source, out = write_documents(tmp_path / "source", TOPICS[:3]), tmp_path / "out"
    swap = workspace._swap

    def killed(partial, to):
        if to.name == stage:
            raise KeyboardInterrupt
        swap(partial, to)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(workspace, "_swap", killed)
        made(source, out)
    assert [
        (partial.name, (partial / workspace.MANIFEST).is_file()) for partial in out.rglob("*.partial")
    ] == [(f"{stage}.partial", True)]
    made(source, out)
    assert Retriever.from_folder(out).search("origin of the comet", k=1)
    assert not [*out.rglob("*.partial"), *out.rglob(".lock")]


def test_bad_input_leaves_no_folder_behind(made, tmp_path):
    with pytest.raises(LiebigError):
        made(tmp_path / "nowhere", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_three_documents_of_one_word_are_enough(made, tmp_path):
    (tmp_path / "source").mkdir()
    for word in ("cat", "dog", "fish"):
        (tmp_path / "source" / f"{word[0]}.txt").write_text(word)
    lines = made(tmp_path / "source", tmp_path / "out", minutes=1)
    assert any("too little to train on" in line for line in lines)
    assert any("Too few to tell" in line for line in lines)
    assert Retriever.from_folder(tmp_path / "out").search("dog", k=1)[0].text == "dog"


def test_a_build_with_the_bundled_encoder_advises_another(made, built, tmp_path):
    _, lines = built
    assert lines[-1] == encoders.ADVICE
    assert "--model" in encoders.ADVICE
    (tmp_path / "a.txt").write_text("barley")
    assert encoders.ADVICE not in made(tmp_path / "a.txt", tmp_path / "out")


def test_training_is_kept_only_where_it_helped(made, tmp_path, monkeypatch):
    monkeypatch.setattr(training, "FEWEST_TOKENS", 100)
    monkeypatch.setattr(training, "FEWEST_EXAMPLES", 4)
    lines = made(write_documents(tmp_path / "source", TOPICS), tmp_path / "out", minutes=0.002)
    steps = max(line["step"] for line in read_log(tmp_path / "out" / "work" / "trained"))
    assert any(line.startswith("WARNING: only") for line in lines) == (steps < FEW), "said again at the end"
    description = read(tmp_path / "out")
    checks = json.loads((tmp_path / "out" / description.checks / "checks.json").read_text())
    assert "BM25 + encoder after training" in {row["name"] for row in checks["rows"]}
    assert checks["why"][0].startswith("Training is ")
    kept = workspace.read_manifest(tmp_path / "out" / description.model).outputs["model.safetensors"]
    last = "mean" if checks["fair"] else "trained"
    trained = workspace.read_manifest(tmp_path / "out/work" / last).outputs["model/model.safetensors"]
    assert (kept == trained) == (checks["choice"]["encoder"] == "trained")


@pytest.mark.parametrize("fair", [0.0, 2.0])
def test_an_encoder_that_is_a_retriever_is_moved_half_the_way_and_another_one_all_of_it(
    made, small_model, tmp_path, monkeypatch, fair
):
    monkeypatch.setattr(training, "FEWEST_TOKENS", 100)
    monkeypatch.setattr(training, "FEWEST_EXAMPLES", 4)
    monkeypatch.setattr(check, "FAIR", fair)
    made(write_documents(tmp_path / "source", TOPICS), tmp_path / "out", minutes=0.002)
    work = tmp_path / "out" / "work"
    assert (work / "mean").is_dir() == (fair == 0.0)
    encoded = workspace.read_manifest(work / "pool-trained").recipe["model"]
    assert encoded == str(work / ("mean" if fair == 0.0 else "trained") / "model")
    if fair == 0.0:
        before, after, between = (
            Encoder.load(folder).state_dict()
            for folder in (small_model, work / "trained" / "model", work / "mean" / "model")
        )
        # The encoder has no masked-LM head: one is made fresh, at random, whenever it is loaded.
        for name in (name for name in between if ".cls." not in name):
            torch.testing.assert_close(between[name], (before[name] + after[name]) / 2)
        assert any(not torch.equal(before[name], after[name]) for name in before)
        start, mean = Encoder.load(small_model), Encoder.load(work / "mean" / "model")
        assert (mean.max_length, mean.layout, mean.similarity) == (start.max_length, start.layout, "cosine")


def test_an_encoder_that_retrieves_is_not_trained_unless_minutes_are_given(made, tmp_path, monkeypatch):
    monkeypatch.setattr(check, "FAIR", 0.0)
    lines = made(write_documents(tmp_path / "source", TOPICS), tmp_path / "out", minutes=None)
    assert LEFT_OUT in lines
    assert not (tmp_path / "out" / "work" / "rest").exists()


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, False),  # the bundled encoder retrieves already
        ({"model": "liebig:mini-v3"}, False),  # the same by its name
        ({"minutes": 0}, False),
        ({"minutes": 5}, True),
        ({"teacher": "a/b"}, True),
        ({"questions": "q.jsonl"}, False),  # which train from the start itself
        ({"model": "a/b"}, True),  # it may be none that retrieves
    ],
)
def test_the_bundled_encoder_is_trained_only_on_request(fields, expected):
    config = BuildConfig(sources=("folder",), **fields)
    assert config.may_train == expected
    assert ("train" in phases(config)) == expected


def test_what_is_not_ours_is_not_built_over(made, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "letters.txt").write_text("mine")
    with pytest.raises(WorkspaceError, match="refusing to overwrite"):
        made(write_documents(tmp_path / "source", TOPICS[:1]), tmp_path / "out")
    with pytest.raises(ModelError, match="no such model"):
        made(tmp_path / "source", tmp_path / "other", model=str(tmp_path / "nothing"))
    with pytest.raises(DataError, match="liebig build"):
        refresh(tmp_path / "other")
    assert np.array([path.name == "letters.txt" for path in (tmp_path / "out").iterdir()]).all()


def test_the_folder_of_another_corpus_is_replaced_only_on_request(made, tmp_path):
    a, b = (write_documents(tmp_path / name, TOPICS[:count]) for name, count in (("a", 2), ("b", 3)))
    out = tmp_path / "out"
    made(a, out)
    before = (out / "retriever.json").read_bytes()
    with pytest.raises(WorkspaceError) as refused:
        made(b, out)
    assert f"was built from {a}; refusing to replace it with a build from {b}" in str(refused.value)
    assert "give another --out, or --replace" in str(refused.value)
    assert (out / "retriever.json").read_bytes() == before
    made(tmp_path / "b" / ".." / "a", out)  # the same source by another name
    made(b, out, replace=True)
    assert Retriever.from_folder(out).info()["documents"] == 3


def test_the_command_ends_with_what_to_type_next(small_model, tmp_path, monkeypatch, capsys):
    source = write_documents(tmp_path / "source", TOPICS[:2])
    command = ["liebig", "build", str(source), "--out", str(tmp_path / "out"), "--minutes", "0"]
    monkeypatch.setattr("sys.argv", [*command, "--model", str(small_model)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    assert capsys.readouterr().err.rstrip().endswith(f"Next: liebig serve {tmp_path / 'out'}")
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert page.index("What was run") < page.index("<h2")  # linked from the top
    assert "collection-1" in page


def test_titles_that_are_not_asked_are_trained_on(made, tmp_path, monkeypatch):
    """With enough titles a build trains on them beside the sentences."""
    monkeypatch.setattr("liebig.builder.questions.LEAST", 4)
    monkeypatch.setattr(check, "FAIR", 2.0)  # an encoder that is no retriever yet
    monkeypatch.setattr(training, "FEWEST_TOKENS", 100)
    monkeypatch.setattr(training, "FEWEST_EXAMPLES", 4)
    made(write_documents(tmp_path / "source", TOPICS), tmp_path / "out", minutes=0.002)
    asked = {json.loads(line)["text"] for line in (tmp_path / "out/work/questions/questions.jsonl").open()}
    rest = {json.loads(line)["text"] for line in (tmp_path / "out/work/questions/pairs/queries.jsonl").open()}
    assert asked
    assert rest
    assert not asked & rest
    recipe = workspace.read_manifest(tmp_path / "out/work/trained").recipe
    assert [part["source"]["kind"] for part in recipe["source"]["parts"]] == ["cloze", "queries"]


@pytest.mark.parametrize("titled", [False, True])
def test_documents_of_one_sentence_are_trained_on_as_far_as_they_can_be(made, tmp_path, monkeypatch, titled):
    monkeypatch.setattr("liebig.builder.questions.LEAST", 4)
    monkeypatch.setattr(check, "FAIR", 2.0)  # an encoder that cannot retrieve yet
    monkeypatch.setattr(training, "FEWEST_TOKENS", 1)
    monkeypatch.setattr(training, "FEWEST_EXAMPLES", 4)
    source = tmp_path / "corpus.jsonl"
    rows = [
        {"_id": topic, "title": f"Notes on {topic}" if titled else "", "text": f"some {topic} in every house"}
        for topic in TOPICS
    ]
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    lines = made(source, tmp_path / "out", minutes=0.002)
    told = "on titles alone" if titled else "skipped"
    reason = "because the documents are too short to cut sentences from"
    assert [line for line in lines if line.startswith(f"training: {told}, {reason}")]
    assert (tmp_path / "out/work/trained").is_dir() == titled
    assert Retriever.from_folder(tmp_path / "out").search("violin", k=1)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--rerank-depth", "50"], "a rerank depth is used only together with a reranker"),
        (["--no-rerank-int8"], "the precision of a reranker was given, but no reranker"),
    ],
)
def test_options_of_a_reranker_without_one_are_refused(tmp_path, monkeypatch, capsys, options, sentence):
    source = write_documents(tmp_path / "source", TOPICS)
    monkeypatch.setattr(
        "sys.argv", ["liebig", "build", str(source), "--out", str(tmp_path / "out"), *options]
    )
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert sentence in capsys.readouterr().err
    assert not (tmp_path / "out" / "work").exists()


@pytest.mark.parametrize("option", ["model", "teacher"])
def test_a_model_without_weights_is_refused_before_the_work_begins(made, small_model, tmp_path, option):
    shutil.copytree(small_model, tmp_path / "empty")
    (tmp_path / "empty" / "model.safetensors").unlink()
    source = write_documents(tmp_path / "source", TOPICS)
    with pytest.raises(ModelError, match="no weights"):
        made(source, tmp_path / "out", minutes=0.01, **{option: str(tmp_path / "empty")})
    assert not (tmp_path / "out" / "work").exists()


def test_what_is_not_a_reranker_is_refused_before_the_work_begins(made, small_model, tmp_path):
    CrossEncoder.start(small_model, length=64).save(tmp_path / "classes")
    config = json.loads((tmp_path / "classes" / "config.json").read_text())
    config["id2label"] = {str(label): f"LABEL_{label}" for label in range(3)}
    (tmp_path / "classes" / "config.json").write_text(json.dumps(config))
    source = write_documents(tmp_path / "source", TOPICS)
    refused = {tmp_path / "classes": "sorts pairs into 3 classes", small_model: "has no classification head"}
    for model, sentence in refused.items():
        with pytest.raises(ModelError, match=sentence):
            made(source, tmp_path / "out", reranker=str(model))
        assert not (tmp_path / "out" / "work").exists()


def test_a_package_that_a_reranker_needs_is_missed_before_the_work_begins(
    made, small_model, tmp_path, monkeypatch
):
    CrossEncoder.start(small_model, length=64).save(tmp_path / "cross")
    source = write_documents(tmp_path / "source", TOPICS)
    monkeypatch.setattr(onnx_graph, "find_spec", lambda package: None)
    with pytest.raises(MissingDependency, match="onnx"):
        made(source, tmp_path / "out", reranker=str(tmp_path / "cross"))
    assert not (tmp_path / "out" / "work").exists()


@pytest.mark.parametrize("role", ["model", "teacher"])
@pytest.mark.parametrize("modules", [[], ["Transformer"]])  # of transformers, of sentence-transformers
def test_a_classifier_is_refused_as_an_encoder(made, small_model, tmp_path, role, modules):
    CrossEncoder.start(small_model, length=64).save(tmp_path / "cross")
    if modules:
        listed = [{"type": f"sentence_transformers.models.{kind}", "path": ""} for kind in modules]
        (tmp_path / "cross" / "modules.json").write_text(json.dumps(listed))
    source = write_documents(tmp_path / "source", TOPICS)
    with pytest.raises(ModelError, match=r"is a reranker or another classifier.* given as --reranker"):
        made(source, tmp_path / "out", **{"minutes": None, role: str(tmp_path / "cross")})
    assert not (tmp_path / "out" / "work").exists()


def test_a_reranker_is_copied_measured_and_kept_by_updates(made, small_model, tmp_path):
    start = CrossEncoder.start(small_model, length=64).eval()
    start.save(tmp_path / "cross")
    source = write_documents(tmp_path / "source", TOPICS)
    fields = {"reranker": str(tmp_path / "cross"), "rerank_depth": 4, "rerank_int8": False}
    lines = made(source, tmp_path / "out", **fields)
    description = read(tmp_path / "out")
    assert (description.reranker, description.depth) == ("reranker-1", 4)
    checks = check.read(tmp_path / "out" / description.checks)
    assert any(row["name"].endswith(", reranked") for row in checks["rows"])
    assert any("reranked" in line and " ms" in line for line in lines)
    retriever = Retriever.from_folder(tmp_path / "out")
    assert {r.doc for r in retriever.search("origin of the comet", 4, "reranked")} == {
        r.doc for r in retriever.search("origin of the comet", 4, "hybrid")
    }
    again = made(source, tmp_path / "out", **fields)
    assert "[3/6] Copy the reranker: up to date" in again
    (source / "quince.md").write_text("# Quince\n\nA quince is a fruit.\n", encoding="utf-8")
    refresh(tmp_path / "out")
    assert (retriever.reload(), read(tmp_path / "out").reranker) == (True, "reranker-1")
    assert "reranked" in retriever.systems


def test_texts_of_the_check_that_are_those_of_the_index_are_encoded_once(made, tmp_path, monkeypatch):
    rows = [
        {
            "_id": topic,
            "text": f"People know {topic} since year {n}. Every house keeps {topic}. Take {n} spoons of {topic}.",
        }
        for n, topic in enumerate(TOPICS)
    ]
    (tmp_path / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    pieces, row, encode_texts = [], TorchModel._row, encode_command._encode

    def spy(self, tokens, *rest):
        pieces[-1].extend(map(tuple, tokens.to_lists()))
        return row(self, tokens, *rest)

    def stage(*arguments):
        pieces.append([])
        with monkeypatch.context() as patch:
            patch.setattr(TorchModel, "_row", spy)
            encode_texts(*arguments)

    monkeypatch.setattr(encode_command, "_encode", stage)
    made(tmp_path / "corpus.jsonl", tmp_path / "out")
    assert len(pieces) >= 2, "the pool and all passages, with their sentences"
    again = [
        piece
        for number, of_stage in enumerate(pieces)
        for piece in of_stage
        if any(piece in p for p in pieces[:number])
    ]
    assert again == []
    assert sum(map(len, pieces)) >= len(TOPICS)


def test_the_format_that_a_build_names_is_that_of_its_updates(made, tmp_path):
    (tmp_path / "notes.txt").write_text("Barley grows.\n")
    out = tmp_path / "out"
    made(tmp_path / "notes.txt", out, format="texts")
    assert workspace.read_manifest(out / "work" / "read").recipe["format"] == "texts"
    assert built_with(read(out), out).format == "texts"


def test_a_format_that_is_none_is_refused_with_those_that_are(tmp_path):
    (tmp_path / "notes.txt").write_text("Barley grows.\n")
    words = ["build", str(tmp_path / "notes.txt"), "--format", "beri", "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(make_app(), words)
    assert (done.exit_code, "format = 'beri'" in done.stderr, "write 'beir'" in done.stderr) == (
        2,
        True,
        True,
    )
