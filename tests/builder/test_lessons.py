"""A teacher for a corpus: what is taught, the projection a student starts with, and both roles in a search."""

import json
import shutil

import numpy as np
import pytest
import torch

from liebig.base import pipeline
from liebig.base.errors import DataError, RecipeError
from liebig.base.records import Passage, Query
from liebig.builder import check, judge as judging, lessons as taught_texts, training
from liebig.builder.build import BuildConfig, build
from liebig.builder.questions import Question
from liebig.builder.short_texts import OPENERS
from liebig.builder.update import update
from liebig.collection import Collection
from liebig.collection.writer import CollectionWriter
from liebig.formats.items import Item, Where
from liebig.model.encoder import Encoder
from liebig.model.pooling import Normalize
from liebig.search.embed import Embedder, TextRequest
from liebig.search.retriever import Retriever
from liebig.search.retriever_folder import read
from liebig.serve.engine import ServingEngine
from liebig.serve.middleware import Limits
from liebig.stages.encode import STAGE as ENCODE
from liebig.stages.prepare import STAGE as PREPARE
from liebig.stages.pretrain import STAGE as PRETRAIN
from liebig.text.tokenizer import Tokenizer
from liebig.train.optim import AdamWConfig
from liebig.vectors import Vectors
from tests.worlds.models import tiny

TOPICS = ["barley", "steam", "comet", "violin", "glacier", "harbour", "pepper", "mirror", "falcon", "copper"]


def passages(topics=TOPICS):
    return [
        Passage(
            f"{topic}-{part}",
            f"People have known {topic} for {number + 3} centuries in the north. "
            f"Every house of part {part} keeps some {topic}, which children learn at school.",
            f"The book of {topic}",
            topic,
        )
        for number, topic in enumerate(topics)
        for part in range(2)
    ]


