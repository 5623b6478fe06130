"""The site: built without a warning, without the network, and without anything fetched by its pages."""

from __future__ import annotations

import re

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config

from tests.worlds.docs_pages import ROOT

FETCHED = re.compile(
    r"""<(?:script|img|iframe)[^>]+src=["']https?://|<link[^>]+stylesheet[^>]+href=["']https?://"""
)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    config = load_config(str(ROOT / "mkdocs.yml"), strict=True, site_dir=str(folder))
    config.plugins.on_startup(command="build", dirty=False)
    build(config)
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
    linked = set(re.findall(r'href="([\w./-]+\.html)"', start)) | {"404.html", "index.html"}
    assert {path.relative_to(site).as_posix() for path in site.rglob("*.html")} - linked == set()


def test_the_api_page_has_the_retriever_and_the_recipes_page_every_recipe(site):
    api, recipes = ((site / name).read_text(encoding="utf-8") for name in ("api.html", "recipes.html"))
    assert "Retriever.from_folder" in api
    shipped = [path.relative_to(ROOT).as_posix() for path in (ROOT / "recipes").rglob("*.toml")]
    assert [name for name in shipped if name not in recipes] == []
