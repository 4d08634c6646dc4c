"""The threads that load in the background: few, bounded, started on demand, and ended with the process."""

import asyncio
import logging
import threading

import pytest

from tests.runtime.forks import fork
from tests.scripts import run
from tests.waiting import PATIENCE, join, start, until
from wheelcache.runtime import worker_pool
from wheelcache.runtime.worker_pool import WorkerPool


class Jobs:
    """A number of jobs that run until they are released."""

    def __init__(self):
        self.go = threading.Event()
        self.running = self.most = self.done = 0
        self.lock = threading.Lock()

    def __call__(self):
        with self.lock:
            self.running += 1
            self.most = max(self.most, self.running)
        assert self.go.wait(PATIENCE)
        with self.lock:
            self.running -= 1
            self.done += 1


@pytest.fixture
def jobs():
    made = Jobs()
    yield made
    made.go.set()
    assert until(lambda: not made.running)


@pytest.fixture
def pool(monkeypatch):
    """A pool with two threads and a queue of three jobs. Its threads end soon after the test."""
    monkeypatch.setattr(worker_pool, "IDLE", 0.05)
    made = WorkerPool(2, 3)
    yield made
    assert until(lambda: not made.threads)


def works(pool):
    done = threading.Event()
    assert pool.submit(done.set)
    return done.wait(PATIENCE)


@pytest.mark.alone
def test_threads_start_with_a_job_are_daemons_and_end_when_there_is_none(pool):
    before = set(threading.enumerate())
    WorkerPool(4, 4)
    assert set(threading.enumerate()) <= before
    seen = []
    for count in (1, 2):
        assert pool.submit(lambda: seen.append(threading.current_thread()))
        assert until(lambda count=count: len(seen) == count)
        assert (seen[-1].daemon, seen[-1].name) == (True, "wheelcache-refresh")
        join(seen[-1])
        assert pool.threads == set()


def test_at_most_so_many_jobs_run_and_so_many_wait_and_more_are_dropped_or_have_patience(pool, jobs):
    for running in (1, 2):
        assert pool.submit(jobs)
        assert until(lambda running=running: jobs.running == running)
    assert [pool.submit(jobs) for _ in range(5)] == [True, True, True, False, False]
    assert not pool.submit(jobs, patience=0.02)
    assert (len(pool.threads), pool.pending) == (2, 5)
    waiting = start(lambda: pool.submit(jobs, patience=PATIENCE))
    jobs.go.set()
    join(waiting)
    assert until(lambda: jobs.done == 6)
    assert jobs.most == 2
    assert until(lambda: pool.pending == 0)


def test_a_job_for_which_no_thread_can_start_waits_for_one_that_runs_and_is_refused_without_any(
    pool, jobs, monkeypatch
):
    def refuse(thread):
        raise RuntimeError("can't start new thread")

    assert pool.submit(jobs)
    assert until(lambda: jobs.running)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert pool.submit(jobs)
    jobs.go.set()
    assert until(lambda: jobs.done == 2 and not pool.threads)
    with pytest.raises(RuntimeError, match="can't start"):
        pool.submit(jobs)
    assert pool.pending == 0


class Broken(logging.Handler):
    def emit(self, record):
        raise OSError("the disk is full")


@pytest.mark.parametrize("handler_raises", [False, True])
def test_jobs_that_raise_anything_cost_no_thread_are_logged_and_cleaned_up_after(
    pool, caplog, monkeypatch, handler_raises
):
    cleaned = []
    monkeypatch.setattr(worker_pool, "cleanups", [lambda: 1 / 0, lambda: cleaned.append(1)])
    if handler_raises:
        monkeypatch.setattr(logging.getLogger("wheelcache"), "handlers", [Broken()])
    for error in (SystemExit(), KeyboardInterrupt(), LookupError(), GeneratorExit()):

        def job(error=error):
            raise error

        assert pool.submit(job)
        assert until(lambda: not pool.pending)
    assert works(pool)
    assert until(lambda: len(cleaned) == 5)
    if not handler_raises:
        assert caplog.text.count("raised.") == 4 + 5


def test_tasks_are_bounded_and_leave_when_they_are_cancelled_or_their_loop_is_closed():
    pool = WorkerPool(1, 2)

    async def main():
        first, second = pool.spawn(asyncio.Event().wait()), pool.spawn(asyncio.Event().wait())
        assert pool.spawn(asyncio.Event().wait()) is None
        first.cancel()
        await asyncio.wait([first])
        assert pool.spawn(asyncio.Event().wait()) is not None
        assert pool.spawn(asyncio.Event().wait()) is None
        assert pool.spawn(asyncio.Event().wait(), bounded=False) is not None
        return second

    for _ in range(3):
        loop = asyncio.new_event_loop()
        assert not loop.run_until_complete(main()).done()
        loop.close()


# The end of the process.


@pytest.mark.parametrize("finishes", [True, False])
def test_a_pool_that_finishes_its_jobs_is_waited_for_and_one_that_is_stopped_takes_no_more(jobs, finishes):
    pool = WorkerPool(1, 3, finishes=finishes)
    for _ in range(2):
        assert pool.submit(jobs)
    assert until(lambda: jobs.running)
    pool.stop()
    with pytest.raises(RuntimeError, match="this pool was stopped"):
        pool.submit(jobs)
    pool.finish(0.02)
    assert jobs.done == 0
    finishing = start(pool.finish, PATIENCE)
    finishing.join(0.1)
    assert finishing.is_alive() == finishes
    jobs.go.set()
    join(finishing)
    assert jobs.done == 2 or not finishes
    pool.end()
    assert until(lambda: not pool.threads)


def test_the_child_of_a_fork_has_threads_and_a_queue_of_its_own(pool, jobs):
    assert all(pool.submit(jobs) for _ in range(2))
    assert until(lambda: jobs.running == 2)
    assert all(pool.submit(jobs) for _ in range(3))

    def child():
        assert (pool.threads, pool.pending) == (set(), 0)
        assert works(pool)

    assert fork(child)
    assert pool.pending == 5


def test_the_interpreter_exits_at_once_while_loaders_hang_and_then_runs_timed_loads_in_their_callers():
    assert run(
        """
        import atexit, threading, time
        from tests.waiting import until
        from wheelcache import Cache, LoadTimeout
        from wheelcache.runtime.worker_pool import refresh_pool, timed_load_pool

        cache = Cache(ttl=0.01, jitter=0)
        began = [threading.Event() for _ in range(2)]

        def hang(number):
            began[number].set()
            time.sleep(1000)

        def at_exit():
            print(cache.get_or_load("k", lambda: "new", grace=100), cache.stats().refreshes_dropped)
            print(cache.get_or_load("timed", lambda: "loaded", timeout=60))

        atexit.register(at_exit)
        atexit.register(refresh_pool.stop)
        atexit.register(timed_load_pool.stop)
        for key in "kj":
            cache.get_or_load(key, lambda: "old", grace=100)
        until(lambda: cache.get("j") is None)
        print(cache.get_or_load("j", lambda: hang(0), grace=100))
        try:
            cache.get_or_load("other", lambda: hang(1), timeout=0.01)
        except LoadTimeout:
            print("timeout")
        for each in began:
            each.wait()
        """,
        timeout=PATIENCE,
    ).split() == ["old", "timeout", "old", "1", "loaded"]
