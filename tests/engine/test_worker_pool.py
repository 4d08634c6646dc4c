"""The threads that load in the background: few, bounded, started late, gone with the process."""

import asyncio
import contextvars
import gc
import logging
import subprocess
import sys
import textwrap
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.engine.test_fork import run
from tests.scripts import FORKING
from tests.waiting import PATIENCE, until, until_waiting
from wheelcache import Cache, LoadTimeout
from wheelcache.runtime import worker_pool
from wheelcache.runtime.worker_pool import WorkerPool

NAME = "wheelcache-refresh"


class Jobs:
    """Jobs that run until they are let go."""

    def __init__(self):
        self.go = threading.Event()
        self.running = 0
        self.most = 0
        self.done = 0
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
    """Two threads, three places in the queue; its threads end soon after the test."""
    monkeypatch.setattr(worker_pool, "IDLE", 0.05)
    made = WorkerPool(2, 3)
    yield made
    assert until(lambda: not made.threads)


def test_there_is_no_thread_before_the_first_job(pool):
    before = threading.active_count()
    WorkerPool(4, 4)
    assert threading.active_count() == before
    done = threading.Event()
    assert pool.submit(done.set)
    assert done.wait(PATIENCE)


def test_at_most_so_many_jobs_run_and_so_many_wait_and_more_are_dropped(pool, jobs):
    for running in (1, 2):
        assert pool.submit(jobs)
        assert until(lambda running=running: jobs.running == running)
    assert [pool.submit(jobs) for _ in range(5)] == [True, True, True, False, False]
    assert len(pool.threads) == 2
    jobs.go.set()
    assert until(lambda: jobs.done == 5)
    assert jobs.most == 2
    assert until(lambda: not pool.pending)
    assert pool.submit(jobs)
    assert until(lambda: jobs.done == 6)


def test_jobs_that_come_together_never_wait_while_a_thread_may_be_started(jobs, together, monkeypatch):
    monkeypatch.setattr(worker_pool, "IDLE", 0.05)
    pool = WorkerPool(32, 32)
    assert together(lambda _: pool.submit(jobs)) == [True] * 32
    assert until(lambda: jobs.running == 32)


def test_who_has_patience_waits_for_a_place(pool, jobs):
    for running in (1, 2):
        pool.submit(jobs)
        assert until(lambda running=running: jobs.running == running)
    for _ in range(3):
        pool.submit(jobs)
    assert not pool.submit(jobs, patience=0.02)
    waiting = threading.Thread(target=lambda: pool.submit(jobs, patience=PATIENCE))
    waiting.start()
    jobs.go.set()
    waiting.join(PATIENCE)
    assert until(lambda: jobs.done == 6)
    assert until(lambda: pool.pending == 0)


def test_threads_are_daemons_and_end_when_there_is_nothing_to_do(pool):
    seen = []
    assert pool.submit(lambda: seen.append(threading.current_thread()))
    assert until(lambda: seen)
    assert seen[0].daemon
    assert seen[0].name == NAME
    seen[0].join(PATIENCE)
    assert pool.threads == set()
    assert pool.submit(lambda: seen.append(threading.current_thread()))
    assert until(lambda: len(seen) == 2)


def test_no_job_is_lost_to_a_thread_that_is_about_to_end(monkeypatch):
    monkeypatch.setattr(worker_pool, "IDLE", 0.0001)
    pool = WorkerPool(2, 8)
    for _ in range(300):
        done = threading.Event()
        assert pool.submit(done.set)
        assert done.wait(PATIENCE)
    assert until(lambda: not pool.threads)


def test_where_no_thread_can_start_submitting_says_so_and_starts_later(pool, monkeypatch):
    def refuse(thread):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        for _ in range(10):
            with pytest.raises(RuntimeError, match="can't start new thread"):
                pool.submit(lambda: None)
    assert (pool.threads, pool.pending) == (set(), 0)
    done = threading.Event()
    assert pool.submit(done.set)
    assert done.wait(PATIENCE)


def test_where_no_second_thread_can_start_the_first_does_the_work(pool, jobs, monkeypatch):
    def refuse(thread):
        raise RuntimeError("can't start new thread")

    assert pool.submit(jobs)
    assert until(lambda: jobs.running == 1)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        assert pool.submit(jobs)
    jobs.go.set()
    assert until(lambda: jobs.done == 2)


