"""What a ``TimerTable`` has in its wheel: keyed timers, broadcasts and periodic jobs."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from enum import Enum
from typing import Any, Final

from wheelcache.core import Timer
from wheelcache.runtime.alarm_event import AlarmEvent


class _Stop(Enum):
    STOP = "stop"

    def __repr__(self) -> str:
        return "STOP"


STOP: Final = _Stop.STOP
"""What a periodic job returns to be the last of its runs."""

Job = Callable[[], Any]


class KeyedTimer(Timer):
    """Executed once. It is live while the table has it under its key.

    Attributes:
        has_run: it was executed; a pool may have it twice after an exception from outside.
    """

    __slots__ = ("has_run", "key", "value")

    def __init__(self, key: Hashable, value: Any) -> None:
        super().__init__()
        self.key = key
        self.value = value
        self.has_run = False


class Broadcast(Timer):
    """The event of a tick."""

    __slots__ = ("event", "tick")

    def __init__(self, tick: int) -> None:
        super().__init__()
        self.tick = tick
        self.event = AlarmEvent()


class JobTimer(Timer):
    """Runs ``function`` after ``period`` seconds, and again and again, as long as the table has it."""

    __slots__ = ("function", "period")

    def __init__(self, period: float, function: Job) -> None:
        super().__init__()
        self.period = period
        self.function = function
