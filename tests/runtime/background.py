"""Background loads of the process, for tests that wait for them or block them."""

import asyncio
import threading
from contextlib import contextmanager

from tests.waiting import PATIENCE, until
from wheelcache.runtime.worker_pool import QUEUE, REFRESHES, TIMED_LOADS, refresh_pool, timed_load_pool

THREADS = {refresh_pool: REFRESHES, timed_load_pool: TIMED_LOADS}


def is_idle():
    """Return whether no thread loads or refreshes a value."""
    return refresh_pool.pending == timed_load_pool.pending == 0


async def until_tasks_end():
    """Let the other tasks of the running event loop finish."""
    for _ in range(1000):
        if len(asyncio.all_tasks()) == 1:
            # Their callbacks run after that.
            await asyncio.sleep(0)
            return
        await asyncio.sleep(0)
    raise AssertionError(f"these go on: {asyncio.all_tasks()}")


@contextmanager
def full(pool, *, places=0):
    """Keep all threads of the pool busy, and its queue full except for the given number of jobs."""
    go, running = threading.Event(), threading.Semaphore(0)

    def job():
        running.release()
        assert go.wait(PATIENCE)

    # Other threads hang already.
    free = THREADS[pool] - pool.pending
    try:
        for _ in range(free):
            assert pool.submit(job)
        for _ in range(free):
            assert running.acquire(timeout=PATIENCE)
        for _ in range(QUEUE - places):
            assert pool.submit(job)
        yield
    finally:
        go.set()
        assert until(lambda: pool.pending == 0)


def refuse_threads(monkeypatch):
    """Let the pools have no threads from now on, as if the system started no more threads."""

    def refuse(thread):
        raise RuntimeError("can't start new thread")

    assert until(is_idle)
    for pool in THREADS:
        pool.pause()
    monkeypatch.setattr("threading.Thread.start", refuse)
