"""Streams of requests for comparing eviction policies: typical patterns of sites, and patterns that harm some policy.

A request is a tuple ``(time, key, lifetime)``: the time in seconds, an int, and the seconds for which a value that is
stored by this request may be used (``inf`` for ever). Each stream is a generator of its own random numbers and the
number of entries of the cache, and never ends.
"""

from __future__ import annotations

from bisect import bisect
from collections import deque
from collections.abc import Callable, Iterator
from itertools import accumulate, count
from math import inf
from random import Random
from typing import Final

Request = tuple[float, int, float]
Stream = Callable[[Random, int], Iterator[Request]]


class Zipf:
    """Draws ranks from 0: rank r with a probability proportional to ``1 / (r + 1) ** skew``."""

    def __init__(self, chance: Random, ranks: int, skew: float) -> None:
        self._random = chance.random
        self._sums = [*accumulate((rank + 1) ** -skew for rank in range(ranks))]

    def draw(self) -> int:
        return bisect(self._sums, self._random() * self._sums[-1])


def _timed(keys: Iterator[int]) -> Iterator[Request]:
    """Yield requests for keys whose values live forever."""
    return ((float(time), key, inf) for time, key in enumerate(keys))


def _zipf(chance: Random, size: int) -> Iterator[int]:
    zipf = Zipf(chance, 20 * size, 0.9)
    while True:
        yield zipf.draw()


def _zipf_with_scans(chance: Random, size: int) -> Iterator[int]:
    popular, fresh = _zipf(chance, size), count(10**9)
    while True:
        for _ in range(4 * size):
            yield next(popular)
        # A crawler, a report or a backup asks for many keys once.
        for _ in range(2 * size):
            yield next(fresh)


def _loop(chance: Random, size: int) -> Iterator[int]:
    while True:
        yield from range(3 * size // 2)


def _loop_with_zipf(chance: Random, size: int) -> Iterator[int]:
    popular = _zipf(chance, size)
    while True:
        for key in range(2 * size):
            yield 10**9 + key
            yield next(popular)


def _sessions(chance: Random, size: int) -> Iterator[int]:
    """Users come, ask for their few keys several times, and leave for good."""
    users, active = count(), deque[list[int]]()
    while True:
        while len(active) < size // 4:
            user = 8 * next(users)
            active.append([chance.randrange(user, user + 4) for _ in range(chance.randint(4, 24))])
        active.rotate(chance.randrange(8))
        yield active[0].pop()
        if not active[0]:
            active.popleft()


def _bursts(chance: Random, size: int) -> Iterator[int]:
    """A key is popular for a short time, as news are, and never again."""
    keys, active = count(), deque[int]()
    while True:
        active.append(next(keys))
        if len(active) > size // 2:
            active.popleft()
        for _ in range(3):
            # The newest are the most popular.
            yield active[-1 - min(int(chance.expovariate(1) * size / 6), len(active) - 1)]


def _recency(chance: Random, size: int) -> Iterator[int]:
    """The chance of a key falls with the number of other keys since its last use: the model for which LRU is best."""
    used, fresh = deque[int](), count()
    while True:
        depth = int(chance.paretovariate(0.7) * size / 50)
        if depth < len(used) and depth < 4 * size:
            key = used[depth]
            del used[depth]
        else:
            key = next(fresh)
        used.appendleft(key)
        if len(used) > 5 * size:
            used.pop()
        yield key


def _uniform(chance: Random, size: int) -> Iterator[int]:
    while True:
        yield chance.randrange(2 * size)


def _flood(chance: Random, size: int) -> Iterator[int]:
    """Every second request is for a key that nobody asks for again."""
    popular, fresh = Zipf(chance, 10 * size, 1.0), count(10**9)
    while True:
        yield popular.draw()
        yield next(fresh)


def _shift(chance: Random, size: int) -> Iterator[int]:
    """Again and again, all popular keys change at the same moment."""
    zipf = Zipf(chance, 10 * size, 1.0)
    for generation in count():
        for _ in range(20 * size):
            yield 10**7 * generation + zipf.draw()


def _drift(chance: Random, size: int) -> Iterator[int]:
    """The most popular keys are replaced one by one."""
    zipf, keys, fresh = Zipf(chance, 10 * size, 1.0), [*range(10 * size)], count(10**9)
    while True:
        for _ in range(10):
            yield keys[zipf.draw()]
        keys[zipf.draw()] = next(fresh)


def _phases(chance: Random, size: int) -> Iterator[int]:
    """A phase that suits one policy alternates with a phase that suits the other."""
    loop, recent = _loop_with_zipf(chance, size), _recency(chance, size)
    while True:
        for _ in range(30 * size):
            yield next(loop)
        for _ in range(30 * size):
            yield 10**10 + next(recent)


def web(chance: Random, size: int) -> Iterator[Request]:
    """Pages, fragments and queries of a site: popularity drifts, values live for a minute to a day, visitors have
    sessions, and a crawler asks for old pages. There are as many requests per second as the cache has entries per
    minute."""
    zipf, keys, fresh = Zipf(chance, 12 * size, 0.95), [*range(12 * size)], count(10**9)
    sessions, time = _sessions(chance, size), 0.0
    lifetimes = (60.0, 300.0, 300.0, 3600.0, 86_400.0, inf)
    while True:
        time += chance.expovariate(size / 60)
        drawn = chance.random()
        if drawn < 0.75:
            key = keys[zipf.draw()]
            yield time, key, lifetimes[key % len(lifetimes)]
        elif drawn < 0.88:
            yield time, 10**11 + next(sessions), 1800.0
        else:
            yield time, 10**10 + chance.randrange(100 * size), 3600.0
        if drawn < 0.02:
            keys[zipf.draw()] = next(fresh)


def _keys(keys: Callable[[Random, int], Iterator[int]]) -> Stream:
    return lambda chance, size: _timed(keys(chance, size))


STREAMS: Final[dict[str, Stream]] = {
    "Zipf": _keys(_zipf),
    "Zipf with scans": _keys(_zipf_with_scans),
    "loop": _keys(_loop),
    "loop and Zipf": _keys(_loop_with_zipf),
    "web": web,
    "sessions": _keys(_sessions),
    "bursts": _keys(_bursts),
    "recency": _keys(_recency),
    "uniform": _keys(_uniform),
    "flood": _keys(_flood),
    "shift": _keys(_shift),
    "drift": _keys(_drift),
    "phases": _keys(_phases),
}
