"""A user's own questions: how they are read, what is said of mistakes, and what a build does with them."""

import gzip
import json

import numpy as np
import pytest
import torch

from liebig import encoders
from liebig.base import workspace
from liebig.base.errors import DataError
from liebig.base.machine import PRECISION
from liebig.base.records import Passage
from liebig.builder import check, judge as judging, question_training, user_questions
from liebig.builder.questions import Question, folds, read as read_questions
from liebig.builder.runner import Builder, encode_passages
from liebig.cli import main
from liebig.collection import Collection
from liebig.collection.writer import CollectionWriter
from liebig.formats.items import Item, Where
from liebig.model.encoder import Encoder
from liebig.model.kernels import int8
from liebig.model.kernels.lean_forward import body_of
from liebig.search.retriever_folder import read
from liebig.search.systems import System
from liebig.vectors import Vectors, write_vectors
from tests.worlds.books import TOPICS, write_documents


def grades_of(path):
    found, _ = user_questions.read_file(path)
    return {question.text: question.grades for question in found}


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("q.jsonl", '{"question": "a b", "relevant": ["p1", "p2"]}\n', {"a b": {"p1": 1, "p2": 1}}),
        ("q.jsonl", '{"query": "a", "relevant": {"p1": 2, "p2": 0}}\n', {"a": {"p1": 2, "p2": 0}}),
        ("q.jsonl", '{"text": "a"}\n{"text": "b", "passages": "p"}\n', {"a": {}, "b": {"p": 1}}),
        (
            "q.jsonl",
            '{"question": "a", "passage": "p", "relevance": 1}\n{"question": "A", "passage": "p", "relevance": null}\n',
            {"a": {"p": None}},
        ),
        ("q.tsv", "a\tp1\na\tp2\t0\nb\n", {"a": {"p1": 1, "p2": 0}, "b": {}}),
        ("q.csv", 'Query,Document,Grade\n"a, b",d1,1\nb,,\n', {"a, b": {"d1": 1}, "b": {}}),
        ("q.txt", "first question\n\nsecond question\n", {"first question": {}, "second question": {}}),
    ],
)
def test_files_are_read(tmp_path, name, text, expected):
    (tmp_path / name).write_text(text, encoding="utf-8")
    assert grades_of(tmp_path / name) == expected


