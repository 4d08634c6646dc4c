"""How long a miss explains a later ``set`` as a fill, which other processes are not told of."""

import subprocess
import sys
import textwrap
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.waiting import PATIENCE
from wheelcache import Cache
from wheelcache.coherence.shared_stamps import SharedStamps
from wheelcache.leases.fill_scope import end_request
from wheelcache.loading.policy import PLAIN
from wheelcache.loading.steps import run

FILL_WINDOW = 10.0
"""Seconds from a miss for which a set counts as a fill."""


@pytest.fixture
def processes(tmp_path, clock):
    """Two caches that act like processes of their own: each has a board on the same file."""
    return [
        Cache(stamps=SharedStamps("test", tmp_path), clock=clock, jitter=0, log_interval=None, sample_interval=None)
        for _ in range(2)
    ]


@pytest.fixture(autouse=True)
def _request():
    """What a test misses is no business of the next."""
    yield
    end_request()


WRITES = {
    "set": lambda cache: cache.set("k", "new"),
    "set with a listener": lambda cache: setattr(cache, "on_removal", print) or cache.set("k", "new"),
    "add": lambda cache: cache.add("k", "new"),
    "set_many": lambda cache: cache.set_many({"k": "new"}) == [],
}

MISSES = {
    "get": lambda cache: cache.get("k"),
    "get_many": lambda cache: cache.get_many(["k"]).get("k"),
    "get_or_lease": lambda cache: cache.get_or_lease("k", wait=1),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
@pytest.mark.parametrize("miss", MISSES.values(), ids=MISSES)
def test_a_write_long_after_a_miss_ends_the_entries_of_the_others(processes, clock, miss, write):
    one, other = processes
    assert miss(one) is None
    other.get("k")
    other.set("k", "old")
    clock.advance(FILL_WINDOW + 1)
    assert write(one)
    assert one.get("k") == "new"
    assert other.get("k") is None


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
@pytest.mark.parametrize("miss", MISSES.values(), ids=MISSES)
def test_a_write_soon_after_a_miss_is_a_fill(processes, clock, miss, write):
    one, other = processes
    assert miss(one) is None
    other.get("k")
    other.set("k", "old")
    clock.advance(FILL_WINDOW)
    assert write(one)
    assert one.get("k") == "new"
    assert other.get("k") == "old"


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_a_write_soon_after_a_miss_and_a_write_elsewhere_is_not_kept(processes, clock, write):
    """It may be a computation that began before that write, and is older."""
    one, other = processes
    assert one.get("k") is None
    other.set("k", "newer")
    clock.advance(FILL_WINDOW)
    assert not write(one)
    assert (one.get("k"), other.get("k")) == (None, "newer")


@pytest.mark.parametrize("miss", MISSES.values(), ids=MISSES)
@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_a_write_long_after_a_miss_and_a_write_elsewhere_is_kept_and_ends_the_other(processes, clock, write, miss):
    """A consumer missed the state of something, another process wrote it, and now the consumer has news of it."""
    one, other = processes
    assert miss(one) is None
    clock.advance(5)
    other.set("k", "old")
    clock.advance(FILL_WINDOW)
    assert write(one)
    assert (one.get("k"), other.get("k")) == ("new", None)


def test_a_load_is_a_fill_however_long_it_takes(processes, clock):
    one, other = processes
    other.get("k")
    other.set("k", "old")

    def load():
        clock.advance(10 * FILL_WINDOW)
        return "old"

    assert one.take("k", load) == "old"
    assert other.get("k") == "old"


def test_what_was_deleted_while_it_was_loaded_for_long_does_not_come_back(processes, clock):
    one, other = processes

    def load():
        clock.advance(10 * FILL_WINDOW)
        other.delete("k")
        return "old"

    assert one.take("k", load) == "old"
    assert one.get("k") is None


def test_a_load_of_many_beside_another_load_is_quiet_and_drops_what_it_finds_to_be_other(processes):
    one, other = processes
    other.get("k")
    other.set("k", "old")

    def slow():
        run(one.loading.load_many(["k"], lambda keys: {"k": "newer"}, 60, PLAIN))
        return "old"

    assert one.take("k", slow) == "old"
    assert one.get("k") is None
    assert other.get("k") == "old"


OWN_WRITES = {
    "touch": lambda cache: cache.touch("k"),
    "incr": lambda cache: cache.incr("k"),
    "transform": lambda cache: cache.update("k", lambda value: value + 1),
    "pop": lambda cache: cache.pop("k"),
}


@pytest.mark.parametrize("write", OWN_WRITES.values(), ids=OWN_WRITES)
def test_after_a_write_of_its_own_a_thread_fills_nothing(processes, write):
    """It missed the key, another thread filled it, and it wrote that: what it sets now is news."""
    one, other = processes
    assert one.get("k") is None
    in_another_thread(lambda: one.get("k") or one.set("k", 1))
    assert write(one)
    other.get("k")
    other.set("k", "old")
    assert one.set("k", "new")
    assert one.get("k") == "new"
    assert other.get("k") is None


def test_renewing_what_is_there_is_no_news_and_keeps_the_new_time_exactly(processes, clock):
    one, other = processes
    for each in processes:
        each.get("k")
        each.set("k", "value", 10)
    assert one.renew("k", "value", 100)
    assert other.get("k") == "value"
    clock.advance(99)
    assert (one.get("k"), other.get("k")) == ("value", None)
    clock.advance(1)
    assert one.get("k") is None


def test_what_is_not_there_or_another_value_or_overwritten_elsewhere_is_not_renewed(processes):
    one, other = processes
    assert not one.renew("k", "value")
    one.set("k", "value")
    assert not one.renew("k", "another")
    assert not one.renew("k", b"value")
    other.set("k", "value")
    assert not one.renew("k", "value")
    assert (one.get("k"), other.get("k")) == (None, "value")


def in_another_thread(function):
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result(PATIENCE)


@pytest.mark.parametrize(("count", "letters"), [(500, 10_000), (20_000, 1)], ids=["long keys", "many keys"])
def test_misses_that_no_set_follows_take_a_bounded_amount_of_memory(processes, count, letters):
    one, _ = processes
    tracemalloc.start()
    try:
        for number in range(count):
            one.get(f"{number} {'x' * letters}")
            one.get(("group", f"{number} {'x' * letters}"))
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken < 1_000_000


@pytest.mark.parametrize("key", ["x" * 10_000, ("group", "x" * 10_000), ("group", 1), 1, b"x" * 300])
def test_fills_of_long_keys_and_of_keys_of_all_sorts_are_quiet(processes, key):
    one, other = processes
    for each in processes:
        assert each.get(key) is None
        assert each.set(key, 1)
    assert one.get(key) == other.get(key) == 1


@pytest.mark.parametrize(("missed", "key"), [(1, 1.0), (True, 1), (("a", 1), ("a", True))])
def test_a_fill_under_an_equal_key_is_quiet(processes, missed, key):
    for each in processes:
        assert each.get(missed) is None
        assert each.set(key, 1)
    assert [each.get(key) for each in processes] == [1, 1]


def test_a_long_key_is_not_taken_for_another(processes):
    one, other = processes
    keys = ["x" * 10_000, ("x" * 10_000,), repr(("x" * 10_000,)), "x" * 10_001]
    for key in keys:
        for missed in keys:
            one.get(missed)
        end_request()
        other.set(key, "old")
        for missed in keys:
            if missed != key:
                one.get(missed)
        one.set(key, "new")
        assert other.get(key) is None
        one.clear()


CONSUMER = """
import sys
from pathlib import Path
from wheelcache import Cache, ManualClock
from wheelcache.coherence.shared_stamps import SharedStamps

clock = ManualClock()
cache = Cache(stamps=SharedStamps("test", Path(sys.argv[1])), clock=clock)
for line in sys.stdin:
    what, *arguments = line.split()
    print(clock.advance(float(*arguments)) if what == "advance" else getattr(cache, what)(*arguments), flush=True)
"""


def test_a_consumer_that_sets_what_it_missed_long_ago_ends_the_entry_of_another_process(tmp_path):
    """Neither process has requests: no end of one makes it forget what it missed."""

    def tell(process, line):
        process.stdin.write(line + "\n")
        process.stdin.flush()
        return process.stdout.readline().strip()

    command = [sys.executable, "-c", textwrap.dedent(CONSUMER), str(tmp_path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as one, subprocess.Popen(command, **pipes) as other:
        try:
            assert [tell(each, "get state") for each in (one, other)] == ["None"] * 2
            assert tell(other, "set state old") == "True"
            tell(one, f"advance {FILL_WINDOW + 1}")
            assert tell(one, "set state new") == "True"
            assert [tell(each, "get state") for each in (one, other)] == ["new", "None"]
        finally:
            one.kill()
            other.kill()
