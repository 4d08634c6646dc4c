"""The time spent computing values in the last hour, by key.

Keys are sampled by time: each further millisecond of computing is recorded for the key whose load completes it. So a
load of several milliseconds is recorded in full, and of many short loads, a few stand for all. A load usually takes
0.2 us longer, and 3 us if it is recorded, which happens once per millisecond of computing at most.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Hashable
from math import floor
from typing import Any, Final, NamedTuple

from wheelcache.core.contract import Core
from wheelcache.engine.keys import text_of
from wheelcache.runtime.shared_objects import acquiring
from wheelcache.watch.busiest import SpaceSaving

QUANTUM: Final = 0.001
"""The time in seconds that is recorded at once."""

HOUR: Final = 3600.0

PERIOD: Final = 600.0
"""Seconds for which loads are recorded together. The answers cover an hour and at most one period more."""

PERIODS: Final = int(HOUR / PERIOD) + 1

LONGEST_KEY: Final = 1024
"""Characters after which the text of a key is cut off."""


_PORTABLE: Final = frozenset((str, int, float, bytes, bool, type(None)))


class _Period(NamedTuple):
    """The loads since ``start``, in seconds on the clock of the core.

    Attributes:
        keys: the milliseconds by the text of the key.
    """

    start: float
    keys: SpaceSaving[str]


class ComputingTime:
    """The time spent computing the values of one cache, in the last hour."""

    __slots__ = ("_core", "_left", "_lock", "_periods")

    def __init__(self, core: Core) -> None:
        self._core = core
        self.start_over()

    def start_over(self) -> None:
        """Forget all loads, also in the child of a fork, where a lost thread may hold the lock."""
        self._lock = threading.Lock()
        self._left = QUANTUM
        self._periods: deque[_Period] = deque(maxlen=PERIODS)

    def add(self, key: Hashable, seconds: float) -> None:
        """Record that the value of ``key``, a key of the core, was computed in ``seconds``. Any thread may call
        this."""
        # A thread may overwrite what another one subtracts. Then a sample comes later.
        self._left -= seconds
        if self._left <= 0.0:
            # If another thread holds the lock, or a finalizer in this thread loads a value, the next load is recorded.
            (acquired,) = acquiring(self._lock, 0.0)
            try:
                if acquired:
                    self._record(key)
            finally:
                if acquired:
                    self._lock.release()

    def by_key(self) -> Counter[str]:
        """Return the least number of seconds that were spent on each of the most expensive keys, by their texts. Keys
        without a portable text are left out."""
        found: Counter[str] = Counter()
        with self._lock:
            for period in self._last_hour():
                found.update(period.keys.numbers())
        return Counter({key: number * QUANTUM for key, number in found.items()})

    def _record(self, key: Hashable) -> None:
        number = floor(-self._left / QUANTUM) + 1
        self._left += number * QUANTUM
        now = self._core.now()
        if not self._periods or now >= self._periods[-1].start + PERIOD:
            self._periods.append(_Period(now, SpaceSaving()))
        # A reference to the key would keep the caller's objects, or any number of bytes, long after its entry left.
        text = portable_text(key)
        if text is not None:
            self._periods[-1].keys.add(text[:LONGEST_KEY], number)

    def _last_hour(self) -> list[_Period]:
        begin = self._core.now() - HOUR
        return [each for each in self._periods if each.start + PERIOD > begin]


def portable_text(key: Any) -> str | None:
    """Return a core's key as a text that is the same in every process. Return None for keys of other types than those
    of ``_PORTABLE`` and tuples of these: other processes may show them differently, and their ``repr`` may be Python
    code."""
    if type(key) is str:
        return key
    try:
        if type(key) is tuple and len(key) > 1 and _PORTABLE.issuperset(map(type, key)):
            return repr(key)
        return text_of(key) if _is_portable(key) else None
    except ValueError:
        # Python refuses to write an int of more than 4,300 digits.
        return None


def _is_portable(key: Any) -> bool:
    kind = type(key)
    if kind is tuple:
        # The second test is slower. Only tuples in the key need it.
        return _PORTABLE.issuperset(map(type, key)) or all(map(_is_portable, key))
    return kind in _PORTABLE
