"""A caller that asks for a key after a write of it has returned never receives a value from before that write.

Storing a value, announcing it to the callers that wait, and joining those callers are three separate moments. In these
tests a thread stops between two of them.
"""

import threading
from contextvars import Context

import pytest

from tests.caches import is_leased
from tests.fill_waits.callers import MISS, line_up
from tests.waiting import PATIENCE, until, until_waiting, waiting


class Stop:
    """A place where one thread stops until ``go`` is set."""

    def __init__(self):
        self.reached, self.go = threading.Event(), threading.Event()

    def __call__(self):
        self.reached.set()
        assert self.go.wait(PATIENCE)


class Stopping:
    """A value whose last reference is dropped at the end of the core's step, before anything is announced."""

    def __init__(self, stop):
        self.stop = stop

    def __del__(self):
        self.stop()


@pytest.fixture
def stop(cache):
    """A set of any other key stops here."""
    made = Stop()
    cache.set("other", Stopping(made))
    yield made
    made.go.set()


@pytest.fixture
def cache(make, clock):
    return make(max_weight=1, weigher=lambda key, value: 2 if value == "too heavy" else 1, clock=clock)


FILLS = {
    "set": lambda cache: cache.set("k", "old"),
    "add": lambda cache: cache.add("k", "old"),
    "set_many": lambda cache: cache.set_many({"k": "old"}),
    "get_or_load": lambda cache: cache.get_or_load("k", lambda: "old"),
}


def newer_value_that_expires(cache, clock):
    cache.set("k", "new", 1)
    clock.advance(2)


WRITES = {
    "delete": lambda cache, clock: cache.delete("k"),
    "delete_many": lambda cache, clock: cache.delete_many(["k"]),
    "clear": lambda cache, clock: cache.clear(),
    "set of a newer value": newer_value_that_expires,
    "set of a value that is too heavy": lambda cache, clock: cache.set("k", "too heavy"),
}


@pytest.mark.pairs(full="fill", of="fill")
@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
@pytest.mark.parametrize(
    # The core in Python drops the values that a batch replaces before it releases its lock.
    "fill",
    [pytest.param(fill, marks=pytest.mark.compiled if fill == "set_many" else ()) for fill in FILLS],
)
def test_a_caller_that_comes_after_a_write_gets_no_value_that_was_stored_before_it(
    cache, clock, stop, callers, fill, write
):
    holder, early, late, later = callers
    (asked_before,) = line_up("k", holder, early)
    filling = holder.submit(FILLS[fill], cache)
    assert stop.reached.wait(PATIENCE)
    Context().run(write, cache, clock)
    asked_after = late.asks("k")
    assert until(lambda: asked_after.done() or waiting() == 2)
    stop.go.set()
    assert asked_after.result(PATIENCE) == MISS
    assert asked_before.result(PATIENCE) == "old"
    filling.result(PATIENCE)
    # It has the lease, and the next caller waits for its value.
    assert late.does(is_leased, cache, "k")
    asked_again = later.asks("k")
    until_waiting()
    late.does(cache.set, "k", "newer")
    assert asked_again.result(PATIENCE) == "newer"
