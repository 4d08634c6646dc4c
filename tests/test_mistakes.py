"""The usual mistakes of new users in Django and Flask, and the messages that they see."""

import asyncio
import threading

import flask
import flask_caching
import pytest
from django.core.cache import caches
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings

from tests.guests import needs
from tests.scripts import run_python
from wheelcache.flask_backend import Cache

REDIS = {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": "redis://127.0.0.1:1"}
PLAIN, TIERED, HOST = "WheelCache", "TieredCache", "HostCache"
UNPICKLABLE = {"lock": threading.Lock()}
OF_DEFAULT, OF_SHOP = "of the cache 'default'", "of the cache 'shop'"


def django(backend=PLAIN, call=lambda cache: cache.get("k"), **options):
    """Use a cache of Django with these options."""
    entry = {"BACKEND": f"wheelcache.django_backend.{backend}", "LOCATION": "mistakes", "OPTIONS": options}
    with override_settings(CACHES={"default": entry, "redis": REDIS}):
        call(caches["default"])


def of_flask(backend=PLAIN, call=lambda cache: cache.get("k"), make=flask_caching.Cache, **options):
    """Use a cache of Flask-Caching with these options."""
    app = flask.Flask("shop")
    app.debug = True
    app.config.update(CACHE_TYPE=f"wheelcache.flask_backend.{backend}", CACHE_OPTIONS=options, CACHE_KEY_PREFIX="")
    cache = make(app)
    with app.app_context():
        call(cache)


def cases(*rows):
    """Return the rows. Those that name a backend of a guest are left out where the guest is missing."""
    guests = {TIERED: needs("near_cache"), HOST: needs("host_cache")}
    return [
        pytest.param(*row, marks=[mark for backend, mark in guests.items() if backend in f"{row[1]} {row[3:]}"])
        for row in rows
    ]


SETTINGS = cases(
    (django, PLAIN, {"L1_TIMEOUT": 5}, f"'L1_TIMEOUT' {OF_DEFAULT}; it belongs to TieredCache"),
    (django, PLAIN, {"l2": "redis"}, f"'l2' {OF_DEFAULT}; it belongs to TieredCache"),
    (django, PLAIN, {"MAX_SIZE": 1 << 20}, f"'MAX_SIZE' {OF_DEFAULT}; it belongs to HostCache"),
    (django, HOST, {"TIMEOUT": 60}, f"'TIMEOUT' {OF_DEFAULT}; it belongs next to OPTIONS"),
    (django, HOST, {"L2": "redis"}, f"'L2' {OF_DEFAULT}; it belongs to TieredCache"),
    (django, HOST, {"POLICY": "lru"}, f"'POLICY' {OF_DEFAULT}; it belongs to WheelCache and TieredCache"),
    (django, TIERED, {"L2": "redis", "MAX_SIZE": 1}, f"'MAX_SIZE' {OF_DEFAULT}; it belongs to HostCache"),
    (django, TIERED, {}, "the cache 'default': Set L2 to the alias of another cache, such as your Redis cache"),
    (of_flask, PLAIN, {"l1_timeout": 5}, f"'l1_timeout' {OF_SHOP}; it belongs to TieredCache"),
    (of_flask, PLAIN, {"location": "x"}, f"'location' {OF_SHOP}; it belongs to HostCache"),
    (of_flask, PLAIN, {"max_entries": 9}, f"'max_entries' {OF_SHOP}; did you mean threshold?"),
    (of_flask, HOST, {"l2": "RedisCache"}, f"'l2' {OF_SHOP}; it belongs to TieredCache"),
    (of_flask, TIERED, {}, "the cache 'shop': Set l2 to another cache, such as 'RedisCache'"),
)


@pytest.mark.parametrize(("site", "backend", "options", "expected"), SETTINGS)
def test_a_wrong_setting_is_refused_with_the_remedy(site, backend, options, expected):
    with pytest.raises((ImproperlyConfigured, TypeError)) as refused:
        site(backend, **options)
    assert expected in str(refused.value)


@pytest.mark.parametrize(
    ("site", "backend", "options"),
    cases((django, TIERED, {"L2": "redis"}), (of_flask, TIERED, {"l2": "RedisCache"})),
)
def test_a_missing_redis_is_named_with_the_command_that_installs_it(monkeypatch, site, backend, options):
    monkeypatch.setattr("wheelcache.near_cache.socket_options.HAS_REDIS", False)
    with pytest.raises(
        (ImproperlyConfigured, ValueError), match=r"RedisCache needs the package redis.*run pip install redis"
    ):
        site(backend, **options)


VALUES = cases(
    (django, PLAIN, lambda cache: cache.set("k", UNPICKLABLE), ":1:k"),
    (django, PLAIN, lambda cache: cache.set_many({"a": 1, "k": UNPICKLABLE}), ":1:k"),
    (django, PLAIN, lambda cache: cache.add("k", UNPICKLABLE), ":1:k"),
    (django, PLAIN, lambda cache: cache.get_or_set("k", lambda: UNPICKLABLE), ":1:k"),
    (django, PLAIN, lambda cache: asyncio.run(cache.aset("k", UNPICKLABLE)), ":1:k"),
    (django, PLAIN, lambda cache: cache.set("k", UNPICKLABLE, tags=["a"]), ":1:k"),
    (django, HOST, lambda cache: cache.set("k", UNPICKLABLE), ":1:k"),
    (of_flask, PLAIN, lambda cache: cache.set("k", UNPICKLABLE), "k"),
    (of_flask, PLAIN, lambda cache: cache.set_many({"k": UNPICKLABLE}), "k"),
    (of_flask, PLAIN, lambda cache: cache.cache.get_or_load("k", lambda: UNPICKLABLE), "k"),
)


@pytest.mark.parametrize(("site", "backend", "call", "key"), VALUES)
def test_a_value_that_cannot_be_pickled_is_named_by_its_key(site, backend, call, key):
    with pytest.raises(TypeError, match="cannot pickle") as refused:
        site(backend, call)
    assert refused.value.__notes__ == [f"The value of the key {key!r} was not cached."]


@pytest.mark.parametrize("make", [flask_caching.Cache, Cache])
def test_a_result_that_cannot_be_pickled_is_named_by_its_key(make):
    with pytest.raises(TypeError, match="cannot pickle") as refused:
        of_flask(call=lambda cache: cache.memoize()(lambda number: UNPICKLABLE)(1), make=make)
    (note,) = refused.value.__notes__
    assert note.startswith("The value of the key")


ARGUMENTS = cases(
    (django, PLAIN, lambda cache: cache.set("k", 1, tag="a"), "set"),
    (django, PLAIN, lambda cache: cache.add("k", 1, tag="a"), "add"),
    (django, PLAIN, lambda cache: cache.set_many({"k": 1}, tag="a"), "set_many"),
    (django, PLAIN, lambda cache: cache.get_or_set("k", lambda: 1, tag="a"), "get_or_set"),
    (django, PLAIN, lambda cache: asyncio.run(cache.aadd("k", 1, tag="a")), "add"),
    (django, PLAIN, lambda cache: asyncio.run(cache.aget_or_set("k", lambda: 1, tag="a")), "get_or_set"),
    (django, TIERED, lambda cache: cache.get_or_set("k", lambda: 1, tag="a"), "get_or_set"),
    (of_flask, PLAIN, lambda cache: cache.set("k", 1, tag="a"), "set"),
    (of_flask, PLAIN, lambda cache: cache.cache.get_or_load("k", lambda: 1, tag="a"), "get_or_load"),
)


@pytest.mark.parametrize(("site", "backend", "call", "name"), ARGUMENTS)
def test_an_unknown_argument_is_named_with_the_public_method(site, backend, call, name):
    options = {"L2": "redis"} if backend == TIERED else {}
    with pytest.raises(TypeError) as refused:
        site(backend, call, **options)
    assert f"{name}() got an unexpected keyword argument 'tag'" in str(refused.value)
    assert not any(part.startswith("_") for part in str(refused.value).partition("(")[0].split("."))


SITE = """
from django.conf import settings
settings.configure(CACHES={"default": {"BACKEND": "wheelcache.django_backend.WheelCache"}}, INSTALLED_APPS=%r)
import django
django.setup()
from django.core.cache import cache
for _ in range(3):
    cache.get("k")
"""


@pytest.mark.parametrize(("installed", "number"), [([], 1), (["wheelcache.django_backend"], 0)])
def test_the_log_names_the_app_once_if_it_is_not_installed(installed, number):
    outcome = run_python("-c", SITE % installed)
    assert outcome.returncode == 0
    missing = "'wheelcache.django_backend' is not in INSTALLED_APPS: without it, there is no manage.py wheelcache"
    assert outcome.stderr.count(missing) == number
