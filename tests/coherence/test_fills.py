"""A ``set`` after a miss is a fill: it invalidates no other entry, and is dropped if the key was written since."""

import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context

import pytest

from tests.coherence.processes import QUIET, fill, in_thread
from tests.leases.callers import get_or_lease
from tests.loading.harness import load_many
from tests.memory import traced
from tests.waiting import PATIENCE, until, until_waiting
from wheelcache import Cache
from wheelcache.coherence.misses import FILL_WINDOW
from wheelcache.runtime.request_scope import end_request

FILLS = {
    "get, set": lambda cache: cache.get("k") or cache.set("k", "old"),
    "get, add": lambda cache: cache.get("k") or cache.add("k", "old"),
    "get_many, set_many": lambda cache: cache.get_many(["j", "k"]) or cache.set_many({"j": 1, "k": "old"}),
    "get_or_load": lambda cache: cache.get_or_load("k", lambda: "old"),
    "take with a timeout": lambda cache: cache.get_or_load("k", lambda: "old", timeout=PATIENCE),
    "get_or_lease, set": lambda cache: get_or_lease(cache, "k", wait=1) or cache.set("k", "old"),
    "memoize": lambda cache: cache.memoize(key=lambda: "k")(lambda: "old")(),
}


@pytest.mark.parametrize("fill_key", FILLS.values(), ids=FILLS)
def test_fills_are_quiet(process, fill_key):
    # With a single slot, a write of any key invalidates every entry.
    caches = [process(slots=1) for _ in range(3)]
    for cache in caches:
        fill_key(cache)
    assert all(cache.keys() for cache in caches)
    caches[0].set("another", "that no thread has missed")
    assert [cache.keys() for cache in caches] == [["another"], [], []]


@pytest.mark.parametrize(("seconds", "policy"), [(6, {"refresh_ahead": 0.5}), (11, {"grace": 100})])
def test_a_refresh_is_quiet(pair, clock, seconds, policy):
    one, other = pair
    for cache in pair:
        cache.get_or_load("k", lambda: "old", ttl=10, **policy)
    clock.advance(seconds)
    assert one.get_or_load("k", lambda: "fresh", ttl=10, **policy) == "old"
    assert until(lambda: one.get("k") == "fresh")
    assert other.get_or_load("k", lambda: "fresh", ttl=10, **policy) == "old"


STORES = {
    "set": lambda cache, value: cache.set("k", value),
    "set with a listener": lambda cache, value: setattr(cache, "on_removal", print) or cache.set("k", value),
    "add": lambda cache, value: cache.add("k", value),
    "set_many": lambda cache, value: cache.set_many({"k": value}) == [],
}

MISSES = {
    "get": lambda cache: cache.get("k"),
    "get_many": lambda cache: cache.get_many(["k"]).get("k"),
    "get_or_lease": lambda cache: get_or_lease(cache, "k", wait=1),
}

PAIRS = {
    **{f"get, {name}": (MISSES["get"], store) for name, store in STORES.items()},
    **{f"{name}, set": (miss, STORES["set"]) for name, miss in MISSES.items() if name != "get"},
}

pairs = pytest.mark.parametrize(("miss", "store"), PAIRS.values(), ids=PAIRS)


@pairs
@pytest.mark.parametrize(("seconds", "elsewhere"), [(FILL_WINDOW, "old"), (FILL_WINDOW + 1, None)])
def test_only_what_is_stored_within_the_window_is_a_fill(pair, clock, miss, store, seconds, elsewhere):
    one, other = pair
    assert miss(one) is None
    fill(other)
    clock.advance(seconds)
    assert store(one, "new")
    assert (one.get("k"), other.get("k")) == ("new", elsewhere)


@pairs
@pytest.mark.parametrize("write", ["set", "delete", "clear"])
def test_a_fill_is_dropped_whose_key_was_written_elsewhere_meanwhile(pair, clock, miss, store, write):
    """Its computation may have begun before that write, so the value may be older."""
    one, other = pair
    assert miss(one) is None
    writes = {"set": lambda: other.set("k", "new"), "delete": lambda: other.delete("k"), "clear": other.clear}
    in_thread(writes[write])
    clock.advance(FILL_WINDOW)
    assert not store(one, "old")
    assert (one.get("k"), other.get("k")) == (None, "new" if write == "set" else None)
    # The next one is a fill.
    assert one.set("k", "newer")
    assert one.get("k") == "newer"


