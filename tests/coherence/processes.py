"""Caches that act like processes of their own: all of a test map the same file of stamps."""

from concurrent.futures import ThreadPoolExecutor

from tests.waiting import PATIENCE
from wheelcache import Cache

NAME = "test"
"""Of the stamps."""

STAMPS_CHECK = 10.0
"""Seconds after which a cache looks whether its stamps are still there."""

QUIET = {"log_interval": None, "sample_interval": None}


def fill(*caches, key="k", value="old"):
    """As readers do: each cache misses the key, and sets it."""
    for cache in caches:
        assert cache.get(key) is None
        assert cache.set(key, value)


def are_shared(one, other):
    """Whether a write under either stamps ends the entry of a cache on the other. Both may be used only once."""
    caches = [Cache(stamps=stamps, **QUIET) for stamps in (one, other)]
    for key, (writer, reader) in {"a": caches, "b": caches[::-1]}.items():
        reader.set(key, "old")
        assert reader.get(key) == "old"
        writer.set(key, "new")
        if reader.get(key) is not None:
            return False
    return True


def in_thread(function):
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result(PATIENCE)
