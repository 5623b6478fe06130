"""The search page in a real browser: typed into, walked through by keyboard, read on a phone, checked for access."""

import json
import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from liebig.base import own_sources
from liebig.base.errors import DataError
from liebig.formats.ledger import Ledger
from liebig.integrations.ask import ChatModel
from liebig.search import retriever_folder
from liebig.search.retriever import Retriever
from liebig.serve.label import Labelling, label_routes
from liebig.serve.middleware import Limits
from tests.serve.conftest import running
from tests.worlds.browser import VIEWS, faults, keep, watch
from tests.worlds.chat_server import chatting

playwright = pytest.importorskip("playwright.sync_api", reason="the page is tested with Playwright")
axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="access is checked with axe")
expect = playwright.expect

CHROMIUM = Path("/usr/bin/chromium")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not CHROMIUM.exists(), reason="there is no /usr/bin/chromium to show the page with"),
]
WIDE, PHONE = {"width": 1280, "height": 860}, {"width": 390, "height": 844}
QUESTION = "growth of barley"
FOCUS = """(() => {
    const ring = (style) => style.outlineStyle !== 'none' || style.boxShadow !== 'none';
    const shown = (node) => node && ring(getComputedStyle(node));
    const node = document.activeElement;
    return [node.id || node.className || node.tagName, !!(shown(node) || shown(node.closest('label')))];
})()"""


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as started:
        made = started.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        yield made
        made.close()


@pytest.fixture(scope="module")
def blank_page(browser):
    """An empty page that remembers nothing: the same one again, since a new one costs a second of processor time."""
    pages = {}

    def blank(has_touch):
        if has_touch not in pages or pages[has_touch].is_closed():
            pages[has_touch] = browser.new_context(has_touch=has_touch).new_page()
            pages[has_touch].set_default_timeout(15_000)
            watch(pages[has_touch])
        return pages[has_touch]

    return blank


@pytest.fixture
def open_page(blank_page, server):
    """Opens a page of the server; console errors and requests to other hosts fail the test at its end."""
    used, wrong = [], []

    def opened(path="/", address=server, expected="nothing", viewport=WIDE, scheme="light", has_touch=False):
        page = blank_page(has_touch)
        page.set_viewport_size(viewport)
        page.emulate_media(color_scheme=scheme)
        listeners = {
            "console": lambda message: _keep(message, expected, wrong),
            "pageerror": lambda error: wrong.append(str(error)),
            "request": lambda request: request.url.startswith(address) or wrong.append(request.url),
        }
        for event, listener in listeners.items():
            page.on(event, listener)
        used.append((page, listeners))
        page.goto(address + path)
        return page

    yield opened
    for page, listeners in used:
        if page.is_closed():
            page.context.close()
            continue
        page.evaluate("localStorage.clear(); sessionStorage.clear()")
        page.context.clear_cookies()
        page.goto("about:blank")
        for event, listener in listeners.items():
            page.remove_listener(event, listener)
    assert wrong == []


def _keep(message, expected, wrong):
    if message.type in ("error", "warning") and expected not in message.text:
        wrong.append(message.text)


def titles(page, side=0):
    return page.locator(".column").nth(side).locator(".title").all_text_contents()


def focused(page):
    return page.evaluate("document.activeElement.closest('.hit')?.dataset.id ?? document.activeElement.id")


def answered(page, question=QUESTION):
    """Waits for the answer to the whole question, not to what was typed of it first."""
    expect(page).to_have_title(f"{question} – Liebig")
    expect(page.locator("body")).not_to_have_class(re.compile("busy"))


def until(page, condition):
    for _ in range(200):
        if page.evaluate(condition):
            return
        page.wait_for_timeout(20)
    raise AssertionError(f"never came: {condition}")


def problems(page):
    """What axe finds, over the whole of its rules."""
    found = axe.Axe().run(page).response["violations"]
    return [(rule["id"], [node["html"][:120] for node in rule["nodes"]]) for rule in found]