@pytest.mark.parametrize("error", [SystemExit(), KeyboardInterrupt(), LookupError(), GeneratorExit()], ids=repr)
def test_a_job_that_raises_anything_costs_no_thread_and_is_logged(pool, caplog, error):
    threads = []

    def job():
        threads.append(threading.current_thread())
        raise error

    for calls in (1, 2, 3):
        assert pool.submit(job)
        assert until(lambda calls=calls: len(threads) == calls and not pool.pending)
    assert caplog.text.count("raised.") == 3
    done = threading.Event()
    assert pool.submit(done.set)
    assert done.wait(PATIENCE)


def test_a_log_handler_that_raises_costs_no_thread(pool):
    class Broken(logging.Handler):
        def emit(self, record):
            raise OSError("the disk is full")

    broken = Broken()
    logging.getLogger("wheelcache").addHandler(broken)
    try:
        for _ in range(4):
            assert pool.submit(lambda: 1 / 0)
            assert until(lambda: not pool.pending)
    finally:
        logging.getLogger("wheelcache").removeHandler(broken)
    done = threading.Event()
    assert pool.submit(done.set)
    assert done.wait(PATIENCE)


def test_what_a_job_held_is_let_go_when_it_is_over(pool):
    class Value:
        pass

    value = Value()
    reference = weakref.ref(value)
    assert pool.submit(lambda value=value: None)
    del value
    assert until(lambda: not pool.pending)
    gc.collect()
    assert reference() is None


def test_cleanups_are_called_after_every_job_also_after_one_that_failed(pool, monkeypatch, caplog):
    calls = []
    monkeypatch.setattr(worker_pool, "cleanups", [lambda: 1 / 0, lambda: calls.append("cleaned")])
    pool.submit(lambda: calls.append("job"))
    assert until(lambda: not pool.pending)
    pool.submit(lambda: 1 / 0)
    assert until(lambda: not pool.pending)
    assert calls == ["job", "cleaned", "cleaned"]
    assert caplog.text.count("ZeroDivisionError") == 3


def test_the_collector_may_submit_in_the_middle_of_submitting(pool, monkeypatch):
    """A ``__del__`` that takes a stale value, while a thread is being made."""
    done = [threading.Event(), threading.Event()]
    make = threading.Thread

    def make_and_collect(*args, **kwargs):
        monkeypatch.setattr(threading, "Thread", make)
        assert pool.submit(done[0].set)
        return make(*args, **kwargs)

    monkeypatch.setattr(threading, "Thread", make_and_collect)
    submitting = make(target=lambda: pool.submit(done[1].set), daemon=True)
    submitting.start()
    assert all(each.wait(PATIENCE) for each in done)


# Context.

colour = contextvars.ContextVar("colour", default="none")


def test_a_refresh_and_a_timed_load_see_the_callers_context(clock):
    cache = Cache(clock=clock, ttl=10, jitter=0, log_interval=None, sample_interval=None)
    cache.take("k", colour.get, grace=5)
    clock.advance(10)

    def ask():
        colour.set("red")
        assert cache.take("k", colour.get, grace=5) == "none"
        assert until(lambda: cache.get("k") == "red")
        colour.set("blue")
        assert cache.take("timed", colour.get, timeout=PATIENCE) == "blue"
        return colour.get()

    assert contextvars.copy_context().run(ask) == "blue"
    assert colour.get() == "none"


def test_what_a_background_loader_sets_in_its_context_stays_there(clock):
    cache = Cache(clock=clock, ttl=10, jitter=0, log_interval=None, sample_interval=None)
    assert cache.take("k", lambda: colour.set("red") and 1, timeout=PATIENCE) == 1
    assert colour.get() == "none"


def test_tasks_in_the_background_see_the_callers_context(clock):
    cache = Cache(clock=clock, ttl=10, jitter=0, log_interval=None, sample_interval=None)

    async def loader():
        return colour.get()

    async def main():
        colour.set("red")
        assert await cache.atake("k", loader, grace=5, timeout=PATIENCE) == "red"
        clock.advance(10)
        colour.set("blue")
        assert await cache.atake("k", loader, grace=5) == "red"
        while cache.get("k") is None:
            await asyncio.sleep(0)
        return cache.get("k")

    assert asyncio.run(main()) == "blue"


def test_a_refresh_that_a_loader_sets_off_is_no_part_of_that_load(clock):
    """It may take the key that is being loaded: nobody who loads waits for it."""
    cache = Cache(clock=clock, ttl=10, jitter=0, log_interval=None, sample_interval=None)
    cache.take("inner", lambda: "old", grace=50)
    clock.advance(10)

    def refresh():
        return cache.take("outer", lambda: "unreached")

    assert cache.take("outer", lambda: cache.take("inner", refresh, grace=50)) == "old"
    assert until(lambda: cache.get("inner") == "old")


