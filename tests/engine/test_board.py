"""Caches on a board, which act like processes of their own: none returns what another has written over."""

import sys
import tempfile
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context
from itertools import count
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.engine.boards import BOARD_CHECK, FILL_WINDOW, NAME, QUIET, run
from tests.engine.interruptions import Delivery, quiet
from tests.waiting import PATIENCE, until, until_waiting, waiting
from wheelcache import Cache, ManualClock, RemovalCause
from wheelcache.coherence.shared_stamps import SLOTS, SharedStamps
from wheelcache.leases.fill_scope import end_request


@pytest.fixture
def board_of(tmp_path):
    """Another process's look at the board of this test."""

    def make(slots=SLOTS):
        return SharedStamps(NAME, tmp_path, slots)

    return make


@pytest.fixture
def cache(board_of, clock):
    """Make a cache that acts like a process of its own; all are on the same board and the same clock."""

    def make(slots=SLOTS, **arguments):
        return Cache(stamps=board_of(slots), clock=clock, jitter=0, **QUIET, **arguments)

    return make


@pytest.fixture
def pair(cache):
    return cache(), cache()


@pytest.fixture
def path(tmp_path, pair):
    """The file of the board."""
    (file,) = tmp_path.iterdir()
    return file


@pytest.fixture(autouse=True)
def _request():
    """What a test misses is no business of the next."""
    yield
    end_request()


def filled(*caches, key="k", value="old"):
    """The way of readers: each misses, and fills."""
    for each in caches:
        assert each.get(key) is None
        assert each.set(key, value)


def in_a_thread(function):
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result(PATIENCE)


# Writes.

