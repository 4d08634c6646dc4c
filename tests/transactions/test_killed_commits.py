"""A process that is killed by SIGKILL during its COMMIT, after the first of its two invalidations."""

import json
import os
from contextlib import contextmanager

import pytest
from django.core.cache import caches
from django.core.signals import request_finished
from django.db import connection
from django.test import override_settings

from tests.scripts import start
from tests.transactions.conftest import FOLLOWS, HOST, TIERED

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("on_disk")]

COMMITTER = """
import json, os, signal, sys
import django
from django.conf import settings

database, caches_of_the_test, invalidate = json.loads(sys.argv[1])
settings.configure(
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": database}}, CACHES=caches_of_the_test
)
django.setup()

from django.core.cache import caches
from django.db import connection, transaction

cache = caches["default"]
commit = connection._commit

def commit_after_the_others():
    print("committing", flush=True)
    sys.stdin.readline()
    commit()
    os.kill(os.getpid(), signal.SIGKILL)

connection._commit = commit_after_the_others
with transaction.atomic():
    connection.cursor().execute("UPDATE row SET value = 'new'")
    getattr(cache, invalidate[0])(invalidate[1])
"""


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
def row(on_disk):
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE row (value text)")
        cursor.execute("INSERT INTO row VALUES ('old')")


@pytest.fixture
def settings_of_caches(alias, tmp_path, monkeypatch):
    if alias == "host":
        # Otherwise each process of a test run has entries of its own.
        monkeypatch.setattr("wheelcache.host_cache.django_host.test_process", lambda **given: "")
        return {"default": {"BACKEND": HOST, "LOCATION": str(tmp_path / "host"), "OPTIONS": FOLLOWS}}
    store = {"BACKEND": "django.core.cache.backends.filebased.FileBasedCache", "LOCATION": str(tmp_path / "store")}
    return {"default": {"BACKEND": TIERED, "OPTIONS": {"L2": "store", **FOLLOWS}}, "store": store}


@pytest.fixture
def commit(cache, settings_of_caches, row):
    """Let another process begin a COMMIT that invalidates what the test reads. ``kill()`` lets it commit and die."""

    @contextmanager
    def begin(invalidate):
        database = str(connection.settings_dict["NAME"])
        given = json.dumps([database, settings_of_caches, invalidate])
        with start(COMMITTER, given, env={**os.environ, "PYTEST_XDIST_WORKER": ""}) as process:

            def kill():
                process.stdin.write("\n")
                process.stdin.flush()
                process.wait()

            try:
                assert process.stdout.readline() == "committing\n", process.stderr.read()
                yield kill
            finally:
                process.kill()

    return begin


@pytest.fixture
def cache(settings_of_caches):
    with override_settings(CACHES=settings_of_caches):
        yield caches["default"]
        caches["default"].clear()


@pytest.mark.pairs
@pytest.mark.parametrize("alias", ["store", "host"])
@pytest.mark.parametrize("read", [get_and_set, get_or_set])
@pytest.mark.parametrize("invalidate", [("delete", "key"), ("delete_tags", "tag")])
def test_no_value_from_before_a_commit_is_kept_if_its_process_is_killed(cache, commit, read, invalidate):
    assert read(cache) == "old"
    with commit(invalidate) as kill:
        assert read(cache) == "old"
        kill()
        assert read(cache) == "new"