# Loads in the pool, and exits.


def test_a_timed_loader_that_raises_an_exit_raises_it_to_its_caller_and_the_waiters_go_on(clock):
    cache = Cache(clock=clock, ttl=10, jitter=0, log_interval=None, sample_interval=None)
    began, go = threading.Event(), threading.Event()

    def loader():
        began.set()
        assert go.wait(PATIENCE)
        raise SystemExit

    with ThreadPoolExecutor(2) as pool:
        leading = pool.submit(cache.take, "k", loader, timeout=PATIENCE)
        assert began.wait(PATIENCE)
        waiting = pool.submit(cache.take, "k", lambda: "his own")
        until_waiting(2)
        go.set()
        assert waiting.result(PATIENCE) == "his own"
        assert isinstance(leading.exception(PATIENCE), SystemExit)


def test_a_refresh_that_raises_an_exit_is_a_failure_like_any_other(clock, caplog):
    cache = Cache(clock=clock, ttl=10, jitter=0, log_interval=None, sample_interval=None)

    def loader():
        raise SystemExit

    cache.take("k", lambda: "old", grace=50, fail_safe=True)
    clock.advance(10)
    assert cache.take("k", loader, grace=50, fail_safe=True) == "old"
    assert until(lambda: "Loading 'k' into the cache 'default' failed" in caplog.text)
    assert cache.stats().load_failures == 1


# Tasks.


def test_tasks_are_bounded_and_leave_when_they_are_done_or_cancelled():
    pool = WorkerPool(1, 2)

    async def main():
        async def forever():
            await asyncio.Future()

        first, second = pool.spawn(forever()), pool.spawn(forever())
        assert pool.spawn(forever()) is None
        first.cancel()
        await asyncio.wait([first])
        third = pool.spawn(forever())
        assert third is not None
        assert pool._tasks == {second, third}

    asyncio.run(main())
    assert pool._tasks == set()


def test_tasks_of_closed_loops_take_no_place():
    pool = WorkerPool(1, 2)

    async def forever():
        await asyncio.Future()

    async def main():
        assert pool.spawn(forever()) is not None

    for _ in range(5):
        loop = asyncio.new_event_loop()
        try:
            loop.run_until_complete(main())
        finally:
            loop.close()


# Processes.


def test_a_child_of_fork_has_threads_of_its_own():
    assert run("""
        def threads():
            return sum(thread.name == "wheelcache-refresh" for thread in threading.enumerate())

        cache = Cache(ttl=0.01, jitter=0)
        hanging = threading.Event()
        began = []

        def hang():
            began.append(1)
            hanging.wait()

        for key in (*range(200), "mine"):
            cache.take(key, lambda: "old", grace=100)
        time.sleep(0.02)
        # All threads of the parent hang, and its queue is full.
        for key in range(200):
            assert cache.take(key, hang, grace=100) == "old"
            if key < 4:
                until(lambda: threads() == key + 1 and len(began) == key + 1)
        assert threads() == 4
        assert cache.stats().refreshes == 4 + 128, cache.stats()
        try:
            cache.take("timed", hang, timeout=0.01)
        except TimeoutError:
            pass

        def child():
            assert threads() == 0
            assert cache.take("mine", os.getpid, 100, grace=100) == "old"
            until(lambda: cache.take("mine", lambda: None, 100, grace=100) == os.getpid())
            assert threads() >= 1
            # What the parent's threads were at is nobody's here.
            assert cache.take(0, lambda: "unreached", grace=100) == "old"
            assert cache.take("timed", lambda: "child's", timeout=20) == "child's"
            until(lambda: cache.stats().refreshes >= 2)

        print(in_child(child))
        """) == ["0"]


def test_children_forked_in_the_middle_of_refreshes_never_deadlock():
    assert run("""
        from wheelcache.runtime.worker_pool import refresh_pool

        cache = Cache(ttl=0.001, jitter=0, interval=0.01)
        stop = threading.Event()

        def work():
            while not stop.is_set():
                for key in range(20):
                    cache.take(key, lambda: time.sleep(0.0001), grace=5)
                    try:
                        cache.take(("timed", key), lambda: time.sleep(0.0001), timeout=1)
                    except TimeoutError:
                        pass

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()

        def child():
            for key in range(20):
                cache.take(key, lambda: 1, grace=5)
                assert cache.take(("mine", key), lambda: 1, timeout=20) == 1
            until(lambda: not refresh_pool.pending)

        print(sum(in_child(child) for _ in range(15)))
        stop.set()
        for thread in threads:
            thread.join()
        """) == ["0"]


