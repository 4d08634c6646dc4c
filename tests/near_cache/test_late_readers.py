"""A caller that asks for a key after a write of it has returned shares no value that was read or made before it."""

import threading
from contextvars import Context

import pytest

from tests.guests import needs
from tests.near_cache.stores import Calls, Stored, held, near_cache
from tests.waiting import PATIENCE, until, until_waiting, waiting
from wheelcache.core.contract import MISSING
from wheelcache.runtime.steps import drive


@pytest.fixture(params=[False, True], ids=["untold", "tracked"])
def threads(request, clock, store):
    """A near cache whose callers are threads: a lease of a task would end with its task."""
    near = near_cache(clock, tracked=request.param)
    if request.param:
        near.trust(True)
    return Calls(near, store)


def write(calls, value=MISSING):
    """Set or delete "k" in the store, by a call that is not held back."""
    values = calls.store.values
    change = (lambda: values.pop("k", None)) if value is MISSING else (lambda: values.update(k=value))
    Context().run(lambda: drive(calls.near.write(["k"], change)))


@needs("fill_waits")
@pytest.mark.parametrize("value", [MISSING, "new"], ids=["deleted", "set"])
def test_a_write_gives_its_value_to_no_caller_that_waits_since_a_later_write(threads, store, pool, value):
    holder, late = Context(), Context()
    assert holder.run(threads.lease, "k") is MISSING
    writer = held(store, pool, lambda: threads.set("k", "old", values=Stored("old")))
    write(threads, value)
    asked = pool.submit(late.run, threads.lease, "k")
    until_waiting()
    store.released.set()
    writer.result(PATIENCE)
    assert not asked.done()
    holder.run(threads.set, "k", "newest", values=Stored("newest"))
    assert asked.result(PATIENCE) == "newest"


@needs("fill_waits")
@pytest.mark.parametrize("told", [False, True], ids=["by a write of this process", "by the server"])
def test_a_value_that_the_holder_reads_is_not_for_a_caller_that_comes_after_a_write(threads, store, pool, told):
    holder, late = Context(), Context()
    store.values["k"] = "old"
    reader = held(store, pool, holder.run, threads.lease, "k")
    write(threads, "new")
    if told:
        threads.near.invalidated([b"k"])
    asked = pool.submit(late.run, threads.lease, "k")
    # It waits for the holder, or reads for itself.
    assert until(lambda: store.held == 2 or waiting() == 1)
    store.released.set()
    assert reader.result(PATIENCE) == "old"
    assert asked.result(PATIENCE) == "new"


LATER = {
    "a write of this process": lambda calls: write(calls, "new"),
    "a clear of this process": lambda calls: drive(calls.near.clear(lambda: None)),
    "the server": lambda calls: calls.near.invalidated([b"k"]),
}


@pytest.mark.parametrize("tell", LATER.values(), ids=LATER)
def test_what_one_caller_computes_is_not_shared_with_a_caller_that_comes_after_a_write(clock, store, pool, tell):
    calls = Calls(near_cache(clock), store)
    loading, release = threading.Event(), threading.Event()

    def load_slowly():
        loading.set()
        assert release.wait(PATIENCE)
        return "old"

    early = pool.submit(calls.load, "k", load_slowly)
    assert loading.wait(PATIENCE)
    tell(calls)
    late = pool.submit(calls.load, "k", lambda: "new")
    assert until(lambda: late.done() or waiting() == 1)
    release.set()
    assert (early.result(PATIENCE), late.result(PATIENCE)) == ("old", "new")
