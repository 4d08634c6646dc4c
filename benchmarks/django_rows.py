"""Django's cache API: wheelcache compared with Django's LocMemCache and DummyCache.

Each backend object is looked up once and called by its bound method; ``site_rows`` measures the calls that sites make.
A round is 1,000 calls over 100 keys.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from itertools import count, islice
from typing import Any

import django
from django.conf import settings
from django.core.cache import caches

from benchmarks.report import Row, Section, by_core, costlier, faster
from benchmarks.timing import Contender, Step, Timing, awaiting, calling, calling_with_two, interleaved
from wheelcache import Cache
from wheelcache.django_backend import memoize

KEYS = 100
CALLS = 1_000
ROUNDS = 100
ASYNC_CALLS = 100
"""For each of these, LocMemCache switches to a thread and back."""
BATCH_CALLS = 10
"""Calls with 100 keys each."""
MAX_ENTRIES = 10_000
STEPS = 11 * ROUNDS

LOCMEM = "LocMemCache"
DUMMY = "DummyCache"
FLOOR = "the minimum in Python"
OURS = "wheelcache"
FILL_WAIT = "wheelcache, FILL_WAIT"
WITHOUT = "without FILL_WAIT"
MEMOIZED = "wheelcache.django_backend.memoize"
ENGINE = "the engine's memoize"

VALUE = "a name and an address, such as a cache might hold"
DICT = {"id": 1, "name": "Ada Lovelace", "tags": ["mathematics", "engines"], "active": True}

keys = [f"user:{number}:profile" for number in range(KEYS)]
dict_keys = [f"{key}:dict" for key in keys]
number_keys = [f"{key}:visits" for key in keys]


class Floor:
    """The minimum for a ``get`` in Python: prefix + key, and one look-up in a dict."""

    def __init__(self) -> None:
        self._prefix = ":1:"
        self._entries = {self._prefix + key: VALUE for key in keys}

    def get(self, key: str) -> str:
        return self._entries[self._prefix + key]


def measure(step: Step) -> Section:
    _configure()
    ours, locmem, dummy = caches["default"], caches["locmem"], caches["dummy"]
    waiting = caches["waiting"]
    for cache in (ours, waiting, locmem):
        cache.set_many(dict.fromkeys(keys, VALUE))
        cache.set_many(dict.fromkeys(dict_keys, DICT))

    gets = interleaved(
        [
            Contender(OURS, calling(ours.get), _repeated(keys)),
            Contender(FILL_WAIT, calling(waiting.get), _repeated(keys)),
            Contender(LOCMEM, calling(locmem.get), _repeated(keys)),
            Contender(DUMMY, calling(dummy.get), _repeated(keys)),
            Contender(FLOOR, calling(Floor().get), _repeated(keys)),
        ],
        ROUNDS,
        step,
    )
    dict_gets = interleaved(
        [Contender(name, calling(cache.get), _repeated(dict_keys)) for name, cache in ((OURS, ours), (LOCMEM, locmem))],
        ROUNDS,
        step,
    )
    pairs = [(key, VALUE) for key in keys]
    # Set the keys of FILL_WAIT equally often: values that were set often are farther apart in memory, which makes a hit
    # of aget 80 ns slower.
    sets = interleaved(
        [
            Contender(name, calling_with_two(cache.set), _repeated(pairs))
            for name, cache in (
                (OURS, ours),
                (FILL_WAIT, waiting),
                (LOCMEM, locmem),
                (DUMMY, dummy),
            )
        ],
        ROUNDS,
        step,
    )
    new_sets = interleaved(
        [_filled(name, alias) for name, alias in ((OURS, "full"), (LOCMEM, "full-locmem"))], ROUNDS, step
    )
    for cache in (ours, locmem):
        cache.set_many(dict.fromkeys(number_keys, 1))
    small = {
        operation: interleaved(
            [
                Contender(name, round_of(getattr(cache, method)), arguments)
                for name, cache in ((OURS, ours), (LOCMEM, locmem))
            ],
            ROUNDS,
            step,
        )
        for operation, method, round_of, arguments in (
            ("get_many, 100 keys", "get_many", calling, _repeated([keys], BATCH_CALLS)),
            ("set_many, 100 keys", "set_many", calling, _repeated([dict.fromkeys(keys, VALUE)], BATCH_CALLS)),
            ("add, existing key", "add", calling_with_two, _repeated(pairs)),
            ("incr", "incr", calling, _repeated(number_keys)),
            ("touch", "touch", calling, _repeated(keys)),
        )
    }
    pairs_of_numbers = [(number, 2) for number in range(10)]
    memoized = interleaved(
        [
            Contender(MEMOIZED, calling_with_two(memoize(300)(_add)), _repeated(pairs_of_numbers)),
            Contender(ENGINE, calling_with_two(Cache(ttl=300).memoize()(_add)), _repeated(pairs_of_numbers)),
        ],
        ROUNDS,
        step,
    )
    with asyncio.Runner() as runner:
        agets = interleaved(
            [
                Contender(name, awaiting(cache.aget, runner), _repeated(keys, ASYNC_CALLS))
                for name, cache in ((OURS, ours), (FILL_WAIT, waiting), (LOCMEM, locmem), (DUMMY, dummy))
            ],
            ROUNDS,
            step,
        )

    def medians(operation: str, timings: dict[str, Timing], **targets: float | None) -> list[Row]:
        return [
            faster(operation, timings[OURS].median, peer, timing.median, targets.get(peer))
            for peer, timing in timings.items()
            if peer not in (OURS, FILL_WAIT, FLOOR)
        ]

    return Section(
        "Django",
        f"Nanoseconds per call, median of {ROUNDS} interleaved rounds of {CALLS:,} calls (aget: {ASYNC_CALLS}, "
        f"get_many and set_many: {BATCH_CALLS}). Into a full cache: the mean, since LocMemCache sometimes drops a "
        "third of its entries.",
        [
            *medians("get, hit, str", gets, LocMemCache=by_core(compiled=25, python=8), DummyCache=5),
            costlier("get, hit, str", gets[OURS].median, FLOOR, gets[FLOOR].median, by_core(compiled=1, python=3.2)),
            *medians("get, hit, dict", dict_gets, LocMemCache=2.5),
            *medians("set, str, existing key", sets, LocMemCache=by_core(compiled=5, python=3)),
            faster(
                "set, str, new key into a full cache",
                new_sets[OURS].mean,
                LOCMEM,
                new_sets[LOCMEM].mean,
                by_core(compiled=5),
            ),
            *(
                row
                for (operation, timings), target in zip(small.items(), (8, 8, 5, 4, 5), strict=True)
                for row in medians(operation, timings, LocMemCache=by_core(compiled=target))
            ),
            *medians("aget, hit, str", agets, LocMemCache=30),
            costlier(
                "call of a memoized function, hit, two arguments",
                memoized[MEMOIZED].median,
                ENGINE,
                memoized[ENGINE].median,
                1.3,
            ),
            costlier("get, hit, str, with FILL_WAIT", gets[FILL_WAIT].median, WITHOUT, gets[OURS].median, 1.05),
            costlier("set, str, existing key, with FILL_WAIT", sets[FILL_WAIT].median, WITHOUT, sets[OURS].median),
            costlier("aget, hit, str, with FILL_WAIT", agets[FILL_WAIT].median, WITHOUT, agets[OURS].median, 1.05),
        ],
        {
            "get": gets,
            "get dict": dict_gets,
            "set": sets,
            "set new key into full cache": new_sets,
            **small,
            "aget": agets,
            "memoized": memoized,
        },
    )


def _add(first: int, second: int) -> int:
    return first + second


def configure_django(**aliases: dict[str, Any]) -> None:
    """Configure Django without a project, with CACHES only."""
    if not settings.configured:
        settings.configure(CACHES=aliases)
        django.setup()


def wheel_alias(location: str, max_entries: int, **options: Any) -> dict[str, Any]:
    return {
        "BACKEND": "wheelcache.django_backend.WheelCache",
        "LOCATION": location,
        "OPTIONS": {"MAX_ENTRIES": max_entries, **options},
    }


def locmem_alias(location: str, max_entries: int) -> dict[str, Any]:
    return {
        "BACKEND": "django.core.cache.backends.locmem.LocMemCache",
        "LOCATION": location,
        "OPTIONS": {"MAX_ENTRIES": max_entries},
    }


def _configure() -> None:
    configure_django(
        **{
            "default": wheel_alias("default", MAX_ENTRIES),
            "waiting": wheel_alias("waiting", MAX_ENTRIES, FILL_WAIT=1),
            "locmem": locmem_alias("default", MAX_ENTRIES),
            "dummy": {"BACKEND": "django.core.cache.backends.dummy.DummyCache"},
            "full": wheel_alias("full", MAX_ENTRIES),
            "full-locmem": locmem_alias("full", MAX_ENTRIES),
        }
    )


def _repeated(items: Sequence[Any], calls: int = CALLS) -> Callable[[], Sequence[Any]]:
    arguments = [items[number % len(items)] for number in range(calls)]
    return lambda: arguments


def _filled(name: str, alias: str) -> Contender:
    """Return a contender that sets a new key at each call, in a cache that has MAX_ENTRIES entries."""
    cache = caches[alias]
    new: Iterator[tuple[str, str]] = ((f"visitor:{number}:profile", VALUE) for number in count())
    for key, value in islice(new, MAX_ENTRIES):
        cache.set(key, value)
    return Contender(name, calling_with_two(cache.set), lambda: list(islice(new, CALLS)))
