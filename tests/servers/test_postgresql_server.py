"""The server that the tests of transactions start. They prove nothing if it loses acknowledged commits."""

import psycopg
import pytest


def test_a_killed_server_keeps_what_was_committed_and_nothing_else(own_postgresql):
    own_postgresql.connect().execute("CREATE TABLE t (v int)")
    own_postgresql.connect().execute("INSERT INTO t VALUES (1)")
    open_transaction = own_postgresql.connect(autocommit=False)
    open_transaction.execute("INSERT INTO t VALUES (2)")
    own_postgresql.restart()
    with pytest.raises(psycopg.OperationalError):
        open_transaction.execute("SELECT 1")
    assert own_postgresql.connect().execute("SELECT v FROM t").fetchall() == [(1,)]


def test_a_stopped_server_starts_again_with_its_data(own_postgresql):
    own_postgresql.connect().execute("CREATE TABLE t AS SELECT 1 AS v")
    own_postgresql.stop()
    with pytest.raises(psycopg.OperationalError):
        own_postgresql.connect()
    own_postgresql.start()
    assert own_postgresql.connect().execute("SELECT v FROM t").fetchall() == [(1,)]