def test_results_come_as_one_types_with_matching_words_marked(open_page):
    page = open_page()
    page.locator("#query").press_sequentially(QUESTION, delay=5)
    answered(page)
    first = page.locator(".hit").first
    assert first.locator(".title").text_content() == "Barley"
    assert {"growth", "barley"} <= {text.lower() for text in first.locator("mark").all_text_contents()}
    assert page.locator(".column").count() == 1
    assert re.fullmatch(r"\d documents · [\d.]+ ms", page.locator("#status").text_content())
    assert page.title() == f"{QUESTION} – Liebig"


def test_no_more_is_asked_for_than_the_server_gives(open_page, serving, retriever):
    with serving(retriever, Limits(k=3)) as address:
        page = open_page(f"/?q={QUESTION}&a=dense&b=", address=address)
        answered(page)
        assert page.locator(".hit").count() == 3
        assert page.locator(".more").count() == 0


def test_a_result_shows_the_path_of_its_document(open_page):
    page = open_page(f"/?q={QUESTION}")
    shown = page.locator(".hit").first
    shown.wait_for()
    assert shown.get_attribute("data-id").startswith(
        shown.locator(".facts .id").text_content().replace("\u200b", "")
    )


def test_passages_of_one_document_stand_together(open_page, retriever):
    page = open_page(f"/?q={QUESTION}&a=dense&b=")
    page.locator(".hit").first.wait_for()
    documents = retriever.search_documents(QUESTION, 10, "dense")
    shown = [one.get_attribute("data-id") for one in page.locator(".hit").all()]
    assert shown == [result.id for document in documents for result in document.results]
    assert page.locator(".hit:not(.again)").count() == len(documents)
    numbers = page.locator(".hit .rank").all_text_contents()
    assert [number for number in numbers if number] == [str(n) for n in range(1, len(documents) + 1)]


def test_two_systems_stand_side_by_side_with_ranks_in_each_other(open_page):
    page = open_page(f"/?q={QUESTION}&a=bm25&b=dense")
    page.wait_for_selector(".hit")
    assert page.locator(".column h2").all_text_contents() == ["BM25", "Dense"]
    assert page.locator(".column").nth(1).locator(".only").first.text_content() == "not found by BM25"
    assert re.search(
        r"(▲|▼) \d+|in BM25 too|not found",
        page.locator(".column").nth(1).locator(".facts").first.text_content(),
    )


def test_one_list_is_searched_by_words_by_meaning_or_by_both(open_page):
    page = open_page(f"/?q={QUESTION}")
    page.wait_for_selector(".hit")
    by = page.get_by_role("group", name="Search by")
    assert by.locator("label").all_text_contents() == ["Words", "Meaning", "Both"]
    by.get_by_text("Words", exact=True).click()
    expect(page.locator(".hit:not(.again)")).to_have_count(1)  # the other documents have none of the words
    page.reload()
    expect(page.locator(".hit:not(.again)")).to_have_count(1)
    assert page.locator("#first input:checked").input_value() == "bm25"
    assert page.locator("#query").input_value() == QUESTION


def test_a_switch_compares_two_systems_and_the_address_keeps_them(open_page):
    page = open_page(f"/?q={QUESTION}")
    page.wait_for_selector(".hit")
    page.get_by_role("switch", name="Compare two systems").click()
    expect(page.locator(".column h2")).to_have_text(["Hybrid", "BM25"])
    page.get_by_role("group", name="beside").get_by_text("Dense").click()
    expect(page.locator(".column h2")).to_have_text(["Hybrid", "Dense"])
    page.reload()
    expect(page.locator(".column h2")).to_have_text(["Hybrid", "Dense"])
    page.get_by_role("switch", name="Compare two systems").click()
    expect(page.locator(".column")).to_have_count(1)
    assert "b=" not in page.url


