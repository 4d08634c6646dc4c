"""Many threads at once, and forks: what is promised to be done once, or whole, is."""

import os
import signal
import threading
import traceback

import pytest

from tests.waiting import PATIENCE, THREADS, until, until_waiting
from wheelcache.runtime.wheel_thread import wheel_thread


class Boom(Exception):
    pass


@pytest.mark.parametrize("outcome", ["value", "error"])
def test_however_many_threads_miss_together_the_loader_runs_once(make, together, outcome):
    cache = make()
    loads = []

    def load():
        loads.append(1)
        until_waiting(THREADS - 1)
        if outcome == "error":
            raise Boom
        return ["value"]

    values = together(lambda number: cache.load("key", load))
    assert len(loads) == 1
    if outcome == "error":
        assert [type(each) for each in values] == [Boom] * THREADS
        assert not cache.has("key")
        assert cache.load("key", lambda: 1) == 1
    else:
        assert values == [["value"]] * THREADS
        # No caller can change what another one got.
        assert len(set(map(id, values))) == THREADS


def test_different_keys_do_not_wait_for_each_other(make, together):
    cache = make()
    all_load = threading.Barrier(THREADS)
    loaded = together(lambda number: cache.load(f"key{number}", lambda: all_load.wait(PATIENCE) >= 0))
    assert loaded == [True] * THREADS


@pytest.mark.parametrize("start", [0, 0.5, [()]], ids=repr)
def test_counters_lose_no_update(make, together, start):
    cache = make()
    cache.set("sum", start)

    def delta(number, step):
        return number if start != [()] else [(number, step)]

    counted = together(lambda number: [cache.count("sum", delta(number, step)) for step in range(20)])
    assert not [each for each in counted if isinstance(each, Exception)]
    if start == [()]:
        assert sorted(cache.get("sum")) == [(), *((number, step) for number in range(THREADS) for step in range(20))]
    else:
        assert cache.get("sum") == start + 20 * sum(range(THREADS))


def test_exactly_one_thread_adds_a_key_that_is_missing_or_expired_and_one_deletes_it(make, together, clock):
    cache = make()
    for key in "abcdefghij":
        cache.set(key, "old", 10)
    clock.advance(10)
    for key in "abcdefghij":
        won = together(lambda number, key=key: cache.add(key, [number]))
        assert won.count(True) == 1
        assert cache.get(key) == [won.index(True)]
        assert together(lambda number, key=key: cache.delete(key)).count(True) == 1


def test_a_set_many_is_seen_by_a_get_many_as_a_whole(make, together):
    cache = make()
    keys = [str(number) for number in range(20)]
    cache.set_many(dict.fromkeys(keys, -1))

    def use(number):
        if number % 2:
            return all(cache.set_many(dict.fromkeys(keys, number * 1000 + step)) == [] for step in range(50))
        return all(len(set(cache.get_many(keys).values())) == 1 for _ in range(50))

    assert together(use) == [True] * THREADS


def test_under_many_writers_a_cache_stays_full_and_bounded_and_has_no_value_of_another_key(make, together):
    cache = make(max_entries=30, interval=0.001)

    def use(number):
        wrong = []
        for step in range(200):
            key = f"key{(number + step) % 40}"
            cache.set(key, [key, step], 0.001 if step % 3 else None)
            cache.set_many({f"{number}-{step}-{each}": [f"{number}-{step}-{each}"] for each in range(3)})
            found = [cache.get(key), *cache.get_many([key]).values(), cache.load(key, lambda key=key: [key], 0.001)]
            wrong += [(key, each) for each in found if each is not None and each[0] != key]
            if step % 50 == number:
                cache.clear()
            if len(cache.engine) > 30:
                wrong.append(step)
        return wrong

    assert together(use) == [[]] * THREADS
    cache.set_many({str(number): [str(number)] for number in range(40)})
    assert len(cache.engine) == 30


def test_expired_entries_leave_memory_in_real_time_though_no_caller_touches_the_cache(make):
    cache = make(max_entries=3000, interval=0.01)
    cache.set_many({str(number): [number] for number in range(3000)}, 0.05)
    assert until(lambda: len(cache.engine) == 0)
    assert wheel_thread.is_alive()


def in_a_child(function):
    """Run ``function`` in the child of a fork; its exit code. An alarm ends a child that hangs."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.alarm(PATIENCE)
            function()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


forks = pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")


@forks
def test_the_child_of_a_fork_has_the_entries_and_expires_and_loads_by_itself(make):
    cache = make(interval=0.01)
    cache.set("inherited", ["value"], None)
    leading, released = threading.Event(), threading.Event()

    def load():
        leading.set()
        assert released.wait(PATIENCE)
        return "parent's"

    def use():
        assert cache.get("inherited") == ["value"]
        # Its leader is in the parent only: the child must not wait for it.
        assert cache.load("loading", lambda: "child's") == "child's"
        cache.set_many({str(number): number for number in range(100)}, 0.02)
        assert until(lambda: len(cache.engine) == 2, PATIENCE / 2)
        assert wheel_thread.is_alive()

    leader = threading.Thread(target=lambda: cache.load("loading", load))
    leader.start()
    assert leading.wait(PATIENCE)
    try:
        assert in_a_child(use) == 0
    finally:
        released.set()
        leader.join(PATIENCE)
    assert cache.get("loading") == "parent's"
    assert not cache.has("0")


@pytest.mark.deep
@forks
def test_forking_while_threads_write_never_leaves_a_child_with_a_lock_that_is_held(make):
    cache = make(max_entries=100, interval=0.01)
    stop = threading.Event()

    def write(number):
        step = 0
        while not stop.is_set():
            step += 1
            cache.set(f"{number}-{step % 200}", [step], 0.01)
            cache.load(f"shared{step % 50}", lambda: [1], 0.01)

    def use():
        cache.set("key", [1], 5)
        assert cache.get("key") == [1]
        assert cache.load("other", lambda: 2) == 2
        assert len(cache.engine) <= 100

    writers = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for writer in writers:
        writer.start()
    try:
        codes = [in_a_child(use) for _ in range(20)]
    finally:
        stop.set()
        for writer in writers:
            writer.join(PATIENCE)
    assert codes == [0] * 20
