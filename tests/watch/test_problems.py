"""Problems follow from the figures that workers publish, and each is described in a sentence."""

import pytest

from tests.watch.test_dashboard import dashboard
from wheelcache.pages.busiest import FULL
from wheelcache.pages.variants import MOST_VARIANTS
from wheelcache.watch import problems as module
from wheelcache.watch.event_log import KILLED, Event
from wheelcache.watch.figures import Process, Sum
from wheelcache.watch.page_paths import no_paths
from wheelcache.watch.problems import Problem, headline, problems
from wheelcache.watch.site import OverviewStep, Site
from wheelcache.watch.tables import GAUGES_OF_WORKER

NOW = 1_000_000.0


def processes(*threads):
    """Return the processes of a site, by the states of their wheel threads."""
    return {number: Process(number, NOW, NOW, thread, "compiled") for number, thread in enumerate(threads)}


def cache(**values):
    """Return the figures of a healthy cache with two workers; ``values`` are attributes of ``Sum``, or gauges."""
    gauges = dict.fromkeys(GAUGES_OF_WORKER, 0) | {"max_entries": 100, "max_weight": None, "has_store": True}
    gauges |= values.pop("gauges", {}) | {name: values.pop(name) for name in GAUGES_OF_WORKER if name in values}
    given = {"processes": processes("running", "parked"), "published": NOW, **values}
    return Sum(gauges=gauges if given["processes"] else {}, **given).of_cache("pages")


def steps(*parts):
    """Return steps that have just ended, the newest last. Each is given by its counts that are not 0."""
    nothing = OverviewStep._make([0] * len(OverviewStep._fields))
    first = NOW - 10 * len(parts)
    return {int(first + 10 * place): nothing._replace(**part) for place, part in enumerate(parts)}


def found(figures, recent=None, events=(), configured=("pages",)):
    return list(map(str, problems([figures], {"pages": recent or {}}, events, configured, NOW)))


def full(*pages, field="user-agent", at=NOW):
    """Return the paths of a site with pages that have too many variants."""
    paths = no_paths()
    for path, number in pages:
        paths.add(FULL, field, path, number, at)
    return paths


FULL_PAGE = (
    "Vary: user-agent on /news has more than 32 values: 12 variants were removed in the last minute; make the page "
    "depend on fewer values, or if the page does not show it, name the code that reads it in ignore_reads_by"
)

DOWN = {"gauges": {"breakers": 3, "open_breakers": 2}}


@pytest.mark.parametrize(
    ("recent", "expected"),
    [
        ([], ""),
        ([{"store_calls": 5}, *[{"store_refused": 5}] * 18], " for 3 min"),
        ([{"store_calls": 5}, {"store_errors": 1}, {}, {"store_refused": 1}, {}], " for 40 s"),
        ([{"store_errors": 1}] * 60, " for more than 10 min"),
    ],
)
def test_a_store_is_down_since_its_calls_began_to_fail(recent, expected):
    sentence = f"Cache 'pages': its store is down{expected}: 2 of 3 workers do not call it"
    assert found(cache(**DOWN), steps(*recent)) == [sentence]