@pairs
def test_a_write_long_after_a_miss_and_a_write_elsewhere_is_kept_and_ends_the_other(pair, clock, miss, store):
    """A consumer missed a state, another process wrote it, and now the consumer sets a newer state."""
    one, other = pair
    assert miss(one) is None
    clock.advance(5)
    other.set("k", "old")
    clock.advance(FILL_WINDOW)
    assert store(one, "new")
    assert (one.get("k"), other.get("k")) == ("new", None)


def test_of_many_fills_only_those_are_dropped_whose_key_was_written(pair):
    one, other = pair
    assert one.get_many("abc") == {}
    other.delete("b")
    assert one.set_many(dict.fromkeys("abc", "old")) == ["b"]
    assert one.get_many("abc") == {"a": "old", "c": "old"}


@pytest.mark.parametrize("is_written", [False, True])
def test_a_load_is_a_fill_however_long_it_takes(pair, clock, is_written):
    one, other = pair
    fill(other)

    def load():
        clock.advance(10 * FILL_WINDOW)
        if is_written:
            other.delete("k")
        return "old"

    assert one.get_or_load("k", load) == "old"
    expected = None if is_written else "old"
    assert (one.get("k"), other.get("k")) == (expected, expected)


def test_a_load_of_many_beside_another_load_is_quiet_and_drops_what_it_finds_to_be_other(pair):
    one, other = pair
    fill(other)

    def slow():
        load_many(one, ["k"], lambda keys: {"k": "newer"}, 60)
        return "old"

    assert one.get_or_load("k", slow) == "old"
    assert (one.get("k"), other.get("k")) == (None, "old")


def test_a_lease_that_was_passed_on_fills_quietly(map_stamps):
    one, other = (Cache(stamps=map_stamps(), **QUIET) for _ in range(2))
    fill(other)

    def wait():
        assert get_or_lease(one, "k", wait=PATIENCE) is None
        return one.set("k", "old")

    assert get_or_lease(one, "k", wait=PATIENCE) is None
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(wait)
        until_waiting(1)
        end_request()
        assert late.result(PATIENCE)
    assert other.get("k") == one.get("k") == "old"


# Several threads of the process.


@pytest.mark.parametrize("store", [STORES["set"], STORES["set_many"]])
@pytest.mark.parametrize("write", ["set", "delete"])
def test_a_fill_is_dropped_whose_key_another_thread_wrote_meanwhile(pair, store, write):
    one, _ = pair
    assert one.get("k") is None
    if write == "set":
        Context().run(one.set, "k", "new")
        # After a hit, the next set is not a fill.
        assert one.get("k") == "new"
    else:
        Context().run(one.delete, "k")
    assert not store(one, "old")
    # It is unknown which of the two values is newer, so neither is returned.
    assert one.get("k") is None
    assert store(one, "newest")
    assert one.get("k") == "newest"


def test_two_threads_that_miss_together_fill_quietly(pair):
    one, other = pair
    fill(other)
    assert one.get("k") is None
    Context().run(fill, one)
    assert one.set("k", "old")
    assert one.get("k") == other.get("k") == "old"


def wait_for_a_lease(cache):
    """Another thread has the lease, and sets the key."""
    context = Context()
    assert context.run(get_or_lease, cache, "k", wait=PATIENCE) is None
    with ThreadPoolExecutor(1) as pool:

        def fill_it():
            until_waiting(1)
            context.run(cache.set, "k", "old", 10)

        filling = pool.submit(fill_it)
        assert get_or_lease(cache, "k", wait=PATIENCE) == "old"
        filling.result(PATIENCE)


@pytest.mark.parametrize("serve", [lambda cache: cache.get_or_load("k", lambda: "old", ttl=10), wait_for_a_lease])
def test_a_miss_that_was_served_explains_no_later_set(pair, serve):
    one, other = pair
    serve(one)
    fill(other)
    one.engine.evict_to(0)
    one.set("k", "new")
    assert other.get("k") is None


DELETES = {
    "delete": lambda cache: cache.delete("k"),
    "delete_many": lambda cache: cache.delete_many(["k"]),
    "clear": lambda cache: cache.clear(),
}


@pytest.mark.parametrize("delete", DELETES.values(), ids=DELETES)
def test_a_thread_that_missed_and_deletes_a_key_can_set_it_at_once(pair, delete):
    one, _ = pair
    assert one.get("k") is None
    delete(one)
    assert one.set("k", "new")
    assert one.get("k") == "new"


