"""Processes that read and write a few keys together, while some are killed and stopped, and a check of what they saw.

Every write of a key makes a version, which has no equal. The writer first stores it in the database, a file that all
processes map, and then sets or deletes the key in its cache, or drops its tag. ``get_or_load`` reads the version from
the database. All calls are timed by the clock of the machine, by which also the files of a host cache are named.

- A version is outdated once a write that began after the end of the version's own write has returned: no call that
  begins later may return it.
- After a ``set`` without a TTL has returned, no later call may miss the key, unless a call that may remove it, or a new
  file, comes after the beginning of the ``set``.
- No call takes longer than a second, unless its own process, or that of the loader that it waits for, was stopped.
"""

import mmap
import random
import tempfile
import time
from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import accumulate
from math import inf
from pathlib import Path

from tests.host_cache.workers import Master
from wheelcache.host_cache.place import EPOCH, Place
from wheelcache.runtime.clock import moment

KEYS = 4
PROCESSES = 8
READ, SET, REMOVE, OTHER, LOAD = range(5)
FIELDS = 6
"""The format of a record: kind, key, version, start, end (0 if the process was killed before), epoch of the file."""

MOST_RECORDS = 400_000
SECOND = 10**9
LONGEST_STOP = 0.8
MOST_WAIT = 1.0


def mapped(path):
    with path.open("r+b") as file:
        return memoryview(mmap.mmap(file.fileno(), 0)).cast("q")


class Caller:
    """The calls of one process, with a record of each."""

    def __init__(self, cache, folder, number, seed):
        self.cache = cache
        self.random = random.Random(seed)
        self.database = mapped(folder / "versions")
        self.records = mapped(folder / f"records {number}")
        self.next_version = number << 40
        self.count = 0
        self.place = Place(folder / "host")

    def work(self, until):
        calls = [*[self.get] * 8, *[self.load] * 6, self.set, self.set, self.set_for_short, self.touch, self.delete]
        calls += [self.delete_tag, self.set_many, self.get_many]
        while moment() < until and self.count < MOST_RECORDS:
            if self.random.random() < 0.0005:
                self.clear()
            else:
                self.random.choice(calls)()

    def begin(self, kind, key, version):
        at = FIELDS * self.count
        self.records[at + 1], self.records[at + 2], self.records[at + 3] = key, version, moment()
        self.records[at] = kind + 1
        self.count += 1
        return at

    def end(self, at, version=None):
        if version is not None:
            self.records[at + 2] = version
        self.records[at + 5] = self.place.words[EPOCH]
        self.records[at + 4] = moment()

    def key(self):
        return self.random.randrange(KEYS)

    def new_version(self):
        self.next_version += 1
        return self.next_version

    def get(self):
        key = self.key()
        at = self.begin(READ, key, 0)
        self.end(at, self.cache.get(f"key {key}", 0))

    def get_many(self):
        begun = [self.begin(READ, key, 0) for key in range(KEYS)]
        found = self.cache.get_many([f"key {key}" for key in range(KEYS)])
        for key, at in enumerate(begun):
            self.end(at, found.get(f"key {key}", 0))

    def load(self):
        key = self.key()

        def loader():
            found = self.database[key]
            if self.random.random() < 0.1:
                time.sleep(0.002)
            return found

        at = self.begin(LOAD, key, 0)
        self.end(at, self.cache.get_or_load(f"key {key}", loader, tags=[f"tag {key}"]))

    def change(self, kind, keys, call):
        versions = {key: self.new_version() for key in keys}
        begun = [self.begin(kind, key, version) for key, version in versions.items()]
        for key, version in versions.items():
            self.database[key] = version
        call({f"key {key}": version for key, version in versions.items()})
        for at in begun:
            self.end(at)

    def set(self):
        key = self.key()
        self.change(SET, [key], lambda values: self.cache.set(*values.popitem(), None, tags=[f"tag {key}"]))

    def set_many(self):
        self.change(SET, [0, 1], lambda values: self.cache.set_many(values, None, tags=["tag 0", "tag 1"]))

    def set_for_short(self):
        key = self.key()
        self.change(REMOVE, [key], lambda values: self.cache.set(*values.popitem(), 0.002, tags=[f"tag {key}"]))

    def delete(self):
        self.change(REMOVE, [self.key()], lambda values: self.cache.delete(*values))

    def delete_tag(self):
        key = self.key()
        # ``set_many`` gives two keys the tags of both.
        at = self.begin(OTHER, key ^ 1, 0)
        self.change(REMOVE, [key], lambda values: self.cache.delete_tags(f"tag {key}"))
        self.end(at)

    def touch(self):
        # It makes no version, and may let the entry expire.
        key = self.key()
        at = self.begin(OTHER, key, 0)
        self.cache.touch(f"key {key}", self.random.choice([0.002, 60]))
        self.end(at)

    def clear(self):
        at = self.begin(OTHER, KEYS, 0)
        self.cache.clear()
        self.end(at)


@dataclass
class Run:
    """The records of a run.

    Attributes:
        calls: (kind, key, version, start, end, the latest moment at which it may have had an effect, process).
        epochs: the moments at which the files were made.
        stops: (process, start, end)
    """

    calls: list = field(default_factory=list)
    epochs: set = field(default_factory=set)
    stops: list = field(default_factory=list)
    kills: int = 0
    events: list = field(default_factory=list)


