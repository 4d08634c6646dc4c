"""A ``threading.Event`` that works on whatever exception interrupts a thread that sets it or waits for it."""

from __future__ import annotations

import threading

from wheelcache.runtime.alarm import Alarm


class AlarmEvent(threading.Event):
    """For callers that know the interface of ``threading.Event``. See ``Alarm``."""

    def __init__(self) -> None:
        super().__init__()
        self._alarm = Alarm()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} at {id(self):#x}: {'set' if self.is_set() else 'unset'}>"

    def is_set(self) -> bool:
        return self._alarm.is_set

    def set(self) -> None:
        self._alarm.set()

    def clear(self) -> None:
        if self._alarm.is_set:
            self._alarm = Alarm()

    def wait(self, timeout: float | None = None) -> bool:
        # Locks take a negative time for no limit.
        return self._alarm.wait(None if timeout is None else max(0.0, timeout))
