"""A ``TieredCache`` over a table of the database whose transactions its callers use."""

from functools import partial

import pytest
from django.core.cache import caches
from django.core.management import call_command
from django.db import connection, connections, transaction
from django.test import override_settings

from tests.transactions.conftest import FOLLOWS, TIERED

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("on_disk")]

READS = {
    "get": lambda cache: cache.get("key"),
    "get with a version": lambda cache: cache.get("key", version=1),
    "get_many": lambda cache: cache.get_many(["key"]).get("key"),
}


@pytest.fixture(params=[{}, {"FAIL_SAFE": 300}, {"TRANSACTIONS": True}], ids=["", "fail-safe", "transactions"])
def cache(request):
    given = {
        "default": {"BACKEND": TIERED, "OPTIONS": {"L2": "rows", **FOLLOWS, "TRANSACTIONS": False, **request.param}},
        "rows": {"BACKEND": "django.core.cache.backends.db.DatabaseCache", "LOCATION": "rows"},
    }
    with override_settings(CACHES=given):
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA journal_mode = WAL")
        call_command("createcachetable", verbosity=0)
        yield caches["default"]


@pytest.fixture
def on_another_connection(others):
    def call(function):
        connections["default"] = copied
        function()

    copied = connection.copy()
    copied.inc_thread_sharing()
    return lambda function: others(partial(call, function))


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_a_value_of_the_snapshot_of_a_transaction_is_not_returned_outside(cache, on_another_connection, read):
    cache.set("key", "old")
    with transaction.atomic():
        # The snapshot begins with the first query.
        cache.get("another")
        on_another_connection(lambda: cache.set("key", "new"))
        assert read(cache) == "old"
    assert read(cache) == "new"


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_a_value_that_is_rolled_back_is_not_returned_outside(cache, on_another_connection, read):
    cache.set("key", "committed")
    with transaction.atomic():
        cache.set("key", "rolled back")
        assert read(cache) == "rolled back"
        transaction.set_rollback(True)
    assert read(cache) == "committed"


@pytest.mark.parametrize("cache", [{"TRANSACTIONS": True}], indirect=True, ids=[""])
def test_without_autocommit_no_value_is_stored_after_the_check_that_it_is_not_outdated(cache):
    transaction.set_autocommit(False)
    try:
        cache.set("key", "maybe outdated")
        transaction.commit()
    finally:
        transaction.set_autocommit(True)
    assert cache.get("key") is None
    with transaction.atomic():
        cache.set("key", "checked")
    assert cache.get("key") == "checked"


@pytest.mark.parametrize("cache", [{"TRANSACTIONS": True}], indirect=True, ids=[""])
def test_the_functions_of_on_commit_run_once_although_the_store_has_blocks_of_its_own(cache):
    ran = []
    with transaction.atomic():
        transaction.on_commit(lambda: ran.append(cache.get("key")))
        cache.set("key", "value")
    assert ran == ["value"]
