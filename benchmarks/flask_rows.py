"""Flask-Caching's backends: wheelcache compared with SimpleCache, and the cost of a memoized call with each.

Most of the time of a memoized call that hits is spent in Flask-Caching, which makes a key from the arguments and looks
up a version. A backend that does only one look-up in a dict shows the cost of this part, which our ``Cache`` replaces.
A cached view is called through ``wsgi_app``, and so is the same view without a decorator in the same app.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import count, islice
from typing import Any

from flask import Flask
from flask_caching import Cache
from flask_caching.backends.base import BaseCache
from flask_caching.backends.simplecache import SimpleCache
from werkzeug.test import EnvironBuilder, run_wsgi_app

from benchmarks.report import Row, Section, Target, by_core, costlier, faster
from benchmarks.timing import Contender, Step, calling, calling_with_two, interleaved
from wheelcache import flask_backend
from wheelcache.flask_backend import WheelCache

KEYS = 100
CALLS = 1_000
ROUNDS = 60
THRESHOLD = 10_000
FULL_CALLS = 10
"""SimpleCache sorts its 10,000 entries at each call, which takes some milliseconds."""
MEMOIZED_CALLS = 100
VIEW_CALLS = 50
STEPS = 5 * ROUNDS

OURS = "wheelcache"
FILL_WAIT = "wheelcache, fill_wait"
SIMPLE = "SimpleCache"
NO_BACKEND = "Flask-Caching's own"
OUR_CACHE = "our Cache"
BARE_VIEW = "the bare view"
FLASK_CACHING = "Flask-Caching, SimpleCache"

WHEEL_CACHE = "wheelcache.flask_backend.WheelCache"

VALUE = "a name and an address, such as a cache might hold"
DICT = {"id": 1, "name": "Ada Lovelace", "tags": ["mathematics", "engines"], "active": True}

keys = [f"user:{number}:profile" for number in range(KEYS)]


class DictBackend(BaseCache):
    """The minimum for a backend: one look-up in a dict, without expiry, limits or copies."""

    def __init__(self) -> None:
        super().__init__()
        self._entries: dict[str, Any] = {}

    def get(self, key: str) -> Any:
        return self._entries.get(key)

    def set(self, key: str, value: Any, timeout: Any = None) -> bool:
        self._entries[key] = value
        return True

    def has(self, key: str) -> bool:
        return key in self._entries


def measure(step: Step) -> Section:
    strings = interleaved([_reading(name, VALUE) for name in (OURS, FILL_WAIT, SIMPLE)], ROUNDS, step)
    dicts = interleaved([_reading(name, DICT) for name in (OURS, SIMPLE)], ROUNDS, step)
    full = interleaved([_filling(name) for name in (OURS, SIMPLE)], ROUNDS, step)
    memoized = interleaved(
        [
            _memoizing(OUR_CACHE, WHEEL_CACHE, flask_backend.Cache),
            _memoizing(OURS, WHEEL_CACHE),
            _memoizing(SIMPLE, "SimpleCache"),
            _memoizing(NO_BACKEND, f"{__name__}.DictBackend"),
        ],
        ROUNDS,
        step,
    )
    views = interleaved(_viewing(), ROUNDS, step)
    our_view, bare = views[OUR_CACHE].median, views[BARE_VIEW].median
    call, own = memoized[OURS].median, memoized[NO_BACKEND].median
    return Section(
        "Flask",
        f"Nanoseconds per call, median of {ROUNDS} interleaved rounds of {CALLS:,} calls "
        f"(into a full cache: {FULL_CALLS}, memoized: {MEMOIZED_CALLS}, of a view: {VIEW_CALLS}).",
        [
            faster(
                "get, hit, str", strings[OURS].median, SIMPLE, strings[SIMPLE].median, by_core(compiled=5, python=2)
            ),
            costlier(
                "get, hit, str, with fill_wait",
                strings[FILL_WAIT].median,
                "without fill_wait",
                strings[OURS].median,
                1.05,
            ),
            faster("get, hit, dict", dicts[OURS].median, SIMPLE, dicts[SIMPLE].median, 1.2),
            faster(
                "set, new key, threshold reached",
                full[OURS].median,
                SIMPLE,
                full[SIMPLE].median,
                by_core(compiled=500, python=10),
            ),
            faster("call of a memoized function, hit", call, SIMPLE, memoized[SIMPLE].median, by_core(compiled=1.1)),
            Row("call of a memoized function, hit", call, NO_BACKEND, own, "ns", 100 * own / call, "% of it"),
            faster(
                "call of a function memoized by our Cache, hit",
                memoized[OUR_CACHE].median,
                FLASK_CACHING,
                memoized[SIMPLE].median,
                10,
            ),
            Row(
                "request of a view cached by our Cache, hit",
                our_view,
                BARE_VIEW,
                bare,
                "ns",
                (our_view - bare) / 1000,
                "us more",
                Target(5, at_least=False),
            ),
            faster("request of a view cached by our Cache, hit", our_view, FLASK_CACHING, views[FLASK_CACHING].median),
        ],
        {"get": strings, "get dict": dicts, "set into full cache": full, "memoized": memoized, "views": views},
    )


def _backend(name: str, threshold: int = THRESHOLD) -> Any:
    if name == SIMPLE:
        return SimpleCache(threshold)
    return WheelCache(
        threshold,
        fill_wait=1 if name == FILL_WAIT else 0,
        name="benchmark",
    )


def _reading(name: str, value: Any) -> Contender:
    backend = _backend(name)
    backend.set_many(dict.fromkeys(keys, value))
    arguments = [keys[number % KEYS] for number in range(CALLS)]
    return Contender(name, calling(backend.get), lambda: arguments)


def _filling(name: str) -> Contender:
    """Return a contender that sets a new key at each call, in a backend at its threshold."""
    backend = _backend(name)
    new: Iterator[tuple[str, str]] = ((f"visitor:{number}:profile", VALUE) for number in count())
    for key, value in islice(new, THRESHOLD + 1):
        backend.set(key, value)
    return Contender(name, calling_with_two(backend.set), lambda: list(islice(new, FULL_CALLS)))


def _memoizing(name: str, cache_type: str, kind: type[Cache] = Cache) -> Contender:
    """Return a memoized function of one argument in a real app. A round runs within one app context."""
    app = Flask(name)
    cache = kind(app, config={"CACHE_TYPE": cache_type})

    @cache.memoize(300)
    def square(number: int) -> int:
        return number * number

    call: Callable[[Sequence[Any]], int] = calling(square)

    def in_context(arguments: Sequence[Any]) -> int:
        with app.app_context():
            return call(arguments)

    arguments = [number % 10 for number in range(MEMOIZED_CALLS)]
    return Contender(name, in_context, lambda: arguments)


def _viewing() -> list[Contender]:
    """Return requests of a view cached by our Cache, of the same view without a decorator, and of a view of another app
    cached by Flask-Caching."""
    app, other = Flask("views"), Flask("other views")
    ours = flask_backend.Cache(app, config={"CACHE_TYPE": WHEEL_CACHE})
    theirs = Cache(other, config={"CACHE_TYPE": "SimpleCache"})

    def view() -> str:
        return VALUE

    return [
        _requesting(OUR_CACHE, app, ours.cached(300)(view)),
        _requesting(BARE_VIEW, app, view),
        _requesting(FLASK_CACHING, other, theirs.cached(300)(view)),
    ]


def _requesting(name: str, app: Flask, view: Callable[[], str]) -> Contender:
    path = f"/{name.replace(' ', '-')}"
    app.add_url_rule(path, name, view)
    environ = EnvironBuilder(path).get_environ()

    def request(environ: dict[str, Any]) -> None:
        run_wsgi_app(app.wsgi_app, environ, buffered=True)

    return Contender(name, calling(request), lambda: [environ] * VIEW_CALLS)
