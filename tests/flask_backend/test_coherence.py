"""coherence="host": apps of one name, in one process and in two."""

import os
import subprocess
import sys
from itertools import count

import pytest

from tests.waiting import PATIENCE

pytestmark = pytest.mark.usefixtures("own_stamps")

_names = map("coherent app {}".format, count())

APP = """
import sys
from pathlib import Path
import flask, flask_caching
from tests import shared_stamps

shared_stamps.keep_in(Path(sys.argv[2]))
app = flask.Flask(sys.argv[1])
app.config.update(
    CACHE_TYPE="wheelcache.flask_backend.WheelCache",
    CACHE_OPTIONS={"coherence": "host", "log_interval": None},
)
cache = flask_caching.Cache(app)
with app.app_context():
    for line in sys.stdin:
        print(repr(eval(line)), flush=True)
"""


class Process:
    """An app of its own; what is called on it is a line of Python there."""

    def __init__(self, name, directory):
        self.process = subprocess.Popen(
            [sys.executable, "-c", APP, name, directory], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __call__(self, line):
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        return eval(self.process.stdout.readline())

    def end(self):
        self.process.stdin.close()
        assert self.process.wait(PATIENCE) == 0
        self.process.stdout.close()


@pytest.fixture
def name():
    """Of an app that no other test has, nor another run of them."""
    return f"{next(_names)} of {os.getpid()}"


def test_caches_of_another_prefix_are_left_alone(make, name):
    one, other = (make(coherence="host", name=name, key_prefix=prefix) for prefix in ("", "p"))
    for each in (one, other):
        each.set("k", "old")
    one.clear()
    assert (one.get("k"), other.get("k")) == (None, "old")


def test_a_miss_of_one_request_is_no_miss_of_the_next(make_app, name):
    """What a thread sets in a later request than its miss is news."""
    options = {"coherence": "host"}
    (app, cache), (_, other) = (make_app(name=name, CACHE_OPTIONS=options) for _ in range(2))
    with app.app_context():
        assert cache.get("k") is None
    with other.app.app_context():
        assert other.get("k") is None
        other.set("k", "old")
    with app.app_context():
        cache.set("k", "new")
    with other.app.app_context():
        assert other.get("k") is None


def memoized_function(cache, computed):
    @cache.memoize(60)
    def note(number):
        computed.append(number)
        return number

    return note, note


def memoized_method(cache, computed):
    """Flask-Caching gives it two versions: of the method, and of the object, which it tells by its repr."""

    class Notes:
        @cache.memoize(60)
        def note(self, number):
            computed.append(number)
            return number

        def __repr__(self):
            return "Notes"

    return Notes().note, Notes.note


@pytest.mark.parametrize("define", [memoized_function, memoized_method])
def test_a_miss_of_a_memoized_function_leaves_its_values_in_other_processes_and_delete_memoized_does_not(
    make_app, name, define
):
    """Apps of one name in one process act like processes of their own."""

    def make_functions():
        app, cache = make_app(name=name, CACHE_OPTIONS={"coherence": "host"})
        computed = []
        note, deleted = define(cache, computed)

        def computed_of(*numbers):
            """For which of these numbers it was computed."""
            computed.clear()
            with app.app_context():
                for number in numbers:
                    note(number)
            return computed.copy()

        def forget():
            with app.app_context():
                cache.delete_memoized(deleted)

        return computed_of, forget

    (one, forget), (other, _) = make_functions(), make_functions()
    assert one(1, 2, 3) == [1, 2, 3]
    assert other(1, 2, 3, 4) == [1, 2, 3, 4]
    assert one(1, 2, 3, 4) == [4]
    assert other(1, 2, 3, 4) == []
    forget()
    assert one(1, 2) == other(1, 2) == [1, 2]
    assert one(1, 2) == other(1, 2) == []


@pytest.mark.deep
def test_two_apps_of_one_name_in_two_processes_agree_on_what_was_written(name, tmp_path):
    one, other = processes = [Process(name, tmp_path) for _ in range(2)]
    assert [each("cache.get('k') or cache.set('k', 'old')") for each in processes] == [True] * 2
    assert [each("cache.get('k')") for each in processes] == ["old", "old"]
    assert one("cache.set('k', 'new')")
    assert [each("cache.get('k')") for each in processes] == ["new", None]
    # A fill.
    assert other("cache.set('k', 'new')")
    assert [each("cache.get('k')") for each in processes] == ["new", "new"]
    assert other("cache.delete('k')")
    assert [each("cache.get('k')") for each in processes] == [None, None]
    # A fill that was begun before a write elsewhere.
    one("cache.clear()")
    assert not other("cache.set('k', 'old')")
    assert other("cache.get('k')") is None
    for each in processes:
        each.end()