def model(folder, width, seed, prompts=None, pooling="mean"):
    """A tiny random encoder with a vocabulary of the corpus."""
    texts = [f"{p.title} {p.text}" for p in passages()]
    tokenizer = Tokenizer.train(texts * 3, vocab_size=400, max_length=64)
    backbone = tiny("bert", layers=1, seed=seed, width=width, vocab_size=tokenizer.vocab_size)
    encoder = Encoder(
        backbone, tokenizer, pooling=pooling, tail=[Normalize()], similarity="cosine", prompts=prompts
    )
    encoder.save(folder)
    return folder


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A corpus, a student of width 32 and a teacher of width 48 with prompts, and the stages up to the student."""
    home = tmp_path_factory.mktemp("teacher")
    with CollectionWriter(home / "rest") as writer:
        for passage in passages():
            writer.add(Item(passage, Where("test")))
    with CollectionWriter(home / "collection") as writer:
        for passage in [*passages(), *passages(["quince"])]:
            writer.add(Item(passage, Where("test")))
        writer.add(Item(Query("g1", "who keeps barley at home"), Where("test"), "generated"))
        writer.add(Item(Query("g2", "who keeps quince at home"), Where("test"), "generated"))
    judged = home / "collection" / "judgements"
    judged.mkdir(exist_ok=True)
    (judged / "generated.tsv").write_text("g1\tbarley-0\t1\ng2\tquince-0\t1\n")
    model(home / "start", 32, 1)
    model(home / "master", 48, 2, {"query": "children learn ", "passage": "every house of the north "})

    def run(name, stage, **fields):
        pipeline.run_stage(stage, stage.config(**fields), home / name)
        return str(home / name)

    all_of_it = str(home / "collection")
    taught = run("vectors", ENCODE, source=all_of_it, model=str(home / "master"))
    phrases = run("phrases", taught_texts.PHRASES_STAGE, collection=all_of_it, passages=str(home / "rest"))
    spoken = run("spoken", ENCODE, source=phrases, model=str(home / "master"), prompt="query")
    run(
        "lessons", taught_texts.LESSONS, passages=str(home / "rest"), phrases=phrases, vectors=taught,
        phrase_vectors=spoken, student=str(home / "start"),
    )  # fmt: skip
    # Fitted to few texts, so that training has something left to do.
    run("student", taught_texts.STUDENT, start=str(home / "start"), lessons=str(home / "lessons"), texts=12)
    run("store", PREPARE, collection=str(home / "lessons"), tokenizer=str(home / "start"))
    return home, run


def test_nothing_that_is_held_out_is_taught(world):
    home, _ = world
    texts = [p.text for p in Collection(home / "phrases").passages()]
    assert "who keeps barley at home" in texts
    assert not any("quince" in p.text for p in Collection(home / "lessons").passages())


def test_half_of_the_texts_are_pieces_and_half_are_pieces_as_questions(world, tmp_path):
    home, run = world
    log = [f"where to buy {topic}s" for topic in TOPICS for _ in range(30)]  # people ask the same again
    (tmp_path / "log.txt").write_text("\n".join(log) + "\n\n")
    where = {"collection": str(home / "collection"), "passages": str(home / "rest"), "most": 30}
    own, more, other = (
        [p.text for p in Collection(run(f"phrases-{name}", taught_texts.PHRASES_STAGE, **where, **fields)).passages()]
        for name, fields in {
            "own": {}, "more": {"texts": str(tmp_path / "log.txt")}, "german": {"language": "german"},
        }.items()
    )  # fmt: skip
    openers = tuple(OPENERS["english"])
    questions = [text for text in own if text.lower().startswith(openers)]
    assert 20 < len(own) <= 31, "a text that is drawn twice counts once; one is generated"
    assert 10 <= len(questions) <= 20
    assert more[: len(own)] == own
    assert sorted(more[len(own) :]) == sorted(f"where to buy {topic}s" for topic in TOPICS)
    assert not any(text.endswith("?") for text in other), "only English has first words"


def test_texts_without_a_teacher_are_refused(tmp_path):
    (tmp_path / "a.txt").write_text("Barley grows in the north.\n")
    config = BuildConfig(sources=(str(tmp_path / "a.txt"),), texts=str(tmp_path / "a.txt"))
    with pytest.raises(RecipeError, match="texts are used only together with a teacher"):
        build(config, tmp_path / "out", print)


def test_a_file_without_texts_is_refused_before_the_work_begins(world, tmp_path):
    home, _ = world
    (tmp_path / "a.txt").write_text("Barley grows in the north.\n")
    (tmp_path / "log.txt").write_text("\n \n")
    config = BuildConfig(
        sources=(str(tmp_path / "a.txt"),), texts=str(tmp_path / "log.txt"), teacher=str(home / "master")
    )
    with pytest.raises(DataError, match="there are no texts in it"):
        build(config, tmp_path / "out", print)
    assert not (tmp_path / "out" / "work").exists()


def test_texts_that_are_drawn_do_not_depend_on_order_and_repetition():
    texts = [f"question {number}" for number in range(200)]
    drawn = taught_texts._drawn(texts, 20, 3)
    assert len(drawn) == 20
    assert taught_texts._drawn(texts[::-1] * 3, 20, 3) == drawn
    assert taught_texts._drawn(texts, 20, 4) != drawn
    assert set(taught_texts._drawn(texts[:5], 20, 3)) == set(texts[:5])


def test_passages_have_their_vectors_of_the_index_and_phrases_those_of_questions(world):
    home, _ = world
    lessons = [p.text for p in Collection(home / "lessons").passages()]
    ids, rows = zip(*Vectors.open(home / "lessons").chunks(100_000))
    rows = np.concatenate(rows)
    assert [id for part in ids for id in part] == [str(i) for i in range(len(lessons))]
    known, phrases = passages(), [p.text for p in Collection(home / "phrases").passages()]
    assert lessons == [*(f"{p.title} {p.text}" for p in known), *phrases]
    master = Embedder.load(home / "master")
    expected = np.concatenate([master.vectors(known, "passage"), master.vectors(phrases, "query")])
    np.testing.assert_allclose(rows, expected, atol=2e-3)  # stored in half precision
    assert not np.allclose(rows[len(known) :], master.vectors(phrases, "passage"), atol=2e-2)


def test_the_projection_is_the_least_squares_fit():
    random = np.random.default_rng(0)
    states = random.normal(size=(200, 6)).astype(np.float32)
    true = random.normal(size=(6, 4))
    targets = states @ true + 0.5
    lengths = np.linalg.norm(targets, axis=1, keepdims=True)
    fitted = taught_texts.projection(states, targets.astype(np.float32), ridge=0.0)
    expected = np.linalg.lstsq(np.c_[states, np.ones(200)], targets / lengths, rcond=None)[0]
    # Solved in double precision and stored in single.
    np.testing.assert_allclose(fitted.linear.weight.detach().numpy().T, expected[:-1], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(fitted.linear.bias.detach().numpy(), expected[-1], rtol=1e-4, atol=1e-6)


def test_a_student_starts_in_the_teachers_space_and_loads_elsewhere(world):
    from sentence_transformers import SentenceTransformer

    home, _ = world
    folder = home / "student" / "model"
    texts = [p.text for p in Collection(home / "lessons").passages()]
    ours = Encoder.load(folder)
    assert (ours.width, ours.prompts, ours.similarity) == (48, {}, "cosine")
    found = ours.encode_texts(texts)
    rows = np.concatenate([part for _, part in Vectors.open(home / "lessons").chunks(1000)])
    others = np.roll(rows, 1, axis=0)
    assert (found * rows).sum(axis=1).mean() > (found * others).sum(axis=1).mean()
    theirs = SentenceTransformer(str(folder), device="cpu").encode(texts[:3])
    np.testing.assert_allclose(found[:3], theirs, atol=1e-5)


def test_a_student_comes_nearer_to_its_teacher_and_lies_between_start_and_end(world):
    home, run = world
    traits = training.EncoderTraits.of(home / "start")
    recipe = taught_texts.teacher_recipe(
        home / "student" / "model",
        traits,
        home / "store",
        [home / "lessons"],
        [home / "vectors"],
        minutes=1.0,
    )
    loop = recipe.loop.model_copy(update={"steps": 30, "batch": 16})
    fast = recipe.model_copy(update={"loop": loop, "optim": AdamWConfig(lr=1e-3)})
    pipeline.run_stage(PRETRAIN, fast, home / "taught")
    texts = [p.text for p in Collection(home / "lessons").passages()]
    rows = np.concatenate([part for _, part in Vectors.open(home / "lessons").chunks(1000)])

    def nearness(folder):
        return float((Encoder.load(folder).encode_texts(texts) * rows).sum(axis=1).mean())

    start, end = home / "student" / "model", home / "taught" / "model"
    assert nearness(end) > nearness(start)
    run("between", training.MEAN, start=str(start), trained=str(end), share=0.25)
    parts = [dict(Encoder.load(f).named_parameters()) for f in (start, end, home / "between" / "model")]
    for name, value in parts[2].items():
        torch.testing.assert_close(value, 0.75 * parts[0][name] + 0.25 * parts[1][name], rtol=1e-5, atol=1e-6)


def test_two_encoders_have_the_same_candidates_whatever_their_pieces(world):
    home, run = world
    every = str(home / "collection")
    whole = run("whole", ENCODE, source=every, model=str(home / "start"))
    pieces = run(
        "pieces", ENCODE, source=every, model=str(home / "master"), long="max", max_length=24, overlap=0
    )
    assert len(Vectors.open(home / "pieces")) > 22 == len(Vectors.open(home / "whole"))
    found = {}
    for name, vectors in {"whole": whole, "pieces": pieces}.items():
        run(f"few-{name}", taught_texts.CANDIDATES, vectors=vectors, passages=22, most=11, seed=1)
        (found[name],) = Vectors.open(home / f"few-{name}").chunks(100)
    assert found["whole"][0] == found["pieces"][0]
    assert 3 < len(found["whole"][0]) < 19
    (ids, rows), (own, parts) = (next(Vectors.open(home / name).chunks(100)) for name in ("whole", "pieces"))
    for id, row in zip(*found["whole"]):
        np.testing.assert_allclose(row, rows[ids.index(id)], atol=2e-3)  # stored in half precision
    for id, row in zip(*found["pieces"]):
        mean = parts[[one.startswith(f"{id}#") for one in own]].mean(axis=0)
        np.testing.assert_allclose(row, mean / np.linalg.norm(mean), atol=2e-3)


@pytest.mark.parametrize(
    "stage", [taught_texts.LESSONS, taught_texts.CANDIDATES], ids=lambda stage: stage.name
)
def test_a_stage_that_was_interrupted_after_its_vectors_is_run_again(world, stage, monkeypatch):
    home, run = world
    fields = {
        "lessons": {
            "passages": str(home / "rest"), "phrases": str(home / "phrases"), "vectors": str(home / "vectors"),
            "phrase_vectors": str(home / "spoken"), "student": str(home / "start"),
        },
        "candidates": {"vectors": str(home / "vectors"), "passages": 22},
    }[stage.name]  # fmt: skip

    def interrupted(*rest):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("liebig.vectors.write_summary", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(f"again-{stage.name}", stage, **fields)
    run(f"again-{stage.name}", stage, **fields)
    assert len(Vectors.open(home / f"again-{stage.name}")) > 0


def test_a_teacher_that_is_the_encoder_to_be_trained_is_refused(world, tmp_path, monkeypatch):
    home, _ = world
    monkeypatch.chdir(home)
    config = BuildConfig(sources=(str(home),), model=str(home / "start"), teacher="start")
    with pytest.raises(RecipeError, match="the teacher is the encoder that is to learn from it"):
        build(config, tmp_path / "out", print)
    assert not (tmp_path / "out" / "work").exists()


def test_rankings_by_the_teacher_alone_weigh_less(world):
    home, _ = world
    traits, places = training.EncoderTraits.of(home / "start"), (home / "student" / "model", home / "store")
    alone, both = (
        taught_texts.teacher_recipe(
            places[0], traits, places[1], [home / "lessons"] * n, [home / "vectors"] * n, 1.0
        )
        for n in (1, 2)
    )
    assert [recipe.objective.ranking_weight for recipe in (alone, both)] == [1.0, 8.0]
    assert alone.source.teacher_weights == (1.0,)


def test_a_start_that_retrieves_takes_part_in_the_rankings_and_encodes_the_passages_once(world, tmp_path):
    home, _ = world
    lines = build_with_a_teacher(
        home,
        tmp_path,
        lambda decision: judging.BASELINE.as_deployed,
        is_fair=lambda dense, words: True,
    )
    folder = tmp_path / "retriever"
    work = folder / "work"
    assert not any("by the teacher alone" in line for line in lines)
    recipe = json.loads((work / "taught" / "manifest.json").read_text())["recipe"]
    assert [path.split("/")[-1] for path in recipe["source"]["vectors"]] == ["lessons", "lessons-start"]
    assert recipe["source"]["teacher_weights"] == [0.5, 0.5]
    assert [path.split("/")[-1] for path in recipe["objective"]["candidates"]] == [
        "candidates-teacher",
        "candidates-start",
    ]
    assert Encoder.load(work / "student-100" / "model").width == 48, "in the teacher's space"
    assert not (work / "vectors").exists(), "the index has the vectors that the candidates were taken from"
    index = json.loads((folder / "index-1" / "manifest.json").read_text())
    assert index["recipe"]["vectors"].endswith("vectors-start")
    queries, start = ["who keeps a violin at home"], Embedder.load(home / "start")
    scores = start.vectors(queries, "query") @ start.vectors(passages(), "passage").T
    (results,) = Retriever.from_folder(folder).search_many(queries, 3, "dense")
    np.testing.assert_allclose([r.score for r in results], np.sort(scores[0])[::-1][:3], atol=3e-3)
    write_source(tmp_path, [*TOPICS[:-1], "quince"])
    update(folder, [str(tmp_path / "source.jsonl")], lines.append)
    new = next(p for p in passages([*TOPICS[:-1], "quince"]) if p.id == "quince-1")
    score = float(start.vectors(["quince"], "query")[0] @ start.vectors([new], "passage")[0])
    hits = {r.id: r.score for r in Retriever.from_folder(folder).search("quince", 20, "dense")}
    assert hits["quince-1"] == pytest.approx(score, abs=3e-3)


@pytest.mark.parametrize(
    ("cuda", "texts", "lr", "batch"),
    [
        (False, 400_000, 2e-4, 64),
        (True, 100, 2e-4, 90),
        (True, 199_999, 2e-4, 512),
        (True, 200_000, 1e-3, 2048),
    ],
)
def test_many_texts_are_taught_in_large_batches_on_a_gpu(cuda, texts, lr, batch, monkeypatch, tmp_path):
    monkeypatch.setattr(taught_texts.TokenStore, "open", lambda path, hashes: range(texts))
    start, path = training.EncoderTraits("mean", 512, cuda), tmp_path
    recipe = taught_texts.teacher_recipe(path, start, path, [path], [path], minutes=3.0)
    assert recipe.optim.lr == lr
    assert (recipe.loop.batch, recipe.loop.steps) == (batch, 20 * texts // batch)


@pytest.fixture(scope="module")
def built(world, tmp_path_factory):
    """A retriever whose passages are encoded by the teacher and whose questions by the student, taught in few steps."""
    home, _ = world
    out = tmp_path_factory.mktemp("built")
    lines = build_with_a_teacher(home, out, asymmetric_if_asked)
    return home, out, lines


def build_with_a_teacher(home, out, choose, **checks):
    """Build a retriever with a teacher in few steps, and with a choice made beforehand; what is said."""
    write_source(out, TOPICS)
    config = BuildConfig(
        sources=(str(out / "source.jsonl"),),
        model=str(home / "start"),
        teacher=str(home / "master"),
        minutes=0.002,
    )
    lines = []
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"FEWEST": 2, **checks}.items():
            patch.setattr(check, name, value)
        patch.setattr(judging.Decision, "choice", property(choose))
        build(config, out / "retriever", lines.append)
    return lines


def asymmetric_if_asked(decision):
    """The check of the start, before training, asks nothing else."""
    encoder = (
        judging.ASYMMETRIC
        if judging.ASYMMETRIC in {one.encoder for one in decision.choices}
        else judging.START
    )
    return judging.SystemChoice(encoder).as_deployed


def write_source(folder, topics):
    rows = [{"_id": p.id, "title": p.title, "text": p.text} for p in passages(topics)]
    (folder / "source.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_a_build_shows_the_quality_and_speed_of_teacher_student_and_both(built):
    _, out, lines = built
    checks = json.loads((out / "retriever" / read(out / "retriever").checks / "checks.json").read_text())
    names = {row["name"] for row in checks["rows"]}
    for name in ("teacher", "student", "student, half way", "teacher's passages, student's questions"):
        assert {name, f"BM25 + {name}"} <= names
    assert all(row["per_second"] > 0 for row in checks["rows"])
    assert any("/s" in line for line in lines)
    assert any(line.startswith("The teacher is there to compare with") for line in lines)
    assert any(line.startswith("teaching: rankings by the teacher alone") for line in lines)


def models_of(folder):
    """Teacher and student of a retriever's folder, by hand."""
    description = read(folder)
    return Embedder.load(folder / description.model), Embedder.load(folder / description.query)


