"""What ``policy="adaptive"`` costs, compared with LRU, and what a miss costs.

Hits are measured on few keys, which stay in the caches of the processor, and on all keys of a full cache in random
order, as on a site: there, the memory takes most of the time. Keys are made before each round, and none is asked for
twice in a row.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import count, islice
from random import Random

import cachebox

from benchmarks.report import Row, Section, costlier
from benchmarks.timing import Contender, Step, Timing, calling, calling_with_two, interleaved
from wheelcache import Cache

CALLS = 1_000
ROUNDS = 200
SIZES = (1_000, 100_000)
HOT_KEYS = 200
TTL = 300
STEPS = (3 * len(SIZES) + 1) * ROUNDS

ADAPTIVE, LRU, CACHEBOX = 'policy="adaptive"', 'policy="lru"', "cachebox.TTLCache"
VALUE = "a name and an address, such as a cache might hold"


def measure(step: Step) -> Section:
    rows: list[Row] = []
    figures: dict[str, dict[str, Timing]] = {}

    def compare(operation: str, contenders: Sequence[Contender]) -> None:
        ours, theirs = contenders
        timings = figures[operation] = interleaved(contenders, ROUNDS, step)
        rows.append(costlier(operation, timings[ours.name].median, theirs.name, timings[theirs.name].median))

    for size in SIZES:
        keys = [f"user:{number}:profile" for number in range(size)]
        caches = {name: _filled(name, size, keys) for name in (ADAPTIVE, LRU)}
        hot = [keys[number % HOT_KEYS] for number in range(CALLS)]
        compare(
            f"get, {HOT_KEYS} hot keys of {size:,}",
            [Contender(name, calling(cache.get), lambda hot=hot: hot) for name, cache in caches.items()],
        )
        compare(
            f"get, all of {size:,} keys",
            [
                Contender(name, calling(cache.get), partial(Random(1).choices, keys, k=CALLS))
                for name, cache in caches.items()
            ],
        )
        compare(
            f"set, new key into {size:,}",
            [Contender(name, calling_with_two(cache.set), _new_pairs()) for name, cache in caches.items()],
        )
    keys = [f"user:{number}:profile" for number in range(30_000)]
    peer: cachebox.TTLCache[str, str] = cachebox.TTLCache(10_000, TTL)
    for key in keys:
        peer.insert(key, VALUE)
    ours = _filled("misses", 10_000, keys)
    compare(
        "get, key that was never stored",
        [Contender(LRU, calling(ours.get), _new_keys()), Contender(CACHEBOX, calling(peer.get), _new_keys())],
    )
    return Section(
        "Eviction policies",
        f"Nanoseconds per call, median of {ROUNDS} interleaved rounds of {CALLS:,} calls.",
        rows,
        figures,
    )


def _filled(name: str, size: int, keys: Sequence[str]) -> Cache:
    cache = Cache(name, max_entries=size, ttl=TTL, policy="adaptive" if name == ADAPTIVE else "lru")
    for key in keys:
        cache.set(key, VALUE)
    return cache


def _new(prefix: str) -> Iterator[str]:
    return (f"{prefix}:{number}:profile" for number in count())


def _new_keys() -> partial[list[str]]:
    return partial(_next, _new("missing"))


def _next(keys: Iterator[str]) -> list[str]:
    return list(islice(keys, CALLS))


def _new_pairs() -> partial[list[tuple[str, str]]]:
    return partial(_next_pairs, _new("visitor"))


def _next_pairs(keys: Iterator[str]) -> list[tuple[str, str]]:
    return [(key, VALUE) for key in _next(keys)]
