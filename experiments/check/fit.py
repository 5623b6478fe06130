"""Fit the constants of the check's rule, and judge the rule on sources that it was not fitted on.

    python experiments/check/fit.py                      # the tables: each source decided by what others measured
    python experiments/check/fit.py --write              # and the constants, from all sources, to builder/decide.json
    python experiments/check/fit.py --join OUT           # first put what measure.py wrote to OUT into measured.csv.xz

Reads `measured.csv.xz` and, for trained and taught encoders, the builds of `experiments/adaptation`.

`measured.csv.xz` has a line per corpus and kind of question: their number, the value of the plain hybrid, then of
every other candidate the mean difference to it and its standard error, all in hundred-thousandths. People's questions
have the kind `people`; `some-0` and `rest-0` are 100 of them (or half) and the others, `half-0` and `other-0` two
halves, `half-rest-0` and `other-rest-0` two halves of `rest-0`, drawn by chance. `scatter` lines have the covariance of
differences from question to question, `signs` what the encoder sees.
"""

from __future__ import annotations

import argparse
import csv
import json
import lzma
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from liebig.builder import decide
from liebig.builder.decide import (
    Belief,
    ChangeValidity,
    Constants,
    Evidence,
    KindValidity,
    SignEffect,
    believe,
    least_weight,
)
from liebig.builder.judge import BASELINE, START, Decision, SystemChoice, SystemJudge
from liebig.builder.questions import OWN
from liebig.builder.signs import SENTENCES, UNREADABLE, foreign

HERE = Path(__file__).parent
Values = NDArray[np.float64]
SCALE = 1e-5
MEASURED = "measured.csv.xz"
DRAWS, SOME, HALVES = 2, 100, 4
BASE = BASELINE.key
CANDIDATES = [
    choice.key for choice in SystemJudge([], {START: []}, sentences={START: []}).candidates(START)
] + [BASE]
SIGNS = ("foreign", "titles")
LEAST = 1e-4  # variance of gains in any direction
RIDGE = 0.05  # of the signs' effects: a few sources say little about each
HARM, NOISE = 0.010, 1.645  # a loss that counts, and errors beyond which it is no chance (one in twenty)
KINDS = ("generated", "heading", "title", "sentence", "claim", "keywords", "related")


@dataclass
class Case:
    """A corpus: what its own questions say, and what people's say."""

    name: str
    sources: tuple[str, ...]
    kinds: dict[str, Evidence] = field(default_factory=dict)
    baseline: dict[str, float] = field(default_factory=dict)
    scatter: dict[str, Values] = field(default_factory=dict)
    signs: dict[str, float] = field(default_factory=dict)

    @property
    def true(self) -> Evidence:
        return self.kinds["people"]

    @property
    def error(self) -> Values:
        return self.true.scatter / self.true.questions

    def own(self, kinds: Sequence[str]) -> list[Evidence]:
        return [self.kinds[kind] for kind in kinds if kind in self.kinds]


def read(path: Path) -> tuple[tuple[str, ...], list[Case]]:
    """The candidates, and the corpora."""
    cases: dict[str, Case] = {}
    raw: dict[str, dict[str, tuple[int, Values, Values]]] = defaultdict(dict)
    with lzma.open(path, "rt", encoding="utf-8", newline="") as file:
        table = csv.reader(file)
        names = tuple(name for name in next(table)[5:] if not name.endswith("±"))
        for corpus, sources, kind, count, *cells in table:
            case = cases.setdefault(corpus, Case(corpus, tuple(sources.split("+"))))
            if kind == "signs":
                seen = (cell.split("=") for cell in cells if cell)
                case.signs = {name: float(value) for name, value in seen}
                case.signs["foreign"] = foreign(case.signs["pieces"])
            elif kind.startswith("scatter"):
                matrix = np.zeros((len(names), len(names)))
                matrix[np.triu_indices(len(names))] = [SCALE * int(cell) for cell in cells]
                case.scatter[kind] = matrix + np.triu(matrix, 1).T
            else:
                rows = SCALE * np.array(cells[1:], float)
                case.baseline[kind] = SCALE * int(cells[0])
                raw[corpus][kind] = int(count), rows[::2], rows[1::2]
    for corpus, kinds in raw.items():
        case = cases[corpus]
        for kind, (count, mean, error) in kinds.items():
            people = kind.split("-")[0] in ("people", "some", "rest", "half", "other")
            scatter = case.scatter["scatter" if people else "scatter-own"]
            deviation = np.sqrt(np.maximum(np.diag(scatter), 1e-12))
            scatter = scatter / np.outer(deviation, deviation) * count * np.outer(error, error)
            case.kinds[kind] = Evidence(kind, count, mean, scatter)
    return names, list(cases.values())