NAMES = ["first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth"]
TODAY = datetime.now(UTC).isoformat(timespec="seconds")
LONG = {
    "guide.md": ("Guide", "en", [("", [f"The {n} chapter is about **barley** and `potash`." for n in NAMES])],
                 {"type": "md", "modified": "2020-01-01T00:00:00+00:00", "path": "guide.md"}),
    "note.md": ("Note", "en", [("", ["A note about barley."])],
                {"type": "md", "modified": TODAY, "path": "note.md", "shelf": "top"}),
    "page.html": ("Page", "en", [("", ["Barley on a web page that would like to run scripts."])],
                  {"type": "html", "modified": TODAY, "date": "2021-01-01", "path": "page.html"}),
}  # fmt: skip


@pytest.fixture(scope="module")
def files(tmp_path_factory, new_generation):
    """A retriever of files that are really there, one of them with nine passages, and one that was not read."""
    top = tmp_path_factory.mktemp("files")
    source, out = top / "source", top / "out"
    source.mkdir()
    (source / "guide.md").write_text("# Guide\n\n" + "\n\n".join(LONG["guide.md"][2][0][1]) + "\n")
    (source / "note.md").write_text("# Note\n\nA note about barley.\n")
    body = "Barley on a web page that would like to run scripts."
    (source / "page.html").write_text(
        f"<title>Page</title><p>{body}</p><script>document.title = 'run'</script>"
    )
    (top / "secret.md").write_text("not indexed")
    new_generation(out, LONG, 1)
    now = retriever_folder.read(out)
    retriever_folder.write(out, replace(now, more={"sources": [str(source)]}))
    assert own_sources.note([str(source)]) == ""
    ledger = Ledger(strict=False)
    ledger.skip(DataError("is not a zip file", file=f"{source}/broken.docx"))
    (out / "files.json").write_text(json.dumps(ledger.summary()))
    (out / "skipped.txt").write_text("".join(f"{line}\n" for line in ledger.listing()))
    return out


@pytest.fixture(scope="module")
def files_server(files):
    with running(Retriever.from_folder(files)) as address:
        yield address


def test_three_passages_of_a_document_are_shown_and_the_others_on_request(open_page, files_server):
    page = open_page("/?q=barley chapter&a=bm25", address=files_server)
    page.wait_for_selector(".hit")
    guide = page.locator(".hit:visible:not(.again)").first.locator("xpath=ancestor::ol")
    assert guide.locator(".title", has_text="Guide").count() == 1
    assert page.locator(".hit:visible").count() == 3 + 2
    page.get_by_role("button", name="6 more in this document").click()
    assert page.locator(".hit:visible").count() == 9 + 2
    assert page.locator(".hit .rank").all_text_contents() == ["1", *[""] * 8, "2", "3"]
    assert page.evaluate("document.activeElement.closest('.hit') === document.querySelectorAll('.hit')[3]")


def test_snippets_have_no_markup(open_page, files_server):
    page = open_page("/?q=barley chapter&a=bm25", address=files_server)
    text = page.locator(".hit .text").first.text_content()
    assert "is about barley and potash." in text


def test_the_original_file_opens_at_the_passage(open_page, files_server):
    page = open_page("/?q=seventh chapter&a=bm25", address=files_server)
    hit = page.locator(".hit:visible").first
    with page.context.expect_page() as opened:
        hit.get_by_role("link", name="guide.md").click()
    original = opened.value
    original.wait_for_selector("#passage")
    assert original.title() == "guide.md"
    assert original.locator("#passage").text_content().startswith("The seventh chapter")
    assert original.locator("mark").count() == 1
    assert original.locator("li").nth(0).text_content() == "# Guide"
    original.close()


def test_nothing_of_an_original_runs(open_page, files_server):
    page = open_page("/?q=web page&a=bm25", address=files_server, expected="sandboxed")
    page.goto(files_server + page.locator(".hit a.id").first.get_attribute("href"))
    assert page.title() == "Page"
    assert "Barley on a web page" in page.locator("p").text_content()
    page.goto(files_server)  # what is stored can be cleared there, and not in a sandbox


