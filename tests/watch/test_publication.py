"""Publication: readers find totals, steps and the last minute, even if workers exit or are killed."""

import os
import signal
from dataclasses import replace

import pytest

from tests.watch.processes import run, worker
from tests.watch.published import INTERVAL, Site, counted, look, only
from wheelcache import ManualClock
from wheelcache.core import IMPLEMENTATION
from wheelcache.engine.codec import size_of
from wheelcache.runtime.clock import SystemClock
from wheelcache.watch.figures import Rate
from wheelcache.watch.publisher import FIRST

# Times of publications.


def test_nothing_is_published_before_the_first_use_and_then_every_three_seconds(make, path, clock):
    cache = make()
    clock.advance(60)
    assert list(path.iterdir()) == []
    cache.set("a", 1)
    clock.advance(FIRST / 2)
    assert list(path.iterdir()) == []
    clock.advance(FIRST)
    for number in range(10):
        clock.advance(INTERVAL)
        assert counted(path) == {"pages": number}
        cache.get("a")


def test_what_is_published_is_what_the_cache_says_of_itself(make, path, clock, monkeypatch):
    # Steps begin at full tens of seconds. A count between two looks at the clock may fall on either side of that.
    monkeypatch.setattr(SystemClock, "time", staticmethod(lambda: 1_000_000_000.0))
    cache = make(max_entries=100)
    cache.set("a", 1)
    for _ in range(200):
        cache.get("a")
        clock.advance(1)
    clock.advance(INTERVAL)
    (found,) = look(path, clock).workers("pages")
    own = cache.engine.observed.observer.stats()
    assert (found.pid, found.core, found.max_entries) == (os.getpid(), IMPLEMENTATION, 100)
    (total,) = look(path, clock).caches
    # The groups of keys are published for all workers together.
    assert (replace(found.stats, groups=own.groups), total.stats.groups) == (own, own.groups)
    assert found.minute == total.minute == Rate(60, 0, 0, None, 60)
    assert found.minute.hit_ratio == found.minute.requests_per_second == 1.0


@pytest.mark.parametrize("name", ["", "/etc/passwd", "a\0b", "\udc80", "x" * 100_000])
def test_whatever_a_cache_is_called_it_is_found_living_and_gone(make, path, clock, name):
    cache = make(name)
    cache.set("a", 1)
    clock.advance(INTERVAL)
    site = look(path)
    site.ask("clear", name)
    assert [(each.name, each.workers) for each in site.caches] == [(name, 1)]
    clock.advance(INTERVAL)
    assert len(cache) == 0
    cache.close()
    assert [(each.name, each.workers, each.stats.clearings) for each in look(path).caches] == [(name, 0, 1)]


def test_there_are_no_keys_and_no_values_in_what_is_published(make, path, clock):
    def fail():
        raise ValueError("What an exception says is in the events.")

    cache = make(weigher=lambda key, value: 1, max_weight=100)
    cache.set("sesame", "sesame")
    cache.memoize()(lambda sesame: "sesame")("sesame")
    with pytest.raises(ValueError, match="events"):
        cache.get_or_load("sesame too", fail)
    clock.advance(600)
    content = b"".join(file.read_bytes() for file in path.iterdir())
    assert b"What an exception says" in content
    assert b"sesame" not in content


def test_an_idle_and_empty_cache_publishes_no_more_and_lives_on(make, path, clock):
    cache = make(ttl=5)
    cache.set("a", 1)
    clock.advance(600)
    (file,) = path.glob("*.sqlite3")
    before = file.stat().st_mtime_ns
    clock.advance(600)
    assert file.stat().st_mtime_ns == before
    assert (only(path).workers, only(path).stats.size, only(path).peak) == (1, 0, 1)
    cache.set("a", 1, ttl=1000)
    clock.advance(INTERVAL)
    assert only(path).stats.size == 1


# The figures of processes that have ended.


