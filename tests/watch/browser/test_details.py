"""The details of one cache in the browser: its figures, its store, its workers and its settings."""

import pytest

from tests.waiting import until
from tests.watch.browser.axe import violations
from tests.watch.browser.cards import STORE, full_card
from tests.watch.browser.page import SOON
from wheelcache.engine.stats import MISSES
from wheelcache.pages.reasons import REASONS
from wheelcache.watch.dashboard.permissions import Permission


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
    calls = {"reads": 3000, "read_ms": 1.0, "writes": 100, "write_ms": 5.0, "errors": 5, "refused": 21}
    took = site.times((0, 0, 3000), of="store_reads")
    page.show(
        site.card(total={"stale_hits": 17}, worker_count=3, times=took)
        | {"store": {**STORE, **state, "hits": 9, "misses": 1, **calls}}
    )
    page.unfold("store")
    shown = {name: page.figure(f"store_{name}", "pages") for name in ("reads", "writes", "errors", "refused", "stale")}
    assert shown == {"reads": "3,000", "writes": "100", "errors": "5", "refused": "21", "stale": "17"}
    assert [page.figure(f"store_p{each}", "pages") for each in (50, 90, 99)] == ["≈38 µs", "≈48 µs", "≈50 µs"]
    assert page.figure("store_write_time", "pages") == "5 ms"
    assert page.figure("store_breaker", "pages") == breaker
    assert page.find('[data-part="tracking"]').is_displayed() == (tracking is not None)
    assert page.text('[data-part="store"] .gist').startswith("breaker open" if "open" in breaker else "5 errors")
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
    page.unfold("removals")
    found = page.all('[data-figure="puts"], [data-figure="evicted_bytes"]')
    assert [each.text for each in found if each.is_displayed()] == shown


def test_workers_are_sorted_by_the_column_that_is_clicked_and_stay_so(page, site):
    card = site.card()
    workers = [site.worker(card, pid, entries=entries) for pid, entries in ((1, 20), (2, 100), (3, 3))]
    page.show(site.card(workers=workers))
    page.unfold("workers")

    def rows():
        return [int(each.get_attribute("data-worker")) for each in page.all("[data-worker]")]

    entries = page.find(".workers thead th:nth-child(8) button")
    assert (entries.text, rows()) == ("Entries now", [1, 2, 3])
    entries.click()
    assert rows() == [2, 1, 3]
    assert page.find('.workers [aria-sort="descending"]').text.startswith("Entries")
    workers[2]["total"]["entries"] = 1000
    site.figures["caches"][0]["workers"] = workers
    page.look_again()
    assert until(lambda: rows() == [3, 2, 1], SOON)
    entries.click()
    assert rows() == [1, 2, 3]
    page.find('.workers [aria-sort="none"] button').click()
    assert rows() == [3, 2, 1]


CAUSES = tuple(MISSES)


def causes(**numbers):
    return {**dict.fromkeys(CAUSES, 0), **{name.replace("_", " "): number for name, number in numbers.items()}}


def group(name, load_seconds=0.0, misses=None, **figures):
    misses = causes() if misses is None else misses
    total = sum(misses.values())
    return {
        "name": name,
        "requests": total,
        "hits": 0,
        "misses": total,
        "misses_by_cause": misses,
        "stale_hits": 0,
        "puts": 0,
        "loads": 0,
        "load_failures": 0,
        "hit_ratio": None,
        "load_seconds": load_seconds,
        "refused": 0,
        **figures,
    }


def test_the_misses_are_shown_by_cause_the_most_frequent_first_and_zeros_are_not(page, site):
    total = {
        "misses": 4,
        "misses_by_cause": causes(another_process=1, expired=3),
        "removals": {"evicted": 2, "deleted": 0},
    }
    page.show(site.card(total=total))
    page.unfold()
    assert page.facts("misses") == [["Expired", "3", "75.0%"], ["Changed or deleted by another worker", "1", "25.0%"]]
    assert page.text('[data-part="misses"] .gist') == "4 misses"
    assert page.facts("removals") == [["Look-ups", "4"], ["Misses", "4"], ["Evicted", "2", "100%"]]
    assert not page.find('[data-part="loads"]').is_displayed()
    page.show(site.card())
    assert not page.find('[data-part="misses"]').is_displayed()


