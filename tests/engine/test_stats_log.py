"""The log line of each minute, and its figures."""

import logging
import os

import pytest

from tests.scripts import run
from wheelcache import Cache


@pytest.fixture
def lines(caplog):
    caplog.set_level(logging.INFO, "wheelcache.stats")
    return caplog


def test_the_line_has_the_figures_of_its_interval_only_and_the_same_as_fields(clock, lines):
    cache = Cache("pages", clock=clock)
    cache.set("a", 1)
    for key in "aab":
        cache.get(key)
    clock.advance(60)
    cache.get_or_load("stale", int, 5, grace=100)
    clock.advance(5)
    cache.get_or_load("stale", int, 5, grace=100)
    cache.get("a")
    clock.advance(55)
    assert [line.getMessage() for line in lines.records] == [
        f"cache(pages) - qpm: 3, hit_ratio: 66.7%, elements: 1, hit: 2, miss: 1, pid: {os.getpid()}",
        f"cache(pages) - qpm: 3, hit_ratio: 33.3%, elements: 2, hit: 1, miss: 1, stale: 1, pid: {os.getpid()}",
    ]
    line = lines.records[0]
    assert (line.levelno, line.name) == (logging.INFO, "wheelcache.stats")
    found = (line.cache, line.qpm, line.hit_ratio, line.elements, line.hit, line.miss, line.stale, line.pid)
    assert found == ("pages", 3, 66.7, 1, 2, 1, 0, os.getpid())


def test_no_line_for_an_interval_without_traffic_and_none_of_an_empty_cache_until_it_is_used_again(clock, lines):
    cache = Cache(clock=clock, ttl=5)
    cache.set("a", 1)
    clock.advance(600)
    assert lines.records == []
    assert cache._parts.jobs.paused
    cache.get("a")
    cache.set("a", 1, ttl=1000)
    clock.advance(60)
    (line,) = lines.records
    assert (line.qpm, line.hit_ratio, line.elements, line.hit, line.miss) == (1, 0.0, 1, 0, 1)


def test_reading_the_figures_does_not_change_them(clock):
    cache = Cache(clock=clock)
    assert cache.stats().hit_ratio == 0
    cache.set("a", 1)
    for key in "aaab":
        cache.get(key)
    first = cache.stats()
    assert first == cache.stats() == cache.stats()
    assert (first.hits, first.misses, first.requests, first.uses, first.hit_ratio) == (3, 1, 4, 4, 0.75)
    assert (first.stale_ratio, first.answered, first.answered_ratio, first.store, first.pages) == (0, *[None] * 4)


def test_load_times_are_counted_in_buckets_up_to_their_bound(clock):
    cache = Cache(clock=clock)
    for seconds in (0, 0.5, 0.75, 10, 11):
        cache.get_or_load(f"{seconds}", lambda seconds=seconds: clock.advance(seconds))
    buckets = cache.stats().load_buckets
    assert [index for index, count in enumerate(buckets) for _ in range(count)] == [0, 14, 15, 18, 19]
    assert (len(buckets), cache.stats().load_seconds) == (20, 22.25)


@pytest.mark.parametrize(("seconds", "rate"), [(10, "qpm: 18, "), (9, "")])
def test_a_worker_that_exits_logs_its_last_line_without_a_rate_of_less_than_ten_seconds(seconds, rate):
    out = run(
        """
        import logging, os, sys
        from wheelcache import Cache, ManualClock
        logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(message)s")
        clock = ManualClock()
        cache, idle = (Cache(name, clock=clock) for name in ("pages", "idle"))
        for each in (cache, idle):
            each.set("a", 1)
        clock.advance(60)
        for _ in range(3):
            cache.get("a")
        clock.advance(int(sys.argv[1]))
        """,
        seconds,
    )
    *_, line = out.splitlines()
    assert line.startswith(f"cache(pages) - {rate}hit_ratio: 100.0%, elements: 1, hit: 3, miss: 0, pid: ")
    assert out.count("cache(") == 1
