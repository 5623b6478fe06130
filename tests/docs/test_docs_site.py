"""The site: builds without a warning, fetches nothing from elsewhere, and its search works without a server."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys

import pytest

from tests.worlds.browser import VIEWS, faults, keep, opened, watch
from tests.worlds.docs_pages import ROOT

FETCHED = re.compile(
    r"""<(?:script|img|iframe)[^>]+src=["']https?://|<link[^>]+stylesheet[^>]+href=["']https?://"""
)
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site") / "site"
    subprocess.run([sys.executable, str(ROOT / "docs" / "build_site.py"), "--out", str(folder)], check=True)
    return folder


def test_every_page_is_there_and_fetches_nothing_from_elsewhere(site):
    pages = {
        path.relative_to(site).as_posix(): path.read_text(encoding="utf-8") for path in site.rglob("*.html")
    }
    assert {
        "index.html",
        "tutorial.html",
        "faq.html",
        "api.html",
        "recipes.html",
        "methods/condenser.html",
    } <= set(pages)
    assert [name for name, text in pages.items() if FETCHED.search(text)] == []


def test_every_page_can_be_reached_from_the_navigation(site):
    start = (site / "index.html").read_text(encoding="utf-8")
    linked = set(re.findall(r'href="(?:\./)?([\w/-]+\.html)"', start)) | {"404.html", "index.html"}
    assert {path.relative_to(site).as_posix() for path in site.rglob("*.html")} - linked == set()


def test_the_api_page_has_the_retriever_and_the_recipes_page_every_recipe(site):
    api, recipes = ((site / name).read_text(encoding="utf-8") for name in ("api.html", "recipes.html"))
    assert "Retriever.from_folder" in api
    shipped = [path.relative_to(ROOT).as_posix() for path in (ROOT / "recipes").rglob("*.toml")]
    assert [name for name in shipped if name not in recipes] == []


def test_equations_are_mathml(site):
    for path in (site / "methods").glob("*.html"):
        text = path.read_text(encoding="utf-8")
        assert re.search('<div class="equation"[^>]*><math', text), path.name
        assert r"\begin{align" not in text, path.name
        assert "images/" in text, path.name


PAPERS = ("condenser", "cocondenser", "query-as-context", "adaptive-batch-scheduling", "contriever")


@pytest.mark.parametrize("name", PAPERS)
def test_every_paper_has_a_figure_with_a_title_for_light_and_dark(name):
    figure = (ROOT / "docs" / "images" / f"{name}.svg").read_text(encoding="utf-8")
    assert "<title>" in figure
    assert "prefers-color-scheme:dark" in figure


PALETTES = {"light": "default", "dark": "slate"}


@pytest.fixture(scope="module")
def page():
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        blank = browser.new_page()
        watch(blank)
        blank.add_init_script("localStorage.clear()")  # or the palette of the first view would stay
        yield blank
        browser.close()


@pytest.mark.browser
def test_search_works_on_files_and_commands_wrap(site, page):
    from playwright.sync_api import expect

    with opened(page, (site / "example.html").as_uri(), 1280, "light"):
        cut = "[...document.querySelectorAll('pre > code')].filter(c => c.scrollWidth > c.clientWidth + 1).length"
        assert page.evaluate(cut) == 0
        page.click(".md-search__button")
        page.get_by_role("combobox").fill("momentum queue")
        hits = page.get_by_role("listbox").get_by_role("option")
        expect(hits.first).to_be_visible(timeout=60_000)
        assert "momentum" in " ".join(hits.all_inner_texts())


@pytest.mark.browser
@pytest.mark.parametrize("name", ["index", "howto/questions", "methods/cocondenser"])
@pytest.mark.parametrize("width, scheme", VIEWS)
def test_it_has_what_a_page_should_have(site, page, name, width, scheme):
    with opened(page, (site / f"{name}.html").as_uri(), width, scheme) as (requests, _):
        keep(page, f"docs-{name.rpartition('/')[2]}", width, scheme)
        assert page.evaluate("document.body.dataset.mdColorScheme") == PALETTES[scheme]
        assert faults(page) == []
        assert [url for url in requests if not url.startswith(("file:", "data:"))] == []
        if name == "methods/cocondenser":  # it has figures, equations, commands, tables of contents
            axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed")
            found = axe.Axe().run(page).response["violations"]
            assert [(rule["id"], [node["html"][:120] for node in rule["nodes"]]) for rule in found] == []
