"""The check of a build: which systems it compares, when it leaves the untrained hybrid, and what it predicts."""

from itertools import product

import numpy as np
import pytest

from liebig.base.records import Passage
from liebig.builder import check, judge as judging
from liebig.builder.judge import BASELINE, SystemChoice, SystemJudge
from liebig.builder.questions import OWN, Question
from liebig.indexes.exact import ExactIndex
from liebig.vectors import Shard

KINDS = ("title", "sentence", "keywords", "claim")


def judge_of(shares, count=60, kinds=KINDS, jitter=0):
    """A judge whose systems have these shares of each kind of question right, by system or by system and kind.

    A hybrid is given as "start+" or "trained+"; which questions are right depends on `jitter`.
    """
    questions = [Question(f"{kind} {i}", (f"p{i}",), kind) for kind in kinds for i in range(count)]
    generator = np.random.default_rng(jitter)
    order = np.concatenate([generator.permutation(count) for _ in kinds])
    values = {}
    for name, share in shares.items():
        limits = [
            (share[k] if isinstance(share, dict) else share) * count for k in kinds for _ in range(count)
        ]
        values[name] = (order < np.array(limits)).astype(float)
    judge = SystemJudge(questions, {name: [[]] * len(questions) for name in shares if not name.endswith("+")})
    judge.speeds = dict.fromkeys(judge.hits, 1.0)
    judge._values[SystemChoice(system="bm25")] = values["bm25"]
    for name in judge.encoders:
        judge._values[SystemChoice(name, "dense")] = values[name]
        judge._values[SystemChoice(name, "bm25")] = values["bm25"]
        for weight, norm in product(judging.WEIGHTS, ("minmax", "zscore", "spread")):
            judge._values[SystemChoice(name, "hybrid", weight, norm)] = values[f"{name}+"]
    return judge


@pytest.mark.parametrize(
    ("shares", "expected"),
    [
        # The trained hybrid is better beyond chance: it is kept.
        (
            {"bm25": 0.4, "start": 0.4, "start+": 0.5, "trained": 0.5, "trained+": 0.6},
            SystemChoice("trained"),
        ),
        # The trained encoder is better alone, its hybrid is not: nothing is kept.
        ({"bm25": 0.4, "start": 0.3, "start+": 0.5, "trained": 0.5, "trained+": 0.5}, BASELINE),
        # Training did harm.
        ({"bm25": 0.4, "start": 0.4, "start+": 0.5, "trained": 0.4, "trained+": 0.4}, BASELINE),
        # The encoder is useless: words alone.
        ({"bm25": 0.6, "start": 0.0, "start+": 0.4}, SystemChoice(system="bm25")),
        # Words are no use: vectors alone.
        ({"bm25": 0.0, "start": 0.6, "start+": 0.4}, SystemChoice(system="dense")),
        # Any number of encoders: the best hybrid of those that beat the untrained one.
        (
            {
                "bm25": 0.3,
                "start": 0.3,
                "start+": 0.4,
                "trained": 0.3,
                "trained+": 0.5,
                "teacher": 0.3,
                "teacher+": 0.6,
            },
            SystemChoice("teacher"),
        ),
    ],
)
def test_the_untrained_hybrid_is_left_only_for_what_is_better_beyond_chance(shares, expected):
    judge = judge_of(shares)
    expected = expected.as_deployed if expected.system == "hybrid" else expected
    assert judge.choose(judge.every) == expected
    assert check.judged(judge)["chosen"] == expected.name


def test_a_gain_within_chance_is_not_kept_and_that_is_said():
    judge = judge_of({"bm25": 0.4, "start": 0.4, "start+": 0.5, "trained": 0.5, "trained+": 0.5})
    values = judge._values[SystemChoice("trained")].copy()
    values[:2] = 1.0  # two questions of 240
    judge._values[SystemChoice("trained")] = values
    checks = check.judged(judge)
    assert checks["choice"]["encoder"] == "start"
    assert checks["why"][0].startswith("Training is not kept: BM25 + encoder after training has +0.0")
    assert "within chance. The untrained encoder is used." in check.sentences(checks)[-3]


def test_a_gain_on_one_kind_does_not_pay_for_a_loss_on_another():
    same = dict.fromkeys(KINDS, 0.5)
    judge = judge_of(
        {
            "bm25": 0.4,
            "start": 0.4,
            "start+": same,
            "trained": 0.4,
            "trained+": same | {"title": 1.0, "claim": 0.3},
        }
    )
    assert judge.difference(
        judge.values(SystemChoice("trained")), judge.values(BASELINE), judge.every
    ).significant
    checks = check.judged(judge)
    assert checks["choice"]["encoder"] == "start"
    assert "one kind of questions is answered worse beyond chance" in checks["why"][0]


