"""Code of a user with types, for type checkers: nothing imports it."""

from __future__ import annotations

from datetime import timedelta
from typing import assert_type

from django.core.handlers.wsgi import WSGIHandler

from wheelcache import DEFAULT_TTL, Cache, ManualClock, MemoStats, RemovalCause, Stats, caches
from wheelcache.django_backend import WheelCache as DjangoWheelCache
from wheelcache.django_backend import memoize
from wheelcache.flask_backend import Cache as FlaskCache
from wheelcache.flask_backend import WheelCache as FlaskWheelCache
from wheelcache.pages import HTTPCache
from wheelcache.timers import Timers

django_cache = DjangoWheelCache("users", {})
cache = Cache("users", max_entries=1000, ttl=300, jitter=0.1, clock=ManualClock())


@cache.memoize(60)
def area(width: int, height: int = 2) -> int:
    return width * height


@cache.memoize(key=lambda name: name, grace=10)
async def page(name: str) -> bytes:
    return name.encode()


@memoize(60, tags=lambda user: (f"user:{user}",))
def total(user: int) -> int:
    return user


@FlaskCache().memoize(60, tags=["notes"])
def note(user: int) -> str:
    return f"{user}"


@FlaskCache().cached(timeout=timedelta(minutes=1), query_string=True)
def view() -> str:
    return "page"


class Shop:
    @cache.memoize(60)
    def price(self, number: int) -> float:
        return number * 1.5

    @classmethod
    @cache.memoize(60)
    def named(cls, name: str = "") -> str:
        return name

    @classmethod
    @memoize(60)
    async def of_django(cls, name: str) -> bytes:
        return name.encode()

    @classmethod
    @FlaskCache().memoize(60)
    def of_flask(cls, name: str) -> str:
        return name


def listener(key: object, value: object, cause: RemovalCause) -> None: ...


def work(timers: Timers) -> None:
    assert_type(area(3, height=4), int)
    assert_type(area.cache_stats(), MemoStats)
    assert_type(total(1), int)
    assert_type(note(1), str)
    assert_type(Shop().price(1), float)
    assert_type(Shop.price(Shop(), 1), float)
    assert_type(Shop().price.cache_delete(1), bool)
    assert_type(Shop.named("a"), str)
    assert_type(Shop.named.cache_delete(Shop, "a"), bool)
    assert_type(Shop.of_flask("a"), str)
    assert_type(view(), str)
    assert_type(cache.get_or_load("k", lambda: 5), int)
    assert_type(django_cache.get_or_set("k", lambda: 5, 60), int)
    assert_type(django_cache.get_or_set("k", "text", grace=5), str)
    assert_type(FlaskWheelCache().get_or_load("k", lambda: "text"), str)
    assert_type(cache.set("k", 1, DEFAULT_TTL), bool)
    assert_type(cache.expires_in("k"), float | None)
    assert_type(cache.stats(), Stats)
    assert_type([each.name for each in caches()], list[str])
    assert_type(cache.set("k", 1, tags=("user:7",)), bool)
    assert_type(cache.delete_tags("user:7", "articles"), None)
    cache.on_removal = listener
    timers.set_timer("k", "value", 5)
    HTTPCache().wsgi(WSGIHandler())


async def number() -> int:
    return 5


async def read() -> bytes:
    assert_type(await cache.aget_or_load("k", number), int)
    assert_type(await django_cache.aget_or_set("k", number), int)
    assert_type(await django_cache.aget_or_set("k", lambda: "text"), str)
    assert_type(await django_cache.aget_or_set("k", b"bytes"), bytes)
    assert_type(await Shop.of_django("a"), bytes)
    return await page("x")


def mistakes() -> None:
    area("wide")  # error
    area(1, depth=2)  # error
    Shop().price("one")  # error
    cache.set("k", 1, ttl="soon")  # error
    cache.get_or_load("k", 7)  # error
    cache.set("k", 1, tags=7)  # error
    cache.delete_tags(["user:7"])  # error
    Cache("users", max_entires=1)  # error
    Shop.named(1)  # error
    Shop.of_flask(1)  # error
    FlaskCache().memoize(tiemout=5)  # error
    FlaskCache().cached(tiemout=5)  # error
    django_cache.get_or_set("k", 5, graec=5)  # error
