"""What the entries of a cache take in memory: exactly where they are weighed in bytes, else by samples."""

from __future__ import annotations

import time
from collections import deque
from contextlib import suppress
from random import SystemRandom
from typing import Final

from wheelcache.codec import is_immutable, size_of
from wheelcache.core.access import Serialized
from wheelcache.core.contract import Core
from wheelcache.errors import Unloaded

SAMPLE: Final = 64
"""Entries that a look weighs, in 100 us. A cache of no more is weighed whole."""

LONGEST: Final = 0.003
"""Seconds of the processor for a look, 0.1% of the time between two. It takes 0.001 to weigh a tuple of 10,000 items.
After a longer look, as many are left out."""

LOOKS: Final = 16
"""Looks whose mean is taken for that of all entries."""


class MemoryUse:
    """Tells the bytes that keys, values and their entries take. A job of ``periodic_jobs``, unless they are weighed.

    Args:
        core: the entries.
        is_weighed: whether their weights are bytes.
        period: seconds between looks.
    """

    __slots__ = ("_core", "_is_weighed", "_left_out", "_looks", "period")

    matters: Final = LOOKS

    def __init__(self, core: Core, period: float, *, is_weighed: bool) -> None:
        self.period = period
        self._core = core
        self._is_weighed = is_weighed
        self.start_over()

    def __call__(self) -> int | None:
        """The bytes. None if they are not known: before the first look, or if objects are kept by reference."""
        if self._is_weighed:
            return self._core.weight
        entries = len(self._core)
        if not entries:
            return 0
        looks = list(self._looks)
        if looks and len(looks[-1]) >= entries:
            looks = looks[-1:]
        sizes = [size for look in looks for size in look]
        known = [size for size in sizes if size is not None]
        # What an object has beside itself is not known, and the sum of the others would mislead.
        return round(entries * sum(known) / len(known)) if known and len(known) == len(sizes) else None

    def begin(self) -> None:
        """What is there after a pause is other entries."""
        self.start_over()

    def run(self) -> None:
        if self._left_out > 0:
            self._left_out -= 1
            return
        # While a snapshot is loaded, the entries are shut off.
        with suppress(Unloaded):
            self._look()

    def start_over(self) -> None:
        self._looks: deque[list[int | None]] = deque(maxlen=LOOKS)
        self._left_out = 0

    def close(self) -> None:
        """Nothing is kept open."""

    def _look(self) -> None:
        began, seconds = time.thread_time(), 0.0
        sizes = []
        entries = len(self._core)
        # From below 0.0 on, so that the first entries are seen as often as others.
        start = max(0.0, SystemRandom().uniform(-SAMPLE / entries, 1.0)) if entries > SAMPLE else 0.0
        for record in self._core.scan(start=start).step(SAMPLE):
            sizes.append(self._size(record.key, record.value))
            seconds = time.thread_time() - began
            if seconds > LONGEST:
                break
        self._looks.append(sizes)
        self._left_out = int(seconds / LONGEST)

    def _size(self, key: object, value: object) -> int | None:
        if type(value) is not Serialized and not is_immutable(value):
            return None
        return size_of(key, value, entry_bytes=self._core.entry_bytes)
