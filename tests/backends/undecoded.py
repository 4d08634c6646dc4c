"""Values that can no longer be decoded, as after a deploy that moved their class."""

import pickle
import zlib

from tests.waiting import PATIENCE, until_waiting

ERRORS = [
    *(pickle.UnpicklingError("truncated"), EOFError(), ModuleNotFoundError("No module named 'shop.old'")),
    *(AttributeError("moved"), TypeError("a new argument"), ValueError("no member"), KeyError("app")),
    *(ZeroDivisionError(), zlib.error("incorrect header")),
]


class Moved:
    """A value whose decoding raises ``error``, if there is one, after calling ``meanwhile``."""

    error = None
    meanwhile = staticmethod(lambda: None)

    def __init__(self, number):
        self.number = number

    def __reduce__(self):
        return _decoded, (self.number,)

    def __str__(self):
        return "moved"

    def __eq__(self, other):
        return type(other) is Moved and other.number == self.number

    __hash__ = None


def _decoded(number):
    Moved.meanwhile()
    if Moved.error is not None:
        raise Moved.error
    return Moved(number)


def missed(cache, count):
    """Return whether a ``count`` found no number: Django raises, and Flask counts from 0."""
    try:
        return count() == 1
    except ValueError:
        return True


CALLS = {
    "get": lambda cache: cache.get("key", "default") == "default",
    "get_many": lambda cache: cache.get_many(["key", "other"]) == {"other": 1},
    "load": lambda cache: cache.load("key", lambda: ["new"]) == ["new"],
    "count": lambda cache: missed(cache, lambda: cache.count("key")),
}


class TimeLimit(Exception):
    """Raised by a signal handler, as Celery's SoftTimeLimitExceeded."""


def load_while_three_wait(cache, in_thread):
    """Load a key by four callers, of which three wait for the first. Each must load its own value."""
    loads = []

    def load():
        loads.append(1)
        if len(loads) == 1:
            until_waiting(3)
        return Moved(1)

    calls = [in_thread(cache.load, "key", load) for _ in range(4)]
    assert [each.result(PATIENCE) for each in calls] == [Moved(1)] * 4
    assert len(loads) == 4
