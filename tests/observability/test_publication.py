"""What workers publish and readers find: totals, steps and the last minute, whatever becomes of the workers."""

import gc
import os
import signal
import time
from itertools import pairwise

import pytest

from tests.observability.behind import use_store
from tests.observability.processes import run, start, worker
from tests.observability.published import INTERVAL, Site, counted, look, only, steps_in
from tests.waiting import PATIENCE, THREADS
from wheelcache import Cache
from wheelcache.core import IMPLEMENTATION
from wheelcache.observability import publisher, tidying
from wheelcache.observability.figures import Rate
from wheelcache.observability.site import Own
from wheelcache.runtime.clock import SystemClock
from wheelcache.stats import LOAD_BOUNDS

EPOCH = 1_000_000.0
"""When the clocks of the tests showed 0. A step begins there."""


@pytest.fixture
def _epoch(monkeypatch):
    monkeypatch.setattr(SystemClock, "time", staticmethod(lambda: EPOCH))


def by_start(steps):
    return {int(start - EPOCH): step for start, step in steps.items()}


# When.


def test_nothing_is_published_before_the_first_write_and_for_three_seconds_after_it(make, path, clock):
    cache = make()
    clock.advance(60)
    cache.get("a")
    assert list(path.iterdir()) == []
    cache.set("a", 1)
    clock.advance(INTERVAL - 1)
    assert list(path.iterdir()) == []
    for number in range(10):
        clock.advance(INTERVAL)
        assert counted(path) == {"pages": number}
        cache.get("a")


def test_all_caches_of_a_process_are_published_together(make, path, clock):
    caches = [make(f"cache {number}") for number in range(5)]
    for cache in caches:
        cache.set("a", 1)
        clock.advance(0.1)
    clock.advance(INTERVAL)
    publications = {each.published for name in counted(path) for each in look(path).workers(name)}
    assert len(publications) == 1
    caches[0].close()
    caches[1].get("a")
    clock.advance(2 * INTERVAL)
    assert counted(path)["cache 1"] == 1


def test_what_is_published_is_what_the_cache_says_of_itself(make, path, clock):
    cache = make(max_entries=100)
    cache.set("a", 1)
    for _ in range(200):
        cache.get("a")
        clock.advance(1)
    clock.advance(INTERVAL)
    (found,) = look(path, clock).workers("pages")
    own = cache.observer.stats()
    assert (found.pid, found.core, found.max_entries) == (os.getpid(), IMPLEMENTATION, 100)
    assert found.stats == own
    assert found.minute == only_at(path, clock).minute == Rate(60, 0, 0, 0, 60)
    assert found.minute.hit_ratio == found.minute.requests_per_second == 1.0


def only_at(path, clock):
    (found,) = look(path, clock).caches
    return found


@pytest.mark.parametrize("name", ["", "/etc/passwd", "../" * 50, "a\0b", "\udc80", "x" * 100_000, "\n\r\t", "*?[", "é"])
def test_whatever_a_cache_is_called_it_is_found_living_and_gone(make, path, clock, name):
    cache = make(name)
    cache.set("a", 1)
    clock.advance(INTERVAL)
    site = look(path)
    site.ask("clear", name)
    site.reset(name)
    assert [(each.name, each.workers) for each in site.caches] == [(name, 1)]
    clock.advance(INTERVAL)
    assert len(cache) == 0
    cache.close()
    assert [(each.name, each.workers, each.counted.clearings) for each in look(path).caches] == [(name, 0, 1)]


def test_there_are_no_keys_and_no_values_in_what_is_published(make, path, clock):
    def fail():
        raise ValueError("What an exception says is in the events.")

    cache = make(weigher=lambda key, value: 1, max_weight=100)
    cache.set("sesame", "sesame")
    cache.memoize()(lambda sesame: "sesame")("sesame")
    with pytest.raises(ValueError, match="events"):
        cache.take("sesame too", fail)
    clock.advance(600)
    look(path).reset()
    content = b"".join(file.read_bytes() for file in path.iterdir())
    assert b"What an exception says" in content
    assert b"sesame" not in content


def test_huge_numbers_are_published_as_floats(make, path, clock):
    cache = make(weigher=lambda key, value: value, max_weight=2**62)
    for key in "abc":
        cache.set(key, 2**62)
    clock.advance(INTERVAL)
    (found,) = look(path).caches
    assert (found.stats.weight, found.stats.evicted_weight, found.max_weight) == (2**62, 2**63, 2**62)


