"""Django's system checks of state that workers must share, such as sessions and rate limits, and of the dashboard."""

import sys

import pytest
from django.conf import settings
from django.contrib.sessions.backends import cached_db
from django.core import checks
from django.test import override_settings
from django.urls import include, path

from tests.django_backend.configured import LOCMEM, REDIS, alias, host, tiered

CACHE = "django.contrib.sessions.backends.cache"
CACHED_DB = "django.contrib.sessions.backends.cached_db"
SHARED = {
    "default": alias("plain"),
    "redis": REDIS,
    "locmem": LOCMEM,
    "over redis": tiered("over redis"),
    "over locmem": tiered("over locmem", "locmem"),
    "over plain": tiered("over plain", "default"),
    "machine": host(),
    "over machine": tiered("over machine", "machine"),
}


def sharing_warnings(**configured):
    with override_settings(CACHES=SHARED, **configured):
        found = checks.run_checks(tags=[checks.Tags.caches])
    return [each for each in found if each.id == "wheelcache.W005"]


WRONG = [
    (CACHE, "default"),
    (CACHE, "over locmem"),
    (CACHE, "over plain"),
    (CACHED_DB, "default"),
    (CACHED_DB, "over locmem"),
]
RIGHT = [
    (CACHE, "machine"),
    (CACHE, "over machine"),
    (CACHE, "over redis"),
    (CACHE, "redis"),
    # Django's own: its users know, and it is none of ours.
    (CACHE, "locmem"),
    # For Django to name.
    (CACHE, "missing"),
    (CACHED_DB, "machine"),
    (CACHED_DB, "over redis"),
    ("django.contrib.sessions.backends.db", "default"),
    ("django.contrib.sessions.backends.signed_cookies", "default"),
]


@pytest.mark.parametrize(("engine", "name"), WRONG)
def test_sessions_in_a_cache_of_each_process_are_a_warning_that_names_it(engine, name):
    (warning,) = sharing_warnings(SESSION_ENGINE=engine, SESSION_CACHE_ALIAS=name)
    assert warning.level == checks.WARNING
    assert f"the cache {name!r}" in warning.msg
    assert all(part in warning.hint for part in ("Make this cache a HostCache", "TieredCache"))


@pytest.mark.parametrize(("engine", "name"), RIGHT)
def test_sessions_that_all_processes_see_are_none(engine, name):
    assert sharing_warnings(SESSION_ENGINE=engine, SESSION_CACHE_ALIAS=name) == []


class SessionStore(cached_db.SessionStore):
    """The sessions of a project, whose SESSION_ENGINE is this module."""


def test_a_subclass_of_django_s_sessions_is_a_warning_as_well():
    assert len(sharing_warnings(SESSION_ENGINE=__name__)) == 1
    assert sharing_warnings(SESSION_ENGINE=__name__, SESSION_CACHE_ALIAS="machine") == []


