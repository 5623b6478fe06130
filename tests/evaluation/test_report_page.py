"""The report: one page that holds everything, needs nothing, and trusts no text."""

from __future__ import annotations

import logging
import re
import shlex
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from liebig.base.config import Config, load
from liebig.base.errors import CorruptError, DataError
from liebig.evaluation.plots import Axes, Series, intervals, lines as curves
from liebig.evaluation.report import inline_svg, mark
from liebig.evaluation.stage_runs import find_stages
from liebig.evaluation.training_log import _few_losses, _plots, _single_evaluation
from liebig.evaluation.verdicts import _word, against_untrained
from tests.worlds.report import NASTY, make_report, make_stage, make_world


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_world(tmp_path_factory.mktemp("world"))


@pytest.fixture(scope="module")
def report(world: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_report(
        [world], tmp_path_factory.mktemp("out") / "report", title="Barley", about="Why we tried it."
    )


@pytest.fixture(scope="module")
def html(report: Path) -> str:
    return (report / "report.html").read_text(encoding="utf-8")


class Outline(HTMLParser):
    """Headings, ids and addresses of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.headings: list[int] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.scripts = 0
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if re.fullmatch(r"h[1-6]", tag):
            self.headings.append(int(tag[1]))
        self.scripts += tag == "script"
        self.ids += [value for name, value in attrs if name == "id" and value]
        self.links += [value for name, value in attrs if name in ("href", "src", "xlink:href") and value]


def test_every_section_is_there(html: str) -> None:
    titles = [
        "What was run",
        "Data",
        "Training",
        "Results",
        "Significance tests",
        "Analyses",
    ]
    for title in [*titles, "Commands", "Versions and hashes"]:
        assert re.search(rf"<h2 id=\"\w+\">{title}</h2>", html), title
    assert "Why we tried it." in html


def test_nothing_is_fetched_and_nothing_runs(html: str) -> None:
    page = Outline(html)
    assert page.scripts == 0
    assert all(link.startswith(("#", "data:")) for link in page.links)
    assert "default-src 'none'" in html
    assert not re.search(r"@import|url\((?!#|&#34;#|\"#)", html)


def test_texts_are_escaped_wherever_they_come_from(html: str) -> None:
    assert NASTY not in html
    assert "<script" not in html
    assert "&lt;script&gt;" in html


def test_headings_descend_by_one_and_ids_are_unique(html: str) -> None:
    page = Outline(html)
    assert page.headings[0] == 1
    assert all(b - a <= 1 for a, b in zip(page.headings, page.headings[1:]))
    assert len(page.ids) == len(set(page.ids))
    assert {link[1:] for link in page.links if link.startswith("#")} <= set(page.ids)


def test_results_stand_with_their_intervals_and_the_best_is_bold(html: str) -> None:
    assert html.count('<strong class="best">') == 1
    assert re.search(r"\d\.\d{4} to \d\.\d{4}", html)
    assert "a note" in html


def test_systems_on_one_task_are_tested_against_each_other(html: str) -> None:
    assert ">-0.3000, worse</span>" in html
    assert ">+0.3000, better</span>" in html


def test_plots_are_inline_and_saved_as_files(report: Path, html: str) -> None:
    files = sorted(path.name for path in (report / "plots").iterdir())
    expected = ["attention-attention.svg", "recall-cities-test.svg"]
    assert set(expected) <= set(files)
    assert html.count('role="img"') == len(files) == 5
    for path in (report / "plots").iterdir():
        assert ElementTree.parse(path).getroot().tag.endswith("svg")


def test_the_same_folders_give_the_same_page(world: Path, report: Path, tmp_path: Path) -> None:
    again = make_report([world], tmp_path / "again", title="Barley", about="Why we tried it.")
    assert (again / "report.html").read_bytes() == (report / "report.html").read_bytes()


def test_stages_come_in_the_order_they_ran_and_reports_are_left_out(world: Path, tmp_path: Path) -> None:
    make_report([world], world / "old-report")
    names = [stage.name for stage in find_stages([world])]
    assert len(names) == 6
    assert "old-report" not in names
    assert "train/mlm" in names


def test_a_command_gives_back_the_recipe(world: Path) -> None:
    stage = next(stage for stage in find_stages([world]) if stage.name == "train/mlm")
    words = shlex.split(stage.command)
    assert words[:2] == ["liebig", "pretrain"]
    assert words[-2:] == ["--out", "train/mlm"]

    class Nested(Config):
        on: bool

    class Store(Config):
        path: str
        weight: float | None = None

    class Recipe(Config):
        name: str
        number: str
        sizes: tuple[int, ...]
        stores: tuple[Store, ...]
        nested: Nested

    assert load(Recipe, overrides=words[2:-2]) == Recipe(
        name="it's",
        number="12",
        sizes=(1, 2),
        stores=(Store(path="runs/store"), Store(path="b", weight=0.5)),
        nested=Nested(on=True),
    )


@pytest.mark.parametrize("same", [True, False])
def test_papers_figures_stand_beneath_results_on_the_same_set_only(tmp_path: Path, same: bool) -> None:
    suite = {"suite": "beir/scifact", "same_as_published": same}
    make_stage(tmp_path / "in" / "a", "evaluate", {}, values=np.linspace(0, 1, 9), system="a", **suite)
    page = (make_report([tmp_path / "in"], tmp_path / "out") / "report.html").read_text(encoding="utf-8")
    assert ("contriever, table" in page.lower()) == same


def test_evaluations_by_different_measures_stand_in_one_table_without_a_test(tmp_path: Path) -> None:
    for name, measure in (("a", "nDCG@10"), ("b", "RR@10")):
        values = np.linspace(0, 1, 9)
        make_stage(tmp_path / "in" / name, "evaluate", {}, values=values, system=name, measure=measure)
    page = (make_report([tmp_path / "in"], tmp_path / "out") / "report.html").read_text(encoding="utf-8")
    assert "nDCG@10" in page
    assert "RR@10" in page
    assert "Significance tests</h2>" not in page


@pytest.mark.parametrize("name", ["space/space.json", "bm25/results.json", "train/mlm/log.jsonl"])
def test_a_file_that_is_not_what_its_stage_wrote_is_refused(tmp_path: Path, name: str) -> None:
    world = make_world(tmp_path / "in")
    (world / name).write_bytes(b"\xff[]")
    with pytest.raises(CorruptError, match="does not match the manifest"):
        make_report([world], tmp_path / "out")


def test_a_folder_without_stages_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no finished stage"):
        find_stages([tmp_path])


def test_a_page_of_one_stage_has_no_empty_sections(world: Path, tmp_path: Path) -> None:
    html = (make_report([world / "data"], tmp_path / "small") / "report.html").read_text()
    assert 'id="results"' not in html
    assert 'id="training"' not in html
    assert "2 passages without any text" in html


@pytest.mark.parametrize(
    "svg", ["<svg><script>1</script></svg>", '<svg><image href="x"/></svg>', '<svg onload="x()"></svg>']
)
def test_a_plot_that_could_do_something_is_refused(svg: str) -> None:
    with pytest.raises(DataError, match="script or an external link"):
        inline_svg(svg, "bad")


def test_marking_takes_whole_words_in_any_case() -> None:
    assert str(mark("Barley, barleys & malt", ["barley"])) == "<mark>Barley</mark>, barleys &amp; malt"
    assert str(mark("a <b>", [])) == "a &lt;b&gt;"


def test_a_difference_counts_only_with_a_small_p() -> None:
    assert [_word(0.1, 0.01), _word(-0.1, 0.01), _word(0.1, 0.2), _word(0.0, 0.01)] == [
        "better",
        "worse",
        "no significant difference",
        "no significant difference",
    ]


def test_the_verdict_comes_first_and_stages_last(html: str) -> None:
    assert "It is better than BM25 (+0.300) beyond chance" in html
    places = [
        html.index(mark)
        for mark in ('class="verdict"', 'id="results"', 'id="data"', 'id="costs"', 'id="runs"')
    ]
    assert places == sorted(places)
    assert html[html.index('id="runs"') :].count("<details>") >= 3


def test_a_lead_that_may_be_chance_is_said(tmp_path: Path) -> None:
    for name, values in (("a", np.linspace(0, 1, 9)), ("b", np.linspace(0.01, 1, 9)[::-1])):
        make_stage(tmp_path / "in" / name, "evaluate", {}, values=values, system=name)
    page = (make_report([tmp_path / "in"], tmp_path / "out") / "report.html").read_text(encoding="utf-8")
    assert "Its lead over a (+0.005) may be chance." in page


def test_a_build_says_what_answers_and_why(tmp_path: Path) -> None:
    difference = {"mean": 0.02, "low": 0.01, "high": 0.03, "p": 0.001}
    rows = [
        {"name": name, "value": value, "low": value - 0.1, "high": value + 0.1, "difference": difference,
         "kinds": {"title": value}}
        for name, value in (("BM25", 0.5), ("BM25 + encoder", 0.6))
    ]  # fmt: skip
    case = {
        "text": f"Which field? {NASTY}", "kind": "title", "value_a": 1.0, "value_b": 0.0, "relevant": "The far field.",
        "found_a": "The far field.", "found_b": "", "words": ["field"],
    }  # fmt: skip
    checks = {
        "questions": {"title": 40}, "measure": "nDCG@10", "chosen": "BM25 + encoder", "baseline": "BM25",
        "rows": rows, "predicted": rows[1], "why": [f"It is better. {NASTY}"],
        "cases": {"names": ["BM25 + encoder", "BM25"], "wins": [case], "losses": [], "better": 1, "worse": 0},
    }  # fmt: skip
    make_stage(tmp_path / "in" / "checks-1", "check", {"checks.json": checks})
    report = make_report([tmp_path / "in"], tmp_path / "out")
    page = (report / "report.html").read_text(encoding="utf-8")
    verdict = "The retriever answers with BM25 + encoder. On questions of this corpus it has nDCG@10 0.600"
    assert f"{verdict} (0.500 to 0.700)" in page
    assert "better than the untrained hybrid by 0.020 (+0.010 to +0.030)" in page
    assert "BM25 + encoder (chosen)" in page
    assert "It is better. &lt;script&gt;" in page
    assert "1 question better, 0 worse" in page
    assert "The far <mark>field</mark>." in page
    answers = ['class="verdict"', "<table>", "<svg", "<h3>Why</h3>", 'class="case"', 'id="costs"']
    assert [page.index(mark) for mark in answers] == sorted(page.index(mark) for mark in answers)
    assert (report / "plots" / "check.svg").is_file()


@pytest.mark.parametrize(
    ("mean", "low", "high", "words"),
    [
        (0.02, 0.01, 0.03, "better than the untrained hybrid by 0.020 (+0.010 to +0.030)"),
        (-0.02, -0.03, -0.01, "worse than the untrained hybrid by 0.020 (-0.030 to -0.010)"),
        (
            0.001,
            -0.01,
            0.011,
            "not measurably different from the untrained hybrid: +0.001 (-0.010 to +0.011)",
        ),
    ],
)
def test_a_difference_is_said_in_words(mean: float, low: float, high: float, words: str) -> None:
    assert against_untrained({"mean": mean, "low": low, "high": high}) == words


def test_drawing_is_silent_where_matplotlib_looks_for_fonts() -> None:
    intervals("x", [("a", 0.5, 0.4, 0.6)], Axes("", ""))
    assert not logging.getLogger("matplotlib.font_manager").isEnabledFor(logging.WARNING)


def test_the_names_of_many_lines_stand_beside_the_plot() -> None:
    names = ["one", "two", "three", "four", "five", "six"]
    svg = curves("x", [Series(name, [1, 2, 777], [1, 2, 777]) for name in names], Axes("", "", log_x=True))
    places = {
        text.text: text for text in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")
    }
    last = max(float(places[tick].get("x", 0)) for tick in ("1", "777"))
    assert min(float(places[name].get("x", 0)) for name in names) > last


def test_ticks_of_a_long_axis_are_few_and_short() -> None:
    sizes = [size * 10**power for power in range(2, 7) for size in (1, 3)] + [10**7]
    svg = curves("x", [Series(name, sizes, sizes) for name in "abcdef"], Axes("", "", log_x=True))
    texts = [text.text for text in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]
    assert [tick for tick in texts if tick in ("100", "300", "1000", "10k", "30k", "100k", "1M", "10M")] == [
        "100", "1000", "10k", "100k", "1M", "10M"
    ]  # fmt: skip


def test_a_curve_of_few_points_is_a_sentence() -> None:
    log = [{"step": step, "loss": 1.5} for step in (1, 2)]
    assert _few_losses(log) == ["step 1: loss 1.5", "step 2: loss 1.5"]
    assert _plots("x", log) == []
    assert _few_losses([*log, {"step": 3, "loss": 1.0}]) == []


def test_a_single_evaluation_is_said_and_two_are_drawn() -> None:
    lines = [{"step": step, "evaluation": {"accuracy": 0.25 * step}} for step in (1, 2)]
    assert _single_evaluation(lines[:1]) == ["step 1: evaluation accuracy 0.25"]
    assert _single_evaluation(lines) == []
    assert [len(_plots("x", lines[:count])) for count in (1, 2)] == [0, 1]
