"""A random factor on a TTL, so that entries set together do not expire together."""

from __future__ import annotations

from random import random


class Jitter:
    """``jitter(ttl)`` is a time drawn evenly from ``ttl * [1 - deviation, 1 + deviation]``.

    Args:
        deviation: a fraction, 0 <= deviation < 1; 0 leaves the TTL as it is.
    """

    __slots__ = ("least", "spread")

    def __init__(self, deviation: float) -> None:
        self.least = 1.0 - deviation
        self.spread = 2.0 * deviation

    def __call__(self, ttl: float) -> float:
        return ttl * (self.least + self.spread * random())
