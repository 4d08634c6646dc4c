"""The rows of ``COHERENCE = "database"``: old and restored ones are deleted, and no notice is missed because of it."""

import pytest

pytestmark = [pytest.mark.servers, pytest.mark.deep]


@pytest.fixture
def source(machines):
    """A process with a source of notices, whose clock the test advances."""
    process = machines.process()
    process("""
from wheelcache.django_backend import database_bus
from wheelcache.runtime.clock import ManualClock

clock = ManualClock()
database_bus.moment = lambda: int(clock() * 1e9)
source = database_bus.DatabaseSource("site", None)
positions = [None]

def read():
    news = source.read(positions[-1])
    positions.append(news.position)
    return news.notice.everything

def outdates_everything(position):
    return source.read(positions[position]).notice.everything

def minutes(count):
    for _ in range(count):
        clock.advance(60.5)
        read()
""")
    assert process("read()")
    return process


def insert(server, name, number=1):
    """Insert rows of another cache, each in a transaction of its own."""
    with server.connect() as connection:
        for _ in range(number):
            connection.execute("INSERT INTO wheelcache_notices (cache, payload) VALUES (%s, '')", [name])


def names(server):
    """Return the names of the caches in the table, without those of the rows that report deletions."""
    with server.connect() as connection:
        found = connection.execute("SELECT cache FROM wheelcache_notices WHERE cache IS NOT NULL ORDER BY id")
        return [name for (name,) in found]


def test_a_row_is_deleted_ten_minutes_after_all_that_began_before_it_have_ended(source, server):
    insert(server, "first")
    with server.connect(autocommit=False) as late:
        late.execute("INSERT INTO wheelcache_notices (cache, payload) VALUES ('late', '')")
        insert(server, "second")
        source("minutes(1)")
    source("minutes(9)")
    assert names(server) == ["first", "late", "second"]
    source("minutes(1)")
    assert names(server) == ["late", "second"]
    source("minutes(1)")
    assert names(server) == []


def test_old_rows_are_deleted_in_batches(source, server):
    source("database_bus.BATCH = 10")
    insert(server, "old", 25)
    source("minutes(11)")
    assert len(names(server)) == 15
    source("read()")
    assert len(names(server)) == 5
    source("read()")
    assert names(server) == []


def restore(server, number=1):
    """Insert rows with transaction numbers that the server has not reached."""
    with server.connect() as connection:
        connection.execute(
            "INSERT INTO wheelcache_notices (xid, cache, payload)"
            " SELECT (1000000 + number)::text::xid8, 'restored', '' FROM generate_series(1, %s) AS number",
            [number],
        )


def test_restored_rows_are_deleted_in_batches_and_reported_once(source, server):
    source("database_bus.BATCH = 10")
    restore(server, 25)
    source("minutes(1)")
    assert len(names(server)) == 15
    source("read()")
    assert len(names(server)) == 5
    source("read()")
    assert names(server) == []
    source("minutes(2)")
    assert source("[rows for at, rows in source.take_restored()], source.take_restored()") == [[25], []]


def test_no_row_that_is_committed_while_restored_rows_are_deleted_is_lost(source, server):
    restore(server)
    # Each look at the clock is another moment of the turn, also after its snapshot.
    source("""
written = []

def moment():
    connection.cursor().execute("INSERT INTO wheelcache_notices (cache, payload) VALUES ('written', '')")
    written.append(1)
    return int(clock() * 1e9)

database_bus.moment = moment
minutes(1)
""")
    assert names(server) == ["written"] * source("len(written)")


def test_a_reader_that_paused_until_rows_were_deleted_outdates_everything(source, server):
    source("minutes(1)")
    before = source("len(positions) - 1")
    insert(server, "missed")
    source("minutes(1)")
    after = source("len(positions) - 1")
    source("minutes(9)")
    assert names(server) == ["missed"]
    assert not source(f"outdates_everything({before})")
    source("minutes(1)")
    assert names(server) == []
    assert source(f"outdates_everything({before})")
    assert not source(f"outdates_everything({after})")
    # The row that reports the deletion is deleted itself, and another one takes its place.
    source("minutes(13)")
    assert source(f"outdates_everything({before})")
    assert not source("read()")