@pytest.mark.parametrize(
    ("command", "debug", "number"),
    [("runserver", True, 0), ("runserver", False, 1), ("check", True, 1), ("migrate", False, 1)],
)
def test_the_development_server_reports_no_sessions_with_debug_since_it_has_one_process(
    monkeypatch, command, debug, number
):
    monkeypatch.setattr(sys, "argv", ["manage.py", command])
    assert len(sharing_warnings(SESSION_ENGINE=CACHE, DEBUG=debug)) == number


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Override INSTALLED_APPS with an empty app of this name."""
    monkeypatch.syspath_prepend(tmp_path)

    before = set(sys.modules)

    def install(name):
        folder = tmp_path
        for part in name.split("."):
            folder /= part
            folder.mkdir()
            (folder / "__init__.py").touch()
        return [*settings.INSTALLED_APPS, name]

    yield install
    for name in set(sys.modules) - before:
        del sys.modules[name]


urlpatterns = [
    path("wheelcache/", include("wheelcache.watch.urls")),
    path("login/", lambda request: None, name="our-login"),
]


@pytest.mark.parametrize(
    ("login_url", "is_page"),
    [
        ("our-login", True),
        ("/login/", True),
        ("/login?from=here", True),
        ("https://example.com/login", True),
        ("/accounts/login/", False),
        ("admin:login", False),
        ("our-logout", False),
    ],
)
def test_a_login_url_that_is_no_page_is_a_warning_if_the_site_has_the_dashboard(login_url, is_page):
    def found(**given):
        with override_settings(CACHES={"default": alias()}, LOGIN_URL=login_url, **given):
            return [each for each in checks.run_checks(tags=[checks.Tags.caches]) if each.id == "wheelcache.W007"]

    assert [repr(login_url) in each.msg for each in found(ROOT_URLCONF=__name__)] == [True] * (not is_page)
    assert found(ROOT_URLCONF=__name__, WHEELCACHE_DASHBOARD_GUARD=lambda request: None) == []
    assert found(ROOT_URLCONF="tests.pages.on_django.pages_site") == []


ALIASES = {"default": False, "machine": True, "over redis": True, "over locmem": False, "redis": True}


@pytest.mark.parametrize(("name", "is_right"), ALIASES.items())
@pytest.mark.parametrize("app", ["django_ratelimit", "ratelimit", None, "axes"])
def test_rate_limits_and_failed_logins_in_a_cache_of_each_process_are_a_warning(installed, app, name, is_right):
    apps = settings.INSTALLED_APPS if app is None else installed(app)
    if app == "axes":
        told, hint = "django-axes counts failed logins", "AXES_CACHE"
        given = {"AXES_HANDLER": "axes.handlers.cache.AxesCacheHandler", hint: name}
        off = {**given, "AXES_HANDLER": "axes.handlers.database.AxesDatabaseHandler"}
        # It is not known to be used.
        assert sharing_warnings(**given) == []
    else:
        told, hint = "django-ratelimit counts", "RATELIMIT_USE_CACHE"
        given = {hint: name}
        off = {**given, "RATELIMIT_ENABLE": False}
    found = sharing_warnings(**given, INSTALLED_APPS=apps)
    assert len(found) == (not is_right)
    for each in found:
        assert f"{told} in the cache {name!r}" in each.msg
        assert hint in each.hint
    assert sharing_warnings(**off, INSTALLED_APPS=apps) == []


def test_rate_limits_are_in_the_default_cache_unless_told_otherwise(installed):
    assert len(sharing_warnings(INSTALLED_APPS=installed("django_ratelimit"))) == 1


def named(setting, **others):
    """Return the settings of a package by the alias of its cache."""
    return lambda alias: {setting: alias, **others}


# Each app, its settings for an alias, and settings with which it uses no cache.
ON_DATABASE = {
    "constance": (
        named("CONSTANCE_DATABASE_CACHE_BACKEND", CONSTANCE_BACKEND="constance.backends.database.DatabaseBackend"),
        {"CONSTANCE_BACKEND": "constance.backends.redisd.RedisBackend", "CONSTANCE_DATABASE_CACHE_BACKEND": "default"},
    ),
    "constance.backends.database": (
        named("CONSTANCE_DATABASE_CACHE_BACKEND", CONSTANCE_BACKEND="constance.backends.database.DatabaseBackend"),
        {"CONSTANCE_BACKEND": "constance.backends.database.DatabaseBackend"},
    ),
    "waffle": (named("WAFFLE_CACHE_NAME"), None),
    "cachalot": (named("CACHALOT_CACHE"), {"CACHALOT_ENABLED": False}),
    "solo": (named("SOLO_CACHE"), {}),
    "dynamic_preferences": (
        lambda alias: {"DYNAMIC_PREFERENCES": {"CACHE_NAME": alias}},
        {"DYNAMIC_PREFERENCES": {"ENABLE_CACHE": False}},
    ),
    "extra_settings": (named("EXTRA_SETTINGS_CACHE_NAME"), None),
    "sorl.thumbnail": (
        named("THUMBNAIL_CACHE"),
        {"THUMBNAIL_KVSTORE": "sorl.thumbnail.kvstores.redis_kvstore.KVStore"},
    ),
}
IN_CACHE = {
    "wagtailcache": (named("WAGTAIL_CACHE_BACKEND"), {"WAGTAIL_CACHE": False}),
    "django_select2": (named("SELECT2_CACHE_BACKEND"), None),
    "django_cron": (
        named("DJANGO_CRON_CACHE"),
        {"DJANGO_CRON_LOCK_BACKEND": "django_cron.backends.lock.file.FileLock"},
    ),
    "django_q": (lambda alias: {"Q_CLUSTER": {"cache": alias}}, None),
    "django_celery_results": (
        named("CELERY_CACHE_BACKEND", CELERY_RESULT_BACKEND="django-cache"),
        {"CELERY_RESULT_BACKEND": "django-db"},
    ),
}


@pytest.mark.parametrize("app", [*ON_DATABASE, *IN_CACHE])
def test_packages_that_need_a_shared_cache_are_named_with_the_alias_that_they_use(installed, app):
    given, off = {**ON_DATABASE, **IN_CACHE}[app]
    apps = installed(app)
    for name, is_right in ALIASES.items():
        found = sharing_warnings(**given(name), INSTALLED_APPS=apps)
        assert len(found) == (not is_right), name
        for each in found:
            assert f"the cache {name!r}" in each.msg
            assert next(iter(given(name))) in each.hint
            assert "HostCache" in each.hint
    assert sharing_warnings(**given("default")) == []
    if off is not None:
        assert sharing_warnings(**off, INSTALLED_APPS=apps) == []


BY_DEFAULT = {
    "waffle": {},
    "cachalot": {},
    "dynamic_preferences": {},
    "extra_settings": {},
    "sorl.thumbnail": {"THUMBNAIL_CACHE": "missing"},
    "wagtailcache": {},
    "django_select2": {},
    "django_cron": {},
    "django_q": {},
    "allauth.account": {},
    "rest_framework": {"REST_FRAMEWORK": {"DEFAULT_THROTTLE_RATES": {"user": "10/min", "anon": None}}},
    "maintenance_mode": {"MAINTENANCE_MODE_STATE_BACKEND": "maintenance_mode.backends.CacheBackend"},
}


@pytest.mark.parametrize("app", BY_DEFAULT)
def test_packages_without_a_setting_of_the_alias_use_the_default_cache(installed, app):
    (warning,) = sharing_warnings(**BY_DEFAULT[app], INSTALLED_APPS=installed(app))
    assert "the cache 'default'" in warning.msg


@pytest.mark.parametrize(
    ("app", "given"),
    [
        ("allauth.account", {"ACCOUNT_RATE_LIMITS": False}),
        ("rest_framework", {}),
        ("rest_framework", {"REST_FRAMEWORK": {"DEFAULT_THROTTLE_RATES": {"user": None}}}),
        ("maintenance_mode", {}),
    ],
)
def test_packages_that_do_not_use_their_counters_are_not_named(installed, app, given):
    assert sharing_warnings(**given, INSTALLED_APPS=installed(app)) == []
