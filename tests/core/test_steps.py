"""Steps are atomic with threads and failing clocks, and leave no memory behind."""

import gc
import threading
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.core.cores import advance_all
from tests.memory import traced
from wheelcache.core.contract import MISSING, STORED

pytestmark = pytest.mark.deep


def balance(core):
    """Return the number of values that were ever stored: each is in the core or was removed."""
    return len(core) + sum(core.counts().removals.values())


def test_a_reader_never_misses_a_key_that_is_set_over_and_over_and_a_set_finds_the_oldest(make, hasty_interpreter):
    core, done = make(max_entries=8), threading.Event()
    core.set("key", 0, 100)

    def read():
        missed = 0
        while not done.is_set():
            missed += core.find("key", MISSING) is MISSING
            for key in range(4):
                core.find(key)
        return missed

    with ThreadPoolExecutor(2) as pool:
        readers = [pool.submit(read) for _ in range(2)]
        try:
            for number in range(30_000):
                core.set("key", number, 100 if number % 2 else None)
                assert core.set(number % 12, number, 100) & STORED
        finally:
            done.set()
    assert [reader.result() for reader in readers] == [0, 0]
    assert len(core) == 8


def test_a_clock_that_raises_changes_nothing(make, clock):
    core = make()
    core.set("key", 1, 10)

    def broken():
        raise OSError("no clock")

    before, reading = balance(core), [clock]
    core.use_clock(lambda: reading[0]())
    reading[0] = broken
    for call in (lambda: core.set("key", 2, 10), lambda: core.find("key"), lambda: core.delete("key"), core.advance):
        with pytest.raises(OSError, match="no clock"):
            call()
    reading[0] = clock
    assert balance(core) == before
    assert core.find("key") == 1


KEYS = [f"key {number}" for number in range(6000)]


def fill(core):
    for number, key in enumerate(KEYS):
        core.set(key, "x" * 50 + str(number), 100 + number % 50)


WAYS_TO_LEAVE = {
    "overwrite": lambda core, clock: ([fill(core) for _ in range(3)], core.clear()),
    "delete": lambda core, clock: [core.delete(key) for key in KEYS],
    "expire": lambda core, clock: setattr(clock, "now", clock.now + 1000),
    "clear": lambda core, clock: core.clear(),
    "evict": lambda core, clock: [core.evict(size=0) for _ in range(6)],
}


@pytest.mark.alone
@pytest.mark.parametrize("leave", WAYS_TO_LEAVE)
def test_memory_follows_live_entries(make, clock, leave):
    core = make(max_entries=6000)
    files = (__file__, "*/wheelcache/core/*")
    tracemalloc.start()
    try:
        fill(core)
        peak = traced(*files)
        WAYS_TO_LEAVE[leave](core, clock)
        advance_all(core)
        gc.collect()
        assert len(core) == 0
        assert traced(*files) < 0.05 * peak
    finally:
        tracemalloc.stop()
