"""Django's system checks of CACHES: a warning for what is no error but hardly meant."""

import subprocess
import sys

import pytest
from django.core import checks
from django.test import override_settings

from wheelcache.coherence import shared_stamps

BACKEND = "wheelcache.django_backend.WheelCache"


def alias(location="", **beside):
    return {"BACKEND": BACKEND, "LOCATION": location, **beside}


def warnings_for(**configured):
    with override_settings(CACHES=configured):
        return [
            message for message in checks.run_checks(tags=[checks.Tags.caches]) if message.id.startswith("wheelcache.")
        ]


@pytest.mark.parametrize(
    "configured",
    [
        {"default": alias()},
        {"default": alias(), "other": alias("other")},
        {"default": alias("a", OPTIONS={"SLOTS": 8}), "other": alias("a", OPTIONS={"SLOTS": 8})},
        {"default": alias("a", OPTIONS={"SLOTS": 8}), "other": alias("b", OPTIONS={"SLOTS": 9})},
        {
            "default": alias("a", TIMEOUT=5, KEY_PREFIX="p", VERSION=2, KEY_FUNCTION=lambda key, prefix, version: key),
            "other": alias("a"),
        },
        {
            "default": alias("a", OPTIONS={"MAX_ENTRIES": 5, "SLOTS": 8}),
            "other": alias("a", OPTIONS={"SLOTS": 8, "MAX_ENTRIES": 5}),
        },
        {
            "default": alias("a"),
            "other": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache", "LOCATION": "a", "MAX_ENTRIES": 1},
        },
    ],
)
def test_there_is_no_warning_when_all_is_well(configured):
    assert warnings_for(**configured) == []


def test_one_location_with_different_options_is_a_warning_that_says_so():
    (warning,) = warnings_for(
        default=alias("twice", OPTIONS={"MAX_ENTRIES": 5}),
        other=alias("twice", OPTIONS={"MAX_ENTRIES": 6}),
    )
    assert warning.id == "wheelcache.W001"
    assert warning.level == checks.WARNING
    for part in ("'default'", "'other'", "LOCATION 'twice'", "different OPTIONS", "do not share"):
        assert part in warning.msg
    assert "LOCATION" in warning.hint


@pytest.mark.parametrize("other", [alias(), {"BACKEND": BACKEND}])
def test_aliases_without_a_location_that_share_one_store_are_a_warning_that_names_them(other):
    (warning,) = warnings_for(default=alias(), other=other, apart=alias("apart"), named=alias("apart"))
    assert warning.id == "wheelcache.W004"
    assert warning.level == checks.WARNING
    for part in ("'default' and 'other'", "no LOCATION", "share one store"):
        assert part in warning.msg
    assert "LOCATION" in warning.hint


def test_the_location_that_nobody_named_counts_too():
    (warning,) = warnings_for(default=alias(), other=alias(OPTIONS={"SLOTS": 8}))
    assert warning.id == "wheelcache.W001"


def test_every_location_is_warned_of_once_however_many_aliases_it_has():
    found = warnings_for(
        default=alias("x", OPTIONS={"SLOTS": 1}),
        b=alias("x", OPTIONS={"SLOTS": 2}),
        c=alias("x", OPTIONS={"SLOTS": 2}),
        d=alias("x", OPTIONS={"SLOTS": 3}),
        e=alias("y", OPTIONS={"SLOTS": 1}),
        f=alias("y", OPTIONS={"SLOTS": 2}),
        g=alias("z"),
    )
    assert [warning.id for warning in found] == ["wheelcache.W001"] * 2
    assert ["'x'" in found[0].msg, "'y'" in found[1].msg] == [True, True]
    assert all(name in found[0].msg for name in ("'default'", "'b'", "'d'"))


@pytest.mark.parametrize(
    "option",
    ["MAX_ENTRIES", "CULL_FREQUENCY", "MAX_BYTES", "JITTER", "INTERVAL", "SLOTS", "LOG_INTERVAL", "SERIALIZER"],
)
def test_an_option_beside_options_is_a_warning_that_names_it_and_its_alias(option):
    (warning,) = warnings_for(default=alias("beside", **{option: 5}), other=alias("other"))
    assert warning.id == "wheelcache.W002"
    assert warning.level == checks.WARNING
    assert "CACHES['default']" in warning.msg
    assert repr(option) in warning.msg
    assert "OPTIONS" in warning.hint