def run(seconds, disturbances, seed=0):
    """Let PROCESSES processes work. Kill and stop one of them, in turns, ``disturbances`` times."""
    dice, done = random.Random(seed), Run()
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as name, Master() as master:
        folder = Path(name)
        (folder / "versions").write_bytes(bytes(8 * KEYS))
        workers, until, ends = {}, moment() + int(seconds * SECOND), {}

        def start(number):
            with (folder / f"records {number}").open("wb") as file:
                file.truncate(8 * FIELDS * MOST_RECORDS)
            worker = master.start(str(folder / "host"))
            worker("from pathlib import Path; from tests.host_cache.linearizability import Caller")
            worker.send(f"Caller(cache, Path({name!r}), {number}, '{seed} {number}').work({until})")
            workers[number] = worker

        for number in range(1, PROCESSES + 1):
            start(number)
        begun = moment()
        for each in range(disturbances):
            due = begun + (until - begun) * (each + 0.5) / disturbances
            time.sleep(max(0.0, (due - moment()) / SECOND))
            number = dice.choice([*workers])
            if each % 2:
                workers.pop(number).kill()
                ends[number] = moment()
                done.kills += 1
                start(max(*workers, *ends) + 1)
            else:
                stopped = moment()
                workers[number].stop()
                time.sleep(dice.uniform(0.5, LONGEST_STOP))
                workers[number].go_on()
                # It may not run immediately.
                done.stops.append((number, stopped, moment() + SECOND // 5))
        for worker in workers.values():
            worker.answer(60)
            done.events += worker("events")
        for number in [*workers, *ends]:
            _collect(done, mapped(folder / f"records {number}"), number, ends.get(number, 0))
    return done


def _collect(done, records, number, killed):
    for at in range(0, FIELDS * MOST_RECORDS, FIELDS):
        kind, key, version, start, end, epoch = records[at : at + FIELDS]
        if kind == 0:
            return
        done.calls.append((kind - 1, key, version, start, end or inf, end or killed, number))
        if epoch > 0:
            done.epochs.add(epoch)


def check(done):
    """Return the number of calls, and the faults."""
    faults, of_kind = [], defaultdict(list)
    for call in done.calls:
        of_kind[call[0], call[1]].append(call)
    clears = of_kind[OTHER, KEYS]
    # The file of a clear that was followed by another one may be in no record.
    new = sorted(
        [(epoch, epoch) for epoch in done.epochs] + [(start, effect) for _, _, _, start, _, effect, _ in clears]
    )
    began, ended = [start for start, _ in new], [*accumulate((effect for _, effect in new), max)]

    def new_file(start, end):
        before = bisect_left(began, end)
        return before > 0 and ended[before - 1] >= start

    for key in range(KEYS):
        sets, removals, reads = of_kind[SET, key], of_kind[REMOVE, key], of_kind[READ, key] + of_kind[LOAD, key]
        _check_outdated(key, sets + removals, reads, faults)
        _check_lost(key, sets, removals + of_kind[OTHER, key] + clears, reads, new_file, faults)
    stops = defaultdict(list)
    for number, start, end in done.stops:
        stops[number].append((start, end))
    for kind, key, _, start, end, _, number in done.calls:
        # The caller of a load may wait for a loader in a process that is stopped.
        wait = (end - start) / SECOND - (LONGEST_STOP if kind == LOAD else 0)
        is_stopped = any(first < end and start < last for first, last in stops[number])
        if MOST_WAIT < wait < inf and not is_stopped:
            faults.append(f"a wait of {wait:.1f} s: kind {kind}, key {key}, from {start}")
    return len(done.calls), faults


def _check_outdated(key, writes, reads, faults):
    ends = {version: end for _, _, version, _, end, _, _ in writes}
    returned = sorted((end, start) for _, _, _, start, end, _, _ in writes if end < inf)
    floor, at = 0, 0
    for _, _, version, start, end, _, number in sorted(reads, key=lambda call: call[3]):
        while at < len(returned) and returned[at][0] < start:
            floor = max(floor, returned[at][1])
            at += 1
        if version and end < inf and ends.get(version, inf if version == 0 else 0) < floor:
            faults.append(f"outdated: key {key}, version {version:x} read by {number} from {start}, since {floor}")


def _check_lost(key, sets, removals, reads, new_file, faults):
    returned = sorted((end, start) for _, _, _, start, end, _, _ in sets if end < inf)
    removals = sorted((start, effect) for _, _, _, start, _, effect, _ in removals)
    starts = [start for start, _ in removals]
    # An entry of ``set_for_short`` or ``touch`` expires later than the call ended.
    latest = [*accumulate((effect + SECOND // 50 for _, effect in removals), max)]
    newest, at = 0, 0
    for _, _, version, start, end, _, number in sorted(reads, key=lambda call: call[3]):
        while at < len(returned) and returned[at][0] < start:
            newest = max(newest, returned[at][1])
            at += 1
        if version or not newest or end == inf or new_file(newest, end):
            continue
        before = bisect_left(starts, end)
        if not before or latest[before - 1] < newest:
            faults.append(f"lost: key {key}, set at {newest}, missed by {number} from {start} to {end}")