def weights_of(cases: Sequence[Case]) -> Values:
    """Every source counts the same, however many cuts it has; a mixture counts half."""
    counts: dict[tuple[str, ...], int] = defaultdict(int)
    for case in cases:
        counts[case.sources] += 1
    weights = np.array([(1 if len(case.sources) == 1 else 0.5) / counts[case.sources] for case in cases])
    return weights / weights.sum()


def positive(matrix: Values, least: float = 1e-7) -> Values:
    """The nearest matrix that is a covariance."""
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    return (vectors * np.maximum(values, least)) @ vectors.T


def covariance(rows: Values, weights: Values) -> Values:
    centred = rows - weights @ rows
    return (centred.T * weights) @ centred


def fit(cases: Sequence[Case], names: tuple[str, ...], kinds: Sequence[str], changes: Any) -> Constants:
    """The constants, by moments: what is seen minus what chance adds to it."""
    weights = weights_of(cases)
    true = np.array([case.true.mean for case in cases])
    chance = np.einsum("i,ijk->jk", weights, np.array([case.error for case in cases]))
    looks = np.array([[case.signs[name] for name in SIGNS] for case in cases])
    middle, deviation = weights @ looks, np.sqrt(weights @ (looks - weights @ looks) ** 2) + 1e-9
    units = (looks - middle) / deviation
    effects = np.linalg.solve(
        (units.T * weights) @ units + RIDGE * np.eye(len(SIGNS)),
        (units.T * weights) @ (true - weights @ true),
    )
    # No direction is impossible: what no corpus has shown yet, questions may show.
    prior = positive(covariance(true - units @ effects, weights) - chance, LEAST)
    scatter = np.einsum("i,ijk->jk", weights, np.array([case.true.scatter for case in cases]))
    there = [kind for kind in kinds if sum(kind in case.kinds for case in cases) >= 5]
    bias = {}
    for kind in there:
        at = [i for i, case in enumerate(cases) if kind in case.kinds]
        w = weights[at] / weights[at].sum()
        bias[kind] = w @ np.array([cases[i].kinds[kind].mean - cases[i].true.mean for i in at])
    # What a kind says beside the mean of all kinds of its corpus.
    squares: dict[str, list[tuple[float, Values]]] = defaultdict(list)
    common, noise, share = [], [], []
    for case, weight in zip(cases, weights):
        mine = [kind for kind in there if kind in case.kinds]
        rows = np.array([case.kinds[kind].mean - bias[kind] for kind in mine])
        errors = np.array([case.kinds[kind].error(scatter) for kind in mine])
        if len(mine) > 1:
            for kind, row, error in zip(mine, rows - rows.mean(0), errors):
                own = np.outer(row, row) * len(mine) / (len(mine) - 1) - error
                squares[kind].append((weight, own))
        if mine:
            common.append((weight, rows.mean(0) - case.true.mean))
            noise.append((weight, errors.sum(0) / len(mine) ** 2 + case.error))
            share.append((weight, mine))
    whole = {
        kind: sum(w * own for w, own in some) / sum(w for w, _ in some) for kind, some in squares.items()
    }
    shape = positive(sum(whole.values()) / len(whole))
    shape /= np.diag(shape).mean()
    spread = {kind: float(np.sqrt(max(np.diag(own).mean(), 1e-4))) for kind, own in whole.items()}
    spread |= {kind: max(spread.values()) for kind in there if kind not in spread}
    w = np.array([weight for weight, _ in common])
    w /= w.sum()
    residual = np.array([row for _, row in common])
    specific = sum(
        one * sum(spread[kind] ** 2 for kind in mine) / len(mine) ** 2 for one, (_, mine) in zip(w, share)
    )
    second = (residual.T * w) @ residual - sum(one * error for one, (_, error) in zip(w, noise))
    misjudged = positive(second - specific * shape)
    signs = {
        name: SignEffect(float(at), float(one), gain)
        for name, at, one, gain in zip(SIGNS, middle, deviation, effects)
    }
    kinds_known = {kind: KindValidity(bias[kind], spread[kind]) for kind in there}
    # Kinds that no measured corpus has are taken for titles, which they are most like.
    kinds_known |= {kind: kinds_known["title"] for kind in kinds if kind not in there and "title" in there}
    return Constants(names, weights @ true, prior, misjudged, shape, scatter, signs, kinds_known, changes)


