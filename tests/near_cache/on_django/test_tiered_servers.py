"""TieredCache in Django over a server that is killed, stopped and emptied."""

import threading
import time
from contextlib import contextmanager, suppress
from itertools import count

import pytest
import redis
from django.core.cache import caches

from tests.waiting import join, paused, until

pytestmark = [pytest.mark.servers, pytest.mark.deep]

KEYS = [f"k{number}" for number in range(20)]
READERS = 6
TOLD_WITHIN = 2.0
"""Seconds. The promise of redis_tracking for a server that goes silent: copies are used for no longer. It does not
depend on the speed of the machine."""
CALLS = 500


class Load:
    """Reader threads, and one client of another make that writes increasing numbers.

    Attributes:
        acknowledged: the numbers of each key, and when their writes were acknowledged.
        found: the times at which reads began, their keys and the numbers that they found, if any.
    """

    def __init__(self, server):
        self.client = server.client(socket_timeout=0.1, socket_connect_timeout=0.1)
        self.acknowledged = {key: [] for key in KEYS}
        self.found = []
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
        join(*self.threads)

    def write(self):
        for number in count():
            if self.over.wait(0.002):
                return
            key = KEYS[number % len(KEYS)]
            # It may have been written all the same: nothing is known about it.
            with suppress(redis.RedisError):
                self.client.set(f":1:{key}", number)
                self.acknowledged[key].append((number, time.monotonic()))

    def read(self, number):
        cache = caches["tiered"]
        while not self.over.wait(0.001):
            key, began, found = KEYS[number % len(KEYS)], time.monotonic(), None
            number += 1
            try:
                if number % 5 == 0:
                    found = cache.get_many([key]).get(key)
                elif number % 7 == 0:
                    cache.set("written", number)
                else:
                    found = cache.get(key)
            except Exception as error:
                self.errors.append(error)
            self.found.append((began, key, found))
        cache.close()

    def goes_on(self):
        """Wait for some calls."""
        enough = len(self.found) + CALLS
        assert until(lambda: len(self.found) >= enough)

    def staleness(self, since):
        """Return, for every read that began later and found a number, the seconds for which it was outdated."""
        found = []
        for began, key, value in self.found:
            if value is not None and began >= since:
                newer = [when for number, when in self.acknowledged[key] if number > value]
                found.append(max(0.0, began - newer[0]) if newer else 0.0)
        return found


@contextmanager
def kill(server):
    server.kill()
    yield
    server.start()


@contextmanager
def flush(server):
    server.client().flushall()
    yield


OUTAGES = {"FLUSHALL": flush, "SIGSTOP": paused, "kill -9 and restart": kill}


@pytest.mark.alone
def test_under_load_no_call_fails_or_hangs_and_nothing_stale_is_read_after_recovery(own_redis, trackings, tier):
    tier = tier("redis", own_redis, behind={"TIMEOUT": None}, fail_safe=60, l1_timeout=30)
    recoveries = {}
    with Load(own_redis) as load:
        for name, outage in OUTAGES.items():
            load.goes_on()
            with outage(own_redis):
                load.goes_on()
            assert until(lambda: trackings()[-1].is_trusted() and tier.set_many({"probe": 1}) == [])
            recoveries[name] = time.monotonic()
            hits = tier.engine.stats().hits
            # Copies are in use again. After the loss of all values, the writer must come round first.
            assert until(lambda hits=hits: tier.engine.stats().hits > hits + 30, note=name)
            assert until(lambda name=name: len(load.staleness(recoveries[name])) > 50, note=name)
    assert load.errors == []
    for name, recovered in recoveries.items():
        assert max(load.staleness(recovered)) < TOLD_WITHIN, name
