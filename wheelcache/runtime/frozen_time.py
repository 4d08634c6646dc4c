"""While a test moves the time with freezegun or time-machine, expiry follows.

Every hit reads ``Cache.clock``, and nothing is added to that. Instead the clock is exchanged when the time is frozen
and when it is thawed, of each cache that goes by the system's clock. While frozen it tells the wall clock as the test
set it, on the scale of the monotonic one: an entry of 300 s that was set before is gone in a freeze 301 s later, and
one that was set in a freeze expires after it when the real time comes to that. So do those of Django's LocMemCache.
Caches with a clock of their own are left alone.

How this module learns of it, in whichever order all is imported:

- freezegun puts its own functions in the place of the system's in every module that holds them, and later puts them
  back. This module holds one, and notices that it is set.
- time-machine replaces the functions' code, which leaves nothing to notice. ``travel.start`` and ``travel.stop`` are
  wrapped, once the process has imported time-machine. ``sys.modules`` is looked at when wheelcache is imported, when a
  cache is made, and when a timed entry comes into a cache that had none.

Neither is imported from here, so in production all this is two look-ups in ``sys.modules`` for each new cache.
"""

from __future__ import annotations

import functools
import sys
import time
from calendar import timegm
from collections.abc import Callable
from types import ModuleType
from typing import Any, Final, Protocol

from wheelcache.runtime.clock import Clock, SystemClock, time_machine_travels
from wheelcache.runtime.shared_objects import WeakRegistry

DRIFT: Final = 0.5
"""Seconds by which the two system clocks may come apart, when the wall clock is set, before the difference is measured
anew. Until then the same serves for all freezes: what expires in 300 s does so when exactly 300 s were travelled."""

GRAIN: Final = 2.0**22
"""The difference is a multiple of 1 / GRAIN s, as every time.time() from 2004 to 2038 is. So no subtraction rounds."""


class Freezable(Protocol):
    """What follows."""

    def freeze(self, clock: Clock) -> None: ...
    def thaw(self) -> None: ...


class _FrozenTime:
    """Tells caches when time is frozen, and which time it is then."""

    def __init__(self) -> None:
        self._replaced = False
        self._caches: WeakRegistry[Freezable] = WeakRegistry()
        self._travel: type | None = None
        self._epoch: float | None = None

    def add(self, cache: Freezable) -> None:
        self._caches.add(cache)
        self.find_time_machine()
        # In this order, so that a thread that freezes or thaws meanwhile sees the cache, or this one sees what it did.
        if self._is_frozen():
            self._freeze(cache)
            if not self._is_frozen():
                cache.thaw()

    def replaced(self, function: Clock) -> None:
        """This module holds ``function`` for ``time.monotonic``: freezegun's, or the system's."""
        self._replaced = function is not SystemClock.monotonic
        self.changed()

    def changed(self) -> None:
        """Time was frozen or thawed."""
        for cache in self._caches:
            if self._is_frozen():
                self._freeze(cache)
            else:
                cache.thaw()

    def find_time_machine(self) -> None:
        travel = getattr(sys.modules.get("time_machine"), "travel", None)
        if travel is not None and travel is not self._travel:
            self._travel = travel
            for name in ("start", "stop"):
                setattr(travel, name, self._followed(getattr(travel, name)))
            if time_machine_travels():
                self.changed()

    def _followed(self, move: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(move)
        def moved(*args: Any, **kwargs: Any) -> Any:
            result = move(*args, **kwargs)
            self.changed()
            return result

        return moved

    def _is_frozen(self) -> bool:
        return (self._replaced and bool(_freezes())) or time_machine_travels()

    def _freeze(self, cache: Freezable) -> None:
        # When the monotonic clock was 0, in seconds since 1970.
        epoch = SystemClock.time() - SystemClock.steady()
        if self._epoch is None or abs(epoch - self._epoch) > DRIFT:
            self._epoch = round(epoch * GRAIN) / GRAIN
        cache.freeze(self._clock)

    def _clock(self) -> float:
        return _wall_time() - (self._epoch or 0.0)


def _freezes() -> list[Any]:
    return getattr(sys.modules.get("freezegun.api"), "freeze_factories", [])


def _wall_time() -> float:
    """``time.time()`` as the test that froze it sees it, in every thread.

    freezegun's own function would tell the real time to whatever a thread calls directly.
    """
    try:
        moment = _freezes()[-1]()
    except IndexError:
        # That of time-machine; or the real time, in a read that began before the thaw.
        return SystemClock.travelling_time()
    return float(timegm(moment.timetuple()) + moment.microsecond / 1e6)


_frozen_time: Final = _FrozenTime()
follow: Final = _frozen_time.add
"""``follow(cache)``: tell ``cache``, which goes by the system's clock, of every freeze and thaw. It is held weakly."""
find_time_machine: Final = _frozen_time.find_time_machine
"""Wrap ``time_machine.travel``, if it was imported and is not wrapped yet."""


class _Noticing(ModuleType):
    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name == "replaced_by_freezegun":
            _frozen_time.replaced(value)


replaced_by_freezegun: Clock = time.monotonic
"""What freezegun exchanges. If this is imported in a freeze, it is freezegun's already, and exchanged at the thaw."""
_frozen_time.replaced(replaced_by_freezegun)
sys.modules[__name__].__class__ = _Noticing
find_time_machine()