def test_passages_are_encoded_by_the_teacher_and_questions_by_the_student(built):
    _, out, _ = built
    retriever = Retriever.from_folder(out / "retriever")
    teacher, student = models_of(out / "retriever")
    questions, texts = ["who keeps a violin at home", "steam"], ["People have known pepper."]
    np.testing.assert_allclose(
        retriever.encode(questions, "query"), student.vectors(questions, "query"), atol=1e-6
    )
    np.testing.assert_allclose(
        retriever.encode(texts, "passage"), teacher.vectors(texts, "passage"), atol=1e-6
    )
    assert retriever.info()["query"] == "query-1"
    every = passages()
    scores = student.vectors(questions, "query") @ teacher.vectors(every, "passage").T
    for row, results in zip(scores, retriever.search_many(questions, 5, "dense")):
        # Stored in half precision: scores to a few thousandths, and as far as that the order.
        best = np.sort(row)[::-1][:5]
        np.testing.assert_allclose([r.score for r in results], best, atol=3e-3)
        by_id = {p.id: score for p, score in zip(every, row)}
        np.testing.assert_allclose([by_id[r.id] for r in results], best, atol=3e-3)


def test_an_explanation_has_the_score_of_the_two_models(built):
    _, out, _ = built
    retriever = Retriever.from_folder(out / "retriever")
    teacher, student = models_of(out / "retriever")
    passage = retriever.passage("violin-0")
    found = retriever.explain("violin school", "violin-0")
    begin, end, gain = found[3]
    less = Passage(passage.id, passage.text[:begin] + passage.text[end:], passage.title, "")
    query = student.vectors(["violin school"], "query")[0]
    expected = (teacher.vectors([passage], "passage") - teacher.vectors([less], "passage")) @ query
    assert gain == pytest.approx(float(expected[0]), abs=1e-5)