def test_every_kind_of_question_counts_the_same():
    questions = [Question(f"t{i}", ("p",), "title") for i in range(90)]
    questions += [Question(f"s{i}", ("p",), "sentence") for i in range(10)]
    judge = SystemJudge(questions)
    values = np.array([1.0] * 90 + [0.0] * 10)
    assert judge.mean(values, judge.every) == 0.5
    interval = judge.interval(values, judge.every)
    assert (interval.mean, interval.low, interval.high) == (0.5, 0.5, 0.5)
    assert judge.difference(values, np.zeros(100), judge.every).mean == 0.5


def test_a_kind_with_few_questions_is_left_out():
    many = [Question(f"t{i}", ("p",), "title") for i in range(check.FEWEST)]
    few = [Question(f"s{i}", ("p",), "sentence") for i in range(check.FEWEST - 1)]
    assert check.enough(many + few) == many


def test_the_weight_is_tuned_only_where_the_questions_tell():
    judge = judge_of({"bm25": 0.3, "start": 0.3, "start+": 0.4})
    assert judge.choose(judge.every).weight == judging.PLAIN
    better = judge_of({"bm25": 0.3, "start": 0.3, "start+": 0.6})
    judge._values[SystemChoice(weight=0.2)] = better._values[BASELINE]
    assert judge.choose(judge.every).weight == judging.PLAIN, "questions made from words cannot weigh BM25"
    judge.real = True
    choice = judge.choose(judge.every)
    assert choice == SystemChoice(weight=0.2, norm="minmax")
    checks = check.judged(judge)
    assert checks["chosen"] == "BM25 + encoder before training, tuned"
    assert "BM25 has the weight 0.2" in checks["why"][-1]


def test_the_prediction_comes_from_questions_that_did_not_choose(monkeypatch):
    judge = judge_of({"bm25": 0.5, "start": 0.5, "start+": 0.5})
    chose = []

    def choose(numbers):
        chose.append(set(numbers.tolist()))
        name = f"fold {len(chose)}"
        judge._values[SystemChoice(name)] = np.where(np.isin(judge.every, numbers), 0.0, 1.0)
        return SystemChoice(name)

    monkeypatch.setattr(judge, "choose", choose)
    assert judge.predicted().tolist() == [1.0] * 240
    assert len(chose) == judging.FOLDS
    assert set.union(*chose) == set(range(240))


def test_hits_become_values():
    questions = [Question("a", ("p1",), "title"), Question("b", ("p2",), "title")]
    judge = SystemJudge(
        questions, {"bm25": [[("p1", 2.0), ("p2", 1.0)], []], "start": [[("p2", 1.0)], [("p2", 1.0)]]}
    )
    assert judge.values(SystemChoice(system="bm25")).tolist() == [1.0, 0.0]
    assert judge.values(SystemChoice(system="dense")).tolist() == [0.0, 1.0]
    assert judge.values(BASELINE).tolist() == [1.0, 1.0]


def reranked(share):
    """A judge of 60 questions whose hybrid finds the passage last of five, and a reranker that puts some first."""
    questions = [Question(str(i), (f"p{i}",), "title") for i in range(60)]
    hits = [[(f"x{n}", 9.0 - n) for n in range(4)] + [(f"p{i}", 1.0)] for i in range(60)]
    judge = SystemJudge(questions, {"bm25": hits, "start": hits}, speeds={"bm25": 100.0, "start": 50.0})

    def score(pairs):
        knows = [int(query.text) < 60 * share for query, _ in pairs]
        return [
            np.array(
                [float(p.id == f"p{query.text}") * ok - n / 100 for n, p in enumerate(passages)], np.float32
            )
            for ok, (query, passages) in zip(knows, pairs)
        ]

    judge.rerank_with(judging.Reranking(score, lambda id: Passage(id, ""), 50))
    return judge


@pytest.mark.parametrize(("share", "system"), [(1.0, "reranked"), (0.0, "hybrid")])
def test_a_reranker_is_chosen_where_it_helps(share, system):
    judge = reranked(share)
    checks = check.judged(judge)
    assert checks["choice"]["system"] == system
    rows = {row["name"]: row for row in checks["rows"]}
    best = rows["BM25 + encoder before training, reranked"]
    assert best["value"] == pytest.approx(1.0 if share else rows["BM25"]["value"])
    assert 0 < best["per_second"] < rows[judging.BASELINE.name]["per_second"]
    told = "\n".join(check.sentences(checks))
    assert ("--system reranked uses it" in told) == (share == 0)
    assert told.count(" ms") == len(rows)


