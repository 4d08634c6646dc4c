"""The figures of a cache in a span of time: the groups of keys and the causes of misses add up to the total."""

from collections import Counter

import pytest

from tests.watch.published import Site, look
from wheelcache.engine.stats import MISSES
from wheelcache.runtime.clock import SystemClock

EPOCH = 1_000_000_800.0
"""The time when the clocks of the tests showed 0: the start of a minute, within an hour."""

MINUTE, HOUR, DAY = 60, 3600, 86_400


@pytest.fixture(autouse=True)
def _time(monkeypatch, clock):
    """Let the time of the system, by which a site is tidied, follow the clock of the caches."""
    monkeypatch.setattr(SystemClock, "time", staticmethod(lambda: EPOCH + clock()))
    monkeypatch.setattr(SystemClock, "steady", staticmethod(lambda: clock()))


def figures_of(site, name="pages"):
    (found,) = (each for each in site.caches if each.name == name)
    return found


def assert_adds_up(within):
    """Check that the groups, and the causes, add up to the total."""
    total, groups = within.total(), within.total().groups.values()
    for name in ("hits", "stale_hits", "misses", "puts", "load_seconds"):
        assert sum(getattr(each, name) for each in groups) == getattr(total, name), name
    assert sum(each.loads for each in groups) == total.loads + total.load_failures
    assert sum(total.misses_by_cause.values()) == total.misses
    for cause in MISSES:
        assert sum(each.misses_by_cause[cause] for each in groups) == total.misses_by_cause[cause], cause


@pytest.mark.compiled
def test_in_any_span_of_the_day_the_groups_add_up_to_the_total_and_equal_an_independent_count(make, clock, path):
    cache = make(ttl=90)
    true = Counter()
    for number in range(560):
        # Every third step of 10 s has look-ups, in other groups each time.
        step = int(EPOCH + clock()) // 10 * 10
        for group in ("user", "city", f"rare{number % 40}") if number % 3 == 0 else ():
            cache.get_or_load(f"{group}:{number % 7}", lambda: clock.advance(0.125))
            cache.get("without a group")
            true[step, group] += 1
            true[step, ""] += 1
        clock.advance(10 - clock() % 10)
    clock.advance(10)
    site = Site([cache])
    figures, edge = figures_of(site), site.edge
    for since, until in (
        *((edge - seconds, edge) for seconds in (10, 600, HOUR, 6 * HOUR, DAY)),
        *((edge - 5000, edge - 4000), (edge - 5000, edge - 100), (edge - 1000, edge - 990), (edge - HOUR - 70, edge)),
    ):
        span = site.span(since, until)
        within = site.within(figures, span, charted=6)
        assert_adds_up(within)
        found = {name: each.requests for name, each in within.total().groups.items()}
        expected = Counter()
        for (step, group), count in true.items():
            expected[group] += count * span.has(step)
        assert found == +expected
        charted = {name: sum(line.values()) for name, line in within.computing.items()}
        seconds = {name: each.load_seconds for name, each in within.total().groups.items()}
        assert charted.items() <= seconds.items()
        assert len(charted) >= min(6, sum(map(bool, seconds.values())))
        steps = within.steps(span)
        assert sum(step.hits + step.misses for step in steps.values()) == sum(found.values())
    assert sum(true.values()) == sum(each.requests for each in figures.stats.groups.values())


def test_a_span_has_whole_steps_and_whole_minutes_before_the_last_hour(make, clock, path):
    make().set("a", 1)
    clock.advance(2 * HOUR)
    site = look(path, clock)
    edge = site.edge
    assert site.span(edge - 600) == (edge - 600, edge, 10)
    assert site.span(edge - HOUR) == (edge - HOUR, edge, 10)
    since, until, step = site.span(edge - 6 * HOUR)
    assert (since % MINUTE, until, step) == (0, edge, MINUTE)
    since, until, step = site.span(edge - 2 * DAY)
    assert (edge - DAY - 300 <= since <= edge - DAY, until, step) == (True, edge, 300)
    since, until, step = site.span(edge - 5025, edge - 4025)
    assert (since % MINUTE, until % MINUTE, step) == (0, 0, MINUTE)
    assert site.span(edge + 5, edge + 9) == (edge, edge, 10)
    assert site.span(edge - 3, edge - 50).since >= site.span(edge - 3, edge - 50).until - 10
