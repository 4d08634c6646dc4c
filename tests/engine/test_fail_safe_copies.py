"""Which copies a FAIL_SAFE near cache has when its backing store fails: never one older than what it has read since."""

import asyncio
import itertools
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.engine.near_caches import MISSING, Behind, awaitable, down, held_back, level_of
from tests.waiting import PATIENCE, THREADS

READS = {
    "get": lambda level, behind, key: level.get(key, behind.read(key)),
    "get_many": lambda level, behind, key: level.get_many([key], behind.read_many).get(key, MISSING),
    "aget": lambda level, behind, key: asyncio.run(level.aget(key, awaitable(behind.read(key)))),
    "aget_many": lambda level, behind, key: asyncio.run(level.aget_many([key], awaitable(behind.read_many))).get(
        key, MISSING
    ),
}


@pytest.fixture
def behind():
    behind = Behind()
    yield behind
    behind.let_go.set()


@pytest.fixture
def level(clock):
    """A fail-safe level of timeout 60 and grace 100, tracked and trusted."""
    level = level_of(clock, tracked=True, fail_safe=True, grace=100.0)
    level.trust(True)
    return level


@pytest.fixture
def pool():
    with ThreadPoolExecutor(THREADS) as pool:
        yield pool


@pytest.fixture(params=READS.values(), ids=READS)
def read(request):
    return request.param


def in_an_outage(level, behind, key):
    """What ``get`` returns for ``key`` when the store behind has just failed."""
    before, behind.error = behind.error, ConnectionError("down")
    found = level.get(key, behind.read(key))
    behind.error = before
    level.read(behind.read("other"))
    return found


def test_a_read_while_tracking_is_lost_replaces_the_copy(level, behind, read):
    behind.values["k"] = "v1"
    assert read(level, behind, "k") == "v1"
    level.trust(False)
    behind.values["k"] = "v2"
    assert read(level, behind, "k") == "v2"
    assert in_an_outage(level, behind, "k") == "v2"
    assert read(level, behind, "k") == "v2"


def test_a_read_while_tracking_is_lost_that_finds_nothing_drops_the_copy(level, behind, read):
    behind.values["k"] = "v1"
    read(level, behind, "k")
    level.trust(False)
    behind.values.clear()
    assert read(level, behind, "k") is MISSING
    assert in_an_outage(level, behind, "k") is MISSING


@pytest.mark.parametrize("has", ["has", "ahas"])
def test_a_key_that_was_found_to_be_gone_is_not_served(level, behind, has):
    behind.values["k"] = "v1"
    level.get("k", behind.read("k"))
    level.trust(False)
    behind.values.clear()
    if has == "has":
        assert not level.has("k", behind.has("k"))
    else:
        assert not asyncio.run(level.ahas("k", awaitable(behind.has("k"))))
    assert in_an_outage(level, behind, "k") is MISSING


@pytest.mark.parametrize("by", ["read", "aread"])
def test_a_read_beside_the_copies_drops_an_older_one(level, behind, by):
    behind.values["k"] = "v1"
    level.get("k", behind.read("k"))
    level.trust(False)
    behind.values["k"] = "v2"
    if by == "read":
        assert level.read(behind.read("k"), "k") == "v2"
    else:
        assert asyncio.run(level.aread(awaitable(behind.read("k")), "k")) == "v2"
    assert in_an_outage(level, behind, "k") is MISSING


def test_what_is_read_while_tracking_is_lost_is_not_served_as_fresh(level, behind, read):
    level.trust(False)
    behind.values["k"] = "v1"
    assert read(level, behind, "k") == "v1"
    behind.values["k"] = "v2"
    assert read(level, behind, "k") == "v2"
    assert level.cache.get("k") is None
    level.trust(True)
    behind.values["k"] = "v3"
    assert read(level, behind, "k") == "v3"
    assert level.has("k", behind.has("k"))


def test_a_copy_of_before_tracking_came_back_is_not_served_as_fresh_and_is_served_in_an_outage(level, behind, read):
    behind.values["k"] = "v1"
    read(level, behind, "k")
    level.trust(False)
    level.trust(True)
    assert level.cache.get("k") is None
    assert in_an_outage(level, behind, "k") == "v1"
    # Asking for it does not remove it.
    assert in_an_outage(level, behind, "k") == "v1"
    behind.values["k"] = "v2"
    assert read(level, behind, "k") == "v2"
    assert in_an_outage(level, behind, "k") == "v2"


def test_copies_outlive_repeated_losses_of_tracking(level, behind):
    behind.values = {f"k{number}": number for number in range(100)}
    for number in range(0, 100, 2):
        level.get(f"k{number}", behind.read(f"k{number}"))
    for loss in range(7):
        level.trust(False)
        odd = f"k{2 * loss + 1}"
        level.get(odd, behind.read(odd))
        level.trust(True)
    level.trust(False)
    down(behind)
    found = level.get_many(list(behind.values), behind.read_many)
    assert found == {f"k{number}": number for number in (*range(0, 100, 2), *range(1, 15, 2))}


