"""The curve: the misses of smaller and larger caches, and of W-TinyLFU.

Miniatures of them (see ``duel``) see the same requests for a sample of the keys. Their misses are only compared with
each other: the cache's own misses times such a ratio were 1 to 2 points of hit ratio off for twice the entries, while
100 keys alone may be 47 points off.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from operator import add
from typing import Final

from wheelcache.core.adaptive import Events
from wheelcache.core.contract import CURVE_KEYS, CURVE_SHARE, MAX_WEIGHT
from wheelcache.core.duel import WEIGHT_SHARES, Miniature, Sample

SIZES: Final = 5
"""Half, once, twice, four and eight times the entries."""
SAME_SIZE: Final = 1
WINDOWS: Final = 3
WINDOW: Final = 5
"""Requests per entry in a window. The first window only fills the miniatures."""
MOST_WINDOWS: Final = 8
"""The windows that are joined to one: short windows are often wrong by chance."""

Counts = tuple[int, int, int, int, int]
"""Hits, misses, stored values of missing keys, evictions, and invalidated entries."""


class Curve:
    """The sampled requests of a core, which calls every method under its lock.

    After an asynchronous exception in the middle of a call, the miniatures begin again.

    Args:
        most: the largest number of entries.
        most_weight: the largest weight.
        seed: the secret, of 64 bits.
        counts: returns the counts of the core since it was made.
    """

    def __init__(self, most: int, most_weight: float, seed: int, counts: Callable[[], Counts]) -> None:
        self._entries = most
        self._counts = counts
        self._sample = Sample(
            seed, min(CURVE_KEYS * 2**32 // most, 2**32 // CURVE_SHARE), int(min(most_weight, MAX_WEIGHT))
        )
        size = self._sample.size(most)
        self._arms = [
            *(
                Miniature(max((size << shift) >> 1, 1), (WEIGHT_SHARES << shift) >> 1, is_lru=True)
                for shift in range(SIZES)
            ),
            Miniature(size, is_lru=False),
        ]
        self._is_lru = True
        self._events = Events()
        self.begin_windows()

    def contains(self, key: Hashable) -> bool:
        """Return whether a key is in the sample."""
        return self._sample.contains(self._sample.spread(key))

    def begin_windows(self) -> None:
        """Forget the counts. The miniatures stay."""
        self._last: list[list[int]] = []
        self._joined = 1
        self._is_filled = False
        self._began = self._counts()
        self._halves = [[0] * (len(self._arms) + 1) for _ in range(2)]

    def request(
        self,
        key: Hashable,
        now: float,
        fresh_until: float,
        weight: int,
        *,
        is_uncontested: bool = False,
        is_write: bool = False,
        is_lru: bool = True,
    ) -> None:
        """Pass a request for a sampled key to the miniatures.

        Args:
            is_uncontested: whether ``add`` or ``incr`` has stored the key.
            is_write: whether the key gets a new lifetime in any case, and the request does not count.
            is_lru: whether LRU is in force in the core.
        """
        self._call(self._request, key, now, fresh_until, weight, is_uncontested, is_write, is_lru)

    def forget(self, key: Hashable) -> None:
        """Note that a key was deleted, whether or not there was an entry."""
        self._call(self._forget, key)

    def clear(self) -> None:
        """Forget all keys."""
        self._call(self._clear)

    def sample(self) -> tuple[int, ...]:
        """Return the counts of the last windows; zeros before these are over."""
        numbers = [number for window in self._last[-WINDOWS:] for number in window]
        return tuple(numbers) if len(self._last) >= WINDOWS else NO_SAMPLE

    def _call(self, function: Callable[..., None], *args: object) -> None:
        if self._events.is_broken:
            self._events.call(self._begin_again)
            self._events.is_broken = False
        self._events.call(function, *args)

    def _clear(self) -> None:
        for arm in self._arms:
            arm.clear()

    def _begin_again(self) -> None:
        self._clear()
        self.begin_windows()

    def _forget(self, key: Hashable) -> None:
        spread = self._sample.spread(key)
        if self._sample.contains(spread):
            for arm in self._arms:
                arm.forget(spread & 0xFFFFFFFF)

    def _request(
        self,
        key: Hashable,
        now: float,
        fresh_until: float,
        weight: int,
        is_uncontested: bool,
        is_write: bool,
        is_lru: bool,
    ) -> None:
        spread, share = self._sample.spread(key), self._sample.share(weight)
        if is_lru != self._is_lru:
            self._is_lru = is_lru
            for arm in self._arms[:SIZES]:
                arm.use_lru(is_lru=is_lru)
            self.begin_windows()
        hits = [
            arm.request(spread & 0xFFFFFFFF, now, fresh_until, share, is_uncontested=is_uncontested, is_write=is_write)
            for arm in self._arms
        ]
        if not is_write:
            half = self._halves[spread >> 31 & 1]
            for place, hit in enumerate((*hits, hits[SAME_SIZE] == hits[SIZES])):
                half[place] += not hit
        self._end_window()

    def _end_window(self) -> None:
        """Begin the next window if enough requests have come."""
        counts = self._counts()
        since = [now - before for now, before in zip(counts, self._began, strict=True)]
        hits, _, stored, *_ = since
        if hits + stored < self._joined * WINDOW * self._entries:
            return
        if self._is_filled:
            self._last.append([*since, *self._halves[0], *self._halves[1]])
        self._is_filled = True
        self._began = counts
        self._halves = [[0] * len(half) for half in self._halves]
        if len(self._last) == 2 * WINDOWS:
            self._join_windows()

    def _join_windows(self) -> None:
        """Join pairs of windows, or forget the older half."""
        last = self._last
        if self._joined == MOST_WINDOWS:
            self._last = last[WINDOWS:]
            return
        self._last = [list(map(add, *pair)) for pair in zip(last[::2], last[1::2], strict=True)]
        self._joined *= 2


NO_SAMPLE: Final = (0,) * (WINDOWS * (5 + 2 * (SIZES + 2)))
"""The sample of a core that has none."""