def test_an_open_document_has_an_address_of_its_own(open_page, files_server):
    page = open_page("/?q=note barley&a=bm25", address=files_server)
    page.locator(".title", has_text="Note").click()
    page.wait_for_selector("#reader[open]")
    assert "read=note.md" in page.url
    expect(page).to_have_title("Note – Liebig")
    page.goto(page.url)
    page.wait_for_selector("#reader[open]")
    assert page.locator("#reader-title").text_content() == "Note"
    assert page.get_by_role("link", name="Open the original file").is_visible()
    page.keyboard.press("Escape")
    expect(page).to_have_title("note barley – Liebig")
    expect(page).not_to_have_url(re.compile("read="))  # it went back, which takes longer than closing
    page.go_forward()
    page.wait_for_selector("#reader[open]")


def test_what_was_not_read_is_told(open_page, files_server):
    page = open_page("/", address=files_server)
    page.get_by_role("button", name="About").click()
    page.wait_for_selector("#collection[open]")
    assert page.locator("#collection-unread td").all_text_contents() == ["1", ".docx", "is not a zip file"]
    assert page.locator("#collection-unread li").all_text_contents() == ["broken.docx: is not a zip file."]
    assert problems(page) == []


def test_a_document_opens_with_the_passage_marked(open_page):
    page = open_page("/?q=potassium harvest&a=bm25&b=")
    page.locator(".title").first.click()
    page.wait_for_selector("#reader[open]")
    assert page.locator("#reader-title").text_content() == "Barley"
    assert page.locator("#reader-text h3").all_text_contents() == ["Growth", "Harvest"]
    marked = "Nitrogen, phosphorus and potassium are taken from the ground by every harvest."
    assert page.locator("#reader-text mark").all_text_contents() == [marked]
    assert page.locator("#reader-text mark").is_visible()
    page.get_by_role("button", name="Close the document").click()
    assert not page.locator("#reader").is_visible()


def test_going_back_closes_the_document_and_keeps_the_results(open_page):
    page = open_page(f"/?q={QUESTION}&a=bm25&b=")
    page.locator(".title").first.click()
    page.wait_for_selector("#reader[open]")
    page.go_back()
    expect(page.locator("#reader")).not_to_be_visible()
    assert page.locator("#query").input_value() == QUESTION
    page.locator(".title").first.click()
    page.wait_for_selector("#reader[open]")
    page.keyboard.press("Escape")
    expect(page.locator("#reader")).not_to_be_visible()
    until(page, "!history.state?.reader")  # going back takes the browser a moment
    assert page.locator(".hit").count() > 0


def test_what_is_chosen_while_the_browser_still_goes_back_stays_chosen(open_page):
    page = open_page(f"/?q={QUESTION}&a=hybrid&b=")
    page.locator(".title").first.click()
    page.wait_for_selector("#reader[open]")
    page.evaluate(
        "() => { const back = history.back.bind(history);"
        " history.back = () => setTimeout(() => { back(); window.left = true; }, 300); }"
    )
    page.keyboard.press("Escape")
    page.keyboard.press("1")
    until(page, "window.left && !history.state?.reader")
    page.wait_for_timeout(100)
    expect(page.locator(".column")).to_have_attribute("aria-labelledby", "list-bm25")
    assert page.locator("#first input:checked").input_value() == "bm25"
    assert "a=bm25" in page.url


def test_whoever_stands_on_a_result_stays_there_when_the_lists_change(open_page):
    page = open_page(f"/?q={QUESTION}&a=hybrid&b=")
    page.wait_for_selector(".hit")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    stood = focused(page)
    page.keyboard.press("1")
    expect(page.locator(".column")).to_have_attribute("aria-labelledby", "list-bm25")
    found = [hit.get_attribute("data-id") for hit in page.locator(".hit").all()]
    assert focused(page) == (stood if stood in found else found[0])


