"""The engine compared with similar libraries.

``cachetools.TTLCache`` is not thread-safe, so it is used under a lock, as its documentation recommends. The others are
thread-safe; cachebox, moka-py and (in part) theine are written in Rust. All hold at most 10,000 entries, with a TTL of
300 s.
"""

import threading
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from itertools import count, islice
from typing import Any

import cachebox
import cachetools
import moka_py
import theine

from benchmarks.report import Section, by_core, costlier, faster
from benchmarks.timing import Contender, Step, Timing, calling, calling_with_two, interleaved
from wheelcache import Cache

CALLS = 1_000
ROUNDS = 100
MAX_ENTRIES = 10_000
TTL = 300
BATCH_KEYS = 100
BATCHES = 10
STEPS = 5 * ROUNDS

OURS = "wheelcache"
ONE_BY_ONE = f"a dict of {BATCH_KEYS} get"
SET_ONE_BY_ONE = f"{BATCH_KEYS} set"
LOCKED = "cachetools.TTLCache + lock"

VTTL = "cachebox.VTTLCache"
DICT = "an unbounded dict"

VALUE = "a name and an address, such as a cache might hold"

Get = Callable[[str], object]
Set = Callable[[str, Any], object]


class LockedTTLCache:
    """``cachetools.TTLCache`` in a form that threads may use."""

    def __init__(self, max_entries: int, ttl: float) -> None:
        self._entries: cachetools.TTLCache[str, Any] = cachetools.TTLCache(max_entries, ttl)
        self._lock = threading.Lock()

    def get(self, key: str) -> Any:
        with self._lock:
            return self._entries.get(key)

    def set(self, key: str, value: Any) -> None:
        with self._lock:
            self._entries[key] = value


class TheineWithTTL:
    """theine receives the TTL at each call; the others receive it when they are created."""

    def __init__(self, max_entries: int, ttl: float) -> None:
        cache: theine.Cache[str, Any] = theine.Cache(max_entries)
        duration = timedelta(seconds=ttl)
        self.get = cache.get
        self.set = lambda key, value: cache.set(key, value, duration)


def make_all(max_entries: int) -> dict[str, tuple[Get, Set]]:
    """Return the ``get`` and the ``set`` of a new cache of every kind."""
    return {name: make(max_entries) for name, make in MAKERS.items()}


def _wheelcache(max_entries: int) -> tuple[Get, Set]:
    cache = Cache("benchmark", max_entries=max_entries, ttl=TTL)
    return cache.get, cache.set


def _cachetools(max_entries: int) -> tuple[Get, Set]:
    cache = LockedTTLCache(max_entries, TTL)
    return cache.get, cache.set


def _cachebox(max_entries: int) -> tuple[Get, Set]:
    cache: cachebox.TTLCache[str, Any] = cachebox.TTLCache(max_entries, TTL)
    return cache.get, cache.insert


def _cachebox_vttl(max_entries: int) -> tuple[Get, Set]:
    cache: cachebox.VTTLCache[str, Any] = cachebox.VTTLCache(max_entries)
    return cache.get, partial(cache.insert, ttl=TTL)


def _dict(max_entries: int) -> tuple[Get, Set]:
    entries: dict[str, Any] = {}
    return entries.get, entries.__setitem__


def _moka(max_entries: int) -> tuple[Get, Set]:
    cache: moka_py.Moka[str, Any] = moka_py.Moka(max_entries, ttl=TTL)
    return cache.get, cache.set


def _theine(max_entries: int) -> tuple[Get, Set]:
    cache = TheineWithTTL(max_entries, TTL)
    return cache.get, cache.set


MAKERS: dict[str, Callable[[int], tuple[Get, Set]]] = {
    OURS: _wheelcache,
    LOCKED: _cachetools,
    "cachebox.TTLCache": _cachebox,
    VTTL: _cachebox_vttl,
    DICT: _dict,
    "moka-py": _moka,
    "theine": _theine,
}