def test_indexes_of_one_model_encode_a_question_once_and_timing_encodes_it_again(monkeypatch):
    rows = np.eye(4, dtype=np.float32)
    abouts = {
        "passages": {"model": "a"},
        "sentences": {"model": "a"},
        "prompted": {"model": "a", "query_prompt": "query: "},
        "student": {"model": "b"},
    }
    texts: dict[str, list[str]] = {}

    def opened(path):
        index = ExactIndex("fp32", 4, [Shard.in_memory(["p0", "p1", "p2", "p3"], rows, "fp32")], abouts[path])
        return index

    class Encoder:
        def __init__(self, index, model):
            self.key = f"{index.about.get('query_prompt', '')}{model or index.model}"

        def __call__(self, queries):
            texts.setdefault(self.key, []).extend(query.text for query in queries)
            return rows[[int(query.text) for query in queries]]

    monkeypatch.setattr(check, "open_index", opened)
    monkeypatch.setattr(check, "QueryEncoder", Encoder)
    judge = SystemJudge([Question(str(i), (f"p{i}",), "title") for i in range(4)])
    encoded = check.EncodedOnce()
    every, timed = ["0", "1", "2", "3"], ["0", "1", "2", "3"]
    judge.ask("start", encoded.system("passages"))
    assert texts == {"a": every + timed}
    judge.ask_sentences("start", encoded.system("sentences", name="sentences"))
    assert texts == {"a": every + timed}, "known from the passages"
    judge.ask("other", encoded.system("prompted"))
    judge.ask("asymmetric", encoded.system("passages", "b"))
    judge.ask("student", encoded.system("student"))
    assert texts == {"a": every + timed, "query: a": every + timed, "b": every + timed + timed}
    assert [hits[0][0] for hits in judge.hits["student"]] == ["p0", "p1", "p2", "p3"]
    assert judge.sentences["start"] == judge.hits["start"]


def test_sentences_are_compared_at_the_same_weight_of_bm25_and_used_with_less_of_it():
    judge = judge_of({"bm25": 0.3, "start": 0.3, "start+": 0.4, "more": 0.3, "more+": 0.6})
    better = judge._values.pop(SystemChoice("more"))
    judge.hits.pop("more")
    judge.sentences["start"] = []
    judge.speeds["start sentences"] = 1.0
    judge._values[SystemChoice(sentences=True)] = better
    judge._values[SystemChoice(sentences=True).as_deployed] = better
    choice = judge.choose(judge.every)
    assert choice == SystemChoice(weight=judging.BESIDE_SENTENCES, norm="spread", sentences=True)
    checks = check.judged(judge)
    assert checks["chosen"] == "BM25 + encoder before training and its sentences"
    assert checks["rows"][-1]["per_second"] == pytest.approx(1 / 3)
    assert "Vectors of sentences are used" in checks["why"][0]


def test_sentences_are_a_third_part_of_a_hybrid():
    questions = [Question("q", ("c",), "title")]
    judge = SystemJudge(questions, {"bm25": [[("a", 2.0), ("b", 1.0)]], "start": [[("b", 0.9), ("a", 0.8)]]})
    judge.sentences["start"] = [[("c", 0.9), ("a", 0.1)]]
    plain, three = (dict(judge.answers(SystemChoice(sentences=on))[0]) for on in (False, True))
    assert plain == {"a": 0.5, "b": 0.5}
    assert three == pytest.approx({"a": 0.5, "b": 0.5 * 0.75, "c": 0.5 * 0.25})


