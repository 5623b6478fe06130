"""The rule of the check: a posterior of every candidate's gain, in closed form."""

import numpy as np
import pytest

from liebig.base.statistics import prediction_powered
from liebig.builder import decide
from liebig.builder.decide import Belief, Evidence, believe, change, constants
from liebig.builder.judge import BASELINE, START, Decision, SystemChoice, SystemJudge
from liebig.builder.questions import MODEL, OWN

KNOWN = constants()
SIZE = len(KNOWN.names)


def evidence(kind, count, mean, seed=0):
    """Differences with the usual scatter whose mean is exact."""
    rows = np.random.default_rng(seed).multivariate_normal(np.zeros(SIZE), KNOWN.scatter, count)
    return Evidence.of(kind, rows - rows.mean(0) + mean)


def test_the_constants_are_those_of_the_candidates():
    judge = SystemJudge([], {START: [], "bm25": []}, sentences={START: []})
    assert {choice.key for choice in judge.candidates(START)} == set(KNOWN.names)
    assert BASELINE.key not in KNOWN.names, "all gains are over it"
    for matrix in (KNOWN.prior, KNOWN.misjudged, KNOWN.shape, KNOWN.scatter):
        assert matrix.shape == (SIZE, SIZE)
        assert np.linalg.eigvalsh(matrix).min() > -1e-6, "covariances"


def test_without_questions_the_prior_is_what_is_known():
    belief = believe([], KNOWN)
    assert belief.mean.tolist() == KNOWN.mean.tolist()


def test_many_questions_of_people_are_believed_and_few_are_not():
    gains = KNOWN.mean + 0.1 * np.sin(np.arange(SIZE))
    few, many = (believe([evidence(OWN, count, gains)], KNOWN).mean for count in (3, 100_000))
    assert many == pytest.approx(gains, abs=0.01)
    assert np.abs(few - KNOWN.mean).sum() < 0.5 * np.abs(many - KNOWN.mean).sum()


def test_questions_made_from_a_corpus_are_never_quite_believed():
    gains = KNOWN.mean + np.sqrt(np.diag(KNOWN.prior))
    kinds = [kind for kind in ("sentence", "keywords") if kind in KNOWN.kinds]
    made = [evidence(kind, 100_000, gains + KNOWN.kinds[kind].bias) for kind in kinds]
    belief = believe(made, KNOWN)
    people = believe([evidence(OWN, 100_000, gains)], KNOWN)
    assert np.trace(belief.covariance) > 10 * np.trace(people.covariance)
    closer = np.abs(belief.mean - gains).sum() < np.abs(KNOWN.mean - gains).sum()
    assert closer, "they tell something"


def test_what_a_model_judges_is_corrected_by_people():
    draw = np.random.default_rng(0)
    people = draw.normal(0.0, 0.2, (400, 1))
    model = people + draw.normal(0.1, 0.05, (400, 1))  # a model that is generous to the candidate
    both = decide.corrected(people[:50], model[:50], model[50:])
    known = prediction_powered(people[:50, 0], model[:50, 0], model[50:, 0])
    assert both.kind == OWN
    assert both.mean[0] == pytest.approx(known.mean)
    alone = Evidence.of(OWN, people[:50])
    assert both.scatter[0, 0] / both.questions < 0.5 * alone.scatter[0, 0] / alone.questions
    useless = draw.normal(0, 1, (400, 1))
    assert decide.corrected(people[:50], useless[:50], useless[50:]).mean == pytest.approx(
        alone.mean, abs=0.02
    )


def test_what_a_model_alone_judges_is_believed_less_than_what_people_judge():
    gains = KNOWN.mean + 0.1 * np.sin(np.arange(SIZE))
    model, people = (believe([evidence(kind, 2_000, gains)], KNOWN) for kind in (MODEL, OWN))
    assert np.abs(model.mean - gains).sum() > 2 * np.abs(people.mean - gains).sum()
    assert np.trace(model.covariance) > 2 * np.trace(people.covariance)


def test_the_order_of_evidence_does_not_matter():
    some = [
        evidence("sentence", 50, KNOWN.mean + 0.01),
        evidence("keywords", 80, KNOWN.mean),
        evidence(OWN, 20, KNOWN.mean),
    ]
    one, other = believe(some, KNOWN), believe(some[::-1], KNOWN)
    assert one.mean == pytest.approx(other.mean)
    assert one.covariance == pytest.approx(other.covariance)


def test_a_gain_of_training_on_questions_made_from_the_documents_is_not_trusted():
    # The demo's check measured +.028 for a training that people's questions put at -.005.
    measured = Evidence("title", 100, np.array([0.028]), np.array([[0.02]]))
    assert change([measured], KNOWN.changes["trained"])[0] < 0.005
    people = Evidence(OWN, 2000, np.array([0.028]), np.array([[0.02]]))
    assert change([people], KNOWN.changes["trained"])[0] == pytest.approx(0.028, abs=0.01)


def test_probabilities_and_losses_agree_with_the_normal_distribution():
    belief = Belief(np.array([0.0, 0.02]), np.array([[0.0, 0.0], [0.0, 1e-4]]))
    draws = np.random.default_rng(0).normal(0.02, 0.01, 400_000)
    assert belief.probability(1, 0) == pytest.approx((draws > 0).mean(), abs=0.002)
    assert belief.probability(0, 1) == pytest.approx(1 - belief.probability(1, 0))
    assert belief.loss(1, 0) == pytest.approx(np.maximum(-draws, 0).mean(), abs=2e-5)


def test_a_candidate_with_a_difference_of_its_own_keeps_what_is_known_of_its_parent():
    belief = Belief(np.array([0.0, 0.02]), np.diag([0.0, 4e-4])).extended(1, 0.01, 1e-4)
    assert belief.mean[2] == pytest.approx(0.03)
    assert belief.difference(2, 1) == (pytest.approx(0.01), pytest.approx(0.01))
    assert belief.difference(2, 0)[1] == pytest.approx(np.sqrt(5e-4))


def test_constants_survive_being_written():
    assert decide.read_constants(
        {
            "names": KNOWN.names, "kinds": {}, "changes": {}, "signs": {},
            **{name: getattr(KNOWN, name).tolist() for name in ("mean", "prior", "misjudged", "shape", "scatter")},
        }
    ).names == KNOWN.names  # fmt: skip


def test_in_languages_that_the_encoder_was_not_made_for_words_have_the_say():
    choices = (
        BASELINE,
        SystemChoice(system="bm25"),
        SystemChoice(system="dense"),
        SystemChoice(weight=0.45, norm="spread", sentences=True),
        SystemChoice(weight=0.75, norm="spread"),
        SystemChoice("trained", "dense"),
    )
    belief = Belief(np.array([0.0, -0.1, 0.3, 0.2, 0.1, -0.2]), np.eye(6))
    for abroad, eligible, chosen in (
        (0.04, [0, 1, 3, 4], 3),
        (0.3, [0, 1, 3, 4], 3),
        (1.0, [1, 4], 4),
    ):
        decision = Decision(choices, belief, decide.least_weight(abroad))
        assert decision.eligible == eligible
        assert decision.choice == choices[chosen]
