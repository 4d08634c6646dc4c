"""Measure the memory that the entries of a cache use: exactly if they are weighed in bytes, otherwise by samples. The
memory of each group of keys is estimated from samples in both cases."""

from __future__ import annotations

import time
from collections import defaultdict, deque
from contextlib import suppress
from random import SystemRandom
from typing import Final

from wheelcache.codec import is_immutable, size_of
from wheelcache.core.access import Serialized
from wheelcache.core.contract import Core, Record
from wheelcache.errors import Unloaded
from wheelcache.runtime.periodic_jobs import PeriodicJob

SAMPLE: Final = 64
"""Number of entries in a sample, which takes 100 us. A smaller cache is weighed as a whole."""

MAX_SECONDS: Final = 0.003
"""The CPU time for a sample in seconds, 0.1% of the time between two samples. Weighing a tuple of 10,000 items takes
0.001. If a sample takes n times as long, the next n samples are skipped."""

SAMPLES: Final = 16
"""Number of samples whose mean is assumed to be the mean of all entries."""


def random_entries(core: Core, count: int) -> list[Record]:
    """Return ``count`` entries that are neighbors in memory, or all of a smaller cache."""
    entries = len(core)
    # The range begins below 0.0, so that the first entries are chosen as often as the others.
    start = max(0.0, SystemRandom().uniform(-count / entries, 1.0)) if entries > count else 0.0
    return core.scan(start=start).step(count)


class MemoryUse(PeriodicJob):
    """Measures the bytes that entries use with their keys and values. A job of ``periodic_jobs``.

    Args:
        core: the entries.
        period: seconds between two samples.

    Attributes:
        is_weighed: whether the weights of the entries are bytes.
    """

    matters = SAMPLES

    def __init__(self, core: Core, period: float, *, is_weighed: bool) -> None:
        self.period = period
        self._core = core
        self.is_weighed = is_weighed
        self.start_over()

    def __call__(self) -> int | None:
        """Return the number of bytes; None if there is no sample yet, or if objects are kept by reference."""
        if self.is_weighed:
            return self._core.weight
        entries = len(self._core)
        if not entries:
            return 0
        return _estimate(entries, [size for _, size in self._sampled()])

    def by_group(self) -> dict[str, int | None]:
        """Return the number of bytes of each group of keys in the samples; None as for all entries."""
        sampled = self._sampled()
        # Names beyond those that the core distinguishes belong to the group without a name.
        names = {each.name for each in self._core.groups()}
        groups: dict[str, list[int | None]] = defaultdict(list)
        for name, size in sampled:
            groups[name if name in names else ""].append(size)
        entries = len(self._core)
        return {name: _estimate(entries * len(sizes) / len(sampled), sizes) for name, sizes in groups.items()}

    def begin(self) -> None:
        """Drop the samples, because the entries are different after a pause."""
        self.start_over()

    def run(self) -> None:
        if self._to_skip > 0:
            self._to_skip -= 1
            return
        # The entries cannot be read while a snapshot is being loaded.
        with suppress(Unloaded):
            self._take_sample()

    def start_over(self) -> None:
        self._samples: deque[list[tuple[str, int | None]]] = deque(maxlen=SAMPLES)
        self._to_skip = 0

    def _take_sample(self) -> None:
        began, seconds = time.thread_time(), 0.0
        sizes = []
        for record in random_entries(self._core, SAMPLE):
            sizes.append((self._core.group_name(record.key), self._size(record)))
            seconds = time.thread_time() - began
            if seconds > MAX_SECONDS:
                break
        self._samples.append(sizes)
        self._to_skip = int(seconds / MAX_SECONDS)

    def _sampled(self) -> list[tuple[str, int | None]]:
        """Return the groups and the sizes of the entries in the samples, or in the last one if it has all entries."""
        samples = list(self._samples)
        if samples and len(samples[-1]) >= len(self._core):
            samples = samples[-1:]
        return [each for sample in samples for each in sample]

    def _size(self, record: Record) -> int | None:
        if self.is_weighed:
            return record.weight
        if type(record.value) is not Serialized and not is_immutable(record.value):
            return None
        return size_of(record.key, record.value, entry_bytes=self._core.entry_bytes)


def _estimate(entries: float, sizes: list[int | None]) -> int | None:
    """Return the bytes of ``entries`` of the average of ``sizes``."""
    known = [size for size in sizes if size is not None]
    # The objects to which a mutable value refers are not weighed, and the sum of the others would be misleading.
    return round(entries * sum(known) / len(known)) if known and len(known) == len(sizes) else None