def test_what_gained_elsewhere_is_taken_where_it_does_no_harm():
    def judge(sentences, trusted=("start", "trained"), **more):
        made = judge_of({"bm25": 0.4, "start": 0.4, "start+": 0.5, "trained": 0.4, "trained+": 0.5, **more})
        values = judge_of({"bm25": 0.4, "start": 0.4, "start+": sentences})._values[BASELINE]
        made.accept_unless_harmful = trusted
        for name in ("start", "trained"):
            made.sentences[name] = []
            made.speeds[f"{name} sentences"] = 1.0
            for weight, norm in product(
                (judging.BESIDE_SENTENCES, *judging.WEIGHTS), ("minmax", "zscore", "spread")
            ):
                made._values[SystemChoice(name, "hybrid", weight, norm, sentences=True)] = values
        return made

    same = judge(0.5)
    assert same.choose(same.every) == SystemChoice("trained", sentences=True).as_deployed
    checks = check.judged(same)
    assert "it gained on people's questions about other corpora, and does no harm here" in checks["why"][0]
    assert "they helped with people's questions about other corpora and do no harm here" in checks["why"][1]
    untrained = judge(0.5, trusted=("start",))
    assert untrained.choose(untrained.every) == SystemChoice(sentences=True).as_deployed
    by_sentences = judge(0.6, trusted=("start",))
    reason = "the trained one beats the untrained hybrid too, but by its sentences, not by training"
    assert by_sentences.choose(by_sentences.every) == SystemChoice(sentences=True).as_deployed, reason
    better = judge(0.5, trusted=("start",), **{"trained+": 0.6})
    assert better.choose(better.every) == SystemChoice("trained").as_deployed
    little_worse, little_better = (
        {**dict.fromkeys(KINDS, a), "title": b} for a, b in ((0.5, 0.47), (0.51, 0.53))
    )
    underrated = judge(little_worse, trusted=("start",), **{"trained+": little_better})
    trained, trusted = (underrated.values(c) for c in (SystemChoice("trained"), SystemChoice(sentences=True)))
    assert underrated.better(trained, trusted, underrated.every)
    reason = "it beats what these questions underrate, and not the untrained hybrid"
    assert underrated.choose(underrated.every) == SystemChoice(sentences=True).as_deployed, reason
    words = judge(little_worse, trusted=("start",), bm25=little_better)
    assert words.better(
        words.values(SystemChoice(system="bm25")), words.values(SystemChoice(sentences=True)), words.every
    )
    reason = "sentences are worse than BM25 beyond chance, the untrained hybrid is not"
    assert words.choose(words.every) == BASELINE.as_deployed, reason
    nobody = judge(0.5, trusted=())
    assert nobody.choose(nobody.every) == BASELINE.as_deployed
    harm = judge(0.4)
    assert harm.choose(harm.every) == BASELINE.as_deployed
    one_kind = judge(dict.fromkeys(KINDS, 0.5) | {"title": 0.6, "claim": 0.4})
    assert one_kind.choose(one_kind.every) == SystemChoice("trained", sentences=True).as_deployed, (
        "all of them count"
    )


@pytest.mark.parametrize("sentences", [True, False])
def test_an_encoder_trained_on_a_users_questions_is_trusted_unless_it_does_harm(sentences):
    def judge(own):
        made = judge_of({"bm25": 0.3, "start": 0.3, "start+": 0.5, OWN: 0.3, f"{OWN}+": own})
        made.real, made.accept_unless_harmful = True, ("start", OWN)
        for name in ("start", OWN) if sentences else ():
            made.sentences[name] = []
            made.speeds[f"{name} sentences"] = 1.0
            for weight, norm in product(
                (judging.BESIDE_SENTENCES, *judging.WEIGHTS), ("minmax", "zscore", "spread")
            ):
                value = made._values[SystemChoice(name)]
                made._values[SystemChoice(name, "hybrid", weight, norm, sentences=True)] = value
        return made

    same = judge(0.49)
    assert same.choose(same.every) == SystemChoice(OWN, sentences=sentences).as_deployed, "within chance"
    assert same.decision(SystemChoice(OWN, sentences=sentences).as_deployed)[1]
    assert "does no harm here" in check.judged(same)["why"][0]
    harm = judge(0.3)
    assert harm.choose(harm.every) == SystemChoice(sentences=sentences).as_deployed


@pytest.mark.parametrize("kind", ["title", OWN])
def test_the_check_has_the_unit_of_scores_that_the_folder_would_have_on_its_pool(kind):
    lists = [[("a", 1.0), *((str(rank), 1 - gap) for rank in range(9))] for gap in (0.1, 0.2, 0.6)]
    judge = SystemJudge([Question("q", ("a",), kind) for _ in lists], {"start": lists})
    assert judge.spread("start") == judging.unit_of(judge.questions, lists)


def test_wins_and_losses_are_against_the_untrained_hybrid():
    judge = judge_of({"bm25": 0.2, "start": 0.4, "start+": 0.5, "trained": 0.5, "trained+": 0.6})
    trained = check.cases(judge, SystemChoice("trained"), lambda id: Passage(id, "a text"))
    assert trained["names"][1] == "the untrained hybrid"
    assert (trained["better"], trained["worse"]) == (24, 0)  # a tenth of 240 questions
    untrained = check.cases(judge, BASELINE, lambda id: Passage(id, "a text"))
    assert untrained["names"][1] == "BM25"
    assert untrained["better"] == 72
