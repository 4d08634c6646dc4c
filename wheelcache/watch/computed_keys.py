"""A sample of the keys whose values a process has computed, which shows how many keys several processes compute.

It has the keys with the smallest hashes, and the hash of a key is the same in every process: the bottom-k sketch of
Cohen and Kaplan ("Summarizing Data Using Bottom-k Sketches", 2007). All keys whose hash is below the greatest hash in
each of several full samples are known, so a comparison of samples compares a random part of the keys.

CRC-32 takes 0.2 us, a cryptographic hash 1 us. CRC-32 of similar keys is not random, but its product with an odd number
estimates overlaps as well. Nobody gains anything from keys that disturb the estimate.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final
from zlib import crc32

from wheelcache.engine.keys import text_of

SAMPLED: Final = 64
"""Keys in a sample. The standard deviation of the estimated share of common keys is then about 4 points."""

PERIOD: Final = 600
"""Seconds of a period. A sample covers the present period and the one before it."""

Computed = tuple[int, tuple[int, ...]]
"""The number of the period since 1970 in which a sample ends, and its hashes, smallest first."""

NOTHING_COMPUTED: Final[Computed] = (0, ())

_BITS: Final = 2**32 - 1
_SPREAD: Final = 0x9E3779B1
_PORTABLE: Final = frozenset((str, int, float, bytes, bool, type(None)))


class ComputedKeys:
    """The sample of one cache. It never has more than ``2 * SAMPLED`` hashes for each of two periods.

    There is no lock: a key that one thread adds while another drops the greater hashes may be missing from the sample
    until its value is computed again.
    """

    __slots__ = ("_before", "_hashes", "_limit", "_period")

    def __init__(self) -> None:
        self.start_over()

    def start_over(self) -> None:
        """Forget all keys, also in the child of a fork."""
        self._period: int | None = None
        self._before: tuple[int, ...] = ()
        self._hashes: set[int] = set()
        self._limit = _BITS

    def add(self, key: Any) -> None:
        """Note that the value of a core's key was computed. Keys without a portable text are left out."""
        text = key if type(key) is str else portable_text(key)
        if text is None:
            return
        found = crc32(text.encode("utf-8", "surrogatepass")) * _SPREAD & _BITS
        if found <= self._limit:
            hashes = self._hashes
            hashes.add(found)
            if len(hashes) >= 2 * SAMPLED:
                kept = _smallest(hashes.copy())
                self._hashes, self._limit = set(kept), kept[-1]

    def recent(self, time: float) -> Computed:
        """Return the sample of the present period and the one before it.

        One thread at a time calls this, at least once in each period.

        Args:
            time: seconds since 1970.
        """
        period = int(time // PERIOD)
        if self._period not in (None, period):
            self._before = _smallest(self._hashes.copy()) if self._period == period - 1 else ()
            self._limit, self._hashes = _BITS, set()
        self._period = period
        return period, _smallest({*self._before, *self._hashes.copy()})


def merged(one: Sequence[int], other: Sequence[int]) -> tuple[int, ...]:
    """Return the sample of the keys of two caches together."""
    return _smallest({*one, *other})


def repeated_share(samples: Collection[Sequence[int]]) -> float:
    """Return the share of the computed keys that another process had computed before, which a common store could have
    saved: 0.5 if two processes compute the same keys. A key counts once for each process."""
    limit = min((each[-1] for each in samples if len(each) == SAMPLED), default=_BITS)
    known = [found for each in samples for found in each if found <= limit]
    return 1 - len(set(known)) / len(known) if known else 0.0


def portable_text(key: Any) -> str | None:
    """Return a core's key as a text that is the same in every process. Return None for keys of other types than those
    of ``_PORTABLE`` and tuples of these: other processes may show them differently, and their ``repr`` may be Python
    code."""
    if type(key) is str:
        return key
    try:
        if type(key) is tuple and len(key) > 1 and _PORTABLE.issuperset(map(type, key)):
            return repr(key)
        return text_of(key) if _is_portable(key) else None
    except ValueError:
        # Python refuses to write an int of more than 4,300 digits.
        return None


def _smallest(hashes: set[int]) -> tuple[int, ...]:
    return tuple(sorted(hashes)[:SAMPLED])


def _is_portable(key: Any) -> bool:
    kind = type(key)
    if kind is tuple:
        # The second test is slower. Only tuples in the key need it.
        return _PORTABLE.issuperset(map(type, key)) or all(map(_is_portable, key))
    return kind in _PORTABLE
