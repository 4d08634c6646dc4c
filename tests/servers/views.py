"""The views of both sites, independent of the framework: a URL for each method, which answers in JSON.

``/set/a?value=b`` calls ``set("a", value="b")``. Cached values count how often they were computed, and may fail.
"""

import os
import threading
import time
from collections import Counter

from tests.waiting import PATIENCE, happens, waiting
from wheelcache.runtime.worker_pool import refresh_pool, timed_load_pool

SLOW = 0.2
"""Seconds that a view takes: long enough for a stampede."""


class Boom(Exception):
    pass


def seconds(timeout):
    return None if timeout == "none" else float(timeout)


class Views:
    """``cache`` is an adapter of the site's cache."""

    def __init__(self, cache):
        self.cache = cache
        self._lock = threading.Lock()
        self.runs = Counter()
        self.round = 1
        self.released = threading.Event()
        self.arrivals = []
        self.computed = 0

    # Calls of the cache, one a view.

    def pid(self):
        return {"pid": os.getpid()}

    def set(self, key, value="", timeout="none"):
        self.cache.set(key, [value], seconds(timeout))
        return self.pid()

    def set_many(self, number, timeout="none"):
        self.cache.set_many({f"many{each}": [each] for each in range(int(number))}, seconds(timeout))
        return self.size()

    def get(self, key):
        return {"value": self.cache.get(key)}

    def count(self, key):
        self.cache.add(key, 0, None)
        return {"value": self.cache.count(key)}

    def size(self):
        """Return the number of entries in memory. This neither reads nor writes the cache."""
        return {"size": len(self.cache.engine)}

    def look_up(self, hits, misses):
        self.cache.set("there", 1)
        for key, number in (("there", hits), ("not-there", misses)):
            for _ in range(int(number)):
                self.cache.get(key)
        return self.pid()

    # Loaders.

    def timed(self, key):
        """The loader runs in a thread of the pool, where it gives way to others."""

        def load():
            time.sleep(0.01)
            return [key]

        return {"value": self.cache.load(f"timed-{key}", load, 60, load_timeout=PATIENCE)}

    def refreshed(self):
        """The stale value while a thread computes the next."""
        value = self.cache.load("fresh", lambda: ["new"] if self.cache.get("stale") else ["old"], 0.05, grace=60)
        self.cache.set("stale", True, None)
        return {"value": value}

    def idle(self):
        """Return whether the threads that load in the background are idle."""
        return {"idle": refresh_pool.pending == timed_load_pool.pending == 0}

    def together(self, number):
        """The loader returns when ``number`` requests are here, so all of them have missed."""

        def load():
            self.computed += 1
            return ["value"] if happens(lambda: len(self.arrivals) >= int(number)) else "too few came"

        # Neither this nor until() takes a lock, which gevent might patch in the middle of this site's life.
        self.arrivals.append(1)
        return {"value": self.cache.load("together", load, None), "computed": self.computed}

    # Below: views that are slow or fail, and that the framework caches.

    def run_of(self, name):
        """Return the number of this run of ``name``, from 1."""
        with self._lock:
            self.runs[name] += 1
            return self.runs[name]

    def compute(self, name):
        run = self.run_of(name)
        time.sleep(SLOW)
        return {"run": run, "round": self.round}

    def fail(self, how, name):
        """The first run raises, or returns None, which is not cached, once it is released. All others are right."""
        run = self.run_of(name)
        if run > 1:
            time.sleep(SLOW)
            return {"run": run}
        assert self.released.wait(3 * PATIENCE)
        if how == "raises":
            raise Boom
        return None

    # Below: commands and questions of the tests, by POST, since a GET may be cached.

    def waiting(self):
        return {"waiting": waiting()}

    def ran(self, name):
        return {"runs": self.runs[name]}

    def expire(self):
        """Let every entry expire and stay in memory, and count runs from zero."""
        self.round += 1
        self.runs.clear()
        keys = self.cache.engine.keys()
        for key in keys:
            self.cache.engine.touch(key, 0.001)
        time.sleep(0.01)
        return {"expired": len(keys)}

    def hold(self):
        self.released.clear()
        return {}

    def release(self):
        """Let the hanging runs continue."""
        self.released.set()
        return {}

    def answer(self, path, query):
        view, *arguments = path.split("/")
        return getattr(self, view.replace("-", "_"))(*arguments, **query)