@pytest.mark.parametrize(
    ("figures", "recent", "expected"),
    [
        ({"processes": {}, "published": NOW - 7200}, [], None),
        ({}, [{"load_failures": 3, "loads": 9}] * 6, "25% of its loads fail for 60 s"),
        ({}, [{"load_failures": 2, "loads": 0}], None),
        ({}, [{"load_failures": 3, "loads": 97}], None),
        (
            {},
            [{"load_failures": 9, "loads": 1}, {"loads": 5}],
            "60% of its loads failed in the last minute; now they succeed",
        ),
        ({}, [{"store_errors": 3, "store_calls": 50}], "3 calls of its store failed in the last minute"),
        (
            {},
            [{"store_errors": 3, "store_calls": 3}, {"store_calls": 1}, {}],
            "3 calls of its store failed in the last minute; now it answers",
        ),
        ({}, [{"store_errors": 3, "store_calls": 60}], None),
        ({"lag": 40.0}, [], "its timing wheel is 40 s late"),
        ({"lag": 10.0}, [], None),
        ({"processes": processes("running", "refused")}, [], "the system refused 1 of its 2 workers a wheel thread"),
        ({}, [{"load_timeouts": 1}] * 6, "6 callers gave up waiting for its loads in the last minute"),
        ({}, [{"load_timeouts": 9}, *[{}] * 6], None),
        (
            {},
            [{"refreshes_dropped": 1000}] * 2,
            "2,000 refreshes in the last minute were dropped: its loads take too long",
        ),
        (
            {"gauges": {"trackers": 3, "trusted": 1}},
            [],
            "2 of 3 workers receive no invalidations and read through to its store",
        ),
        ({"gauges": {"trackers": 3, "trusted": 3}}, [], None),
        (
            {"gauges": {"trackers": 3, "trusted": 0, "refused_trackers": 3}},
            [],
            "its store refuses CLIENT TRACKING to 3 of 3 workers, which use no copies; their log has the reason",
        ),
        (
            {"gauges": {"size": 99}},
            [{"evictions": 100, "misses": 70, "hits": 30}] * 6,
            "it is too small: it evicts 10 entries a second, and 30% of look-ups hit: try doubling MAX_ENTRIES",
        ),
        (
            {"gauges": {"size": 9, "weight": 96}, "max_weight": 100},
            [{"evictions": 30, "misses": 38, "hits": 62}] * 6,
            "it is too small: it evicts 3 entries a second, and 62% of look-ups hit: try doubling MAX_BYTES",
        ),
        (
            {"gauges": {"size": 9, "weight": 96}, "max_weight": 100, "is_shared": True},
            [{"evictions": 30, "misses": 38, "hits": 62}] * 6,
            "it is too small: it evicts 3 entries a second, and 62% of look-ups hit: try doubling MAX_SIZE",
        ),
        ({"paths": full(("/news", 20), ("/", 5))}, [{"pages_variants_removed": 2}] * 6, FULL_PAGE),
        ({"paths": full(("/news", 20))}, [{"pages_variants_removed": 5}, *[{}] * 5], None),
        (
            {"paths": full(("/news", 20), at=NOW - 300)},
            [{"pages_variants_removed": 2}] * 6,
            "a page has more than 32 variants: 12 variants were removed in the last minute",
        ),
        (
            {"paths": full(("/a\x1b[2Jb", 20))},
            [{"pages_variants_removed": 2}] * 6,
            FULL_PAGE.replace("/news", "/a%1B[2Jb"),
        ),
        (
            {"paths": full(("/news", 20), field="cookie theme")},
            [{"pages_variants_removed": 2}] * 6,
            FULL_PAGE.replace("Vary: user-agent", "the cookie 'theme'"),
        ),
        ({"gauges": {"size": 99}}, [{"evictions": 100, "misses": 100, "hits": 240}] * 6, None),
        ({"gauges": {"size": 99}}, [{"evictions": 100, "misses": 300, "hits": 30}] * 6, None),
        ({"gauges": {"size": 90}}, [{"evictions": 100, "misses": 100, "hits": 30}] * 6, None),
    ],
)
def test_each_problem_is_a_sentence_and_without_one_there_is_none(figures, recent, expected):
    assert found(cache(**figures), steps(*recent)) == ([f"Cache 'pages': {expected}"] if expected else [])


def test_the_limit_in_the_sentence_is_that_of_the_pages():
    assert module.MOST_VARIANTS == MOST_VARIANTS


def test_a_cache_that_nobody_has_is_a_problem_for_a_day_unless_this_process_has_it():
    for hours, expected in ((2, ["Cache 'pages': no worker has had it for 2 h"]), (25, [])):
        figures = cache(processes={}, published=NOW - hours * 3600)
        assert found(figures, configured=()) == expected
        assert found(figures) == []


def test_a_worker_that_ended_abruptly_is_a_problem_of_the_site_for_five_minutes():
    killed = [Event.of(KILLED, NOW - seconds, (7, 0.0)) for seconds in (120, 301)]
    assert found(cache(), events=killed) == ["2 min ago, worker 7: killed, crashed, or left by os._exit"]


def test_the_worst_problem_comes_first():
    figures = cache(lag=60.0, gauges={"open_breakers": 1, "breakers": 1})
    assert [each.split(":")[1] for each in found(figures)] == [" its store is down", " its timing wheel is 60 s late"]


@pytest.mark.parametrize(
    ("number", "names", "expected"),
    [
        (0, "abc", "All 3 caches are healthy"),
        (0, "a", "Cache 'a' is healthy"),
        (0, "", "There is no cache"),
        (1, "abc", "Cache 'a': it is late"),
        (2, "abc", "Cache 'a': it is late, and 1 more problem"),
        (4, "abc", "Cache 'a': it is late, and 3 more problems"),
    ],
)
def test_the_headline_states_the_worst_problem_or_that_there_is_none(number, names, expected):
    assert headline([Problem("a", "it is late")] * number, list(names)) == expected


def test_the_counts_of_the_last_ten_minutes_are_those_of_all_caches(make, clock):
    published, alone = make("published"), make("other")
    for each in (published, alone):
        each.set("other", 1)
    for _ in range(70):
        for each in (published, alone):
            each.get("k")
        clock.advance(10)
    recent = Site([published, alone]).recent()
    for name in ("published", "other"):
        assert len(recent[name]) in (59, 60)
        assert {step.misses for step in recent[name].values()} == {1}
    assert dashboard(published, alone).figures()["headline"] == "All 2 caches are healthy"
