"""Both backends in the same words, for what they do alike.

``ttl`` is in seconds, None for ever, below 0 over at once; options are in lower case, ``max_entries`` among them.
"""

from itertools import count

from tests.engines import engine

DEFAULT = object()
"""The ``ttl`` of a call without one."""

QUIET = {"jitter": 0, "log_interval": None}

names = map("contract {}".format, count())


def given(**arguments):
    return {name: value for name, value in arguments.items() if value is not DEFAULT}


class Adapter:
    """A backend.

    Attributes:
        backend: the object that the framework has.
        name: what it is called: two of one name, and the same options but ``max_entries``, are of one cache to others.
    """

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
