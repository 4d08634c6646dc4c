"""Keyed timers, and locks that expire.

- ``timers``: ``Timers``. ``timer_wheel``: a timer is an entry of a core that fires when it expires.
- ``saved_timers``: saves timers to a file. ``locks``: named locks with an owner and an end.

The names are imported at the first access: a thread that imports a part of this package must not wait for another
thread that imports the package, which would wait for that part.
"""

from typing import TYPE_CHECKING

from wheelcache.engine.guests import lazy_names

if TYPE_CHECKING:
    from wheelcache.timers.timer_wheel import STOP
    from wheelcache.timers.timers import Timers

__all__ = ["STOP", "Timers"]

__getattr__ = lazy_names(__name__, {"STOP": "wheelcache.timers.timer_wheel", "Timers": "wheelcache.timers.timers"})
