"""The implementations of the contract, and calls that many tests of them need."""

import pytest

from wheelcache.core.contract import RemovalCause
from wheelcache.core.python_core import PythonCore

EXPIRED, EVICTED, REPLACED, DELETED, CLEARED = RemovalCause

CORES = {"python": PythonCore}

try:
    from wheelcache.core import _core
except ImportError:
    # Without a compiler. The tests with the marker are not selected.
    pass
else:
    CORES["compiled"] = _core.CompiledCore

COMPILED = pytest.param("compiled", marks=pytest.mark.compiled)
"""The compiled implementation, whose tests have the marker ``compiled``."""

compiled = pytest.mark.parametrize("core_class", [COMPILED], indirect=True)
"""For behavior that the contract does not define, or that Python ensures in the other core."""


class Clock:
    """A clock whose seconds the test sets."""

    def __init__(self, now=0.0):
        self.now = now

    def __call__(self):
        return self.now


def labels(tags=(), since=0, group=None):
    """Return the labels of an entry: see ``Labels``."""
    return tags, since, group


def advance_all(core, removed=None):
    """Do the work of a wheel thread until none is due by the core's clock."""
    while core.next_due <= core.now():
        core.advance(removed=removed)


def drain_all(core, removed=None):
    """Drop all detached entries, and those of dropped tags."""
    while core.drain(removed=removed):
        pass
