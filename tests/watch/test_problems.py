"""Problems follow from the figures that workers publish. Each limit of a rule is held from both sides."""

import pytest

from wheelcache.pages.busiest import FULL
from wheelcache.watch.comparison import Change
from wheelcache.watch.event_log import KILLED, Event
from wheelcache.watch.figures import Process, Sum
from wheelcache.watch.group_tables import LoadStep
from wheelcache.watch.page_paths import no_paths
from wheelcache.watch.problems import Evidence, Problem, headline, in_words, problems
from wheelcache.watch.rows import NO_GROUP, group_of
from wheelcache.watch.site import OverviewStep
from wheelcache.watch.tables import DAY, GAUGES_OF_WORKER

NOW = 1_000_000.0
WORKERS = ("running", "parked")


def cache(workers=WORKERS, published=NOW, paths=None, **gauges):
    """Return the figures of a cache whose workers have wheel threads in these states; healthy without ``gauges``."""
    healthy = dict.fromkeys(GAUGES_OF_WORKER, 0) | {"max_entries": 100, "max_weight": None, "has_store": True}
    processes = {number: Process(number, NOW, NOW, thread, "compiled") for number, thread in enumerate(workers)}
    given = {"gauges": healthy | gauges} if workers else {}
    return Sum(**given, processes=processes, published=published, paths=paths or no_paths()).of_cache("pages")


def in_steps(parts, make):
    """Return steps that have just ended, the newest last."""
    first = NOW - 10 * len(parts)
    return {int(first + 10 * place): make(part) for place, part in enumerate(parts)}


def found(figures=None, *recent, events=(), configured=("pages",), groups=None, worse=()):
    """Return the problems.

    Args:
        recent: the counts of steps that have just ended, as far as they are not 0.
        groups: the good and the failed loads of each group, in such steps.
    """
    nothing = OverviewStep._make([0] * len(OverviewStep._fields))
    loads = {name: in_steps(parts, lambda part: LoadStep(*part)) for name, parts in (groups or {}).items()}
    evidence = Evidence(
        *(NOW, NOW, {"pages": in_steps(recent, lambda part: nothing._replace(**part))}),
        loads={"pages": loads},
        worse={"pages": worse},
        events=events,
        configured=configured,
    )
    sentences = map(str, problems([figures or cache()], evidence))
    return [each.removeprefix("Cache 'pages'").removeprefix(":").strip() for each in sentences]


def full(*pages, field="user-agent", at=NOW):
    """Return the paths of a site with pages that have too many variants."""
    paths = no_paths()
    for path, number in pages:
        paths.add(FULL, field, path, number, at)
    return paths


SMALL = {"hits": 479, "misses": 121, "misses_lost": 60, "evictions": 31}
FULL_PAGE = (
    "Vary: user-agent on /news has more than 32 values: 6 variants were removed in the last minute; make the page "
    "depend on fewer values, or if the page does not show it, name the code that reads it in ignore_reads_by"
)
RULES = [
    # The figures and the counts of the last minute, with which there is a problem; its sentence; and changes that leave
    # each of its limits by the least possible.
    (
        {"breakers": 3, "open_breakers": 1},
        {},
        "its store is down: 1 of 3 workers do not call it",
        [{"open_breakers": 0}],
    ),
    (
        {},
        {"store_errors": 3, "store_calls": 59},
        "3 calls of its store failed in the last minute",
        [{"store_calls": 60}, {"store_errors": 2, "store_calls": 2}],
    ),
    ({"lag": 10.1}, {}, "its timing wheel is 10 s late", [{"lag": 10.0}]),
    (
        {"workers": ("running", "refused")},
        {},
        "the system refused 1 of its 2 workers a wheel thread",
        [{"workers": ("running", "not started")}],
    ),
    (
        {},
        {"load_timeouts": 6},
        "6 callers gave up waiting for its loads in the last minute",
        [{"load_timeouts": 5}],
    ),
    (
        {},
        {"refreshes_dropped": 6},
        "6 refreshes in the last minute were dropped: its loads take too long",
        [{"refreshes_dropped": 5}],
    ),
    (
        {"trackers": 3, "trusted": 2},
        {},
        "1 of 3 workers receive no invalidations and read through to its store",
        [{"trusted": 3}],
    ),
    (
        {"trackers": 3, "trusted": 2, "refused_trackers": 1},
        {},
        "its store refuses CLIENT TRACKING to 1 of 3 workers, which use no copies; their log has the reason",
        [{"trusted": 3, "refused_trackers": 0}],
    ),
    (
        {},
        SMALL,
        "is too small: 80% hits, 0.52 evictions per second; try doubling MAX_ENTRIES",
        [
            {"hits": 480, "misses": 120},
            {"misses_lost": 59},
            {"evictions": 30, "misses": 120},
            {"hits": 5, "misses": 5, "misses_lost": 5, "evictions": 5},
        ],
    ),
    ({}, {"hits": 5, "misses": 5, "misses_lost": 5, "evictions": 6}, None, []),
    (
        {"paths": full(("/news", 20), ("/", 5))},
        {"pages_variants_removed": 6},
        FULL_PAGE,
        [{"pages_variants_removed": 5}],
    ),
]


