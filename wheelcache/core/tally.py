"""An exact count that any thread may raise without a lock: ``next(tally)`` on an ``itertools.count`` is one C call."""

from __future__ import annotations

from itertools import count


def read_tally(tally: count[int]) -> int:
    """What a tally would give next, without taking it: any thread may count meanwhile, and this one be interrupted."""
    return int(repr(tally)[len("count(") : -1])
