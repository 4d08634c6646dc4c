"""A process that is killed by SIGKILL during its COMMIT, after the first of its two invalidations."""

import multiprocessing
import os
import signal

import pytest
from django.core.cache import caches
from django.core.signals import request_finished
from django.db import connection, connections, transaction
from django.test import override_settings

from tests.runtime.forks import fork
from tests.transactions.conftest import FOLLOWS, HOST, TIERED
from tests.waiting import PATIENCE

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("on_disk")]


@pytest.fixture
def cache(alias, tmp_path, monkeypatch):
    # Otherwise each process of a test run has entries of its own.
    monkeypatch.setattr("wheelcache.host_cache.django_host.test_process", lambda **given: "")
    host = {"BACKEND": HOST, "LOCATION": str(tmp_path / "host"), "OPTIONS": FOLLOWS}
    tiered = {"BACKEND": TIERED, "OPTIONS": {"L2": "store", **FOLLOWS}}
    store = {"BACKEND": "django.core.cache.backends.filebased.FileBasedCache", "LOCATION": str(tmp_path / "store")}
    with override_settings(CACHES={"default": host if alias == "host" else tiered, "store": store}):
        yield caches["default"]
        caches["default"].clear()


def read_row():
    with connection.cursor() as cursor:
        cursor.execute("SELECT value FROM row")
        return cursor.fetchone()[0]


def get_and_set(cache):
    value = cache.get("key")
    if value is None:
        value = read_row()
        cache.set("key", value, tags=["tag"])
    request_finished.send(sender=None)
    return value


def get_or_set(cache):
    return cache.get_or_set("key", read_row, tags=["tag"])


@pytest.fixture
def committing(cache, in_thread):
    """Let another process begin a COMMIT that invalidates by this call. Return a function by which it ends and dies."""
    begun, may_end = (multiprocessing.get_context("fork").Event() for _ in range(2))
    copied = connection.copy()
    copied.inc_thread_sharing()

    def work(call, argument):
        connections["default"] = copied
        commit = connection._commit

        def commit_after_the_others():
            begun.set()
            assert may_end.wait(PATIENCE)
            commit()
            os.kill(os.getpid(), signal.SIGKILL)

        connection._commit = commit_after_the_others
        with transaction.atomic():
            connection.cursor().execute("UPDATE row SET value = 'new'")
            getattr(caches["default"], call)(argument)

    def begin(*call):
        forked = in_thread(fork, lambda: work(*call))
        assert begun.wait(PATIENCE)
        return lambda: may_end.set() or forked.result(PATIENCE)

    return begin


@pytest.mark.pairs
@pytest.mark.parametrize("alias", ["store", "host"])
@pytest.mark.parametrize("read", [get_and_set, get_or_set])
@pytest.mark.parametrize("call", [("delete", "key"), ("delete_tags", "tag")])
def test_no_value_from_before_a_commit_is_kept_if_its_process_is_killed(cache, committing, read, call):
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE row (value text)")
        cursor.execute("INSERT INTO row VALUES ('old')")
    assert read(cache) == "old"
    end = committing(*call)
    assert read(cache) == "old"
    assert end() is False
    assert read(cache) == "new"
