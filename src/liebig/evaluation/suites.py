"""The sets people compare on, and the conventions each of them has.

A suite says which split and measures are reported, whether a query's own id is taken out of its hits, and how many
queries and passages the set has: the figures of papers are only shown beside a result on the same set. A set is
recognised by the name of its folder or file, or named by the user.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from liebig.base.errors import RecipeError

Kind = Literal["judgements", "answers", "pairs", "triplets", "candidates"]


@dataclass(frozen=True, slots=True)
class Suite:
    """A set and its conventions; `queries` and `passages` are 0 where any number will do."""

    name: str
    kind: Kind
    split: str
    measures: tuple[str, ...]
    queries: int = 0
    passages: int = 0
    aliases: tuple[str, ...] = ()
    exclude_self: bool = False
    note: str = ""


BEIR_MEASURES = ("nDCG@10", "R@100")
DL_MEASURES = ("nDCG@10", "RR(rel=2)@10", "AP(rel=2)", "R(rel=2)@100", "R(rel=2)@1000")
MARCO_MEASURES = ("RR@10", "R@50", "R@100", "R@1000")
TOP_K = ("Answer@1", "Answer@5", "Answer@20", "Answer@100")
CORRELATIONS = ("Spearman", "Pearson")
FORUMS = (
    "android", "english", "gaming", "gis", "mathematica", "physics", "programmers", "stats", "tex", "unix",
    "webmasters", "wordpress",
)  # fmt: skip


def _beir(
    name: str, queries: int, passages: int, aliases: Sequence[str] = (), note: str = "", **rest: bool
) -> Suite:
    measures = BEIR_MEASURES + (("R_cap@100",) if name == "trec-covid" else ())
    names = (name, *aliases)
    return Suite(f"beir/{name}", "judgements", "test", measures, queries, passages, names, note=note, **rest)


def _dl(year: int, kind: str, queries: int, passages: int) -> Suite:
    short = "pass" if kind == "passage" else "docs"
    return Suite(
        f"trec-dl-{year}/{kind}", "judgements", "test", DL_MEASURES, queries, passages, (f"{year}qrels-{short}",),
        note="Grades of 2 and more count as relevant, except for nDCG.",
    )  # fmt: skip


SUITES: tuple[Suite, ...] = (
    _beir("trec-covid", 50, 171_332, note="BEIR reports capped recall here."),
    _beir("nfcorpus", 323, 3_633),
    _beir("nq", 3_452, 2_681_468),
    _beir("hotpotqa", 7_405, 5_233_329),
    _beir("fiqa", 648, 57_638, ("fiqa-2018",)),
    _beir(
        "arguana", 1_406, 8_674, exclude_self=True, note="One judged passage is not in the collection."
    ),
    _beir("webis-touche2020", 49, 382_545, ("touche-2020", "touche2020")),
    _beir("quora", 10_000, 522_931, exclude_self=True),
    _beir("dbpedia-entity", 400, 4_635_922, ("dbpedia",)),
    _beir("scidocs", 1_000, 25_657),
    _beir("fever", 6_666, 5_416_568),
    _beir("climate-fever", 1_535, 5_416_593),
    _beir("scifact", 300, 5_183),
    *(
        Suite(f"beir/cqadupstack/{forum}", "judgements", "test", BEIR_MEASURES, aliases=(f"cqadupstack/{forum}",))
        for forum in FORUMS
    ),
    Suite(
        "msmarco-passage/dev", "judgements", "dev", MARCO_MEASURES, 6_980, 8_841_823,
        ("msmarco", "msmarco-passage", "qrels.dev.small"), note="The small development set of 6,980 queries.",
    ),
    Suite(
        "msmarco-document/dev", "judgements", "dev", ("RR@100", "R@100"), 5_193, 3_213_835,
        ("msmarco-document", "msmarco-docs", "msmarco-docdev-qrels"),
    ),
    _dl(2019, "passage", 43, 8_841_823),
    _dl(2020, "passage", 54, 8_841_823),
    _dl(2019, "document", 43, 3_213_835),
    _dl(2020, "document", 45, 3_213_835),
    Suite("nq-open/test", "answers", "test", TOP_K, 3_610, 21_015_324, ("nq", "nq-open", "nq-test")),
    Suite("triviaqa-open/test", "answers", "test", TOP_K, 11_313, 21_015_324, ("triviaqa", "trivia-test")),
    Suite("stsb/test", "pairs", "test", CORRELATIONS, 1_379, aliases=("stsb", "stsbenchmark", "sts-b")),
    Suite(
        "wikisection/test", "triplets", "test", ("Accuracy",), aliases=("wikisection", "wikipedia-sections"),
        note="The triplets of Ein Dor et al. 2018.",
    ),
    Suite(
        "abs/dev", "candidates", "dev", ("RR@100",), 1_500, aliases=("abs-dev", "msmarco-passage-abs"),
        note="One positive and 99 candidates a query, ranked among themselves.",
    ),
    Suite("abs/full", "judgements", "test", ("RR@100",), 4_980, 3_128_597, note="The ABS paper's part of MS MARCO."),
)  # fmt: skip

FOURTEEN = tuple(
    suite.name for suite in SUITES if suite.name.startswith("beir/") and suite.name.count("/") == 1
)
GROUPS: dict[str, tuple[str, ...]] = {
    "beir/cqadupstack": tuple(f"beir/cqadupstack/{forum}" for forum in FORUMS),
    "beir/mean": (*FOURTEEN, "beir/cqadupstack"),
}
BY_NAME = {suite.name: suite for suite in SUITES}
DEFAULTS: dict[Kind, tuple[str, ...]] = {
    "judgements": ("nDCG@10", "RR@10", "R@10", "R@100"),
    "answers": TOP_K,
    "pairs": CORRELATIONS,
    "triplets": ("Accuracy",),
    "candidates": ("RR@100",),
}


def named(name: str) -> Suite:
    if name not in BY_NAME:
        raise RecipeError(f"no suite is called {name!r}", fix="use one of " + ", ".join(BY_NAME))
    return BY_NAME[name]


def recognise(path: Path, kinds: Iterable[Kind]) -> Suite | None:
    """The suite of a folder or file by its name, among those whose data it has."""
    short = path.name.lower().removesuffix(".xz").removesuffix(".gz")
    short = short.rsplit(".", 1)[0] if "." in short else short
    names = {path.name.lower(), short, f"{path.parent.name}/{path.name}".lower()}
    allowed = set(kinds)
    return next((suite for suite in SUITES if suite.kind in allowed and names & set(suite.aliases)), None)


def is_same(suite: Suite, queries: int, passages: int | None) -> bool:
    """Whether a collection has the numbers of the published one, as far as they are known."""
    same_queries = not suite.queries or queries == suite.queries
    return same_queries and (not suite.passages or passages is None or passages == suite.passages)