def test_an_idle_and_empty_cache_publishes_no_more_and_lives_on(make, path, clock):
    cache = make(ttl=5)
    cache.set("a", 1)
    clock.advance(600)
    (file,) = path.glob("*.sqlite3")
    before = file.stat().st_mtime_ns
    clock.advance(600)
    assert file.stat().st_mtime_ns == before
    assert (only(path).workers, only(path).stats.size) == (1, 0)
    cache.set("a", 1, ttl=1000)
    clock.advance(INTERVAL)
    assert only(path).stats.size == 1


def test_a_jump_of_ten_years_publishes_a_few_times_and_has_the_last_hour(make, path, clock):
    cache = make()
    cache.set("a", 1)
    clock.advance(315_360_000.0)
    cache.get("a")
    clock.advance(20)
    steps = steps_in(path, clock=clock)
    assert 355 <= len(steps) <= 361
    assert sum(step.hits for step in steps.values()) == 1


# What is left of it.


def test_all_that_was_counted_is_published_at_the_exit_also_by_who_exits_before_the_first_publication(path):
    run(
        """
        caches = [make(name) for name in ("hit", "unused", "closed", "parent's")]
        for cache in caches[::2]:
            cache.set("a", 1)
            cache.get("a")
        caches[2].close()
        caches[3].set("a", 1)
        # As a worker that only reads what was loaded before it was forked.
        forked(lambda: caches[3].get("a"))
        """,
        path,
    )
    assert {name: hits for name, hits in counted(path).items() if hits} == {"hit": 1, "closed": 1, "parent's": 1}
    assert {each.workers for each in look(path).caches} == {0}
    assert list(path.glob("*.alive")) == []


def test_a_cache_without_a_living_worker_is_shown_with_its_settings(make, path, clock):
    cache = make(max_entries=7, weigher=None)
    cache.set("a", 1)
    clock.advance(INTERVAL)
    cache.close()
    found = only(path)
    assert (found.workers, found.max_entries, found.lag, found.stats.size, found.counted.puts) == (0, 7, None, 0, 1)


def test_a_cache_that_is_dropped_without_being_closed_is_no_worker_and_leaves_no_descriptor(path, clock):
    before = len(os.listdir("/proc/self/fd"))
    cache = Cache("pages", figures_dir=path, clock=clock)
    cache.set("a", 1)
    cache.get("a")
    clock.advance(INTERVAL)
    del cache
    gc.collect()
    assert (only(path).workers, counted(path)) == (0, {"pages": 1})
    assert len(os.listdir("/proc/self/fd")) <= before


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


def test_the_calls_of_a_store_that_a_killed_worker_made_stay_and_its_open_breaker_does_not(path):
    process = start(
        """
        from tests.observability.behind import use_store
        cache = make()
        use_store(cache, clock)
        cache.observer.publication.run_now()
        print("published", flush=True)
        time.sleep(60)
        """,
        path,
    )
    assert process.stdout.readline() == "published\n"
    alive = only(path).stats.store
    assert (alive.writes.errors, alive.open_breakers, alive.trackers) == (3, 1, 1)
    process.kill()
    process.communicate()
    found = only(path).stats.store
    assert (found.reads, found.writes, found.open_breakers, found.trackers) == (alive.reads, alive.writes, 0, 0)


def test_the_child_of_a_fork_is_another_worker_that_counts_from_zero(path):
    process = start(
        """
        cache = make()
        use(cache, 5)
        if os.fork() == 0:
            cache.get("a")
            cache.set("b", 1)
            clock.advance(3)
            os.write(1, b"%d\\n" % os.getpid())
        time.sleep(60)
        """,
        path,
    )
    child = int(process.stdout.readline())
    try:
        found = {each.pid: each for each in look(path).workers("pages")}
        assert {pid: each.stats.hits for pid, each in found.items()} == {process.pid: 5, child: 1}
        assert found[child].started >= found[process.pid].started
        process.kill()
        process.wait()
        assert [each.pid for each in look(path).workers("pages")] == [child]
        assert counted(path) == {"pages": 6}
    finally:
        os.kill(child, signal.SIGKILL)
        process.communicate()


def test_a_child_that_closes_or_drops_the_cache_leaves_its_parent_alone(path):
    assert (
        run(
            """
        import gc
        cache = make()
        use(cache, 1)

        def drop():
            globals().pop("cache")
            gc.collect()
            os._exit(0)

        for child in (lambda: cache.close() or os._exit(0), drop, lambda: None):
            forked(child)
            (found,) = look(path).caches
            print(found.workers, found.stats.size, found.counted.hits)
        """,
            path,
        )
        == ["1 1 1"] * 3
    )


# Steps.


