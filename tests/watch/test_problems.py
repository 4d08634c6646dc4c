"""Problems follow from the figures that workers publish, and each is described in a sentence."""

import pytest

from tests.watch.test_dashboard import dashboard
from wheelcache.pages.busiest import FULL
from wheelcache.pages.variants import MOST_VARIANTS
from wheelcache.watch import problems as module
from wheelcache.watch.comparison import Change
from wheelcache.watch.event_log import KILLED, Event
from wheelcache.watch.figures import Process, Sum
from wheelcache.watch.group_tables import LoadStep
from wheelcache.watch.page_paths import no_paths
from wheelcache.watch.problems import Evidence, Problem, headline, problems
from wheelcache.watch.rows import NO_GROUP, group_of
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


def loads(*parts):
    """Return the loads of a group in steps that have just ended, each as the numbers of good and failed ones."""
    first = NOW - 10 * len(parts)
    return {int(first + 10 * place): LoadStep(*part) for place, part in enumerate(parts)}


def found(figures, recent=None, events=(), configured=("pages",), groups=None, worse=()):
    evidence = Evidence(
        *(NOW, NOW, {"pages": recent or {}}),
        loads={"pages": groups or {}},
        worse={"pages": worse},
        events=events,
        configured=configured,
    )
    return list(map(str, problems([figures], evidence)))


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
            {"gauges": {"size": 60}},
            [{"evictions": 100, "misses": 70, "hits": 30, "misses_lost": 50}] * 6,
            "is too small: 30% hits, 10 evictions per second; try doubling MAX_ENTRIES",
        ),
        (
            {"gauges": {"size": 9, "weight": 96}, "max_weight": 100},
            [{"evictions": 30, "misses": 38, "hits": 62, "misses_lost": 20}] * 6,
            "is too small: 62% hits, 3 evictions per second; try doubling MAX_BYTES",
        ),
        (
            {"gauges": {"size": 9, "weight": 96}, "max_weight": 100, "is_shared": True},
            [{"evictions": 5, "misses": 10, "hits": 16, "misses_lost": 9}] * 6,
            "is too small: 62% hits, 0.5 evictions per second; try doubling MAX_SIZE",
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
        # The look-ups for evicted entries are few, or the cache does well; at night, little happens.
        ({}, [{"evictions": 100, "misses": 100, "hits": 100, "misses_lost": 15}] * 6, None),
        ({}, [{"evictions": 100, "misses": 100, "hits": 450, "misses_lost": 90}] * 6, None),
        ({}, [{"evictions": 20, "misses": 100, "hits": 100, "misses_lost": 90}] * 6, None),
        ({}, [{"evictions": 1, "misses": 1, "hits": 1, "misses_lost": 1}, {}] * 2, None),
        # The counts of more than a minute ago do not matter, even if there are no others.
        ({}, [{"evictions": 100, "misses": 70, "hits": 30, "misses_lost": 50}, *[{}] * 6], None),
    ],
)
def test_each_problem_is_a_sentence_and_without_one_there_is_none(figures, recent, expected):
    joint = "" if str(expected).startswith("is ") else ":"
    assert found(cache(**figures), steps(*recent)) == ([f"Cache 'pages'{joint} {expected}"] if expected else [])


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        ({"shop": [(9, 3)] * 6}, ["Cache 'pages', shop: 25% of loads have failed for 60 s"]),
        ({"": [(9, 3)] * 6}, ["Cache 'pages': 25% of loads have failed for 60 s"]),
        # Few failures, or a small share of them.
        ({"shop": [(0, 2)]}, []),
        ({"shop": [(97, 3)]}, []),
        # Other groups do not hide it.
        ({"about": [(900, 0)] * 6, "shop": [(5, 5)] * 6}, ["Cache 'pages', shop: 50% of loads have failed for 60 s"]),
        (
            {"shop": [(1, 9), (5, 0)]},
            ["Cache 'pages', shop: 60% of loads failed in the last minute; now they succeed"],
        ),
        (
            {f"view{number}": [(0, 10 + number)] for number in range(9)},
            [f"Cache 'pages', view{number}: 100% of loads have failed for 10 s" for number in (8, 7, 6, 5, 4)],
        ),
    ],
)
def test_failing_loads_are_a_problem_of_their_group_and_the_worst_groups_are_named(groups, expected):
    assert found(cache(), groups={name: loads(*parts) for name, parts in groups.items()}) == expected


def test_a_group_that_misses_more_since_a_release_is_a_problem():
    old, new = (group_of((hits, *NO_GROUP[1:-1], misses)) for hits, misses in ((950, 50), (570, 430)))
    expected = ["Cache 'pages', product: misses rose from 5% to 43%"]
    assert found(cache(), worse=[Change("product", old, new)]) == expected


def test_alone_on_the_page_of_its_cache_a_problem_is_a_sentence_without_its_name():
    told = [
        Problem("a", "its store is down"),
        Problem("a", "is too small: 2% hits"),
        Problem("a", "fails", "loads", "shop"),
    ]
    assert [each.alone for each in told] == ["Its store is down", "Too small: 2% hits", "shop: fails"]


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
        (0, "abc", "No problem in the last minute"),
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
    assert dashboard(published, alone).figures()["headline"] == "No problem in the last minute"
