"""The first line, the table of caches and the events in the browser: whether there is a problem, and where."""

import re

import pytest

from tests.waiting import until
from tests.watch.browser.page import SOON

DETAILS = (
    *("workers", "history", "times", "settings", "sentence", "marks", "total", "groups"),
    *("comparison", "store", "pages", "rehearsal"),
)


def brief(site, name, **parts):
    """Return the figures of a cache without details."""
    return {key: value for key, value in site.card(name, **parts).items() if key not in DETAILS}


def show_25(page, site, **figures):
    def cache(number):
        card = brief(site, f"cache {number:02}", now={"entries": number})
        card["figures"] |= {"hit_ratio": 1 - number / 100, "stale_ratio": 0.0, "requests_per_second": 1.0 + number % 5}
        return card

    page.show(*map(cache, range(1, 26)), **figures)


def first_line(page):
    """Return the text at the top of the page, up to the end of the first line."""
    return page.find("body").text.splitlines()[0]


def test_the_first_line_says_that_all_is_well(page, site):
    page.show(site.card(), headline="Cache 'pages' is healthy", problems=[])
    assert first_line(page) == "Cache 'pages' is healthy"
    assert not page.all("#problems li")
    assert page.run("return document.title") == "Caches of a site \N{EN DASH} wheelcache"


def test_the_first_line_states_the_worst_problem_and_the_others_follow(page, site):
    problems = [site.problem("b"), site.problem("a", "it is late"), site.problem(None, "worker 7 ended")]
    page.show(site.card("b"), site.card("a"), site.card("c"), headline="Cache 'b': it is bad", problems=problems)
    assert first_line(page) == "Cache 'b': it is bad"
    assert [each.text for each in page.all("#problems li")] == ["Cache 'a': it is late", "worker 7 ended"]
    assert page.run("return document.title").startswith("▲ 3 · Caches of")
    assert [each.get_attribute("data-row") for each in page.all("[data-problem]")] == ["b", "a"]
    page.find("#problems button").click()
    assert page.find("section[data-cache]").get_attribute("data-cache") == "a"
    site.figures |= {"headline": "All 3 caches are healthy", "problems": []}
    page.look_again()
    assert until(lambda: first_line(page) == "All 3 caches are healthy", SOON)
    assert page.text("#announcer") == "All 3 caches are healthy"


def test_advice_is_below_the_problems(page, site):
    page.show(site.card(), advice=["Cache 'pages': <b>expires</b>."], problems=[])
    assert [each.text for each in page.all("#advice li")] == ["Cache 'pages': <b>expires</b>."]
    site.figures["advice"] = []
    page.look_again()
    assert until(lambda: not page.all("#advice li"), SOON)


def test_caches_come_in_the_order_of_the_server_which_is_that_of_their_problems(page, site):
    page.show(site.card("z"), site.card("a"), problems=[site.problem("z")])
    assert page.caches() == ["z", "a"]
    assert page.find("section[data-cache]").get_attribute("data-cache") == "z"


def test_25_caches_are_25_lines_of_one_table_that_can_be_sorted_and_filtered(page, site):
    show_25(page, site)
    assert len(page.caches()) == 25
    assert {each.size["height"] <= 40 for each in page.all("#overview tbody tr")} == {True}
    assert len(page.all("section[data-cache]")) == 1

    def sort(column):
        page.find(f'#overview thead [data-column="{column}"] button').click()

    sort("hit_ratio")
    assert page.caches()[0] == "cache 01"
    sort("hit_ratio")
    assert page.caches()[0] == "cache 25"
    sort("requests")
    assert page.caches()[:2] == ["cache 04", "cache 09"]
    assert page.find('#overview [aria-sort="descending"]').text.startswith("Look-ups/s")
    sort("name")
    assert page.caches()[0] == "cache 01"
    assert page.find('#overview [aria-sort="ascending"]').text.startswith("Cache")
    page.find("#filter").send_keys("CACHE 2")
    assert page.caches() == [f"cache {number}" for number in range(20, 26)]
    assert page.text("#matches") == "6 of 25 caches"


def test_details_are_those_of_the_selected_cache_and_its_address_can_be_kept(page, site):
    show_25(page, site)
    site.asked.clear()
    site.figures["caches"][23] |= {key: site.card()[key] for key in DETAILS}
    page.select("cache 24")
    assert site.asked[-1].endswith("?details=cache+24&span=3600")
    assert page.figure("memory", "cache 24") == "24"
    assert page.find("#overview [data-selected]").get_attribute("data-row") == "cache 24"
    assert page.run("return location.hash") == "#cache=cache+24&span=3600"
    page.driver.refresh()
    assert page.is_fresh()
    assert page.find("section[data-cache]").get_attribute("data-cache") == "cache 24"


def test_an_address_with_a_cache_that_is_gone_shows_another_one(page, site):
    page.show(site.card("here"))
    page.driver.get("about:blank")
    page.driver.get(f"{site.url}/wheelcache/#cache=gone")
    assert page.is_fresh()
    assert page.find("section[data-cache]").get_attribute("data-cache") == "here"


