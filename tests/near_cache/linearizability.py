"""Threads and processes that read and write a few keys together, and a check of what they read.

Every write of a key makes a version, which has no equal. The writer first stores it in the database, a file that all
processes map, and then sets or deletes the key in its cache, or deletes its tag. A caller that misses the key reads the
version from the database. All calls are timed by the clock of the machine. A version is outdated once a write that
began after the end of the version's own write has returned: no call that begins later may return it.

``touch`` and ``clear`` make no version, and must not bring back an outdated one. ``incr`` must not read one. It makes a
version that only the cache has.

In front of a store, a value that was computed before a write may be there for the time of a call before it is removed
again. A value that was computed before a drop of its tag is never there: the callers of a TieredCache only delete tags,
and fill the keys that they miss in every way, also by pages.
"""

import json
import mmap
import random
import subprocess
import sys
import threading
from array import array
from collections import defaultdict
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from time import monotonic_ns

from django.conf import settings
from django.core.cache import caches

from tests.fill_waits.callers import get_or_lease
from wheelcache import Cache
from wheelcache.fill_waits.leased_reads import LeasedReads
from wheelcache.runtime.request_scope import end_request

KEYS = [f"key-{number}" for number in range(3)]
THREADS = 4
STEP = 2**16
"""The distance between two versions of a thread. ``incr`` counts in between."""

WAIT = 5.0
"""Seconds that a caller waits for the value of another caller."""

READ, WRITE, INCREMENT = range(3)
FIELDS = 5
"""The format of a record: kind, key, version, start, end."""


@dataclass
class Setting:
    processes: int
    waits: bool
    redis: str = ""
    """The URL of the Redis behind a TieredCache, whose writes it reports; empty for a cache in memory."""


class Database:
    """The version of each key, in a file that all processes map."""

    def __init__(self, path):
        with path.open("r+b") as file:
            self.versions = memoryview(mmap.mmap(file.fileno(), 0)).cast("Q")

    @staticmethod
    def make(path):
        path.write_bytes(bytes(8 * len(KEYS)))


