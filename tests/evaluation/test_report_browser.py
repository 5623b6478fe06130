"""The report in a browser: no error, no request, every plot drawn, readable at two widths, accessible."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.worlds.browser import VIEWS, faults, keep, opened, watch
from tests.worlds.report import make_report, make_world

pytestmark = pytest.mark.browser
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("browser")
    return make_report([make_world(root / "world")], root / "report") / "report.html"


@pytest.fixture(scope="module")
def blank() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed")
    with playwright.sync_playwright() as found:
        chromium = found.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = chromium.new_page()
        watch(page)
        yield page
        chromium.close()


@pytest.fixture(params=VIEWS[::3], ids=["wide and light", "narrow and dark"])
def page(request: pytest.FixtureRequest, blank: Any, report: Path) -> Iterator[Any]:
    with opened(blank, report.as_uri(), *request.param):
        yield blank


@pytest.mark.parametrize("view", VIEWS[::3], ids=["wide and light", "narrow and dark"])
def test_it_opens_without_an_error_or_a_request(blank: Any, report: Path, view: tuple[int, str]) -> None:
    with opened(blank, report.as_uri(), *view) as (requests, said):
        assert said == []
        assert [url for url in requests if not url.startswith("data:")] == [report.as_uri()]


def test_every_plot_is_drawn_and_nothing_is_cut_off(page: Any) -> None:
    sizes = page.eval_on_selector_all(
        "figure svg", "all => all.map(one => [one.clientWidth, one.clientHeight])"
    )
    assert len(sizes) == 5
    assert all(width > 200 and height > 80 for width, height in sizes)
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def test_the_text_of_plots_has_the_colour_of_the_page(page: Any) -> None:
    colour = page.evaluate("getComputedStyle(document.body).color")
    assert page.eval_on_selector("figure svg text", "one => getComputedStyle(one).fill") == colour


@pytest.mark.parametrize("width, scheme", VIEWS)
def test_it_has_what_a_page_should_have(blank: Any, report: Path, width: int, scheme: str) -> None:
    with opened(blank, report.as_uri(), width, scheme):
        keep(blank, "report", width, scheme)
        assert faults(blank) == []


def test_it_is_accessible(page: Any) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed")
    found = axe.Axe().run(page).response
    assert len(found["passes"]) > 10
    assert [
        (violation["id"], [node["html"] for node in violation["nodes"]]) for violation in found["violations"]
    ] == []
