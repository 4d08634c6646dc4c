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
from dataclasses import dataclass
from itertools import pairwise

READ, COMMITTING, COMMITTED = range(3)
"""Kinds of records."""

WAYS = ("get", "get_many", "get_or_set")

PHANTOM, OUTDATED, NOT_OWN = FAULTS = ("phantom", "outdated", "not its own")
WRONG_LOADS = "wrong loads"
"""Wrong reads from the database itself, of which there are none unless this check is wrong."""

NEVER = 2**63 - 1
SERIAL_BITS = 10
TRANSACTION_BITS = 24

_RECORD = struct.Struct("<10q")


@dataclass(frozen=True)
class Record:
    """An event of a caller.

    Attributes:
        caller: the number of the thread that made the record. No other thread of the run has it.
        transaction: the transaction in which the caller was, or 0.
        start, end: nanoseconds of the machine's monotonic clock.
        since: the start of the transaction, or of the read if there is none.
        own: the version that the transaction itself has written, or 0.
        way_and_load: twice an index into WAYS; 1 more if the caller itself has loaded the version during the call.
    """

    kind: int
    caller: int
    transaction: int = 0
    key: int = 0
    version: int = 0
    since: int = 0
    start: int = 0
    end: int = 0
    own: int = 0
    way_and_load: int = 0

    @property
    def is_loaded(self):
        return bool(self.way_and_load & 1)

    @property
    def way(self):
        return WAYS[self.way_and_load >> 1]


def transaction_of(version):
    """Return the transaction that has made a version."""
    return version >> SERIAL_BITS


class Recorder:
    """Appends the records of one process to a file, from which they are read even if the process was killed."""

    def __init__(self, path):
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def record(self, *fields):
        """Record the fields of a ``Record``, in their order. Missing ones are 0."""
        os.write(self._file, _RECORD.pack(*fields, *[0] * (10 - len(fields))))

    def ended(self, kind, caller, transaction):
        self.record(kind, caller, transaction, 0, 0, 0, 0, time.monotonic_ns())


def recorded(path):
    """Yield the records in a file."""
    content = path.read_bytes()
    whole = len(content) - len(content) % _RECORD.size
    for fields in _RECORD.iter_unpack(content[:whole]):
        yield Record(*fields)


class Check:
    """Finds the wrong reads of a run.

    Args:
        records: the records of all callers, in any order.
        committed: a tuple (key, version, order) for each version that a transaction left behind, as the database has
            them after the run.
        late: a read is not outdated until this many seconds after the end of the newer write.

    Attributes:
        counts: the number of reads, and of each fault.
        faults: a tuple (fault, way, read) for each wrong read.
    """

    def __init__(self, records, committed, late=0.0):
        self._late = int(late * 1e9)
        self._reads = []
        self._committing, ends = {}, {}
        for record in records:
            if record.kind == READ:
                self._reads.append(record)
            else:
                (self._committing if record.kind == COMMITTING else ends)[record.transaction] = record.end
        self._orders = {(key, version): order for key, version, order in committed}
        for transaction in {transaction_of(version) for _, version, _ in committed}:
            assert transaction in self._committing, f"{transaction:x} committed without a record of it"
        self._ends = self._earliest_ends(committed, ends)
        self.counts = Counter()
        self.faults = []

    @staticmethod
    def _earliest_ends(committed, ends):
        """Return for each key a dict: for each order, the earliest end of a block whose write has a higher order."""
        of_key = defaultdict(list)
        for key, version, order in committed:
            of_key[key].append((order, ends.get(transaction_of(version), NEVER)))
        earliest = {}
        for key, writes in of_key.items():
            writes = [(0, NEVER), *sorted(writes)]
            end, earliest[key] = NEVER, {writes[-1][0]: NEVER}
            for (order, _), (_, next_end) in reversed(list(pairwise(writes))):
                end = earliest[key][order] = min(end, next_end)
        return earliest

    def run(self):
        """Check every read. Return the counts."""
        self.counts.update(dict.fromkeys((*FAULTS, WRONG_LOADS), 0))
        for read in self._reads:
            self.counts["loads" if read.is_loaded else "reads"] += 1
            fault = self._fault(read)
            if read.is_loaded:
                self.counts[WRONG_LOADS] += fault is not None
            elif fault is not None:
                self.counts[fault] += 1
                self.faults.append((fault, read.way, read))
        return dict(self.counts)

    def _fault(self, read):
        if read.own:
            return None if read.version == read.own else NOT_OWN
        if not self._was_committed(read):
            return PHANTOM
        order = self._orders.get((read.key, read.version), 0)
        end = self._ends.get(read.key, {}).get(order, NEVER)
        return OUTDATED if end + self._late < read.since else None

    def _was_committed(self, read):
        if not read.version:
            # The version of the beginning.
            return True
        transaction = transaction_of(read.version)
        # Its own version, which it did not expect: it has rolled back to a savepoint.
        if transaction == read.transaction or (read.key, read.version) not in self._orders:
            return False
        return self._committing[transaction] <= read.end