def chosen(case: Case, constants: Constants, kinds: Sequence[str], people: Evidence | None = None) -> Belief:
    """What the rule knows of a corpus, the plain hybrid first."""
    asked = [] if people is None else [replace(people, kind=OWN)]
    evidence = [*case.own(kinds), *asked]
    if case.signs["sentences"] >= SENTENCES:
        return believe(evidence, constants, case.signs).with_baseline()
    # As in a build, sentences do not take part where passages have but one; they come last.
    there = [number for number, name in enumerate(constants.names) if not name.startswith("sentences")]
    evidence = [
        replace(one, mean=one.mean[there], scatter=one.scatter[np.ix_(there, there)]) for one in evidence
    ]
    return believe(evidence, constants.only([constants.names[n] for n in there]), case.signs).with_baseline()


def decision(case: Case, belief: Belief, names: Sequence[str]) -> int:
    """The candidate that a build serves, the plain hybrid first."""
    keys = (BASE, *names)[: len(belief.mean)]
    alone = {"bm25": SystemChoice(system="bm25"), "dense": SystemChoice(system="dense")}
    choices = tuple(
        alone.get(key) or SystemChoice(weight=float(key.split("-")[1]), norm="spread") for key in keys
    )
    made = Decision(choices, belief, least_weight(case.signs["abroad"]))
    return max(made.eligible, key=lambda number: belief.mean[number])


@dataclass(frozen=True)
class Outcome:
    """A decision about a corpus, by constants that were fitted without its source."""

    case: Case
    choice: int
    true: Values  # gains by people's questions, the plain hybrid first
    asked: int  # of these
    belief: Belief
    copy: int | None = None  # which of people's questions the rule knew

    @property
    def regret(self) -> float:
        return float(self.true.max() - self.true[self.choice])

    @property
    def loss(self) -> float:
        """Below the better of BM25 and the plain hybrid."""
        return float(max(0.0, self.true[1]) - self.true[self.choice])

    @property
    def is_harm(self) -> bool:
        """Whether it loses more than HARM by more than chance."""
        best = 1 if self.true[1] > 0 else 0
        contrast = np.eye(len(self.true))[self.choice] - np.eye(len(self.true))[best]
        size = len(self.true) - 1
        scatter = np.pad(self.case.true.scatter[:size, :size], ((1, 0), (1, 0)))
        return self.loss - HARM > NOISE * np.sqrt(contrast @ scatter @ contrast / self.asked)

    @property
    def honest_regret(self) -> float:
        """To the candidate that half of people's questions put first, on the other half: no chance helps it."""
        there = len(self.belief.mean)  # without sentences where passages have but one
        gains = []
        for pair in range(HALVES) if self.copy is None else (f"rest-{self.copy}",):
            halves = [
                np.append(0.0, self.case.kinds[f"{half}-{pair}"].mean)[:there] for half in ("half", "other")
            ]
            gains += [two[one.argmax()] - two[self.choice] for one, two in (halves, halves[::-1])]
        return float(np.mean(gains))


def simulated(made: Sequence[Outcome], knows: bool, draws: int = 200) -> tuple[float, float]:
    """Mean regret, and share of corpora that lose more than HARM, of one who decides as well as anybody can.

    Either he knows the truth: what is best in hindsight is so by chance, too. Or he knows what the rule knows, and the
    truth varies around it exactly as the rule says. The truth of a corpus is drawn from what is known of it (with all
    of people's questions where `knows`), and people's questions are asked anew.
    """
    draw = np.random.default_rng(0)
    regrets, harms = [], []
    for one in made:
        people, count = one.case.true, len(one.belief.mean) - 1
        scatter = people.scatter[:count, :count]
        belief = Belief(one.belief.mean[1:], positive(one.belief.covariance[1:, 1:]))
        if knows:
            belief = belief.updated(people.mean[:count], positive(scatter / people.questions))
        truth = draw.multivariate_normal(belief.mean, positive(belief.covariance), draws)
        truth = np.pad(truth, ((0, 0), (1, 0)))
        error = positive(scatter / one.asked)
        seen = truth + np.pad(draw.multivariate_normal(np.zeros(count), error, draws), ((0, 0), (1, 0)))
        chosen = truth.argmax(1) if knows else np.full(draws, one.choice)
        served = seen[np.arange(draws), chosen]
        regrets.append(float((seen.max(1) - served).mean()))
        harms.append(float((np.maximum(0, seen[:, 1]) - served > HARM).mean()))
    weights = weights_of([one.case for one in made])
    return float(weights @ np.array(regrets)), float(np.mean(harms))


