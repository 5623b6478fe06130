"""The rule by which a build chooses what it serves: the system with the highest expected gain for people's questions.

What is to be known is the true gain g of every candidate over the plain hybrid, on questions that people ask. Measured
are differences on questions made from the corpus, a few kinds of them, and perhaps on some of people's own. All are
normal, so that everything is closed-form algebra on vectors with one entry per candidate (hierarchical shrinkage):

    g        ~ N(m + x B, T)          what candidates gained on other corpora, by signs x of a corpus (`signs.py`)
    y        = g + u,  u ~ N(0, U)    what questions made from a corpus say: they misjudge all candidates together,
    y_k      = y + b_k + e_k          each kind k with its bias b_k and its own error e_k ~ N(0, v_k^2 R),
    d_k      = y_k + sampling error   and each is a mean over so many questions
    d_people = g + sampling error     questions of people have no bias: the same rule, with a far higher validity

The kinds are averaged with weights 1 / (v_k^2 + sampling variance); conditioning g on that mean and on people's
questions gives its posterior. The candidate with the highest posterior mean is served. Neither tests nor thresholds
decide: few questions have a large sampling error, and the prior counts for more. Another encoder (trained, taught) and
a reranker change a candidate's gain by a difference with a prior and a validity of its own.

One thing is not left to measurements: in a language that the bundled encoder was not made for, words have the say
(`least_weight`). Its vectors find little there, and two languages are too few to learn by how much from.

The constants are in `decide.json`; `experiments/check/fit.py` writes them from measurements on corpora with people's
questions. What the rule cannot see: corpora unlike all of those, and encoders unlike the bundled one.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from typing import Any

import numpy as np
from numpy.typing import NDArray

from liebig.builder.questions import MODEL, OWN

Values = NDArray[np.float64]
USUAL = 10  # questions that the usual scatter counts as much as
FARTHEST = 2.5  # deviations of a sign
SOME_ABROAD, ALL_ABROAD = (
    0.06,
    0.8,
)  # share of passages in other languages than the encoder's: a part, and all
USUAL_CHANGE = 0.15  # standard deviation of a change's gain from question to question
DOUBT = 2.0  # how much wider priors are with another encoder than the bundled one
FEWEST_TWINS = 10  # questions judged by people and a model from which the model can be corrected
MODEL_SPREAD = (
    0.02  # how far a model's judgement misjudges candidates; assumed, nothing was measured with one
)


@dataclass(frozen=True)
class Evidence:
    """Candidates' differences to the plain hybrid on questions of one kind: their mean, and their covariance from
    question to question."""

    kind: str
    questions: int
    mean: Values
    scatter: Values

    @classmethod
    def of(cls, kind: str, differences: Values) -> Evidence:
        """From a row per question and a column per candidate."""
        centred = differences - differences.mean(0)
        return cls(
            kind, len(differences), differences.mean(0), centred.T @ centred / max(1, len(differences) - 1)
        )

    def error(self, usual: Values) -> Values:
        """The covariance of the mean; where there are few questions, their scatter is mostly the usual one."""
        known = self.questions - 1
        return (known * self.scatter + USUAL * usual) / (known + USUAL) / self.questions


def corrected(people: Values, same: Values, others: Values) -> Evidence:
    """What people say of all questions, of which they judged some (`people`; a model: `same`) and a model the `others`.

    The mean that `prediction_powered` in `base/statistics.py` has, for all candidates at once.
    """
    n, count = len(people), len(others)
    share = 0.0
    if count > 1:
        both = float(((people - people.mean(0)) * (same - same.mean(0))).sum()) / (n - 1)
        every = np.concatenate([same, others])
        alone = float(every.var(0, ddof=1).sum())
        share = min(1.0, max(0.0, both / max((1 + n / count) * alone, 1e-12)))
    seen = Evidence.of(OWN, people - share * same)
    if not share:
        return seen
    model = Evidence.of(MODEL, others)
    scatter = seen.scatter + share**2 * n / count * model.scatter
    return Evidence(OWN, n, seen.mean + share * model.mean, scatter)


@dataclass(frozen=True)
class SignEffect:
    """How gains go with a sign of a corpus: its mean and deviation over corpora, and the gain for each deviation."""

    mean: float
    deviation: float
    gain: Values

    def at(self, value: float) -> Values:
        """What a corpus with this value gains more; of one far from all others no more than at FARTHEST."""
        return self.gain * np.clip((value - self.mean) / self.deviation, -FARTHEST, FARTHEST)


@dataclass(frozen=True)
class KindValidity:
    """How questions of one kind misjudge candidates: by how much too high, and how far this varies."""

    bias: Values
    spread: float


@dataclass(frozen=True)
class ChangeValidity:
    """What a change of a system (encoder, reranker) gained elsewhere, and how made-up questions misjudge it."""

    mean: float
    spread: float
    bias: float
    error: float


@dataclass(frozen=True)
class Constants:
    """What was measured on other corpora; see the module's formulas."""

    names: tuple[str, ...]
    mean: Values  # m
    prior: Values  # T
    misjudged: Values  # U
    shape: Values  # R
    scatter: Values  # the usual one, from question to question
    signs: Mapping[str, SignEffect]  # B
    kinds: Mapping[str, KindValidity]
    changes: Mapping[str, ChangeValidity]

    def only(self, names: Sequence[str]) -> Constants:
        """Those of some candidates."""
        at = [self.names.index(name) for name in names]
        square = np.ix_(at, at)
        return replace(
            self,
            names=tuple(names),
            mean=self.mean[at],
            prior=self.prior[square],
            misjudged=self.misjudged[square],
            shape=self.shape[square],
            scatter=self.scatter[square],
            signs={name: replace(one, gain=one.gain[at]) for name, one in self.signs.items()},
            kinds={kind: replace(one, bias=one.bias[at]) for kind, one in self.kinds.items()},
        )

    @property
    def doubted(self) -> Constants:
        """With an encoder that nothing was measured with: gains vary more, and no change is taken on trust."""
        changes = {name: replace(one, mean=min(0.0, one.mean)) for name, one in self.changes.items()}
        return replace(self, prior=DOUBT**2 * self.prior, changes=changes)


