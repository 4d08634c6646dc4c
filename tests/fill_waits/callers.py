"""Threads and tasks that ask for keys, for the tests of leases."""

import asyncio
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import Context

from tests.caches import is_leased
from tests.waiting import PATIENCE, until_waiting
from wheelcache.core.contract import MISSING
from wheelcache.fill_waits.leased_reads import LeasedReads
from wheelcache.runtime.request_scope import end_request
from wheelcache.runtime.steps import drive, drive_async

LONG = 100.0
"""Seconds of a wait whose end no test sees."""

SHORT = 0.05
"""Seconds of a wait whose end a test waits for."""

MISS = "a miss"


def get_or_lease(cache, key, default=None, *, wait, **options):
    """Look a key up as the backends do. Return ``default`` if the caller must compute the value."""
    found = drive(LeasedReads(cache.engine).get(key, wait, **options))
    return default if found is MISSING else found


async def aget_or_lease(cache, key, default=None, *, wait, **options):
    found = await drive_async(LeasedReads(cache.engine).get(key, wait, **options))
    return default if found is MISSING else found


class Asking:
    """A thread or a task that does one thing after the other, as a server serves one request after the other."""

    def does(self, function, *args, **kwargs):
        return self.submit(function, *args, **kwargs).result(PATIENCE)

    def gets(self, key, wait=LONG, cache=None):
        """Return the result of a get that does not wait."""
        return self.asks(key, wait, cache).result(PATIENCE)


class ThreadCaller(Asking):
    def __init__(self, cache):
        self.cache = cache
        self.pool = ThreadPoolExecutor(1)
        self.submit = self.pool.submit

    def asks(self, key, wait=LONG, cache=None):
        """Return the future of a get that may wait."""
        return self.submit(get_or_lease, self.cache if cache is None else cache, key, MISS, wait=wait)

    def ends(self):
        self.pool.shutdown()


class TaskCaller(Asking):
    """A task of a loop that runs in another thread."""

    def __init__(self, cache, loop):
        self.cache = cache
        self.loop = loop
        self.calls = asyncio.Queue()
        # It inherits nothing.
        loop.call_soon_threadsafe(self._start, context=Context())

    def _start(self):
        self.task = self.loop.create_task(self._serve())

    async def _serve(self):
        while (call := await self.calls.get()) is not None:
            future, function = call
            try:
                outcome = function()
                future.set_result(await outcome if asyncio.iscoroutine(outcome) else outcome)
            except BaseException as error:
                # Cancelled while it waits, it goes on with the next call.
                future.set_exception(error)

    def submit(self, function, *args, **kwargs):
        future = Future()
        call = (future, lambda: function(*args, **kwargs))
        self.loop.call_soon_threadsafe(self.calls.put_nowait, call)
        return future

    def asks(self, key, wait=LONG, cache=None):
        return self.submit(aget_or_lease, self.cache if cache is None else cache, key, MISS, wait=wait)

    def cancel(self):
        self.loop.call_soon_threadsafe(self.task.cancel)

    def ends(self):
        self.loop.call_soon_threadsafe(self.calls.put_nowait, None)
        asyncio.run_coroutine_threadsafe(asyncio.wait([self.task]), self.loop).result(PATIENCE)


def line_up(key, holder, *waiters, cache=None):
    """Let ``holder`` receive the lease on ``key``, and the others wait for it. Return the futures of their gets."""
    assert holder.gets(key, cache=cache) == MISS
    asked = [waiter.asks(key, cache=cache) for waiter in waiters]
    until_waiting(len(asked))
    return asked


def in_a_thread(function, *args):
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function, *args).result(PATIENCE)


def is_free(cache, *keys):
    """Return whether no caller has a lease on any of the keys, at most 1,024. Delete the keys."""

    def look():
        cache.delete_many(keys)
        for key in keys:
            get_or_lease(cache, key, wait=LONG, may_wait=False)
        try:
            return all(is_leased(cache, key) for key in keys)
        finally:
            end_request()

    return in_a_thread(look)