WRITES = {
    "set": lambda cache: cache.set("k", "new"),
    "set_many": lambda cache: cache.set_many({"k": "new"}),
    "delete": lambda cache: cache.delete("k"),
    "delete_many": lambda cache: cache.delete_many(["k"]),
    "pop": lambda cache: cache.pop("k"),
    "touch": lambda cache: cache.touch("k", 500),
    "transform": lambda cache: cache.update("k", str.upper),
    "clear": lambda cache: cache.clear(),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_every_write_ends_the_entries_of_the_others(cache, write):
    writer, *others = caches = [cache() for _ in range(3)]
    filled(*caches)
    write(writer)
    assert [each.get("k") for each in others] == [None, None]
    assert [each.get_many(["k"]) for each in others] == [{}, {}]
    assert ["k" in each or each.keys() for each in others] == [[], []]


def test_incr_ends_the_entries_of_the_others(pair):
    one, other = pair
    filled(one, other, value=1)
    assert one.incr("k") == 2
    assert other.get("k") is None
    assert one.get("k") == 2
    with pytest.raises(KeyError):
        other.incr("k")


@pytest.mark.parametrize("write", ["delete", "pop", "delete_many", "set", "add", "set_many"])
def test_a_write_of_what_is_not_here_ends_the_entries_of_the_others(pair, write):
    one, other = pair
    filled(other)
    calls = {
        "delete": lambda: one.delete("k"),
        "pop": lambda: one.pop("k", None),
        "delete_many": lambda: one.delete_many(["k"]),
        "set": lambda: one.set("k", "new"),
        "add": lambda: one.add("k", "new"),
        "set_many": lambda: one.set_many({"k": "new"}),
    }
    calls[write]()
    assert other.get("k") is None
    assert one.get("k") == ("new" if write in ("set", "add", "set_many") else None)


def test_a_refused_add_and_a_touch_of_what_is_not_here_end_nothing(pair):
    one, other = pair
    filled(one, other)
    assert not one.add("k", "new")
    assert not one.touch("other")
    assert other.get("k") == one.get("k") == "old"


def test_reads_expirations_and_evictions_end_nothing_elsewhere(cache, clock):
    one, other = cache(max_entries=2), cache()
    filled(one, other)
    one.get("k")
    one.get_many(["k", "l"])
    assert "k" in one
    one.expires_in("k")
    one.evict_to(0)
    filled(one)
    assert one.set("m", 1, ttl=1)
    clock.advance(5)
    one.close()
    assert other.get("k") == "old"


FILLS = {
    "get, set": lambda cache: cache.get("k") or cache.set("k", "old"),
    "get, add": lambda cache: cache.get("k") or cache.add("k", "old"),
    "get_many, set_many": lambda cache: cache.get_many(["j", "k"]) or cache.set_many({"j": 1, "k": "old"}),
    "get, set_many": lambda cache: cache.get("k") or cache.set_many({"k": "old"}),
    "take": lambda cache: cache.take("k", lambda: "old"),
    "take with a timeout": lambda cache: cache.take("k", lambda: "old", timeout=PATIENCE),
    "get_or_lease, set": lambda cache: cache.get_or_lease("k", wait=1) or cache.set("k", "old"),
    "memoize": lambda cache: cache.memoize(key=lambda: "k")(lambda: "old")(),
}


@pytest.mark.parametrize("fill", FILLS.values(), ids=FILLS)
def test_fills_after_a_miss_are_quiet(cache, fill):
    # With a single slot, a write of any key ends every entry.
    caches = [cache(slots=1) for _ in range(3)]
    for each in caches:
        fill(each)
    # Those that are fresh and current.
    assert all(each.keys() for each in caches)
    caches[0].set("another", "that no thread has missed")
    assert [each.keys() for each in caches] == [["another"], [], []]


def test_a_refresh_is_quiet(pair, clock):
    one, other = pair
    for each in pair:
        each.take("k", lambda: "old", ttl=10, refresh_ahead=0.5)
    clock.advance(6)
    assert one.take("k", lambda: "fresh", ttl=10, refresh_ahead=0.5) == "old"
    assert until(lambda: one.get("k") == "fresh")
    assert other.get("k") == "old"


def test_with_grace_a_stale_value_is_served_and_refreshed_quietly(pair, clock):
    one, other = pair
    for each in pair:
        each.take("k", lambda: "old", ttl=10, grace=100)
    clock.advance(11)
    assert one.take("k", lambda: "fresh", ttl=10, grace=100) == "old"
    assert until(lambda: one.get("k") == "fresh")
    assert other.take("k", lambda: "fresh", ttl=10, grace=100) == "old"


@pytest.mark.parametrize("options", [{}, {"fail_safe": True}, {"timeout": PATIENCE}])
def test_a_stale_value_is_not_served_after_a_write_elsewhere(pair, clock, options):
    one, other = pair
    one.take("k", lambda: "old", ttl=10, grace=100)
    clock.advance(11)
    other.delete("k")
    assert one.take("k", lambda: "new", ttl=10, grace=100, **options) == "new"
    assert one.stats().stale_hits == 0


@pytest.mark.parametrize("write", ["set", "delete", "clear"])
@pytest.mark.parametrize("fill", ["set", "add", "set_many"])
def test_a_fill_is_dropped_whose_key_was_written_elsewhere_meanwhile(pair, fill, write):
    one, other = pair
    assert one.get_many(["k"]) == {}
    {"set": lambda: other.set("k", "new"), "delete": lambda: other.delete("k"), "clear": other.clear}[write]()
    fills = {
        "set": lambda: one.set("k", "old"),
        "add": lambda: one.add("k", "old"),
        "set_many": lambda: one.set_many({"k": "old"}) == [],
    }
    assert not fills[fill]()
    assert one.get("k") is None
    assert other.get("k") == ("new" if write == "set" else None)
    # The next one fills.
    assert one.set("k", "new")
    assert one.get("k") == "new"


def test_of_many_fills_only_those_are_dropped_whose_key_was_written(pair):
    one, other = pair
    assert one.get_many("abc") == {}
    other.delete("b")
    assert one.set_many(dict.fromkeys("abc", "old")) == ["b"]
    assert one.get_many("abc") == {"a": "old", "c": "old"}


def test_a_load_is_dropped_whose_key_was_written_elsewhere_meanwhile(pair):
    one, other = pair

    def loader():
        other.set("k", "new")
        return "old"

    assert one.take("k", loader) == "old"
    assert one.get("k") is None
    assert other.get("k") == "new"


def test_a_refresh_is_dropped_whose_key_was_written_elsewhere_meanwhile(pair, clock):
    one, other = pair
    one.take("k", lambda: "old", ttl=10)
    clock.advance(6)
    loading, written = threading.Event(), threading.Event()

    def loader():
        loading.set()
        assert written.wait(PATIENCE)
        return "old"

    assert one.take("k", loader, ttl=10, refresh_ahead=0.5) == "old"
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
        leader = pool.submit(one.take, "k", slow)
        assert loading.wait(PATIENCE)
        truth[0] = "new"
        other.delete("k")
        late = [pool.submit(one.take, "k", lambda: truth[0]) for _ in range(2)]
        assert until(lambda: waiting() + sum(each.done() for each in late) == 2)
        release.set()
        assert leader.result(PATIENCE) == "old"
        assert [each.result(PATIENCE) for each in late] == ["new", "new"]
    assert one.get("k") == "new"


def test_a_waiter_for_a_lease_does_not_get_a_fill_that_was_dropped(cache, board_of):
    one = Cache(stamps=board_of(), **QUIET)
    other = cache()
    truth = ["old"]

    def wait():
        found = one.get_or_lease("k", wait=PATIENCE)
        if found is None:
            found = truth[0]
            one.set("k", found)
        return found

    assert one.get_or_lease("k", wait=PATIENCE) is None
    mine = truth[0]
    with ThreadPoolExecutor(3) as pool:
        truth[0] = "new"
        other.delete("k")
        late = [pool.submit(wait) for _ in range(3)]
        until_waiting(3)
        assert not one.set("k", mine)
        assert [each.result(PATIENCE) for each in late] == ["new"] * 3
    assert one.get("k") == "new"


def test_a_lease_that_was_passed_on_fills_quietly(board_of):
    one, other = (Cache(stamps=board_of(), **QUIET) for _ in range(2))
    filled(other)

    def wait():
        assert one.get_or_lease("k", wait=PATIENCE) is None
        return one.set("k", "old")

    assert one.get_or_lease("k", wait=PATIENCE) is None
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(wait)
        until_waiting(1)
        end_request()
        assert late.result(PATIENCE)
    assert other.get("k") == one.get("k") == "old"


def test_clear_ends_everything_everywhere(pair):
    one, other = pair
    other.set_many({f"k{number}": number for number in range(1000)})
    one.clear()
    assert other.get_many(f"k{number}" for number in range(1000)) == {}
    assert other.keys() == []


def test_keys_that_are_tuples_are_ended_elsewhere(pair):
    one, other = pair
    key = ("a key that Django warns of",)
    filled(one, other, key=key)
    one.set(key, "new")
    assert other.get(key) is None
    assert one.get(key) == "new"


def test_two_keys_in_one_slot_cost_a_needless_miss_and_never_a_wrong_value(cache):
    one, other = cache(slots=1), cache(slots=1)
    one.set("a", 1)
    one.set("b", 2)
    assert (one.get("a"), one.get("b")) == (None, 2)
    other.set("c", 3)
    assert (one.get("b"), other.get("c")) == (None, 3)


def test_entries_that_were_written_elsewhere_leave_once_with_one_cause_and_figures_are_exact(cache, clock):
    removals = []
    one = cache(on_removal=lambda *removal: removals.append(removal), ttl=100)
    other = cache()
    for key in "abcde":
        one.set(key, key)
    one.set("f", "f", ttl=5)
    other.delete_many("abcdef")
    assert one.get("a") is None
    assert one.get_many(["b"]) == {}
    assert one.set("c", "again")
    assert not one.delete("x")
    one.delete("d")
    clock.advance(5)
    clock.advance(200)
    assert sorted((key, value) for key, value, _ in removals) == [
        *(("a", "a"), ("b", "b"), ("c", "again"), ("c", "c"), ("d", "d"), ("e", "e"), ("f", "f"))
    ]
    assert {
        ("c", "c", RemovalCause.REPLACED),
        ("d", "d", RemovalCause.DELETED),
        ("c", "again", RemovalCause.EXPIRED),
        ("e", "e", RemovalCause.EXPIRED),
        ("f", "f", RemovalCause.EXPIRED),
    } <= set(removals)
    stats = one.stats()
    assert (stats.hits, stats.misses, stats.evictions, stats.size) == (0, 2, 0, 0)
    assert sum(stats.removals.values()) == len(removals)


def test_the_weight_of_what_was_ended_elsewhere_is_given_back(cache):
    one, other = cache(max_weight=10, weigher=lambda key, value: value), cache()
    one.set("a", 6)
    other.delete("a")
    assert one.get("a") is None
    one.set("b", 7)
    assert one.stats().weight == 7
    other.delete("b")
    one.set("b", 3)
    assert one.stats().weight == 3
    assert not one.set("b", 11)
    assert one.stats().weight == 0


def test_threads_of_one_cache_never_get_what_was_written_before_they_asked(board_of, together):
    one, other = (Cache(stamps=board_of(), **QUIET) for _ in range(2))
    truth, done = [0], [0]
    lock = threading.Lock()

    def work(number):
        mine = one if number % 2 else other
        for turn in range(150):
            if number < 4:
                with lock:
                    truth[0] += 1
                    version = truth[0]
                    if turn % 2:
                        mine.set("k", version)
                    else:
                        mine.delete("k")
                    done[0] = version
            else:
                least = done[0]
                found = mine.take("k", lambda: truth[0]) if number % 3 else mine.get("k")
                if found is None:
                    mine.set("k", truth[0])
                else:
                    assert found >= least
                if number % 5 == 0:
                    mine.touch("k", 100)
        end_request()

    assert together(work) == [None] * 32


@pytest.fixture
def _switches_often():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


READS = 20_000


@pytest.mark.usefixtures("_switches_often")
@pytest.mark.parametrize(
    "write",
    [
        lambda cache, number: cache.set("k", number),
        lambda cache, number: cache.set("k", number, 1000 + number),
        lambda cache, number: cache.set_many({"k": number}),
        lambda cache, number: cache.incr("k"),
        lambda cache, number: cache.touch("k", 1000 + number),
    ],
    ids=["set", "set with a TTL", "set_many", "incr", "touch"],
)
def test_beside_a_writer_in_a_tight_loop_the_readers_of_its_process_never_miss(cache, write):
    one = cache()
    one.set("k", 0)
    start = threading.Barrier(3)
    is_done = threading.Event()
    written = 0

    def keep_writing():
        nonlocal written
        start.wait(PATIENCE)
        try:
            while not is_done.is_set():
                written += 1
                assert write(one, written) is not False
        finally:
            is_done.set()

    def read():
        start.wait(PATIENCE)
        found = []
        # A compiled core reads so fast that the writer may not have begun.
        while not is_done.is_set() and (len(found) < READS or written < 3):
            found.append(one.get("k"))
        return found

    with ThreadPoolExecutor(3) as pool:
        writer = pool.submit(keep_writing)
        readers = [pool.submit(read) for _ in range(2)]
        try:
            found = [value for each in readers for value in each.result(PATIENCE * 3)]
        finally:
            is_done.set()
        writer.result(PATIENCE)
    assert None not in found
    assert len(found) >= 2 * READS
    assert one.stats().hits == len(found)
    assert one.stats().misses == 0


# What a thread remembers of its misses.


@pytest.mark.parametrize("fill", ["set", "set_many"])
@pytest.mark.parametrize("write", ["set", "delete"])
def test_a_fill_is_dropped_whose_key_was_written_by_another_thread_of_the_process_meanwhile(pair, fill, write):
    one, _ = pair
    assert one.get("k") is None
    if write == "set":
        Context().run(one.set, "k", "new")
        # A hit is no miss that could explain the next set.
        assert one.get("k") == "new"
    else:
        Context().run(one.delete, "k")
    assert not (one.set("k", "old") if fill == "set" else one.set_many({"k": "old"}) == [])
    # With a set of either sort, which of the two values is the newer is not known: so none is returned.
    assert one.get("k") is None
    assert one.set("k", "newest")
    assert one.get("k") == "newest"


def test_two_threads_that_miss_together_fill_quietly(pair):
    one, other = pair
    filled(other)
    assert one.get("k") is None
    Context().run(filled, one)
    assert one.set("k", "old")
    assert one.get("k") == other.get("k") == "old"


LOADS = {
    "take": lambda cache: cache.take("k", lambda: "old", ttl=10),
    "get_or_lease that waits": lambda cache: _waits_for_a_lease(cache),
}


def _waits_for_a_lease(cache):
    """Another caller has the lease, and sets the key."""
    context = Context()
    assert context.run(cache.get_or_lease, "k", wait=PATIENCE) is None
    with ThreadPoolExecutor(1) as pool:

        def fill():
            until_waiting(1)
            context.run(cache.set, "k", "old", 10)

        filling = pool.submit(fill)
        assert cache.get_or_lease("k", wait=PATIENCE) == "old"
        filling.result(PATIENCE)


@pytest.mark.parametrize("load", LOADS.values(), ids=LOADS)
def test_a_miss_that_was_served_explains_no_later_set(pair, load):
    one, other = pair
    load(one)
    filled(other)
    one.evict_to(0)
    one.set("k", "new")
    assert other.get("k") is None


@pytest.mark.parametrize("write", ["delete", "clear", "delete_many"])
def test_a_thread_that_missed_and_deletes_a_key_can_set_it_at_once(pair, write):
    one, _ = pair
    assert one.get("k") is None
    {"delete": lambda: one.delete("k"), "clear": one.clear, "delete_many": lambda: one.delete_many(["k"])}[write]()
    assert one.set("k", "new")
    assert one.get("k") == "new"


# Writes that build on what is here.


def test_a_sum_does_not_outlive_a_write_elsewhere_while_it_was_made(pair):
    one, other = pair
    filled(one, value=5)

    def add_one(value):
        other.set("k", 100)
        return value + 1

    with pytest.raises(KeyError):
        one.update("k", add_one)
    assert one.get("k") is None
    assert other.get("k") == 100


def test_clearing_a_memoized_function_ends_what_the_others_remember_of_it(pair):
    def remembering(cache, value):
        @cache.memoize()
        def function(number):
            return value[0]

        return function

    value = ["old"]
    one, other = (remembering(each, value) for each in pair)
    assert other(1) == "old"
    value[0] = "new"
    one.cache_clear()
    assert other(1) == "new"


# The board is removed, or the process forks.


def test_a_board_that_was_removed_is_made_anew_and_the_cache_emptied(pair, path, clock, caplog):
    one, other = pair
    filled(one, other)
    path.unlink()
    clock.advance(BOARD_CHECK)
    assert one.get("missing") is None
    assert "stamps of the cache 'default' were removed; they are new" in caplog.text
    assert len(one) == 0
    assert other.get("missing") is None
    filled(one, other)
    one.set("k", "new")
    assert other.get("k") is None


def test_an_exception_while_a_board_is_made_anew_leaves_no_cache_on_the_old_one(cache, tmp_path, clock):
    with quiet():
        for target in count(1):
            one = cache(slots=64)
            one.set("k", "old")
            (file,) = tmp_path.iterdir()
            file.unlink()
            clock.advance(BOARD_CHECK)
            delivery = Delivery(target)
            interrupted = delivery.run(lambda one=one: one.get("missing"))
            # Otherwise, the next check finds out.
            one.get("missing")
            clock.advance(BOARD_CHECK)
            one.get("missing")
            other = cache(slots=64)
            end_request()
            assert one.set("k", "newer"), delivery.where
            filled(other, key="j")
            assert one.get("k") == "newer", delivery.where
            assert other.set("k", "newest")
            assert one.get("k") is None, delivery.where
            one.close()
            other.close()
            if not interrupted:
                break
    assert target > 20


def test_a_child_of_a_fork_is_a_process_of_its_own_on_the_board(tmp_path):
    assert run(
        """
        cache = Cache(stamps=SharedStamps("test", Path(sys.argv[1])))
        cache.set("k", "old")
        cache.set("l", "old")

        def child():
            assert cache.get("k") == "old"
            cache.set("k", "new")
            assert cache.get("k") == "new"

        print(in_child(child), cache.get("k"), cache.get("l"))

        def child():
            assert cache.get("l") is None
        cache.delete("l")
        print(in_child(child))
        """,
        tmp_path,
    ) == ["0", "None", "old", "0"]


def test_children_forked_in_the_middle_of_writes_go_on_and_never_get_an_old_value(tmp_path):
    assert run(
        """
        cache = Cache(stamps=SharedStamps("test", Path(sys.argv[1])), interval=0.01)
        stop = threading.Event()

        def work(number):
            while not stop.is_set():
                for turn in range(50):
                    cache.set(f"{number} {turn}", turn, ttl=5)
                    cache.delete(f"{number} {turn}")
                    cache.get(f"{number} {turn}")

        threads = [threading.Thread(target=work, args=[number]) for number in range(3)]
        for thread in threads:
            thread.start()
        failed = 0
        for turn in range(25):
            cache.set("k", turn)

            def child():
                cache.set("k", "child's")
                assert cache.get("k") == "child's"
                thread = threading.Thread(target=cache.set, args=["k", "its thread's"])
                thread.start()
                thread.join(20)
                assert cache.get("k") == "its thread's"

            failed += in_child(child)
            assert cache.get("k") is None
        stop.set()
        for thread in threads:
            thread.join()
        print(failed)
        """,
        tmp_path,
    ) == ["0"]


def test_a_child_forked_after_the_board_was_removed_finds_no_entry_of_before_current(tmp_path):
    assert run(
        """
        folder = Path(sys.argv[1])
        cache = Cache(stamps=SharedStamps("test", folder))
        other = Cache(stamps=SharedStamps("test", folder))
        assert cache.get("k") is None
        cache.set("k", "old")
        other.delete("k")
        for file in folder.iterdir():
            file.unlink()

        def child():
            assert cache.get("k") is None

        print(in_child(child))
        """,
        tmp_path,
    ) == ["0"]


def test_a_process_that_only_writes_finds_out_too_that_the_board_was_removed(pair, path, clock, cache):
    one, _ = pair
    filled(one)
    path.unlink()
    started_later = cache()
    filled(started_later)
    clock.advance(BOARD_CHECK)
    one.set("j", 1)
    one.delete("k")
    assert started_later.get("k") is None


def test_a_child_that_cannot_open_the_board_has_caches_that_work(tmp_path):
    """None of its stamps may be one of its parent's, and no other cache may be left with its locks held."""
    assert run(
        """
        import logging

        folder = Path(sys.argv[1]) / "folder"
        folder.mkdir()
        caches = [Cache(), Cache(stamps=SharedStamps("test", folder)), Cache()]
        caches[1].set("k", 1)
        folder.rename(folder.with_name("elsewhere"))
        logging.disable()
        (asked, ask), (answered, answer) = os.pipe(), os.pipe()

        def write_too():
            os.read(asked, 1)
            caches[1].set("k", 3)
            os.write(answer, b".")

        def child():
            threads = [threading.Thread(target=cache.set, args=["k", 2], daemon=True) for cache in caches]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(5)
            assert [cache.get("k") for cache in caches] == [2, 2, 2]
            os.write(ask, b".")
            os.read(answered, 1)
            assert [cache.get("k") for cache in caches] == [2, None, 2]

        threading.Thread(target=write_too).start()
        print(in_child(child))
        """,
        tmp_path,
    ) == ["0"]


def test_no_process_writes_a_stamp_that_its_parent_or_child_writes(tmp_path):
    """Parent and child write equally often, so stamps that go on from the same number would meet in the only slot."""
    assert (
        run(
            """
        from wheelcache.leases.fill_scope import end_request

        caches = [Cache(stamps=SharedStamps("test", Path(sys.argv[1]), 1)) for _ in range(2)]
        (asked, ask), (answered, answer) = os.pipe(), os.pipe()

        def write():
            for cache in caches:
                cache.set("k", 1)
            assert caches[1].get("k") == 1

        def check_that_another_process_wrote():
            assert [cache.get("k") for cache in caches] == [None, None]
            # So that the next write is no fill of what was missed here.
            end_request()

        def answer_child():
            os.read(asked, 1)
            check_that_another_process_wrote()
            write()
            os.write(answer, b".")

        def child():
            write()
            os.write(ask, b".")
            os.read(answered, 1)
            check_that_another_process_wrote()

        for _ in range(3):
            write()
            parent = threading.Thread(target=answer_child)
            parent.start()
            print(in_child(child))
            parent.join()
        """,
            tmp_path,
        )
        == ["0"] * 3
    )


# Any order of steps.

KEYS = st.sampled_from(["a", "a", "a", ("b",)])
CACHES = st.integers(0, 2)
THREADS_EACH = 2


class NoCacheReturnsWhatIsOlderThanTheLastWrite(RuleBasedStateMachine):
    """Three caches on one board of few slots, each used by two threads that do one request at a time, over a database.

    Threads are contexts, so one runs until its next step and then another. ``floor`` is what was true when the last
    write of the key that has returned began: no get may return what is older.
    """

    @initialize(slots=st.sampled_from([1, 3, 64]), max_entries=st.sampled_from([None, 1, 2]))
    def make(self, slots, max_entries):
        self.directory = tempfile.TemporaryDirectory()
        self.clock = ManualClock()
        self.caches = [
            Cache(
                stamps=SharedStamps(NAME, Path(self.directory.name), slots),
                max_entries=max_entries,
                clock=self.clock,
                jitter=0,
                log_interval=None,
                sample_interval=None,
            )
            for _ in range(3)
        ]
        self.threads = [[Context() for _ in range(THREADS_EACH)] for _ in range(3)]
        self.fills = {}
        self.truth = Counter()
        self.floor = Counter()
        self.versions = count(1)

    def teardown(self):
        if hasattr(self, "directory"):
            self.directory.cleanup()

    def idle(self, number):
        """A thread of this cache that has no request, if there is one."""
        for which, context in enumerate(self.threads[number]):
            if (number, which) not in self.fills:
                return context
        return None

    def check(self, key, found, floor):
        assert found is None or found >= floor

    @rule(number=CACHES, key=KEYS, how=st.sampled_from(["set", "set_many", "delete", "delete_many"]))
    def write(self, number, key, how):
        context = self.idle(number)
        if context is None:
            return
        cache, version = self.caches[number], next(self.versions)
        self.truth[key] = version
        if how == "set":
            context.run(cache.set, key, version, 10)
        elif how == "set_many":
            context.run(cache.set_many, {key: version}, 10)
        elif how == "delete":
            context.run(cache.delete, key)
        else:
            context.run(cache.delete_many, [key])
        self.floor[key] = version

    @rule(number=CACHES)
    def clear(self, number):
        for key in list(self.truth):
            self.truth[key] = next(self.versions)
        context = self.idle(number) or Context()
        context.run(self.caches[number].clear)
        self.floor.update(self.truth - self.floor)

    @rule(number=CACHES, key=KEYS, ttl=st.integers(1, 30))
    def touch(self, number, key, ttl):
        self.caches[number].touch(key, ttl)

    @rule(number=CACHES, which=st.integers(0, THREADS_EACH - 1), key=KEYS, many=st.booleans())
    def begin_a_fill(self, number, which, key, many):
        if (number, which) in self.fills:
            return
        cache, context = self.caches[number], self.threads[number][which]
        found = context.run(cache.get_many, [key]).get(key) if many else context.run(cache.get, key)
        self.check(key, found, self.floor[key])
        if found is None:
            self.fills[number, which] = (key, self.truth[key], self.clock())

    @precondition(lambda self: self.fills)
    @rule(data=st.data(), how=st.sampled_from(["set", "add", "set_many", "give up"]))
    def end_a_fill(self, data, how):
        number, which = data.draw(st.sampled_from(sorted(self.fills)))
        key, value, missed_at = self.fills.pop((number, which))
        is_news = self.clock() - missed_at > FILL_WINDOW
        if is_news:
            # By then a set ends what others wrote, so its value must be of now: caches do not guard a slower fill.
            value = self.truth[key] = next(self.versions)
        cache, context = self.caches[number], self.threads[number][which]
        stored = False
        if how == "set":
            stored = context.run(cache.set, key, value, 10)
        elif how == "add":
            stored = context.run(cache.add, key, value, 10)
        elif how == "set_many":
            stored = not context.run(cache.set_many, {key: value}, 10)
        context.run(end_request)
        if is_news and stored:
            self.floor[key] = value

    @rule(number=CACHES, key=KEYS, elsewhere=st.none() | CACHES)
    def take(self, number, key, elsewhere):
        """Perhaps the key is deleted in another process meanwhile."""
        context, floor = self.idle(number), self.floor[key]
        if context is None:
            return

        def loader():
            value = self.truth[key]
            if elsewhere is not None:
                self.truth[key] = next(self.versions)
                Context().run(self.caches[elsewhere].delete, key)
                self.floor[key] = self.truth[key]
            return value

        self.check(key, context.run(self.caches[number].take, key, loader, 10), floor)

    @rule(number=CACHES, key=KEYS)
    def read(self, number, key):
        self.check(key, Context().run(self.caches[number].get, key), self.floor[key])

    @rule(seconds=st.integers(1, 12))
    def time_passes(self, seconds):
        self.clock.advance(seconds)

    @invariant()
    def no_read_would_get_what_is_older(self):
        for cache in getattr(self, "caches", ()):
            assert cache.stats().size == len(cache) >= len(cache.keys())
            for key in cache.keys():
                # A hit, so it changes nothing but the order.
                self.check(key, cache.get(key), self.floor[key])


NoCacheReturnsWhatIsOlderThanTheLastWrite.TestCase.settings = settings(
    max_examples=250, stateful_step_count=50, deadline=None
)
TestNoCacheReturnsWhatIsOlderThanTheLastWrite = NoCacheReturnsWhatIsOlderThanTheLastWrite.TestCase


def test_a_set_of_what_another_thread_set_since_it_was_missed_long_ago_is_news(pair, clock):
    one, other = pair
    assert one.get("k") is None
    in_a_thread(lambda: (one.get("k"), one.set("k", "filled")))
    other.get("k")
    other.set("k", "filled")
    clock.advance(FILL_WINDOW + 1)
    assert one.get("k") == "filled"
    one.set("k", "new")
    assert one.get("k") == "new"
    assert other.get("k") is None


def test_what_one_cache_missed_is_no_matter_of_another_at_the_same_place_in_memory(cache):
    other = cache()
    for number in range(20):
        key = f"k{number}"
        assert cache().get(key) is None
        other.set(key, "old")
        cache().set(key, "new")
        assert other.get(key) is None


def test_a_board_that_cannot_be_made_anew_is_logged_and_no_caller_gets_the_error(pair, path, clock, caplog):
    one, _ = pair
    filled(one)
    path.unlink()
    path.mkdir()
    clock.advance(BOARD_CHECK)
    assert one.get("other") is None
    assert one.get("k") == "old"
    assert "cannot be made anew" in caplog.text
