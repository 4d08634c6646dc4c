"""The page as a whole in the browser, whatever its framework."""

import base64
import io
import re
from collections import Counter

import pytest
from pypdf import PdfReader

from tests.waiting import until
from tests.watch.browser.axe import violations, violations_in_both_themes
from tests.watch.browser.cards import full_card
from tests.watch.browser.page import SOON, TWO_FRAMES, resize, set_offline


def test_during_an_outage_the_figures_are_dimmed_and_dated_and_may_be_asked_for_again(page, site):
    page.show(site.card())
    page.expected = ["503 (Service Unavailable)"]
    site.status = 503
    page.look_again()
    assert until(lambda: page.state() == "old", SOON)
    assert "Figures are " in page.text("#banner-text")
    assert re.search(r"old, of \d\d:\d\d:\d\d: the server answered 503", page.text("#banner-text"))
    assert float(page.run("return getComputedStyle(document.querySelector('main')).opacity")) < 1
    site.status = 200
    page.find("#retry").click()
    assert page.is_fresh()
    assert not page.find("#retry").is_displayed()
    assert page.run("return getComputedStyle(document.querySelector('main')).opacity") == "1"


@pytest.mark.parametrize(
    ("status", "expected"),
    [(None, "The server has not answered since TIME"), (503, "No new figures since TIME: the server answered 503")],
)
def test_without_an_answer_the_first_line_and_the_title_say_so_and_since_when(page, site, status, expected):
    page.expected = ["503 (Service Unavailable)", "ERR_INTERNET_DISCONNECTED"]
    page.show(site.card(), headline="All 2 caches are healthy", problems=[site.problem("pages")] * 2)
    page.run(
        "const real = window.setTimeout; window.pauses = [];"
        "window.setTimeout = (run, pause) => { window.pauses.push(pause); return real(run, Math.min(pause, 50)); }"
    )
    site.status = status or 200
    set_offline(page.driver, offline=status is None)
    page.look_again()
    assert until(lambda: page.state() == "old", SOON)
    line = re.sub(r"\d\d:\d\d:\d\d", "TIME", page.text("#headline"))
    assert line == expected
    assert page.driver.title == f"▲ {page.text('#headline')} \N{EN DASH} wheelcache"
    assert page.find("#status").get_attribute("data-state") == "bad"
    assert not page.all("#problems li")
    since = page.text("#headline")
    assert until(lambda: page.run("return window.pauses.length") > 8, SOON)
    assert page.run("return Math.max(...window.pauses)") <= 3000
    assert page.text("#headline") == since
    site.status = 200
    set_offline(page.driver, offline=False)
    assert until(lambda: page.text("#headline") == "All 2 caches are healthy", SOON)
    assert page.driver.title == "▲ 2 · Caches of a site \N{EN DASH} wheelcache"
    assert len(page.all("#problems li")) == 1


def test_a_message_covers_nothing(page, site):
    page.show(site.card())
    page.press("[data-action=clear]")
    assert until(lambda: page.text("#message") == "Done.", SOON)
    assert page.run(
        """
        const toast = document.getElementById("toast").getBoundingClientRect();
        return [...document.querySelectorAll("main, header.top, #overview:not([hidden])")].every((part) => {
          const box = part.getBoundingClientRect();
          return box.bottom <= toast.top || box.top >= toast.bottom;
        });
        """
    )


def test_the_page_names_its_site_and_has_an_icon_and_ways_out(page, site):
    page.show(site.card())
    assert page.driver.title == "Caches of a site \N{EN DASH} wheelcache"
    assert page.find("#home").get_attribute("href") == f"{site.url}/"
    assert page.find("link[rel=icon]").get_attribute("href") == f"{site.url}/wheelcache/icon.svg"


def show_all(page, site, *, others=8, incident=True):
    at = site.figures["at"]
    events = [
        {"at": at - 60 * each, "since": at - 60 * each, "kind": kind, "cache": "pages", "text": "by ann"}
        for each, kind in enumerate(("cleared", "load failed", "killed", "exited", "started"))
    ]
    unused = site.card("unused", is_used=False)
    cards = [full_card(site), unused, *(site.card(f"other {number}") for number in range(others))]
    problems = [site.problem("pages"), site.problem("other 1"), site.problem(None)] if incident else []
    headline = "Cache 'pages': its store is down" if incident else f"All {len(cards)} caches are healthy"
    page.show(*cards, events=events, problems=problems, headline=headline)
    page.unfold()
    page.find("[data-group] button").click()


