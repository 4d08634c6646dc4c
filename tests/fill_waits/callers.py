"""Threads and tasks that ask for keys, for the tests of leases."""

from concurrent.futures import ThreadPoolExecutor
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


class Caller:
    """A thread that does one thing after the other, as a server serves one request after the other."""

    def __init__(self, cache):
        self.cache = cache
        self._pool = ThreadPoolExecutor(1)
        self.submit = self._pool.submit
        self.ends = self._pool.shutdown

    def does(self, function, *args):
        return self.submit(function, *args).result(PATIENCE)

    def asks(self, key, wait=LONG, cache=None):
        """Return the future of a get that may wait."""
        return self.submit(get_or_lease, self.cache if cache is None else cache, key, MISS, wait=wait)

    def gets(self, key, wait=LONG, cache=None):
        """Return the result of a get that does not wait."""
        return self.asks(key, wait, cache).result(PATIENCE)


def line_up(key, holder, *waiters, cache=None):
    """Let ``holder`` receive the lease on ``key``, and the others wait for it. Return the futures of their gets."""
    assert holder.gets(key, cache=cache) == MISS
    asked = [waiter.asks(key, cache=cache) for waiter in waiters]
    until_waiting(len(asked))
    return asked


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

    return Context().run(look)