def test_why_a_passage_matched_is_shown_word_by_word(open_page):
    page = open_page(f"/?q={QUESTION}&a=hybrid&b=")
    page.get_by_role("button", name="Why?").first.click()
    page.wait_for_selector(".because .sum")
    assert page.locator(".because h3").all_text_contents() == ["By meaning (dense)", "By words (BM25)"]
    shaded = page.locator(".because .shaded").nth(1).locator("span").all_text_contents()
    assert {"growth", "barley"} <= set(shaded)
    assert "Raises the score: growth +" in page.locator(".because .sum").nth(1).text_content()


def test_the_keyboard_alone_suffices(open_page):
    page = open_page("/?a=hybrid&b=dense")
    assert focused(page) == "query"
    page.keyboard.type(QUESTION)
    answered(page)
    page.keyboard.press("ArrowDown")
    first = focused(page)
    page.keyboard.press("ArrowDown")
    second = focused(page)
    assert [first, second] == [page.locator(".hit").nth(i).get_attribute("data-id") for i in (0, 1)]
    page.keyboard.press("ArrowRight")
    assert page.evaluate(
        "document.activeElement.closest('.column') === document.querySelectorAll('.column')[1]"
    )
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("w")
    page.wait_for_selector(".because .sum")
    page.keyboard.press("Enter")
    page.wait_for_selector("#reader[open]")
    assert focused(page) == "reader-text"
    page.keyboard.press("Escape")
    page.wait_for_selector("#reader", state="hidden")
    assert focused(page) == second
    page.keyboard.press("1")
    expect(page.locator(".column h2").first).to_have_text("BM25")
    page.keyboard.press("?")
    page.wait_for_selector("#keys[open]")
    page.keyboard.press("Escape")
    page.keyboard.press("/")
    assert focused(page) == "query"


def test_every_control_is_reached_by_tab_and_shows_its_focus(open_page):
    page = open_page(f"/?q={QUESTION}&a=hybrid&b=bm25")
    page.wait_for_selector(".hit")
    page.locator(".skip").focus()
    seen = []
    for _ in range(14):
        page.keyboard.press("Tab")
        seen.append(page.evaluate(FOCUS))
    assert {"query", "show-keys", "title", "why"} <= {name for name, _ in seen}
    assert [name for name, shown in seen if not shown] == []


def test_nothing_found_is_explained_on_the_page(open_page):
    page = open_page("/?q=the zymurgy&a=bm25&b=")
    page.wait_for_selector(".nothing")
    said = page.locator(".nothing").text_content()
    assert "No passage contains the word “zymurgy”" in said
    assert "Too common to search by: the." in said


def test_filters_stand_beside_the_list_with_counts(open_page, files_server):
    page = open_page("/?q=barley&a=hybrid", address=files_server)
    page.wait_for_selector(".hit")
    kind = page.get_by_role("group", name="Type")
    assert kind.locator("label").all_text_contents() == ["md2", "html1"]
    assert page.get_by_role("group", name="Language").count() == 0  # all documents have the same
    kind.get_by_label("html").check()
    expect(page.locator(".hit")).to_have_count(1)
    assert kind.locator("label").all_text_contents() == ["html1", "md2"], "the others can still be chosen"
    kind.get_by_label("md").check()
    expect(page.locator(".hit:not(.again)")).to_have_count(3)
    assert page.url.count("f=type") == 2
    page.reload()
    page.wait_for_selector(".hit")
    page.get_by_role("button", name="Remove the filter type: md").click()
    expect(page.locator(".hit")).to_have_count(1)
    assert problems(page) == []


def test_documents_of_the_last_days_alone_are_shown_on_request(open_page, files_server):
    page = open_page("/?q=barley&a=bm25", address=files_server)
    page.get_by_role("group", name="Date").get_by_label("Past week").check()
    expect(page.locator(".hit .title")).to_have_text(["Note"])
    assert "days=7" in page.url


