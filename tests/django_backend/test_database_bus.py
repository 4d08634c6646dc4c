"""``COHERENCE = "database"`` over a real PostgreSQL, with processes on several machines."""

import json
import socket
import socketserver
import threading
from contextlib import contextmanager, suppress
from itertools import count, cycle

import pytest

from tests.django_backend.database_chaos import ASYNCHRONOUS, EVENTS, Run
from tests.machines import Machines
from tests.postgresql_server import PostgresqlServer
from tests.standby_server import StandbyServer
from tests.waiting import happens, paused, until
from wheelcache.coherence.reader import TRUST

pytestmark = [pytest.mark.servers, pytest.mark.deep]

ROWS = "SELECT payload FROM wheelcache_notices WHERE cache = 'site' ORDER BY xid, id"


@pytest.fixture
def server(shared_postgresql):
    execute(shared_postgresql, "DROP SCHEMA public CASCADE", "CREATE SCHEMA public")
    return shared_postgresql


@contextmanager
def running(directory, server, **options):
    machines = Machines(directory, {"default": server.django_database}, **options)
    try:
        machines.process()("call_command('migrate', verbosity=0)")
        yield machines
    finally:
        machines.end()


@pytest.fixture
def machines(tmp_path, server):
    with running(tmp_path, server) as started:
        yield started


@pytest.fixture
def pair(machines):
    """Two machines that have read their first notices."""
    a, b = machines.process("a"), machines.process("b")
    for each in (a, b):
        each.loads()
    return a, b


def execute(server, *statements):
    with server.connect() as connection:
        for statement in statements:
            connection.execute(statement)


def payloads(server):
    with server.connect() as connection:
        return [json.loads(payload) for (payload,) in connection.execute(ROWS)]


# Writes.


# The value is gone before it can be increased if the reader is late.
INCREMENT = """
while True:
    try:
        cache.set("k", 1)
        cache.incr("k")
        break
    except ValueError:
        pass
"""


@pytest.mark.parametrize(
    "write",
    [
        "cache.delete('k')",
        "cache.set('k', 'new')",
        "cache.set_many({'k': 'new', 'other': 1})",
        "cache.delete_many(['k', 'other'])",
        "cache.delete_tags('tag')",
        "cache.clear()",
        "cache.delete_pattern('k*')",
        INCREMENT,
        "__import__('asyncio').run(cache.adelete('k'))",
        "__import__('asyncio').run(cache.aset('k', 'new'))",
        "__import__('asyncio').run(cache.adelete_tags('tag'))",
    ],
)
def test_a_write_outdates_the_values_of_other_machines(pair, write):
    a, b = pair
    b("cache.delete('k'); cache.get('k'); cache.get_or_set('k', 'old', tags=['tag'])")
    b.loads("kept")
    # A fill that a notice of the lines above outdates is no value of this test.
    assert until(lambda: b("cache.get_or_set('k', 'old', tags=['tag'])") == "old" and b("cache.get('k')") == "old")
    a(write)
    assert until(lambda: b.has_lost())


def test_a_fill_outdates_no_values_of_other_machines(pair, server):
    a, _ = pair
    before = payloads(server)
    a("cache.get('f'); cache.set('f', 1); cache.get_or_set('g', 2)")
    assert payloads(server) == before


COUNTED = """
from tests.backends.test_load_counts import FLOWS, DjangoSite

def counted():
    site = DjangoSite()
    site.backend, found = cache, {}
    cache.close()
    for flow in FLOWS:
        cache.clear()
        site.run(flow)
        found[flow.__name__] = site.loads() - site.calls
    return found
"""


@pytest.mark.parametrize("options", [{}, {"TRANSACTIONS": True}, {"tiered": True}, {"FILL_WAIT": 5}], ids=repr)
def test_each_computation_is_one_load(machines, options):
    process = machines.process("counts", **options)
    process("call_command('createcachetable', verbosity=0)")
    process.loads()
    process(COUNTED)
    found = process("counted()")
    assert found == dict.fromkeys(found, 0)


def test_a_notice_of_a_block_is_seen_if_and_only_if_it_commits(pair):
    a, b = pair
    b.loads("rolled back")
    a("transaction.set_autocommit(False); cache.delete('rolled back'); cache.delete('k')")
    a("transaction.rollback()")
    a("cache.delete('k'); transaction.commit(); transaction.set_autocommit(True)")
    assert until(lambda: b.has_lost("k"))
    assert not b.has_lost("rolled back")


