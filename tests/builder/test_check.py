"""The check of a build: which systems it compares, when it leaves the untrained hybrid, and what it predicts."""

import numpy as np
import pytest

from liebig.base.records import Passage
from liebig.base.statistics import prediction_powered
from liebig.builder import check, check_text, judge as judging
from liebig.builder.judge import BASELINE, SystemChoice, SystemJudge
from liebig.builder.questions import OWN, Question
from liebig.indexes.exact import ExactIndex
from liebig.vectors import Shard

KINDS = ("title", "sentence", "keywords", "claim")


def judge_of(shares, count=60, kinds=KINDS):
    """A judge whose systems have these shares of each kind of question right.

    A hybrid is given as "start+" or "trained+", at equal weights; nearer to one of its parts it is nearer to its share.
    """
    questions = [Question(f"{kind} {i}", (f"p{i}",), kind) for kind in kinds for i in range(count)]
    generator = np.random.default_rng(0)
    order = np.concatenate([generator.permutation(count) for _ in kinds])

    def values(share):
        return (order < share * count).astype(float)

    judge = SystemJudge(questions, {name: [[]] * len(questions) for name in shares if not name.endswith("+")})
    judge.speeds = dict.fromkeys(judge.hits, 1.0)
    for name in judge.encoders:
        judge._values[SystemChoice(name, "bm25")] = values(shares["bm25"])
        judge._values[SystemChoice(name, "dense")] = values(shares[name])
        for hybrid in hybrids(name):
            part = shares["bm25" if hybrid.weight > 0.5 else name]
            near = abs(hybrid.weight - 0.5) / 0.5
            judge._values[hybrid] = values((1 - near) * shares[f"{name}+"] + near * part)
    return judge


def hybrids(encoder):
    """All hybrids of an encoder that are compared, with sentences too."""
    return [
        SystemChoice(encoder, "hybrid", weight, norm, sentences)
        for (norm, sentences), weights in judging.HYBRIDS.items()
        for weight in weights
    ]


def with_sentences(judge, encoder, values):
    """Let an encoder's sentences take part; hybrids with them have these values."""
    judge.sentences[encoder] = []
    judge.speeds[f"{encoder} sentences"] = 1.0
    judge._values.update({hybrid: values for hybrid in hybrids(encoder) if hybrid.sentences})


@pytest.mark.parametrize(
    ("shares", "weights"),
    [
        ({"bm25": 0.7, "start": 0.1, "start+": 0.5}, (0.7, 1.0)),
        ({"bm25": 0.2, "start": 0.7, "start+": 0.5}, (0.0, 0.35)),
        ({"bm25": 0.45, "start": 0.4, "start+": 0.6}, (0.35, 0.65)),
    ],
)
def test_what_answers_better_weighs_more(shares, weights):
    judge = judge_of(shares)
    choice = judging.decided([judge]).choice
    weight = {"bm25": 1.0, "dense": 0.0}.get(choice.system, choice.weight)
    assert weights[0] <= weight <= weights[1]
    checks = check.judged([judge])
    assert SystemChoice(**checks["choice"]) == choice
    assert {row["name"] for row in checks["rows"]} >= {"BM25", BASELINE.name, checks["chosen"]}


def test_questions_made_from_the_documents_keep_training_only_for_a_large_gain():
    def encoder(gain):
        shares = {"bm25": 0.4, "start": 0.4, "start+": 0.5, "trained": 0.4 + gain, "trained+": 0.5 + gain}
        return check.judged([judge_of(shares)])

    little = encoder(0.02)
    assert little["choice"]["encoder"] == "start"
    assert little["why"][0].startswith("Training is not kept: expected ")
    assert encoder(0.3)["choice"]["encoder"] == "trained"
    assert encoder(-0.1)["choice"]["encoder"] == "start"


def test_a_users_questions_keep_training_for_a_smaller_gain():
    shares = {"bm25": 0.4, "start": 0.4, "start+": 0.5, "trained": 0.44, "trained+": 0.54}
    judge = judge_of(shares, count=1000, kinds=(OWN,))
    assert judging.decided([judge]).choice.encoder == "trained"


def test_every_kind_of_question_counts_the_same():
    questions = [Question(f"t{i}", ("p",), "title") for i in range(90)]
    questions += [Question(f"s{i}", ("p",), "sentence") for i in range(10)]
    judge = SystemJudge(questions)
    values = np.array([1.0] * 90 + [0.0] * 10)
    assert judge.mean(values) == 0.5
    interval = judge.interval(values)
    assert (interval.mean, interval.low, interval.high) == (0.5, 0.5, 0.5)
    assert judge.difference(values, np.zeros(100)).mean == 0.5