@pytest.mark.parametrize(("figures", "minute", "sentence", "limits"), RULES, ids=[str(each[2])[:30] for each in RULES])
def test_each_rule_names_its_problem_up_to_its_limits_and_not_beyond(figures, minute, sentence, limits):
    (given,) = found(cache(**figures), minute, *[{}] * 5)
    assert given == (sentence or given)
    for limit in limits:
        of_figures = {name: value for name, value in limit.items() if name not in OverviewStep._fields}
        counts = {name: value for name, value in limit.items() if name in OverviewStep._fields}
        assert found(cache(**figures | of_figures), minute | counts, *[{}] * 5) == [], limit
    if minute:
        assert found(cache(**figures), minute, *[{}] * 6) == [], "that was more than a minute ago"


@pytest.mark.parametrize(
    ("figures", "minute", "is_hidden"),
    [
        ({"breakers": 1, "open_breakers": 1}, {"store_errors": 6, "store_calls": 6}, True),
        ({"breakers": 1, "open_breakers": 1, "trackers": 1}, {}, True),
        ({"breakers": 1, "open_breakers": 1, "lag": 60.0}, {}, False),
    ],
)
def test_a_store_that_is_down_comes_first_and_hides_the_problems_that_follow_from_it(figures, minute, is_hidden):
    first, *others = found(cache(**figures), minute)
    assert first.startswith("its store is down")
    assert others == ([] if is_hidden else ["its timing wheel is 60 s late"])


@pytest.mark.parametrize(
    ("figures", "evictions", "words"),
    [
        ({"size": 60}, 600, "10 evictions per second; try doubling MAX_ENTRIES"),
        ({"size": 9, "weight": 96, "max_weight": 100}, 594, "9.9 evictions per second; try doubling MAX_BYTES"),
        ({"size": 99, "weight": 96, "max_weight": 100}, 600, "10 evictions per second; try doubling MAX_ENTRIES"),
        ({"weight": 96, "max_weight": 100, "is_shared": True}, 60, "1 evictions per second; try doubling MAX_SIZE"),
    ],
)
def test_a_cache_that_is_too_small_is_told_which_limit_to_raise(figures, evictions, words):
    (sentence,) = found(cache(**figures), SMALL | {"evictions": evictions})
    assert sentence.endswith(words)


@pytest.mark.parametrize(
    ("paths", "begins"),
    [
        (full(("/news", 5), ("/", 20)), "Vary: user-agent on / has"),
        (full(("/a\x1b[2Jb", 20)), "Vary: user-agent on /a%1B[2Jb has"),
        (full(("/news", 20), field="cookie theme"), "the cookie 'theme' on /news has"),
        (full(("/news", 20), at=NOW - 119), "Vary: user-agent on /news has"),
        (full(("/news", 20), at=NOW - 120), "a page has more than 32 variants: 6 variants were removed"),
    ],
)
def test_the_page_with_most_variants_is_named_with_the_cause_for_two_minutes(paths, begins):
    (sentence,) = found(cache(paths=paths), {"pages_variants_removed": 6})
    assert sentence.startswith(begins)


