"""Counters under many threads, and the threads that an app starts. The rest is in ``tests/backends``."""

import subprocess
import sys
import textwrap

from tests.scripts import FORKING
from tests.waiting import THREADS


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


# In processes of their own: which threads a process starts.

PRELUDE = """
import threading
import flask, flask_caching

def threads():
    return [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]

def make_app(**options):
    app = flask.Flask("app")
    app.debug = True
    options = {"interval": 0.01, "jitter": 0, **options}
    app.config.update(CACHE_TYPE="wheelcache.flask_backend.WheelCache", CACHE_OPTIONS=options)
    cache = flask_caching.Cache(app)
    return app, cache, app.extensions["cache"][cache]
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
