"""The backend under many threads, and when the process forks."""

import subprocess
import sys
import textwrap
import threading

import pytest

from tests.scripts import FORKING
from tests.waiting import PATIENCE, THREADS, until
from wheelcache.runtime.wheel_thread import wheel_thread


class Boom(Exception):
    pass


def everybody_missed(cache):
    return until(lambda: cache._cache.stats().misses == THREADS)


def test_however_many_threads_miss_together_the_loader_runs_once_and_nobody_shares_its_value(make, together):
    cache = make()
    loads = []

    def load():
        loads.append(1)
        assert everybody_missed(cache)
        return ["value"]

    values = together(lambda number: cache.get_or_load("key", load))
    assert values == [["value"]] * THREADS
    assert len(loads) == 1
    assert len(set(map(id, values))) == THREADS


def test_an_exception_of_the_loader_reaches_who_waits_and_the_next_call_loads_again(make, together):
    cache = make()

    def load():
        assert everybody_missed(cache)
        raise Boom

    outcomes = together(lambda number: cache.get_or_load("key", load))
    assert [type(each) for each in outcomes] == [Boom] * THREADS
    assert cache.has("key") is False
    assert cache.get_or_load("key", lambda: 1) == 1


def test_different_keys_do_not_wait_for_each_other(make, together):
    cache = make()
    everybody_loads = threading.Barrier(THREADS)
    loaded = together(lambda number: cache.get_or_load(str(number), lambda: everybody_loads.wait(PATIENCE) >= 0))
    assert loaded == [True] * THREADS


@pytest.mark.parametrize("start", [0, 0.5, None], ids=repr)
def test_inc_and_dec_lose_no_update(make, together, start):
    cache = make()
    if start is not None:
        cache.set_many({"up": start, "down": start})

    def count(number):
        for _ in range(100):
            cache.inc("up")
            cache.dec("down", 2)

    assert together(count) == [None] * THREADS
    assert cache.get("up") == (start or 0) + THREADS * 100
    assert cache.get("down") == (start or 0) - THREADS * 200


def test_inc_of_a_pickled_value_loses_no_update(make, together):
    cache = make()
    cache.set("list", [()])
    together(lambda number: [cache.inc("list", [(number, step)]) for step in range(20)])
    assert sorted(cache.get("list")) == [(), *((number, step) for number in range(THREADS) for step in range(20))]


def test_each_value_of_a_counter_is_returned_to_one_thread_only(make, together):
    cache = make()
    counted = together(lambda number: [cache.inc("key") for _ in range(50)])
    assert sorted(each for some in counted for each in some) == list(range(1, THREADS * 50 + 1))


def test_a_counter_that_is_deleted_all_the_time_never_fails_and_never_hangs(make, together):
    cache = make()

    def count(number):
        if number % 4 == 0:
            return all(cache.delete("key") in (True, False) for _ in range(200))
        return all(cache.inc("key") >= 1 for _ in range(200))

    assert together(count) == [True] * THREADS


def test_exactly_one_thread_wins_an_add(make, together):
    cache = make()
    for key in "abcdefghij":
        won = together(lambda number, key=key: cache.add(key, [number]))
        assert won.count(True) == 1
        assert cache.get(key) == [won.index(True)]


def test_exactly_one_thread_wins_an_add_of_a_key_that_has_expired(make, together, clock):
    cache = make()
    for _ in range(10):
        cache.set("key", "old", 10)
        clock.advance(10)
        assert together(lambda number: cache.add("key", [number], 10)).count(True) == 1
        cache.clear()


def test_exactly_one_thread_deletes_an_entry(make, together):
    cache = make()
    for round_ in range(10):
        cache.set("key", [round_])
        assert together(lambda number: cache.delete("key")).count(True) == 1


def test_a_full_cache_stays_full_and_bounded_under_many_writers(make, together):
    cache = make(50)
    sizes = []

    def write(number):
        for step in range(100):
            cache.set(f"{number}-{step}", [step])
            cache.set_many({f"{number}-{step}-{each}": each for each in range(3)})
            cache.get(f"{number}-{step}")
            sizes.append(len(cache._cache))

    assert together(write) == [None] * THREADS
    assert max(sizes) <= 50
    assert len(cache._cache) == 50


def test_a_set_many_is_seen_by_a_get_many_as_a_whole(make, together):
    cache = make()
    keys = [str(number) for number in range(20)]
    cache.set_many(dict.fromkeys(keys, -1))

    def use(number):
        if number % 2:
            return all(cache.set_many(dict.fromkeys(keys, number * 1000 + step)) for step in range(50))
        return all(len(set(cache.get_many(*keys))) == 1 for _ in range(50))

    assert together(use) == [True] * THREADS


def test_a_reader_sees_only_values_that_were_written_for_its_key(make, together):
    cache = make(30, interval=0.001)

    def use(number):
        wrong = []
        for step in range(200):
            key = f"key{(number + step) % 40}"
            cache.set(key, [key, step], 0.001 if step % 3 else None)
            found = [cache.get(key), *cache.get_many(key), cache.get_or_load(key, lambda key=key: [key], 0.001)]
            wrong += [(key, each) for each in found if each is not None and each[0] != key]
            if step % 50 == number:
                cache.clear()
        return wrong

    assert together(use) == [[]] * THREADS


