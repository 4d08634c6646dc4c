"""The server behind a TieredCache killed, stopped, paused and emptied, under load."""

import statistics
import threading
import time
from contextlib import contextmanager
from itertools import count

import pytest
import redis
from django.core.cache import caches
from django.test import override_settings

from tests.engines import engine
from tests.redis_server import RedisServer
from tests.tracking import Noted
from tests.waiting import PATIENCE, until
from wheelcache.errors import StoreUnavailable

pytestmark = pytest.mark.servers

L2_TIMEOUT = 0.2
KEYS = [f"k{number}" for number in range(20)]
READERS = 6
LONGEST_CALL = 1.0
"""Seconds. One wait for an answer, and what two busy cores add."""
TOLD_WITHIN = 2.0
"""Seconds. What redis_tracking promises of a server that says nothing any more."""
HELD_CALLS = 0.05
"""The share of calls that wait for the server in an outage: with a circuit breaker, few."""

_names = map("outage {}".format, count())


@pytest.fixture
def server():
    with RedisServer() as server:
        yield server


@pytest.fixture(autouse=True)
def _trackings(trackings):
    """What is made in a test is noted, and stopped at its end."""


def answers(cache):
    """Whether the cache behind takes a write, which a circuit that is open keeps from it."""
    return cache.set_many({"probe": 1}) == []


@contextmanager
def tiered(server, backend="django.core.cache.backends.redis.RedisCache", **options):
    url = f"redis://{server.host}:{server.port}/0"
    configured = {
        "default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"},
        "behind": {"BACKEND": backend, "LOCATION": url, "TIMEOUT": None},
        "tiered": {
            "BACKEND": "wheelcache.django_backend.TieredCache",
            "LOCATION": next(_names),
            "OPTIONS": {"L2": "behind", "L2_TIMEOUT": L2_TIMEOUT, "LOG_INTERVAL": None, **options},
        },
    }
    with override_settings(CACHES=configured):
        cache = caches["tiered"]
        connection = Noted.made[-1]
        connection.start()
        assert until(lambda: connection.told.trusted)
        yield cache, connection.told


class Load:
    """Threads that read, and one client of another make that writes numbers that only grow.

    A read of a number is stale by the time that has passed since the next one was acknowledged.
    """

    def __init__(self, server):
        self.client = server.client(socket_timeout=0.1, socket_connect_timeout=0.1)
        self.acknowledged = {key: [] for key in KEYS}
        self.calls = []
        self.errors = []
        self.over = threading.Event()
        self.threads = [threading.Thread(target=self.write)]
        self.threads += [threading.Thread(target=self.read, args=(number,)) for number in range(READERS)]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        for thread in self.threads:
            thread.join(PATIENCE)
        assert not any(thread.is_alive() for thread in self.threads), "a call hangs"

    def write(self):
        number = 0
        while not self.over.wait(0.002):
            key = KEYS[number % len(KEYS)]
            number += 1
            try:
                self.client.set(f":1:{key}", number)
            except redis.RedisError:
                # It may have been written all the same: nothing is said of it.
                continue
            self.acknowledged[key].append((number, time.monotonic()))

    def read(self, number):
        cache = caches["tiered"]
        while not self.over.wait(0.001):
            key = KEYS[number % len(KEYS)]
            number += 1
            began = time.monotonic()
            found = None
            try:
                if number % 5 == 0:
                    found = cache.get_many([key]).get(key)
                elif number % 7 == 0:
                    cache.set("written", number)
                elif number % 11 == 0:
                    found = cache.get_or_set("made", lambda: 1) and None
                else:
                    found = cache.get(key)
            except Exception as error:
                self.errors.append(error)
            self.calls.append((began, time.monotonic() - began, key, found))
        cache.close()

    def staleness(self, since, until):
        """Of every read that began in this time, in seconds; 0.0 if nothing newer had been acknowledged by then."""
        found = []
        for began, _, key, value in self.calls:
            if value is None or not since <= began < until:
                continue
            newer = [when for number, when in self.acknowledged[key] if number > value]
            found.append(max(0.0, began - newer[0]) if newer else 0.0)
        return found

    def seconds(self, since, until):
        return sorted(took for began, took, _, _ in self.calls if since <= began < until)


def percentile(values, share):
    return values[min(len(values) - 1, int(len(values) * share))]


def kill(server):
    server.kill()
    time.sleep(1.5)  # an outage takes its time
    server.start()


def stop(server):
    server.pause()
    time.sleep(2.5)
    server.resume()


def client_pause(server):
    server.client().execute_command("CLIENT", "PAUSE", "1500", "ALL")
    time.sleep(1.5)


def flush(server):
    for _ in range(20):
        server.client().flushall()
        time.sleep(0.02)


OUTAGES = {"kill -9 and restart": kill, "SIGSTOP": stop, "CLIENT PAUSE": client_pause, "FLUSHALL": flush}


