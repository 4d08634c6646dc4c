"""What the page makes of its figures: nothing here depends on a framework."""

import re

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
    bounds = site.card()["times"]["hour"]["loads"]["bounds"]
    return {"bounds": bounds, "counts": [*counts, *[0] * (len(bounds) + 1 - len(counts))]}


def times(site, minute=(), hour=(), of="loads"):
    """How many loads, or reads of the store, took how long."""
    spans = {"minute": minute, "hour": hour}
    return {
        span: {"loads": buckets(site), "store_reads": buckets(site), of: buckets(site, *counts)}
        for span, counts in spans.items()
    }


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
    page.show(site.card(times=times(site, hour=counts)))
    assert page.text('figure[data-chart="load_buckets"] [data-part="legend"]') == expected


@pytest.mark.parametrize(
    ("cores", "saved", "expected"),
    [
        (["compiled"], None, "compiled core"),
        (["compiled", "python"], None, "compiled and python core"),
        (["python"], 40, "python core · last snapshot 40 s ago"),
    ],
)
def test_a_cache_shows_its_core_and_the_age_of_its_snapshot(page, site, cores, saved, expected):
    at = site.figures["at"]
    page.show(site.card(cores=cores, saved=None if saved is None else at - saved))
    assert page.text('[data-part="about"]') == expected


@pytest.mark.parametrize(
    ("rate", "step", "expected"),
    [
        (0, 10.0, ["No look-ups", "No look-ups", "Nothing yet", "Nothing yet"]),
        (5, 10.0, ["The first 10 s are not over yet"] * 4),
        (5, 300.0, ["The first 5 min are not over yet"] * 4),
    ],
)
def test_charts_without_a_step_do_not_say_that_there_was_nothing(page, site, rate, step, expected):
    page.show(
        site.card(
            now={"requests_per_second": rate},
            total={"hits": rate, "requests": rate, "bytes": 0},
            history={"step": step},
        )
    )
    # Charts are drawn once their widths are known.
    said = "return [...document.querySelectorAll('[data-chart] .nothing')].slice(0, 4).map((each) => each.textContent)"
    assert until(lambda: page.run(said) == expected, SOON), page.run(said)


STORE = {"breakers": 3, "open_breakers": 0, "trackers": 0, "trusted": 0}


@pytest.mark.parametrize(
    ("state", "breaker", "tracking"),
    [
        ({}, "closed", None),
        ({"breakers": 0}, "none, without FAIL_SAFE", None),
        ({"open_breakers": 2}, "open in 2 of 3 workers", None),
        ({"trackers": 3, "trusted": 3}, "closed", "yes"),
        ({"trackers": 3, "trusted": 2}, "closed", "not in 1 of 3 workers"),
    ],
)
def test_the_store_behind_shows_its_calls_and_what_is_bad_is_marked(page, site, state, breaker, tracking):
    def calls(seconds, *counts, **of_them):
        return {"calls": sum(counts), "seconds": seconds, **of_them}

    reads = calls(3.0, 3000, errors=4, refused=20)
    writes = calls(0.5, 100, errors=1, refused=1)
    took = times(site, (100,), (0, 0, 3000), of="store_reads")
    page.show(
        site.card(total={"stale_hits": 17}, worker_count=3, times=took)
        | {"store": {**STORE, **state, "reads": reads, "writes": writes}}
    )
    assert page.find('[data-part="store"]').is_displayed()
    shown = {name: page.figure(f"store_{name}", "pages") for name in ("reads", "writes", "errors", "refused", "stale")}
    assert shown == {"reads": "3,000", "writes": "100", "errors": "5", "refused": "21", "stale": "17"}
    assert [page.figure(f"store_p{each}", "pages") for each in (50, 90, 99)] == [
        f"<10 µs · {hour}" for hour in ("≈38 µs", "≈48 µs", "≈50 µs")
    ]
    assert page.figure("store_write_time", "pages") == "5 ms"
    assert page.figure("store_breaker", "pages") == breaker
    assert page.find('[data-part="tracking"]').is_displayed() == (tracking is not None)
    if tracking is not None:
        assert page.figure("store_tracking", "pages") == tracking
    marked = {each.get_attribute("data-figure") for each in page.all('[data-part="store"] [data-state="bad"]')}
    bad = {"store_breaker": "open" in breaker, "store_tracking": "not" in (tracking or "")}
    assert marked == {name for name, is_bad in bad.items() if is_bad}