@pytest.mark.usefixtures("_epoch")
def test_a_step_has_what_was_counted_in_it(make, clock, path):
    cache = make(max_entries=2, ttl=1000, weigher=lambda key, value: value, max_weight=100)
    cache.get("before the first write")
    cache.set("a", 1)
    for key in "abcd":
        cache.set(key, 10)
    for key in "ccx":
        cache.get(key)
    cache.take("y", lambda: clock.advance(1) or 20)
    with pytest.raises(LookupError):
        cache.take("z", lambda: clock.advance(2) or {}["z"])
    clock.advance(7)
    cache.clear()
    cache.set("e", 5, ttl=2)
    clock.advance(14)
    steps = by_start(steps_in(path, clock=clock))
    assert list(steps) == [0, 10]
    first, second = steps.values()
    assert (first.hits, first.misses, first.puts, first.evictions, first.entries, first.started) == (2, 4, 6, 3, 2, 1)
    assert (first.loads, first.load_failures, first.load_seconds) == (1, 1, 3)
    assert (second.hits, second.expirations, second.entries, second.started) == (0, 1, 0, 0)
    buckets = [
        name for name in first._fields if name.startswith("load_") and getattr(first, name) and name[5:].isdigit()
    ]
    assert buckets == [f"load_{LOAD_BOUNDS.index(1.0)}", f"load_{LOAD_BOUNDS.index(2.5)}"]


@pytest.mark.usefixtures("_epoch")
def test_marks_that_come_late_are_split_and_nothing_is_lost(make, clock, path):
    """The process was stopped for 25 seconds: its wheel thread comes late by as much."""
    cache = make()
    cache.set("a", 1)
    clock.advance(9)
    recorder = cache.observer.recorder
    for _ in range(100):
        cache.get("a")
    clock._now += 25
    recorder.run()
    clock.advance(20)
    hits = [step.hits for step in by_start(steps_in(path, clock=clock)).values()]
    assert sum(hits) == 100
    assert hits[:4] == [4, 40, 40, 16]


@pytest.mark.parametrize("jump", [-3600, 3600, -5, 86_400 * 400])
def test_a_clock_that_is_set_spoils_no_step_and_no_total(make, clock, path, monkeypatch, jump):
    now = [EPOCH]
    monkeypatch.setattr(SystemClock, "time", staticmethod(lambda: now[0] + clock()))
    cache = make(clock=lambda: clock())
    cache.set("a", 1)
    publication = cache.observer.publication

    def minute():
        for _ in range(6):
            for _ in range(50):
                cache.get("a")
            clock.advance(10)
            cache.observer.recorder.run()
            publication.run()

    minute()
    now[0] += jump
    minute()
    assert counted(path) == {"pages": 600}
    clock.advance(4)
    cache.observer.recorder.run()
    publication.run()
    site = Site([cache])
    assert 0 < site.caches[0].minute.hits <= 600
    shown = site.steps("pages")[1]
    assert all(start <= site.time for start in shown)
    if jump != -5 and jump != -3600:
        assert {step.hits for step in shown.values()} <= {0, 50}


@pytest.mark.usefixtures("_epoch")
def test_without_a_directory_there_are_the_steps_of_this_process(clock):
    caches = [Cache("pages", clock=clock, log_interval=None) for _ in range(2)]
    for cache in caches:
        cache.set("a", 1)
        cache.get("a")
    clock.advance(7200)
    site = Site(caches)
    for day, number in ((False, 360), (True, 24)):
        _, steps = site.steps("pages", day=day)
        assert len(steps) in (number, number - 1)
        assert {round(step.entries) for step in list(steps.values())[1:]} == {2}
    assert sum(step.hits for step in steps.values()) == 2
    clock.advance(100_000)
    assert len(caches[0].observer.recorder.steps) <= 721
    without = Cache(clock=clock, sample_interval=None)
    without.set("a", 1)
    clock.advance(100)
    assert Site([without]).steps(without.name)[1] == {}


@pytest.mark.usefixtures("_epoch")
def test_after_a_pause_there_is_a_gap(make, clock, path):
    cache = make(ttl=5, log_interval=None)
    cache.set("a", 1)
    clock.advance(1000)
    cache.set("a", 1, ttl=1000)
    clock.advance(24)
    starts = list(by_start(steps_in(path, clock=clock)))
    assert starts[-2:] == [1000, 1010]
    assert max(later - earlier for earlier, later in pairwise(starts)) > 900


