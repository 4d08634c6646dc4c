"""A caller that asks for a key after a write of it has returned shares no value that was read or made before it."""

import threading
from contextvars import Context

import pytest

from tests.near_cache.stores import LONG, TIMEOUT, Calls, Store, held, near_cache
from tests.waiting import PATIENCE, until, until_waiting, waiting
from wheelcache import Cache
from wheelcache.coherence.shared_stamps import SharedStamps
from wheelcache.core.contract import MISSING
from wheelcache.loading.steps import drive
from wheelcache.near_cache.near_cache import NearCache
from wheelcache.near_cache.outage_rule import OutageRule


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


WRITES = {"deleted": MISSING, "set": "new"}


@pytest.mark.parametrize("value", WRITES.values(), ids=WRITES)
def test_a_write_gives_its_value_to_no_caller_that_waits_since_a_later_write(threads, store, pool, value):
    holder, late = Context(), Context()
    assert holder.run(threads.lease, "k") is MISSING
    writer = held(store, pool, lambda: threads.set("k", "old", value_of=lambda _: "old"))
    write(threads, value)
    asked = pool.submit(late.run, threads.lease, "k")
    until_waiting()
    store.released.set()
    writer.result(PATIENCE)
    assert not asked.done()
    holder.run(threads.set, "k", "newest", value_of=lambda _: "newest")
    assert asked.result(PATIENCE) == "newest"


def test_a_write_gives_its_value_to_the_callers_that_waited_before_it(threads, pool):
    holder, early = Context(), Context()
    assert holder.run(threads.lease, "k") is MISSING
    asked = pool.submit(early.run, threads.lease, "k")
    until_waiting()
    threads.set("k", "value", value_of=lambda _: "value")
    assert asked.result(PATIENCE) == "value"


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


def coherent_pair(tmp_path, clock):
    """Two caches that act like separate processes, with common stamps."""
    return [
        Cache(stamps=SharedStamps("test", tmp_path), clock=clock, jitter=0, log_interval=None, sample_interval=None)
        for _ in range(2)
    ]


def test_a_write_after_a_lease_that_found_its_value_outdates_the_computations_of_others(tmp_path, clock, store):
    """The caller has computed nothing, so its write is no fill."""
    caches = coherent_pair(tmp_path, clock)
    ours, theirs = [Calls(NearCache(cache, TIMEOUT, OutageRule(store)), store) for cache in caches]
    assert theirs.get("k") is MISSING
    theirs.near.missed("k")
    store.values["k"] = "set meanwhile"
    assert ours.lease("k") == "set meanwhile"
    ours.set("k", "newest", fills=ours.near.fills(["k"], TIMEOUT))
    theirs.set("k", "older", fills=theirs.near.fills(["k"], TIMEOUT), result_if_dropped=None)
    assert store.values["k"] == "newest"
    for cache in caches:
        cache.close()


def test_a_value_that_was_read_before_a_write_of_another_process_is_not_for_callers_of_a_later_lease(
    tmp_path, clock, store, pool
):
    ours, theirs = coherent_pair(tmp_path, clock)
    first = Calls(NearCache(ours, TIMEOUT, OutageRule(store)), store)
    second = first.beside(Store())
    contexts = [Context() for _ in range(3)]
    store.values["k"] = "old"
    early = held(store, pool, contexts[0].run, first.lease, "k")
    theirs.delete("k")
    second.store.values["k"] = "new"
    # The first lease ends.
    clock.advance(LONG)
    heir = held(second.store, pool, contexts[1].run, second.lease, "k")
    late = pool.submit(contexts[2].run, second.lease, "k")
    until_waiting()
    store.released.set()
    assert early.result(PATIENCE) == "old"
    second.store.released.set()
    assert (heir.result(PATIENCE), late.result(PATIENCE)) == ("new", "new")
    ours.close()
    theirs.close()


LATER = {
    "a write of this process": lambda calls, theirs: write(calls, "new"),
    "a clear of this process": lambda calls, theirs: drive(calls.near.clear(lambda: None)),
    "the server": lambda calls, theirs: calls.near.invalidated([b"k"]),
    "another process": lambda calls, theirs: theirs.delete("k"),
}


@pytest.mark.parametrize("tell", LATER.values(), ids=LATER)
def test_what_one_caller_computes_is_not_shared_with_a_caller_that_comes_after_a_write(
    tmp_path, clock, store, pool, tell
):
    ours, theirs = coherent_pair(tmp_path, clock)
    calls = Calls(NearCache(ours, TIMEOUT, OutageRule(store)), store)
    loading, release = threading.Event(), threading.Event()

    def load_slowly():
        loading.set()
        assert release.wait(PATIENCE)
        return "old"

    early = pool.submit(calls.load, "k", load_slowly)
    assert loading.wait(PATIENCE)
    tell(calls, theirs)
    late = pool.submit(calls.load, "k", lambda: "new")
    assert until(lambda: late.done() or waiting() == 1)
    release.set()
    assert (early.result(PATIENCE), late.result(PATIENCE)) == ("old", "new")
    ours.close()
    theirs.close()