@cache
def constants() -> Constants:
    """Those of `decide.json`."""
    tree = json.loads(resources.files("liebig.builder").joinpath("decide.json").read_text(encoding="utf-8"))
    return read_constants(tree)


def read_constants(tree: Mapping[str, Any]) -> Constants:
    """Constants from what `decide.json` has."""
    arrays = {name: np.array(tree[name]) for name in ("mean", "prior", "misjudged", "shape", "scatter")}
    signs = {
        name: SignEffect(one["mean"], one["deviation"], np.array(one["gain"]))
        for name, one in tree["signs"].items()
    }
    kinds = {name: KindValidity(np.array(one["bias"]), one["spread"]) for name, one in tree["kinds"].items()}
    changes = {name: ChangeValidity(**one) for name, one in tree["changes"].items()}
    return Constants(tuple(tree["names"]), signs=signs, kinds=kinds, changes=changes, **arrays)


def least_weight(abroad: float) -> float:
    """The least weight of BM25 in a hybrid, by the share of passages in languages that the encoder was not made for.

    Where all are, BM25 alone beats the plain hybrid in French and German; with .75 the hybrids beat both. Where a part
    is, weights about a half are best for both languages together.
    """
    return 0.75 if abroad > ALL_ABROAD else 0.45 if abroad > SOME_ABROAD else 0.0


