"""Threads that read and write rows through Django's transactions and a cache, and record what they read.

Only the public calls of Django and of the cache are used. Each operation ends as a request does.
"""

import random
import time
from contextlib import contextmanager, suppress
from functools import partial

from django.core.cache import caches
from django.core.signals import request_finished
from django.db import DatabaseError, connection, transaction

from tests.transactions.records import COMMITTED, COMMITTING, READ, SERIAL_BITS, TRANSACTION_BITS

KEYS = range(6)


class Undo(Exception):
    """Rolls a block back."""


def tag_of(key):
    return f"tag-{key}"


def names_of(*keys):
    """Return the names of values that are read by ``get``, and by ``get_or_set``."""
    return [f"{kind}-{key}" for kind in ("got", "loaded") for key in keys]


INVALIDATIONS = {
    "delete": lambda cache, keys: [cache.delete(name) for name in names_of(*keys)],
    "delete_many": lambda cache, keys: cache.delete_many(names_of(*keys)),
    "delete_tags": lambda cache, keys: cache.delete_tags(*map(tag_of, keys)),
    "delete_pattern": lambda cache, keys: [cache.delete_pattern(f"*-{key}") for key in keys],
    "clear": lambda cache, keys: cache.clear(),
}


class Caller:
    """A thread that makes one request after the other.

    Args:
        number: a number that no other thread of the run has.
        setting: a ``Setting`` of ``tests.transactions.history``.
    """

    def __init__(self, number, setting, recorder, seed):
        self.number = number
        self.setting = setting
        self.recorder = recorder
        self.random = random.Random(f"{seed} {number}")
        self.reads = 0
        self.transactions = number << TRANSACTION_BITS
        # Of the transaction in progress: its number, its start, and its own last version of each row that it wrote.
        self.transaction, self.since, self.own, self.versions = 0, 0, {}, 0

    def work(self, goes_on):
        """Make requests while ``goes_on()`` is true."""
        self.cache = caches["default"]
        while goes_on():
            (request,) = self.random.choices([self.read_rows, self.read_in_transaction, self.write], [55, 20, 25])
            try:
                request()
            except DatabaseError:
                # The server ended the connection, broke a deadlock, or refused an outdated snapshot.
                connection.close()
                time.sleep(self.random.random() * 0.05)
            request_finished.send(sender=type(self))

    def chance(self, probability):
        return self.random.random() < probability

    def pause(self):
        if self.chance(0.3):
            time.sleep(self.random.random() * 0.003)

    # Reads.

    def read_rows(self):
        # A few as a rule, and sometimes many, which makes a run of a million reads shorter.
        for _ in range(self.random.choice([1, 2, 4, 200])):
            self.read(self.random.choice(KEYS))

    def read(self, key):
        """Read a row in one of several ways."""
        self.is_loaded = False
        own, start = self.own.get(key, 0), time.monotonic_ns()
        version = self.random.choice([self.by_get, self.by_get_or_set])(key)
        self.recorder.record(READ, self.transaction, key, version, self.since or start, start, time.monotonic_ns(), own)
        self.reads += not self.is_loaded

    def load(self, key):
        """Return the version of a row, as this thread's connection sees it."""
        cursor = connection.cursor()
        cursor.execute("SELECT version FROM row WHERE key = %s", [key])
        self.is_loaded = True
        return cursor.fetchone()[0]

    def by_get(self, key):
        name = names_of(key)[0]
        version = self.cache.get(name)
        if version is None:
            version = self.load(key)
            self.pause()
            # Otherwise the last set would win, whatever was deleted since its caller missed the key.
            if self.setting.late or self.transaction:
                self.cache.set(name, version, self.ttl(), tags=[tag_of(key)])
        return version

    def by_get_or_set(self, key):
        return self.cache.get_or_set(names_of(key)[1], partial(self.load, key), self.ttl(), tags=[tag_of(key)])

    def ttl(self):
        return self.random.choice([0.05, 60, None])

    # Transactions.

    @contextmanager
    def numbered(self):
        """Number the transaction that begins within the block."""
        self.transactions += 1
        self.transaction, self.since, self.own, self.versions = self.transactions, time.monotonic_ns(), {}, 0
        try:
            yield self.transaction
        finally:
            self.transaction, self.since, self.own = 0, 0, {}

    def read_in_transaction(self):
        with self.numbered(), transaction.atomic():
            if self.chance(0.5):
                connection.cursor().execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            for _ in range(self.random.randint(1, 4)):
                self.read(self.random.choice(KEYS))
                self.pause()

    def write(self):
        """Read and write in a transaction, which may be rolled back, and read the same rows again."""
        written = set()
        with self.numbered() as number, suppress(Undo):
            with transaction.atomic():
                self.steps(written)
                self.pause()
                if self.chance(0.15):
                    raise Undo
                transaction.set_rollback(self.chance(0.05))
                self.recorder.ended(COMMITTING, number)
            self.recorder.ended(COMMITTED, number)
        for key in written:
            self.read(key)

    def steps(self, written, depth=0):
        for _ in range(self.random.randint(1, 3)):
            if depth < 2 and self.chance(0.3):
                self.nested(written, depth + 1)
            elif self.chance(0.4):
                self.read(self.random.choice(KEYS))
            else:
                self.write_rows(written)

    def nested(self, written, depth):
        """Make steps within a savepoint, which may be rolled back."""
        own = dict(self.own)
        try:
            with transaction.atomic():
                self.steps(written, depth)
                if self.chance(0.4):
                    raise Undo
        except Undo:
            self.own = own

    def write_rows(self, written):
        keys = self.random.sample(KEYS, self.random.randint(1, 2))
        change = [
            partial(self.update, keys),
            partial(INVALIDATIONS[self.random.choice(self.setting.invalidations)], self.cache, keys),
        ]
        for step in change if self.chance(0.8) else reversed(change):
            step()
        written.update(keys)
        self.read(keys[0])

    def update(self, keys):
        for key in keys:
            self.versions += 1
            self.own[key] = (self.transaction << SERIAL_BITS) + self.versions
            cursor = connection.cursor()
            cursor.execute("UPDATE row SET version = %s, number = number + 1 WHERE key = %s", [self.own[key], key])
            cursor.execute(
                "INSERT INTO written SELECT key, %s, version, number FROM row WHERE key = %s"
                " ON CONFLICT (key, writer) DO UPDATE SET version = excluded.version, number = excluded.number",
                [self.transaction, key],
            )
