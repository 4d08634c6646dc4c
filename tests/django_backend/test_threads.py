"""Many threads at once: what is promised to be done once, or whole, is."""

import os
import signal
import threading
import traceback

import pytest

from tests.waiting import PATIENCE, THREADS, until
from wheelcache.runtime.wheel_thread import wheel_thread


class Boom(Exception):
    pass


def all_but_the_leader_wait(cache):
    flights = list(cache._cache._flights.in_progress.values())
    return bool(flights) and len(flights[0].ended._wake_ups) == THREADS - 1


def test_however_many_threads_miss_together_the_default_runs_once(make, together):
    cache = make()
    calls = []

    def default():
        calls.append(1)
        assert until(lambda: all_but_the_leader_wait(cache))
        return ["value"]

    values = together(lambda number: cache.get_or_set("key", default))
    assert values == [["value"]] * THREADS
    assert len(calls) == 1
    # Nobody can change what another got.
    assert len(set(map(id, values))) == THREADS


def test_an_exception_of_the_default_reaches_all_and_the_next_call_tries_again(make, together):
    cache = make()
    calls = []

    def default():
        calls.append(1)
        assert until(lambda: all_but_the_leader_wait(cache))
        raise Boom

    outcomes = together(lambda number: cache.get_or_set("key", default))
    assert [type(each) for each in outcomes] == [Boom] * THREADS
    assert len(calls) == 1
    assert "key" not in cache
    assert cache.get_or_set("key", 1) == 1


def test_of_those_who_wait_for_a_thread_that_exits_one_takes_over(make, together):
    cache = make()
    calls = []

    def default():
        calls.append(1)
        if len(calls) == 1:
            assert until(lambda: all_but_the_leader_wait(cache))
            raise SystemExit
        return "second"

    def ask(number):
        try:
            return cache.get_or_set("key", default)
        except SystemExit:
            return "exited"

    outcomes = together(ask)
    assert sorted(outcomes) == ["exited", *["second"] * (THREADS - 1)]
    assert len(calls) == 2


def test_different_keys_do_not_wait_for_each_other(make, together):
    cache = make()
    everybody_loads = threading.Barrier(THREADS)

    def load(number):
        return cache.get_or_set(f"key{number}", lambda: everybody_loads.wait(PATIENCE) >= 0)

    assert together(load) == [True] * THREADS


def test_incr_and_decr_lose_no_update(make, together):
    cache = make()
    cache.set("up", 0)
    cache.set("down", 0)

    def count(number):
        for _ in range(200):
            cache.incr("up")
            cache.decr("down", 2)

    assert together(count) == [None] * THREADS
    assert cache.get("up") == THREADS * 200
    assert cache.get("down") == -THREADS * 400


def test_incr_of_a_pickled_value_loses_no_update(make, together):
    cache = make()
    cache.set("list", [])
    together(lambda number: [cache.incr("list", [(number, step)]) for step in range(20)])
    assert sorted(cache.get("list")) == [(number, step) for number in range(THREADS) for step in range(20)]


def test_exactly_one_thread_wins_an_add(make, together):
    cache = make()
    for key in "abcdefghij":
        won = together(lambda number, key=key: cache.add(key, [number]))
        assert won.count(True) == 1
        assert cache.get(key) == [won.index(True)]


def test_exactly_one_thread_deletes_an_entry(make, together):
    cache = make()
    for round_ in range(10):
        cache.set("key", [round_])
        assert together(lambda number: cache.delete("key")).count(True) == 1


def test_a_full_cache_stays_full_and_bounded_under_many_writers(make, together):
    cache = make({"MAX_ENTRIES": 50})
    sizes = []

    def write(number):
        for step in range(100):
            cache.set(f"{number}-{step}", [step])
            cache.set_many({f"{number}-{step}-{each}": each for each in range(3)})
            cache.get(f"{number}-{step}")
            sizes.append(len(cache.store.cache))

    assert together(write) == [None] * THREADS
    assert max(sizes) <= 50
    assert len(cache.store.cache) == 50


def test_culling_and_clearing_under_many_writers_breaks_nothing(make, together):
    cache = make({"MAX_ENTRIES": 20, "CULL_FREQUENCY": 0})

    def write(number):
        for step in range(100):
            cache.set(f"{number}-{step}", step, 60)
            cache.get_many([f"{number}-{each}" for each in range(step)])
            if step % 25 == 0:
                cache.clear()

    assert together(write) == [None] * THREADS
    assert len(cache.store.cache) <= 20


def test_a_reader_sees_only_values_that_were_written_for_its_key(make, together):
    cache = make({"MAX_ENTRIES": 30})

    def use(number):
        wrong = []
        for step in range(300):
            key = f"key{(number + step) % 40}"
            cache.set(key, [key, step], 0.001 if step % 3 else None)
            found = [cache.get(key), *cache.get_many([key]).values()]
            wrong += [(key, each) for each in found if each is not None and each[0] != key]
        return wrong

    assert together(use) == [[]] * THREADS


def test_expired_entries_leave_memory_while_nobody_touches_the_cache(make):
    cache = make({"INTERVAL": 0.01})
    cache.set_many({str(number): [number] for number in range(3000)}, 0.05)
    assert until(lambda: len(cache.store.cache) == 0)
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
    cache = make({"INTERVAL": 0.01})
    cache.set("inherited", ["value"], None)
    leading, released = threading.Event(), threading.Event()

    def default():
        leading.set()
        assert released.wait(PATIENCE)
        return "parent's"

    def use():
        assert cache.get("inherited") == ["value"]
        # Its leader is in the parent only: the child must not wait for it.
        assert cache.get_or_set("loading", lambda: "child's") == "child's"
        cache.set_many({str(number): number for number in range(100)}, 0.02)
        assert until(lambda: len(cache.store.cache) == 2, PATIENCE / 2)
        assert wheel_thread.is_alive()

    leader = threading.Thread(target=lambda: cache.get_or_set("loading", default))
    leader.start()
    assert leading.wait(PATIENCE)
    try:
        assert in_a_child(use) == 0
    finally:
        released.set()
        leader.join(PATIENCE)
    assert cache.get("loading") == "parent's"
    assert "0" not in cache


@pytest.mark.deep
@forks
def test_forking_while_threads_write_never_leaves_a_child_with_a_lock_that_is_held(make):
    cache = make({"MAX_ENTRIES": 100, "INTERVAL": 0.01})
    stop = threading.Event()

    def write(number):
        step = 0
        while not stop.is_set():
            step += 1
            cache.set(f"{number}-{step % 200}", [step], 0.01)
            cache.get_or_set(f"shared{step % 50}", lambda: [1], 0.01)

    def use():
        cache.set("key", [1], 5)
        assert cache.get("key") == [1]
        assert cache.get_or_set("other", lambda: 2) == 2
        assert len(cache.store.cache) <= 100

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
