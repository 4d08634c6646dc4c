"""Forks: with and without use before, in the middle of work, and out of a loader."""

import subprocess
import sys
import textwrap

import pytest

from tests.scripts import FORKING

PRELUDE = """
import os, signal, sys, threading, time
from wheelcache import Cache, Timers

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

def until(condition):
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, "never"
        time.sleep(0.005)
"""


def run(script):
    outcome = subprocess.run(
        [sys.executable, *FORKING, "-c", PRELUDE + textwrap.dedent(script)], capture_output=True, text=True, timeout=100
    )
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    assert outcome.stderr == ""
    return outcome.stdout.split()


def test_a_child_reads_what_it_inherited_expires_and_evicts_on_its_own():
    assert run("""
        cache = Cache(interval=0.01, max_entries=3)
        cache.set("for ever", 1)
        cache.set("short", 1, ttl=0.2)
        until(lambda: any(thread.name == "wheelcache-wheel" for thread in threading.enumerate()))

        def child():
            assert threading.active_count() == 1
            assert cache.get("for ever") == 1
            cache.set("mine", 1, ttl=0.05)
            assert threading.active_count() == 2
            until(lambda: cache.keys() == ["for ever"] and len(cache) == 1)
            for i in range(10):
                cache.set(i, i)
            assert cache.keys() == [7, 8, 9]
            assert cache.stats().evictions > 0

        print(in_child(child))
        until(lambda: cache.keys() == ["for ever"] and len(cache) == 1)
        print(cache.get("mine"))
        """) == ["0", "None"]


def test_a_fork_before_any_use():
    assert run("""
        cache = Cache(interval=0.01)

        def child():
            cache.set("a", 1, ttl=0.05)
            until(lambda: len(cache) == 0)

        print(in_child(child))
        print(threading.active_count())
        """) == ["0", "1"]


@pytest.mark.deep
def test_children_forked_in_the_middle_of_other_threads_work_never_deadlock_and_find_the_cache_whole():
    assert run("""
        from tests.engine import invariants
        cache = Cache(interval=0.001, max_entries=200)
        stop = threading.Event()

        def work(number):
            i = number
            while not stop.is_set():
                i += 7
                cache.set(i % 300, i, ttl=0.001 + i % 5 / 100)
                cache.get(i % 100)
                cache.take(i % 90, lambda: i, ttl=0.01)
                cache.delete(i % 50)

        threads = [threading.Thread(target=work, args=[number]) for number in range(4)]
        for thread in threads:
            thread.start()

        def child():
            invariants.check(cache)
            for i in range(300):
                cache.set(i, i, ttl=5)
                cache.take(("mine", i), lambda: i, ttl=5)
            invariants.check(cache)

        print(sum(in_child(child) for _ in range(40)))
        stop.set()
        for thread in threads:
            thread.join()
        """) == ["0"]


def test_a_child_forked_by_a_loader_loads_for_itself():
    assert run("""
        cache = Cache()

        def child():
            assert cache.take("k", lambda: "child's") == "child's"

        def loader():
            # In a thread of its own, as a pool's would be: the loader's context says that it is loading "k".
            codes = []
            thread = threading.Thread(target=lambda: codes.append(in_child(child)))
            thread.start()
            thread.join()
            print(*codes)
            return "parent's"

        print(cache.take("k", loader), cache.get("k"))
        """) == ["0", "parent's", "parent's"]


def test_timers_belong_to_the_process_that_set_them():
    assert run("""
        fired = []
        timers = Timers(0.01, 8, lambda key, value: fired.append(key))
        timers.set_timer("parent's", 1, 0.1)
        event = timers.after(0.1)

        def child():
            assert len(timers) == 0
            timers.set_timer("child's", 1, 0.02)
            until(lambda: fired == ["child's"])
            assert timers.after(0.2).wait(10)
            assert fired == ["child's"]

        print(in_child(child))
        until(lambda: fired == ["parent's"])
        print(event.wait(10))
        """) == ["0", "True"]


def test_the_line_a_minute_goes_on_in_the_child_with_its_own_figures():
    assert run("""
        import logging
        lines = []
        class Lines(logging.Handler):
            def emit(self, record):
                lines.append((record.hit, record.miss))
        logging.getLogger("wheelcache.stats").addHandler(Lines())
        logging.getLogger("wheelcache.stats").setLevel(logging.INFO)
        cache = Cache(interval=0.01, log_interval=0.05)
        cache.set("a", 1)
        for _ in range(1000):
            cache.get("a")

        def child():
            lines.clear()
            cache.get("a")
            cache.get("b")
            cache.set("b", 1)
            until(lambda: lines)
            assert lines[0] == (1, 1), lines

        print(in_child(child))
        """) == ["0"]


def test_any_write_of_the_child_starts_its_thread_if_entries_wait_to_expire():
    assert run("""
        cache = Cache(interval=0.01, log_interval=None, sample_interval=None)
        cache.set_many(dict.fromkeys(range(1000), 0), ttl=0.3)

        def child():
            cache.set("for ever", 1)
            until(lambda: len(cache) == 1)

        print(in_child(child))
        """) == ["0"]


@pytest.mark.deep
def test_threads_that_fork_at_once_release_what_they_held():
    assert run("""
        caches = []

        def work():
            for _ in range(40):
                caches.append(Cache())
                assert in_child(lambda: caches[0].set("a", 1)) == 0

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        print(all(cache.set("b", 1, ttl=5) for cache in caches))
        """) == ["True"]


def test_what_was_closed_is_closed_in_the_child():
    assert run("""
        cache = Cache()
        cache.close()

        def child():
            try:
                cache.set("a", 1)
            except Exception as error:
                assert type(error).__name__ == "CacheClosed"
            else:
                raise AssertionError

        print(in_child(child))
        """) == ["0"]
