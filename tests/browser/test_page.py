"""What the page makes of its figures: nothing here depends on a framework."""

import pytest

from tests.browser.canned import CannedSite
from tests.browser.page import SOON, Page
from tests.waiting import until


@pytest.fixture
def site(tmp_path):
    site = CannedSite(tmp_path / "figures")
    yield site
    site.stop()


@pytest.fixture
def page(chromium, site):
    """The page, which shows what ``page.show`` is given."""
    chromium.get("about:blank")
    chromium.get_log("browser")
    page = Page(chromium, site)

    def show(*cards, **figures):
        site.figures = {**site.figures, "caches": list(cards), **figures}
        chromium.get(f"{site.url}/wheelcache/")
        assert page.is_fresh()

    page.show = show
    yield page
    chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [], "media": ""})
    chromium.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert page.errors() == []


def buckets(site, *counts):
    bounds = site.card()["total"]["load_buckets"]["bounds"]
    return {"load_buckets": {"bounds": bounds, "counts": [*counts, *[0] * (len(bounds) + 1 - len(counts))]}}


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ((), "p50 \N{EN DASH}  p90 \N{EN DASH}  p99 \N{EN DASH}"),
        ((100,), "p50 <10 µs  p90 <10 µs  p99 <10 µs"),
        ((0, 0, 100), "p50 ≈38 µs  p90 ≈48 µs  p99 ≈50 µs"),
        ((90, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5), "p50 <10 µs  p90 <10 µs  p99 >10 s"),
    ],
)
def test_percentiles_below_a_millisecond_are_those_of_the_buckets_and_none_is_invented(page, site, counts, expected):
    page.show(site.card(total=buckets(site, *counts)))
    assert page.text('figure[data-chart="load_buckets"] [data-part="legend"]') == expected


def test_without_shared_figures_there_is_no_reset_and_the_page_says_that_a_worker_shows_itself(page, site):
    page.show(site.card(is_shared=False), can_reset=False)
    assert not page.find("#reset").is_displayed()
    assert page.text('[data-part="workers-summary"]').startswith("Each worker shows only itself")
    page.show(site.card(is_shared=True), can_reset=True)
    assert page.find("#reset").is_displayed()
    assert page.text('[data-part="workers-summary"]') == "1 worker"


def test_a_site_without_a_cache_is_told_that_none_is_configured(page):
    page.show()
    assert page.find("#empty").text.startswith("This site has no cache of wheelcache.")


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [([5000] * 3, "of 15,000 in 3 workers, 5,000 each"), ([10, 20], "of 30 in 2 workers"), ([7], "of 7")],
)
def test_a_bound_says_how_many_workers_share_it(page, site, bounds, expected):
    card = site.card(total={"entries": 5, "max_entries": sum(bounds)})
    card["workers"] = [site.worker(card, pid, max_entries=most) for pid, most in enumerate(bounds, 1)]
    page.show(card)
    assert page.figure("max_entries", "pages") == expected


def test_where_workers_began_is_marked(page, site):
    at = [site.figures["at"] // 10 * 10 - 10 * number for number in reversed(range(30))]
    history = {
        **dict.fromkeys(site.card()["history"], [1.0] * 30),
        "step": 10.0,
        "at": at,
        "started": [2, *[0] * 19, 1, *[0] * 9],
    }
    page.show(site.card(history=history))
    chart = 'figure[data-chart="entries"] svg'
    assert until(lambda: len(page.all(f"{chart} .began")) == 2, SOON)
    page.find(chart).send_keys("\ue011")
    assert "2 workers began" in page.text('figure[data-chart="entries"] [data-part="tooltip"]')


def test_of_many_caches_there_is_an_index_with_a_filter_and_an_order_and_each_is_a_line(page, site):
    def cache(number):
        card = site.card(f"cache {number:02}", total={"hits": 10, "entries": number})
        card["now"] = {"hit_ratio": 1 - number / 100, "requests_per_second": float(number % 5)}
        return {name: value for name, value in card.items() if name not in ("workers", "history")}

    page.show(*map(cache, range(1, 26)))
    assert page.run("return document.documentElement.scrollHeight") < 3000
    assert len(page.all("section[data-cache]")) == 25
    assert not [each for each in page.all('[data-part="body"]') if each.is_displayed()]

    def names():
        return [each.get_attribute("data-cache") for each in page.all("section[data-cache]")]

    def choose(order):
        page.run("sort.value = arguments[0]; sort.dispatchEvent(new Event('input'))", order)

    choose("hit_ratio")
    assert names()[0] == "cache 25"
    choose("rate")
    assert names()[:2] == ["cache 04", "cache 09"]
    page.find("#filter").send_keys("CACHE 2")
    assert names() == ["cache 24", "cache 23", "cache 22", "cache 21", "cache 20", "cache 25"]
    assert page.text("#matches") == "6 of 25 caches"

    site.asked.clear()
    site.figures["caches"][23] |= {key: site.card()[key] for key in ("workers", "history")}
    page.find('section[data-cache="cache 24"] [data-action="toggle"]').click()
    assert until(lambda: page.figure("entries", "cache 24") == "24", SOON)
    assert site.asked[0].endswith("?details=cache+24")
    assert [each.get_attribute("data-cache") for each in page.all("section[data-cache]:has([aria-expanded=true])")] == [
        "cache 24"
    ]
    page.find('section[data-cache="cache 24"] [data-action="toggle"]').click()
    assert not page.find('section[data-cache="cache 24"] [data-part="body"]').is_displayed()


def test_a_cache_that_was_never_used_takes_a_line_until_it_is_used(page, site):
    page.show(site.card("used"), site.card("unused", total={"hits": 0}))
    assert page.find('section[data-cache="used"] [data-part="body"]').is_displayed()
    unused = page.find('section[data-cache="unused"]')
    assert unused.size["height"] < 80
    assert "never used" in unused.text
    site.figures["caches"][1]["total"]["misses"] = 1
    page.look_again()
    assert until(lambda: page.find('section[data-cache="unused"] [data-part="body"]').is_displayed(), SOON)
