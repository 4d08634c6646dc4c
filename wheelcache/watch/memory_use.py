"""Measure the memory that the entries of a cache use: exactly if they are weighed in bytes, otherwise by samples. The
memory of each group of keys is estimated from samples in both cases."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection
from random import SystemRandom
from typing import Final, NamedTuple

from wheelcache.core.access import Serialized
from wheelcache.core.contract import Core, Record
from wheelcache.engine.codec import is_immutable, size_of
from wheelcache.engine.runtime.periodic_jobs import PeriodicJob

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


class _Weighed(NamedTuple):
    """Some entries, and the sum of their bytes; None if one of them is unknown."""

    entries: int
    size: int | None


class MemoryUse(PeriodicJob):
    """Measures the bytes that entries use with their keys and values. A job of ``periodic_jobs``.

    Args:
        core: the entries.
        own_part: see ``StatsReader``.
        period: seconds between two samples.

    Attributes:
        is_weighed: returns whether the weights of the entries are bytes.
    """

    matters = SAMPLES

    def __init__(
        self,
        core: Core,
        own_part: Callable[[], tuple[int, int]],
        period: float,
        *,
        is_weighed: Callable[[], bool],
    ) -> None:
        self.period = period
        self._core = core
        self._own_part = own_part
        self.is_weighed = is_weighed
        self.start_over()

    def __call__(self) -> int | None:
        """Return the number of bytes; None if there is no sample yet, or if objects are kept by reference."""
        entries, weight = self._own_part()
        if self.is_weighed():
            return weight
        return _estimate(entries, self._sampled().values()) if entries else 0

    def by_group(self) -> dict[str, int | None]:
        """Return the number of bytes of each group of keys in the samples; None as for all entries."""
        groups = self._sampled()
        number = sum(each.entries for each in groups.values())
        share = self._own_part()[0] / number if number else 0.0
        return {name: _estimate(share * each.entries, [each]) for name, each in groups.items()}

    def begin(self) -> None:
        """Drop the samples, because the entries are different after a pause."""
        self.start_over()

    def run(self) -> None:
        if self._to_skip > 0:
            self._to_skip -= 1
            return
        self._take_sample()

    def start_over(self) -> None:
        self._samples: deque[dict[str, _Weighed]] = deque(maxlen=SAMPLES)
        self._to_skip = 0

    def _take_sample(self) -> None:
        began, seconds = time.thread_time(), 0.0
        sample: dict[str, _Weighed] = {}
        for record in random_entries(self._core, SAMPLE):
            _add(sample, record.group, _Weighed(1, self._size(record)))
            seconds = time.thread_time() - began
            if seconds > MAX_SECONDS:
                break
        self._samples.append(sample)
        self._to_skip = int(seconds / MAX_SECONDS)

    def _sampled(self) -> dict[str, _Weighed]:
        """Return the entries in the samples, or in the last one if it has all entries, by the name of their group."""
        samples = list(self._samples)
        if samples and sum(each.entries for each in samples[-1].values()) >= len(self._core):
            return samples[-1]
        found: dict[str, _Weighed] = {}
        for sample in samples:
            for name, weighed in sample.items():
                _add(found, name, weighed)
        return found

    def _size(self, record: Record) -> int | None:
        if self.is_weighed():
            return record.weight
        if type(record.value) is not Serialized and not is_immutable(record.value):
            return None
        return size_of(record.key, record.value, entry_bytes=self._core.entry_bytes)


def _add(groups: dict[str, _Weighed], name: str, more: _Weighed) -> None:
    entries, size = groups.get(name, (0, 0))
    groups[name] = _Weighed(entries + more.entries, None if size is None or more.size is None else size + more.size)


def _estimate(entries: float, weighed: Collection[_Weighed]) -> int | None:
    """Return the bytes of ``entries`` of the average size of the weighed ones."""
    sizes = [each.size for each in weighed if each.size is not None]
    # The objects to which a mutable value refers are not weighed, and the sum of the others would be misleading.
    known = sizes and len(sizes) == len(weighed)
    return round(entries * sum(sizes) / sum(each.entries for each in weighed)) if known else None
