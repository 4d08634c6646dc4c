"""Caches that act like separate processes: all caches of a test map the same file of stamps."""

from concurrent.futures import ThreadPoolExecutor

from tests.waiting import PATIENCE
from wheelcache import Cache

NAME = "test"
"""The name of the stamps."""

STAMPS_CHECK = 10.0
"""Seconds after which a cache checks that its stamps still exist."""

QUIET = {"log_interval": None, "sample_interval": None}


def fill(*caches, key="k", value="old"):
    """Let each cache miss the key and set it, as readers do."""
    for cache in caches:
        assert cache.get(key) is None
        assert cache.set(key, value)


def are_shared(one, other):
    """Return whether writes with either stamps invalidate entries with the other. Each object can be used only once."""
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