@pytest.mark.parametrize(
    ("recent", "lasts"),
    [
        ([{"store_calls": 5}, *[{"store_refused": 5}] * 18], " for 3 min"),
        ([{"store_calls": 5}, {"store_errors": 1}, {}, {"store_refused": 1}, {}], " for 40 s"),
        ([{"store_errors": 1}, {"store_calls": 1}, {}], ""),
        ([{"store_errors": 1}] * 59, " for 10 min"),
        ([{"store_errors": 1}] * 60, " for more than 10 min"),
    ],
)
def test_an_outage_lasts_since_the_last_good_call(recent, lasts):
    down = f"its store is down{lasts}: 1 of 1 workers do not call it"
    assert found(cache(breakers=1, open_breakers=1), *recent) == [down]


def test_a_store_that_answers_again_is_said_to():
    sentence = "3 calls of its store failed in the last minute; now it answers"
    assert found(None, {"store_errors": 3, "store_calls": 3}, {"store_calls": 1}, {}) == [sentence]


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        ({"shop": [(56, 3)]}, [", shop: 5% of loads have failed for 10 s"]),
        ({"shop": [(57, 3)]}, []),
        ({"shop": [(0, 2)]}, []),
        ({"": [(9, 3)] * 6}, ["25% of loads have failed for 60 s"]),
        # Other groups do not hide it.
        ({"about": [(900, 0)] * 6, "shop": [(5, 5)] * 6}, [", shop: 50% of loads have failed for 60 s"]),
        ({"shop": [(1, 9), (5, 0)]}, [", shop: 60% of loads failed in the last minute; now they succeed"]),
        (
            {f"view{number}": [(0, 10 + number)] for number in range(9)},
            [f", view{number}: 100% of loads have failed for 10 s" for number in (8, 7, 6, 5, 4)],
        ),
    ],
)
def test_failing_loads_are_a_problem_of_their_group_and_the_five_worst_groups_are_named(groups, expected):
    assert found(groups=groups) == expected


def test_a_group_that_misses_more_since_a_release_is_a_problem():
    old, new = (group_of((hits, *NO_GROUP[1:-1], misses)) for hits, misses in ((950, 50), (570, 430)))
    assert found(worse=[Change("product", old, new)]) == [", product: misses rose from 5% to 43%"]


@pytest.mark.parametrize(
    ("published", "is_problem"), [(NOW - 7200, True), (NOW - DAY + 1, True), (NOW - DAY, False), (None, False)]
)
def test_a_cache_that_no_worker_has_is_a_problem_for_a_day_unless_this_process_has_it(published, is_problem):
    figures = cache(workers=(), published=published)
    assert [each[:26] for each in found(figures, configured=())] == ["no worker has had it for 2"] * is_problem
    assert found(figures) == []


@pytest.mark.parametrize(("ago", "words"), [(120, ["2 min"]), (299, ["5 min"]), (300, [])])
def test_a_worker_that_ended_abruptly_is_a_problem_of_the_site_for_five_minutes(ago, words):
    killed = [Event.of(KILLED, NOW - ago, (7, 0.0))]
    assert found(events=killed) == [f"{each} ago, worker 7: killed, crashed, or left by os._exit" for each in words]


@pytest.mark.parametrize(
    ("seconds", "words"), [(89.4, "89 s"), (90, "2 min"), (5399, "90 min"), (5400, "2 h"), (86_400, "24 h")]
)
def test_a_duration_has_its_unit(seconds, words):
    assert in_words(seconds) == words


def test_alone_on_the_page_of_its_cache_a_problem_is_a_sentence_without_its_name():
    texts = [Problem("a", "is too small: 2% hits"), Problem("a", "fails", "loads", "shop"), Problem(None, "ended")]
    assert [each.alone for each in texts] == ["Too small: 2% hits", "shop: fails", "Ended"]
    assert [*map(str, texts)] == ["Cache 'a' is too small: 2% hits", "Cache 'a', shop: fails", "ended"]


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