def test_without_shared_figures_the_page_says_that_a_worker_shows_itself(page, site):
    page.show(site.card(is_shared=False))
    assert page.text('[data-part="workers-summary"]').startswith("Each worker shows only itself")
    page.show(site.card(is_shared=True))
    assert page.text('[data-part="workers-summary"]') == "1 worker"


def test_the_settings_that_were_set_are_a_table(page, site):
    page.show(site.card(settings=[["MAX_ENTRIES", "<b>7</b>"]]))
    page.unfold("settings")
    assert page.facts("settings") == [["MAX_ENTRIES", "<b>7</b>"]]
    page.show(site.card())
    assert not page.find('[data-part="settings"]').is_displayed()


@pytest.mark.parametrize("granted", [set(Permission), {Permission.INSPECT}, {Permission.OPERATE}])
def test_a_group_opens_its_causes_its_figures_and_its_keys(page, site, granted):
    site.granted = granted
    evil = "<img src=x onerror=alert(1)>"
    answer = {
        "is_over": True,
        "text": "2 keys",
        "failures": [],
        "rows": [[evil, 2048, 90.5, 2], ["session…", 1, "never expires", 1]],
    }
    site.answers = [{"token": "t"}, answer]
    shop = group(
        "shop", 3.0, causes(deleted=3, expired=1), requests=10, hit_ratio=0.6, loads=4, load_failures=2, puts=2
    )
    page.show(site.card(groups=[shop, group("other", 1.0)]))
    assert page.text('[data-group="shop"] [data-column="failures"]') == "2"
    assert page.find('[data-group="shop"] [data-bad]').is_displayed()
    page.find('[data-group="shop"] button').click()
    assert page.facts("causes") == [["Deleted", "3 · 75.0%"], ["Expired", "1 · 25.0%"]]
    assert page.facts("figures") == [
        ["Look-ups", "10"],
        ["Misses", "4"],
        ["Values stored", "2"],
        ["Loads", "4"],
        ["Failed loads", "2"],
        ["Mean time of a load", "750 ms"],
    ]
    opened = page.find(".opened")
    may_see, may_delete = Permission.INSPECT in granted, len(granted) > 1
    assert page.find('.opened [data-part="keys"]').is_displayed() == may_see
    if may_see:
        assert until(lambda: [each.text.split("\n")[0] for each in page.all(".opened li")] == [evil, "session…"], SOON)
        assert page.all("main img") == []
        # The keys of sessions are hidden in part, so that they are not deleted here.
        assert len(page.all(".opened li button")) == may_delete
    # A refresh leaves it open.
    site.figures["caches"][0]["groups"][0]["misses_by_cause"]["expired"] = 0
    page.look_again()
    assert until(lambda: page.facts("causes") == [["Deleted", "3 · 75.0%"]], SOON)
    assert page.find(".opened") == opened
    assert violations(page.driver) == []
    if may_delete:
        site.answers = [{"token": "t"}, {**answer, "rows": []}]
        assert f"The key “{evil}” will be deleted from pages, in all workers" in page.press(".opened li button")
        assert until(lambda: len(page.all(".opened li")) == 1, SOON)
        assert "action=delete&kind=key" in site.posted[-2]
    page.find('[data-group="shop"] button').click()
    assert not page.all(".opened")
    assert ("action=find&kind=group&text=shop&cache=pages" in site.posted) == may_see


def test_the_verdict_opens_the_group_that_it_names(page, site):
    sentence = {"state": "bad", "text": "shop fails.", "place": "groups", "group": "shop"}
    page.show(site.card(groups=[group("shop", 3.0), group("other", 1.0)], sentence=sentence))
    assert page.text('[data-part="verdict-link"]') == "Show “shop”"
    page.find('[data-part="verdict-link"]').click()
    assert page.find('[data-group="shop"] button').get_attribute("aria-expanded") == "true"
    assert page.find(".opened").is_displayed()