def test_the_newest_documents_come_first_on_request(open_page, files_server):
    page = open_page("/?q=barley&a=bm25", address=files_server)
    page.get_by_role("group", name="First").get_by_text("Newest").click()
    expect(page.locator(".hit:not(.again) .title")).to_have_text(["Note", "Page", "Guide"])
    assert page.locator(".hit time").first.text_content() == TODAY[:10]
    page.reload()
    expect(page.locator(".hit:not(.again) .title")).to_have_text(["Note", "Page", "Guide"])


def test_what_was_probably_meant_is_offered(open_page, files_server):
    page = open_page("/?q=barlye&a=bm25", address=files_server)
    page.get_by_role("button", name="barley").click()
    page.wait_for_selector(".hit")
    assert page.locator("#query").input_value() == "barley"
    assert not page.locator("#notes").is_visible()


def test_a_question_that_nothing_fits_gets_no_hits(open_page, files_server):
    page = open_page("/?q=xyzzyqwert&a=hybrid", address=files_server)
    page.wait_for_selector(".nothing")
    assert page.locator(".hit").count() == 0
    assert "Nothing here seems to fit the question." in page.locator(".nothing").text_content()
    page.get_by_role("button", name="Show the nearest anyway").click()
    page.wait_for_selector(".hit")


def test_the_query_language_works_and_what_is_not_understood_is_said(open_page, files_server):
    page = open_page("/?q=barley -note type:md&a=hybrid", address=files_server)
    expect(page.locator(".hit:not(.again) .title")).to_have_text(["Guide"])
    page.locator("#query").fill("barley colour:red")
    expect(page.locator("#notes")).to_contain_text("colour: is not a field")


def test_a_field_of_a_result_becomes_a_filter(open_page, files_server):
    page = open_page("/?q=barley&a=bm25", address=files_server)
    page.get_by_role("button", name="Only shelf: top").click()
    expect(page.locator(".hit .title")).to_have_text(["Note"])
    page.get_by_role("button", name="Remove the filter shelf: top").click()
    expect(page.locator(".hit:not(.again)")).to_have_count(3)


def test_on_a_phone_the_filters_are_folded_above_the_list(open_page, files_server):
    page = open_page("/?q=barley&a=hybrid", address=files_server, viewport=PHONE, scheme="dark")
    page.wait_for_selector(".hit")
    assert not page.get_by_role("checkbox", name="html").is_visible()
    page.locator("#facets summary").first.click()
    page.get_by_role("checkbox", name="html").check()
    expect(page.locator(".hit")).to_have_count(1)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    keep(page, "page-filters", 390, "dark")
    assert problems(page) == []


@pytest.fixture
def answering(files):
    """A server with a language model that cites a source there is and one there is not."""
    with chatting("Barley needs potash [1], it is said [99].") as chat:
        llm = ChatModel(chat.url, "tiny")
        with running(Retriever.from_folder(files), llm=llm) as address:
            yield address


def test_a_language_model_answers_with_citations_that_open(open_page, answering):
    page = open_page("/?q=barley&a=hybrid", address=answering)
    page.get_by_role("button", name="Let tiny answer from these documents").click()
    expect(page.locator("#answer .said")).to_have_text("Barley needs potash [1], it is said [?].")
    expect(page.locator("#answer .problem")).to_contain_text("cites [99]")
    assert page.locator("#answer li").count() == 1
    assert problems(page) == []
    page.locator("#answer .said button").click()
    page.wait_for_selector("#reader[open]")


def test_without_a_language_model_no_answer_is_offered(open_page, files_server):
    page = open_page("/?q=barley&a=hybrid", address=files_server)
    page.wait_for_selector(".hit")
    assert not page.locator("#answer").is_visible()


def test_what_a_document_says_is_never_markup(open_page):
    page = open_page("/?q=Halley&a=bm25&b=")
    page.wait_for_selector(".hit")
    assert "<b>bright</b> & early" in page.locator(".hit .text").first.text_content()
    assert page.locator(".hit b").count() == 0


