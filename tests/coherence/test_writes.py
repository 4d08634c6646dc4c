"""The effects of a write on the entries, loads and leases of other processes."""

import gc
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.coherence.processes import QUIET, fill
from tests.leases.callers import get_or_lease
from tests.waiting import PATIENCE, until, until_waiting, waiting
from wheelcache import Cache
from wheelcache.runtime.request_scope import end_request

WRITES = {
    "set": lambda cache: cache.set("k", "new"),
    "set_many": lambda cache: cache.set_many({"k": "new"}),
    "delete": lambda cache: cache.delete("k"),
    "delete_many": lambda cache: cache.delete_many(["k"]),
    "pop": lambda cache: cache.pop("k", None),
    "clear": lambda cache: cache.clear(),
}

WRITES_OF_AN_ENTRY = WRITES | {
    "touch": lambda cache: cache.touch("k", 500),
    "update": lambda cache: cache.update("k", str.upper),
    "incr": lambda cache: cache.incr("k", "!"),
}

WRITES_OF_A_MISSING_KEY = WRITES | {"add": lambda cache: cache.add("k", "new")}


@pytest.mark.parametrize("write", WRITES_OF_AN_ENTRY.values(), ids=WRITES_OF_AN_ENTRY)
def test_every_write_ends_the_entries_of_the_others(process, write):
    writer, *others = caches = [process() for _ in range(3)]
    fill(*caches)
    write(writer)
    for other in others:
        assert (other.get("k"), other.get_many(["k"]), "k" in other, other.keys()) == (None, {}, False, [])


@pytest.mark.parametrize("write", WRITES_OF_A_MISSING_KEY.values(), ids=WRITES_OF_A_MISSING_KEY)
def test_a_write_of_a_key_that_is_not_here_ends_the_entries_of_the_others(pair, write):
    one, other = pair
    fill(other)
    write(one)
    assert other.get("k") is None


def test_what_changes_no_value_ends_nothing_elsewhere(process, clock):
    one, other = process(max_entries=2), process()
    fill(one, other)
    assert not one.add("k", "new")
    assert not one.touch("other")
    one.get_many(["k", "l"])
    assert "k" in one
    one.expires_in("k")
    one.engine.evict_to(0)
    fill(one)
    assert one.set("m", 1, ttl=1)
    clock.advance(5)
    one.close()
    assert other.get("k") == "old"


def test_an_update_does_not_outlive_a_write_elsewhere_while_it_was_made(pair):
    one, other = pair
    fill(one, value=5)

    def add_one(value):
        other.set("k", 100)
        return value + 1

    with pytest.raises(KeyError):
        one.update("k", add_one)
    assert (one.get("k"), other.get("k")) == (None, 100)


def test_clearing_a_memoized_function_ends_the_entries_of_the_others(pair):
    value = ["old"]

    def memoized(cache):
        @cache.memoize()
        def function(number):
            return value[0]

        return function

    one, other = map(memoized, pair)
    assert other(1) == "old"
    value[0] = "new"
    one.cache_clear()
    assert other(1) == "new"


# Loads and leases.


@pytest.mark.parametrize("options", [{}, {"fail_safe": True}, {"timeout": PATIENCE}])
def test_a_stale_value_is_not_served_after_a_write_elsewhere(pair, clock, options):
    one, other = pair
    one.get_or_load("k", lambda: "old", ttl=10, grace=100)
    clock.advance(11)
    other.delete("k")
    assert one.get_or_load("k", lambda: "new", ttl=10, grace=100, **options) == "new"
    assert one.stats().stale_hits == 0


def test_a_refresh_is_dropped_whose_key_was_written_elsewhere_meanwhile(pair, clock):
    one, other = pair
    one.get_or_load("k", lambda: "old", ttl=10)
    clock.advance(6)
    loading, written = threading.Event(), threading.Event()

    def loader():
        loading.set()
        assert written.wait(PATIENCE)
        return "old"

    assert one.get_or_load("k", loader, ttl=10, refresh_ahead=0.5) == "old"
    assert loading.wait(PATIENCE)
    other.delete("k")
    written.set()
    assert until(lambda: one.stats().loads == 2)
    assert one.get("k") is None


