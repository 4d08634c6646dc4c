"""The server that the tests of transactions start. They prove nothing if it loses acknowledged commits."""

import psycopg
import pytest

from tests.waiting import paused


def test_a_killed_server_keeps_what_was_committed_and_nothing_else(own_postgresql):
    own_postgresql.connect().execute("CREATE TABLE t (v int)")
    own_postgresql.connect().execute("INSERT INTO t VALUES (1)")
    open_transaction = own_postgresql.connect(autocommit=False)
    open_transaction.execute("INSERT INTO t VALUES (2)")
    own_postgresql.restart()
    with pytest.raises(psycopg.OperationalError):
        open_transaction.execute("SELECT 1")
    assert own_postgresql.connect().execute("SELECT v FROM t").fetchall() == [(1,)]


def test_after_the_crash_of_a_backend_the_same_server_has_what_was_committed(own_postgresql):
    started = "SELECT pg_postmaster_start_time()"
    connection = own_postgresql.connect()
    before = connection.execute(started).fetchall()
    connection.execute("CREATE TABLE t AS SELECT 1 AS v")
    own_postgresql.kill_backend()
    with pytest.raises(psycopg.OperationalError):
        connection.execute("SELECT 1")
    again = own_postgresql.connect()
    assert again.execute(started).fetchall() == before
    assert again.execute("SELECT v FROM t").fetchall() == [(1,)]


def test_a_server_that_is_restored_from_its_dump_has_its_data_and_lower_numbers(own_postgresql):
    connection = own_postgresql.connect()
    for _ in range(100):
        connection.execute("SELECT pg_current_xact_id()")
    connection.execute("CREATE TABLE t AS SELECT pg_current_xact_id()::text::int AS xid")
    own_postgresql.replace_by_dump()
    again = own_postgresql.connect()
    assert again.execute("SELECT xid > pg_current_xact_id()::text::int FROM t").fetchall() == [(True,)]


def test_a_paused_server_answers_after_it_is_resumed(own_postgresql):
    connection = own_postgresql.connect()
    with paused(own_postgresql), pytest.raises(psycopg.errors.ConnectionTimeout):
        own_postgresql.connect(connect_timeout=2)
    assert connection.execute("SELECT 1").fetchone() == (1,)


def test_connections_are_terminated_by_their_name(own_postgresql):
    spared = own_postgresql.connect(application_name="site")
    ended = own_postgresql.connect(application_name="job-1")
    assert own_postgresql.terminate_connections("job-%") == 1
    with pytest.raises(psycopg.OperationalError):
        ended.execute("SELECT 1")
    assert spared.execute("SELECT 1").fetchone() == (1,)


def test_a_stopped_server_starts_again_with_its_data(own_postgresql):
    own_postgresql.connect().execute("CREATE TABLE t AS SELECT 1 AS v")
    own_postgresql.stop()
    with pytest.raises(psycopg.OperationalError):
        own_postgresql.connect()
    own_postgresql.start()
    assert own_postgresql.connect().execute("SELECT v FROM t").fetchall() == [(1,)]
