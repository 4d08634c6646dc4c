"""Listeners for the tracking of a Redis, and the times until a loss is noticed."""

import threading

from tests.waiting import PATIENCE, until

CALM = {"interval": 0.5, "timeout": PATIENCE}
"""Times for tests that must not lose the connection on a busy machine."""


class Copies:
    """A listener that records its calls."""

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

    def refused(self):
        self.invalidated(["refused"])

    def are_told(self, *expected):
        """Return whether exactly these calls are received, in this order."""
        return until(lambda: len(self.told) >= len(expected)) and self.told == list(expected)
