"""Calls of a memoized function that hit: the engine's ``memoize`` compared with similar decorators.

All memoize a function of two arguments, which are passed by position. ``functools.lru_cache`` is the minimum: it is
written in C and has no expiry.
"""

import threading
from collections.abc import Callable, Sequence
from functools import lru_cache

import cachetools
from flask import Flask
from flask_caching import Cache as FlaskCache

from benchmarks.report import Section, costlier, faster
from benchmarks.timing import Contender, Round, Step, calling_with_two, interleaved
from wheelcache import Cache

CALLS = 200
ROUNDS = 100
MAX_ENTRIES = 10_000
TTL = 300
STEPS = ROUNDS

OURS = "wheelcache"
FLASK_CACHING = "Flask-Caching, SimpleCache"
LOCKED = "cachetools.cached + lock"
FLOOR = "minimum: functools.lru_cache"


def add(first: int, second: int) -> int:
    return first + second


def measure(step: Step) -> Section:
    cachetools_cache: cachetools.TTLCache[object, int] = cachetools.TTLCache(MAX_ENTRIES, TTL)
    rounds = {
        OURS: calling_with_two(Cache("memoize", max_entries=MAX_ENTRIES, ttl=TTL).memoize()(add)),
        FLASK_CACHING: _flask_caching(),
        LOCKED: calling_with_two(cachetools.cached(cachetools_cache, lock=threading.Lock())(add)),
        FLOOR: calling_with_two(lru_cache(MAX_ENTRIES)(add)),
    }
    arguments = [(number % 10, 2) for number in range(CALLS)]
    timings = interleaved([Contender(name, round_, lambda: arguments) for name, round_ in rounds.items()], ROUNDS, step)
    operation, ours = "call, hit, two arguments by position", timings[OURS].median
    return Section(
        "Memoize",
        f"Nanoseconds per call, median of {ROUNDS} interleaved rounds of {CALLS} calls.",
        [
            faster(operation, ours, FLASK_CACHING, timings[FLASK_CACHING].median, 10),
            faster(operation, ours, LOCKED, timings[LOCKED].median),
            costlier(operation, ours, FLOOR, timings[FLOOR].median),
        ],
        {"memoized": timings},
    )


def _flask_caching() -> Round:
    """Return a memoized function in a real app. A round runs within one app context."""
    app = Flask("memoize")
    cache = FlaskCache(
        app, config={"CACHE_TYPE": "SimpleCache", "CACHE_THRESHOLD": MAX_ENTRIES, "CACHE_DEFAULT_TIMEOUT": TTL}
    )
    memoized: Callable[[int, int], int] = cache.memoize()(add)
    call = calling_with_two(memoized)

    def in_context(arguments: Sequence[tuple[int, int]]) -> int:
        with app.app_context():
            return call(arguments)

    return in_context
