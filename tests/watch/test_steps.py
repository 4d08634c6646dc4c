"""The steps of charts: their counts are right even if clocks are set or workers end."""

import pytest

from tests.watch.processes import run
from tests.watch.published import Site, counted, steps_in, steps_of
from wheelcache.runtime.clock import SystemClock

EPOCH = 1_000_000.0
"""The time when the clocks of the tests showed 0, which is the start of a step."""


@pytest.fixture
def _epoch(monkeypatch):
    monkeypatch.setattr(SystemClock, "time", staticmethod(lambda: EPOCH))


def by_start(steps):
    return {int(start - EPOCH): step for start, step in steps.items()}


@pytest.mark.usefixtures("_epoch")
def test_marks_that_come_late_are_split_and_nothing_is_lost(make, clock, path):
    """A process is stopped for 25 seconds, so its wheel thread is late by 25 seconds."""
    cache = make()
    cache.set("a", 1)
    clock.advance(9)
    recorder = cache.engine.observed.observer.recorder
    for _ in range(100):
        cache.get("a")
    clock._now += 25
    recorder.run()
    clock.advance(20)
    hits = [step.hits for step in by_start(steps_in(path, clock)).values()]
    assert sum(hits) == 100
    assert hits[:4] == [4, 40, 40, 16]


@pytest.mark.parametrize("jump", [-3600, 3600, -5, 86_400 * 400])
def test_a_clock_that_is_set_spoils_no_step_and_no_total(make, clock, path, monkeypatch, jump):
    now = [EPOCH]
    monkeypatch.setattr(SystemClock, "time", staticmethod(lambda: now[0] + clock()))
    cache = make(clock=lambda: clock())
    cache.set("a", 1)
    publication = cache.engine.observed.observer.publication

    def minute():
        for _ in range(6):
            for _ in range(50):
                cache.get("a")
            clock.advance(10)
            cache.engine.observed.observer.recorder.run()
            # The wheel thread, which runs on this clock as well, may have published a moment ago.
            publication.run_now()

    minute()
    now[0] += jump
    minute()
    assert counted(path) == {"pages": 600}
    site = Site([cache])
    assert 0 < site.caches[0].minute.hits <= 600
    shown = steps_of(site)
    assert all(start <= site.time for start in shown)
    assert jump < 0 or {step.hits for step in shown.values()} <= {0, 50}


@pytest.mark.usefixtures("_epoch")
def test_a_step_waits_for_a_worker_that_publishes_late_and_not_for_one_that_is_idle(make, clock, path, another_worker):
    make().set("a", 1)
    another_worker("pages", 7, entries=1, use=lambda cache, clock: clock.advance(8))
    clock.advance(15)
    assert steps_in(path, clock) == {}
    clock.advance(1)
    assert list(by_start(steps_in(path, clock))) == [0]


def test_charts_and_the_last_minute_equal_an_independent_count_while_workers_come_and_go(path):
    """Each worker is a process that receives the time, asks 16 times a second and lives for 20 to 30 seconds.

    A step that was shown once never changes.
    """
    run(
        """
        import socket
        from collections import Counter
        from wheelcache.runtime.clock import SystemClock

        class Worker:
            def __init__(self, at):
                self.socket, own = socket.socketpair()
                self.pid = os.fork()
                if self.pid == 0:
                    self.socket.close()
                    self.live(at, own)
                own.close()

            def live(self, at, own):
                now[0] = at
                clock = ManualClock()
                cache = Cache("pages", figures_dir=path, clock=clock, jitter=0)
                cache.set("a", 1)
                while own.recv(1):
                    for _ in range(8):
                        cache.get("a")
                        cache.get("b")
                        clock.advance(0.125)
                    own.send(b".")
                now[0] = 0.0
                sys.exit()

            def end(self):
                # Later workers have inherited the socket.
                self.socket.shutdown(socket.SHUT_WR)
                os.waitpid(self.pid, 0)

        def look_on(second):
            now[0] = second
            site = look(path, ManualClock())
            return site, {int(start) - EPOCH: step for start, step in steps_of(site).items()}

        EPOCH = 1_000_000
        now = [0.0]
        SystemClock.time = staticmethod(lambda: EPOCH + now[0])
        true, started, shown, workers = Counter(), Counter(), {}, []
        for second in range(150):
            if len(workers) == 3 and second % 10 == 4:
                workers.pop(0).end()
            if second % 10 in (0, 7) and len(workers) < 3:
                workers.append(Worker(second))
                started[second // 10 * 10] += 1
            for each in workers:
                each.socket.send(b".")
            for each in workers:
                assert each.socket.recv(1)
            true[second // 10 * 10] += 16 * len(workers)
            _, steps = look_on(second + 1)
            assert shown.items() <= steps.items()
            shown = steps
        for each in workers:
            each.end()
        assert len(shown) == 14
        for at, step in shown.items():
            assert (step.hits + step.misses, step.started) == (true[at], started[at])
        site, _ = look_on(154)
        (found,) = site.caches
        of_minute = sum(each.hits + each.misses for each in site.overview(site.span(site.edge - 60))["pages"].values())
        assert of_minute == sum(true[at] for at in range(90, 150, 10))
        assert (found.stats.requests, found.workers) == (true.total(), 0)
        """,
        path,
    )
