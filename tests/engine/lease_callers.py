"""Threads that ask for keys, for the tests of leases."""

from concurrent.futures import ThreadPoolExecutor

from tests.waiting import PATIENCE
from wheelcache.leases.fill_leases import end_request

LONG = 100.0
"""Seconds of a wait whose end no test sees."""

SHORT = 0.05
"""Seconds of a wait whose end a test waits for."""

MISS = "a miss"

QUIET = {"log_interval": None, "sample_interval": None}


class Caller:
    """A thread that does one thing after the other, as a server's thread serves one request after the other."""

    def __init__(self, cache):
        self.cache = cache
        self.pool = ThreadPoolExecutor(1)

    def does(self, function, *args, **kwargs):
        return self.pool.submit(function, *args, **kwargs).result(PATIENCE)

    def asks(self, key, wait=LONG, cache=None):
        """The future of a get that may wait."""
        return self.pool.submit((self.cache if cache is None else cache).get_or_lease, key, MISS, wait=wait)

    def gets(self, key, wait=LONG, cache=None):
        """What a get returns that does not wait."""
        return self.asks(key, wait, cache).result(PATIENCE)

    def ends(self):
        self.pool.shutdown()


def in_a_thread(function, *args):
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function, *args).result(PATIENCE)


def is_free(cache, *keys):
    """Whether no caller has a lease on any of the keys, of which there may be 1,024. They are deleted."""

    def look():
        cache.delete_many(keys)
        for key in keys:
            cache.get_or_lease(key, wait=LONG, may_wait=False)
        try:
            return all(map(cache.is_leased, keys))
        finally:
            end_request()

    return in_a_thread(look)