def exits(script):
    """Run a script; its output, once it ended as it should: soon, with 0 and without a word on stderr."""
    outcome = subprocess.run(
        [sys.executable, *FORKING, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=PATIENCE
    )
    assert (outcome.returncode, outcome.stderr) == (0, "")
    return outcome.stdout.split()


HANGING = """
    import asyncio, threading, time
    from wheelcache import Cache, LoadTimeout

    cache = Cache(ttl=0.01, jitter=0)
    began = threading.Event()

    def hang():
        began.set()
        time.sleep(1000)
    """


def test_the_interpreter_exits_at_once_while_a_refresh_hangs():
    assert exits(f"""{HANGING}
    cache.take("k", lambda: "old", grace=100)
    time.sleep(0.02)
    print(cache.take("k", hang, grace=100))
    began.wait()
    """) == ["old"]


def test_the_interpreter_exits_at_once_while_a_timed_load_hangs():
    assert exits(f"""{HANGING}
    try:
        cache.take("k", hang, timeout=0.05)
    except LoadTimeout:
        print("timeout")
    began.wait()
    """) == ["timeout"]


def test_the_interpreter_exits_at_once_while_loaders_are_busy():
    assert (
        exits(f"""{HANGING}
    def busy():
        began.set()
        while True:
            cache.set("other", 1, ttl=0.001)

    for key in range(8):
        try:
            cache.take(key, busy, timeout=0.01)
        except LoadTimeout:
            pass
    began.wait()
    """)
        == []
    )


def test_a_loop_ends_quietly_with_a_refresh_that_hangs():
    assert exits(f"""{HANGING}
    async def main():
        await cache.atake("k", lambda: "old", grace=100)
        await asyncio.sleep(0.02)
        print(await cache.atake("k", lambda: asyncio.sleep(1000), grace=100))
        try:
            await cache.atake("timed", lambda: asyncio.sleep(1000), timeout=0.01)
        except LoadTimeout:
            print("timeout")

    asyncio.run(main())
    print(cache.take("timed", lambda: "loaded"), cache.take("k", lambda: "new", 100, grace=100))
    while cache.get("k") != "new":
        time.sleep(0.001)
    """) == ["old", "timeout", "loaded", "old"]


def test_taking_at_exit_is_no_error():
    assert exits(f"""{HANGING}
    import atexit
    cache.take("k", lambda: "old", grace=100)
    time.sleep(0.02)

    def at_exit():
        print(cache.take("k", lambda: "new", grace=100), cache.stats().refreshes_dropped)

    import wheelcache.runtime.worker_pool
    atexit.register(at_exit)
    atexit.register(wheelcache.runtime.worker_pool.refresh_pool.stop)
    """) == ["old", "1"]


def test_a_timed_load_at_exit_runs_in_the_callers_thread():
    assert exits(f"""{HANGING}
    import atexit
    import wheelcache.runtime.worker_pool as pools

    def at_exit():
        try:
            print(cache.take("k", lambda: "loaded", timeout=5))
        except LoadTimeout:
            print("timeout")

    atexit.register(at_exit)
    atexit.register(pools.timed_load_pool.stop)
    """) == ["loaded"]


def test_loads_in_the_background_use_few_threads(clock):
    cache = Cache(clock=clock, ttl=10, jitter=0, log_interval=None, sample_interval=None)
    jobs = Jobs()
    for key in range(200):
        cache.take(key, lambda: "old", grace=50)
    clock.advance(10)
    try:
        for key in range(200):
            assert cache.take(key, jobs, grace=50) == "old"
        for key in range(200, 240):
            with pytest.raises(LoadTimeout):
                cache.take(key, jobs, timeout=0.001)
        assert len(worker_pool.refresh_pool.threads) == worker_pool.REFRESHES
        assert len(worker_pool.timed_load_pool.threads) == worker_pool.TIMED_LOADS
        stats = cache.stats()
        assert stats.refreshes + stats.refreshes_dropped == 200
        assert stats.refreshes >= worker_pool.QUEUE
        assert stats.refreshes_dropped >= 200 - worker_pool.QUEUE - worker_pool.REFRESHES
        assert stats.load_timeouts == 40
    finally:
        jobs.go.set()
    assert until(lambda: not worker_pool.refresh_pool.pending and not worker_pool.timed_load_pool.pending)
    assert jobs.most <= worker_pool.REFRESHES + worker_pool.TIMED_LOADS