def test_a_server_embeds_each_role_by_its_model_and_loads_the_teacher_only_for_passages(built):
    _, out, _ = built
    teacher, student = models_of(out / "retriever")
    engine = ServingEngine(Retriever.from_folder(out / "retriever"), Limits())
    engine._load()
    assert engine.retriever.current._passage_encoder._embedder is None
    asked = [
        TextRequest("barley", "passage"),
        TextRequest("barley", "query"),
        TextRequest("steam", "passage"),
    ]
    found = np.stack([one.vector for one in engine._embed(asked)])
    expected = [teacher.vectors(["barley"], "passage"), student.vectors(["barley"], "query")]
    np.testing.assert_allclose(
        found, np.concatenate([*expected, teacher.vectors(["steam"], "passage")]), atol=1e-5
    )


def test_an_update_encodes_new_passages_with_the_teacher(built, tmp_path):
    _, out, _ = built
    folder = shutil.copytree(out / "retriever", tmp_path / "retriever")
    retriever = Retriever.from_folder(folder)
    retriever.search("barley", 1, "dense")
    write_source(tmp_path, [*TOPICS[:-1], "quince"])
    lines = []
    counts = update(folder, [str(tmp_path / "source.jsonl")], lines.append)
    assert (counts.passages, counts.gone) == (2, 2), "nothing else was cut anew"
    model = retriever.current.embedder
    assert retriever.reload()
    assert retriever.current.embedder is model, "the student that is loaded is used further"
    teacher, student = models_of(folder)
    new = next(p for p in passages([*TOPICS[:-1], "quince"]) if p.id == "quince-1")
    score = float(student.vectors(["quince"], "query")[0] @ teacher.vectors([new], "passage")[0])
    found = {r.id: r.score for r in retriever.search("quince", 20, "dense")}
    assert found["quince-1"] == pytest.approx(score, abs=3e-3)


