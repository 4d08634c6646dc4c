"""A TTL that is shortened by a random part, so that entries set together do not expire together."""

from __future__ import annotations

from random import random
from typing import Final

MAX_JITTER: Final = 60.0
"""Seconds. What is set together expires over a minute at most: 5% of two weeks would end a session 16 hours early."""


class Jitter:
    """``jitter(ttl)`` is a time drawn evenly from ``[ttl * (1 - fraction), ttl]``, at most MAX_JITTER below ``ttl``.

    It is never longer than ``ttl``: a value must not outlive the timeout that its caller gave.

    Args:
        fraction: 0 <= fraction < 1; 0 leaves the TTL as it is.
    """

    __slots__ = ("fraction",)

    def __init__(self, fraction: float) -> None:
        self.fraction = fraction

    def __call__(self, ttl: float) -> float:
        return ttl - random() * min(ttl * self.fraction, MAX_JITTER)