def test_a_line_shows_the_figures_of_the_span_and_their_course(page, site):
    course = {"answered_ratio": [0.5] * 60, "stale_ratio": [0.2] * 60, "requests_per_second": [30.0] * 60}
    card = site.card(
        figures={
            "hit_ratio": 0.4,
            "answered_ratio": 0.5,
            "stale_ratio": 0.2,
            "requests_per_second": 30.0,
            "evictions_per_second": 2.5,
            "load_failures": 7,
            "store_errors": 5,
        },
        now={"entries": 50, "max_entries": 200, "bytes": 3 << 20},
        recent=course,
    )
    page.show(card, site.card("other"))
    cells = {each.get_attribute("data-column"): each for each in page.all('[data-row="pages"] td')}
    assert {name: cell.text for name, cell in cells.items()} == {
        "hit_ratio": "50.0%",
        "stale_ratio": "20.0%",
        "requests": "30",
        "entries": "50",
        "full": "25.0%",
        "memory": "3 MiB",
        "evictions": "2.5",
        "failures": "7",
        "store_errors": "5",
        "workers": "1",
    }
    lines = {name: len(page.all(f'[data-row="pages"] [data-column="{name}"] path.spark')) for name in cells}
    assert {name: number for name, number in lines.items() if number} == {"hit_ratio": 2, "requests": 1}


def test_a_column_of_zeros_is_folded(page, site):
    page.show(site.card(figures={"hit_ratio": 1.0, "stale_ratio": 0.0, "requests_per_second": 1.0}))
    shown = {each.get_attribute("data-column") for each in page.all("#overview thead th") if each.is_displayed()}
    assert not shown & {"stale_ratio", "memory", "evictions", "failures", "store_errors"}
    assert {"name", "hit_ratio", "requests", "entries"} <= shown


def test_a_cache_that_was_never_used_says_so(page, site):
    page.show(site.card("used"), site.card("unused", is_used=False))
    row = page.find('[data-row="unused"]')
    assert "never used" in row.text
    assert row.size["height"] <= 40


def test_a_site_without_a_cache_is_told_that_none_is_configured(page):
    page.show(headline="There is no cache")
    assert page.find("#empty").text.startswith("This site has no wheelcache cache.")
    assert not page.find("#overview").is_displayed()


def events(site, number):
    at = site.figures["at"]
    return [
        {"at": at - each, "since": at - each, "kind": "cleared", "cache": "pages", "text": f"by {each}"}
        for each in range(number)
    ]


def rows(page):
    return page.run("return [...document.querySelectorAll('#events tbody tr')].map((r) => r.innerText.toWellFormed())")


def test_events_are_a_short_list_and_all_of_them_during_an_incident(page, site):
    page.show(site.card(), events=events(site, 12), problems=[])
    assert len(rows(page)) == 3
    site.figures["problems"] = [site.problem("pages")]
    page.look_again()
    assert until(lambda: len(rows(page)) == 12, SOON)
    site.figures["problems"] = []
    page.look_again()
    assert until(lambda: len(rows(page)) == 3, SOON)
    # The user's choice is kept.
    more = page.find("#events-more")
    assert more.text == "Show all 12"
    more.click()
    assert len(rows(page)) == 12
    more.click()
    site.figures["problems"] = [site.problem("pages")]
    page.look_again()
    assert until(lambda: page.all("[data-problem]"), SOON)
    assert len(rows(page)) == 3


def test_an_outage_of_a_store_is_an_event_with_its_start_and_end(page, site):
    start, end = 1_700_000_000.0, 1_700_000_600.0
    text = "ConnectionError: refused (9 times)"
    page.show(site.card(), events=[{"at": end, "since": start, "kind": "store failed", "cache": "pages", "text": text}])
    (moment, *cells) = rows(page)[0].split("\t")
    assert cells[:2] == ["Store failed", "pages"]
    found = re.fullmatch(rf"{re.escape(text)}, from (.*:\d\d) to (.*:\d\d)", cells[2])
    assert found[1] != found[2] == moment


def test_events_are_text_and_without_one_there_is_no_table(page, site):
    page.show(site.card(), events=[])
    assert not page.find("#events").is_displayed()
    at, hostile = site.figures["at"], "<img src=x onerror=alert(1)> \ud800 \u202e"
    told = {"at": at, "since": at - 3, "kind": "load failed", "cache": hostile, "text": hostile}
    many = [{**told, "at": at - 1000, "since": at - 5000, "kind": "another", "cache": None, "text": "x" * 200}] * 28
    cleared = {**told, "kind": "cleared", "cache": None, "text": "by ann"}
    site.figures["events"] = [told, *many, cleared]
    page.look_again()
    assert until(lambda: page.find("#events-more").is_displayed(), SOON)
    page.find("#events-more").click()
    assert len(rows(page)) == 30
    assert page.all("#events img") == []
    assert page.run("const box = document.querySelector('#events-table'); return box.scrollHeight > box.clientHeight")
    cells = [row.split("\t") for row in rows(page)]
    assert cells[0][1:] == ["Load failed", hostile.replace("\ud800", "\ufffd"), hostile.replace("\ud800", "\ufffd")]
    assert cells[1][1:3] == ["another", ""]
    assert cells[-1][1:] == ["Cleared", "all", "by ann"]
    assert re.match("x{200} since .*\\d\\d:\\d\\d:\\d\\d$", cells[1][3])
    assert page.run("return document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize("width", [360, 768, 1600])
def test_nothing_has_to_be_scrolled_sideways(page, site, width):
    metrics = {"width": width, "height": 780, "deviceScaleFactor": 1, "mobile": False}
    page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    show_25(page, site, problems=[site.problem("cache 01", "x" * 200), site.problem("cache 02", "y" * 200)])
    assert page.run("return document.documentElement.scrollWidth") <= width
    heads = "return [...document.querySelectorAll('#overview th')]"
    assert (
        page.run(f"{heads}.filter((head) => head.scrollWidth > head.clientWidth).map((head) => head.textContent)") == []
    )
