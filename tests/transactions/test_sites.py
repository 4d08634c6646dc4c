"""TRANSACTIONS in a site: tests, requests, waiting callers, sessions and settings."""

from hashlib import sha256

import pytest
from asgiref.sync import async_to_sync
from django.core.cache import caches
from django.core.checks import run_checks
from django.core.exceptions import ImproperlyConfigured
from django.db import transaction
from django.test import TestCase, override_settings

from tests.transactions.conftest import FOLLOWS, SETTINGS, WHEEL
from wheelcache.django_backend import WheelCache

pytestmark = pytest.mark.django_db(transaction=True)


class CaseWithClass(TestCase):
    """A test case of a site, run by the test below."""

    @classmethod
    def setUpTestData(cls):
        caches["default"].set("of-the-class", 1)

    def runTest(self):
        cache = caches["default"]
        assert cache.get("of-the-class") == 1
        assert cache.get_or_set("key", lambda: "value") == "value"
        assert cache.get("key") == "value"
        with self.captureOnCommitCallbacks() as callbacks:
            cache.set("other", 1)
            transaction.on_commit(lambda: None)
        assert len(callbacks) == 1


@pytest.mark.usefixtures("cache")
def test_a_test_case_caches_and_leaves_nothing_behind():
    for _ in range(2):
        result = CaseWithClass().defaultTestResult()
        CaseWithClass.setUpClass()
        try:
            CaseWithClass()(result)
        finally:
            CaseWithClass.tearDownClass()
            CaseWithClass.doClassCleanups()
        assert result.wasSuccessful(), result.failures + result.errors
    assert caches["default"].get_many(["of-the-class", "key", "other"]) == {}


@pytest.mark.pairs(full="alias", of="key")
@pytest.mark.parametrize(
    "key", ["throttle_anon_127.0.0.1", "allauth:rl:login_failed:1", "axes-1", "django.contrib.sessions.cachex"]
)
def test_a_rollback_does_not_reset_sessions_and_the_counters_of_failed_logins(cache, others, key):
    with transaction.atomic():
        cache.set(key, [1])
        assert cache.get(key) == others(cache.get, key) == [1]
        transaction.set_rollback(True)
    assert cache.get(key) == [1]


def hashed(key, prefix, version):
    return sha256(f"{prefix}:{version}:{key}".encode()).hexdigest()


IMMEDIATE_CALLS = {
    "set": lambda cache, **given: cache.set("throttle_1", 2, tags=["tag"], **given),
    "set_many": lambda cache, **given: cache.set_many({"throttle_1": 2, "other": 1}, **given),
    "delete_many": lambda cache, **given: cache.delete_many(["throttle_1", "other"], **given),
    "aset": lambda cache, **given: async_to_sync(cache.aset)("throttle_1", 2, **given),
}


@pytest.mark.pairs(full="alias", of="call")
@pytest.mark.parametrize(
    ("settings", "given"), [({}, {"version": 2}), ({"KEY_FUNCTION": hashed}, {})], ids=["version", "hashed"]
)
@pytest.mark.parametrize("call", IMMEDIATE_CALLS)
def test_a_rollback_resets_no_counter_whatever_its_final_key_is(alias, others, call, settings, given):
    behind = {**SETTINGS["store"], **settings}
    expected = {} if call == "delete_many" else {"throttle_1": 2}
    with override_settings(CACHES={"default": {**SETTINGS[alias], **settings}, "store": behind}):
        cache = caches["default"]
        cache.set("throttle_1", 1, **given)
        with transaction.atomic():
            # The transaction has changes of its own, so that every look-up must decide.
            cache.set("own", 1, **given)
            IMMEDIATE_CALLS[call](cache, **given)
            for see in (lambda function, *args, **given: function(*args, **given), others):
                assert see(cache.get, "throttle_1", **given) == expected.get("throttle_1")
                assert see(cache.get_many, ["throttle_1"], **given) == expected
                assert see(cache.has_key, "throttle_1", **given) is bool(expected)
            assert others(cache.get_many, ["own", "other"], **given) == {}
            transaction.set_rollback(True)
        assert cache.get_many(["throttle_1", "own", "other"], **given) == expected
        cache.clear()


@pytest.mark.parametrize(("given", "message"), [(["nowhere"], "nowhere"), ("default", "list"), (1, "True, False")])
def test_a_wrong_option_is_an_error_at_the_start_that_names_it(given, message):
    with pytest.raises(ImproperlyConfigured, match=rf"TRANSACTIONS must be.*{message}"):
        WheelCache("wrong", {"OPTIONS": {"TRANSACTIONS": given}})


@pytest.mark.parametrize(("options", "ids"), [({}, ["wheelcache.I002"]), ({"TRANSACTIONS": False}, []), (FOLLOWS, [])])
def test_check_recommends_the_option_with_atomic_requests(settings, monkeypatch, options, ids):
    monkeypatch.setitem(settings.DATABASES["default"], "ATOMIC_REQUESTS", True)
    settings.CACHES = {"default": {"BACKEND": WHEEL, "LOCATION": "checked", "OPTIONS": options}}
    assert [each.id for each in run_checks(tags=["caches"]) if "ATOMIC" in each.msg] == ids


BOUNDS = [({"MAX_ENTRIES": 10}, 10, 10), ({"MAX_BYTES": 20_000}, 10, 19)]


@pytest.mark.parametrize(("bounds", "least", "most"), BOUNDS, ids=["entries", "bytes"])
def test_more_values_than_the_cache_holds_do_not_grow_the_block(bounds, least, most):
    cache = WheelCache("small", {"OPTIONS": {**FOLLOWS, **bounds}})
    with transaction.atomic():
        for number in range(100):
            cache.set(f"key-{number}", "x" * 1000)
        assert least <= sum(cache.get(f"key-{number}") is not None for number in range(100)) <= most
        assert cache.get("key-99")
    assert cache.get("key-99")
    cache.clear()
