"""Measures of retrieval and similarity: their names are here, their functions on arrays in the modules beside.

A measure is a value whose printed name parses back: `nDCG@10`, `RR(rel=2)@10`, `RR(order=given)@10`. A name is a kind,
its parameters where they differ from the default, and a cut. `rel` is the least grade that counts as relevant. `order`
is `score` for trec_eval's ranking (scores as float32, ties by document id descending) or `given` for MS MARCO's (the
rank written in the run). docs/evaluation.md says what each kind means.

`evaluator` computes the values of a run with the functions of `ranking`, `answers` does DPR's answer matching,
`similarity` correlations and triplets. Nothing here loads numba, so a config can check a measure's name quickly.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Literal, cast, get_args

from pydantic import AfterValidator

from liebig.base.errors import RecipeError

Order = Literal["score", "given"]
Needs = Literal["judgements", "answers", "pairs", "triplets"]


@dataclass(frozen=True, slots=True)
class Kind:
    """What a kind of measure may carry, and what it is computed from."""

    meaning: str
    cut: Literal["required", "optional", "none"] = "required"
    threshold: bool = True
    ranked: bool = True
    needs: Needs = "judgements"


KINDS: dict[str, Kind] = {
    "nDCG": Kind("discounted gain of the grades, over the best possible", "optional", threshold=False),
    "nDCG_exp": Kind("the same with gain 2^grade - 1", "optional", threshold=False),
    "RR": Kind("1 / rank of the first relevant hit", "optional"),
    "AP": Kind("mean precision at the ranks of the relevant passages", "optional"),
    "R": Kind("share of the relevant passages found"),
    "R_cap": Kind("relevant passages found, over the most that fit above the cut"),
    "P": Kind("share of the first k that is relevant"),
    "Success": Kind("is a relevant passage among the first k"),
    "Judged": Kind("share of the hits among the first k that was judged", threshold=False),
    "Answer": Kind("does one of the first k passages contain an answer", threshold=False, needs="answers"),
    "Spearman": Kind("rank correlation with the gold scores", "none", False, False, "pairs"),
    "Pearson": Kind("linear correlation with the gold scores", "none", False, False, "pairs"),
    "Accuracy": Kind("share of triplets whose positive is nearer", "none", False, False, "triplets"),
}

ALIASES: dict[str, str] = {
    "mrr": "RR",
    "recip_rank": "RR",
    "map": "AP",
    "map_cut": "AP",
    "recall": "R",
    "precision": "P",
    "ndcg_cut": "nDCG",
    "top": "Answer",
}

_NAME = re.compile(r"([A-Za-z_]+?)(?:\(([^()]*)\))?(?:[@_](\d+))?")


@dataclass(frozen=True, slots=True)
class Measure:
    """One measure; `str()` of it is its name."""

    kind: str
    cut: int | None = None
    rel: int = 1
    order: Order = "score"

    def __post_init__(self) -> None:
        _check(self)

    def __str__(self) -> str:
        parts = [f"rel={self.rel}"] if self.rel != 1 else []
        parts += [f"order={self.order}"] if self.order != "score" else []
        inside = f"({', '.join(parts)})" if parts else ""
        return f"{self.kind}{inside}" + ("" if self.cut is None else f"@{self.cut}")

    @property
    def needs(self) -> Needs:
        return KINDS[self.kind].needs


def parse(name: str) -> Measure:
    """The measure of a name; also takes the usual other spellings (`MRR@10`, `Recall@100`, `ndcg_cut_10`)."""
    match = _NAME.fullmatch(name.strip())
    if match is None:
        raise _unknown(name)
    kind = _kind(match[1])
    if kind is None:
        raise _unknown(name)
    rel, order = _parameters(name, match[2] or "")
    return Measure(kind, int(match[3]) if match[3] else None, rel, order)


def _known(name: str) -> str:
    try:
        parse(name)
    except RecipeError as error:
        raise ValueError(f"{error.what}; {error.fix}" if error.fix else error.what) from None
    return name


MeasureName = Annotated[str, AfterValidator(_known)]
"""The name of a measure in a recipe."""


def parse_all(names: Iterable[str]) -> tuple[Measure, ...]:
    """Several names, in order; a measure named twice counts once."""
    return tuple(dict.fromkeys(parse(name) for name in names))


def _kind(word: str) -> str | None:
    lower = {kind.lower(): kind for kind in KINDS}
    return ALIASES.get(word.lower()) or lower.get(word.lower())


def _parameters(name: str, inside: str) -> tuple[int, Order]:
    rel, order = 1, "score"
    for part in filter(None, (piece.strip() for piece in inside.split(","))):
        key, _, value = (piece.strip() for piece in part.partition("="))
        if key == "rel" and re.fullmatch(r"-?\d+", value):
            rel = int(value)
        elif key == "order" and value in get_args(Order):
            order = value
        else:
            raise RecipeError(
                f"measure {name!r} has the unknown parameter {part!r}",
                fix="use rel=NUMBER, order=score or order=given",
            )
    return rel, cast(Order, order)


def _check(measure: Measure) -> None:
    rules = KINDS.get(measure.kind)
    if rules is None:
        raise _unknown(measure.kind)
    name = measure.kind
    if rules.cut == "required" and measure.cut is None:
        raise RecipeError(f"measure {name} needs a cut", fix=f"write for example {name}@10")
    if rules.cut == "none" and measure.cut is not None:
        raise RecipeError(f"measure {name} has no cut", fix=f"write {name}")
    if measure.cut is not None and measure.cut < 1:
        raise RecipeError(f"measure {name} has the cut {measure.cut}", fix="use a cut of at least 1")
    if measure.rel != 1 and not rules.threshold:
        raise RecipeError(f"measure {name} has no relevance threshold", fix=f"leave rel={measure.rel} out")
    if measure.rel < 1:
        raise RecipeError(f"rel={measure.rel} would count unjudged passages", fix="use rel=1 or more")
    if measure.order != "score" and not rules.ranked:
        raise RecipeError(
            f"measure {name} does not depend on the order of hits", fix=f"leave order={measure.order} out"
        )


def _unknown(name: str) -> RecipeError:
    return RecipeError(
        f"no measure is called {name!r}", fix="use one of " + ", ".join(KINDS) + ", with a cut as in nDCG@10"
    )
