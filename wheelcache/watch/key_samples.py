"""Find the misses of values that another worker has, by samples of the keys that workers hold.

Workers that do not share their entries compute a value once each, and never find a value that only another worker has
set. The counts of one worker do not show it: to that worker, the key is unknown. So each worker publishes a sample of
the keys that it holds, and looks for the keys that it misses in the samples of the others. The sample has the keys with
the smallest hashes, and all workers hash alike: so a key below the limits of all samples is in one of them, or no other
worker holds it. This is the coordinated sampling of Cohen and Kaplan, "Summarizing data using bottom-k sketches", 2007.

The hashes are keyed with a random secret of the database, and have 32 bits: no key can be found from its hash. Hits
and writes do nothing for the samples: a job walks over the entries, a batch at a time. The missed keys are those of the
computations that a miss began, and those that a request missed and did not set.
"""

from __future__ import annotations

import json
import zlib
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from math import inf
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from wheelcache.engine.observed import ObservedCache
from wheelcache.runtime.clock import Clock
from wheelcache.runtime.periodic_jobs import PeriodicJob
from wheelcache.watch.site_file import USE, SiteFile, lives

if TYPE_CHECKING:
    import sqlite3

MOST_HELD: Final = 1_024
"""The number of keys in a sample."""

BATCH: Final = 512
"""The entries that one run of the job visits."""

WAITING: Final = 1_024
"""The missed keys that wait for the job. Of more, the last ones count."""

WINDOW: Final = 300.0
"""Seconds for which misses are counted together. Published are the last complete window and the present one."""

PUBLISH_EVERY = 10.0
"""Seconds between two publications of a sample."""

ALL: Final = 1 << 32
"""The limit of a sample that has all keys: every hash is below it."""


class Misses(NamedTuple):
    """The misses of a cache in one worker, since a few minutes ago.

    Attributes:
        avoidable: the number of sampled misses of values that another worker had, by the group of the key.
        sampled: the number of all sampled misses.
        misses: the number of all misses.
        lookups: the number of look-ups, by group.
    """

    avoidable: Counter[str]
    sampled: int
    misses: int
    lookups: Counter[str]

    def __add__(self, other: Misses) -> Misses:  # type: ignore[override]
        avoidable, lookups = self.avoidable + other.avoidable, self.lookups + other.lookups
        return Misses(avoidable, self.sampled + other.sampled, self.misses + other.misses, lookups)


NONE: Final = Misses(Counter(), 0, 0, Counter())