class Caller:
    """A thread that makes one request after the other, and records the version of each read and write."""

    def __init__(self, cache, database, setting, number, seed):
        self.cache = cache
        self.database = database
        self.setting = setting
        self.number = number
        self.random = random.Random(seed)
        self.next_version = (number + 1) << 48
        self.records = array("Q")

    def changes(self):
        return [
            *(self.set, self.delete, self.set_many, self.delete_many, self.fill_by_add, self.touch, self.incr),
            *(self.delete_tag, self.delete_tags),
        ]

    def work(self, count):
        read = [self.get, self.get, self.get_many, self.get_or_set]
        change = self.changes()
        for _ in range(count):
            dice = self.random.random()
            if dice < 0.85:
                self.random.choice(read)()
            elif dice < 0.998 or self.setting.redis:
                self.random.choice(change)()
            else:
                self.cache.clear()
            self.end_request()

    def end_request(self):
        end_request()

    def key(self):
        return self.random.randrange(len(KEYS))

    def some(self):
        return self.random.sample(range(len(KEYS)), 2)

    def ttl(self):
        return self.random.choice([0.0005, 60, None])

    # Versions and records.

    def version(self, key):
        """Store a new version in the database."""
        self.next_version += STEP
        self.database.versions[key] = self.next_version
        return self.next_version

    def has_read(self, key, version, start):
        self.records.extend((READ, key, version, start, monotonic_ns()))

    def has_written(self, key, version, start, done=True):
        self.records.extend((WRITE, key, version, start, monotonic_ns() if done else 2**63))

    # Calls.

    def get(self):
        key, start = self.key(), monotonic_ns()
        cache, waits = self.cache, self.setting.waits
        found = get_or_lease(cache, KEYS[key], wait=WAIT) if waits else cache.get(KEYS[key])
        if found is not None:
            self.has_read(key, found, start)
        elif waits and self.random.random() < 0.2:
            self.fill_waiters(key)
        elif self.random.random() < 0.9:
            self.fill(key)

    def fill_waiters(self, key):
        """Give the callers that wait a version that is not stored, as a TieredCache does."""
        fill = LeasedReads(self.cache.engine).fill(KEYS[key])
        fill(self.database.versions[key], tags_of(key))

    def fill(self, key):
        # No part refuses an outdated version, since the last write wins, so it must be a new one.
        start, version = monotonic_ns(), self.version(key)
        done = self.cache.set(KEYS[key], version, self.ttl(), tags=tags_of(key))
        self.has_written(key, version, start, done)

    def fill_by_add(self):
        key = self.key()
        if self.cache.get(KEYS[key]) is None:
            start, version = monotonic_ns(), self.version(key)
            done = self.cache.add(KEYS[key], version, self.ttl(), tags=tags_of(key))
            self.has_written(key, version, start, done)

    def get_many(self):
        keys, start = self.some(), monotonic_ns()
        found = self.found([KEYS[key] for key in keys])
        for key in keys:
            if found.get(KEYS[key]) is not None:
                self.has_read(key, found[KEYS[key]], start)

    def found(self, keys):
        return self.cache.get_many(keys)

    def get_or_set(self):
        key, start = self.key(), monotonic_ns()
        loaded = self.cache.get_or_load(KEYS[key], lambda: self.database.versions[key], 60, tags=tags_of(key))
        self.has_read(key, loaded, start)

    def set(self):
        key, start = self.key(), monotonic_ns()
        version = self.version(key)
        self.cache.set(KEYS[key], version, self.ttl(), tags=tags_of(key))
        self.has_written(key, version, start)

    def set_many(self):
        keys, start = self.some(), monotonic_ns()
        versions = {key: self.version(key) for key in keys}
        values = {KEYS[key]: version for key, version in versions.items()}
        self.cache.set_many(values, self.ttl(), tags=tags_of(*keys))
        for key, version in versions.items():
            self.has_written(key, version, start)

    def delete(self):
        key, start = self.key(), monotonic_ns()
        version = self.version(key)
        self.cache.delete(KEYS[key])
        self.has_written(key, version, start)

    def delete_many(self):
        keys, start = self.some(), monotonic_ns()
        versions = {key: self.version(key) for key in keys}
        self.cache.delete_many([KEYS[key] for key in keys])
        for key, version in versions.items():
            self.has_written(key, version, start)

    def delete_tag(self):
        key, start = self.key(), monotonic_ns()
        version = self.version(key)
        self.cache.delete_tags(*tags_of(key))
        self.has_written(key, version, start)

    def delete_tags(self):
        keys, start = self.some(), monotonic_ns()
        versions = {key: self.version(key) for key in keys}
        self.cache.delete_tags(*tags_of(*keys))
        for key, version in versions.items():
            self.has_written(key, version, start)

    def touch(self):
        self.cache.touch(KEYS[self.key()], self.ttl())

    def incr(self):
        key, start = self.key(), monotonic_ns()
        with suppress(KeyError):
            version = self.cache.incr(KEYS[key])
            self.has_read(key, version - 1, start)
            self.records.extend((INCREMENT, key, version, start, monotonic_ns()))


class TaggedCaller(Caller):
    """A caller of Django's TieredCache, which is an object of the thread.

    Copies are late by the time of a message. So they only decide what is computed and stored, and the
    versions that are recorded are read from the store, by an alias without copies. And of two drops of a tag at the
    same moment, other processes may know only one. So the tag of each key has one caller that drops it.
    """

    def work(self, count):
        self.cache, self.reader = caches["tiered"], caches["uncopied"]
        super().work(count)

    def end_request(self):
        self.cache.close()
        self.reader.close()

    def changes(self):
        return [self.delete_own_tag] if self.number < len(KEYS) else [self.get]

    def delete_own_tag(self):
        start, version = monotonic_ns(), self.version(self.number)
        self.cache.delete_tags(*tags_of(self.number))
        self.has_written(self.number, version, start)

    def get(self):
        key, start = self.key(), monotonic_ns()
        found = self.reader.get(KEYS[key])
        if found is not None:
            self.has_read(key, found, start)
        if self.cache.get(KEYS[key]) is None:
            name, version, tags = KEYS[key], self.database.versions[key], tags_of(key)
            fill = self.random.choice(["set", "add", "set_many"])
            if fill == "set_many":
                self.cache.set_many({name: version}, 60, tags=tags)
            else:
                getattr(self.cache, fill)(name, version, 60, tags=tags)

    def found(self, keys):
        return self.reader.get_many(keys)

    def get_or_set(self):
        key = self.key()
        self.cache.get_or_set(KEYS[key], lambda: self.database.versions[key], 60, tags=tags_of(key))


