"""Samples of the keys that a worker holds and that it has missed, which workers publish for each other.

Workers that do not share their entries compute a value once each, and never find a value that only another worker has
set. The counts of one worker do not show it: to that worker, the key is unknown. So each worker publishes the keys with
the smallest hashes, of those that it holds and of those that it missed. All workers hash alike, so their samples have
the same keys: bottom-k samples with coordinated ranks (Cohen and Kaplan, "Summarizing data using bottom-k sketches",
2007). ``separate_entries`` compares them.

The hashes are keyed with a random secret of the database, and have 32 bits: no key can be found from its hash. Hits
and writes do nothing for the samples. A job walks over the entries, a batch at a time. The missed keys are those of the
computations that a miss began, and those that a request missed and did not set.
"""

from __future__ import annotations

import json
import zlib
from collections import deque
from collections.abc import Mapping
from functools import partial
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
"""The number of held keys in a sample."""

MOST_MISSED: Final = 256
"""The number of missed keys in a sample."""

BATCH: Final = 512
"""The entries that one run of the job visits."""

WAITING: Final = 1_024
"""The missed keys that wait for the job. Of more, the last ones are sampled."""

WINDOW: Final = 300.0
"""Seconds for which misses are counted together. A sample has the last complete window and the present one."""

PUBLISH_EVERY: Final = 10.0
"""Seconds between two publications of a sample."""

ALL: Final = 1 << 32
"""The limit of a sample that has all keys: every hash is below it."""

Lookups = dict[str, int]
"""The look-ups of groups of keys, by name."""


class KeySample(NamedTuple):
    """The sample of one worker.

    Attributes:
        held: the groups of the held keys, by hash.
        limit: the held keys with a hash below it are in the sample.
        missed: the number of misses of the missed keys, by hash.
        missed_limit: the missed keys with a hash below it are in the sample.
        lookups: the look-ups in the same time, by group.
    """

    held: Mapping[int, str]
    limit: int
    missed: Mapping[int, int]
    missed_limit: int
    lookups: Mapping[str, int]


class _Window:
    """The misses since a moment.

    Args:
        since: the moment.
        before: the counts of the groups at that moment.
    """

    def __init__(self, since: float, before: Lookups) -> None:
        self.since = since
        self.before = before
        self.missed: dict[int, int] = {}
        self.limit = ALL

    def add(self, key: int) -> None:
        if key < self.limit:
            self.missed[key] = self.missed.get(key, 0) + 1
            if len(self.missed) > MOST_MISSED:
                self.limit = max(self.missed)
                del self.missed[self.limit]


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
        self._restart()

    def _restart(self) -> None:
        self._waiting.clear()
        self._scan: Any = None
        self._held: dict[int, str] = {}
        self._limit = 0
        self._windows: deque[_Window] = deque(maxlen=2)
        self._publish_at = -inf

    def run(self) -> None:
        with USE.lock:
            # A store answers the misses of a near cache, and workers cannot share the pages of an HTTP cache.
            if self._secret and not self._figures.by_guest:
                self._turn_window()
                self._note_missed()
                self._walk()

    def publish(self, db: sqlite3.Connection, process: int, number: int, cache: int) -> None:
        """Put the sample into the database, if there is one, and it is time.

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
            self._restart()
        if self._windows:
            self._publish_at = self._clock() + PUBLISH_EVERY
            row = (process, number, cache, _packed(self._sample()))
            db.execute("INSERT OR REPLACE INTO key_samples VALUES (?, ?, ?, ?)", row)

    def _sample(self) -> KeySample:
        missed: dict[int, int] = {}
        for window in self._windows:
            for key, number in window.missed.items():
                missed[key] = missed.get(key, 0) + number
        before = self._windows[0].before
        lookups = {name: number - before.get(name, 0) for name, number in self._lookups().items()}
        limit = min(window.limit for window in self._windows)
        return KeySample(self._held, self._limit, missed, limit, lookups)

    def _turn_window(self) -> None:
        now = self._clock()
        if not self._windows or not 0 <= now - self._windows[-1].since < WINDOW:
            self._windows.append(_Window(now, self._lookups()))

    def _lookups(self) -> Lookups:
        return {
            name: hits + stale_hits + sum(misses) for name, hits, stale_hits, _, _, _, misses in self._core.groups()
        }

    def _note_missed(self) -> None:
        window = self._windows[-1]
        for _ in range(len(self._waiting)):
            key = self._waiting.popleft()
            if type(key) is str:
                window.add(self._hash(key))

    def _walk(self) -> None:
        """Visit the next entries. At the end of a walk, its sample takes the place of the previous one."""
        if self._scan is None:
            self._scan, self._found, self._found_limit = self._core.scan(), {}, ALL
        records = self._scan.step(BATCH)
        for record in records:
            if type(record.key) is str and (key := self._hash(record.key)) < self._found_limit:
                self._found[key] = record.group
        if len(self._found) > MOST_HELD:
            keys = sorted(self._found)
            self._found_limit = keys[MOST_HELD]
            self._found = {key: self._found[key] for key in keys[:MOST_HELD]}
        if len(records) < BATCH:
            self._scan, self._held, self._limit = None, self._found, self._found_limit

    def _hash(self, key: str) -> int:
        digest = blake2b(key.encode(errors="surrogatepass"), digest_size=4, key=self._secret).digest()
        return int.from_bytes(digest, "big")


def _secret_in(db: sqlite3.Connection) -> bytes:
    """Return the secret of a database. The first call makes it."""
    query = "SELECT document FROM key_samples WHERE process = 0"
    found = db.execute(query).fetchone()
    if found is None:
        db.execute("INSERT INTO key_samples VALUES (0, 0, 0, randomblob(16))")
        found = db.execute(query).fetchone()
    return bytes(found[0])


def samples_in(file: SiteFile, db: sqlite3.Connection) -> dict[str, list[KeySample]]:
    """Return the samples of the living workers, by the name of the cache."""
    found: dict[str, list[KeySample]] = {}
    query = "SELECT process, name, document FROM key_samples JOIN caches ON id = cache"
    for process, name, document in db.execute(query):
        if lives(file.alive(process)):
            found.setdefault(bytes(name).decode(errors="surrogatepass"), []).append(_unpacked(document))
    return found


def samples_of(files: list[SiteFile]) -> dict[str, list[KeySample]]:
    """Return the samples of all databases of a site, by the name of the cache."""
    found: dict[str, list[KeySample]] = {}
    for file in files:
        for name, samples in file.read(partial(samples_in, file), dict[str, list[KeySample]]).items():
            found.setdefault(name, []).extend(samples)
    return found


def _packed(sample: KeySample) -> bytes:
    """Return a sample as a compressed JSON document."""
    held: dict[str, list[int]] = {}
    for key, group in sample.held.items():
        held.setdefault(group, []).append(key)
    parts = [held, sample.limit, [*sample.missed.items()], sample.missed_limit, sample.lookups]
    return zlib.compress(json.dumps(parts, separators=(",", ":")).encode())


def _unpacked(document: bytes) -> KeySample:
    held, limit, missed, missed_limit, lookups = json.loads(zlib.decompress(document))
    of_held = {key: group for group, keys in held.items() for key in keys}
    return KeySample(of_held, limit, dict(missed), missed_limit, lookups)
