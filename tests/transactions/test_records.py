"""The check of histories finds each kind of wrong read, and no other."""

from dataclasses import replace

import pytest

from tests.transactions.records import (
    COMMITTED,
    COMMITTING,
    READ,
    SERIAL_BITS,
    TRANSACTION_BITS,
    Check,
    Record,
    Recorder,
    recorded,
)

WRITER, OTHER = 1, 2
T1, T2, T3 = ((WRITER << TRANSACTION_BITS) + number for number in range(3))
V1, V2, V3 = (transaction << SERIAL_BITS for transaction in (T1, T2, T3))
ROWS = [(0, V1, 1), (0, V2, 2)]


def committed(transaction, begun, ended):
    return [Record(COMMITTING, WRITER, transaction, end=begun), Record(COMMITTED, WRITER, transaction, end=ended)]


def read(version, start, end, transaction=0, since=None, own=0, key=0):
    since = start if since is None else since
    return Record(READ, OTHER, transaction, key, version, since, start, end, own)


READS = {
    "the version of the beginning": (None, read(0, 50, 60)),
    "the old version, by a read that began before the write returned": (None, read(0, 105, 300)),
    "the new version, by a read that ended after the commit began": (None, read(V1, 90, 100)),
    "the last of two versions": (None, read(V2, 300, 310)),
    "its own version": (None, read(V1, 204, 209, transaction=T3, own=V1)),
    "a key that was never written": (None, read(0, 300, 310, key=1)),
    "a read within a transaction that is as old as its beginning": (None, read(V1, 300, 310, T3, since=205)),
    "a version that never committed": ("phantom", read(V3, 300, 310)),
    "a version before its commit": ("phantom", read(V1, 50, 99)),
    "a version that the transaction itself rolled back": ("phantom", read(V2, 150, 160, T2, since=140)),
    "a version of another key": ("phantom", read(V1, 150, 160, key=1)),
    "a version older than a write that had returned": ("outdated", read(V1, 211, 212)),
    "a version older than the transaction of the read": ("outdated", read(V1, 300, 310, T3, since=211)),
    "another version than its own": ("not its own", read(V1, 300, 310, T2, own=V2)),
}


@pytest.mark.parametrize(("fault", "found"), READS.values(), ids=READS)
def test_the_check_finds_each_fault_of_a_read(fault, found):
    writes = [*committed(T1, 100, 110), *committed(T2, 200, 210)]
    counts = Check([*writes, found], ROWS).run()
    assert [name for name, count in counts.items() if count and name != "reads"] == [fault] * (fault is not None)
    # Wrong reads from the database itself are counted apart.
    loaded = Check([*writes, replace(found, way_and_load=1)], ROWS).run()
    assert loaded["wrong loads"] == (fault is not None)
    if fault == "outdated":
        assert not Check([*writes, found], ROWS, late=1.0).run()["outdated"]


def test_a_write_that_returned_after_a_newer_one_does_not_hide_the_newer_one():
    slow_first = [*committed(T1, 100, 500), *committed(T2, 200, 210)]
    assert Check([*slow_first, read(0, 300, 310)], ROWS).run()["outdated"] == 1


def test_records_are_read_from_the_file_of_a_killed_process(tmp_path):
    recorder = Recorder(tmp_path / "records")
    recorder.record(READ, 1, 2, 3, 4, 5, 6, 7, 8, 3)
    with (tmp_path / "records").open("ab") as file:
        file.write(b"torn")
    assert list(recorded(tmp_path / "records")) == [Record(READ, 1, 2, 3, 4, 5, 6, 7, 8, 3)]
