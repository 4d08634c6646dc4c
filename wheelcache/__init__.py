"""An in-process cache: timing wheel, exact LRU, TTL jitter, single flight, and figures.

The engine needs nothing but the standard library. Its backends are ``wheelcache.django_backend`` and
``wheelcache.flask_backend``.
"""

from wheelcache.cache import DEFAULT_TTL, Cache, RemovalCause
from wheelcache.clock import ManualClock
from wheelcache.errors import CacheClosed, LoadDeadlock, MissingKey, WheelClosed
from wheelcache.stats import Stats
from wheelcache.timers import STOP, Timers
from wheelcache.timing_wheel import Timer, TimingWheel

__all__ = [
    "DEFAULT_TTL",
    "STOP",
    "Cache",
    "CacheClosed",
    "LoadDeadlock",
    "ManualClock",
    "MissingKey",
    "RemovalCause",
    "Stats",
    "Timer",
    "Timers",
    "TimingWheel",
    "WheelClosed",
]
