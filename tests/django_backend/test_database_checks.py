"""The system checks of ``COHERENCE = "database"``."""

import pytest
from django.core import checks
from django.test import override_settings

from wheelcache.django_backend.checks import check_databases, check_late_state

pytestmark = pytest.mark.usefixtures("own_stamps")

CACHE = {"BACKEND": "wheelcache.django_backend.WheelCache", "LOCATION": "checked"}
ON_DATABASE = {"default": {**CACHE, "OPTIONS": {"COHERENCE": "database"}}}


def test_a_database_that_is_not_postgresql_is_an_error():
    with override_settings(CACHES=ON_DATABASE):
        (error,) = check_databases(None)
    assert (error.id, error.level) == ("wheelcache.E004", checks.ERROR)
    assert "'default'" in error.msg


def test_an_unknown_alias_to_poll_is_an_error():
    options = {"COHERENCE": "database", "POLLED_DATABASE": "nowhere"}
    with override_settings(CACHES={"default": {**CACHE, "OPTIONS": options}}):
        assert any("'nowhere'" in error.msg for error in check_databases(None))


@pytest.mark.parametrize(
    "settings",
    [
        {"SESSION_ENGINE": "django.contrib.sessions.backends.cache"},
        {"SESSION_ENGINE": "django.contrib.sessions.backends.cached_db"},
        {
            "INSTALLED_APPS": ["rest_framework"],
            "REST_FRAMEWORK": {"DEFAULT_THROTTLE_CLASSES": ["rest_framework.throttling.AnonRateThrottle"]},
        },
    ],
    ids=["cache", "cached_db", "throttles"],
)
def test_sessions_and_throttles_are_refused(settings, monkeypatch):
    installed = settings.pop("INSTALLED_APPS", ())
    monkeypatch.setattr("django.apps.apps.is_installed", lambda name: name in installed)
    with override_settings(CACHES=ON_DATABASE, **settings):
        (error,) = check_late_state(None)
    assert (error.id, error.level) == ("wheelcache.E005", checks.ERROR)


def test_sessions_in_another_cache_are_accepted():
    other = {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}
    engine = "django.contrib.sessions.backends.cache"
    with override_settings(CACHES={**ON_DATABASE, "other": other}, SESSION_ENGINE=engine, SESSION_CACHE_ALIAS="other"):
        assert check_late_state(None) == []


def test_a_database_to_poll_needs_coherence_over_the_database():
    from django.core.cache import caches
    from django.core.exceptions import ImproperlyConfigured

    for coherence in (None, "host"):
        options = {"COHERENCE": coherence, "POLLED_DATABASE": "default"}
        with (
            override_settings(CACHES={"default": {**CACHE, "OPTIONS": options}}),
            pytest.raises(ImproperlyConfigured, match=r"POLLED_DATABASE needs COHERENCE 'database'"),
        ):
            caches["default"]
