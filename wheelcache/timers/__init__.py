"""Keyed timers, and locks that expire.

- ``timers``: ``Timers``. ``timer_wheel``: a timer is an entry of a core that fires when it expires.
- ``saved_timers``: saves timers to a file. ``locks``: named locks with an owner and an end.
"""

from wheelcache.timers.timer_wheel import STOP
from wheelcache.timers.timers import Timers

__all__ = ["STOP", "Timers"]