def test_on_a_phone_one_list_is_shown_at_a_time_and_nothing_is_cut_off(open_page):
    page = open_page(f"/?q={QUESTION}&a=bm25&b=dense", viewport=PHONE, has_touch=True)
    page.wait_for_selector(".hit")
    assert page.locator(".column:visible").count() == 1
    page.get_by_role("group", name="List shown").get_by_text("Dense").click()
    assert page.locator(".column:visible h2").text_content() == "Dense"
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.locator(".column:visible .title").first.click()
    page.wait_for_selector("#reader[open]")
    box = page.locator("#reader").bounding_box()
    assert (box["width"], box["height"]) == (PHONE["width"], PHONE["height"])


def test_a_token_is_asked_for_once(open_page, serving, retriever):
    with serving(retriever, token="s3cret") as address:
        page = open_page("/", address=address, expected="401")
        page.locator("#token").fill("s3cret")
        page.get_by_role("button", name="Continue").click()
        page.locator("#query").fill("comet")
        page.wait_for_selector(".hit")
        page.reload()
        page.wait_for_selector(".hit")
        assert not page.locator("#token").is_visible()
        page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("viewport", [WIDE, PHONE], ids=["wide", "phone"])
def test_nothing_stands_in_the_way_of_access(open_page, scheme, viewport):
    page = open_page(f"/?q={QUESTION}&a=bm25&b=hybrid", scheme=scheme, viewport=viewport)
    page.wait_for_selector(".hit")
    page.get_by_role("button", name="Why?").first.click()
    page.wait_for_selector(".because .sum")
    assert problems(page) == []
    page.locator(".title:visible").first.click()
    page.wait_for_selector("#reader[open]")
    assert problems(page) == []
    page.keyboard.press("Escape")
    page.locator("#query").fill("zymurgy")
    page.wait_for_selector(".nothing")
    assert problems(page) == []
    page.locator("#query").fill("")
    page.wait_for_selector(".welcome")
    assert problems(page) == []


@pytest.mark.parametrize("path", ["/", f"/?q={QUESTION}", "/docs"], ids=["start", "search", "api"])
@pytest.mark.parametrize("width, scheme", VIEWS)
def test_it_has_what_a_page_should_have(open_page, path, width, scheme, request):
    page = open_page(path, viewport={"width": width, "height": 860}, scheme=scheme)
    page.wait_for_selector(".welcome, .hit, .route")
    keep(page, f"page-{request.node.callspec.id.split('-')[-1]}", width, scheme)
    assert faults(page) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_api_page_lists_every_route_and_tries_one(open_page, scheme):
    page = open_page("/docs", scheme=scheme)
    page.wait_for_selector(".route")
    headings = set(page.locator(".route h3").all_text_contents())
    assert {"POST/search", "POST/v1/embeddings", "GET/health"} <= headings
    embed = page.locator(".route", has=page.get_by_role("heading", name="/embed", exact=False)).first
    embed.get_by_text("Try it").click()
    embed.get_by_role("button", name="Send").click()
    expect(embed.locator("details pre")).to_contain_text("[")
    assert problems(page) == []


@pytest.fixture
def labelling(tmp_path, serving, retriever):
    """A server with the page to label, two questions, and its file of judgements."""
    (tmp_path / "questions.txt").write_text("growth of barley\nwhat is a comet\n")

    def opened():
        return Labelling.open(retriever.folder, tmp_path / "questions.txt", tmp_path / "judgements.jsonl")

    made = opened()
    with serving(retriever, more=lambda engine: label_routes(engine, made)) as address:
        yield address, made, opened


def lines_of(made):
    return [json.loads(line) for line in made.file.read_text().splitlines()] if made.file.exists() else []