def test_a_transaction_that_was_open_during_many_polls_is_not_missed(pair):
    a, b = pair
    a("transaction.set_autocommit(False); cache.delete('late')")
    b.loads("late")
    for _ in range(5):
        a.begin("1")
        a.end()
        b("cache.delete('other')")
        assert until(lambda: b.keeps("other"))
    assert not b.has_lost("late")
    a("transaction.commit()")
    assert until(lambda: b.has_lost("late"))


def test_an_invalidation_in_a_savepoint_that_is_rolled_back_is_not_reported(pair, server):
    a, _ = pair
    before = len(payloads(server))
    a("""
with transaction.atomic():
    cache.delete("outer")
    try:
        with transaction.atomic():
            cache.delete("inner")
            raise KeyError
    except KeyError:
        pass
""")
    assert len(payloads(server)) == before + 1


def test_more_than_a_thousand_keys_in_a_transaction_become_one_clear(pair, server):
    a, b = pair
    before = len(payloads(server))
    a("""
with transaction.atomic():
    for number in range(1200):
        cache.delete(f"key {number}")
""")
    found = payloads(server)[before:]
    assert [each for each in found if "everything" in each] == [found[-1]]
    assert len(found) <= 1001
    assert until(lambda: b.has_lost())
    a("transaction.set_autocommit(False); [cache.delete(str(number)) for number in range(1001)]; transaction.commit()")
    a("transaction.set_autocommit(True)")
    assert "everything" in payloads(server)[-1]
    found = payloads(server)[before:]
    a("with transaction.atomic(): cache.delete_many(map(str, range(1200))), cache.delete('x')")
    assert ["everything" in each for each in payloads(server)[before + len(found) :]] == [True]


def test_a_clear_that_a_savepoint_has_rolled_back_does_not_count(pair, server):
    a, _ = pair
    before = len(payloads(server))
    a("""
with transaction.atomic():
    savepoint = connection.savepoint()
    cache.clear()
    cache.delete("is covered by the clear")
    transaction.savepoint_rollback(savepoint)
    cache.delete("k")
""")
    assert len(payloads(server)) == before + 1


def test_an_unknown_payload_outdates_everything(pair, server):
    _, b = pair
    execute(server, "INSERT INTO wheelcache_notices (cache, payload) VALUES ('site', '{\"streams\": [1]}')")
    assert until(lambda: b.has_lost())


def test_notices_of_other_caches_are_ignored(pair, server):
    _, b = pair
    execute(
        server,
        "INSERT INTO wheelcache_notices (cache, payload) VALUES ('another', '')",
        "INSERT INTO wheelcache_notices (cache, payload) VALUES ('site', '{}')",
    )
    b.loads("other")
    assert until(lambda: b.has_lost())


def test_django_counts_no_query(pair):
    a, _ = pair
    a("connection.force_debug_cursor = True; cache.delete('k')")
    assert a("len(connection.queries)") == 0


def test_a_broken_transaction_reports_nothing_and_raises_nothing(pair, server):
    a, _ = pair
    before = len(payloads(server))
    a("""
with transaction.atomic():
    transaction.set_rollback(True)
    cache.delete("k")
""")
    assert len(payloads(server)) == before


# With TRANSACTIONS: the invalidations of a block are applied at its end.


@pytest.fixture(params=[False, True], ids=["in memory", "over rows"])
def followed(request, tmp_path, server):
    """Two machines whose caches follow the transactions of the database with the notices."""
    with running(tmp_path, server, tiered=request.param, TRANSACTIONS=True) as machines:
        a, b = machines.process("a"), machines.process("b")
        a("call_command('createcachetable', verbosity=0)")
        execute(server, "CREATE TABLE data (version int)", "INSERT INTO data VALUES (1)")
        for each in (a, b):
            each(LOAD)
            each.loads(f"of {each.pid}")
        yield a, b


LOAD = """
def load():
    with connection.cursor() as cursor:
        cursor.execute("SELECT version FROM data")
        return cursor.fetchone()[0]

def get():
    return cache.get_or_set("version", load)

def write(version):
    connection.cursor().execute("UPDATE data SET version = %s", [version])
    cache.delete("version")
"""


def test_a_block_that_commits_is_seen_on_all_machines_and_one_that_rolls_back_on_none(followed):
    a, b = followed
    assert [a("get()"), b("get()")] == [1, 1]
    a("with transaction.atomic(): write(2)")
    assert a("get()") == 2
    assert until(lambda: b("get()") == 2)
    a("""
with transaction.atomic():
    write(3)
    get()
    transaction.set_rollback(True)
""")
    for _ in range(5):
        assert [a("get()"), b("get()")] == [2, 2]


