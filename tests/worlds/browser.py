"""Pages looked at as people and Lighthouse do: a screenshot for the artefacts, and what a page should have.

Screenshots lie in `artefacts/` of the repository (not tracked; the workflow uploads them), one for each width and
colour scheme. `faults` are the checks that need no network and no timing: title, language, viewport, description,
images with a text and a size, one main heading, nothing wider than the window, nothing that moves while it loads.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ARTEFACTS = Path(__file__).parents[2] / "artefacts"
VIEWS = [(width, scheme) for width in (1280, 390) for scheme in ("light", "dark")]
MOVED = 0.01  # a tenth of what Lighthouse calls good
WATCH = """
window.moved = {by: 0, what: []};
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) {
    if (entry.hadRecentInput) continue;
    window.moved.by += entry.value;
    window.moved.what.push(...entry.sources.map((one) => one.node?.id || one.node?.className || one.node?.nodeName));
  }
}).observe({type: 'layout-shift', buffered: true});
"""
FRAMES = """() => new Promise((done) =>
  requestAnimationFrame(() => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done))))
)"""
LOOK = """() => {
  const content = (name) => document.querySelector(`meta[name=${name}]`)?.content ?? '';
  const shown = [...document.images].filter((image) => image.offsetParent !== null);
  const named = (images) => images.map((image) => image.getAttribute('src').slice(0, 60));
  const sized = (image) => image.getAttribute('width') && image.getAttribute('height');
  const found = {
    'no title': !document.title.trim(),
    'no language': !document.documentElement.lang,
    'no viewport': !content('viewport').includes('width=device-width'),
    'no description': content('description').length < 20,
    'images without a text': named(shown.filter((image) => image.getAttribute('alt') === null)),
    'images without a size': named(shown.filter((image) => !sized(image))),
    'images not loaded': named(shown.filter((image) => image.complete && !image.naturalWidth)),
    'main headings other than one': document.querySelectorAll('h1').length !== 1,
    'wider than the window': document.documentElement.scrollWidth > window.innerWidth,
  };
  return Object.entries(found).filter(([, wrong]) => (Array.isArray(wrong) ? wrong.length : wrong));
}"""


@contextmanager
def opened(page: Any, address: str, width: int, scheme: str) -> Iterator[tuple[list[str], list[str]]]:
    """Show an address; gives the addresses that it requests, and what it says in the console or fails with.

    The same page again and again: a new one costs half a second of processor time.
    """
    requests: list[str] = []
    said: list[str] = []
    listeners = {
        "request": lambda request: requests.append(request.url),
        "console": lambda message: said.append(message.text),
        "pageerror": lambda error: said.append(str(error)),
    }
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(color_scheme=scheme)
    for event, listener in listeners.items():
        page.on(event, listener)
    page.goto(address)
    yield requests, said
    for event, listener in listeners.items():
        page.remove_listener(event, listener)
    page.goto("about:blank")


def watch(page: Any) -> None:
    """Measure from now on, in every document that the page opens, how far things move that nobody touched."""
    page.add_init_script(WATCH)


def faults(page: Any) -> list[Any]:
    """What Lighthouse would say against a page that has been loaded after `watch`."""
    page.evaluate(FRAMES)  # an observer hears of a shift one frame later
    found: list[Any] = page.evaluate(LOOK)
    moved = page.evaluate("window.moved")
    return [*found, *([("moved while loading", moved)] if moved["by"] > MOVED else [])]


def keep(page: Any, name: str, width: int, scheme: str) -> None:
    """A screenshot of the window's part of the page, for people to look at."""
    ARTEFACTS.mkdir(exist_ok=True)
    page.screenshot(path=ARTEFACTS / f"{name}-{width}-{scheme}.png")