def outcomes(
    cases: Sequence[Case],
    names: tuple[str, ...],
    kinds: Sequence[str],
    some: bool = False,
    left_out: bool = True,
) -> list[Outcome]:
    """Every corpus, decided by what was measured on other sources (or, to see the best that can be fitted, on all)."""
    made = []
    for sources in sorted({case.sources for case in cases}):
        others = [case for case in cases if not (left_out and set(case.sources) & set(sources))]
        constants = fit(others, names, kinds, {})
        for case in (case for case in cases if case.sources == sources):
            draws: Iterable[tuple[Evidence | None, Evidence, int | None]] = [(None, case.true, None)]
            if some:
                draws = [(case.kinds[f"some-{n}"], case.kinds[f"rest-{n}"], n) for n in range(DRAWS)]
            for people, rest, copy in draws:
                belief = chosen(case, constants, kinds, people)
                true = np.append(0.0, rest.mean)[: len(belief.mean)]
                made.append(Outcome(case, decision(case, belief, names), true, rest.questions, belief, copy))
    return made


def summary(made: Sequence[Outcome], names: Sequence[str]) -> str:
    weights = weights_of([one.case for one in made])
    regret = weights @ np.array([one.regret for one in made])
    losses = np.array([one.loss for one in made])
    gain = weights @ np.array([one.true[one.choice] for one in made])
    honest = weights @ np.array([one.honest_regret for one in made])
    return (
        f"gain {gain:+.4f}, regret {regret:.4f} (honest {honest:.4f}), worst loss to max(BM25, plain) "
        f"{losses.max():.4f} ({made[int(losses.argmax())].case.name}), "
        f"{(losses > HARM).sum()} of {len(made)} above .010, {sum(one.is_harm for one in made)} of them beyond chance"
    )


def calibration(made: Sequence[Outcome]) -> list[tuple[float, float, int]]:
    """Of candidates said to be better (than the plain hybrid, with so much probability), the share that are."""
    said, is_better, weight = [], [], []
    weights = weights_of([one.case for one in made])
    for one, w in zip(made, weights):
        for number in range(1, len(one.true)):
            if number >= len(one.belief.mean):
                continue
            p = one.belief.probability(number, 0)
            said.append(p)
            is_better.append(one.true[number] > 0)
            weight.append(w)
    p, b, w = np.array(said), np.array(is_better), np.array(weight)
    rows = []
    for low, high in (
        (0, 0.05),
        (0.05, 0.2),
        (0.2, 0.4),
        (0.4, 0.6),
        (0.6, 0.85),
        (0.85, 0.95),
        (0.95, 1.01),
    ):
        at = (p >= low) & (p < high)
        if at.any():
            rows.append(
                (
                    float(np.average(p[at], weights=w[at])),
                    float(np.average(b[at], weights=w[at])),
                    int(at.sum()),
                )
            )
    return rows


def earlier(evidence: Sequence[Evidence], names: Sequence[str], real: bool) -> int:
    """What the rule before chose, the plain hybrid first: the preferred hybrid that is not worse beyond chance.

    Its bootstrap is a normal interval here, and it does not tune the fusion by people's questions.
    """
    if not evidence:
        return 0
    here = np.arange(len(names))
    evidence = [
        replace(one, mean=one.mean[here], scatter=one.scatter[np.ix_(here, here)]) for one in evidence
    ]
    order = ("plain", *names)
    means = np.mean([np.append(0.0, one.mean) for one in evidence], axis=0)
    errors = (
        sum(np.pad(one.scatter / one.questions, ((1, 0), (1, 0))) for one in evidence) / len(evidence) ** 2
    )

    def better(a: int, b: int, margin: float) -> bool:
        deviation = np.sqrt(max(errors[a, a] + errors[b, b] - 2 * errors[a, b], 1e-12))
        return bool(means[a] - means[b] > max(1.96 * deviation, margin))

    bm25, dense = order.index("bm25"), order.index("dense")
    parts = {0: 0.0, bm25: 0.0 if real else 0.01, dense: 0.0 if real else 0.01}

    def beaten_by(hybrid: int) -> list[int]:
        return [part for part, margin in parts.items() if better(part, hybrid, margin)]

    accepted = [*(order.index(name) for name in ("sentences-0.45", "spread-0.5") if name in order), 0]
    hybrid = next((one for one in accepted if not beaten_by(one)), 0)
    return max(beaten_by(hybrid), key=lambda part: means[part], default=hybrid)


