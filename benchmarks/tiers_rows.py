"""A near cache in front of Redis: Django's TieredCache compared with Django's RedisCache and others, on the loopback.

A new redis-server runs on a free port and stores nothing on disk. On a real network, a hit costs the same and a miss
costs more, so the first ratio is the smallest that is possible.

All keys are always in Redis. A miss is a read of a key whose copy was dropped; the time for dropping it is not
included. Hits and misses are also compared with redis-py's client-side cache, which copies the values of a client as
bytes. It belongs to the client, so its figures do not include Django's keys and pickle.
"""

import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import redis
from django.core.cache import caches
from django.test import override_settings
from redis.cache import CacheConfig
from redis.connection import CacheProxyConnection

from benchmarks.django_rows import configure_django
from benchmarks.report import Row, Section, costlier, faster
from benchmarks.timing import Contender, Step, Timing, calling, interleaved

KEYS = 200
ROUNDS = 60
STEPS = 4 * ROUNDS
PATIENCE = 10.0
"""The seconds within which the server must answer, and must report writes."""

OURS = "TieredCache"
DJANGO = "Django's RedisCache"
DJANGO_REDIS = "django-redis"
CLIENT_SIDE = "redis-py, client-side cache"

VALUES: dict[str, Any] = {
    "str": "a name and an address, such as a cache might hold",
    "dict": {"id": 1, "name": "Ada Lovelace", "tags": ["mathematics", "engines"], "active": True},
}


def measure(step: Step) -> Section:
    if shutil.which("redis-server") is None:
        return Section("Tiers", "Not measured: there is no redis-server in the PATH.", [], {})
    configure_django()
    # redis-py refuses servers before 7.4, although 6.0 has all features that are used here.
    CacheProxyConnection.MIN_ALLOWED_VERSION = "6.0.0"
    with ExitStack() as stack:
        port = stack.enter_context(redis_server())
        stack.enter_context(override_settings(CACHES=_aliases(port)))
        client = stack.enter_context(redis.Redis(port=port, protocol=3, cache_config=CacheConfig(max_size=10 * KEYS)))
        tiered = caches["tiered"]
        _wait_until_trusted(tiered)
        figures = {}
        for kind, value in VALUES.items():
            keys = [f"user:{number}:{kind}" for number in range(KEYS)]
            caches["redis"].set_many(dict.fromkeys(keys, value))
            caches["django-redis"].set_many(dict.fromkeys(keys, value))
            time.sleep(0.2)  # The invalidations of these writes must not drop copies later.
            for operation, drops in (("hit", False), ("miss", True)):
                figures[f"{operation}, {kind}"] = interleaved(_contenders(keys, tiered, client, drops), ROUNDS, step)
        tiered.store.level.start_tracking.__self__.stop()
    return Section(
        "Tiers",
        f"Nanoseconds per get, median of {ROUNDS} interleaved rounds of {KEYS} keys, Redis on the same machine.",
        [
            *_hits("get, str, with a copy", figures["hit, str"], 100),
            *_hits("get, dict, with a copy", figures["hit, dict"]),
            *_misses("get, str, without a copy", figures["miss, str"], 1.3),
            *_misses("get, dict, without a copy", figures["miss, dict"]),
        ],
        figures,
    )


def _contenders(keys: Sequence[str], tiered: Any, client: redis.Redis, drops: bool) -> list[Contender]:
    made = {key: tiered.make_key(key) for key in keys}
    client_cache: Any = client.get_cache()

    def drop_copies() -> None:
        for each in made.values():
            tiered.store.cache.delete(each)

    def before(drop: Callable[[], object]) -> Callable[[], Sequence[str]]:
        def arguments() -> Sequence[str]:
            if drops:
                drop()
            return keys

        return arguments

    return [
        Contender(OURS, calling(tiered.get), before(drop_copies)),
        Contender(DJANGO, calling(caches["redis"].get), lambda: keys),
        Contender(DJANGO_REDIS, calling(caches["django-redis"].get), lambda: keys),
        Contender(CLIENT_SIDE, _calling_made(client.get, made), before(client_cache.flush)),
    ]


def _calling_made(get: Callable[[str], object], made: dict[str, str]) -> Callable[[Sequence[str]], int]:
    """Return rounds of ``get`` with the complete keys of Redis, which are computed before the rounds."""
    call = calling(get)
    return lambda keys: call([made[key] for key in keys])


def _hits(operation: str, timings: dict[str, Timing], at_least: float | None = None) -> list[Row]:
    ours = timings[OURS].median
    return [
        faster(operation, ours, peer, timings[peer].median, at_least if peer == DJANGO else None)
        for peer in (DJANGO, DJANGO_REDIS, CLIENT_SIDE)
    ]


def _misses(operation: str, timings: dict[str, Timing], at_most: float | None = None) -> list[Row]:
    ours = timings[OURS].median
    return [
        costlier(operation, ours, peer, timings[peer].median, at_most if peer == DJANGO else None)
        for peer in (DJANGO, DJANGO_REDIS, CLIENT_SIDE)
    ]


def _aliases(port: int) -> dict[str, dict[str, Any]]:
    return {
        "default": {"BACKEND": "django.core.cache.backends.dummy.DummyCache"},
        "redis": {
            "BACKEND": "django.core.cache.backends.redis.RedisCache",
            "LOCATION": f"redis://127.0.0.1:{port}/0",
            "TIMEOUT": None,
        },
        # In another database, since its values are pickled differently.
        "django-redis": {
            "BACKEND": "django_redis.cache.RedisCache",
            "LOCATION": f"redis://127.0.0.1:{port}/1",
            "TIMEOUT": None,
        },
        "tiered": {
            "BACKEND": "wheelcache.django_backend.TieredCache",
            "LOCATION": "benchmark",
            "OPTIONS": {"L2": "redis", "L1_TIMEOUT": 3600},
        },
    }


@contextmanager
def redis_server() -> Iterator[int]:
    """Run a redis-server, and yield its port."""
    with tempfile.TemporaryDirectory() as directory:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port: int = free.getsockname()[1]
        options = ["--port", str(port), "--bind", "127.0.0.1", "--dir", directory, "--save", "", "--appendonly", "no"]
        process = subprocess.Popen(["redis-server", *options], stdout=subprocess.DEVNULL)
        try:
            with redis.Redis(port=port) as client:
                wait_until(lambda: _answers(client), f"redis-server on port {port} answers")
            yield port
        finally:
            process.terminate()
            process.wait(PATIENCE)


def _answers(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except redis.ConnectionError:
        return False


def _wait_until_trusted(tiered: Any) -> None:
    # The first read starts the tracking.
    tiered.get("first")
    wait_until(lambda: tiered.store.level.trusted, "Redis reports writes")


def wait_until(condition: Callable[[], bool], event: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError(f"it takes more than {PATIENCE} s until {event}")
        time.sleep(0.01)
