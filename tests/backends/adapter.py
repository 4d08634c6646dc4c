"""One interface to both backends, for their common behavior.

``ttl`` is in seconds: None for no expiry, below 0 for immediate expiry. Options are in lower case.
"""

from itertools import count

from tests.engines import engine

DEFAULT = object()
"""The ``ttl`` of a call without one."""

QUIET = {"jitter": 0, "figures_dir": None}

names = map("contract {}".format, count())


def given(**arguments):
    return {name: value for name, value in arguments.items() if value is not DEFAULT}


class Adapter:
    """A backend.

    Attributes:
        backend: the object that the framework has.
        name: its name. To others, two backends with the same name and options except ``max_entries`` are one cache.
        lag: the seconds after which an entry that is over has left the memory.
        has_exact_order: whether each look-up is known as a use immediately. Otherwise, the next tick of the wheel is
            awaited, and it is known in a cache that is over half full.
    """

    lag = 1
    has_exact_order = True

    def __init__(self, backend, name):
        self.backend = backend
        self.name = name
        self.get = backend.get
        self.add = lambda key, value, ttl=DEFAULT: backend.add(key, value, **self.timeout(ttl))
        self.delete = backend.delete
        self.clear = backend.clear

    @property
    def engine(self):
        return engine(self.backend)

    def for_any_code(self):
        """The same cache for code that may run on an event loop."""
        return self

    def set(self, key, value, ttl=DEFAULT):
        self.backend.set(key, value, **self.timeout(ttl))

    def ttl_left(self, key):
        return self.engine.expires_in(self.key(key))