def test_passages_are_judged_with_single_keys_and_saved_at_once(open_page, labelling):
    address, made, opened = labelling
    page = open_page("/label", address=address)
    expect(page.locator("#question")).to_have_text("growth of barley")
    ids = [item.get_attribute("data-id") for item in page.locator("#passages > li").all()]
    assert len(ids) == len(set(ids)) > 3
    expect(page.locator("#passages > li").first).to_be_focused()
    page.keyboard.press("y")
    expect(page.locator("#passages > li").nth(1)).to_be_focused()
    expect(page.locator("#progress")).to_contain_text(
        "1 question judged, 1 with a relevant passage · 1 judgement"
    )
    page.keyboard.press("n")
    page.keyboard.press("s")
    page.keyboard.press("y")
    expect(page.locator("#progress")).to_contain_text("3 judgements")
    page.keyboard.press("u")
    expect(page.locator("#progress")).to_contain_text("2 judgements")
    expect(page.locator("#passages > li").nth(3)).to_have_attribute("data-relevance", "")
    said = [(row["passage"], row["relevance"]) for row in lines_of(made)]
    assert said == [(ids[0], 1), (ids[1], 0), (ids[3], 1), (ids[3], None)]
    page.keyboard.press("Enter")
    expect(page.locator("#question")).to_have_text("what is a comet")
    page.keyboard.press("p")
    expect(page.locator("#question")).to_have_text("growth of barley")
    expect(page.locator("#passages > li").first).to_have_attribute("data-relevance", "1")
    again = opened()
    assert again.first == 1, "another session goes on with what is not judged"
    assert again.grades["growth of barley"] == {ids[0]: 1, ids[1]: 0}


def test_nothing_else_answers_is_said_with_one_key_and_undone_with_one(open_page, labelling):
    address, _, opened = labelling
    page = open_page("/label", address=address)
    passages = page.locator("#passages > li")
    expect(passages.first).to_be_focused()
    assert page.locator("#nothing").text_content() == "Nothing answers this"
    page.keyboard.press("y")
    expect(page.locator("#nothing")).to_have_text("Nothing else answers this")
    count = passages.count()
    page.keyboard.press("x")
    expect(page.locator("#question")).to_have_text("what is a comet")
    grades = opened().grades["growth of barley"]
    assert (len(grades), sum(grades.values())) == (count, 1)
    page.get_by_role("button", name="Nothing answers this").click()
    expect(page.locator("#progress")).to_contain_text("2 questions judged, 1 with a relevant passage")
    page.keyboard.press("u")
    expect(page.locator("#progress")).to_contain_text("1 question judged")
    assert "what is a comet" not in {text for text, said in opened().grades.items() if said}


def test_a_passage_to_judge_names_its_file(open_page, files, files_server, tmp_path):
    made = Labelling(tmp_path / "j.jsonl", ["seventh chapter"])
    with running(Retriever.from_folder(files), more=lambda engine: label_routes(engine, made)) as address:
        page = open_page("/label", address=address)
        page.wait_for_selector("#passages > li")
        names = set(page.locator("#passages .file a").all_text_contents())
        assert names == {"guide.md", "note.md", "page.html"}
        assert problems(page) == []


def test_a_question_is_added_on_the_page(open_page, labelling):
    address, made, _ = labelling
    page = open_page("/label", address=address)
    page.locator("#another").fill("strings of a violin")
    page.get_by_role("button", name="Add").click()
    expect(page.locator("#question")).to_have_text("strings of a violin")
    expect(page.locator("#progress")).to_contain_text("Question 3 of 3")
    page.get_by_role("button", name="Not relevant").first.click()
    expect(page.locator("#progress")).to_contain_text("1 judgement")
    assert lines_of(made)[0]["question"] == "strings of a violin"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_to_label_is_accessible(open_page, labelling, scheme):
    page = open_page("/label", address=labelling[0], scheme=scheme)
    page.wait_for_selector("#passages > li")
    page.keyboard.press("y")
    page.keyboard.press("n")
    expect(page.locator("#progress")).to_contain_text("2 judgements")
    assert problems(page) == []