def test_expired_entries_leave_memory_while_nobody_touches_the_cache(make):
    cache = make(3000, interval=0.01)
    cache.set_many({str(number): [number] for number in range(3000)}, 0.05)
    assert until(lambda: len(cache._cache) == 0)
    assert wheel_thread.is_alive()


# In processes of their own: what a process starts with, and what forks leave.

PRELUDE = """
import os, signal, sys, threading
import flask, flask_caching
from tests.waiting import PATIENCE, THREADS, until

def threads():
    return [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]

def make_app(**options):
    app = flask.Flask("app")
    app.debug = True
    options = {"interval": 0.01, "jitter": 0, **options}
    app.config.update(CACHE_TYPE="wheelcache.flask_backend.WheelCache", CACHE_OPTIONS=options)
    cache = flask_caching.Cache(app)
    return app, cache, app.extensions["cache"][cache]

def in_child(work):
    pid = os.fork()
    if pid == 0:
        signal.alarm(30)
        try:
            work()
        except BaseException as error:
            print(f"child: {error!r}", flush=True)
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
"""


def run(script):
    outcome = subprocess.run(
        [sys.executable, *FORKING, "-c", PRELUDE + textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    assert outcome.stderr == ""
    return outcome.stdout.split()


def test_the_wheel_thread_starts_with_the_first_write_and_not_with_the_app():
    assert run("""
        app, cache, backend = make_app(log_interval=None)
        assert threads() == []
        backend.get_many("for ever", "missing")
        backend.clear()
        assert threads() == []
        another = make_app(log_interval=None)
        assert threads() == []
        backend.set("for ever", 1, 0)
        print(*threads())
        another[2].set("timed", 1, 60)
        assert len(threads()) == 1
        """) == ["wheelcache-wheel"]


def test_an_app_that_is_made_and_not_used_starts_no_thread_even_with_a_line_a_minute():
    assert run("""
        app, cache, backend = make_app()
        cache.cached()(len)
        cache.memoize()(len)
        print(threads())
        """) == ["[]"]


def test_the_children_of_a_fork_have_the_entries_and_then_go_their_own_way():
    assert run("""
        app, cache, backend = make_app(log_interval=None)
        calls = []

        @app.route("/<name>")
        @cache.cached(timeout=60)
        def view(name):
            calls.append(name)
            return f"{name} {len(calls)}"

        client = app.test_client()
        assert client.get("/a").text == "a 1"
        assert threads() == ["wheelcache-wheel"]

        def child():
            assert threads() == []
            assert client.get("/a").text == "a 1"
            assert client.get("/b").text == "b 2"
            assert threads() == ["wheelcache-wheel"]
            backend.set_many({str(number): number for number in range(100)}, 0.05)
            assert until(lambda: len(backend._cache) == 2)
            assert backend.inc("count") == 1

        print(*(in_child(child) for _ in range(3)))
        assert client.get("/b").text == "b 2" and calls == ["a", "b"]
        assert not backend.has("count")
        """) == ["0", "0", "0"]


@pytest.mark.deep
def test_a_child_forked_while_others_write_and_load_never_finds_a_held_lock():
    assert run("""
        app, cache, backend = make_app(log_interval=None, threshold=100)
        stop = threading.Event()
        doubled = cache.memoize(timeout=0.01)(lambda number: [2 * number])

        def write(number):
            step = 0
            with app.app_context():
                while not stop.is_set():
                    step += 1
                    backend.set(f"{number}-{step % 200}", [step], 0.01)
                    backend.get_or_load(f"shared{step % 50}", lambda: [1], 0.01)
                    doubled(step % 30)

        def child():
            backend.set("key", [1], 5)
            assert backend.get("key") == [1]
            assert backend.get_or_load("other", lambda: 2) == 2
            with app.app_context():
                assert doubled(4) == [8]
            assert len(backend._cache) <= 100

        writers = [threading.Thread(target=write, args=(number,)) for number in range(4)]
        for writer in writers:
            writer.start()
        print(sum(in_child(child) for _ in range(20)))
        stop.set()
        for writer in writers:
            writer.join()
        """) == ["0"]


def test_a_child_forked_while_a_loader_runs_loads_for_itself():
    assert run("""
        app, cache, backend = make_app(log_interval=None)
        leading, released = threading.Event(), threading.Event()

        def load():
            leading.set()
            assert released.wait(20)
            return "parent's"

        leader = threading.Thread(target=lambda: backend.get_or_load("key", load))
        leader.start()
        assert leading.wait(20)

        def child():
            assert backend.get_or_load("key", lambda: "child's") == "child's"

        print(in_child(child))
        released.set()
        leader.join()
        print(backend.get("key"))
        """) == ["0", "parent's"]