def test_the_groups_of_keys_are_sorted_by_the_time_spent_computing_and_by_any_column(page, site):
    evil = "<img src=x onerror=alert(1)>"
    misses = causes(expired=3, evicted=1)
    groups = [
        group("", 0.5, causes(new_or_long_gone=2)),
        group("user", 3.0, misses, requests=10, hit_ratio=0.6, loads=4),
        group(evil, 1.0, causes(tag=1), requests=1),
    ]
    page.show(site.card(groups=groups))

    def rows():
        return [[cell.text for cell in row.find_elements("css selector", "th, td")] for row in page.all("[data-group]")]

    nothing = "\N{EN DASH}"
    # The columns of failed loads and of pages that were not stored have only zeros.
    assert rows() == [
        ["user", "10", "60.0%", "4", "Expired 75.0%", "", "3 s", ""],
        [evil, "1", nothing, "1", "Tag dropped 100%", "", "1 s", ""],
        ["other keys", "2", nothing, "2", "First request, or forgotten 100%", "", "500 ms", ""],
    ]
    assert page.text('[data-part="groups"] [aria-sort="descending"]') == "Time computing"
    page.find("[data-part=groups] thead th:nth-child(1) button").click()
    assert [name for name, *_ in rows()] == [evil, "other keys", "user"]
    page.find("[data-part=groups] thead th:nth-child(2) button").click()
    assert [name for name, *_ in rows()] == ["user", "other keys", evil]
    site.figures["caches"][0]["groups"] = [group("new", misses=causes(expired=100), refused=7), *groups]
    page.look_again()
    assert until(lambda: [name for name, *_ in rows()] == ["new", "user", "other keys", evil], SOON)
    assert rows()[0][7] == "7"
    assert page.all("main img") == []
    assert violations(page.driver) == []
    page.show(site.card(groups=[]))
    assert not page.find('[data-part="groups"]').is_displayed()


@pytest.mark.parametrize(
    ("figures", "expected"),
    [
        ({"hit_ratio": [0.9, 0.91, 0.88, 0.4]}, {"4": ["▼ 40.0%"]}),
        ({"requests_per_second": [100, 110, 90, 500]}, {"4": ["▲ 500"]}),
        ({"entries": [1000, 1001, 999, 10]}, {"4": ["▼ 10"]}),
        ({"lag": [0, 0, 0, 5]}, {"4": ["▲ 5 s"]}),
        # No outliers: a wide spread, an ordinary distance, three workers, a new worker, a ratio of few look-ups.
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
    page.unfold("workers")
    marked = {
        row.get_attribute("data-worker"): [cell.text for cell in row.find_elements("css selector", "[data-outlier]")]
        for row in page.all("[data-worker]")
    }
    assert {pid: cells for pid, cells in marked.items() if cells} == expected
    assert ("unlike the others: 4" in page.text('[data-part="workers-summary"]')) == bool(expected)


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        ({"bytes": 1536, "max_entries": None}, ("Memory now", "1.5 KiB", "", "5 entries", None)),
        ({"bytes": 1536}, ("Memory now", "1.5 KiB", "", "5 of 1,000 entries", "0.5%")),
        (
            {"bytes": 1536, "max_bytes": 3072},
            ("Memory now", "1.5 KiB", "of 3 KiB", "5 of 1,000 entries", "50.0%"),
        ),
        ({}, ("Entries now", "5", "", "5 of 1,000 entries", "0.5%")),
        ({"max_entries": None}, ("Entries now", "5", "", "", None)),
    ],
)
def test_the_memory_is_shown_with_its_bounds(page, site, now, expected):
    page.show(site.card(now={"entries": 5, **now}))
    *texts, full = expected
    names = ("memory_label", "memory", "max_memory", "entries_note")
    assert [page.figure(name, "pages") for name in names] == texts
    meters = [each for each in page.all("[role=meter]") if each.is_displayed()]
    assert [each.get_attribute("aria-valuetext") for each in meters] == ([] if full is None else [full])


