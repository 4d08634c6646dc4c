"""Remembers the timeouts that this process gave to values in the store, so that no copy outlives its value.

Most stores do not tell a reader how long a value still lives, so a copy would be kept for the timeout of the copies,
although its value ends earlier. The process that wrote the value knows better. A write drops the copy, and the next
read makes another one, so the timeout is remembered here in between, and for every later read.

If two writes of a key overlap, it is unknown which value the store keeps, and if a write fails, whether it took effect.
In both cases the earlier end counts, and no copy is kept between the earlier and the later one.

A store may return a value a little longer than this process expects: it received the value after the write began, and
memcached counts whole seconds. For ``SLACK`` seconds past the end, such a value is returned and no copy is kept of it.
After that, a value that is still there was written by another process.

The bound ``MOST`` limits the memory to a few megabytes. A key that is forgotten because of it is treated like a key
that another process wrote: its copy is kept for the timeout of the copies.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from itertools import count
from math import inf
from typing import Any, Final, NamedTuple

from wheelcache.core.access import MAX_FAST_TTL
from wheelcache.runtime.clock import Clock

SLACK: Final = 2.0
"""Seconds."""

MOST: Final = 16_384
"""The most keys that are remembered; the ones written longest ago are forgotten first."""


def _always(result: object) -> bool:
    return True


class NewTimeout:
    """The timeout that a write gives to the values of its keys.

    Args:
        seconds: the timeout; None, or a number <= 0, if the keys are deleted or never expire.
        took_effect: receives the result of the write. Returns whether the values have this timeout now, None if that
            is unknown.
    """

    __slots__ = ("seconds", "took_effect")

    def __init__(self, seconds: float | None, took_effect: Callable[[Any], bool | None] = _always) -> None:
        self.seconds = inf if seconds is None or not 0 < seconds < MAX_FAST_TTL else float(seconds)
        self.took_effect = took_effect


NO_TIMEOUT: Final = NewTimeout(None)


class Started(NamedTuple):
    """A write in progress.

    Attributes:
        at: when it began.
        number: counts the beginnings and ends of writes.
    """

    at: float
    number: int


class _Known(NamedTuple):
    """What is known of the value of a key.

    Attributes:
        ends_at: from then on, no copy is kept.
        is_over_at: from then on, the value was written by another process.
        number: of the end of the latest write.
    """

    ends_at: float
    is_over_at: float
    number: int


class WrittenTimeouts:
    """The timeouts of one store.

    Args:
        now: the time by the clock of the copies, in seconds.
    """

    __slots__ = ("_known", "_lock", "_now", "_numbers")

    def __init__(self, now: Clock) -> None:
        self._now = now
        self._known: OrderedDict[Any, _Known] = OrderedDict()
        self._numbers = count()
        self.after_fork_in_child()

    def left(self, key: Any) -> float:
        """Return the seconds that a copy of ``key`` may be kept: inf if there is no limit, 0.0 if none may be."""
        known = self._known.get(key)
        if known is None:
            return inf
        now = self._now()
        return inf if now >= known.is_over_at else max(known.ends_at - now, 0.0)

    def start(self) -> Started:
        """Return the beginning of a write, for ``end``."""
        return Started(self._now(), next(self._numbers))

    def end(self, keys: Iterable[Any], write: Started, new: NewTimeout, *, is_certain: bool) -> None:
        """Record a write that has ended.

        Args:
            is_certain: whether the write took effect. Otherwise the values may also have their earlier timeouts.
        """
        now = self._now()
        with self._lock:
            number = next(self._numbers)
            for key in keys:
                ends_at, is_over_at = write.at + new.seconds, now + new.seconds + SLACK
                known = self._known.get(key)
                if known is not None and now < known.is_over_at and not (is_certain and known.number < write.number):
                    ends_at = min(ends_at, known.ends_at)
                    is_over_at = known.is_over_at if is_over_at == inf else max(is_over_at, known.is_over_at)
                if ends_at < inf:
                    self._known[key] = _Known(ends_at, is_over_at, number)
                    self._known.move_to_end(key)
                else:
                    self._known.pop(key, None)
                self._forget_some(now)

    def after_fork_in_child(self) -> None:
        """Make a new lock: a thread that the child does not have may hold the old one."""
        # Re-entrant, since the garbage collector may run a finalizer that writes to the store.
        self._lock = threading.RLock()

    def _forget_some(self, now: float) -> None:
        """Look at the two oldest records, so that every record leaves in time, and keep to the bound."""
        for _ in range(min(2, len(self._known))):
            key = next(iter(self._known))
            if now < self._known[key].is_over_at:
                self._known.move_to_end(key)
            else:
                del self._known[key]
        while len(self._known) > MOST:
            self._known.popitem(last=False)
