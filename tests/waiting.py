"""For what another thread or process does in its own time: look until it is done, or give up."""

import time

THREADS = 32
PATIENCE = 10
"""Seconds."""


def until(condition, seconds=PATIENCE):
    """Look at ``condition()`` until it is true. Whether it came true within ``seconds``."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True