def test_a_cache_without_a_worker_shows_its_last_figures_and_its_settings(page, site):
    settings = [["MAX_ENTRIES", "7"]]
    page.show(site.card(worker_count=0, workers=[], settings=settings, total={"hits": 5}))
    assert page.text('[data-part="workers-summary"]') == "No worker has this cache now"
    assert page.figure("hits", "pages") == "5"
    assert page.find('[data-part="settings"]').is_displayed()


def bands(page):
    return [page.run("return arguments[0].style.inlineSize", each) for each in page.all(".ratio .meter i")]


def test_the_shares_are_a_bar_in_which_stale_answers_are_neither_hits_nor_misses(page, site):
    page.show(site.card(figures={"hit_ratio": 0.5, "stale_ratio": 0.2, "requests": 1234, "requests_per_second": 1.5}))
    assert page.figure("ratio_label", "pages") == "Hit ratio"
    assert page.figure("hit_ratio", "pages") == "50.0%"
    assert page.figure("shares", "pages") == "20.0% stale · 30.0% missed"
    assert bands(page) == ["50%", "0%", "20%"]
    assert page.figure("requests_per_second", "pages") == "1.5"
    assert page.figure("requests_note", "pages") == "1,234 look-ups"


def test_of_a_cache_with_a_store_the_ratio_of_both_tiers_comes_first(page, site):
    calls = {"reads": 100, "writes": 100, "write_ms": 5.0, "errors": 0, "refused": 0}
    figures = {
        "hit_ratio": 0.5,
        "answered_ratio": 0.75,
        "stale_ratio": 0.125,
        "requests": 8,
        "requests_per_second": 1.0,
    }
    card = site.card(figures=figures, history=site.history(hit_ratio=0.5, store_ratio=0.25))
    page.show({**card, "store": {**STORE, "hits": 25, "misses": 75, **calls}})
    assert page.text('[data-row="pages"] [data-column="hit_ratio"]') == "75.0%"
    assert page.figure("ratio_label", "pages") == "Hit ratio, with store"
    assert page.figure("hit_ratio", "pages") == "75.0%"
    assert page.figure("shares", "pages") == "50.0% here · 25.0% store · 12.5% stale · 12.5% missed"
    assert bands(page) == ["50%", "25%", "12.5%"]
    assert [page.figure(f"store_{name}", "pages") for name in ("hits", "misses")] == ["25", "75"]
    assert until(lambda: page.values("hit_ratio") == {"Hits": "50.0%", "Store": "25.0%"}, SOON)


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ((100,), ["<10 µs", "<10 µs", "<10 µs"]),
        ((0, 0, 100), ["≈38 µs", "≈48 µs", "≈50 µs"]),
        ((90, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5), ["<10 µs", "<10 µs", ">10 s"]),
    ],
)
def test_percentiles_below_a_millisecond_are_those_of_the_buckets(page, site, counts, expected):
    page.show(site.card(total={"loads": sum(counts), "load_seconds": 90.0}, times=site.times(counts)))
    assert [page.figure(f"load_p{each}", "pages") for each in (50, 90, 99)] == expected
    assert page.figure("computing", "pages") == "90 s"
    assert page.figure("computing_note", "pages") == f"{sum(counts)} loads, p90 {expected[1]}"