@pytest.mark.parametrize(
    ("total", "expected"),
    [
        ({"hits": 1000}, "\N{EN DASH}"),
        ({"hits": 1000, "loads": 8, "load_failures": 2, "load_seconds": 0.5}, "≈50 s"),
    ],
)
def test_hits_save_the_time_of_as_many_loads(page, site, total, expected):
    page.show(site.card(total=total))
    assert page.figure("saved_seconds", "pages") == expected


@pytest.mark.parametrize(("weight", "shown"), [(None, ["1,234"]), (3 << 20, ["1,234", "3 MiB"])])
def test_writes_are_shown_and_where_it_is_known_what_evictions_freed(page, site, weight, shown):
    page.show(site.card(total={"puts": 1234, "evicted_bytes": weight}))
    found = page.all('[data-figure="puts"], [data-figure="evicted_bytes"]')
    assert [each.text for each in found if each.is_displayed()] == shown


def test_workers_are_sorted_by_the_column_that_is_clicked_and_stay_so(page, site):
    card = site.card()
    workers = [site.worker(card, pid, entries=entries) for pid, entries in ((1, 20), (2, 100), (3, 3))]
    page.show(site.card(workers=workers))

    def rows():
        return [int(each.get_attribute("data-worker")) for each in page.all("[data-worker]")]

    entries = page.find(".workers thead th:nth-child(8) button")
    assert (entries.text, rows()) == ("Entries", [1, 2, 3])
    entries.click()
    assert rows() == [2, 1, 3]
    assert page.find('[aria-sort="descending"]').text.startswith("Entries")
    workers[2]["total"]["entries"] = 1000
    site.figures["caches"][0]["workers"] = workers
    page.look_again()
    assert until(lambda: rows() == [3, 2, 1], SOON)
    entries.click()
    assert rows() == [1, 2, 3]
    page.find('[aria-sort="none"] button').click()
    assert rows() == [3, 2, 1]


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
    page.show(site.card(history=history(site, started=[2, *[0] * 19, 1, *[0] * 9])))
    chart = 'figure[data-chart="entries"] svg'
    assert until(lambda: len(page.all(f"{chart} .began")) == 2, SOON)
    page.find(chart).send_keys("\ue011")
    assert "2 workers began" in page.text('figure[data-chart="entries"] [data-part="tooltip"]')


def test_of_many_caches_there_is_an_index_with_a_filter_and_an_order_and_each_is_a_line(page, site):
    def cache(number):
        card = site.card(f"cache {number:02}", total={"hits": 10, "entries": number})
        card["now"] = {"hit_ratio": 1 - number / 100, "requests_per_second": float(number % 5)}
        return {name: value for name, value in card.items() if name not in ("workers", "history", "times")}

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
    site.figures["caches"][23] |= {key: site.card()[key] for key in ("workers", "history", "times")}
    page.find('section[data-cache="cache 24"] [data-action="toggle"]').click()
    assert until(lambda: page.figure("entries", "cache 24") == "24", SOON)
    # Perhaps after a poll that was under way.
    assert until(lambda: site.asked and site.asked[-1].endswith("?details=&details=cache+24"), SOON)
    assert [each.get_attribute("data-cache") for each in page.all("section[data-cache]:has([aria-expanded=true])")] == [
        "cache 24"
    ]
    page.find('section[data-cache="cache 24"] [data-action="toggle"]').click()
    assert not page.find('section[data-cache="cache 24"] [data-part="body"]').is_displayed()


