"""TieredCache in Django over servers that are killed, stopped and emptied, and in a child of a fork."""

import threading
import time
from contextlib import contextmanager, suppress
from itertools import count

import pytest
import redis
from django.core.cache import caches

from tests.near_cache.tiers import TierOnDjango, made_tiers
from tests.waiting import join, paused, until

pytestmark = [pytest.mark.servers, pytest.mark.deep]

KEYS = [f"k{number}" for number in range(20)]
READERS = 6
TOLD_WITHIN = 2.0
"""Seconds. The promise of redis_tracking for a server that goes silent: copies are used for no longer. It does not
depend on the speed of the machine."""
CALLS = 500
HELD_CALLS = 0.05
"""The share of calls that reach for the server in an outage: with a circuit breaker, few."""


class Load:
    """Reader threads, and one client of another make that writes increasing numbers.

    A read of a number is stale by the time that has passed since the next one was acknowledged.

    Attributes:
        longest_pause: the seconds for which a thread has waited for the interpreter.
        calls: of the readers: when each began, whether it reached for the server in vain, its key and its result.
    """

    def __init__(self, server, monkeypatch):
        self.client = server.client(socket_timeout=0.1, socket_connect_timeout=0.1)
        self.acknowledged = {key: [] for key in KEYS}
        self.calls = []
        self.errors = []
        self.over = threading.Event()
        self.threads = [threading.Thread(target=self.write)]
        self.threads += [threading.Thread(target=self.read, args=(number,)) for number in range(READERS)]
        self.in_vain = set()
        self.longest_pause = 0.0
        for name in ("connect", "read_response"):
            monkeypatch.setattr(redis.Connection, name, self.noting_failures(getattr(redis.Connection, name)))

    def noting_failures(self, method):
        def noted(*args, **kwargs):
            try:
                return method(*args, **kwargs)
            except redis.RedisError:
                self.in_vain.add(threading.get_ident())
                raise

        return noted

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        join(*self.threads)

    def write(self):
        for number in count():
            asleep = time.monotonic()
            if self.over.wait(0.002):
                return
            self.longest_pause = max(self.longest_pause, time.monotonic() - asleep)
            key = KEYS[number % len(KEYS)]
            # It may have been written all the same: nothing is known about it. redis-py raises AttributeError for a
            # node that it does not know yet.
            with suppress(redis.RedisError, AttributeError):
                self.client.set(f":1:{key}", number)
                self.acknowledged[key].append((number, time.monotonic()))

    def read(self, number):
        cache = caches["tiered"]
        while not self.over.wait(0.001):
            key = KEYS[number % len(KEYS)]
            number += 1
            self.in_vain.discard(threading.get_ident())
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
            self.calls.append((began, threading.get_ident() in self.in_vain, key, found))
        cache.close()

    def goes_on(self, calls=CALLS):
        """Wait for so many calls."""
        enough = len(self.calls) + calls
        assert until(lambda: len(self.calls) >= enough)

    def since(self, when):
        """Return the calls that began at a time of the monotonic clock or later."""
        return [call for call in self.calls if call[0] >= when]

    def staleness(self, calls):
        """Return the staleness of every read among ``calls`` in seconds; 0.0 if nothing newer was acknowledged."""
        found = []
        for began, _, key, value in calls:
            if value is not None:
                newer = [when for number, when in self.acknowledged[key] if number > value]
                found.append(max(0.0, began - newer[0]) if newer else 0.0)
        return found


@contextmanager
def kill(server, recorder):
    server.kill()
    yield
    server.start()


@contextmanager
def stop(server, recorder):
    with paused(server):
        assert until(lambda: not recorder.trusted)
        yield


@contextmanager
def flush(server, recorder):
    for _ in range(10):
        server.client().flushall()
        time.sleep(0.02)
    yield


OUTAGES = {"FLUSHALL": flush, "SIGSTOP": stop, "kill -9 and restart": kill}


@pytest.mark.alone
def test_under_load_no_call_fails_or_hangs_and_nothing_stale_is_read_after_recovery(own_redis, trackings, monkeypatch):
    options = {"fail_safe": 60, "l1_timeout": 30}
    behind = {"TIMEOUT": None}
    spans = {}
    with made_tiers(trackings) as make:
        tier = make(TierOnDjango, "redis", own_redis, behind=behind, **options)
        recorder = trackings()[-1].recorder
        with Load(own_redis, monkeypatch) as load:
            for name, outage in OUTAGES.items():
                load.goes_on()
                before = len(load.calls)
                with outage(own_redis, recorder):
                    load.goes_on()
                meanwhile = load.calls[before:]
                assert until(lambda: recorder.trusted and tier.set_many({"probe": 1}) == [])
                recovered, hits = time.monotonic(), tier.engine.stats().hits
                load.goes_on()
                # Copies are in use again.
                assert until(lambda hits=hits: tier.engine.stats().hits > hits + 30, note=name)
                # After the loss of all values, the writer must come round before readers find any.
                assert until(lambda recovered=recovered: len(load.staleness(load.since(recovered))) > 50, note=name)
                spans[name] = meanwhile, load.since(recovered)
    assert load.errors == []
    for name, (meanwhile, after) in spans.items():
        assert sum(in_vain for _, in_vain, _, _ in meanwhile) <= HELD_CALLS * len(meanwhile), name
        assert max(load.staleness(after)) < TOLD_WITHIN, name
