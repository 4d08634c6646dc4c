"""The charts of a cache in the browser: one grid, one time axis, one pointer and the same marks."""

import pytest

from tests.browser.page import SOON, resize
from tests.waiting import until


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
    page.show(site.card(times=site.times(hour=counts)))
    assert page.text('figure[data-chart="load_buckets"] [data-part="legend"]') == expected


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
    assert until(lambda: page.run(said) == expected, SOON, note=lambda: page.run(said))


def test_where_workers_began_and_where_it_was_cleared_is_marked_in_all_charts(page, site):
    card = site.card(history=site.history(started=[2, *[0] * 19, 1, *[0] * 9]))
    at = card["history"]["at"][-1] - 55
    event = {"at": at, "since": at, "text": "by ann"}
    page.show(card, events=[{**event, "kind": "cleared", "cache": name} for name in ("pages", "other")])
    charts = [each.get_attribute("data-chart") for each in page.all("figure[data-chart]") if each.is_displayed()]
    assert len(charts) == 7
    charts.remove("load_buckets")
    for chart in charts:
        assert until(lambda: len(page.all(f'[data-chart="{chart}"] .mark.began')) == 2, SOON)  # noqa: B023
        assert len(page.all(f'[data-chart="{chart}"] .mark.cleared')) == 1
    lines = "return [...document.querySelectorAll('.mark.cleared')].map((each) => Number(each.getAttribute('x1')))"
    plots = (
        "return [...document.querySelectorAll('[data-chart] svg')].map((each) => each.getBoundingClientRect().width)"
    )
    # The position is the same in all charts of the same width.
    assert len({(round(x), round(width)) for x, width in zip(page.run(lines), page.run(plots), strict=False)}) <= 2
    page.find('[data-chart="entries"] svg').send_keys("\ue011")
    assert "2 workers started" in page.text('[data-chart="entries"] [data-part="tooltip"]')
    assert not page.find('[data-chart="requests"] [data-part="tooltip"]').is_displayed()


def test_a_pointer_in_one_chart_shows_the_values_of_that_time_in_all(page, site):
    counted = [float(each) for each in range(30)]
    page.show(site.card(history=site.history(requests_per_second=counted, entries=[each * 2 for each in counted])))
    legend = {name: f'[data-chart="{name}"] [data-part="legend"]' for name in ("requests", "entries")}
    assert until(lambda: page.text(legend["entries"]) == "58", SOON)
    page.find('[data-chart="requests"] svg').send_keys("\ue012\ue012\ue012")
    assert page.text(legend["requests"]).startswith("All 27")
    assert page.text(legend["entries"]) == "54"
    times = {each.text for each in page.all("figure [data-part=when]") if each.text}
    assert len(times) == 1
    assert ":" in times.pop()
    cursors = page.all('.cursor[visibility="visible"]')
    assert len(cursors) == 6
    page.find('[data-chart="requests"] svg').send_keys("\ue00c")
    assert page.text(legend["entries"]) == "58"
    assert not page.all('.cursor[visibility="visible"]')


@pytest.mark.parametrize(("memory", "store"), [(None, None), (5, None), (5, {})])
def test_the_grid_has_no_holes_and_equal_margins(page, site, memory, store):
    calls = {"reads": 1, "writes": 1, "write_ms": 500.0, "errors": 0, "refused": 0}
    gauges = {"hits": 0, "misses": 0, "breakers": 0, "open_breakers": 0, "trackers": 0, "trusted": 0}
    card = site.card(total={"bytes": memory}, history=site.history(load_ms=450.0))
    page.show({**card, "store": None if store is None else {**calls, **gauges}})
    for width in (400, 700, 1000, 1300):
        resize(page.driver, width, 780)
        rows = page.run(ROWS)
        # Each row begins and ends where the first one does.
        edges = {(round(row[0][0]), round(row[-1][1])) for row in rows}
        assert edges == {(round(rows[0][0][0]), round(rows[0][-1][1]))}, width
        margins = page.run(MARGINS)
        assert len(margins) == 3 * sum(map(len, rows)), width
        assert len(set(margins)) == 1, width


ROWS = """
    const rows = new Map();
    for (const each of document.querySelectorAll("figure[data-chart]:not([hidden])")) {
      const box = each.getBoundingClientRect();
      rows.set(box.top, (rows.get(box.top) ?? []).concat([[box.left, box.right]]));
    }
    return [...rows.values()];
"""

MARGINS = """
    const levels = [...document.querySelectorAll("figure[data-chart]:not([hidden]) .grid")];
    const across = levels.filter((each) => each.getAttribute("y1") === each.getAttribute("y2"));
    return across.map((each) => each.getAttribute("x1"));
"""


