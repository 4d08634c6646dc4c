"""A stress run of turns: two processes with threads and tasks that load, lease, write, drop tags, cancel and time out.

Each key has a *truth*, a number that grows with each write. A loader returns it,
so a value that is smaller than the truth that was committed before a caller asked is outdated. Without the guest of
leases, there are more loads instead.

``python -m tests.engine.loading.turn_stress OPERATIONS`` prints the counts of a run.
"""

import asyncio
import ctypes
import faulthandler
import json
import logging
import multiprocessing
import random
import sys
import threading
import time
from collections import Counter
from contextlib import contextmanager
from functools import partial

from tests.guests import has
from tests.waiting import PATIENCE, happens
from wheelcache import Cache, LoadTimeout
from wheelcache.runtime.request_scope import end_request

HAS_LEASES = has("fill_waits")
if HAS_LEASES:
    from tests.fill_waits.callers import LONG, aget_or_lease, get_or_lease
    from wheelcache.fill_waits.leased_reads import LeasedReads

PROCESSES = 2
THREADS = 3
TASKS = 6
KEYS = 6

FAULTS = ("outdated", "loaded twice", "stuck", "not done")
"""Values from before a write, loaders of one key at the same time in one process, callers that wait forever, and
operations that were not done, since they or earlier ones raised an exception."""

forking = multiprocessing.get_context("fork")


class LoaderFailed(Exception):
    pass


class Truth:
    """The keys, as the source of the values has them."""

    def __init__(self):
        self.values = forking.Array(ctypes.c_longlong, KEYS, lock=False)
        self.committed = forking.Array(ctypes.c_longlong, KEYS, lock=False)
        self._locks = [forking.Lock() for _ in range(KEYS)]

    @contextmanager
    def change(self, key):
        """Change a value. The caller invalidates the cached ones within the block."""
        with self._locks[key]:
            self.values[key] += 1
            yield self.values[key]
            self.committed[key] = self.values[key]