def test_a_repeated_build_keeps_the_teachers_vectors(built):
    _, out, _ = built
    index, vectors = (json.loads(p.read_text()) for p in (
        out / "retriever" / "index-1" / "manifest.json",
        out / "retriever" / "work" / "vectors-teacher" / "manifest.json",
    ))  # fmt: skip
    assert index["inputs"]["vectors"]
    assert not (out / "retriever" / "work" / "vectors").exists(), (
        "the corpus was encoded once, by the teacher"
    )
    assert vectors["recipe"]["model"].endswith("master")


def test_a_teacher_is_shown_and_never_chosen():
    asked = [Question(f"q{i}", (f"p{i}",), "title") for i in range(100)]
    right = [[(f"p{i}", 1.0), ("other", 0.0)] for i in range(100)]
    wrong = [[("other", 1.0)] for _ in range(100)]
    hits = {"bm25": wrong, judging.START: wrong, judging.TEACHER: right}
    for display_only, encoder in (((), judging.TEACHER), ((judging.TEACHER,), judging.START)):
        judge = judging.SystemJudge(asked, dict(hits), frozenset(display_only))
        assert judging.decided([judge]).choice.encoder == encoder


@pytest.mark.parametrize("texts", [("house", "children", "north"), ("???", "!!!", "...")])
def test_documents_of_one_word_or_none_are_enough_to_build_and_too_few_to_teach(world, tmp_path, texts):
    home, _ = world
    (tmp_path / "source").mkdir()
    for number, text in enumerate(texts):
        (tmp_path / "source" / f"{number}.txt").write_text(text)
    lines = []
    config = BuildConfig(
        sources=(str(tmp_path / "source"),),
        model=str(home / "start"),
        teacher=str(home / "master"),
        minutes=1,
    )
    build(config, tmp_path / "out", lines.append)
    assert any(line.startswith("teaching: skipped, because") for line in lines)
    assert texts[1] in {hit.text for hit in Retriever.from_folder(tmp_path / "out").search(texts[1], 3)}


def test_a_teacher_without_time_is_refused(world, tmp_path):
    home, _ = world
    config = BuildConfig(sources=(str(home),), teacher=str(home / "master"), minutes=0)
    with pytest.raises(RecipeError, match="a teacher needs time"):
        build(config, tmp_path / "out", print)
