"""The record of a run of transactions that share a cache, and the check of what they read.

Each row of the database has a *version*, a number that no other write has, and an *order*, which grows by one with each
write of the row. A transaction notes its last version of each row in a table of the database. So after the run, this
table contains the versions that were committed, even by processes that were killed.

A read is a call that returned a version of a row. It is wrong if the version was

- a *phantom*: the transaction of the version rolled back (or the savepoint in which it was written), replaced it later,
  or had not begun to commit when the read ended, and the read was made by another transaction or by none;
- *outdated*: the block of a write with a higher order had ended and committed when the read began. A read within a
  transaction may be as old as the beginning of that transaction;
- *not its own*: the transaction of the read had written another version of this row, and invalidated it.

If a process is killed, or loses its database, between the commit and the end of the block, its write makes no read
outdated: see ``test_killed_commits``.
"""

import os
import struct
import time
from collections import Counter, defaultdict
from typing import NamedTuple

READ, COMMITTING, COMMITTED = range(3)
"""Kinds of records."""

PHANTOM, OUTDATED, NOT_OWN = FAULTS = ("phantom", "outdated", "not its own")
NEVER = 2**63 - 1
SERIAL_BITS = 10
TRANSACTION_BITS = 24

_RECORD = struct.Struct("<8q")


class Record(NamedTuple):
    """An event of a caller.

    Attributes:
        transaction: the transaction in which the caller was, or 0.
        start, end: nanoseconds of the machine's monotonic clock.
        since: the start of the transaction, or of the read if there is none.
        own: the version that the transaction itself has written, or 0.
    """

    kind: int
    transaction: int
    key: int
    version: int
    since: int
    start: int
    end: int
    own: int


class Recorder:
    """Appends the records of one process to a file, from which they are read even if the process was killed."""

    def __init__(self, path):
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def record(self, *fields):
        """Record the fields of a ``Record``, in their order."""
        os.write(self._file, _RECORD.pack(*fields))

    def ended(self, kind, transaction):
        self.record(kind, transaction, 0, 0, 0, 0, time.monotonic_ns(), 0)


def recorded(path):
    """Yield the records in a file, whose last one may be torn."""
    content = path.read_bytes()
    for fields in _RECORD.iter_unpack(content[: len(content) - len(content) % _RECORD.size]):
        yield Record(*fields)


class Check:
    """Finds the wrong reads of a run.

    Args:
        records: the records of all callers, in any order.
        committed: a tuple (key, version, order) for each version that a transaction left behind, as the database has
            them after the run.
        late: a read is not outdated until this many seconds after the end of the newer write.

    Attributes:
        counts: the number of each fault.
        faults: a tuple (fault, read) for each wrong read.
    """

    def __init__(self, records, committed, late):
        self._late = int(late * 1e9)
        self._times = {COMMITTING: {}, COMMITTED: {}}
        reads = []
        for record in records:
            if record.kind == READ:
                reads.append(record)
            else:
                self._times[record.kind][record.transaction] = record.end
        self._orders = {(key, version): order for key, version, order in committed}
        self._ends = self._earliest_ends(committed)
        self.counts = Counter(dict.fromkeys(FAULTS, 0))
        self.faults = []
        for read in reads:
            if fault := self._fault(read):
                self.counts[fault] += 1
                self.faults.append((fault, read))

    def _earliest_ends(self, committed):
        """Return for each key and order the earliest end of a block whose write has a higher order."""
        of_key = defaultdict(list)
        for key, version, order in committed:
            of_key[key].append((order, self._times[COMMITTED].get(version >> SERIAL_BITS, NEVER)))
        earliest = {}
        for key, writes in of_key.items():
            end = NEVER
            for order, own_end in sorted([(0, NEVER), *writes], reverse=True):
                earliest[key, order] = end
                end = min(end, own_end)
        return earliest

    def _fault(self, read):
        if read.own:
            return None if read.version == read.own else NOT_OWN
        order = self._orders.get((read.key, read.version), 0)
        # Every row begins with the version 0.
        if read.version:
            transaction = read.version >> SERIAL_BITS
            # Its own version, which it did not expect: it has rolled back to a savepoint.
            if not order or transaction == read.transaction or self._times[COMMITTING][transaction] > read.end:
                return PHANTOM
        return OUTDATED if self._ends.get((read.key, order), NEVER) + self._late < read.since else None