class KeySamples(PeriodicJob):
    """Samples the keys of one cache of this process. A job of ``periodic_jobs``.

    Args:
        cache: the cache.
        clock: the clock of the cache, in seconds.
    """

    period = 3.0

    def __init__(self, cache: ObservedCache, clock: Clock) -> None:
        self._core = cache.core
        self._figures = cache.figures
        self._clock = clock
        self._waiting: deque[Any] = deque(maxlen=WAITING)
        cache.collect_missed(self._waiting)
        self.start_over()

    def start_over(self) -> None:
        self._secret = b""
        self._waiting.clear()
        self._forget()

    def _forget(self) -> None:
        """Forget all hashes and counts, which are those of another database or process."""
        self._scan: Any = None
        self._found: dict[int, tuple[str, float]] = {}
        self._held: dict[int, tuple[str, float]] = {}
        self._limit = 0
        self._missed: Counter[int] = Counter()
        self._windows: deque[Misses] = deque([NONE], maxlen=2)
        self._window_ends = -inf
        self._before = NONE
        self._publish_at = -inf

    def run(self) -> None:
        with USE.lock:
            # A store answers the misses of a near cache, and workers cannot share the pages of an HTTP cache.
            if self._secret and not self._figures.by_guest:
                self._note_missed()
                self._walk()

    def publish(self, db: sqlite3.Connection, process: int, number: int, cache: int) -> None:
        """Put the sample and the counts into the database, if it is time.

        Args:
            process, number: the numbers of this process, and of the cache in it.
            cache: the number of the cache in the database.
        """
        if self._clock() < self._publish_at:
            return
        secret = _secret_in(db)
        if secret != self._secret:
            # This is the first publication into this database.
            self._secret = secret
            self._forget()
        if self._limit:
            self._publish_at = self._clock() + PUBLISH_EVERY
            self._count_missed([*_samples_of_others(db, process, cache)])
            held = _packed(self._lasting(), self._limit)
            counts = json.dumps(sum(self._windows, NONE))
            row = (process, number, cache, held, counts)
            db.execute("INSERT OR REPLACE INTO key_samples VALUES (?, ?, ?, ?, ?)", row)

    def _note_missed(self) -> None:
        for _ in range(len(self._waiting)):
            key = self._waiting.popleft()
            if type(key) is str:
                self._missed[self._hash(key)] += 1

    def _walk(self) -> None:
        """Visit the next entries. At the end of a walk, its sample takes the place of the previous one."""
        if self._scan is None:
            self._scan, self._found, self._found_limit = self._core.scan(), {}, ALL
        records = self._scan.step(BATCH)
        for record in records:
            if type(record.key) is str and record.times.is_current:
                key = self._hash(record.key)
                if key < self._found_limit:
                    self._found[key] = record.group, record.times.fresh_until
        if len(self._found) > MOST_HELD:
            keys = sorted(self._found)
            self._found_limit = keys[MOST_HELD]
            self._found = {key: self._found[key] for key in keys[:MOST_HELD]}
        if len(records) < BATCH:
            self._scan, self._held, self._limit = None, self._found, self._found_limit

    def _lasting(self) -> dict[str, list[int]]:
        """Return the held keys that do not expire before the next publication, by group."""
        until, found = self._core.now() + PUBLISH_EVERY, dict[str, list[int]]()
        for key, (group, fresh_until) in self._held.items():
            if fresh_until > until:
                found.setdefault(group, []).append(key)
        return found

    def _count_missed(self, others: list[Sample]) -> None:
        """Count the keys that were missed since the last publication, and of those, the keys of ``others``."""
        limit = min((each.limit for each in others), default=0)
        groups = {key: group for each in others for group, keys in each.held.items() for key in keys}
        sampled = {key: number for key, number in self._missed.items() if key < limit}
        self._missed.clear()
        avoidable: Counter[str] = Counter()
        for key, number in sampled.items():
            if key in groups:
                avoidable[groups[key]] += number
        now, before = self._counted(), self._before
        if self._clock() >= self._window_ends:
            self._window_ends = self._clock() + WINDOW
            self._windows.append(NONE)
        if before.lookups:
            new = Misses(avoidable, sum(sampled.values()), now.misses - before.misses, now.lookups - before.lookups)
            self._windows[-1] += new
        self._before = now

    def _counted(self) -> Misses:
        lookups, misses = Counter[str](), 0
        for name, hits, stale_hits, *_, by_cause in self._core.groups():
            lookups[name] = hits + stale_hits + sum(by_cause)
            misses += sum(by_cause)
        return Misses(Counter(), 0, misses, lookups)

    def _hash(self, key: str) -> int:
        digest = blake2b(key.encode(errors="surrogatepass"), digest_size=4, key=self._secret).digest()
        return int.from_bytes(digest, "big")


class Sample(NamedTuple):
    """The sample of a worker: the hashes of keys that it holds, by group, and the limit below which there are no
    others."""

    held: dict[str, list[int]]
    limit: int


def misses_of(files: Iterable[SiteFile]) -> dict[str, Misses]:
    """Return the misses of all living workers, by the name of the cache."""
    found: dict[str, Misses] = {}
    for file in files:
        for name, process, counts in file.read(_counts_in, list[tuple[str, int, str]]):
            if lives(file.alive(process)):
                avoidable, sampled, misses, lookups = json.loads(counts)
                one = Misses(Counter(avoidable), sampled, misses, Counter(lookups))
                found[name] = found.get(name, NONE) + one
    return found


def _counts_in(db: sqlite3.Connection) -> list[tuple[str, int, str]]:
    query = "SELECT name, process, counts FROM key_samples JOIN caches ON id = cache"
    return [(bytes(name).decode(errors="surrogatepass"), *row) for name, *row in db.execute(query)]


def _samples_of_others(db: sqlite3.Connection, process: int, cache: int) -> Iterator[Sample]:
    query = "SELECT held FROM key_samples WHERE cache = ? AND process NOT IN (0, ?)"
    for (held,) in db.execute(query, (cache, process)):
        yield Sample(*json.loads(zlib.decompress(held)))


def _packed(held: dict[str, list[int]], limit: int) -> bytes:
    return zlib.compress(json.dumps((held, limit), separators=(",", ":")).encode())


def _secret_in(db: sqlite3.Connection) -> bytes:
    """Return the secret of a database. The first call makes it."""
    query = "SELECT held FROM key_samples WHERE process = 0"
    found = db.execute(query).fetchone()
    if found is None:
        db.execute("INSERT INTO key_samples VALUES (0, 0, 0, randomblob(16), '')")
        found = db.execute(query).fetchone()
    return bytes(found[0])