@pytest.mark.parametrize("place", ["groups", "misses", "store", "pages", "workers", "loads"])
def test_the_first_line_of_a_cache_leads_to_the_section_that_shows_what_is_wrong(page, site, place):
    sentence = {"state": "bad", "text": "Something is <b>wrong</b>.", "place": place}
    page.show({**full_card(site), "sentence": sentence})
    assert page.text('[data-part="verdict-text"]') == sentence["text"]
    assert page.find('[data-part="verdict"]').get_attribute("data-state") == "bad"
    page.find('[data-part="verdict-link"]').click()
    section = page.find(f'[data-part="{place}"]')
    assert page.run("return arguments[0].contains(document.activeElement) && arguments[0].open !== false", section)
    # The span stays at the top of the window, and does not cover the section.
    shown = (
        "const top = (node) => node.getBoundingClientRect().top; return top(arguments[0]) < innerHeight && "
        "top(arguments[0]) >= document.getElementById('time').getBoundingClientRect().bottom"
    )
    assert page.run(shown, section)
    site.figures["caches"][0]["sentence"] = {"state": "good", "text": "All is well.", "place": None}
    page.look_again()
    assert until(lambda: page.text('[data-part="verdict-text"]') == "All is well.", SOON)
    assert not page.find('[data-part="verdict-link"]').is_displayed()
    # A refresh keeps the section open, and the focus.
    assert page.run("return arguments[0].contains(document.activeElement) && arguments[0].open !== false", section)


def side(site, ratio, rate, seconds, *counts):
    figures = {"hit_ratio": ratio, "requests_per_second": rate, "computing_per_minute": seconds}
    return figures | {f"load_{name}_ms": ms for name, ms in site.percentiles(*counts).items() if name != "p99"}


def test_a_deploy_is_compared_with_the_time_before_it_and_the_reader_chooses_which(page, site):
    at = site.figures["at"]
    marks = [{"at": at - each, "kind": "release", "text": f"release {each}"} for each in (1200, 600)]
    started = {"at": at - 600, "kind": "started", "text": "2 workers started"}
    groups = [{"name": "shop", "before": 0.1, "after": 0.4, "cause": "deleted"}]
    groups.append({"name": "", "before": 0.025, "after": 0.0, "cause": None})
    comparison = {
        "at": at - 600,
        "release": "600",
        "seconds": 600,
        "sentence": "<i>Worse</i>.",
        "before": side(site, 0.931, 80.0, 0.5, 0, 0, 100),
        "after": side(site, 0.814, 80.0, 1.25, 0, 0, 0),
        "groups": groups,
    }
    page.show(site.card(marks=[*marks, started], comparison=comparison))
    minute = page.run("return new Date(arguments[0] * 1000).toTimeString().slice(0, 5)", at - 600)
    assert page.text('[data-part="compared"]') == f"Since {minute} (release 600): <i>Worse</i>."
    assert page.facts("compared-figures") == [
        ["Hit ratio", "93.1%", "81.4%"],
        ["Look-ups per second", "80", "80"],
        ["Time computing per minute", "500 ms", "1.25 s"],
        *([f"Time of a load, p{p}", f"≈{before} µs", "\N{EN DASH}"] for p, before in ((50, 38), (90, 48))),
    ]
    assert page.facts("compared-groups") == [
        ["shop", "10.0%", "40.0%", "Deleted"],
        ["other keys", "2.5%", "0%", "\N{EN DASH}"],
    ]
    options = page.all('[data-part="releases"] option')
    assert [each.text.split(", ")[-1] for each in options] == ["release 600", "release 1200", "None"]
    assert [each.is_selected() for each in options] == [True, False, False]
    site.asked.clear()
    options[1].click()
    assert until(lambda: site.asked and f"compare={at - 1200:.0f}" in site.asked[-1], SOON)
    assert f"compare={at - 1200:.0f}" in page.run("return location.hash")
    wait = {**comparison, "sentence": "Wait a minute.", "before": None, "after": None, "seconds": None, "groups": []}
    site.figures["caches"][0]["comparison"] = wait
    page.look_again()
    assert until(lambda: page.text('[data-part="compared-sentence"]') == "Wait a minute.", SOON)
    assert page.text('[data-part="compared"]') == "Wait a minute."
    assert not page.find('[data-part="sides"]').is_displayed()
    site.figures["caches"][0]["comparison"] = None
    options[2].click()
    assert until(lambda: not page.text('[data-part="compared"]'), SOON)
    assert "compare=none" in site.asked[-1]
    assert page.find('[data-part="releases"]').is_displayed()
    assert not page.find('[data-part="sides"]').is_displayed()
    page.show(site.card(marks=[started]))
    assert not page.find('[data-part="comparison"]').is_displayed()