def trials(*paths: Path) -> dict[str, ChangeValidity]:
    """What other encoders gained over the untrained one in hybrids, by stored builds: as checked, and truly."""
    rows: dict[str, dict[str, list[tuple[float, float]]]] = defaultdict(lambda: defaultdict(list))
    builds = []
    for path in paths:
        with lzma.open(path, "rt", encoding="utf-8") as file:
            builds += [json.loads(line) for line in file]
    for build in builds:
        labels = {"student": "taught", "student, half way": "taught"}
        if build.get("training") == "map":  # other trainings on questions are no longer
            labels = {"encoder trained on your questions": "yours"}
        elif "training" not in build and not build["labels"]:
            labels["encoder after training"] = "trained"
        compared = {one["system"]: one for one in build.get("compared", ())}
        start = compared.get("BM25 + encoder before training and its sentences")
        for label, kind in labels.items():
            other = compared.get(f"BM25 + {label} and its sentences")
            if start is not None and other is not None:
                pair = [other[which]["mean"] - start[which]["mean"] for which in ("predicted", "true")]
                rows[kind][build["set"]].append((pair[0], pair[1]))
    rows["trained"]["demo"].append(DEMO)
    fitted = {}
    for kind, sets in rows.items():
        pairs = np.array([np.mean(some, axis=0) for some in sets.values()])  # every set counts the same
        wrong = pairs[:, 0] - pairs[:, 1]
        fitted[kind] = ChangeValidity(
            *(round(float(x), 4) for x in (pairs[:, 1].mean(), max(pairs[:, 1].std(), 0.01), wrong.mean(),
                                           max(wrong.std(ddof=1), 0.01)))
        )  # fmt: skip
    # People's questions that an encoder was trained on are asked cross-fitted, without bias.
    fitted["yours"] = replace(fitted["yours"], bias=0.0)
    return fitted | {"reranked": RERANKED}


BUILDS = [HERE.parent / "adaptation" / name for name in ("builds.jsonl.xz", "trainings.jsonl.xz")]
DEMO = (0.028, -0.005)  # training in `liebig demo`: by its check, and by the questions of its test
RERANKED = ChangeValidity(0.0, 0.05, 0.0, 0.03)  # assumed: no build with a reranker is stored