def test_a_caller_that_joins_a_load_after_a_write_elsewhere_does_not_get_what_it_brings(pair):
    one, other = pair
    truth = ["old"]
    loading, release = threading.Event(), threading.Event()

    def slow():
        value = truth[0]
        loading.set()
        assert release.wait(PATIENCE)
        return value

    with ThreadPoolExecutor(3) as pool:
        leader = pool.submit(one.get_or_load, "k", slow)
        assert loading.wait(PATIENCE)
        truth[0] = "new"
        other.delete("k")
        late = [pool.submit(one.get_or_load, "k", lambda: truth[0]) for _ in range(2)]
        assert until(lambda: waiting() + sum(each.done() for each in late) == 2)
        release.set()
        assert leader.result(PATIENCE) == "old"
        assert [each.result(PATIENCE) for each in late] == ["new", "new"]
    assert one.get("k") == "new"


def test_a_waiter_for_a_lease_does_not_get_a_fill_that_was_dropped(map_stamps, process):
    one, other = Cache(stamps=map_stamps(), **QUIET), process()
    truth = ["old"]

    def wait():
        found = get_or_lease(one, "k", wait=PATIENCE)
        if found is None:
            found = truth[0]
            one.set("k", found)
        return found

    assert get_or_lease(one, "k", wait=PATIENCE) is None
    mine = truth[0]
    with ThreadPoolExecutor(3) as pool:
        truth[0] = "new"
        other.delete("k")
        late = [pool.submit(wait) for _ in range(3)]
        until_waiting(3)
        assert not one.set("k", mine)
        assert [each.result(PATIENCE) for each in late] == ["new"] * 3
    assert one.get("k") == "new"


# Threads of the writing process.


def test_threads_never_get_what_was_written_before_they_asked(map_stamps, together):
    one, other = (Cache(stamps=map_stamps(), **QUIET) for _ in range(2))
    truth, written = [0], [0]
    lock = threading.Lock()

    def work(number):
        mine = one if number % 2 else other
        for turn in range(100):
            if number < 4:
                with lock:
                    truth[0] += 1
                    version = truth[0]
                    mine.set("k", version) if turn % 2 else mine.delete("k")
                    written[0] = version
            else:
                least = written[0]
                found = mine.get_or_load("k", lambda: truth[0]) if number % 3 else mine.get("k")
                if found is None:
                    mine.set("k", truth[0])
                else:
                    assert found >= least
                if number % 5 == 0:
                    mine.touch("k", 100)
        end_request()

    assert together(work) == [None] * 32


READS = 10_000

REWRITES = {
    "set": lambda cache, number: cache.set("k", number, 1000 + number),
    "set_many": lambda cache, number: cache.set_many({"k": number}),
    "incr": lambda cache, number: cache.incr("k"),
    "touch": lambda cache, number: cache.touch("k", 1000 + number),
}


@pytest.fixture
def eager_collector(small_heap):
    """Let nearly every allocation start a collection that runs code in Python, as a finalizer would, so that other
    threads run."""
    before = gc.get_threshold()
    gc.callbacks.append(run_code := lambda phase, info: None)
    gc.set_threshold(1)
    yield
    gc.set_threshold(*before)
    gc.callbacks.remove(run_code)


@pytest.mark.usefixtures("hasty_interpreter", "eager_collector")
@pytest.mark.parametrize("write", REWRITES.values(), ids=REWRITES)
def test_beside_a_writer_in_a_tight_loop_the_readers_of_its_process_never_miss(process, write):
    cache = process()
    cache.set("k", 0)
    is_writing, is_done = threading.Event(), threading.Event()

    def keep_writing():
        written = 0
        while not is_done.is_set():
            written += 1
            assert write(cache, written) is not False
            is_writing.set()

    def read():
        assert is_writing.wait(PATIENCE)
        return sum(cache.get("k") is None for _ in range(READS))

    with ThreadPoolExecutor(3) as pool:
        writer = pool.submit(keep_writing)
        readers = [pool.submit(read) for _ in range(2)]
        try:
            assert [each.result(PATIENCE) for each in readers] == [0, 0]
        finally:
            is_done.set()
        writer.result(PATIENCE)
    assert (cache.stats().hits, cache.stats().misses) == (2 * READS, 0)
