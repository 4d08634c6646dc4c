"""Listeners of a Redis that tells of writes, and how quickly a loss is noticed."""

import threading

from tests.waiting import until

QUICK = {"interval": 0.1, "timeout": 0.1}
CALM = {"interval": 0.5, "timeout": 5.0}
"""For tests in which nothing is to be lost, however busy the machine."""


class Copies:
    """A listener that remembers what it was told."""

    def __init__(self):
        self.told = []
        self.lock = threading.Lock()

    def invalidated(self, keys):
        with self.lock:
            self.told += keys

    def flushed(self):
        self.invalidated(["all"])

    def trust(self, trusted):
        self.invalidated([trusted])

    def are_told(self, *expected):
        """Whether exactly this is told, in this order."""
        return until(lambda: len(self.told) >= len(expected)) and self.told == list(expected)