def test_the_subclass_of_a_project_is_checked_as_well():
    name = "tests.django_backend.test_checks.OurCache"
    found = warnings_for(
        default={"BACKEND": name, "SLOTS": 8, "LOCATION": "sub"}, other=alias("sub", OPTIONS={"SLOTS": 8})
    )
    assert {warning.id for warning in found} == {"wheelcache.W001", "wheelcache.W002"}
    assert len(found) == 2


def OurCache(location, params):  # a factory, as good as a class to Django
    from wheelcache.django_backend import WheelCache

    return type("OurCache", (WheelCache,), {})(location, params)


def tiered(location="tiered", l2="redis", **options):
    return {
        "BACKEND": "wheelcache.django_backend.TieredCache",
        "LOCATION": location,
        "OPTIONS": {"L2": l2, **options},
    }


REDIS = {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": "redis://127.0.0.1:1"}
REPLICATED = {**REDIS, "LOCATION": ["redis://127.0.0.1:1", "redis://127.0.0.1:2"]}
LOCMEM = {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}


def test_a_tiered_cache_that_nothing_tells_of_writes_is_a_warning_that_names_it_and_how_old_it_may_be():
    (warning,) = warnings_for(default=LOCMEM, front=tiered(l2="default", L1_TIMEOUT=7.5))
    assert warning.id == "wheelcache.W003"
    assert warning.level == checks.WARNING
    for part in ("'front'", "7.5 seconds"):
        assert part in warning.msg
    for part in ("COHERENCE", "Redis", "L1_TIMEOUT"):
        assert part in warning.hint


@pytest.mark.parametrize("l2", [REDIS, {**REDIS, "BACKEND": "django_redis.cache.RedisCache"}])
def test_a_tiered_cache_that_redis_tells_of_writes_is_well(l2):
    assert warnings_for(default=LOCMEM, redis=l2, front=tiered()) == []


def test_replicas_tell_nothing():
    (warning,) = warnings_for(default=LOCMEM, redis=REPLICATED, front=tiered())
    assert warning.id == "wheelcache.W003"


def test_a_tiered_cache_with_a_board_is_well(monkeypatch, tmp_path):
    monkeypatch.setattr(shared_stamps, "runtime_directory", lambda: tmp_path)
    tmp_path.chmod(0o700)
    assert warnings_for(default=LOCMEM, front=tiered(l2="default", COHERENCE="host")) == []


@pytest.mark.parametrize(
    "option", ["L2", "L1_TIMEOUT", "L2_TIMEOUT", "FAIL_SAFE", "GRACE", "WRITES_WITHOUT_L2", "SLOTS"]
)
def test_an_option_of_a_tiered_cache_beside_its_options_is_a_warning(option):
    (warning,) = warnings_for(default=LOCMEM, redis=REDIS, front={**tiered(), option: 5})
    assert warning.id == "wheelcache.W002"
    assert f"CACHES['front'] has {option!r} beside its OPTIONS" in warning.msg


def test_an_option_of_a_tiered_cache_beside_those_of_another_is_none_of_ours():
    assert warnings_for(default={**alias(), "L2": "redis"}) == []


def test_tiered_caches_of_one_location_share_their_entries_behind():
    found = warnings_for(default=alias(""), redis=REDIS, front=tiered(""), other=tiered("", L1_TIMEOUT=5))
    assert found == []


SITE = f"""
from django.conf import settings
settings.configure(
    CACHES={{
        "default": {{"BACKEND": {BACKEND!r}, "MAX_ENTRIES": 5}},
        "other": {{"BACKEND": {BACKEND!r}, "OPTIONS": {{"SLOTS": 8}}}},
    }},
    INSTALLED_APPS=["wheelcache.django_backend"],
)
from django.core.management import execute_from_command_line
execute_from_command_line(["manage.py", "check", "--fail-level", "WARNING"])
"""


def test_manage_py_check_prints_the_warnings_once_the_app_is_installed():
    outcome = subprocess.run([sys.executable, "-c", SITE], capture_output=True, text=True, timeout=60)
    assert outcome.returncode == 1
    assert "(wheelcache.W001) The caches 'default' and 'other' have the same LOCATION ''" in outcome.stderr
    assert "(wheelcache.W002) CACHES['default'] has 'MAX_ENTRIES' beside its OPTIONS" in outcome.stderr
    assert "2 issues" in outcome.stderr
