"""``COHERENCE = "database"`` while the server of the database stops, crashes, is restored, or has a standby."""

import socket
import socketserver
import threading
from contextlib import contextmanager, suppress
from itertools import cycle

import pytest

from tests.django_backend.database_chaos import ASYNCHRONOUS
from tests.machines import execute, payloads
from tests.postgresql_server import PostgresqlServer
from tests.standby_server import StandbyServer
from tests.waiting import happens, paused, until
from wheelcache.coherence.reader import TRUST

pytestmark = [pytest.mark.servers, pytest.mark.deep]


@pytest.fixture
def own_machines(migrated, own_postgresql):
    with migrated(own_postgresql) as started:
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


def test_notices_with_numbers_that_a_crash_gives_out_again_are_not_missed(migrated):
    # Commits do not wait for the disk, and nothing else writes to it in the meantime.
    with (
        PostgresqlServer(**ASYNCHRONOUS) as server,
        migrated(server) as machines,
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


# A standby.

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


def test_values_that_are_loaded_from_a_replica_follow_its_notices(migrated, own_postgresql):
    with migrated(own_postgresql) as machines:
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


def test_a_value_from_the_older_state_that_a_replica_shows_after_a_crash_does_not_stay(migrated, own_postgresql):
    with own_postgresql.connect() as connection:
        # Before there is a replica, whose oldest state has it then.
        connection.execute("CREATE TABLE data (version int)")
        connection.execute("INSERT INTO data VALUES (1)")
    with migrated(own_postgresql) as machines, StandbyServer(own_postgresql) as standby:
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


def test_a_standby_as_the_database_of_the_site_is_refused(migrated, own_postgresql):
    with migrated(own_postgresql) as machines, StandbyServer(own_postgresql) as standby:
        process = machines.process("b", databases={"default": standby.django_database})
        # A set after a miss inserts nothing.
        assert not happens(process.keeps, 2)


def test_a_balancer_that_changes_the_server_is_refused(migrated, own_postgresql):
    with (
        migrated(own_postgresql) as machines,
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