def test_what_a_model_judged_is_kept_apart_from_what_people_judged(tmp_path):
    lines = [
        {"question": "both", "passage": "p1", "relevance": 1},
        {"question": "both", "passage": "p2", "relevance": 3, "judge": "m"},
        {"question": "both", "passage": "p1", "relevance": 1, "judge": "m"},
        {"question": "model", "passage": "p2", "relevance": 2, "judge": "m"},
        {"question": "none", "passage": "p2", "relevance": 0, "judge": "m"},
    ]
    (tmp_path / "q.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    with CollectionWriter(tmp_path / "corpus") as writer:
        for id in ("p1", "p2"):
            writer.add(Item(Passage(id, f"text of {id}"), Where("test")))
    found, notes = user_questions.read_file(tmp_path / "q.jsonl")
    assert "4 judgements are those of the language model m, not of people" in notes[0]
    judged, unjudged, _ = user_questions.judge(found, Collection(tmp_path / "corpus"), [], tmp_path)
    assert [(one.text, one.kind, one.passages) for one in judged] == [
        ("both", "yours", ("p1",)), ("both", "model", ("p2",)), ("model", "model", ("p2",))
    ]  # fmt: skip
    assert [one.kind for one in user_questions.once(judged[::-1])] == ["model", "yours"]
    assert unjudged == []


@pytest.mark.parametrize(("name", "packed"), [("q.jsonl", False), ("q.json", False), ("q.jsonl.gz", True)])
def test_a_file_that_is_json_by_its_name_alone_is_refused(tmp_path, name, packed):
    (tmp_path / name).write_bytes(gzip.compress(b"not json\n") if packed else b"not json\n")
    with pytest.raises(DataError, match="is not JSON"):
        user_questions.read_file(tmp_path / name)


def test_a_beir_folder_is_read_without_its_corpus_and_one_split_by_its_qrels(tmp_path):
    (tmp_path / "qrels").mkdir()
    (tmp_path / "corpus.jsonl").write_text("not read")
    (tmp_path / "queries.jsonl").write_text('{"_id": "1", "text": "a"}\n{"_id": "2", "text": "b"}\n')
    (tmp_path / "qrels" / "dev.tsv").write_text("query-id\tcorpus-id\tscore\n1\tp\t1\n")
    assert grades_of(tmp_path) == {"a": {"p": 1}, "b": {}}
    assert grades_of(tmp_path / "qrels" / "dev.tsv") == {"a": {"p": 1}}


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("q.jsonl", "", "there are no questions in it"),
        ("q.tsv", "question\tpassage\n", "there are no questions in it"),
        ("q.jsonl", '{"id": 1}\n', "line 1: there is no question in it"),
        ("q.jsonl", '{"question": " "}\n', "line 1: the question is empty"),
        ("q.tsv", "a\tp\tmany\n", "line 1: .*many"),
        ("q.csv", "a,p,1,x\n", "line 1: the line has 4 columns"),
        ("q.jsonl", '{"question": \n', "line 1: this is not valid JSON"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_with_its_line(tmp_path, name, text, message):
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=message):
        user_questions.read_file(tmp_path / name)


def test_repeated_lines_are_counted_once_and_said(tmp_path):
    (tmp_path / "q.tsv").write_text("a\tp\nA\tp\nb\nb\n")
    found, notes = user_questions.read_file(tmp_path / "q.tsv")
    assert [question.text for question in found] == ["a", "b"]
    assert notes == [
        f"{tmp_path / 'q.tsv'}: 2 lines repeat earlier ones (the first is line 2); each counts once."
    ]


ASKED = [
    "who had {} first",
    "house with {}",
    "{} taught to children",
    "north and {}",
    "age of {}",
    "valley, {}",
    "{}?",
]


def write_questions(path, source, count=70):
    """Questions whose relevant passages are named by document, by passage, and by path."""
    rows = []
    for number in range(count):
        topic = TOPICS[number % len(TOPICS)]
        text = ASKED[number // len(TOPICS)].format(topic)
        name = (f"{topic}.md", f"{topic}.md-1", str(source / f"{topic}.md"))[number % 3]
        rows.append({"question": text, "relevant": [name]})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_judged_questions_decide_and_others_wait_for_labels(made, tmp_path):
    source = write_documents(tmp_path / "source")
    file = write_questions(tmp_path / "q.jsonl", source, 30)
    with file.open("a") as more:
        more.write('{"question": "is it here?"}\n{"question": "or there?", "relevant": ["nowhere.md"]}\n')
    lines = made(source, tmp_path / "out", questions=str(file))
    checks = check.read(tmp_path / "out" / read(tmp_path / "out").checks)
    assert checks["questions"]["yours"] == 30
    kept = {q.kind for q in read_questions(tmp_path / "out" / read(tmp_path / "out").checks)}
    assert kept > {"yours"}  # made-up ones too, for the unit of scores
    assert any(line.endswith("30 by yours; nDCG@10 by your questions:") for line in lines)
    assert any("1 of the judged ids are not in the corpus" in line and "line 32" in line for line in lines)
    assert any("Your questions without a relevant passage: 2." in line for line in lines)
    asked = {q.text: q.passages for q in read_questions(tmp_path / "out/work/given")}
    assert asked["who had barley first"] == ("barley.md-0", "barley.md-1")
    assert asked["who had steam first"] == ("steam.md-1",)
    assert asked["who had comet first"] == ("comet.md-0", "comet.md-1")
    pool = Collection(tmp_path / "out/work/given")
    assert pool.passage("barley.md-0").title == "The book of barley: Origin of barley"


def test_more_questions_encode_no_passage_again(made, tmp_path):
    source, out = write_documents(tmp_path / "source"), tmp_path / "out"
    made(source, out)

    def encoded():
        return {path: path.read_bytes() for path in (out / "work").glob("*/vectors.json")}

    before = encoded()
    assert {path.parent.name for path in before} == {"pool-start", "vectors-start"}
    for count in (24, 30):
        made(source, out, questions=str(write_questions(tmp_path / f"{count}.jsonl", source, count)))
        assert check.read(out / read(out).checks)["questions"]["yours"] == count
        assert encoded() == before


def test_few_judged_questions_are_asked_beside_those_made_from_the_documents(made, tmp_path):
    source, out = write_documents(tmp_path / "source"), tmp_path / "out"
    made(source, out, questions=str(write_questions(tmp_path / "q.jsonl", source, 5)))
    asked = check.read(out / read(out).checks)["questions"]
    assert asked.pop("yours") == 5
    assert asked, "kinds of questions made from the documents"


def test_a_file_without_any_passage_of_the_corpus_is_refused_by_the_command(
    small_model, tmp_path, monkeypatch, capsys
):
    source = write_documents(tmp_path / "source", TOPICS[:2])
    (tmp_path / "q.tsv").write_text("a\tnowhere\n")
    command = ["liebig", "build", str(source), "--questions", str(tmp_path / "q.tsv"), "--minutes", "0"]
    monkeypatch.setattr("sys.argv", [*command, "--model", str(small_model), "--out", str(tmp_path / "out")])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert "none of the judged passages is in the corpus; the first is 'nowhere'" in capsys.readouterr().err


def test_enough_judged_questions_train_and_are_judged_by_maps_that_did_not_see_them(
    made, small_model, tmp_path, monkeypatch
):
    for name, value in (("STEPS", 2), ("PARTS", 2)):  # as little as there can be
        monkeypatch.setattr(question_training, name, value)
    seen: list[int] = []
    learn = question_training.learn

    def watched(questions, passages, relevant, **how):
        seen.append(len(questions))
        assert how["minutes"] == pytest.approx(0.5 / 3), "what --help says, of all three together"
        return learn(questions, passages, relevant, **how)

    monkeypatch.setattr(question_training, "learn", watched)
    source, out = write_documents(tmp_path / "source"), tmp_path / "out"
    file = write_questions(tmp_path / "q.jsonl", source, 24)
    lines = made(source, out, questions=str(file), minutes=0.5)
    questions = read_questions(out / "work" / "given")
    parts = folds(questions, question_training.PARTS)
    assert seen == [sum(part != left_out for part in parts) for left_out in (0, 1)] + [24]
    checks = check.read(out / read(out).checks)
    assert "BM25 + encoder trained on your questions" in {row["name"] for row in checks["rows"]}
    assert any(line.startswith("Training on your questions is ") for line in lines)


def test_mapped_vectors_are_those_of_the_encoder_with_the_map(made, small_model, tmp_path, monkeypatch):
    monkeypatch.setattr(question_training, "LR", 0.05)
    monkeypatch.setattr(encoders, "folder", lambda: small_model)
    source, out = write_documents(tmp_path / "source"), tmp_path / "out"
    file = write_questions(tmp_path / "q.jsonl", source, 24)
    made(source, out, questions=str(file), model=None, minutes=None)
    work = out / "work"
    names = {row["name"] for row in check.read(out / read(out).checks)["rows"]}
    assert "BM25 + encoder trained on your questions" in names
    assert not any("after training" in name for name in names)
    start = Vectors.open(work / "vectors-start")
    (tmp_path / "again").mkdir()
    builder = Builder(tmp_path / "again", lambda line: None)
    builder.by_sentences = True
    encoded = encode_passages(builder, "vectors", out / read(out).collection, work / "learnt" / "model")
    for place in ((), ("sentences",)):
        again = list(Vectors.read(encoded.joinpath(*place)).chunks(10_000))
        mapped = list(Vectors.read((work / "mapped").joinpath(*place)).chunks(10_000))
        before = list(Vectors.read((work / "vectors-start").joinpath(*place)).chunks(10_000))
        assert [ids for ids, _ in mapped] == [ids for ids, _ in again]
        np.testing.assert_allclose(mapped[0][1], again[0][1], rtol=0, atol=5e-3)  # stored in fp16
        assert np.abs(mapped[0][1] - before[0][1]).max() > 0.05, "the map does something"
    assert (
        start.about["model"] != Vectors.open(work / "mapped").about["model"] == str(work / "learnt" / "model")
    )


def test_the_layers_below_a_map_stay_in_int8(tmp_path, monkeypatch):
    """A map is one more module, so the layers keep the weights that int8 rounds without loss."""
    start, ids = Encoder.load(encoders.folder()), [f"p{number}" for number in range(8)]
    answers = np.random.default_rng(0).normal(size=(8, start.width)).astype(np.float32)
    answers /= np.linalg.norm(answers, axis=1, keepdims=True)
    with workspace.stage(tmp_path / "vectors", kind="encode", recipe={}, inputs={}) as folder:
        write_vectors(folder.path, [(ids, answers)], "fp32", start.width, {"unit": True})
    questions = [Question(f"question {id}", (id,), "yours") for id in ids]
    monkeypatch.setattr(question_training, "read_questions", lambda path: questions)
    config = question_training.LearnedMapConfig(
        questions=tmp_path, model=encoders.folder(), vectors=tmp_path / "vectors", minutes=1
    )
    with workspace.stage(tmp_path / "learnt", kind="learned-map", recipe={}, inputs={}) as folder:
        question_training.write_map(config, folder)
    learned = Encoder.load(tmp_path / "learnt" / "model")
    assert len(learned.tail) == len(start.tail) + 2  # the map, and normalising again
    monkeypatch.setattr(int8, "byte_products", lambda: "avx512_vnni")
    monkeypatch.delenv(PRECISION)  # tests compute in fp32
    assert int8.choose("auto", body_of(learned.backbone)) == "int8"
    before, after = start.backbone.state_dict(), learned.backbone.state_dict()
    assert before.keys() == after.keys()
    layers = [name for name in before if ".cls." not in name]  # the bundled encoder has no masked-LM head
    assert len(layers) > 100
    assert all(torch.equal(before[name], after[name]) for name in layers)


def test_a_map_brings_questions_to_what_answers_them(monkeypatch):
    rng = np.random.default_rng(0)
    questions, passages = (rng.normal(size=(6, 32)).astype(np.float32) for _ in range(2))
    wanted = [(i + 1) % 6 for i in range(6)]
    relevant = [[row] for row in wanted]

    def nearest(matrix):
        q, p = (x @ matrix / np.linalg.norm(x @ matrix, axis=1, keepdims=True) for x in (questions, passages))
        return (q @ p.T).argmax(1).tolist()

    assert nearest(np.eye(32)) != wanted
    unit = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in (questions, passages)]
    few = question_training.learn(*unit, relevant, unit=True, minutes=1e-9)
    assert 0 < np.abs(few - np.eye(32)).max() <= question_training.LR, "one step, where there is no time"
    # A bound of time that all steps fit in changes no bytes.
    within, far = (question_training.learn(*unit, relevant, unit=True, minutes=m) for m in (10, 1000))
    np.testing.assert_array_equal(within, far)
    monkeypatch.setattr(question_training, "LR", 1e-2)
    assert nearest(question_training.learn(*unit, relevant, unit=True, minutes=10)) == wanted


def test_a_map_is_learned_with_the_lengths_of_vectors_that_a_search_compares():
    rng = np.random.default_rng(0)
    questions, passages = rng.normal(size=(2, 4, 8)).astype(np.float32)
    relevant = [[i] for i in range(4)]

    def learned(factor, unit=False):
        return question_training.learn(questions, passages * factor, relevant, unit=unit, minutes=10)

    longer = np.array([1, 1, 1, 8], np.float32)[:, None]
    assert np.abs(learned(1) - learned(longer)).max() > 1e-3
    np.testing.assert_allclose(learned(1, unit=True), learned(longer, unit=True), rtol=0, atol=1e-4)


def test_an_incomplete_last_line_is_noted_and_the_others_are_read(tmp_path):
    file = tmp_path / "q.jsonl"
    file.write_bytes('{"question": "a", "passage": "p"}\n{"question": "größ'.encode()[:-1])
    questions, notes = user_questions.read_file(file)
    assert [question.text for question in questions] == ["a"]
    assert notes == [f'{file}: the last line is incomplete and is left out: {{"question": "grö\ufffd']


@pytest.mark.parametrize(
    "text",
    [
        '{"question": "a"}\n{"question": \n',  # a line with an end was meant like this
        '{"question": \n{"question": "a"}\n{"question": "b',
        '{"question": "a"}\n{"id": 1}',
    ],
)
def test_other_wrong_lines_are_refused(tmp_path, text):
    (tmp_path / "q.jsonl").write_text(text)
    with pytest.raises(DataError, match=r"line [12]: "):
        user_questions.read_file(tmp_path / "q.jsonl")


def test_each_part_is_answered_by_its_own_encoder():
    class Named(System):
        def __init__(self, name):
            self.name = name

        def search(self, queries, k):
            return [[(f"{self.name} {query.text}", 1.0)] for query in queries]

    judge = judging.SystemJudge([Question(f"q{i}", ("p",), "yours") for i in range(12)])
    judge.ask_parts("yours", [Named(0), Named(1), Named(2)])
    parts = folds(judge.questions, 3)
    assert judge.hits["yours"] == [[(f"{part} q{i}", 1.0)] for i, part in enumerate(parts)]
