"""The log line of each minute, and its figures."""

import logging
from math import inf

import pytest

from tests.scripts import run
from wheelcache import Cache, ManualClock


class WatchedClock(ManualClock):
    """A clock that reports when its next job is due."""

    def __init__(self):
        super().__init__()
        self.attached = []

    def attach(self, driven):
        self.attached.append(driven)
        super().attach(driven)

    @property
    def wake_at(self):
        return min(each.wake_at for each in self.attached)


@pytest.fixture
def lines(caplog):
    caplog.set_level(logging.INFO, "wheelcache.stats")
    return lambda: caplog.records


def test_the_line_has_the_figures_of_its_interval_only_and_the_same_as_fields(clock, lines):
    cache = Cache("pages", clock=clock)
    cache.set("a", 1)
    for _ in range(2):
        cache.get("a")
    cache.get("b")
    clock.advance(60)
    cache.get("a")
    clock.advance(60)
    assert [line.getMessage() for line in lines()] == [
        "cache(pages) - qpm: 3, hit_ratio: 66.7%, elements: 1, hit: 2, miss: 1",
        "cache(pages) - qpm: 1, hit_ratio: 100.0%, elements: 1, hit: 1, miss: 0",
    ]
    line = lines()[0]
    assert line.levelno == logging.INFO
    assert line.name == "wheelcache.stats"
    assert (line.cache, line.qpm, line.hit_ratio, line.elements, line.hit, line.miss) == ("pages", 3, 66.7, 1, 2, 1)


def test_no_line_for_an_interval_without_traffic(clock, lines):
    cache = Cache(clock=clock)
    cache.set("a", 1)
    clock.advance(600)
    assert lines() == []
    cache.get("a")
    clock.advance(60)
    assert len(lines()) == 1


def test_an_empty_and_idle_cache_logs_nothing_until_it_is_written_again(lines):
    clock = WatchedClock()
    cache = Cache(clock=clock, ttl=5)
    cache.set("a", 1)
    cache.get("a")
    clock.advance(180)
    assert len(lines()) == 1
    assert clock.wake_at == inf
    cache.get("a")
    cache.set("a", 1, ttl=1000)
    clock.advance(60)
    assert lines()[1].getMessage() == "cache(default) - qpm: 1, hit_ratio: 0.0%, elements: 1, hit: 0, miss: 1"


def test_reading_the_figures_does_not_change_them(clock):
    cache = Cache(clock=clock)
    assert cache.stats().hit_ratio == 0
    cache.set("a", 1)
    for _ in range(3):
        cache.get("a")
    cache.get("b")
    first = cache.stats()
    assert first == cache.stats() == cache.stats()
    assert (first.hits, first.misses, first.hit_ratio) == (3, 1, 0.75)
    with pytest.raises(AttributeError):
        first.hits = 5


def test_a_worker_that_exits_logs_its_last_line():
    out = run(
        """
        import logging, sys
        from wheelcache import Cache, ManualClock
        logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(message)s")
        clock = ManualClock()
        cache, idle = (Cache(name, clock=clock) for name in ("pages", "idle"))
        for each in (cache, idle):
            each.set("a", 1)
        clock.advance(60)
        for _ in range(3):
            cache.get("a")
        clock.advance(30)
        """
    )
    assert [line for line in out.splitlines() if "qpm" in line] == [
        "cache(pages) - qpm: 6, hit_ratio: 100.0%, elements: 1, hit: 3, miss: 0"
    ]
