"""Steps are atomic with threads, finalizers and failing clocks."""

import dis
import gc
import threading
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from tests.core.cores import advance_all, labels
from tests.instructions import run_watched
from tests.memory import traced
from tests.waiting import join, start
from wheelcache.core import entry_map
from wheelcache.core.contract import KEEP_TTL, MISSING, STORED
from wheelcache.core.watches import Watch

pytestmark = pytest.mark.deep


def balance(core):
    """Return the number of values that were ever stored: each is in the core or was removed."""
    return len(core) + sum(core.counts().removals.values())


OPERATIONS = {
    "set a new key": lambda core, n: core.set(f"new {n}", n, 50, weight=2),
    "set a key that is there": lambda core, n: core.set(n % 40, n, 1 + n % 90),
    "set forever": lambda core, n: core.set(n % 40, n, None, removed=[]),
    "set in place of a value": lambda core, n: core.replace(n % 40, n, KEEP_TTL, core.find(n % 40)),
    "set with tags": lambda core, n: core.set(n % 40, n, 9, labels=labels(("red", f"{n % 3}"))),
    "drop a tag": lambda core, n: (core.drop_tag("red"), core.drain(20, [])),
    "touch": lambda core, n: core.touch(n % 40, 1 + n % 70),
    "find": lambda core, n: core.find(3 * (n % 13)),
    "delete": lambda core, n: core.delete(n % 60, removed=[]),
    "evict": lambda core, n: core.evict(2, [], size=30),
    "advance": lambda core, n: core.advance(5, []),
    "watch": lambda core, n: core.watch(n % 40).close(),
    "clear": lambda core, n: core.clear() if n % 50 == 0 else core.drain(7),
}


def check(core, clock):
    """The lock is free, and every entry that is set leaves on time."""
    helper = start(core.find, "any key")
    join(helper)
    for key in core.keys():
        core.set(key, 0, 10)
    clock.now += 1000
    while core.next_due <= clock.now:
        core.advance(1000)
    assert len(core) == 0


def at_point(run, point, act):
    """Call ``run()``. Call ``act()`` in the core's frames, at the n-th point at which CPython may look for signals
    or, from 3.12 on, collect garbage.

    Such points are the start of a function, after a call, and where a loop goes back. After the return of a function in
    Python there is none in truth: a few more than necessary are tried.
    """
    left, previous = point, {}

    def before_instruction(frame):
        nonlocal left
        if previous.get(frame, "RESUME").startswith(("CALL", "JUMP_BACKWARD", "RESUME")):
            left -= 1
            if left == 0:
                previous.clear()
                act()
        previous[frame] = dis.opname[frame.f_code.co_code[frame.f_lasti]]

    run_watched(run, lambda frame: "/wheelcache/core/" in frame.f_code.co_filename, before_instruction)


FINALIZERS = {
    "set": lambda core, n: core.set("of a finalizer", 0, 20, weight=1),
    "set the same key": lambda core, n: [core.set(key, 0, 3, weight=7) for key in (n % 40, f"new {n}")],
    "delete the same key": lambda core, n: [core.delete(key) for key in (n % 60, f"new {n}")],
    "evict": lambda core, n: core.evict(size=1),
    "drop the same tag": lambda core, n: (core.drop_tag("red"), core.drain()),
    "advance": lambda core, n: core.advance(),
    "clear": lambda core, n: core.clear(),
    "clear, and set the same key": lambda core, n: (core.clear(), core.set(n % 40, 0, 3, weight=7)),
    "watch the same key": lambda core, n: core.watch(n % 40),
}


@pytest.mark.pairs
@pytest.mark.parametrize("core_class", ["python"], indirect=True)
@pytest.mark.parametrize("finalizer", FINALIZERS)
@pytest.mark.parametrize("name", OPERATIONS)
def test_a_finalizer_may_call_the_core_at_any_point_of_a_step(make, clock, name, finalizer, monkeypatch):
    # Any removal rebuilds the table.
    monkeypatch.setattr(entry_map, "SMALL_TABLE", 0)
    monkeypatch.setattr(entry_map, "SHRINK_FACTOR", 1)
    operation = OPERATIONS[name]
    core = make(max_entries=50, max_weight=1000, interval=0.02)
    # Each point is tried with a third of the finalizers. A step of more points has been round its loops.
    first = 1 + ([*OPERATIONS].index(name) + [*FINALIZERS].index(finalizer)) % 3
    for point in range(first, 120, 3):
        number = 50 * point
        clock.now += 0.3
        for key in range(0, 40, 3):
            core.set(key, key, 1 + point % 60, weight=3, labels=labels(("red",) if key % 2 else ()))
        called = []

        def act(number=number, called=called):
            called.append(FINALIZERS[finalizer](core, number))

        at_point(partial(operation, core, number), point, act)
        assert balance(core) == core.counts().puts
        assert len(core) == len(core.scan().step(51)) <= 50
        assert core.weight == sum(record.weight for record in core.scan().step(51))
        if isinstance(called and called[0], Watch):
            core.set(number % 40, "news", 5)
            assert called[0].broken
        if not called:
            break
    assert point > 1
    check(core, clock)


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