def test_all_that_was_counted_is_published_at_the_exit_also_by_who_exits_before_the_first_publication(path):
    run(
        """
        caches = [make(name) for name in ("hit", "unused", "closed", "parent's")]
        for cache in caches[::2]:
            cache.set("a", 1)
            cache.get("a")
        caches[2].close()
        caches[3].set("a", 1)
        # This is like a worker that only reads values that were loaded before the fork.
        forked(lambda: caches[3].get("a"))
        """,
        path,
    )
    assert {name: hits for name, hits in counted(path).items() if hits} == {"hit": 1, "closed": 1, "parent's": 1}
    assert {each.workers for each in look(path).caches} == {0}
    assert list(path.glob("*.alive")) == []


def test_who_is_killed_is_dead_and_who_is_stopped_lives(path, make, clock):
    with worker(path, hits=7, max_entries=50) as process:
        os.kill(process.pid, signal.SIGSTOP)
        assert (only(path).workers, only(path).stats.size, only(path).max_entries) == (1, 1, 50)
        process.kill()
        process.communicate()
        assert (only(path).workers, only(path).stats.size, counted(path)) == (0, 0, {"pages": 7})
    cache = make("other")
    cache.set("a", 1)
    clock.advance(INTERVAL)
    assert counted(path) == {"other": 0, "pages": 7}
    assert len(list(path.glob("*.alive"))) == 1


def test_the_child_of_a_fork_is_another_worker_that_counts_from_zero_and_leaves_its_parent_alone(path):
    out = run(
        """
        cache = make()
        use(cache, 5)

        def see():
            print(*((each.pid, each.stats.hits) for each in look(path).workers("pages")))

        def work():
            use(cache, 1)
            see()

        def drop():
            globals().pop("cache")
            gc.collect()
            os._exit(0)

        print(os.getpid(), forked(work))
        for child in (lambda: cache.close() or os._exit(0), drop):
            forked(child)
            see()
        print(counted(path))
        """,
        path,
    )
    parent, child = map(int, out[1].split())
    assert out == [f"({parent}, 5) ({child}, 1)", out[1], f"({parent}, 5)", f"({parent}, 5)", "{'pages': 6}"]


# Several workers, readers.


@pytest.mark.parametrize("where", [{}, {"figures_dir": None}], ids=["published", "in this process"])
def test_the_figures_of_two_workers_are_sums_and_the_worst_lag_and_the_greatest_peak(make, elsewhere, clock, where):
    late = ManualClock()
    workers = make(max_entries=10), elsewhere(clock=late, max_entries=20, max_weight=9999, weigher=size_of, **where)
    for number, cache in enumerate(workers, 1):
        cache.set_many(dict.fromkeys(range(5 * number), 1), 5)
        cache.get_many(range(20))
    clock.advance(4)
    # Its wheel thread does not run.
    late._now += 60
    if not where:
        workers[1].engine.observed.observer.publication.run_now()
    (found,) = Site(workers).caches
    assert (found.stats.size, found.stats.hits, found.stats.misses) == (5 + 10, 5 + 10, 15 + 10)
    assert (found.max_entries, found.max_weight, found.memory) == (30, None, None)
    assert (found.peak, found.lag > 50, found.fullness) == (10, True, 15 / 30)


def test_many_processes_that_publish_as_fast_as_they_can_lose_nothing_and_readers_see_no_sum_go_down(path):
    assert run(
        """
        pids = []
        for _ in range(4):
            pid = os.fork()
            if pid == 0:
                cache = make()
                cache.set("a", 1)
                for _ in range(100):
                    cache.get("a")
                    clock.advance(3)
                sys.exit()
            pids.append(pid)
        seen = 0
        while pids:
            found = counted(path).get("pages", 0)
            assert found >= seen, (found, seen)
            seen = found
            pid, end = os.waitpid(-1, os.WNOHANG)
            if pid:
                assert end == 0
                pids.remove(pid)
        print(counted(path)["pages"])
        """,
        path,
    ) == ["400"]
