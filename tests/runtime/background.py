"""What the process loads in the background, for tests that wait for it or stand in its way."""

import asyncio
import threading
from contextlib import contextmanager

from tests.waiting import PATIENCE, until
from wheelcache.runtime.worker_pool import QUEUE, REFRESHES, TIMED_LOADS, refresh_pool, timed_load_pool

THREADS = {refresh_pool: REFRESHES, timed_load_pool: TIMED_LOADS}


def is_idle():
    """Whether no thread loads or refreshes anything."""
    return refresh_pool.pending == timed_load_pool.pending == 0


async def until_tasks_end():
    """Let the other tasks of the running event loop come to their end."""
    for _ in range(1000):
        if len(asyncio.all_tasks()) == 1:
            # What is to be done when they are done comes after that.
            await asyncio.sleep(0)
            return
        await asyncio.sleep(0)
    raise AssertionError(f"these go on: {asyncio.all_tasks()}")


@contextmanager
def full(pool, *, places=0):
    """Keep all threads of the pool at work, and its queue full but for so many places."""
    go, running = threading.Event(), threading.Semaphore(0)

    def job():
        running.release()
        go.wait(PATIENCE)

    # Others hang already.
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
    """As where the system starts no more threads: the pools have none from now on."""

    def refuse(thread):
        raise RuntimeError("can't start new thread")

    assert until(is_idle)
    for pool in THREADS:
        pool.pause()
    monkeypatch.setattr("threading.Thread.start", refuse)
