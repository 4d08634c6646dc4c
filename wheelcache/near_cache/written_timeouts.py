"""Remembers the timeouts that this process gave to values in the store, so that no copy outlives its value.

Most stores do not report the remaining lifetime of a value to a reader, so a copy would be kept for the timeout of the
copies although its value ends earlier. The process that wrote the value knows its timeout. A write drops the copy and
the next read makes another one, so the timeout is remembered here in between, and for every later read.

If two writes of a key overlap, it is unknown which value the store keeps, and if a write fails, whether it took effect.
In both cases the earlier end counts, and no copy is kept between the earlier and the later one.

A store may return a value a little longer than this process expects: it received the value after the write began, and
memcached counts whole seconds. For ``SLACK`` seconds past the end, such a value is returned and no copy is kept of it.
After that, a value that is still there was written by another process.

The bound ``MAX_KEYS`` limits the memory to a few megabytes. A key that is forgotten because of it is treated like a key
that another process wrote: its copy is kept for the timeout of the copies.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from itertools import count
from math import inf
from typing import Any, Final

from wheelcache.runtime.clock import Clock

SLACK: Final = 2.0
"""Seconds."""

LONGEST: Final = 1e10
"""Seconds. Longer timeouts count as none."""

MAX_KEYS: Final = 16_384
"""The most keys to remember. With more keys, each write forgets a key that was not written recently."""


def _always(result: object) -> bool:
    return True


class NewTimeout:
    """The timeout that a write gives to the values of its keys.

    Args:
        seconds: the timeout; None, or a number <= 0, if the keys are deleted or never expire.
        took_effect: receives the result of the write. Returns whether the values have this timeout now, or None if
            that is unknown.
    """

    __slots__ = ("seconds", "took_effect")

    def __init__(self, seconds: float | None, took_effect: Callable[[Any], bool | None] = _always) -> None:
        self.seconds = inf if seconds is None or not 0 < seconds < LONGEST else float(seconds)
        self.took_effect = took_effect


NO_TIMEOUT: Final = NewTimeout(None)


Started = tuple[float, int]
"""A write in progress: when it began, and its number among the beginnings and ends of writes."""

Known = tuple[float, float, int]
"""The knowledge about the value of a key: the time from which no copy is kept, the time from which a value must be
another process's, and the number of the end of the latest write. Tuples, because creating named ones doubles the
cost."""


class WrittenTimeouts:
    """The timeouts of one store.

    Args:
        now: the time by the clock of the copies, in seconds.
    """

    __slots__ = ("_known", "_lock", "_now", "_numbers")

    def __init__(self, now: Clock) -> None:
        self._now = now
        self._known: OrderedDict[Any, Known] = OrderedDict()
        self._numbers = count()
        self.after_fork_in_child()

    def left(self, key: Any) -> float:
        """Return the seconds that a copy of ``key`` may be kept: inf without a limit, 0.0 if no copy may be kept."""
        known = self._known.get(key)
        if known is None:
            return inf
        ends_at, is_over_at, _ = known
        now = self._now()
        return inf if now >= is_over_at else max(ends_at - now, 0.0)

    def start(self) -> Started:
        """Return the beginning of a write, for ``end``."""
        return self._now(), next(self._numbers)

    def end(self, keys: Iterable[Any], write: Started, new: NewTimeout, *, is_certain: bool) -> None:
        """Record a write that has ended.

        Args:
            is_certain: whether the write took effect. Otherwise the values may also have their earlier timeouts.
        """
        began, number_at_start = write
        now = self._now()
        with self._lock:
            latest = began + new.seconds, now + new.seconds + SLACK, next(self._numbers)
            for key in keys:
                known = self._known.get(key)
                if known is not None and (not is_certain or known[2] > number_at_start):
                    self._remember(key, _earlier(known, latest, now), now)
                else:
                    self._remember(key, latest, now)

    def after_fork_in_child(self) -> None:
        """Make a new lock: a thread that the child does not have may hold the old one."""
        # Re-entrant, since the garbage collector may run a finalizer that writes to the store.
        self._lock = threading.RLock()

    def _remember(self, key: Any, known: Known, now: float) -> None:
        all_known = self._known
        if known[0] < inf:
            all_known[key] = known
            all_known.move_to_end(key)
        else:
            all_known.pop(key, None)
        if all_known:
            # Each write checks the oldest record, so that records of values that have ended are removed in time.
            oldest = next(iter(all_known))
            if now >= all_known[oldest][1] or len(all_known) > MAX_KEYS:
                del all_known[oldest]
            else:
                all_known.move_to_end(oldest)


def _earlier(one: Known, other: Known, now: float) -> Known:
    """Combine the knowledge about two writes, either of which may have set the value. ``other`` ended later."""
    if now >= one[1]:
        return other
    is_over_at = one[1] if other[1] == inf else max(one[1], other[1])
    return min(one[0], other[0]), is_over_at, other[2]