@dataclass(frozen=True)
class Belief:
    """The true gains of candidates over the plain hybrid, as far as they are known: a normal distribution."""

    mean: Values
    covariance: Values

    def updated(self, measured: Values, error: Values) -> Belief:
        """After a measurement of all gains with a normal error."""
        gain = np.linalg.solve(self.covariance + error, self.covariance).T
        covariance = self.covariance - gain @ self.covariance
        return Belief(self.mean + gain @ (measured - self.mean), (covariance + covariance.T) / 2)

    def with_baseline(self) -> Belief:
        """With the plain hybrid as the first candidate, whose gain is 0."""
        return Belief(np.append(0.0, self.mean), np.pad(self.covariance, ((1, 0), (1, 0))))

    def extended(self, parent: int, mean: float, variance: float) -> Belief:
        """With one candidate more, whose gain is that of `parent` and a difference of its own."""
        row = self.covariance[parent]
        covariance = np.block([[self.covariance, row[:, None]], [row[None], row[[parent]][None] + variance]])
        return Belief(np.append(self.mean, self.mean[parent] + mean), covariance)

    def difference(self, a: int, b: int) -> tuple[float, float]:
        """Mean and standard deviation of the gain of a over b."""
        variance = self.covariance[a, a] + self.covariance[b, b] - 2 * self.covariance[a, b]
        return float(self.mean[a] - self.mean[b]), math.sqrt(max(float(variance), 1e-12))

    def probability(self, a: int, b: int) -> float:
        mean, deviation = self.difference(a, b)
        return 0.5 * math.erfc(-mean / deviation / math.sqrt(2))

    def loss(self, a: int, b: int) -> float:
        """What serving a instead of b costs on average, counting the cases where b is better."""
        mean, deviation = self.difference(a, b)
        z = mean / deviation
        density = math.exp(-z * z / 2) / math.sqrt(2 * math.pi)
        return deviation * density - mean * (1 - self.probability(a, b))


def believe(
    evidence: Sequence[Evidence], known: Constants, signs: Mapping[str, float] | None = None
) -> Belief:
    """What is known of the gains of `known.names` after all evidence, each with a column for every name."""
    seen = [known.signs[name].at(value) for name, value in (signs or {}).items() if name in known.signs]
    belief = Belief(known.mean + sum(seen, np.zeros(len(known.names))), known.prior)
    made = [(one, known.kinds[one.kind]) for one in evidence if one.kind in known.kinds]
    if made:
        errors = [one.error(known.scatter) for one, _ in made]
        weights = np.array(
            [1 / (kind.spread**2 + np.diag(error).mean()) for (_, kind), error in zip(made, errors)]
        )
        weights /= weights.sum()
        y = sum(w * (one.mean - kind.bias) for w, (one, kind) in zip(weights, made))
        own = sum(
            w**2 * (error + kind.spread**2 * known.shape)
            for w, (_, kind), error in zip(weights, made, errors)
        )
        belief = belief.updated(y, known.misjudged + own)  # type: ignore[arg-type, operator]
    for one in evidence:
        if one.kind in (OWN, MODEL):
            validity = 0.0 if one.kind == OWN else MODEL_SPREAD**2 * known.shape
            belief = belief.updated(one.mean, one.error(known.scatter) + validity)
    return belief


def change(evidence: Sequence[Evidence], validity: ChangeValidity) -> tuple[float, float]:
    """Mean and variance of what a change gains, by differences between the changed system and the one before."""
    belief = Belief(np.array([validity.mean]), np.array([[validity.spread**2]]))
    usual = np.array([[USUAL_CHANGE**2]])
    made = [one for one in evidence if one.kind not in (OWN, MODEL)]
    if made:
        errors = np.array([one.error(usual)[0, 0] for one in made])
        weights = 1 / errors / (1 / errors).sum()
        y = weights @ np.array([one.mean[0] for one in made]) - validity.bias
        belief = belief.updated(np.array([y]), np.array([[weights**2 @ errors + validity.error**2]]))
    for one in evidence:
        if one.kind in (OWN, MODEL):
            belief = belief.updated(one.mean, one.error(usual) + (one.kind == MODEL) * validity.error**2)
    return float(belief.mean[0]), float(belief.covariance[0, 0])
