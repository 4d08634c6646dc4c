"""What the code of a site calls: Django's ``cache`` and ``caches``, sessions, ``{% cache %}``, and Flask's ``Cache``.

Every call looks the cache up, as a site does. The peers are the same calls of a site with LocMemCache or SimpleCache.
Those of Django go through a handler of their own, on which direct access has no effect.
"""

from collections.abc import Callable, Mapping, Sequence
from types import FunctionType
from typing import Any

import flask_caching
from django.core.cache import CacheHandler, cache, caches
from django.utils.connection import ConnectionProxy
from flask import Flask

from benchmarks.django_rows import MAX_ENTRIES, VALUE, configure_django, keys, locmem_alias, wheel_alias
from benchmarks.report import Row, Section, by_core, faster
from benchmarks.timing import Contender, Round, Step, Timing, calling, getting, getting_by_alias, interleaved
from wheelcache import flask_backend

CALLS = 1_000
ROUNDS = 60
REQUEST_CALLS = 50
"""Reads of a session, and fragments."""
STEPS = 4 * ROUNDS

OURS = "wheelcache"
INDIRECT = "without direct access"
LOCMEM = "LocMemCache"
THEIR_CACHE = "flask_caching.Cache"
SIMPLE = "flask_caching.Cache over SimpleCache"

TEMPLATE = "{% load cache %}{% cache 300 sidebar user %}{{ user }}{% endcache %}"


def measure(step: Step) -> Section:
    configure_django(
        default=wheel_alias("default", MAX_ENTRIES),
        locmem=locmem_alias("default", MAX_ENTRIES),
    )
    # As a site whose default cache is a LocMemCache, and as a site that has turned direct access off.
    locmem, indirect = (CacheHandler({"default": caches.settings[alias]}) for alias in ("locmem", "default"))
    for each in (caches, locmem):
        each["default"].set_many(dict.fromkeys(keys, VALUE))
    proxies = interleaved(
        [
            _reading(OURS, getting(cache)),
            _reading(INDIRECT, getting(ConnectionProxy(indirect, "default"))),
            _reading(LOCMEM, getting(ConnectionProxy(locmem, "default"))),
        ],
        ROUNDS,
        step,
    )
    aliases = interleaved(
        [
            _reading(name, getting_by_alias(handler, "default"))
            for name, handler in ((OURS, caches), (INDIRECT, indirect), (LOCMEM, locmem))
        ],
        ROUNDS,
        step,
    )
    requests = interleaved(
        [
            contender
            for name, handler in ((OURS, caches), (LOCMEM, locmem))
            for contender in (_session(name, handler), _fragment(name, handler))
        ],
        ROUNDS,
        step,
    )
    flask = interleaved(
        [
            _of_flask(OURS, flask_backend.Cache, "wheelcache.flask_backend.WheelCache"),
            _of_flask(THEIR_CACHE, flask_caching.Cache, "wheelcache.flask_backend.WheelCache"),
            _of_flask(SIMPLE, flask_caching.Cache, "SimpleCache"),
        ],
        ROUNDS,
        step,
    )
    return Section(
        "Calls of a site",
        f"Nanoseconds per call, median of {ROUNDS} interleaved rounds of {CALLS:,} calls (of a session or fragment: "
        f"{REQUEST_CALLS}).",
        [
            *_rows("django.core.cache.cache.get, hit", proxies, LOCMEM, by_core(compiled=30, python=5)),
            *_rows('caches["default"].get, hit', aliases, LOCMEM, by_core(compiled=15, python=5)),
            _faster("read of a session", requests, _of_session, 2),
            _faster("{% cache %}, hit", requests, _of_fragment, 1.8),
            *_rows("Flask's cache.get, hit", flask, SIMPLE, by_core(compiled=6, python=2), THEIR_CACHE),
        ],
        {"cache": proxies, "caches": aliases, "requests": requests, "flask": flask},
    )


def _rows(
    operation: str, timings: Mapping[str, Timing], peer: str, at_least: float | None, other: str = INDIRECT
) -> list[Row]:
    ours = timings[OURS].median
    return [
        faster(operation, ours, peer, timings[peer].median, at_least),
        faster(operation, ours, other, timings[other].median),
    ]


def _faster(operation: str, timings: Mapping[str, Timing], named: Callable[[str], str], at_least: float) -> Row:
    return faster(
        operation, timings[named(OURS)].median, LOCMEM, timings[named(LOCMEM)].median, by_core(compiled=at_least)
    )


def _reading(name: str, round_of: Round) -> Contender:
    arguments = [keys[number % len(keys)] for number in range(CALLS)]
    return Contender(name, round_of, lambda: arguments)


# Django's functions with another handler in the place of ``caches``.


def _with_caches(function: Any, handler: CacheHandler) -> Any:
    """Return a copy of ``function`` that uses ``handler`` instead of ``caches``."""
    names = {**function.__globals__, "caches": handler}
    return FunctionType(function.__code__, names, function.__name__, function.__defaults__, function.__closure__)


def _of_session(name: str) -> str:
    return f"session, {name}"


def _session(name: str, handler: CacheHandler) -> Contender:
    from django.contrib.sessions.backends.cache import SessionStore

    class Store(SessionStore):
        __init__ = _with_caches(SessionStore.__init__, handler)

    written = Store()
    written.update({"_auth_user_id": "7", "_auth_user_backend": "backend", "_auth_user_hash": "x" * 64})
    written.save()

    def read(key: str) -> object:
        return Store(key)["_auth_user_id"]

    assert read(str(written.session_key)) == "7"
    return Contender(_of_session(name), calling(read), lambda: [written.session_key] * REQUEST_CALLS)


def _of_fragment(name: str) -> str:
    return f"fragment, {name}"


def _fragment(name: str, handler: CacheHandler) -> Contender:
    from django.template import Context, Engine
    from django.templatetags.cache import CacheNode

    class Node(CacheNode):
        render = _with_caches(CacheNode.render, handler)

    engine = Engine(libraries={"cache": "django.templatetags.cache"})
    _, parsed = engine.from_string(TEMPLATE).nodelist
    node = Node(parsed.nodelist, parsed.expire_time_var, parsed.fragment_name, parsed.vary_on, parsed.cache_name)
    context = Context({"user": "Ada"})
    context.template = engine.from_string(TEMPLATE)
    assert node.render(context) == node.render(context) == "Ada"
    return Contender(_of_fragment(name), calling(node.render), lambda: [context] * REQUEST_CALLS)


# Flask.


def _of_flask(name: str, kind: type[flask_caching.Cache], cache_type: str) -> Contender:
    app = Flask(name)
    flask_cache = kind(app, config={"CACHE_TYPE": cache_type})
    with app.app_context():
        for key in keys:
            flask_cache.set(key, VALUE)
    round_of = getting(flask_cache)

    def in_context(arguments: Sequence[Any]) -> int:
        with app.app_context():
            return round_of(arguments)

    return _reading(name, in_context)