def test_a_cache_that_was_never_used_takes_a_line_until_it_is_used(page, site):
    page.show(site.card("used"), site.card("unused", is_used=False))
    assert page.find('section[data-cache="used"] [data-part="body"]').is_displayed()
    unused = page.find('section[data-cache="unused"]')
    assert unused.size["height"] < 80
    assert "never used" in unused.text
    site.figures["caches"][1]["is_used"] = True
    page.look_again()
    assert until(lambda: page.find('section[data-cache="unused"] [data-part="body"]').is_displayed(), SOON)


def history(site, step=10.0, number=30, **series):
    """A history whose newest step has just ended; of each figure 1.0 unless given."""
    at = [site.figures["at"] // step * step - step * each for each in reversed(range(number))]
    return {
        **dict.fromkeys(site.card()["history"], [1.0] * number),
        **dict.fromkeys(("stale_ratio", "stale_per_second"), [0.0] * number),
        "step": step,
        "at": at,
        "started": [0] * number,
    } | {name: [values] * number if isinstance(values, float) else values for name, values in series.items()}


def axis(page, chart):
    # In one step: the texts are made anew whenever the chart is drawn.
    texts = "return [...document.querySelectorAll(arguments[0])].map((each) => each.textContent)"
    return page.run(texts, f'figure[data-chart="{chart}"] svg text[text-anchor="end"]')


@pytest.mark.parametrize(
    ("chart", "values", "expected"),
    [
        ("requests", {"requests_per_second": 0.4, "misses_per_second": 0.1}, ["0", "0.25", "0.5"]),
        ("load_ms", {"load_ms": 450.0}, ["0 ms", "250 ms", "500 ms"]),
        ("load_ms", {"load_ms": 0.0355}, ["0 ms", "25 µs", "50 µs"]),
        ("entries", {"entries": 12_345.0}, ["0", "10K", "20K"]),
        ("hit_ratio", {"hit_ratio": 0.997}, ["99%", "99.5%", "100%"]),
        ("hit_ratio", {"hit_ratio": 0.97}, ["90%", "95%", "100%"]),
        ("hit_ratio", {"hit_ratio": 0.2}, ["0%", "50%", "100%"]),
    ],
)
def test_what_stands_beside_a_chart_is_exact_and_has_room(page, site, chart, values, expected):
    page.show(site.card(history=history(site, **values)))
    assert until(lambda: axis(page, chart) == expected, SOON), axis(page, chart)
    assert (
        page.run(
            """
        const chart = document.querySelector(`figure[data-chart="${arguments[0]}"] svg`);
        return Math.min(...[...chart.querySelectorAll("text")].map((text) => text.getBoundingClientRect().left))
          - chart.getBoundingClientRect().left;
        """,
            chart,
        )
        >= 0
    )


def test_the_text_of_a_chart_grows_with_that_of_the_page(page, site):
    page.show(site.card(history=history(site, load_ms=450.0)))
    sizes = """
        const chart = document.querySelector('figure[data-chart="load_ms"] svg');
        return [...chart.querySelectorAll("text")].map((text) => text.getBoundingClientRect().height)[0];
    """
    assert until(lambda: axis(page, "load_ms"), SOON)
    before = page.run(sizes)
    page.run("document.documentElement.style.fontSize = '200%'")
    page.look_again()
    assert until(lambda: page.run(sizes) > 1.8 * before, SOON)
    assert axis(page, "load_ms") == ["0 ms", "250 ms", "500 ms"]


def test_a_lone_point_is_seen(page, site):
    values = [None] * 30
    values[10] = 0.5
    page.show(site.card(history=history(site, hit_ratio=values)))
    assert until(lambda: page.all('figure[data-chart="hit_ratio"] circle.point'), SOON)


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


def test_on_paper_there_is_nothing_to_press_and_nothing_is_cut_off(page, site):
    page.show(site.card(history=history(site)))
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    assert not page.find("#reset").is_displayed()
    assert not page.find('[data-action="clear"]').is_displayed()
    assert page.find('figure[data-chart="entries"] svg').is_displayed()


def test_tiles_charts_and_totals_share_their_columns(page, site):
    page.show(site.card(history=history(site)))
    columns = page.run(
        "return ['.now', '.charts', '.totals'].map((each) => "
        "getComputedStyle(document.querySelector(each)).gridTemplateColumns)"
    )
    assert len(set(columns)) == 1
    assert len(columns[0].split()) > 1


def test_the_charts_are_of_ten_minutes_an_hour_or_a_day(page, site):
    page.show(site.card(history=history(site, number=360, entries=[900.0] * 180 + [4.0] * 180)))
    assert until(lambda: axis(page, "entries") == ["0", "500", "1K"], SOON)

    def choose(span):
        site.asked.clear()
        page.run("span.value = arguments[0]; span.dispatchEvent(new Event('input'))", str(span))
        assert until(lambda: site.asked, SOON)

    choose(600)
    assert until(lambda: axis(page, "entries") == ["0", "2.5", "5"], SOON)
    assert "span" not in site.asked[0]
    site.figures["caches"][0]["history"] = history(site, 300.0, 280, entries=30_000.0)
    choose(86_400)
    assert site.asked[0].endswith("&span=day")
    assert until(lambda: axis(page, "entries") == ["0", "25K", "50K"], SOON)
    label = page.find('figure[data-chart="entries"] svg').get_attribute("aria-label")
    assert label.startswith("Entries, last 23 h: always 30,000, last 5 min 30,000")


def test_recent_events_are_text_and_say_nothing_yet_without_one(page, site):
    page.show(site.card(), events=[])
    page.find("#events summary").click()
    assert page.find("#events-none").is_displayed()
    at, hostile = site.figures["at"], "<img src=x onerror=alert(1)> \ud800 \u202e"
    told = {"at": at, "since": at - 3, "kind": "load failed", "cache": hostile, "text": hostile}
    many = [{**told, "at": at - 1000, "since": at - 5000, "kind": "another", "cache": None, "text": "x" * 200}] * 28
    reset = {**told, "kind": "reset", "cache": None, "text": "by ann"}
    site.figures["events"] = [told, *many, reset]
    page.look_again()
    assert until(lambda: len(page.all("#events tbody tr")) == 30, SOON)
    # Open as it was, and it scrolls.
    assert page.find("#events-table").is_displayed()
    assert not page.find("#events-none").is_displayed()
    assert page.all("#events img") == []
    assert page.run("const box = document.querySelector('#events-table'); return box.scrollHeight > box.clientHeight")
    rows = page.run("return [...document.querySelectorAll('#events tbody tr')].map((r) => r.innerText.toWellFormed())")
    cells = [row.split("\t") for row in rows]
    assert cells[0][1:] == ["Load failed", hostile.replace("\ud800", "\ufffd"), hostile.replace("\ud800", "\ufffd")]
    assert cells[1][1:3] == ["another", ""]
    assert cells[-1][1:] == ["Figures reset", "all", "by ann"]
    assert re.match("x{200} since .*\\d\\d:\\d\\d:\\d\\d$", cells[1][3])
    assert page.run("return document.documentElement.scrollWidth <= innerWidth")


def test_a_cache_that_was_reset_alone_says_when(page, site):
    at = site.figures["at"]
    alone, together = site.card("alone", reset_at=at - 7), site.card("together", reset_at=at - 60)
    page.show(alone, together, site.card("never", reset_at=None), since=at - 60)
    said = {name: page.figure("since", name) for name in ("alone", "together", "never")}
    assert re.match(r"since reset at .*\d\d:\d\d:\d\d$", said.pop("alone"))
    assert said == {"together": "since reset", "never": "since start"}


def test_the_settings_are_a_table_that_marks_what_is_set(page, site):
    settings = [["MAX_ENTRIES", "<b>7</b>", False, "the most that are kept"], ["JITTER", "0.05", True, "a share"]]
    page.show(site.card(settings=settings))
    table = 'section[data-cache="pages"] [data-part="settings"]'
    page.find(f"{table} summary").click()
    rows = [
        [cell.text for cell in row.find_elements("css selector", "th, td")] for row in page.all(f"{table} tbody tr")
    ]
    assert rows == [["MAX_ENTRIES", "<b>7</b>", "the most that are kept"], ["JITTER", "0.05", "a share"]]
    assert [row.get_attribute("class") for row in page.all(f"{table} tbody tr")] == ["set", ""]


@pytest.mark.parametrize("can_save", [True, False])
def test_what_has_snapshots_can_be_saved_at_once(page, site, can_save):
    page.show(site.card(can_save=can_save))
    button = page.find('section[data-cache="pages"] [data-action="save"]')
    assert button.is_displayed() == can_save
    if can_save:
        button.click()
        assert until(lambda: page.text("#message") == "Done.", SOON)
        assert site.posted == ["cache=pages"]


@pytest.mark.parametrize(
    ("figures", "expected"),
    [
        ({"hit_ratio": [0.9, 0.91, 0.88, 0.4]}, {"4": ["▼ 40.0%"]}),
        ({"requests_per_second": [100, 110, 90, 500]}, {"4": ["▲ 500"]}),
        ({"entries": [1000, 1001, 999, 10]}, {"4": ["▼ 10"]}),
        ({"lag": [0, 0, 0, 5]}, {"4": ["▲ 5 s"]}),
        # Not: what spreads widely, what is within the ordinary, three workers, one that has just begun, a ratio of few.
        ({"requests_per_second": [1, 40, 100, 250]}, {}),
        ({"hit_ratio": [0.9, 0.91, 0.88, 0.82]}, {}),
        ({"hit_ratio": [0.9, 0.91, 0.88, 0.0], "requests_per_second": [1, 1, 1, 0.1]}, {}),
        ({"entries": [1000, 1000, 10]}, {}),
        ({"entries": [1000, 1000, 1000, 10], "started": [0, 0, 0, 1e12]}, {}),
    ],
)
def test_workers_that_are_unlike_the_others_are_marked(page, site, figures, expected):
    card = site.card()
    workers = []
    for number in range(len(next(iter(figures.values())))):
        worker = site.worker(card, number + 1, entries=1000)
        worker["now"] = {"hit_ratio": 0.9, "requests_per_second": 100}
        worker["started"] = 0
        for name, values in figures.items():
            part = worker["now"] if name in worker["now"] else worker["total"] if name in worker["total"] else worker
            part[name] = values[number]
        workers.append(worker)
    page.show(site.card(workers=workers))
    marked = {
        row.get_attribute("data-worker"): [cell.text for cell in row.find_elements("css selector", "[data-outlier]")]
        for row in page.all("[data-worker]")
    }
    assert {pid: cells for pid, cells in marked.items() if cells} == expected
    assert ("unlike the others: 4" in page.text('[data-part="workers-summary"]')) == bool(expected)


@pytest.mark.parametrize(
    ("total", "expected"),
    [
        (
            {"bytes": 1536, "bytes_are_estimated": True, "max_bytes": None},
            ("≈1.5 KiB", "estimated from samples, no limit"),
        ),
        ({"bytes": 1536, "bytes_are_estimated": False, "max_bytes": 3072}, ("1.5 KiB", "of 3 KiB")),
    ],
)
def test_an_estimate_of_the_memory_is_called_one(page, site, total, expected):
    page.show(site.card(total=total))
    assert (page.figure("bytes", "pages"), page.figure("max_bytes", "pages")) == expected
    assert page.find('[data-chart="memory"]').is_displayed()


def test_a_memory_that_is_not_known_has_no_chart(page, site):
    page.show(site.card(total={"bytes": None}))
    assert not page.find('[data-chart="memory"]').is_displayed()
    assert not page.find('[data-part="bytes"]').is_displayed()


def test_what_no_worker_has_added_to_for_a_while_is_no_figure_of_now(page, site):
    at = site.figures["at"] - 3600
    page.show(site.card(history={"at": [at - 10, at], "entries": [3, 3], "started": [1, 0]}))
    assert page.text('[data-chart="entries"] [data-part="legend"]') == "\N{EN DASH}"