class Process:
    """The callers of one process."""

    def __init__(self, operations):
        self.truth = Truth()
        self.operations = operations
        self.counts = Counter()
        self.cache = Cache("stress", max_entries=100, jitter=0)
        self._running = Counter()
        self._lock = threading.Lock()

    def run(self, seed):
        """Run all callers to the end. Return the counts."""
        # Threads take turns often.
        sys.setswitchinterval(2e-4)
        share = self.operations // (THREADS + TASKS)
        callers = [partial(self._in_thread, random.Random(seed + n), share) for n in range(THREADS)]
        callers.append(lambda: asyncio.run(self._in_tasks(seed + THREADS, share)))
        threads = [threading.Thread(target=caller, daemon=True) for caller in callers]
        for each in threads:
            each.start()
        done = -1
        # Stuck is not the same as slow: some caller goes on in each period.
        while any(each.is_alive() for each in threads) and done < (done := self.counts["operations"]):
            happens(lambda: not any(each.is_alive() for each in threads))
        self.counts["stuck"] = sum(each.is_alive() for each in threads)
        if self.counts["stuck"]:
            faulthandler.dump_traceback()
        self.counts["not done"] = share * (THREADS + TASKS) - self.counts["operations"]
        self.counts["coalesced"] = self.cache.stats().coalesced
        return dict(self.counts)

    # Loaders.

    @contextmanager
    def _loading(self, key, rnd):
        self._count("loads")
        with self._lock:
            self._running[key] += 1
            self.counts["loaded twice"] += self._running[key] > 1
        try:
            yield
            if rnd.random() < 0.05:
                raise LoaderFailed
        finally:
            with self._lock:
                self._running[key] -= 1

    def _loader(self, key, rnd):
        def load():
            with self._loading(key, rnd):
                value = self.truth.values[key]
                if rnd.random() < 0.3:
                    time.sleep(rnd.random() * 0.003)
                return value

        return load

    def _task_loader(self, key, rnd):
        async def load():
            with self._loading(key, rnd):
                value = self.truth.values[key]
                if rnd.random() < 0.5:
                    await asyncio.sleep(rnd.random() * 0.003)
                return value

        return load

    # Callers.

    def _in_thread(self, rnd, operations):
        for _ in range(operations):
            key = rnd.randrange(KEYS)
            lease = self._lease if HAS_LEASES else self._load
            operation = rnd.choices((self._load, lease, self._write, self._get), (55, 30, 8, 7))[0]
            try:
                operation(key, rnd)
            except LoadTimeout:
                self._count("timeouts")
            except LoaderFailed:
                self._count("errors")
            self._count("operations")

    def _load(self, key, rnd):
        oldest = self.truth.committed[key]
        timeout = rnd.choice((0.0005, 0.002, PATIENCE)) if rnd.random() < 0.15 else None
        loader = self._loader(key, rnd)
        ttl = rnd.choice((1, 60))
        self._check(key, oldest, self.cache.get_or_load(_loaded(key), loader, ttl, timeout=timeout, tags=[_tag(key)]))

    def _lease(self, key, rnd):
        oldest = self.truth.committed[key]
        value = get_or_lease(self.cache, _leased(key), wait=LONG)
        if value is not None:
            self._check(key, oldest, value)
            return
        end = self._end_of_lease(key, rnd)
        value = self.truth.values[key]
        if rnd.random() < 0.3:
            time.sleep(rnd.random() * 0.002)
        end(value)
        end_request()

    async def _lease_in_task(self, key, rnd):
        oldest = self.truth.committed[key]
        value = await aget_or_lease(self.cache, _leased(key), wait=LONG)
        if value is not None:
            self._check(key, oldest, value)
            return
        end = self._end_of_lease(key, rnd)
        value = self.truth.values[key]
        if rnd.random() < 0.5:
            await asyncio.sleep(rnd.random() * 0.002)
        # The end of the task is the end of the request.
        end(value)

    def _end_of_lease(self, key, rnd):
        """Return what the holder of a lease does with the value that it reads from the truth after this."""
        self._count("leases")
        cache, tags = self.cache, [_tag(key), _leased(key)]
        # A set that answers this miss is refused after a drop of one of the tags.
        misses = cache.engine.misses()
        misses.note(_leased(key))
        fill = LeasedReads(cache.engine).fill(_leased(key))
        ways = {
            # As a backend does.
            lambda value: cache.engine.set(
                *(_leased(key), value, 60), tags=tags, since=misses.count_computation(_leased(key))
            ): 60,
            # As a TieredCache does.
            lambda value: fill(value, tags): 15,
            lambda value: cache.delete(_leased(key)): 10,
            # It gives up.
            lambda value: None: 15,
        }
        return rnd.choices(list(ways), list(ways.values()))[0]

    def _get(self, key, rnd):
        oldest = self.truth.committed[key]
        value = self.cache.get(_loaded(key))
        if value is not None:
            self._check(key, oldest, value)

    def _write(self, key, rnd):
        self._count("writes")
        with self.truth.change(key) as value:
            way = rnd.random()
            if way < 0.35:
                self.cache.delete(_loaded(key))
                self.cache.delete(_leased(key))
                self.cache.delete_tags(_leased(key))
            elif way < 0.7:
                self.cache.delete_tags(_tag(key))
            elif way < 0.72:
                self.cache.clear()
                self.cache.delete_tags(_leased(key))
            else:
                self.cache.set(_loaded(key), value, 60, tags=[_tag(key)])
                self.cache.set(_leased(key), value, 60, tags=[_tag(key)])
                self.cache.delete_tags(_tag(key))

    async def _in_tasks(self, seed, operations):
        await asyncio.gather(*(self._in_task(random.Random(seed + n), operations) for n in range(TASKS)))

    async def _load_in_task(self, key, rnd):
        oldest = self.truth.committed[key]
        loader = self._task_loader(key, rnd)
        self._check(key, oldest, await self.cache.aget_or_load(_loaded(key), loader, 60, tags=[_tag(key)]))

    async def _in_task(self, rnd, operations):
        for _ in range(operations):
            key = rnd.randrange(KEYS)
            ask = self._lease_in_task if HAS_LEASES and rnd.random() < 0.3 else self._load_in_task
            asking = asyncio.ensure_future(ask(key, rnd))
            if rnd.random() < 0.3:
                await asyncio.sleep(rnd.random() * 0.001)
                self.counts["cancelled"] += asking.cancel()
            try:
                await asking
            except asyncio.CancelledError:
                pass
            except LoaderFailed:
                self._count("errors")
            if rnd.random() < 0.2:
                self._write(key, rnd)
            self._count("operations")
            await asyncio.sleep(0)

    def _check(self, key, oldest, value):
        if value < oldest:
            self._count("outdated")

    def _count(self, name):
        with self._lock:
            self.counts[name] += 1


def _loaded(key):
    return f"loaded {key}"


def _leased(key):
    return f"leased {key}"


def _tag(key):
    return f"tag {key}"


def stress(operations):
    """Run about ``operations`` operations. Return the sums of the counts of both processes."""
    counts = forking.SimpleQueue()

    def run(number):
        logging.disable()
        counts.put(Process(operations // PROCESSES).run(1000 * number))

    processes = [forking.Process(target=run, args=(number,), daemon=True) for number in range(PROCESSES)]
    for each in processes:
        each.start()
    total = Counter(dict.fromkeys(FAULTS, 0))
    for _ in processes:
        total.update(counts.get())
    return dict(total)


def main():
    print(json.dumps(stress(int(sys.argv[1]))))


if __name__ == "__main__":
    main()