@pytest.mark.usefixtures("_epoch")
def test_steps_are_added_up_and_the_end_of_a_worker_changes_nothing(make, clock, path):
    here, there = make(), make()
    for cache in (here, there):
        cache.set("a", 1)
    for _ in range(100):
        there.get("a")
        clock.advance(1)
    before = steps_in(path, clock=clock)
    for _ in range(5):
        there.get("a")
    there.close()
    assert steps_in(path, clock=clock) == before
    clock.advance(28)
    after = steps_in(path, clock=clock)
    assert {start: after[start] for start in before} == before
    assert sum(step.hits for step in after.values()) == 105
    assert (list(before.values())[-1].entries, list(after.values())[-1].entries) == (2, 1)


@pytest.mark.usefixtures("_epoch")
def test_a_step_is_shown_once_all_workers_at_work_have_published_it_and_then_never_changes(make, clock, path):
    first = make()
    first.set("a", 1)
    clock.advance(9.5)
    second = make()
    second.set("a", 1)
    shown = {}
    for _ in range(160):
        clock.advance(0.5)
        first.get("a")
        for at, step in by_start(steps_in(path, clock=clock)).items():
            assert shown.setdefault(at, step) == step
    assert {step.entries for step in shown.values()} == {2}
    assert [step.hits for step in shown.values()][1:-1] == [20] * (len(shown) - 2)


@pytest.mark.usefixtures("_epoch")
def test_since_a_reset_only_steps_that_began_after_it_are_shown(make, clock, path):
    cache = make()
    cache.set("a", 1)
    clock.advance(54)
    site = Site([cache])
    assert list(by_start(site.steps("pages", since=EPOCH + 20)[1])) == [20, 30, 40]
    assert list(by_start(site.steps("pages", since=EPOCH + 21)[1])) == [30, 40]


@pytest.mark.parametrize("ends", ["in order", "killed"])
def test_charts_and_the_last_minute_equal_an_independent_count_while_workers_come_and_go(path, ends):
    """A flat load of 16 look-ups a second by workers that live for 4 to 15 seconds, of the clock that all are given.

    Each worker is a process; the time is told to it. Who exits in order is counted exactly; who is killed takes with it
    what it had not published, 3 seconds at most.
    """
    out = run(
        """
        from wheelcache.runtime.clock import SystemClock
        EPOCH = 1_000_000
        now = [0.0]
        SystemClock.time = staticmethod(lambda: EPOCH + now[0])
        at, lifetimes = 0, [4, 7, 15, 5, 12, 9, 4, 11, 6, 13]
        true = {}
        while at < 150:
            lives = lifetimes.pop(0)
            lifetimes.append(lives)
            pid = os.fork()
            if pid == 0:
                now[0] = at
                clock = ManualClock()
                cache = Cache("pages", figures_dir=path, clock=clock, jitter=0, log_interval=None)
                cache.set("a", 1)
                for _ in range(8 * lives):
                    cache.get("a")
                    cache.get("b")
                    clock.advance(0.125)
                if sys.argv[2] == "killed":
                    os.kill(os.getpid(), signal.SIGKILL)
                now[0] = 0.0
                sys.exit()
            os.waitpid(pid, 0)
            for second in range(at, at + lives):
                true[second // 10 * 10] = true.get(second // 10 * 10, 0) + 16
            at += lives
        last = ManualClock()
        now[0] = at + 4.0
        (found,) = look(path, last).caches
        steps = look(path, last).steps("pages")[1]
        for start, step in steps.items():
            print(int(start) - EPOCH, step.hits + step.misses, true[start - EPOCH], step.started)
        print("minute", found.minute.requests, found.workers, found.counted.requests)
        """,
        path,
        ends,
    )
    *steps, minute = [line.split() for line in out]
    assert len(steps) >= 14
    requests = int(minute[3])
    true = sum(int(each[2]) for each in steps)
    if ends == "in order":
        assert all(int(float(shown)) == int(expected) for _, shown, expected, _ in steps)
        assert int(minute[1]) == 960
        assert requests >= true
    else:
        # Of each worker at most the last three seconds are missing, and nothing is counted twice or elsewhere.
        assert all(int(float(shown)) <= int(expected) for _, shown, expected, _ in steps)
        assert requests >= 0.6 * true
    assert int(minute[2]) == 0
    assert sum(int(each[3]) for each in steps) >= 15


# Several directories, resets, readers.


def test_several_directories_are_put_together(make, clock, tmp_path):
    paths = [tmp_path / name for name in ("one", "two")]
    caches = [make("pages", figures_dir=path) for path in paths]
    for cache in caches:
        cache.set("a", 1)
        cache.get("a")
    clock.advance(24)
    site = Site(caches)
    (found,) = site.caches
    assert (found.stats.hits, found.stats.size, len(site.workers("pages"))) == (2, 2, 1)
    assert sum(step.hits for step in site.steps("pages")[1].values()) == 2


