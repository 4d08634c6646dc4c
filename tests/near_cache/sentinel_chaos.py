"""Reads through copies while the master of a Redis with Sentinels fails: none may be outdated for longer than promised.

``python -m tests.near_cache.sentinel_chaos EVENT READS`` with one of ``EVENTS``, such as ``split 200000``. The third
argument ``unasked`` leaves the Sentinels out, which shows that a split is an event in which reads go wrong.

A read of a number is outdated since the next number was acknowledged. A write to the first master counts as
acknowledged if both replicas have it (``WAIT 2``), since a write that a failover loses makes no copy outdated.

The writer goes to another server as soon as one of the Sentinels names it. redis-py is later than that in a planned
failover: the Sentinel that leads it names the old master in ``SENTINEL MASTERS``, which redis-py asks, until the last
replica follows the new one. So reads of the store itself may be outdated, too, and are counted apart.
"""

import random
import sys
import time
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.sharedctypes import RawArray
from typing import NamedTuple

import cachelib
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.sentinel_site import DOWN_AFTER, PASSWORD, SERVICE, SentinelSite, client_through
from tests.waiting import PATIENCE, join, until
from wheelcache.flask_backend import TieredCache
from wheelcache.near_cache import sentinels

KEYS = 20
WRITES = 10_000
"""The highest number of writes of each key."""

REPLICAS = 2
READERS = 3
CALM = 2.0
"""Seconds before the event."""

AFTERWARDS = 10.0
"""Seconds of reads after the event: after a hang, a Sentinel demotes the old master within 8 s."""

PROMISED = 2.0
PAUSE = 0.002
"""Seconds between two writes."""


class Outcome(NamedTuple):
    """What readers have found.

    Attributes:
        reads, errors: calls that returned a value or None, and calls that raised.
        hits: reads of copies.
        wrong: reads of copies that had been outdated for longer than promised.
        worst: the seconds for which a copy that was read had been outdated at most.
        wrong_in_store, worst_in_store: the same for reads of the store.
    """

    reads: int
    errors: int
    hits: int
    wrong: int
    worst: float
    wrong_in_store: int
    worst_in_store: float


def total(outcomes):
    reads, errors, hits, wrong, worst, wrong_in_store, worst_in_store = zip(*outcomes, strict=True)
    return Outcome(
        *(sum(reads), sum(errors), sum(hits), sum(wrong), max(worst)), sum(wrong_in_store), max(worst_in_store)
    )


class Store(cachelib.RedisCache):
    """
    Attributes:
        gets: the calls of ``get``.
    """

    gets = 0

    def get(self, key):
        self.gets += 1
        return super().get(key)


def write(addresses, acknowledged, over):
    """Write increasing numbers to the master that the Sentinels name, and note when each was acknowledged."""
    asked = [redis.Redis(*address, socket_timeout=0.1, retry=Retry(NoBackoff(), 0)) for address in addresses]
    clients = {}
    number = 0
    while not over.is_set():
        number += 1
        for key in range(KEYS):
            try:
                with newest_master(asked, clients).pipeline(transaction=False) as pipeline:
                    # No second failover follows.
                    replicas = REPLICAS if len(clients) == 1 else 0
                    pipeline.set(f"k{key}", cachelib.serializers.RedisSerializer().dumps(number))
                    pipeline.wait(replicas, 100)
                    if pipeline.execute()[1] >= replicas:
                        acknowledged[key * WRITES + number] = time.monotonic()
            except redis.RedisError:
                time.sleep(0.02)
            time.sleep(PAUSE)


def newest_master(asked, clients):
    """Return the client of the server that a Sentinel was the last to name for the first time.

    Args:
        asked: clients of the Sentinels.
        clients: those of the servers that were named before, by address. The new one is added.
    """
    for sentinel in asked:
        with suppress(redis.RedisError):
            named = sentinel.sentinel_get_master_addr_by_name(SERVICE)
            if named not in clients:
                clients[named] = redis.Redis(*named, password=PASSWORD, socket_timeout=1, retry=Retry(NoBackoff(), 0))
    return [*clients.values()][-1]


def read(addresses, acknowledged, begun, outcomes, reads, seconds, is_asked, promised):
    """Read ``reads`` times in ``seconds``, or longer, through copies of a process. ``begun`` is the barrier before."""
    if not is_asked:
        sentinels.sentinels_of = lambda client: None
    store = Store(client_through(addresses))
    cache = TieredCache(store, l1_timeout=300)
    chosen = random.Random()
    errors, ages = 0, {True: [], False: []}
    assert until(lambda: cache.get("k0") and cache.engine.stats().store.trusted)
    begun.wait(3 * PATIENCE)
    start = time.monotonic()
    for count in range(reads):
        time.sleep(max(0.0, start + count * seconds / reads - time.monotonic()))
        key, gets, began = chosen.randrange(KEYS), store.gets, time.monotonic()
        try:
            number = cache.get(f"k{key}")
        except redis.RedisError:
            errors += 1
            continue
        if number is not None:
            ages[store.gets == gets].append(outdated_for(acknowledged, key, number, began))
    wrong = {is_hit: sum(age > promised for age in found) for is_hit, found in ages.items()}
    worst = {is_hit: max(found, default=0.0) for is_hit, found in ages.items()}
    outcomes.put(Outcome(reads - errors, errors, len(ages[True]), wrong[True], worst[True], wrong[False], worst[False]))


def outdated_for(acknowledged, key, number, now):
    """Return the seconds for which ``number`` had been overwritten ``now``; 0.0 if it is current."""
    times = acknowledged[key * WRITES + number + 1 : key * WRITES + number + 3000]
    return max(0.0, now - next((each for each in times if each), now))


def kill(site):
    old = site.master()
    old.kill()
    site.fails_over(old)
    # It comes back empty and believes to be the master.
    old.start()


def hang(site):
    old = site.master()
    old.pause()
    site.fails_over(old)
    old.resume()


def failover(site):
    old = site.master()
    assert until(site.begins_failover)
    site.fails_over(old)


def split(site):
    site.fails_over(site.split())


EVENTS = {each.__name__: each for each in (kill, hang, failover, split)}


def chaos(event, reads, *, is_asked=True, promised=PROMISED, afterwards=AFTERWARDS):
    """Return the ``Outcome`` of ``reads`` reads around an event of ``EVENTS``."""
    context = get_context("spawn")
    acknowledged, over, outcomes = RawArray("d", KEYS * WRITES), context.Event(), context.Queue()
    begun = context.Barrier(READERS + 1)
    with SentinelSite(DOWN_AFTER) as site:
        writer = context.Process(target=write, args=(site.addresses, acknowledged, over), daemon=True)
        arguments = (site.addresses, acknowledged, begun, outcomes, reads // READERS, CALM + afterwards)
        arguments += (is_asked, promised)
        readers = [context.Process(target=read, args=arguments, daemon=True) for _ in range(READERS)]
        for process in (writer, *readers):
            process.start()
        begun.wait(3 * PATIENCE)
        time.sleep(CALM)
        EVENTS[event](site)
        found = [outcomes.get(timeout=CALM + afterwards + PATIENCE) for _ in readers]
        over.set()
        join(writer, *readers)
    return total(found)


if __name__ == "__main__":
    print(sys.argv[1], chaos(sys.argv[1], int(sys.argv[2]), is_asked="unasked" not in sys.argv))