def join(folder: Path, path: Path) -> None:
    """What `measure.py` wrote, as one table."""
    with lzma.open(path, "wt", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        for number, made in enumerate(sorted(folder.glob("*.npz"))):
            data = np.load(made)
            about, kinds = json.loads(str(data["about"])), data["kinds"]
            names = [name for name in data["names"].tolist() if name in CANDIDATES]
            base = names.index(BASE)
            if number == 0:
                others = [name for name in names if name != BASE]
                columns = [f"{name}{error}" for name in others for error in ("", "±")]
                writer.writerow(["corpus", "sources", "kind", "questions", BASE, *columns])
            values = data["values"].astype(float)[:, np.isin(data["names"], names)]
            rows = np.delete(values - values[:, [base]], base, axis=1)
            groups = {kind: kinds == kind for kind in dict.fromkeys(kinds.tolist())}
            people = np.flatnonzero(groups["people"])
            draw = np.random.default_rng(len(people))
            for prefix, rest, count, times in (
                ("some", "rest", min(SOME, len(people) // 2), DRAWS),
                ("half", "other", len(people) // 2, HALVES),
            ):
                for copy in range(times):
                    order = draw.permutation(people)
                    groups |= {f"{prefix}-{copy}": order[:count], f"{rest}-{copy}": order[count:]}
                    if rest == "rest":
                        middle = (count + len(order)) // 2
                        groups |= {
                            f"half-rest-{copy}": order[count:middle],
                            f"other-rest-{copy}": order[middle:],
                        }
            head = [about["name"], "+".join(about["sources"])]
            for kind, which in groups.items():
                errors = rows[which].std(0, ddof=1) / np.sqrt(len(rows[which]))
                pairs = [_whole(x) for pair in zip(rows[which].mean(0), errors) for x in pair]
                writer.writerow([*head, kind, len(rows[which]), _whole(values[which, base].mean()), *pairs])
            own = [rows[kinds == kind] for kind in dict.fromkeys(kinds.tolist()) if kind in KINDS]
            for kind, some in (("scatter-own", own), ("scatter", [rows[people]])):
                centred = [of_kind - of_kind.mean(0) for of_kind in some]
                freedom = sum(len(of_kind) - 1 for of_kind in some)
                matrix = sum((one.T @ one for one in centred), np.zeros((rows.shape[1],) * 2)) / max(
                    1, freedom
                )
                upper = map(_whole, matrix[np.triu_indices(len(matrix))])
                writer.writerow([*head, kind, sum(map(len, some)), *upper])
            seen = [f"{name}={value:.4g}" for name, value in about["signs"].items()]
            writer.writerow([*head, "signs", round(10 ** about["signs"]["passages"]), *seen])


def _whole(value: float) -> int:
    return round(value / SCALE)


def tree(constants: Constants) -> dict[str, Any]:
    """Constants as `decide.json` has them."""

    def rounded(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: rounded(one) for name, one in value.items()}
        if isinstance(value, np.ndarray):
            return [rounded(one) for one in value.tolist()]
        return [rounded(one) for one in value] if isinstance(value, list) else (
            float(f"{value:.5g}") if isinstance(value, float) else value)  # fmt: skip

    return {name: rounded(value) for name, value in asdict(constants).items()}


def by_source(made: Sequence[Outcome], before: Sequence[Outcome]) -> list[str]:
    """A row for each source: corpora, gain, regret and worst loss of the rule, and of the rule before."""
    lines = [
        "| source | corpora | gain | regret | worst loss | earlier: gain | regret | worst loss |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    mixtures = "two sources mixed"
    groups: dict[str, list[int]] = defaultdict(list)
    for number, one in enumerate(made):
        name = one.case.name.split("/")[0]
        groups[name if "+" not in name else mixtures].append(number)
    for name, numbers in [*sorted(groups.items()), ("**all**", list(range(len(made))))]:
        cells = []
        for some in (made, before):
            part = [some[number] for number in numbers]
            weights = weights_of([one.case for one in part])
            gain, regret = (
                float(weights @ np.array([value(one) for one in part]))
                for value in (lambda one: one.true[one.choice], lambda one: one.regret)
            )
            cells += [f"{gain:+.3f}", f"{regret:.3f}", f"{max(0.0, *(one.loss for one in part)):.3f}"]
        count = len({one.case.name for one in (made[number] for number in numbers)})
        lines.append(f"| {name} | {count} | {' | '.join(cells)} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--join", type=Path)
    given = parser.parse_args()
    if given.join is not None:
        join(given.join, HERE / MEASURED)
    names, cases = read(HERE / MEASURED)
    readable = [case for case in cases if case.signs["unread"] <= UNREADABLE]
    print(
        f"{len(cases)} corpora; {len(cases) - len(readable)} that the encoder cannot read are not decided by the rule\n"
    )
    for some in (False, True):
        made = outcomes(readable, names, KINDS, some)
        before = []
        for number, one in enumerate(made):
            evidence = [one.case.kinds[f"some-{number % 2}"]] if some else one.case.own(KINDS[:-1])
            before.append(replace(one, choice=earlier(evidence, names[: len(one.true) - 1], some)))
        print("## With up to 100 of people's questions\n" if some else "## Without people's questions\n")
        print("\n".join(by_source(made, before)))
        for label, some_made in (("rule", made), ("earlier", before)):
            print(f"\n{label}: {summary(some_made, names)}")
        known = outcomes(readable, names, KINDS, some, left_out=False)
        print(f"\nfitted on these corpora themselves: {summary(known, names)}")
        for label, knows in (("the truth", True), ("what the rule knows, exactly", False)):
            regret, share = simulated(made, knows)
            print(f"\none who knows {label}: regret {regret:.4f}, {100 * share:.1f} % of corpora above .010")
        print("\nsaid to be better with, are better, how many:")
        print("; ".join(f"{said:.2f} {true:.2f} ({count})" for said, true, count in calibration(made)), "\n")
    for kinds in (KINDS, *(tuple(one for one in KINDS if one != kind) for kind in KINDS[2:])):
        print(", ".join(kinds), "->", summary(outcomes(readable, names, kinds), names))
    constants = fit(readable, names, KINDS, trials(*BUILDS))
    for kind, one in constants.kinds.items():
        flatters = dict(zip(names, one.bias))
        print(
            f"{kind}: BM25 {flatters['bm25']:+.3f}, vectors {flatters['dense']:+.3f}, spread {one.spread:.3f}"
        )
    if given.write:
        path = Path(decide.__file__).with_name("decide.json")
        path.write_text(json.dumps(tree(constants)) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
