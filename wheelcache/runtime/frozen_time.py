"""Expiry follows the time that a test sets with freezegun or time-machine.

This adds no work to a hit. Instead, each cache that uses the machine's clock exchanges the clock of its core when the
time is frozen and when it thaws. The frozen clock shows the wall clock as the test set it, on the scale of the
machine's clock. So an entry with a TTL of 300 s that was set before a freeze is expired in a freeze 301 s later. An
entry that was set in a freeze expires, after the thaw, when the real time reaches its expiry. Entries of Django's
LocMemCache behave in the same way. Caches with a clock of their own are not affected.

The methods ``start`` and ``stop`` of a library are wrapped when the library is imported: a finder in ``sys.meta_path``
waits for this. Later would be too late, because the first value that is set in a freeze would get its expiry from the
real clock. This module imports neither library. In production, it adds 0.2 us to each import of a new module.
"""

from __future__ import annotations

import functools
import sys
from calendar import timegm
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from wheelcache.runtime.clock import SystemClock, time_machine_travels
from wheelcache.runtime.shared_objects import WeakRegistry

if TYPE_CHECKING:
    from wheelcache.runtime.wheel_driver import WheelDriver

LIBRARIES: Final = {"freezegun.api": "_freeze_time", "time_machine": "travel"}
"""The modules that freeze the time, and their classes with ``start`` and ``stop``."""

DRIFT: Final = 0.5
"""Seconds. A smaller change of the difference between the two system clocks is ignored. While all freezes use the same
difference, an entry of 300 s expires after a travel of exactly 300 s."""

GRAIN: Final = 2.0**22
"""The difference is rounded to a multiple of 1 / GRAIN s. So is every time.time() from 2004 to 2038, which makes
subtractions exact."""


class _FrozenTime:
    """Notifies caches of each freeze and thaw, and shows them the frozen time."""

    def __init__(self) -> None:
        self._caches: WeakRegistry[WheelDriver] = WeakRegistry()
        self._wrapped: list[type] = []
        self._epoch: float | None = None

    def add(self, cache: WheelDriver) -> None:
        self._caches.add(cache)
        # In this order: if another thread freezes or thaws the time in between, either it finds the cache in the list,
        # or this thread sees the change.
        if _is_frozen():
            self._freeze(cache)
            if not _is_frozen():
                cache.thaw()

    def changed(self) -> None:
        """Follow a freeze or a thaw."""
        for cache in self._caches:
            if _is_frozen():
                self._freeze(cache)
            else:
                cache.thaw()

    def find_libraries(self) -> None:
        """Wrap the methods of the libraries that were imported and are not wrapped yet."""
        for module, name in LIBRARIES.items():
            library = getattr(sys.modules.get(module), name, None)
            if library is not None and library not in self._wrapped:
                self._wrapped.append(library)
                for method in ("start", "stop"):
                    setattr(library, method, self._followed(getattr(library, method)))
                self.changed()

    def _followed(self, move: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(move)
        def moved(*args: Any, **kwargs: Any) -> Any:
            result = move(*args, **kwargs)
            self.changed()
            return result

        return moved

    def _freeze(self, cache: WheelDriver) -> None:
        # The time at which the clock of the machine was 0, in seconds since 1970.
        epoch = SystemClock.time() - SystemClock.steady()
        if self._epoch is None or abs(epoch - self._epoch) > DRIFT:
            self._epoch = round(epoch * GRAIN) / GRAIN
        cache.freeze(self._clock)

    def _clock(self) -> float:
        return _wall_time() - (self._epoch or 0.0)


class _Finder:
    """Wraps a library as soon as it was imported."""

    def find_spec(self, name: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        if name in LIBRARIES:
            specs = (each.find_spec(name, path, target) for each in sys.meta_path if each is not self)
            spec = next((each for each in specs if each is not None), None)
            if spec is not None:
                spec.loader = _Loader(spec.loader)  # type: ignore[assignment]
            return spec
        return None


class _Loader:
    """Does the same as another loader, and wraps the library afterwards."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        _frozen_time.find_libraries()


def _is_frozen() -> bool:
    if not _freezes():
        return time_machine_travels()
    ignored = getattr(sys.modules["freezegun.api"], "ignore_lists", [])[-1:]
    return not any("wheelcache".startswith(names) for names in ignored)


def _freezes() -> list[Any]:
    return getattr(sys.modules.get("freezegun.api"), "freeze_factories", [])


def _wall_time() -> float:
    """Return ``time.time()`` as a test that froze the time sees it, in every thread.

    freezegun's own function would return the real time to code that a thread calls directly.
    """
    try:
        moment = _freezes()[-1]()
    except IndexError:
        # The time of time-machine; or the real time, in a read that began before the thaw.
        return SystemClock.travelling_time()
    return float(timegm(moment.timetuple()) + moment.microsecond / 1e6)


_frozen_time: Final = _FrozenTime()
follow: Final = _frozen_time.add
"""``follow(cache)``: notify ``cache``, which uses the machine's clock, of each freeze and thaw, by a weak reference."""
_frozen_time.find_libraries()
sys.meta_path.insert(0, _Finder())