def tags_of(*keys):
    return [f"tag of {KEYS[key]}" for key in keys]


def run(folder, setting, count, seed):
    """Let ``THREADS`` threads of each process make ``count`` requests each. Return all records."""
    Database.make(folder / "database")
    arguments = [folder, json.dumps(asdict(setting)), count, seed]
    workers = [
        subprocess.Popen(
            [sys.executable, "-m", __name__, *map(str, [number, *arguments])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for number in range(setting.processes)
    ]
    try:
        for worker in workers:
            assert worker.stdout.read(1) == b"r"
        for worker in workers:
            worker.stdin.close()
        records = array("Q")
        for worker in workers:
            records.frombytes(worker.stdout.read())
            assert worker.wait() == 0
    finally:
        for worker in workers:
            worker.kill()
            worker.stdout.close()
    return records


def outdated_reads(records):
    """Return the number of reads, and a text for each read that returned an outdated version."""
    of_kind = defaultdict(list)
    for at in range(0, len(records), FIELDS):
        kind, key, version, start, end = records[at : at + FIELDS]
        of_kind[kind, key].append((start, end, version))
    outdated = []
    for key in range(len(KEYS)):
        writes, increments, reads = (of_kind[kind, key] for kind in (WRITE, INCREMENT, READ))
        ends = {}
        # Two processes may compute the same sum.
        for _, end, version in writes + increments:
            ends[version] = max(end, ends.get(version, 0))
        returned = sorted((end, start) for start, end, _ in writes)
        # The latest start of a write that has returned.
        floor, at = 0, 0
        for start, end, version in sorted(reads):
            while at < len(returned) and returned[at][0] < start:
                floor = max(floor, returned[at][1])
                at += 1
            if ends.get(version, 0) < floor:
                outdated.append(f"{KEYS[key]}: {version:x} read from {start} to {end}, outdated since {floor}")
    return sum(len(of_kind[READ, key]) for key in range(len(KEYS))), outdated


def _configure_django(setting):
    options = {"L2": "behind", "FIGURES_DIR": None}
    tiered = {"BACKEND": "wheelcache.django_backend.TieredCache", "OPTIONS": options}
    settings.configure(
        CACHES={
            "default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"},
            "behind": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": setting.redis},
            "tiered": {**tiered, "LOCATION": "tiered"},
            "uncopied": {**tiered, "LOCATION": "uncopied"},
        },
        ALLOWED_HOSTS=["*"],
        USE_I18N=False,
    )
    # No copy is used until the tracking has started.
    caches["uncopied"]._shared.level.start_tracking = lambda: None


def _main(number, folder, setting, count, seed):
    folder, setting = Path(folder), Setting(**json.loads(setting))
    if setting.redis:
        caller, cache = TaggedCaller, None
        _configure_django(setting)
    else:
        caller, cache = Caller, Cache()
    database = Database(folder / "database")
    first = int(number) * THREADS
    callers = [caller(cache, database, setting, each, f"{seed} {each}") for each in range(first, first + THREADS)]
    # Threads alternate often, also within a call.
    sys.setswitchinterval(1e-5)
    threads = [threading.Thread(target=caller.work, args=[int(count)]) for caller in callers]
    sys.stdout.buffer.write(b"r")
    sys.stdout.buffer.flush()
    sys.stdin.buffer.read()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for caller in callers:
        sys.stdout.buffer.write(caller.records.tobytes())


if __name__ == "__main__":
    _main(*sys.argv[1:])
