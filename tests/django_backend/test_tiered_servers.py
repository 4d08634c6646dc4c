"""TieredCache in Django over servers that are killed, stopped and emptied, and in a child of a fork."""

import statistics
import subprocess
import sys
import threading
import time

import pytest
import redis
from django.core.cache import caches

from tests.backends.tiers import LOCMEM, TierOnDjango, made_tiers
from tests.scripts import FORKING
from tests.waiting import PATIENCE, until

pytestmark = [pytest.mark.servers, pytest.mark.deep, pytest.mark.usefixtures("own_stamps")]

KEYS = [f"k{number}" for number in range(20)]
READERS = 6
LONGEST_CALL = 1.0
"""Seconds. One wait for an answer, and what two busy cores add."""
TOLD_WITHIN = 2.0
"""Seconds. What redis_tracking promises of a server that says nothing any more."""
HELD_CALLS = 0.05
"""The share of calls that wait for the server in an outage: with a circuit breaker, few."""


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
    time.sleep(0.7)  # an outage takes its time
    server.start()


def stop(server):
    server.pause()
    time.sleep(TOLD_WITHIN + 0.2)
    server.resume()


def flush(server):
    for _ in range(10):
        server.client().flushall()
        time.sleep(0.02)


OUTAGES = {"FLUSHALL": flush, "SIGSTOP": stop, "kill -9 and restart": kill}


def test_under_load_no_call_fails_or_hangs_and_nothing_stale_is_read_after_recovery(own_redis, trackings, capsys):
    options = {"fail_safe": True, "grace": 60, "l1_timeout": 30, "l2_timeout": 0.2}
    behind = {"TIMEOUT": None}
    spans = {}
    with made_tiers(trackings) as make:
        tier = make(TierOnDjango, "redis", own_redis, behind=behind, **options)
        told = trackings()[-1].told
        with Load(own_redis) as load:
            for name, outage in OUTAGES.items():
                time.sleep(0.3)
                began = time.monotonic()
                outage(own_redis)
                assert until(lambda: told.trusted and tier.set_many({"probe": 1}) == [])
                recovered, hits = time.monotonic(), tier.engine.stats().hits
                time.sleep(0.5)
                spans[name] = began, recovered, time.monotonic(), tier.engine.stats().hits - hits
    assert load.errors == []
    for name, (began, recovered, over, hits) in spans.items():
        took, stale = load.seconds(began, recovered), load.staleness(recovered, over)
        with capsys.disabled():
            print(
                f"\n{name}: recovered after {recovered - began:.2f} s; {len(took)} calls meanwhile: "
                f"median {statistics.median(took) * 1e3:.2f} ms, 99% {percentile(took, 0.99) * 1e3:.1f} ms, "
                f"longest {took[-1] * 1e3:.0f} ms; after it {len(stale)} reads, "
                f"{hits} of copies, stale by at most {max(stale) * 1e3:.1f} ms"
            )
        # With copies in use again.
        assert hits > 30, name
        assert len(took) > 50, name
        assert took[-1] < LONGEST_CALL, name
        assert percentile(took, 1 - HELD_CALLS) < 0.1, name
        assert len(stale) > 50, name
        assert max(stale) < TOLD_WITHIN, name
        assert percentile(sorted(stale), 0.99) < 0.1, name


SCRIPT = """
import os, signal
import django
from django.conf import settings
settings.configure(LOGGING_CONFIG=None, CACHES={caches!r})
django.setup()
from django.core.cache import caches
from tests.engines import engine
from tests.waiting import until
cache = caches["tiered"]
engine = engine(cache)

def has_copy(value):
    hits = engine.stats().hits
    return cache.get("k") == cache.get("k") == value and engine.stats().hits > hits

cache.set("k", 1)
assert until(lambda: has_copy(1))
pid = os.fork()
if pid == 0:
    signal.alarm(30)
    try:
        caches["behind"].set("k", 2)
        assert cache.get("k") == 2
        assert until(lambda: has_copy(2))
        caches["behind"].set("k", 3)
        assert until(lambda: has_copy(3))
        print("child", flush=True)
    except BaseException as error:
        print(repr(error), flush=True)
    os._exit(0)
os.waitpid(pid, 0)
assert until(lambda: has_copy(3))
caches["behind"].set("k", 4)
assert until(lambda: has_copy(4))
print("parent", flush=True)
"""


def test_a_child_of_fork_asks_until_it_is_told_by_a_connection_of_its_own(own_redis):
    url = f"redis://{own_redis.host}:{own_redis.port}/0"
    configured = {
        "default": {"BACKEND": LOCMEM},
        "behind": {"BACKEND": TierOnDjango.kinds["redis"], "LOCATION": url},
        "tiered": {
            "BACKEND": "wheelcache.django_backend.TieredCache",
            "LOCATION": "tiered",
            "OPTIONS": {"L2": "behind", "L1_TIMEOUT": 1000, "LOG_INTERVAL": None},
        },
    }
    command = [sys.executable, "-W", "error", *FORKING, "-c", SCRIPT.format(caches=configured)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "child\nparent\n", "")