def test_values_that_a_block_has_written_are_shared_and_the_connection_is_usable(followed):
    a, _ = followed
    a("seen = []")
    attempts = count()

    def are_shared():
        number = next(attempts)
        a(f"""
keys = ["first:{number}", "second:{number}"]
with transaction.atomic():
    transaction.on_commit(lambda: seen.append([*map(cache.get, keys), connection.get_autocommit()]))
    cache.get_many(keys)
    cache.set_many(dict(zip(keys, (1, 2))))
    cache.delete("third")
""")
        return a("seen")[number] == [1, 2, True] and a("[*cache.get_many(keys).values()]") == [1, 2]

    # A value is not kept if its slot was written meanwhile, or if the reader is late, as on a busy machine.
    assert until(are_shared)
    assert all(autocommit for _, _, autocommit in a("seen"))
    assert a("connection.get_autocommit() and connection.connection.info.transaction_status.name") == "IDLE"


def test_manual_transactions_are_reported_and_the_connection_is_usable(followed):
    a, b = followed
    assert b("get()") == 1
    a("transaction.set_autocommit(False); write(2); cache.get('key'); cache.set('key', 1); transaction.commit()")
    a("transaction.rollback(); transaction.set_autocommit(True)")
    assert a("get(), cache.get('key')") == [2, 1]
    assert until(lambda: b("get()") == 2)


def test_the_invalidations_of_a_block_are_one_notice_in_its_transaction(followed, server):
    a, _ = followed
    before = len(payloads(server))
    a("""
with transaction.atomic():
    cache.delete("outer")
    cache.delete_tags("tag", "another")
    try:
        with transaction.atomic():
            cache.clear()
            raise KeyError
    except KeyError:
        pass
""")
    found = payloads(server)[before:]
    assert not any("everything" in each for each in found)
    # A store that is written again after the commit, because another process may have filled it, reports that too.
    assert len(found) <= (1 if a("cache.__class__.__bases__[1].__name__") == "WheelCache" else 2)
    a("with transaction.atomic(): [cache.delete_tags(str(number)) for number in range(1001)]")
    assert all("everything" in each for each in payloads(server)[before + len(found) :])


def test_a_block_whose_notice_cannot_be_inserted_is_not_committed(followed, server):
    a, b = followed
    assert [a("get()"), b("get()")] == [1, 1]
    execute(server, "ALTER TABLE wheelcache_notices ADD CONSTRAINT refused CHECK (payload = '') NOT VALID")
    with pytest.raises(AssertionError, match="IntegrityError"):
        a("with transaction.atomic(): write(2)")
    assert a("load()") == 1
    execute(server, "ALTER TABLE wheelcache_notices DROP CONSTRAINT refused")
    a("with transaction.atomic(): write(3)")
    assert until(lambda: b("get()") == 3)


@pytest.mark.parametrize("followed", [False], indirect=True)
def test_a_value_that_a_repeatable_read_loads_before_a_commit_elsewhere_is_not_kept(followed):
    a, b = followed
    b.loads("marker")
    b("""
block = transaction.atomic()
block.__enter__()
connection.cursor().execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
first = load()
""")
    a("with transaction.atomic(): write(2), cache.delete('marker')")
    assert until(lambda: b.has_lost("marker"))
    # The notice has arrived, so only the beginning of the block shows that this value is outdated.
    assert b("get()") == 1
    b("block.__exit__(None, None, None)")
    assert until(lambda: b("get()") == 2)
    for _ in range(5):
        assert b("get()") == 2


# One reader per machine.


def test_one_process_of_a_machine_reads_and_a_killed_reader_is_replaced_without_a_clear(machines):
    first = machines.process()
    first.loads()
    second = machines.process()
    second.loads("other")
    assert first.reads_notices
    assert not second.reads_notices
    first.kill()
    assert until(lambda: second.reads_notices)
    assert second.keeps("third")
    assert not second.has_lost("other")


def test_sites_with_the_same_location_and_other_databases_have_readers_of_their_own(machines, server):
    """They run as the same user, so their files are in the same directory."""
    machines.process().loads()
    execute(server, "DROP DATABASE IF EXISTS another_site WITH (FORCE)", "CREATE DATABASE another_site")
    databases = {"default": {**server.django_database, "NAME": "another_site"}}
    a, b = (machines.process(name, databases=databases) for name in "ab")
    a("call_command('migrate', verbosity=0)")
    a.loads()
    b("cache.delete('k')")
    assert until(a.has_lost)


