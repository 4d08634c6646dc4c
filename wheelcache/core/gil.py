"""The global interpreter lock, without which Python runs several threads at the same time."""

from __future__ import annotations

import sys


def has_gil() -> bool:
    """Return whether the interpreter has the lock. Free-threaded builds from 3.13 on may run without it; importing an
    extension may switch it on, and nothing switches it off."""
    is_enabled: bool = getattr(sys, "_is_gil_enabled", lambda: True)()
    return is_enabled