@pytest.mark.parametrize("incident", [True, False])
def test_axe_finds_no_violation(page, site, incident):
    show_all(page, site, others=2, incident=incident)
    assert violations_in_both_themes(page.driver) == []


def test_axe_finds_no_violation_on_a_phone_in_a_dialog_and_without_caches(page, site):
    metrics = {"width": 375, "height": 780, "deviceScaleFactor": 1, "mobile": False}
    page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    show_all(page, site, others=2)
    assert violations(page.driver) == []
    page.find("[data-action=clear]").click()
    assert violations(page.driver) == []
    page.show(headline="There is no cache", problems=[])
    assert violations(page.driver) == []


@pytest.mark.parametrize("width", [360, 480, 768, 1024, 1280, 1920])
def test_at_any_width_no_heading_is_cut_no_word_is_broken_and_no_tile_is_alone(page, site, width):
    show_all(page, site, others=2)
    resize(page.driver, width, 1000)
    assert page.run(CUT) == []
    assert page.run(BROKEN) == []
    assert page.run("return document.documentElement.scrollWidth") <= width
    tops = page.run("return [...document.querySelectorAll('.tile')].map((each) => each.getBoundingClientRect().top)")
    assert sorted(Counter(tops).values()) in ([4], [2, 2])


CUT = """
    const edges = (node) => node.getBoundingClientRect();
    const isCut = (node) => node.scrollWidth > node.clientWidth + 1
      || edges(node).left < edges(node.parentElement).left - 1
      || edges(node).right > edges(node.parentElement).right + 1;
    const selector = "thead th, thead button, h1, h2, h3, .label, .title, .what, .key, .key span";
    const heads = document.querySelectorAll(selector);
    return [...heads].filter((each) => each.offsetWidth > 1 && isCut(each)).map((each) => each.textContent);
"""
"""Returns the headings and names that are wider than they may be, or that leave their parent."""

BROKEN = """
    const found = [];
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    const isHeading = (node) => node.closest("th, h1, h2, h3, button, .title, .what");
    while (texts.nextNode()) {
      const { currentNode: text } = texts;
      const parent = text.parentElement;
      const isName = parent.closest("#overview tbody, [data-group] th, [data-part=compared-groups] th, .opened code");
      if (!parent.offsetWidth || isName || parent.closest(".unseen")) continue;
      // In sentences, a line may end at a hyphen.
      for (const { 0: word, index } of text.data.matchAll(isHeading(parent) ? /\\S+/g : /[^\\s\\-\u2013\u2026]+/g)) {
        const range = document.createRange();
        range.setStart(text, index);
        range.setEnd(text, index + word.length);
        if (new Set([...range.getClientRects()].map((each) => Math.round(each.top))).size > 1) found.push(word);
      }
    }
    return found;
"""
"""Returns the words that are on two lines."""


def printed(page):
    """Return the text of each printed page."""
    sent = page.driver.execute_cdp_cmd("Page.printToPDF", {"paperWidth": 8.27, "paperHeight": 11.69})["data"]
    return [" ".join(each.extract_text().split()) for each in PdfReader(io.BytesIO(base64.b64decode(sent))).pages]


def test_on_paper_there_are_the_figures_and_no_page_is_empty(page, site):
    show_all(page, site)
    pages = printed(page)
    assert 2 <= len(pages) <= 6
    assert min(len(text.split()) for text in pages) > 20, pages
    for part in (
        "Hit ratio, with store",
        "93.0%",
        "Removals per second",
        "Circuit breaker",
        "MAX_ENTRIES",
        "Last hour",
    ):
        assert any(part in text for text in pages), part
    assert "its store is down" in pages[0]
    assert "other 7" in pages[0]


def test_on_paper_there_is_nothing_to_press(page, site):
    page.show(full_card(site))
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    for each in ('[data-action="clear"]', "#spans button", '[data-part="csv"]', '[data-part="verdict-link"]'):
        assert not page.find(each).is_displayed()
    page.driver.execute_async_script(TWO_FRAMES)
    widths = "return ['figure', 'figure canvas'].map((each) => document.querySelector(each).clientWidth)"
    figure, canvas = page.run(widths)
    assert 0 < canvas <= figure