def test_a_stopped_reader_makes_the_values_of_its_machine_untrusted(machines):
    first, second = machines.process(trust=TRUST), machines.process(trust=TRUST)
    other = machines.process("b")
    first.loads()
    second.loads("other")
    other.loads("elsewhere")
    with paused(first):
        assert until(lambda: second.has_lost("other"))
        assert not other.has_lost("elsewhere")
    # Nothing was written meanwhile, so the values may be used again.
    assert until(lambda: not second.has_lost("other"))


def test_the_notices_that_a_stopped_reader_has_missed_come_before_its_trust(machines):
    first, second = machines.process(trust=TRUST), machines.process(trust=TRUST)
    other = machines.process("b")
    first.loads()
    second.loads("other")
    second.loads("unchanged")
    with paused(first):
        assert until(lambda: second.has_lost("other"))
        other("cache.delete('other')")
    assert until(lambda: not second.has_lost("unchanged"))
    assert second.has_lost("other")


def test_a_reader_goes_on_after_a_fork_and_its_child_does_not_read(machines):
    process = machines.process()
    process.loads()
    child = process("import os; child = os.fork() or os._exit(0); os.waitpid(child, 0)")
    assert child is None
    process("cache.delete('k')")
    assert until(lambda: process.keeps())
    assert process.reads_notices


# The server.


@pytest.fixture
def own_machines(tmp_path, own_postgresql):
    with running(tmp_path, own_postgresql) as started:
        yield started


def test_a_stopped_server_makes_all_values_untrusted_until_it_continues(own_machines, own_postgresql):
    process = own_machines.process(trust=TRUST)
    process.loads()
    with paused(own_postgresql):
        assert until(process.has_lost)
    assert until(lambda: not process.has_lost())


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_restart_of_the_server_outdates_everything(own_machines, own_postgresql, how):
    process = own_machines.process()
    process.loads()
    getattr(own_postgresql, how)()
    own_postgresql.start()
    process("connections.close_all()")
    assert until(lambda: process.keeps("new") and process.has_lost() and process.keeps("new"))


def test_notices_with_numbers_that_a_crash_gives_out_again_are_not_missed(tmp_path):
    # Commits do not wait for the disk, and nothing else writes to it in the meantime.
    with (
        PostgresqlServer(**ASYNCHRONOUS) as server,
        running(tmp_path, server) as machines,
    ):
        a, b = machines.process("a"), machines.process("b")
        for each in (a, b):
            each.loads()
        connection = server.connect()
        connection.execute("SET synchronous_commit = on")
        connection.execute("CREATE TABLE what_is_on_the_disk ()")
        b.loads("marker")
        a("[cache.delete('lost') for _ in range(5)], cache.delete('marker')")
        assert until(lambda: b.has_lost("marker"))
        b.loads("marker")
        reached = next_number(server)
        with paused(b):
            server.kill_backend()
            assert next_number(server) < reached
            a("connections.close_all(); cache.delete('k')")
            # Nothing shows that the numbers were lower for a while.
            while next_number(server) <= reached:
                a("cache.delete('other')")
        assert until(lambda: b.has_lost("k"))
        b.loads("kept")
        assert not happens(lambda: b.has_lost("kept"), 0.5)


def next_number(server):
    """Return the number of the next transaction."""
    with server.connect() as connection:
        return connection.execute("SELECT pg_snapshot_xmax(pg_current_snapshot())::text::int").fetchone()[0]


def test_after_a_restore_into_a_server_with_lower_numbers_the_cache_keeps_its_entries(own_machines, own_postgresql):
    a, b, c = map(own_machines.process, "abc")
    for each in (b, c):
        each.loads("cleared")
    a("[cache.delete('deleted') for _ in range(100)], cache.clear()")
    for each in (b, c):
        assert until(lambda each=each: each.has_lost("cleared"))
        each.loads("before")
    reached = next_number(own_postgresql)
    own_postgresql.replace_by_dump()
    assert next_number(own_postgresql) < reached
    a("connections.close_all()")
    for each in (b, c):
        assert until(lambda each=each: each.has_lost("before"))
        each.loads()
    assert not happens(lambda: b.has_lost() or c.has_lost(), 0.5)
    a("cache.delete('k')")
    assert until(lambda: b.has_lost() and c.has_lost())
    assert until(lambda: len(payloads(own_postgresql)) == 1)
    events = """
[each["text"] for each in Dashboard("", caches, lambda name: []).figures()["events"] if each["kind"] == "dump restored"]
"""
    for each in (a, b, c):
        each("from wheelcache import caches; from wheelcache.observability.dashboard.dashboard import Dashboard")
    assert [*a(events), *b(events), *c(events)] == ["101 notices of the dump were ignored and deleted"]