def test_what_was_told_to_be_written_after_tracking_came_back_is_not_served(level, behind, read):
    behind.values["k"] = "v1"
    read(level, behind, "k")
    level.trust(False)
    level.trust(True)
    level.invalidated([b"k"])
    assert in_an_outage(level, behind, "k") is MISSING


def test_what_this_process_wrote_while_tracking_was_lost_is_not_served(level, behind, read):
    behind.values["k"] = "v1"
    read(level, behind, "k")
    level.trust(False)
    level.write(["k"], behind.set("k", "v2"))
    assert in_an_outage(level, behind, "k") is MISSING


def test_a_copy_that_was_read_without_tracking_is_served_within_its_timeout_and_grace(level, behind, clock, read):
    level.trust(False)
    behind.values["k"] = "v1"
    read(level, behind, "k")
    clock.advance(159.9)
    assert in_an_outage(level, behind, "k") == "v1"
    clock.advance(0.1)
    assert in_an_outage(level, behind, "k") is MISSING


@pytest.mark.parametrize("slow", ["get", "get_many"])
@pytest.mark.parametrize("fast", READS)
def test_a_slow_read_does_not_bring_back_what_a_later_one_has_replaced(level, behind, pool, slow, fast):
    level.trust(False)
    behind.values["k"] = "v1"
    reading = held_back(behind, pool, READS[slow], level, behind, "k")
    quick = Behind()
    quick.values["k"] = "v2"
    assert READS[fast](level, quick, "k") == "v2"
    behind.let_go.set()
    assert reading.result(PATIENCE) == "v1"
    assert in_an_outage(level, behind, "k") is MISSING


def test_a_slow_read_does_not_bring_back_what_was_written_meanwhile(level, behind, pool):
    level.trust(False)
    behind.values["k"] = "v1"
    reading = held_back(behind, pool, READS["get"], level, behind, "k")
    quick = Behind()
    level.write(["k"], quick.set("k", "v2"))
    behind.let_go.set()
    assert reading.result(PATIENCE) == "v1"
    assert in_an_outage(level, behind, "k") is MISSING


def test_reads_that_overlap_and_find_the_same_keep_the_copy(level, behind, pool):
    level.trust(False)
    behind.values["k"] = "v1"
    level.get("k", behind.read("k"))
    slow = held_back(behind, pool, READS["get"], level, behind, "k")
    quick = Behind()
    quick.values = behind.values
    assert level.get_many(["k"], quick.read_many) == {"k": "v1"}
    behind.let_go.set()
    assert slow.result(PATIENCE) == "v1"
    assert in_an_outage(level, behind, "k") == "v1"


def test_without_tracking_no_caller_waits_for_the_read_of_another(level, behind, pool):
    """It may have been read before a write that the second caller knows of."""
    level.trust(False)
    behind.values["k"] = "v1"
    slow = held_back(behind, pool, READS["get"], level, behind, "k")
    quick = Behind()
    quick.values["k"] = "v2"
    assert level.get("k", quick.read("k")) == "v2"
    behind.let_go.set()
    slow.result(PATIENCE)


@pytest.mark.parametrize("regained", [False, True])
def test_what_was_read_when_tracking_was_lost_meanwhile_is_a_copy_for_outages_only(level, behind, pool, read, regained):
    behind.values["k"] = "v1"
    reading = held_back(behind, pool, read, level, behind, "k")
    level.trust(False)
    if regained:
        level.trust(True)
    behind.let_go.set()
    assert reading.result(PATIENCE) == "v1"
    assert level.cache.get("k") is None
    assert in_an_outage(level, behind, "k") == "v1"


def test_threads_that_read_while_tracking_is_lost_never_get_what_is_older_than_their_last_read(level, together, clock):
    """A number that is counted up, and never told. Every thread reads it, and then fails to."""
    truth = itertools.count()
    level.trust(False)

    def fails():
        raise ConnectionError("down")

    def run(number):
        for _ in range(200):
            # So that the circuit breaker lets reads through now and then.
            clock.advance(0.01)
            least = level.get("k", lambda: next(truth))
            found = level.get("k", fails)
            assert MISSING in (least, found) or found >= least

    assert together(run) == [None] * THREADS


def test_without_fail_safe_no_copy_is_kept_of_what_is_read_while_tracking_is_lost(clock, behind, read):
    level = level_of(clock, tracked=True)
    level.trust(True)
    behind.values = {"k": "v1", "l": "v1"}
    read(level, behind, "l")
    level.trust(False)
    read(level, behind, "k")
    level.trust(True)
    assert len(level.cache) == 0
