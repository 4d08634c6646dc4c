"""The check of histories finds each kind of wrong read, and no other."""

from dataclasses import replace

import pytest

from tests.transactions.records import (
    COMMITTED,
    COMMITTING,
    DIED,
    FAILED,
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


def committed(transaction, begun, ended, kind=COMMITTED):
    return [
        Record(COMMITTING, WRITER, transaction, end=begun),
        Record(kind, WRITER, transaction, end=ended),
    ]


def read(version, start, end, transaction=0, since=None, own=0, key=0):
    since = start if since is None else since
    return Record(READ, OTHER, transaction, key, version, since, start, end, own)


WRITES = [*committed(T1, 100, 110), *committed(T2, 200, 210)]
ROWS = [(0, V1, 1), (0, V2, 2)]


def faults(*reads, writes=WRITES, rows=ROWS, **options):
    check = Check([*writes, *reads], rows, **options)
    counts = check.run()
    assert counts["reads"] == len(reads)
    return {name: count for name, count in counts.items() if count and name != "reads" and " by " not in name}


@pytest.mark.parametrize(
    "right",
    [
        pytest.param(read(0, 50, 60), id="the version of the beginning"),
        pytest.param(read(0, 105, 300), id="the old version, by a read that began before the write returned"),
        pytest.param(read(V1, 90, 100), id="the new version, by a read that ended after the commit began"),
        pytest.param(read(V1, 150, 160), id="the last version"),
        pytest.param(read(V2, 300, 310), id="the last of two versions"),
        pytest.param(read(V1, 204, 209, transaction=T3, own=V1), id="its own version"),
        pytest.param(read(0, 300, 310, key=1), id="a key that was never written"),
    ],
)
def test_a_read_of_a_version_that_was_current_during_the_read_is_right(right):
    assert faults(right) == {}


def test_a_version_that_never_committed_is_a_phantom():
    assert faults(read(V3, 300, 310)) == {"phantom": 1}


def test_a_version_before_its_commit_is_a_phantom():
    assert faults(read(V1, 50, 99)) == {"phantom": 1}


def test_a_version_that_the_transaction_itself_rolled_back_is_a_phantom():
    assert faults(read(V2, 150, 160, transaction=T2, since=140)) == {"phantom": 1}


def test_a_version_of_another_key_is_a_phantom():
    assert faults(read(V1, 150, 160, key=1)) == {"phantom": 1}


def test_a_version_older_than_a_write_that_had_returned_is_outdated():
    assert faults(read(0, 111, 112), read(V1, 211, 212)) == {"outdated": 2}


def test_a_write_that_returned_after_a_newer_one_does_not_hide_the_newer_one():
    slow_first = [*committed(T1, 100, 500), *committed(T2, 200, 210)]
    assert faults(read(0, 300, 310), writes=slow_first) == {"outdated": 1}


def test_a_read_within_a_transaction_may_be_as_old_as_its_beginning():
    aged = "older than a write during its own transaction"
    assert faults(read(V1, 300, 310, transaction=T3, since=205)) == {aged: 1}
    assert faults(read(V1, 300, 310, transaction=T3, since=211)) == {"outdated": 1}


def test_another_version_than_its_own_is_wrong_in_a_transaction_that_has_written():
    assert faults(read(V1, 300, 310, transaction=T2, own=V2)) == {"not its own": 1}


def test_reads_are_counted_apart_if_the_newer_write_failed_or_was_killed_after_its_commit():
    failed = [*committed(T1, 100, 110), *committed(T2, 200, 210, FAILED)]
    assert faults(read(V1, 205, 206), writes=failed) == {}
    assert faults(read(V1, 211, 212), writes=failed) == {"outdated after a failed commit": 1}
    killed = [*committed(T1, 100, 110), committed(T2, 200, 210)[0], Record(DIED, WRITER, end=210)]
    assert faults(read(V1, 205, 206), writes=killed) == {}
    assert faults(read(V1, 211, 212), writes=killed) == {"outdated after a kill": 1}


def test_wrong_reads_from_the_database_itself_are_counted_apart():
    check = Check([*WRITES, replace(read(V3, 300, 310), way_and_load=1)], ROWS)
    assert check.run() == {"phantom": 0, "outdated": 0, "not its own": 0, "wrong loads": 1, "loads": 1}


def test_reads_may_be_late():
    assert faults(read(V1, 1_000_000_211, 1_000_000_212), late=1.0) == {"outdated": 1}
    assert "outdated" not in faults(read(V1, 1_000_000_209, 1_000_000_212), late=1.0)


def test_records_are_read_from_the_file_of_a_killed_process(tmp_path):
    recorder = Recorder(tmp_path / "records")
    recorder.record(READ, 1, 2, 3, 4, 5, 6, 7, 8, 3)
    with (tmp_path / "records").open("ab") as file:
        file.write(b"torn")
    assert list(recorded(tmp_path / "records")) == [Record(READ, 1, 2, 3, 4, 5, 6, 7, 8, 3)]