def test_stale_answers_are_a_band_of_their_own(page, site):
    history = site.history(hit_ratio=0.5, stale_ratio=0.25, stale_per_second=0.25, misses_per_second=0.25)
    page.show(site.card(history=history))
    chart = '[data-chart="hit_ratio"]'
    assert until(lambda: page.text(f"{chart} [data-part=legend]") == "Hits 50.0%Stale 25.0%", SOON)
    heights = page.run(
        "return [...document.querySelectorAll('[data-chart=hit_ratio] .area')].map((each) => each.getBBox())"
    )
    hits, stale = heights
    # On the scale from 50% to 100%, hits have no height, and stale answers begin at their line.
    assert stale["y"] + stale["height"] == pytest.approx(hits["y"], abs=0.2)
    assert stale["height"] > 40
    assert page.text('[data-chart="requests"] [data-part=legend]') == "All 1Misses 0.25Stale 0.25"
    page.show(site.card(history=site.history(hit_ratio=0.5)))
    assert until(lambda: page.text(f"{chart} [data-part=legend]") == "50.0%", SOON)


def test_all_charts_are_one_table(page, site):
    page.show(site.card(history=site.history(requests_per_second=[float(each) for each in range(30)])))
    page.run("document.querySelector('.chart-table').open = true")
    assert until(lambda: len(page.all(".chart-table tbody tr")) == 30, SOON)
    heads = [each.text for each in page.all(".chart-table thead th")]
    place = heads.index("Look-ups per second: all")
    rows = "return [...document.querySelectorAll('.chart-table tbody tr')]"
    cells = page.run(f"{rows}.map((row) => [...row.cells].map((cell) => cell.innerText))")
    assert [row[place] for row in cells[:3]] == ["29", "28", "27"]


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
    page.show(site.card(history=site.history(**values)))
    assert until(lambda: page.axis(chart) == expected, SOON, note=lambda: page.axis(chart))
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
    page.show(site.card(history=site.history(load_ms=450.0)))
    sizes = """
        const chart = document.querySelector('figure[data-chart="load_ms"] svg');
        return [...chart.querySelectorAll("text")].map((text) => text.getBoundingClientRect().height)[0];
    """
    assert until(lambda: page.axis("load_ms"), SOON)
    before = page.run(sizes)
    page.run("document.documentElement.style.fontSize = '200%'")
    page.look_again()
    assert until(lambda: page.run(sizes) > 1.8 * before, SOON)
    assert page.axis("load_ms") == ["0 ms", "250 ms", "500 ms"]


def test_a_lone_point_is_seen(page, site):
    values = [None] * 30
    values[10] = 0.5
    page.show(site.card(history=site.history(hit_ratio=values)))
    assert until(lambda: page.all('figure[data-chart="hit_ratio"] circle.point'), SOON)


def test_the_charts_are_of_ten_minutes_an_hour_or_a_day(page, site):
    page.show(site.card(history=site.history(number=360, entries=[900.0] * 180 + [4.0] * 180)))
    assert until(lambda: page.axis("entries") == ["0", "500", "1K"], SOON)

    def choose(span):
        site.asked.clear()
        page.run("span.value = arguments[0]; span.dispatchEvent(new Event('input'))", str(span))
        assert until(lambda: site.asked, SOON)

    choose(600)
    assert until(lambda: page.axis("entries") == ["0", "2.5", "5"], SOON)
    assert "span" not in site.asked[0]
    site.figures["caches"][0]["history"] = site.history(300.0, 280, entries=30_000.0)
    choose(86_400)
    assert site.asked[0].endswith("&span=day")
    assert until(lambda: page.axis("entries") == ["0", "25K", "50K"], SOON)
    label = page.find('figure[data-chart="entries"] svg').get_attribute("aria-label")
    assert label.startswith("Entries, last 23 h: always 30,000, last 5 min 30,000")


def test_a_memory_that_is_not_known_has_no_chart(page, site):
    page.show(site.card(total={"bytes": None}))
    assert not page.find('[data-chart="memory"]').is_displayed()
    assert not page.find('[data-part="bytes"]').is_displayed()


def test_what_no_worker_has_added_to_for_a_while_is_no_figure_of_now(page, site):
    at = site.figures["at"] - 3600
    page.show(site.card(history={"at": [at - 10, at], "entries": [3, 3], "started": [1, 0]}))
    assert page.text('[data-chart="entries"] [data-part="legend"]') == "\N{EN DASH}"
