"""Django's system checks of CACHES."""

import pytest

from tests.django_backend.configured import (
    LOCMEM,
    alias,
    assert_warns_beside_options,
    assert_warns_of_one_store,
    warnings_for,
)
from tests.django_backend.conftest import BACKEND
from tests.guests import has
from tests.scripts import run_python
from wheelcache.engine.option_table import DJANGO


@pytest.mark.parametrize(
    "configured",
    [
        {"default": alias(), "other": alias("other")},
        {"default": alias("a", {"JITTER": 0.8}), "other": alias("b", {"JITTER": 0.9})},
        {
            "default": alias("a", TIMEOUT=5, KEY_PREFIX="p", VERSION=2, KEY_FUNCTION=lambda key, prefix, version: key),
            "other": alias("a"),
        },
        {
            "default": alias("a", {"MAX_ENTRIES": 5, "JITTER": 0.8}),
            "other": alias("a", {"JITTER": 0.8, "MAX_ENTRIES": 5}),
        },
        {"default": alias("a"), "other": {**LOCMEM, "LOCATION": "a", "MAX_ENTRIES": 1}},
        pytest.param({"default": alias("a", {"POLICY": "adaptive"})}, marks=pytest.mark.compiled),
        # An option of a TieredCache is none of a WheelCache's.
        {"default": alias(L2="redis")},
    ],
)
def test_there_is_no_warning_when_all_is_well(configured):
    assert warnings_for(**configured) == []


def test_each_location_with_different_options_is_one_warning_however_many_aliases_it_has():
    first, second, unnamed = warnings_for(
        default=alias("x", {"JITTER": 0.1}),
        b=alias("x", {"JITTER": 0.2}),
        c=alias("x", {"JITTER": 0.2}),
        d=alias("x", {"JITTER": 0.3}),
        e=alias("y", {"JITTER": 0.1}),
        f=alias("y", {"JITTER": 0.2}),
        g=alias("z"),
        h={"BACKEND": BACKEND},
        i=alias(options={"JITTER": 0.8}),
    )
    assert {each.id for each in (first, second, unnamed)} == {"wheelcache.W001"}
    for part in ("'default'", "'b'", "'d'", "LOCATION 'x'", "different OPTIONS", "do not share"):
        assert part in first.msg
    assert "LOCATION" in first.hint
    assert ("'y'" in second.msg, "LOCATION ''" in unnamed.msg) == (True, True)


@pytest.mark.parametrize("other", [alias(), {"BACKEND": BACKEND}])
def test_aliases_without_a_location_that_share_one_store_are_a_warning_that_names_them(other):
    assert_warns_of_one_store(alias(), other)


@pytest.mark.parametrize("option", DJANGO)
def test_an_option_beside_options_is_a_warning_that_names_it_and_its_alias(option):
    assert_warns_beside_options("default", option, {"default": alias("beside")})


SITE = f"""
from django.conf import settings
settings.configure(
    CACHES={{
        "default": {{"BACKEND": {BACKEND!r}, "MAX_ENTRIES": 5}},
        "other": {{"BACKEND": {BACKEND!r}, "OPTIONS": {{"JITTER": 0.8}}}},
    }},
    INSTALLED_APPS=["wheelcache.django_backend"],
    SESSION_ENGINE="django.contrib.sessions.backends.cache",
)
from django.core.management import execute_from_command_line
execute_from_command_line(["manage.py", "check", "--fail-level", "WARNING"])
"""


def test_manage_py_check_prints_the_warnings_once_the_app_is_installed():
    outcome = run_python("-c", SITE)
    assert outcome.returncode == 1
    lines = (
        "(wheelcache.W001) The caches 'default' and 'other' have the same LOCATION ''",
        "(wheelcache.W002) CACHES['default'] has 'MAX_ENTRIES' next to its OPTIONS",
        "(wheelcache.W005) Sessions are only in the cache 'default'",
    )
    # The guest that looks at sites knows of sessions.
    assert [outcome.stderr.count(line) for line in lines] == [1, 1, has("watch")]
