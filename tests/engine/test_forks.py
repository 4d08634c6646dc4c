"""Forks: before and after the first use, during work, and from a loader."""

import logging
import threading

import pytest

from tests.caches import ticking
from tests.engine import invariants
from tests.guests import Timers, needs
from tests.runtime.forks import fork
from tests.waiting import PATIENCE, join, start, until
from wheelcache import CacheClosed
from wheelcache.engine.stats_log import StatsLog


@pytest.fixture
def make(closed):
    """Make a cache with a wheel thread, which is closed in the end."""
    return lambda **options: closed(ticking(0.01)(**{"jitter": 0, **options}))


def test_a_child_reads_what_it_inherited_and_expires_and_evicts_on_its_own(make):
    cache = make(max_entries=3)
    cache.set("for ever", 1)
    cache.set("short", 1, ttl=0.2)

    def child():
        assert threading.active_count() == 1
        assert cache.get("for ever") == 1
        cache.set("mine", 1, ttl=0.05)
        assert threading.active_count() == 2
        assert until(lambda: cache.keys() == ["for ever"] and len(cache) == 1)
        cache.set_many(dict.fromkeys(range(10)))
        assert cache.keys() == [7, 8, 9]
        assert cache.stats().evictions > 0

    assert fork(child)
    assert until(lambda: cache.keys() == ["for ever"] and len(cache) == 1)


@pytest.mark.parametrize("is_used", [False, True])
def test_any_write_of_the_child_starts_its_thread(make, is_used):
    cache = make()
    if is_used:
        cache.set_many(dict.fromkeys(range(100), 0), ttl=0.3)

    def child():
        if not is_used:
            cache.set("short", 1, ttl=0.05)
        cache.set("for ever", 1)
        assert until(lambda: len(cache) == 1)

    assert fork(child)


@pytest.mark.deep
def test_children_forked_in_the_middle_of_other_threads_work_never_deadlock_and_find_the_cache_whole(make):
    cache = make(max_entries=200)
    stop = threading.Event()

    def work(number):
        while not stop.is_set():
            number += 7
            cache.set(number % 300, number, ttl=0.001 + number % 5 / 100)
            cache.get(number % 100)
            cache.get_or_load(number % 90, lambda: 1, ttl=0.01)
            cache.delete(number % 50)

    def child():
        invariants.check(cache)
        for number in range(300):
            cache.set(number, number, ttl=5)
            cache.get_or_load(("mine", number), lambda: 1, ttl=5)
        invariants.check(cache)

    threads = [start(work, number) for number in range(4)]
    try:
        assert [fork(child) for _ in range(20)] == [True] * 20
    finally:
        stop.set()
        join(*threads)


@pytest.mark.deep
def test_threads_that_fork_at_once_release_what_they_held(make):
    caches, done = [make()], []

    def work():
        for _ in range(10):
            caches.append(make())
            done.append(fork(lambda: caches[0].set("a", 1)))

    join(*[start(work) for _ in range(3)])
    assert done == [True] * 30
    assert all(cache.set("b", 1, ttl=5) for cache in caches)


def test_a_child_forked_by_a_loader_loads_for_itself(make, in_thread):
    cache = make()

    def child():
        assert cache.get_or_load("k", lambda: "child's") == "child's"

    def loader():
        # In a thread of its own, as a pool's would be: the loader's context says that it is loading "k".
        assert in_thread(fork, child).result(PATIENCE)
        return "parent's"

    assert (cache.get_or_load("k", loader), cache.get("k")) == ("parent's", "parent's")


@needs("timers")
def test_timers_belong_to_the_process_that_set_them():
    fired = []
    timers = Timers(0.01, lambda key, value: fired.append(key))
    timers.set_timer("parent's", 1, 0.1)
    event = timers.after(0.1)

    def child():
        # On a busy machine, the parent's timer may have fired before the fork.
        fired.clear()
        assert len(timers) == 0
        timers.set_timer("child's", 1, 0.02)
        assert until(lambda: fired == ["child's"])
        assert timers.after(0.2).wait(PATIENCE)
        assert fired == ["child's"]

    assert fork(child)
    assert until(lambda: fired == ["parent's"])
    assert event.wait(PATIENCE)


def test_the_line_a_minute_goes_on_in_the_child_with_its_own_figures(make, monkeypatch):
    lines = []

    class Lines(logging.Handler):
        def emit(self, record):
            if record.cache == "logged":
                lines.append((record.hit, record.miss))

    monkeypatch.setattr(StatsLog, "period", 0.05)
    cache = make(name="logged")
    cache.set("a", 1)
    for _ in range(100):
        cache.get("a")

    def child():
        logger = logging.getLogger("wheelcache.stats")
        logger.addHandler(Lines())
        logger.setLevel(logging.INFO)
        cache.get("a")
        cache.get("b")
        cache.set("b", 1)
        assert until(lambda: lines)
        assert lines[0] == (1, 1)

    assert fork(child)


def test_what_was_closed_is_closed_in_the_child(make):
    cache = make()
    cache.close()

    def child():
        with pytest.raises(CacheClosed):
            cache.set("a", 1)

    assert fork(child)