CHANGES = {
    "touch": lambda cache: cache.touch("k"),
    "incr": lambda cache: cache.incr("k"),
    "update": lambda cache: cache.update("k", lambda value: value + 1),
    "pop": lambda cache: cache.pop("k"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_after_a_write_of_its_own_a_thread_fills_nothing(pair, change):
    """The thread missed the key, another thread filled it, and this thread wrote it: its next ``set`` is news."""
    one, other = pair
    assert one.get("k") is None
    in_thread(lambda: fill(one, value=1))
    assert change(one)
    fill(other)
    assert one.set("k", "new")
    assert (one.get("k"), other.get("k")) == ("new", None)


def test_a_set_long_after_a_miss_of_what_another_thread_filled_is_news(pair, clock):
    one, other = pair
    assert one.get("k") is None
    in_thread(lambda: fill(one, value="filled"))
    fill(other, value="filled")
    clock.advance(FILL_WINDOW + 1)
    one.set("k", "new")
    assert (one.get("k"), other.get("k")) == ("new", None)


def test_what_one_cache_missed_is_not_filled_in_another_at_the_same_place_in_memory(process):
    other = process()
    for number in range(20):
        key = f"k{number}"
        assert process().get(key) is None
        other.set(key, "old")
        process().set(key, "new")
        assert other.get(key) is None


# Renewing.


def test_renewing_what_is_there_is_no_news_and_keeps_the_new_time_exactly(process, clock):
    one, other = process(jitter=0.5), process()
    for cache in (one, other):
        cache.get("k")
        cache.set("k", "value", 10)
    assert one.engine.renew("k", "value", 100)
    assert other.get("k") == "value"
    clock.advance(99)
    assert (one.get("k"), other.get("k")) == ("value", None)
    clock.advance(1)
    assert one.get("k") is None


def test_what_is_not_there_or_another_value_or_overwritten_elsewhere_is_not_renewed(pair):
    one, other = pair
    assert not one.engine.renew("k", "value")
    one.set("k", "value")
    assert not one.engine.renew("k", "another")
    assert not one.engine.renew("k", b"value")
    other.set("k", "value")
    assert not one.engine.renew("k", "value")
    assert (one.get("k"), other.get("k")) == (None, "value")


# Keys.


@pytest.mark.parametrize("key", ["x" * 10_000, ("group", "x" * 10_000), ("group", 1), 1, b"x" * 300])
def test_keys_of_all_sorts_are_filled_quietly_and_ended_elsewhere(pair, key):
    one, other = pair
    fill(one, other, key=key)
    assert one.get(key) == other.get(key) == "old"
    one.set(key, "new")
    assert (one.get(key), other.get(key)) == ("new", None)


@pytest.mark.parametrize(("missed", "key"), [(1, 1.0), (True, 1), (("a", 1), ("a", True))])
def test_a_fill_under_an_equal_key_is_quiet(pair, missed, key):
    for cache in pair:
        assert cache.get(missed) is None
        assert cache.set(key, 1)
    assert [cache.get(key) for cache in pair] == [1, 1]


def test_a_long_key_is_not_taken_for_another(pair):
    one, other = pair
    keys = ["x" * 10_000, ("x" * 10_000,), repr(("x" * 10_000,)), "x" * 10_001]
    for key in keys:
        other.set(key, "old")
        one.get_many({*keys} - {key})
        one.set(key, "new")
        assert other.get(key) is None
        end_request()
        one.clear()


@pytest.mark.alone
@pytest.mark.parametrize(("count", "letters"), [(200, 10_000), (3000, 1)], ids=["long keys", "many keys"])
def test_misses_that_no_set_follows_take_a_bounded_amount_of_memory(pair, count, letters):
    one, _ = pair
    tracemalloc.start()
    try:
        for number in range(count):
            one.get(f"{number} {'x' * letters}")
            one.get(("group", f"{number} {'x' * letters}"))
        taken = traced(__file__, "*/wheelcache/*")
    finally:
        tracemalloc.stop()
    # 0.9 to 1.15 MB, depending on the sizes of tables. Without a bound, 3 MB.
    assert taken < 1_500_000


def test_a_set_after_a_clear_of_another_cache_with_the_same_stamps_by_the_same_thread_is_kept(process):
    """Two aliases in front of one store share its stamps. The caller has cleared the store itself."""
    one, other = process(), process()
    assert one.get("k") is None
    other.clear()
    assert one.set("k", "value")
    assert one.get("k") == "value"
