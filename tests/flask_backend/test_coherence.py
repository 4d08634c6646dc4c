"""coherence="host": apps of one name, in one process and in two."""

import os
import subprocess
import sys
from itertools import count

import pytest

from wheelcache.coherence import shared_stamps as board
from wheelcache.leases.fill_leases import end_request

_names = map("coherent app {}".format, count())

APP = """
import sys
import flask, flask_caching

app = flask.Flask(sys.argv[1])
app.config.update(
    CACHE_TYPE="wheelcache.flask_backend.WheelCache",
    CACHE_KEY_PREFIX=sys.argv[2],
    CACHE_OPTIONS={"coherence": "host", "log_interval": None},
)
cache = flask_caching.Cache(app)
with app.app_context():
    for line in sys.stdin:
        print(repr(eval(line)), flush=True)
"""


class Process:
    """An app of its own; what is called on it is a line of Python there."""

    def __init__(self, name, prefix=""):
        self.process = subprocess.Popen(
            [sys.executable, "-c", APP, name, prefix], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __call__(self, line):
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        return eval(self.process.stdout.readline())

    def end(self):
        self("cache.engine(cache)._board._path.unlink(missing_ok=True)")
        self.process.stdin.close()
        assert self.process.wait(10) == 0
        self.process.stdout.close()


@pytest.fixture(autouse=True)
def _boards_of_this_test(monkeypatch, tmp_path):
    monkeypatch.setattr(board, "runtime_directory", lambda: tmp_path)
    tmp_path.chmod(0o700)
    yield
    end_request()


@pytest.fixture
def name():
    """Of an app that no other test has, nor another run of them."""
    return f"{next(_names)} of {os.getpid()}"


@pytest.mark.parametrize("wrong", ["", "Host", "machine", True, False, 0, b"host", ["host"]])
def test_a_wrong_option_is_an_error_that_names_it_and_what_it_takes_and_got(make, wrong):
    with pytest.raises(ValueError, match="coherence must be 'host', or None, not ") as refused:
        make(coherence=wrong)
    assert repr(wrong) in str(refused.value)


def test_it_is_off_unless_asked_for(make, name):
    assert make()._cache.stamps is None
    assert make(coherence=None)._cache.stamps is None
    assert make(coherence="host", name=name)._cache.stamps is not None


WRITES = {
    "set": lambda cache: cache.set("k", 2),
    "set with a timeout below 0": lambda cache: cache.set("k", 2, -1),
    "set_many": lambda cache: cache.set_many({"k": 2}),
    "delete": lambda cache: cache.delete("k"),
    "delete_many": lambda cache: cache.delete_many("k", "l"),
    "inc": lambda cache: cache.inc("k"),
    "dec": lambda cache: cache.dec("k"),
    "clear": lambda cache: cache.clear(),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_every_write_ends_the_entries_of_the_others_and_fills_do_not(make, name, write):
    one, other = (make(coherence="host", name=name) for _ in range(2))
    for each in (one, other):
        assert each.get("k") is None
        assert each.set("k", 1)
        assert each.get_many("l") == [None]
        assert each.set_many({"l": 1}) == ["l"]
    assert one.get("k") == other.get("k") == one.get("l") == other.get("l") == 1
    write(one)
    assert other.get("k") is None


def test_apps_of_another_name_or_prefix_are_left_alone(make, name):
    caches = [
        make(coherence="host", name=name),
        make(coherence="host", name=f"{name}, another"),
        make(coherence="host", name=name, key_prefix="p"),
    ]
    for each in caches:
        each.set("k", "old")
    caches[0].clear()
    assert [each.get("k") for each in caches] == [None, "old", "old"]


def test_a_miss_of_one_request_is_no_miss_of_the_next(make_app, name):
    """Who missed and did not fill: what the thread sets in a later request is news."""
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


@pytest.fixture
def memoizing(make_app, name):
    """Make an app that acts like a process of its own, and two functions: one that tells which of some numbers a
    memoized function was computed for, and one that deletes all that it has memoized."""

    def make_functions(define):
        app, cache = make_app(name=name, CACHE_OPTIONS={"coherence": "host"})
        computed = []
        note, deleted = define(cache, computed)

        def computed_of(numbers):
            computed.clear()
            with app.app_context():
                for number in numbers:
                    note(number)
            return computed.copy()

        def forget():
            with app.app_context():
                cache.delete_memoized(deleted)

        return computed_of, forget

    return make_functions


@pytest.mark.parametrize("define", [memoized_function, memoized_method])
def test_a_miss_of_a_memoized_function_in_one_process_leaves_its_values_in_the_others(memoizing, define):
    (one, _), (other, _) = memoizing(define), memoizing(define)
    assert one([1, 2, 3]) == [1, 2, 3]
    assert other([1, 2, 3, 4]) == [1, 2, 3, 4]
    assert one([1, 2, 3]) == []
    assert one([4]) == [4]
    assert other([1, 2, 3, 4]) == []


@pytest.mark.parametrize("define", [memoized_function, memoized_method])
def test_delete_memoized_in_one_process_deletes_in_the_others(memoizing, define):
    (one, forget), (other, _) = memoizing(define), memoizing(define)
    for each in (one, other):
        each([1, 2])
    forget()
    assert one([1, 2]) == other([1, 2]) == [1, 2]
    assert one([1, 2]) == other([1, 2]) == []


@pytest.mark.deep
def test_two_apps_of_one_name_in_two_processes_agree_on_what_was_written(name):
    processes = one, other = Process(name), Process(name)
    apart = Process(f"{name}, another")
    assert [each("cache.get('k') or cache.set('k', 'old')") for each in (*processes, apart)] == [True] * 3
    assert [each("cache.get('k')") for each in processes] == ["old", "old"]
    assert one("cache.set('k', 'new')")
    assert [each("cache.get('k')") for each in processes] == ["new", None]
    assert other("cache.set('k', 'new')")
    assert [each("cache.get('k')") for each in processes] == ["new", "new"]
    assert other("cache.delete('k')")
    assert [each("cache.get('k')") for each in processes] == [None, None]
    # A fill that was begun before a write elsewhere.
    one("cache.clear()")
    assert not other("cache.set('k', 'old')")
    assert other("cache.get('k')") is None
    assert apart("cache.get('k')") == "old"
    for each in (*processes, apart):
        each.end()