def rows(details):
    return [each.text for each in details.find_elements("css selector", "tbody tr")]


def test_the_pages_of_an_http_cache_are_shown_with_the_reasons_why_others_were_not_stored(page, site):
    pages = {"fresh": 1200, "stale": 3, "revalidated": 0, "collapsed": 7, "bytes_sent": 2048, "stored": 40}
    pages |= {"variants_removed": 8, "not_stored": {"private": 2, "set-cookie": 30}}
    evil = "/<img src=x onerror=alert(1)>"
    paths = {"set-cookie": {"/basket": 25, evil: 5}}
    pages |= {"not_stored_paths": paths, "full_variants": {"user-agent": {"/news": 8}}}
    page.show(site.card() | {"pages": pages})
    page.unfold("pages")
    shown = {name: page.figure(f"pages_{name}", "pages") for name in ("fresh", "bytes_sent", "stored", "not_stored")}
    assert shown == {"fresh": "1,200", "bytes_sent": "2 KiB", "stored": "40", "not_stored": "32"}
    first, second = page.all('[data-part="reasons"] details')
    assert [first.text, second.text] == ["set-cookie 30", "private 2"]
    first.find_element("tag name", "summary").click()
    assert (
        first.find_element("css selector", "p").text == f"{REASONS['set-cookie'].cause} {REASONS['set-cookie'].advice}"
    )
    assert rows(first) == ["/basket 25", f"{evil} 5"]
    assert page.all('[data-part="reasons"] img') == []
    site.figures["caches"] = [site.card() | {"pages": {**pages, "not_stored": {"private": 40, "set-cookie": 31}}}]
    page.look_again()
    assert until(lambda: page.text('[data-part="reasons"] summary') == "private 40", SOON)
    assert rows(first) == ["/basket 25", f"{evil} 5"], "a refresh keeps the list open"
    (full,) = page.all('[data-part="full"] details')
    full.find_element("tag name", "summary").click()
    assert full.find_element("tag name", "summary").text == "Too many values of user-agent"
    assert rows(full) == ["/news 8"]
    page.find('[data-part="purge"] input').send_keys("example.com")
    page.find('[data-part="purge"] button').click()
    assert until(lambda: site.posted == ["cache=pages&target=example.com"], SOON)
    page.show(site.card())
    assert not page.find('[data-part="pages"]').is_displayed()


def test_a_rehearsal_shows_its_result_the_views_and_what_to_mend(page, site):
    numbers = {"visits": 1200, "hits": 900, "compared": 45, "wrong": 2, "outdated": 0, "noise": 7, "unclear": 1}
    finding = {"sentence": "wrong: news.list, /a?<b>, line 7", "details": ["stored:  <i>you", "visitor: <i>ada"]}
    rehearsal = {
        "sentence": "Apply this and rehearse again: hits go from 75% to about 93% of 1,200 visits.",
        "block": 'rules=[\n    ("/<b>/*", ttl(60)),  # 18% of visits\n],',
        "mode": "rehearse",
        "views": [{"view": "news.list", **numbers}],
        "findings": [finding, {"sentence": "not stored: shop.basket", "details": ["Nothing to change."]}],
    }
    page.show(site.card() | {"rehearsal": rehearsal})
    page.unfold("rehearsal")
    section = '[data-part="rehearsal"]'
    cells = [each.text for each in page.all(f"{section} tbody tr > *")]
    assert cells == ["news.list", "1,200", "900", "45", "2", "0", "7", "1"]
    shown = page.text(section)
    texts = rehearsal["sentence"], rehearsal["block"], "Mode: rehearse", finding["sentence"], *finding["details"]
    for text in texts:
        assert text in shown
    assert violations(page.driver) == []
    page.show(site.card())
    assert not page.find(section).is_displayed()
