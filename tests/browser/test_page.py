"""The page as a whole in the browser, whatever its framework."""

import base64
import io
import re
from itertools import product

import pytest
from pypdf import PdfReader

from tests.browser.axe import violations, violations_in_both_themes
from tests.browser.page import SOON, resize, set_offline
from tests.waiting import until


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
    page.press("#reset")
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
    assert "README.md" in page.find("#docs").text
    assert page.find("link[rel=icon]").get_attribute("href") == f"{site.url}/wheelcache/icon.svg"


def full_card(site, name="pages"):
    """Return a cache that has every part of the details."""
    calls = {"reads": 100, "writes": 100, "write_ms": 5.0, "errors": 8, "refused": 6}
    store = {
        "hits": 50,
        "misses": 46,
        **calls,
        "breakers": 2,
        "open_breakers": 1,
        "trackers": 2,
        "trusted": 1,
    }
    card = site.card(
        name,
        total={"hits": 900, "stale_hits": 40, "misses": 60, "entries": 5, "max_entries": 10, "answered_ratio": 0.9},
    )
    card["total"] |= {"bytes": 2048, "max_bytes": 4096, "loads": 7, "load_failures": 3}
    card["now"] = {"hit_ratio": 0.9, "answered_ratio": 0.93, "stale_ratio": 0.04, "requests_per_second": 16.6}
    card |= {
        "history": site.history(stale_ratio=0.04, started=[0] * 20 + [2] + [0] * 9),
        "times": site.times((0, 5, 9), (0, 50, 90)),
        "store": store,
        "pages": {
            **dict.fromkeys(("fresh", "stale", "revalidated", "collapsed", "bytes_sent", "stored"), 5),
            "variants_removed": 9,
            "not_stored": {"set-cookie": 30, "private": 3},
            "not_stored_paths": {"set-cookie": {"/basket": 25, "/login": 5}},
            "full_variants": {"user-agent": {"/news": 9}},
        },
        "settings": [["MAX_ENTRIES", "10", False, "the most that are kept"], ["JITTER", "0.05", True, "a share"]],
        "workers": [site.worker(card, pid) for pid in (7, 8)],
    }
    card["workers"][0]["breaker_open"] = True
    return card


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
    page.run("for (const each of document.querySelectorAll('details')) each.open = true")
    assert until(lambda: page.all("section.card .chart-table tbody tr"), SOON)


@pytest.mark.parametrize("incident", [True, False])
def test_axe_finds_no_violation(page, site, incident):
    show_all(page, site, others=2, incident=incident)
    assert violations_in_both_themes(page.driver) == []


def test_axe_finds_no_violation_on_a_phone_in_a_dialog_and_without_caches(page, site):
    metrics = {"width": 375, "height": 780, "deviceScaleFactor": 1, "mobile": False}
    page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    show_all(page, site, others=2)
    assert violations(page.driver) == []
    page.find("#reset").click()
    assert violations(page.driver) == []
    page.show(headline="There is no cache", problems=[])
    assert violations(page.driver) == []


def test_at_any_width_headings_are_whole_names_are_not_broken_and_no_tile_is_alone(page, site):
    group = {**GROUP, "name": "report"}
    stores = [full_card(site, "tiered")["store"], None]
    cards = [{**full_card(site, f"cache {n}"), "groups": [group], "store": store} for n, store in enumerate(stores)]
    for card in cards:
        card["recent"] |= {"failures": 12, "store_errors": 3, "evictions_per_second": 1234.5}
    page.show(*cards, problems=[])
    for card, width in product(cards, WIDTHS):
        page.select(card["name"])
        resize(page.driver, width, 1000)
        shown = page.run(LAYOUT)
        assert shown["wider"] == [], width
        assert shown["lines"] == [1], width
        assert shown["tiles"].count(1) in (0, len(shown["tiles"])) or shown["tiles"][0] == 1, width


WIDTHS = [360, 480, 768, 900, 1024, 1100, 1280, 1600, 1920]

GROUP = {
    **dict.fromkeys(("requests", "hits", "misses", "puts", "loads", "bytes"), 123_456),
    **dict.fromkeys(("load_seconds", "hour_seconds"), 4567.0),
    "hit_ratio": 0.547,
    "misses_by_cause": {"new or long gone": 50, "written by another process": 10},
}

LAYOUT = """
    const shown = (selector) => [...document.querySelectorAll(selector)].filter((each) => each.offsetWidth);
    const edges = (node) => node.getBoundingClientRect();
    const isWider = (node) => edges(node).left < edges(node.parentElement).left - 1
      || edges(node).right > edges(node.parentElement).right + 1;
    const lineHeight = (node) => parseFloat(getComputedStyle(node).lineHeight);
    const rows = new Map();
    for (const tile of shown(".now > .tile")) rows.set(edges(tile).top, (rows.get(edges(tile).top) ?? 0) + 1);
    return {
      wider: shown("#overview thead button").filter(isWider).map((each) => each.textContent),
      lines: shown(".groups tbody th").map((each) => Math.round(each.clientHeight / lineHeight(each))),
      tiles: [...rows.values()],
    };
"""


def printed(page):
    """Return the text of each printed page."""
    sent = page.driver.execute_cdp_cmd("Page.printToPDF", {"paperWidth": 8.27, "paperHeight": 11.69})["data"]
    return [" ".join(each.extract_text().split()) for each in PdfReader(io.BytesIO(base64.b64decode(sent))).pages]


def test_on_paper_there_are_the_figures_and_no_page_is_empty(page, site):
    show_all(page, site)
    pages = printed(page)
    assert 2 <= len(pages) <= 6
    assert min(len(text.split()) for text in pages) > 20, pages
    for part in ("Either tier, last minute", "93.0%", "Removals per second", "Circuit breaker", "MAX_ENTRIES"):
        assert any(part in text for text in pages), part
    assert "its store is down" in pages[0]
    assert "other 7" in pages[0]


def test_on_paper_there_is_nothing_to_press(page, site):
    page.show(full_card(site))
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    for each in ("#reset", '[data-action="clear"]', "#span"):
        assert not page.find(each).is_displayed()
    assert page.find('figure[data-chart="entries"] svg').is_displayed()