@pytest.mark.parametrize("outage", OUTAGES.values(), ids=OUTAGES)
def test_under_load_no_call_fails_or_hangs_and_nothing_stale_is_read_after_recovery(server, outage, capsys):
    with tiered(server, FAIL_SAFE=True, GRACE=60, L1_TIMEOUT=30) as (cache, told), Load(server) as load:
        time.sleep(0.5)
        began = time.monotonic()
        outage(server)
        ended = time.monotonic()
        assert until(lambda: told.trusted and answers(cache))
        recovered = time.monotonic()
        hits = engine(cache).stats().hits
        time.sleep(1.0)
        over = time.monotonic()
        hits = engine(cache).stats().hits - hits
    assert load.errors == []
    took, stale = load.seconds(began, recovered), load.staleness(recovered, over)
    with capsys.disabled():
        print(
            f"\n{ended - began:.1f} s, recovered after {recovered - ended:.2f} s; {len(took)} calls meanwhile: "
            f"median {statistics.median(took) * 1e3:.2f} ms, 99% {percentile(took, 0.99) * 1e3:.1f} ms, "
            f"longest {took[-1] * 1e3:.0f} ms; after it {len(stale)} reads, "
            f"{hits} of copies, stale by at most {max(stale) * 1e3:.1f} ms"
        )
    # With copies in use again.
    assert hits > 100
    assert len(took) > 50
    assert took[-1] < LONGEST_CALL
    assert percentile(took, 1 - HELD_CALLS) < 0.1
    assert len(stale) > 100
    assert max(stale) < TOLD_WITHIN
    assert percentile(sorted(stale), 0.99) < 0.1


def test_without_fail_safe_the_errors_reach_the_caller_each_after_one_timeout(server):
    with tiered(server) as (cache, told):
        cache.set("k", 1)
        server.pause()
        assert until(lambda: not told.trusted)
        calls = [
            lambda: cache.get("k"),
            lambda: cache.set("k", 2),
            lambda: cache.get_many(["k"]),
            lambda: cache.incr("k"),
            lambda: cache.delete("k"),
            lambda: cache.has_key("k"),
            lambda: cache.get_or_set("k", 1),
            cache.clear,
        ]
        for call in calls:
            began = time.monotonic()
            with pytest.raises(redis.TimeoutError):
                call()
            assert time.monotonic() - began < 2 * L2_TIMEOUT + 0.1
        server.kill()
        for call in calls:
            with pytest.raises(redis.ConnectionError):
                call()
        server.start()
        assert until(lambda: told.trusted)
        assert cache.get("k") is None


def test_with_fail_safe_stale_copies_are_served_and_writes_are_dropped_with_one_line_each_way(server, caplog):
    with tiered(server, FAIL_SAFE=True) as (cache, told):
        cache.set("k", 1)
        # Redis tells of this write as well, and a copy that was made before that is dropped.
        assert until(lambda: told.keys)
        assert until(lambda: cache.get("k") == 1 and engine(cache).keys())
        server.kill()
        assert until(lambda: not told.trusted)
        for _ in range(20):
            assert cache.get("k") == 1
        assert cache.get_many(["k", "none"]) == {"k": 1}
        assert cache.has_key("k")
        cache.set("l", 1)
        assert cache.get("l") is None
        assert cache.set_many({"l": 1}) == ["l"]
        assert [cache.add("l", 1), cache.touch("l"), cache.delete("l")] == [False] * 3
        assert cache.get_or_set("l", lambda: 5) == 5
        with pytest.raises(StoreUnavailable):
            cache.incr("l")
        cache.delete_many(["l"])
        server.start()
        assert until(lambda: answers(cache))
        assert until(lambda: told.trusted)
        assert cache.get("k") is None
        cache.set("k", 2)
        assert cache.get("k") == 2
    lines = [record.getMessage() for record in caplog.records if record.name == "wheelcache"]
    assert sum("are not told" in line for line in lines) == 1
    assert sum("are told again" in line for line in lines) == 1
    assert sum("is left alone" in line for line in lines) == 1
    assert sum("answers again" in line for line in lines) == 1
    assert len(lines) == 4


def test_writes_are_refused_where_that_is_asked_for(server):
    with tiered(server, FAIL_SAFE=True, WRITES_WITHOUT_L2="refuse") as (cache, _):
        server.kill()
        for _ in range(5):
            with pytest.raises((redis.ConnectionError, StoreUnavailable)):
                cache.set("k", 1)
            assert cache.get("k") is None


def test_a_cleared_cache_is_empty_also_if_the_server_is_down(server):
    with tiered(server, FAIL_SAFE=True) as (cache, _):
        cache.set("k", 1)
        assert until(lambda: cache.get("k") == 1 and engine(cache).keys())
        server.kill()
        cache.clear()
        assert cache.get("k") is None


@pytest.mark.parametrize("backend", ["django.core.cache.backends.redis.RedisCache", "django_redis.cache.RedisCache"])
def test_a_server_that_is_down_at_the_start_is_found_when_it_comes(server, backend):
    url = f"redis://{server.host}:{server.port}/0"
    server.kill()
    configured = {
        "default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"},
        "behind": {"BACKEND": backend, "LOCATION": url},
        "tiered": {
            "BACKEND": "wheelcache.django_backend.TieredCache",
            "LOCATION": next(_names),
            "OPTIONS": {"L2": "behind", "FAIL_SAFE": True, "LOG_INTERVAL": None},
        },
    }
    with override_settings(CACHES=configured):
        cache = caches["tiered"]
        assert cache.get("k", "default") == "default"
        server.start()
        assert until(lambda: cache.set("k", 1) or cache.get("k") == 1)
        assert until(lambda: cache.get("k") == 1 and engine(cache).keys() == [":1:k"])
