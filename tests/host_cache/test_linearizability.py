"""Processes that read and write a few keys together, while some of them are killed and stopped.

Every write of a key makes a version, which has no equal. The writer first stores it in the database, a file that all
processes map, and then sets or deletes the key in its cache, or drops its tag. ``get_or_load`` reads the version from
the database. All calls are timed by the clock of the machine.
"""

import mmap
import time
from collections import defaultdict
from itertools import count
from math import inf
from pathlib import Path
from random import Random
from struct import Struct

import pytest

from wheelcache.runtime.clock import moment

KEYS = 4
PROCESSES = 8
READ, LOAD, WRITE, OTHER = range(4)
RECORD = Struct("5q")
"""The kind, the key, the version, the start and the end of a call."""

SECOND = 10**9
LONGEST_STOP = 0.8
MOST_WAIT = 1.0

WRITES = (
    lambda cache, key, tag, version: cache.set(key, version, None, tags=[tag]),
    lambda cache, key, tag, version: cache.set_many({key: version}, None, tags=[tag]),
    lambda cache, key, tag, version: cache.set(key, version, 0.002, tags=[tag]),
    lambda cache, key, tag, version: cache.delete(key),
    lambda cache, key, tag, version: cache.delete_tags(tag),
)


def work(cache, folder, number):
    """Call the cache until the test is over, and write a record of each call that has returned."""
    dice, versions = Random(number), count((number + 1) << 40)
    with Path(folder, "versions").open("r+b") as file:
        database = memoryview(mmap.mmap(file.fileno(), 0)).cast("q")

    def load(number):
        found = database[number]
        if dice.random() < 0.1:
            time.sleep(0.002)
        return found

    with Path(folder, f"records {number}").open("wb", buffering=0) as records:
        while not Path(folder, "over").exists():
            number, kind = dice.randrange(KEYS), dice.choices(range(4), (9, 6, 6, 1))[0]
            key, tag, version = f"key {number}", f"tag {number}", 0
            start = moment()
            if kind == READ:
                version = cache.get(key, 0)
            elif kind == LOAD:
                version = cache.get_or_load(key, lambda number=number: load(number), tags=[tag])
            elif kind == WRITE:
                version = database[number] = next(versions)
                dice.choice(WRITES)(cache, key, tag, version)
            elif dice.random() < 0.01:
                cache.clear()
            else:
                cache.touch(key, dice.choice([0.002, 60]))
            records.write(RECORD.pack(kind, number, version, start, moment()))


@pytest.mark.deep
def test_no_outdated_value_is_read_and_no_call_waits_long_beside_kills_and_stops(worker, tmp_path, at_length):
    dice, numbers, workers, stops = Random(0), count(), {}, defaultdict(list)
    (tmp_path / "versions").write_bytes(bytes(8 * KEYS))

    def begin():
        number = next(numbers)
        workers[number] = worker()
        workers[number]("from tests.host_cache.test_linearizability import work")
        workers[number].send(f"work(cache, {str(tmp_path)!r}, {number})")

    for _ in range(PROCESSES):
        begin()
    for each in range(at_length(40)):
        time.sleep(dice.uniform(0.0, LONGEST_STOP))
        number = dice.choice([*workers])
        if each % 2:
            workers.pop(number).kill()
            begin()
        else:
            start = moment()
            workers[number].stop()
            time.sleep(dice.uniform(0.5, LONGEST_STOP))
            workers[number].go_on()
            # It may not run immediately.
            stops[number].append((start, moment() + SECOND // 5))
    (tmp_path / "over").touch()
    for each in workers.values():
        each.answer()
    calls = [
        (*call, number)
        for number in range(next(numbers))
        for call in RECORD.iter_unpack((tmp_path / f"records {number}").read_bytes())
    ]
    assert len(calls) > 1000
    assert [call for call in calls if is_long(*call[:1], *call[3:], stops)] == []
    for key in range(KEYS):
        assert outdated_reads([call for call in calls if call[1] == key]) == []


def is_long(kind, start, end, number, stops):
    is_stopped = any(first < end and start < last for first, last in stops[number])
    # The caller of a load may wait for a loader in a process that is stopped.
    return not is_stopped and (end - start) / SECOND > MOST_WAIT + (LONGEST_STOP if kind == LOAD else 0)


def outdated_reads(calls):
    """Return the reads of a version that began after the end of another write, which began after the end of that of the
    version."""
    ends = {version: end for kind, _, version, _, end, _ in calls if kind == WRITE}
    returned = sorted((end, start) for kind, _, _, start, end, _ in calls if kind == WRITE)
    floor, at, outdated = 0, 0, []
    for read in sorted((call for call in calls if call[0] in (READ, LOAD) and call[2]), key=lambda call: call[3]):
        while at < len(returned) and returned[at][0] < read[3]:
            floor = max(floor, returned[at][1])
            at += 1
        # The write of a process that was killed has no end.
        if ends.get(read[2], inf) < floor:
            outdated.append(read)
    return outdated
