"""An in-process cache: timing wheel, exact LRU, TTL jitter, single flight, and figures.

The engine needs nothing but the standard library. Its backends are ``wheelcache.django_backend`` and
``wheelcache.flask_backend``.
"""

from wheelcache.cache import Cache, caches
from wheelcache.core.access import DEFAULT_TTL
from wheelcache.core.contract import RemovalCause
from wheelcache.core.timing_wheel import Timer, TimingWheel
from wheelcache.engine.loading.background import loads_in_callers_thread
from wheelcache.engine.loading.memoize import MemoStats
from wheelcache.engine.loading.request import KEEP
from wheelcache.engine.stats import Stats
from wheelcache.errors import CacheClosed, LoadDeadlock, LoadTimeout, MissingKey, WheelClosed
from wheelcache.runtime.clock import ManualClock

__all__ = [
    "DEFAULT_TTL",
    "KEEP",
    "Cache",
    "CacheClosed",
    "LoadDeadlock",
    "LoadTimeout",
    "ManualClock",
    "MemoStats",
    "MissingKey",
    "RemovalCause",
    "Stats",
    "Timer",
    "TimingWheel",
    "WheelClosed",
    "caches",
    "loads_in_callers_thread",
]
