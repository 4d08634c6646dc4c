"""Turns under stress: threads and tasks that load, write, drop tags, cancel and time out.

Each key has a *truth*, a number that grows with each write. A loader returns it, so a value that is smaller than the
truth that was committed before a caller asked is outdated.
"""

import asyncio
import os
import random
import threading
import time
from collections import Counter
from contextlib import contextmanager, suppress

import pytest

from tests.waiting import PATIENCE, happens
from wheelcache import Cache, LoadTimeout

THREADS, TASKS, KEYS = 3, 6, 6


class LoaderFailed(Exception):
    pass


class Stress:
    """The callers of one cache.

    Attributes:
        counts: among others, the faults: values from before a write (outdated), and loaders of one key that ran at the
            same time (twice).
    """

    def __init__(self, cache):
        self.cache = cache
        self.counts = Counter()
        self._values, self._committed = [0] * KEYS, [0] * KEYS
        self._writing = [threading.Lock() for _ in range(KEYS)]
        self._running = Counter()
        self._lock = threading.Lock()

    def run(self, operations):
        """Run all callers to the end, or until none of them goes on. Return the number of operations that were not done
        then."""
        share = operations // (THREADS + TASKS)
        threads = [threading.Thread(target=self._in_thread, args=(n, share), daemon=True) for n in range(THREADS)]
        threads.append(threading.Thread(target=lambda: asyncio.run(self._in_tasks(share)), daemon=True))
        for each in threads:
            each.start()
        done = -1
        # Stuck is not the same as slow: some caller goes on in each period.
        while any(each.is_alive() for each in threads) and done < (done := self.counts["operations"]):
            happens(lambda: not any(each.is_alive() for each in threads))
        return share * (THREADS + TASKS) - self.counts["operations"]

    def _count(self, name):
        with self._lock:
            self.counts[name] += 1

    @contextmanager
    def _loading(self, key, rnd):
        with self._lock:
            self._running[key] += 1
            self.counts["twice"] += self._running[key] > 1
        try:
            yield self._values[key], rnd.random() * 0.003 if rnd.random() < 0.4 else 0
            if rnd.random() < 0.05:
                raise LoaderFailed
        finally:
            with self._lock:
                self._running[key] -= 1

    def _check(self, oldest, value):
        if value < oldest:
            self._count("outdated")

    def _options(self, key, rnd):
        return {"ttl": rnd.choice((1, 60)), "tags": [f"tag {key}"]}

    def _load(self, key, rnd):
        def loader():
            with self._loading(key, rnd) as (value, seconds):
                time.sleep(seconds)
                return value

        oldest = self._committed[key]
        timeout = rnd.choice((0.0005, 0.002, PATIENCE)) if rnd.random() < 0.15 else None
        with suppress(LoaderFailed, LoadTimeout):
            self._check(oldest, self.cache.get_or_load(key, loader, timeout=timeout, **self._options(key, rnd)))

    async def _aload(self, key, rnd):
        async def loader():
            with self._loading(key, rnd) as (value, seconds):
                await asyncio.sleep(seconds)
                return value

        oldest = self._committed[key]
        with suppress(LoaderFailed):
            self._check(oldest, await self.cache.aget_or_load(key, loader, **self._options(key, rnd)))

    def _get(self, key, rnd):
        oldest = self._committed[key]
        self._check(oldest, self.cache.get(key, oldest))

    def _write(self, key, rnd):
        with self._writing[key]:
            self._values[key] += 1
            value = self._values[key]
            ways = {
                lambda: self.cache.delete(key): 35,
                lambda: self.cache.delete_tags(f"tag {key}"): 35,
                self.cache.clear: 2,
                lambda: self.cache.set(key, value, 60, tags=[f"tag {key}"]): 28,
            }
            rnd.choices([*ways], [*ways.values()])[0]()
            self._committed[key] = value

    def _in_thread(self, number, operations):
        rnd = random.Random(number)
        for _ in range(operations):
            rnd.choices((self._load, self._write, self._get), (80, 10, 10))[0](rnd.randrange(KEYS), rnd)
            self._count("operations")

    async def _in_tasks(self, operations):
        await asyncio.gather(*(self._in_task(random.Random(THREADS + n), operations) for n in range(TASKS)))

    async def _in_task(self, rnd, operations):
        for _ in range(operations):
            key = rnd.randrange(KEYS)
            asking = asyncio.ensure_future(self._aload(key, rnd))
            if rnd.random() < 0.3:
                await asyncio.sleep(rnd.random() * 0.001)
                asking.cancel()
            with suppress(asyncio.CancelledError):
                await asking
            if rnd.random() < 0.2:
                self._write(key, rnd)
            self._count("operations")
            await asyncio.sleep(0)


@pytest.mark.usefixtures("hasty_interpreter")
@pytest.mark.parametrize("operations", [5_000, pytest.param(None, marks=[pytest.mark.deep, pytest.mark.timeout(0)])])
def test_no_caller_gets_an_outdated_value_loads_what_another_one_loads_or_waits_forever(
    closed, caplog, at_length, operations
):
    caplog.set_level("CRITICAL", logger="wheelcache")
    stress = Stress(closed(Cache(max_entries=100, jitter=0)))
    left = stress.run(operations or at_length(int(os.environ.get("STRESS_OPERATIONS", 100_000))))
    assert (left, stress.counts["outdated"], stress.counts["twice"]) == (0, 0, 0)
    assert stress.cache.stats().coalesced > 0