def test_a_kind_with_few_questions_is_left_out():
    many = [Question(f"t{i}", ("p",), "title") for i in range(check.FEWEST)]
    few = [Question(f"s{i}", ("p",), "sentence") for i in range(check.FEWEST - 1)]
    assert check.enough(many + few) == many


@pytest.mark.parametrize(
    ("answered", "left"), [(("title", "keywords"), ["title", "keywords"]), (("title",), ["title"]), ((), [])]
)
def test_a_kind_that_no_system_answers_is_left_out(answered, left, monkeypatch, tmp_path):
    class Finds:
        def search(self, queries, k):
            return [
                [(q.text.split()[-1] if q.text.split()[0] in answered else "other", 1.0)] for q in queries
            ]

    class Encoded:
        def system(self, path, model):
            return Finds()

    made = [Question(f"{kind} p{i}", (f"p{i}",), kind) for kind in ("title", "keywords") for i in range(20)]
    monkeypatch.setattr(check, "read_questions", lambda path: made)
    monkeypatch.setattr(check, "open_system", lambda path: Finds())
    config = check.CheckConfig.model_construct(questions=tmp_path, bm25=tmp_path, encoders={})
    judge = check._judge(config, Encoded(), tmp_path, tmp_path, {"start": tmp_path}, {})
    assert list(dict.fromkeys(question.kind for question in judge.questions)) == left


def test_few_questions_of_a_user_change_little_and_many_decide():
    def expected(count):
        judge = judge_of({"bm25": 0.2, "start": 0.8, "start+": 0.5}, count=count, kinds=(OWN,))
        decision = judging.decided([judge])
        return decision.belief.mean[decision.choices.index(SystemChoice(system="dense"))], decision

    (few, _), (many, decision) = expected(5), expected(2000)
    assert few < many == pytest.approx(0.3, abs=0.03)
    assert (decision.choice.system, decision.choice.weight) == ("hybrid", 0.1), (
        "vectors alone miss identifiers"
    )
    assert "meaning alone (vectors) would gain about " in check_text.headline(decision)
    assert check_text.headline(decision).endswith(" points and miss identifiers.")


def test_questions_of_a_user_are_asked_beside_those_made_from_the_documents():
    made = judge_of({"bm25": 0.7, "start": 0.1, "start+": 0.5})
    asked = judge_of({"bm25": 0.2, "start": 0.7, "start+": 0.5}, count=200, kinds=(OWN,))
    alone, both = (judging.decided(judges).belief for judges in ([made], [made, asked]))
    dense = judging.decided([made]).choices.index(SystemChoice(system="dense"))
    assert alone.mean[dense] < 0 < both.mean[dense]
    checks = check.judged([made, asked])
    assert checks["questions"] == {**dict.fromkeys(KINDS, 60), OWN: 200}
    assert list(checks["rows"][0]["kinds"]) == [OWN], "the table shows the user's own"


def test_with_another_encoder_the_prior_counts_for_less():
    judge = judge_of({"bm25": 0.5, "start": 0.4, "start+": 0.45}, count=15)
    bundled, other = (judging.decided([judge], bundled).belief for bundled in (True, False))
    assert np.all(np.diag(other.covariance)[1:] > np.diag(bundled.covariance)[1:])


def test_the_result_is_a_sentence_too_where_the_plain_hybrid_gives_words_too_little():
    judge = judge_of({"bm25": 0.9, "start": 0.1, "start+": 0.3})
    decision = judging.decided([judge], signs={"abroad": 1.0})
    assert (decision.choice.system, decision.choices.index(BASELINE) in decision.eligible) == ("bm25", False)
    assert check_text.headline(decision).startswith("Words alone (BM25) answer best here, with ")


def test_the_result_is_one_sentence():
    checks = check.judged([judge_of({"bm25": 0.4, "start": 0.4, "start+": 0.5})])
    assert checks["headline"].startswith("Words and meaning together answer best here, with ")
    assert " % probability (if not, that costs about " in checks["headline"]
    assert "words alone (BM25) would lose about " in checks["headline"]
    assert check_text.sentences(checks)[0] == checks["headline"]


def test_hits_become_values():
    questions = [Question("a", ("p1",), "title"), Question("b", ("p2",), "title")]
    judge = SystemJudge(
        questions, {"bm25": [[("p1", 2.0), ("p2", 1.0)], []], "start": [[("p2", 1.0)], [("p2", 1.0)]]}
    )
    assert judge.values(SystemChoice(system="bm25")).tolist() == [1.0, 0.0]
    assert judge.values(SystemChoice(system="dense")).tolist() == [0.0, 1.0]
    assert judge.values(BASELINE).tolist() == [1.0, 1.0]