def measure(step: Step) -> Section:
    keys = [f"user:{number % 100}:profile" for number in range(CALLS)]
    pairs = [(key, VALUE) for key in keys]
    caches = make_all(MAX_ENTRIES)
    for _, set_ in caches.values():
        for key in keys:
            set_(key, VALUE)
    gets = interleaved([Contender(name, calling(get), lambda: keys) for name, (get, _) in caches.items()], ROUNDS, step)
    sets = interleaved(
        [Contender(name, calling_with_two(set_), lambda: pairs) for name, (_, set_) in caches.items()], ROUNDS, step
    )
    new_sets = interleaved([_filled(name, set_) for name, (_, set_) in make_all(MAX_ENTRIES).items()], ROUNDS, step)

    reads, writes = _batches(step)
    rows = []
    for operation, timings, targets in (
        ("get, hit", gets, {LOCKED: 4.0, VTTL: by_core(compiled=1.5), DICT: by_core(compiled=1 / 1.6)}),
        ("set, existing key", sets, {LOCKED: 1.2, VTTL: by_core(compiled=2.0)}),
        ("set, new key into a full cache", new_sets, {VTTL: by_core(compiled=2.0)}),
    ):
        for peer, timing in timings.items():
            if peer != OURS:
                target = targets.get(peer)
                # The mean includes work that a contender defers and does occasionally.
                if timings is new_sets:
                    rows.append(faster(operation, timings[OURS].mean, peer, timing.mean, target))
                else:
                    rows.append(faster(operation, timings[OURS].median, peer, timing.median, target))
    return Section(
        "Engine",
        f"Nanoseconds per call, median of {ROUNDS} interleaved rounds of {CALLS:,} calls; into a full cache, the mean. "
        "theine and moka-py admit new keys by frequency, so some of their calls of set store nothing.",
        [
            *rows,
            costlier(
                f"get_many, {BATCH_KEYS} keys",
                reads[OURS].median,
                ONE_BY_ONE,
                reads[ONE_BY_ONE].median,
                by_core(compiled=0.6),
            ),
            costlier(
                f"set_many, {BATCH_KEYS} keys",
                writes[OURS].median,
                SET_ONE_BY_ONE,
                writes[SET_ONE_BY_ONE].median,
                by_core(compiled=0.9),
            ),
        ],
        {
            "get": gets,
            "set": sets,
            "set new key into full cache": new_sets,
            "get_many": reads,
            "set_many": writes,
        },
    )


def _batches(step: Step) -> tuple[dict[str, Timing], dict[str, Timing]]:
    """Compare ``get_many`` and ``set_many`` with the loops that they replace."""
    cache = Cache("batches", max_entries=MAX_ENTRIES, ttl=TTL)
    keys = [f"user:{number}:profile" for number in range(BATCH_KEYS)]
    values = dict.fromkeys(keys, VALUE)
    cache.set_many(values)
    get, set_ = cache.get, cache.set

    def set_each(values: dict[str, str]) -> None:
        for key, value in values.items():
            set_(key, value)

    reads = [
        Contender(OURS, calling(cache.get_many), lambda: [keys] * BATCHES),
        Contender(ONE_BY_ONE, calling(lambda keys: {key: get(key) for key in keys}), lambda: [keys] * BATCHES),
    ]
    writes = [
        Contender(OURS, calling(cache.set_many), lambda: [values] * BATCHES),
        Contender(SET_ONE_BY_ONE, calling(set_each), lambda: [values] * BATCHES),
    ]
    return interleaved(reads, ROUNDS, step), interleaved(writes, ROUNDS, step)


def _filled(name: str, set_: Set) -> Contender:
    new = ((f"visitor:{number}:profile", VALUE) for number in count())
    for key, value in islice(new, MAX_ENTRIES):
        set_(key, value)
    return Contender(name, calling_with_two(set_), lambda: list(islice(new, CALLS)))
