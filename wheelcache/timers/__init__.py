"""Keyed timers, and locks that expire."""

from wheelcache.timers.timer_wheel import STOP
from wheelcache.timers.timers import Timers

__all__ = ["STOP", "Timers"]