def reranked(share):
    """A judge of 60 questions whose hybrid finds the passage fifth of six, and a reranker that puts some first."""
    questions = [Question(str(i), (f"p{i}",), "title") for i in range(60)]
    hits = [[(f"x{n}", 9.0 - n) for n in range(4)] + [(f"p{i}", 1.0), ("y", 0.0)] for i in range(60)]
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
    checks = check.judged([judge])
    assert checks["choice"]["system"] == system
    rows = {row["name"]: row for row in checks["rows"]}
    best = next(row for name, row in rows.items() if name.endswith("reranked"))
    assert best["value"] == pytest.approx(1.0 if share else rows["BM25"]["value"])
    assert 0 < best["per_second"] < rows[judging.BASELINE.name]["per_second"]
    told = "\n".join(check_text.sentences(checks))
    assert ("is kept but not used by default" in told) == (share == 0)
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
        ids = [f"p{i}" + "#0" * (path == "sentences") for i in range(4)]
        return ExactIndex("fp32", 4, [Shard.in_memory(ids, rows, "fp32")], abouts[path])

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
    judge.hits["bm25"] = [[], [], [], []]
    judge.ask("start", encoded.system("passages"))
    assert texts == {"a": every + timed}
    judge.ask_sentences("start", [encoded.sentences("sentences")])
    assert texts == {"a": every + timed}, "known from the passages"
    judge.ask("other", encoded.system("prompted"))
    judge.ask("asymmetric", encoded.system("passages", "b"))
    judge.ask("student", encoded.system("student"))
    assert texts == {"a": every + timed, "query: a": every + timed, "b": every + timed + timed}
    assert [hits[0][0] for hits in judge.hits["student"]] == ["p0", "p1", "p2", "p3"]
    assert judge.sentences["start"] == judge.hits["start"]


def test_sentences_are_used_where_they_help():
    judge = judge_of({"bm25": 0.3, "start": 0.3, "start+": 0.4})
    with_sentences(judge, "start", judge_of({"bm25": 0.3, "start": 0.3, "start+": 0.55})._values[BASELINE])
    checks = check.judged([judge])
    assert checks["choice"]["sentences"]
    assert "and its sentences" in checks["chosen"]
    chosen = next(row for row in checks["rows"] if row["name"] == checks["chosen"])
    assert chosen["per_second"] == pytest.approx(1 / 3)
    assert "Vectors of sentences are used: expected +" in checks["why"][0]
    harm = judge_of({"bm25": 0.3, "start": 0.3, "start+": 0.4})
    with_sentences(harm, "start", judge_of({"bm25": 0.3, "start": 0.3, "start+": 0.1})._values[BASELINE])
    assert not judging.decided([harm]).choice.sentences


def test_sentences_are_a_third_part_of_a_hybrid():
    questions = [Question("q", ("c",), "title")]
    judge = SystemJudge(questions, {"bm25": [[("a", 2.0), ("b", 1.0)]], "start": [[("b", 0.9), ("a", 0.8)]]})
    judge.sentences["start"] = [[("c", 0.9), ("a", 0.1)]]
    plain, three = (dict(judge.answers(SystemChoice(sentences=on))[0]) for on in (False, True))
    assert plain == {"a": 0.5, "b": 0.5}
    assert three == pytest.approx({"a": 0.5, "b": 0.5 * 0.75, "c": 0.5 * 0.25})


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


def test_a_models_questions_are_corrected_by_those_that_people_judged_too():
    questions = [Question(f"q{i}", ("p",), "model") for i in range(60)]
    questions += [Question(f"q{i}", ("p",), OWN) for i in range(12)]
    judge = SystemJudge(questions, {"start": [], "bm25": []})
    draw = np.random.default_rng(0)
    people = draw.random(60)
    values = np.concatenate([0.5 + people / 2, people[:12]])  # the model finds everything better
    known = prediction_powered(people[:12], values[:12], values[12:60])
    assert judge.interval(values) == known
    judge._values[BASELINE], judge._values[SystemChoice()] = np.zeros(72), np.zeros(72)
    judge._values[SystemChoice(system="bm25")] = values
    (seen,) = judge.evidence([SystemChoice(system="bm25")])
    assert seen.kind == OWN
    assert seen.mean[0] == pytest.approx(known.mean)


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        ({"title": 30}, "questions made from the documents"),
        ({"title": 30, OWN: 5}, "your questions"),
        ({"model": 40, OWN: 5}, "your questions, as people and a language model judged them"),
        ({"model": 40}, "your questions, which a language model judged and nobody else: it may be wrong"),
    ],
)
def test_the_check_says_who_judged(counts, said):
    assert check_text._asked(counts) == said