def test_whichever_process_answers_what_is_not_published_counts_only_where_nothing_else_is_known(make, clock):
    here, there = make(), make()
    for cache in (here, there):
        cache.set("a", 1)
    here.get("a")
    assert [each.stats.hits for each in Site([here]).caches] == [1]
    for include in (Own.NONE, Own.UNPUBLISHED):
        assert Site([here], include).caches == []
    clock.advance(INTERVAL)
    here.get("a")
    for cache in (here, there):
        (found,) = Site([cache]).caches
        assert (found.stats.hits, found.stats.size) == (1, 2)


def test_a_reset_is_of_what_comes_after_also_in_other_processes_and_in_those_that_end(make, clock, path):
    cache = make()
    cache.set("a", 1)
    cache.get("a")
    with worker(path, hits=10) as other:
        clock.advance(INTERVAL)
        before = time.time()
        look(path).reset()
        site = look(path)
        (found,) = site.caches
        assert before <= site.reset_at == found.reset_at <= time.time()
        assert (found.stats.hits, found.stats.size, found.counted.hits) == (0, 2, 11)
        assert {each.stats.hits for each in site.workers("pages")} == {0}
        cache.get("a")
        other.stdin.close()
        other.wait(PATIENCE)
        clock.advance(INTERVAL)
        (found,) = look(path).caches
        assert (found.stats.hits, found.stats.size, found.counted.hits) == (1, 1, 12)


def test_a_reset_of_one_cache_leaves_the_figures_of_the_others_and_a_later_one_of_all_counts_for_all(make, clock, path):
    here, other = make(), make("other")
    for cache in (here, other):
        cache.set("a", 1)
    for name, expected in (("pages", [2, 1]), (None, [1, 1]), ("other", [1, 3])):
        for cache in (here, other):
            cache.get("a")
        clock.advance(INTERVAL)
        look(path).reset(name)
        for cache in (here, other):
            cache.get("a")
        clock.advance(INTERVAL)
        site = look(path)
        assert (site.reset_at is None) == (name == "pages")
        assert [each.stats.hits for each in site.caches] == expected
    other_reset, pages_reset = (each.reset_at for each in site.caches)
    assert other_reset > pages_reset == site.reset_at


def test_a_reset_during_a_publication_counts_nothing_twice_and_nothing_below_zero(path):
    assert run(
        """
        cache = make()
        use(cache, 1)
        over = threading.Event()

        def reset():
            while not over.is_set():
                look(path).reset()
                assert min(look(path).caches[0].stats.counts()) >= 0
                time.sleep(0.001)

        thread = threading.Thread(target=reset)
        thread.start()
        for _ in range(200):
            cache.get("a")
            clock.advance(3)
        over.set()
        thread.join()
        found = look(path).caches[0]
        print(found.counted.hits, found.stats.hits <= 201)
        """,
        path,
    ) == ["201 True"]


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


def test_names_do_not_pile_up(make, path, clock, monkeypatch):
    monkeypatch.setattr(tidying, "NAMES", 5)
    monkeypatch.setattr(publisher, "TIDY_EVERY", 0.0)
    for number in range(8):
        cache = make(f"name {number}")
        cache.set("a", 1)
        clock.advance(INTERVAL)
        cache.close()
    assert len(counted(path)) <= 6
    assert "name 7" in counted(path)


def test_threads_that_publish_and_close_at_the_same_time_do_not_wait_for_each_other_for_ever(make, path, together):
    cache = make()
    cache.set("a", 1)
    together(lambda number: cache.close() if number == 16 else cache.observer.publication.run_now())
    assert only(path).workers == 0


def test_a_near_cache_of_which_the_store_fails_shows_stale_answers_as_neither_hits_nor_misses(make, clock, path):
    cache = make("copies")
    use_store(cache, clock)
    cache.take("a", lambda: 1, ttl=10, grace=1000)
    clock.advance(11)
    assert cache.parts.loads.get_stale("a", None) == 1
    clock.advance(INTERVAL)
    stats = only(path).stats
    assert (stats.hits, stats.stale_hits) == (0, 1)
    assert stats.requests == stats.hits + stats.stale_hits + stats.misses
    assert stats.stale_ratio == 1 / stats.requests


def test_threads_that_publish_at_the_same_time_count_nothing_twice(make, path, together):
    cache = make()
    cache.set("a", 1)

    def work(number):
        for _ in range(10):
            cache.get("a")
            cache.observer.publication.publisher.publish(60.0)

    together(work)
    assert counted(path) == {"pages": 10 * THREADS}