def test_a_restore_of_the_table_outdates_everything(pair, server):
    a, b = pair
    execute(
        server,
        "CREATE TABLE restored (LIKE wheelcache_notices INCLUDING ALL)",
        "ALTER TABLE wheelcache_notices RENAME TO replaced",
        "ALTER TABLE restored RENAME TO wheelcache_notices",
    )
    assert until(lambda: a.has_lost() and b.has_lost())
    for each in (a, b):
        each.loads()


def test_a_terminated_connection_loses_nothing(pair, server):
    a, b = pair
    server.terminate_connections("wheelcache")
    a("cache.delete('k')")
    assert until(lambda: b.has_lost() and b.keeps("new") and b.has_lost())


def test_without_the_table_no_value_is_returned_and_writes_do_not_fail(tmp_path, server):
    machines = Machines(tmp_path, {"default": server.django_database})
    try:
        process = machines.process()
        assert process("cache.set('k', 1)")
        process("with transaction.atomic(): cache.delete('k'), connection.cursor().execute('SELECT 1')")
        assert not process.keeps()
        process("call_command('migrate', verbosity=0)")
        process.loads()
    finally:
        machines.end()


def test_a_database_that_is_not_postgresql_returns_no_values(tmp_path):
    sqlite = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(tmp_path / "db")}
    machines = Machines(tmp_path, {"default": sqlite})
    try:
        process = machines.process()
        process("call_command('migrate', verbosity=0)")
        process("cache.set('k', 1); cache.delete('k')")
        assert not process.keeps()
    finally:
        machines.end()


# Old rows.


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


# Copies.


def test_the_copies_of_a_database_cache_are_current_on_all_machines(tmp_path, server):
    with running(tmp_path, server, tiered=True) as machines:
        a, b = machines.process("a"), machines.process("b")
        a("call_command('createcachetable', verbosity=0)")
        a("cache.set('k', 'old')")
        for each in (a, b):
            assert until(lambda each=each: each("cache.get('k'), cache.store.cache.get(cache._key('k', None))")[1])
        a("cache.set('k', 'new')")
        assert until(lambda: b("cache.get('k')") == "new")
        before = len(payloads(server))
        a("cache.set_many({'k': 'newer', 'l': 1})")
        assert len(payloads(server)) == before + 1
        assert until(lambda: b("cache.get('k')") == "newer")
        a("__import__('asyncio').run(cache.aset('k', 'newest'))")
        assert until(lambda: b("cache.get('k')") == "newest")


# Servers.

LOAD_FROM_REPLICA = """
def load():
    with connections["replica"].cursor() as cursor:
        cursor.execute("SELECT version FROM data")
        return cursor.fetchone()[0]
"""
UPDATE = """
with transaction.atomic():
    connection.cursor().execute("UPDATE data SET version = 2")
    cache.delete("version")
"""


def test_values_that_are_loaded_from_a_replica_follow_its_notices(tmp_path, own_postgresql):
    with running(tmp_path, own_postgresql) as machines:
        execute(own_postgresql, "CREATE TABLE data (version int)", "INSERT INTO data VALUES (1)")
        with StandbyServer(own_postgresql, recovery_min_apply_delay="500ms") as standby:
            databases = {"default": own_postgresql.django_database, "replica": standby.django_database}
            a, b = (machines.process(name, databases=databases, POLLED_DATABASE="replica") for name in "ab")
            b(LOAD_FROM_REPLICA)
            for each in (a, b):
                each.loads("other")
            assert until(lambda: b("cache.get_or_set('version', load), cache.get('version')")[1] == 1)
            a(UPDATE)
            # The replica may still have the old version: a value that is loaded from it now must not stay.
            assert until(lambda: b("cache.get_or_set('version', load)") == 2)
            # What was read once is left out, although a transaction of the primary stays open.
            a("transaction.set_autocommit(False); connection.cursor().execute('SELECT pg_current_xact_id()')")
            execute(own_postgresql, "INSERT INTO wheelcache_notices (cache, payload) VALUES ('site', 'everything')")
            b.loads("kept")
            assert until(lambda: b.has_lost("version"))
            assert until(lambda: b.keeps("kept") and b.keeps("kept") and not b.has_lost("kept"))
            a("transaction.rollback()")


