"""The steps of charts: their counts are right even if clocks are set or workers end."""

from itertools import pairwise

import pytest

from tests.observability.processes import run
from tests.observability.published import Site, counted, steps_in
from wheelcache import Cache
from wheelcache.runtime.clock import SystemClock
from wheelcache.stats import LOAD_BOUNDS

EPOCH = 1_000_000.0
"""The time when the clocks of the tests showed 0, which is the start of a step."""


@pytest.fixture
def _epoch(monkeypatch):
    monkeypatch.setattr(SystemClock, "time", staticmethod(lambda: EPOCH))


def by_start(steps):
    return {int(start - EPOCH): step for start, step in steps.items()}


@pytest.mark.usefixtures("_epoch")
def test_a_step_has_what_was_counted_in_it(make, clock, path):
    cache = make(max_entries=2, ttl=1000, weigher=lambda key, value: value, max_weight=100)
    cache.get("before the first write")
    cache.set("a", 1)
    for key in "abcd":
        cache.set(key, 10)
    for key in "ccx":
        cache.get(key)
    cache.get_or_load("y", lambda: clock.advance(1) or 20)
    with pytest.raises(LookupError):
        cache.get_or_load("z", lambda: clock.advance(2) or {}["z"])
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
    """A process is stopped for 25 seconds, so its wheel thread is late by 25 seconds."""
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
            # The wheel thread, which runs on this clock as well, may have published a moment ago.
            publication.run_now()

    minute()
    now[0] += jump
    minute()
    assert counted(path) == {"pages": 600}
    clock.advance(4)
    cache.observer.recorder.run()
    publication.run_now()
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
    """The load is 16 look-ups a second by workers that live for 4 to 15 seconds, on a clock that all of them share.

    Each worker is a process that receives the time. The counts of a worker that exits normally are exact; those of a
    killed worker lack the last unpublished seconds, at most 3.
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
        # Each worker lacks at most its last three seconds, and nothing is counted twice or in another step.
        assert all(int(float(shown)) <= int(expected) for _, shown, expected, _ in steps)
        assert requests >= 0.6 * true
    assert int(minute[2]) == 0
    assert sum(int(each[3]) for each in steps) >= 15