def test_a_value_from_the_older_state_that_a_replica_shows_after_a_crash_does_not_stay(tmp_path, own_postgresql):
    with own_postgresql.connect() as connection:
        # Before there is a replica, whose oldest state has it then.
        connection.execute("CREATE TABLE data (version int)")
        connection.execute("INSERT INTO data VALUES (1)")
    with running(tmp_path, own_postgresql) as machines, StandbyServer(own_postgresql) as standby:
        databases = {"default": own_postgresql.django_database, "replica": standby.django_database}
        a, reader, other = (
            machines.process(name, databases=databases, POLLED_DATABASE="replica") for name in ("a", "b", "b")
        )
        other(LOAD_FROM_REPLICA)
        reader.loads("other")
        assert reader.reads_notices
        a(UPDATE)
        assert until(lambda: other("load()") == 2)
        other.loads("seen")
        a("cache.delete('seen')")
        assert until(lambda: other.has_lost("seen"))
        with paused(reader):
            # After the crash, the replica replays the commits from its last checkpoint on, with a delay.
            execute(standby, "ALTER SYSTEM SET recovery_min_apply_delay = '3s'", "SELECT pg_reload_conf()")
            standby.kill_backend()
            assert other("connections.close_all(), cache.get_or_set('version', load)")[1] == 1
            assert until(lambda: other("load()") == 2)
        assert until(lambda: other("cache.get_or_set('version', load)") == 2)


def test_a_standby_as_the_database_of_the_site_is_refused(tmp_path, own_postgresql):
    with running(tmp_path, own_postgresql) as machines, StandbyServer(own_postgresql) as standby:
        process = machines.process("b", databases={"default": standby.django_database})
        # A set after a miss inserts nothing.
        assert not happens(process.keeps, 2)


def test_a_balancer_that_changes_the_server_is_refused(tmp_path, own_postgresql):
    with (
        running(tmp_path, own_postgresql) as machines,
        StandbyServer(own_postgresql) as standby,
        balanced(own_postgresql.port, standby.port) as port,
    ):
        databases = {
            "default": own_postgresql.django_database,
            "balanced": {**own_postgresql.django_database, "PORT": port},
        }
        process = machines.process("b", databases=databases, POLLED_DATABASE="balanced")
        assert not happens(process.keeps, 2)


@contextmanager
def balanced(*ports):
    """Run a balancer that connects each client to the next port, and yield its own port."""
    targets = cycle(ports)

    class Forward(socketserver.BaseRequestHandler):
        def handle(self):
            with socket.create_connection(("127.0.0.1", next(targets))) as server:
                back = threading.Thread(target=forward, args=(server, self.request), daemon=True)
                back.start()
                forward(self.request, server)

    def forward(source, target):
        with suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
        with suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)

    class Balancer(socketserver.ThreadingTCPServer):
        daemon_threads = True

    with Balancer(("127.0.0.1", 0), Forward) as balancer:
        threading.Thread(target=balancer.serve_forever, daemon=True).start()
        try:
            yield balancer.server_address[1]
        finally:
            balancer.shutdown()


# Under failures. A longer run: python -m tests.django_backend.database_chaos 1000000.


@pytest.mark.parametrize("fault", [None, "silent", "trusting"])
def test_a_run_under_failures_has_no_wrong_read_and_notices_faults(tmp_path, own_postgresql, fault):
    with running(tmp_path, own_postgresql):
        pass
    events = {None: EVENTS, "silent": (), "trusting": ("stop reader",)}[fault]
    run = Run(own_postgresql, tmp_path, fault=fault)
    counts = run.until(5_000 if fault is None else 10_000, events)
    assert counts["hits"]
    assert (run.wrong() > 0) == (fault is not None)


def test_crashes_that_undo_commits_cause_no_wrong_read(tmp_path):
    with PostgresqlServer(**ASYNCHRONOUS) as server:
        with running(tmp_path, server):
            pass
        run = Run(server, tmp_path)
        counts = run.until(2_000, ["kill backend", "kill server"] * 2)
    assert counts["hits"]
    assert run.wrong() == 0
