"""Django's system checks of state that workers must share, such as sessions and rate limits, and of the dashboard."""

import sys
from itertools import accumulate
from types import ModuleType

import pytest
from django.conf import settings
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


@pytest.mark.parametrize(
    ("engine", "name"),
    [
        *((CACHE, name) for name in ("default", "over locmem", "over plain")),
        *((CACHED_DB, name) for name in ("default", "over locmem")),
    ],
)
def test_sessions_in_a_cache_of_each_process_are_a_warning_that_names_it(engine, name):
    (warning,) = sharing_warnings(SESSION_ENGINE=engine, SESSION_CACHE_ALIAS=name)
    assert warning.level == checks.WARNING
    assert f"the cache {name!r}" in warning.msg
    assert all(part in warning.hint for part in ("Make this cache a HostCache", "TieredCache"))


@pytest.mark.parametrize(
    ("engine", "name"),
    [
        # LocMemCache is Django's own, and Django names a missing one.
        *((CACHE, name) for name in ("machine", "over machine", "over redis", "redis", "locmem", "missing")),
        *((CACHED_DB, name) for name in ("machine", "over redis")),
        *((f"django.contrib.sessions.backends.{each}", "default") for each in ("db", "signed_cookies")),
    ],
)
def test_sessions_that_all_processes_see_are_none(engine, name):
    assert sharing_warnings(SESSION_ENGINE=engine, SESSION_CACHE_ALIAS=name) == []


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
    """Return INSTALLED_APPS with an empty app of this name."""

    def install(name):
        for each in accumulate(name.split("."), "{}.{}".format):
            module = ModuleType(each)
            module.__path__ = [str(tmp_path)]
            monkeypatch.setitem(sys.modules, each, module)
        return [*settings.INSTALLED_APPS, name]

    return install


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
    assert found(ROOT_URLCONF="django.conf.urls.i18n") == []


ALIASES = {"default": False, "machine": True, "over redis": True, "over locmem": False, "redis": True}
CONSTANCE = {"CONSTANCE_BACKEND": "constance.backends.database.DatabaseBackend"}
AXES = {"AXES_HANDLER": "axes.handlers.cache.AxesCacheHandler"}
THROTTLED = {"REST_FRAMEWORK": {"DEFAULT_THROTTLE_RATES": {"user": "10/min", "anon": None}}}
MAINTENANCE = {"MAINTENANCE_MODE_STATE_BACKEND": "maintenance_mode.backends.CacheBackend"}

PACKAGES = [
    # The app; the setting that has the alias of its cache, with the name of a key; other settings with which it uses a
    # cache; whether it uses the default one without the setting; and settings with which it uses none.
    ("django_ratelimit", "RATELIMIT_USE_CACHE", {}, True, {"RATELIMIT_ENABLE": False}),
    ("ratelimit", "RATELIMIT_USE_CACHE", {}, True, {"RATELIMIT_ENABLE": False}),
    ("axes", "AXES_CACHE", AXES, True, {"AXES_HANDLER": "axes.handlers.database.AxesDatabaseHandler"}),
    ("constance", "CONSTANCE_DATABASE_CACHE_BACKEND", CONSTANCE, False, {"CONSTANCE_BACKEND": "constance.memory"}),
    ("constance.backends.database", "CONSTANCE_DATABASE_CACHE_BACKEND", CONSTANCE, False, CONSTANCE),
    ("waffle", "WAFFLE_CACHE_NAME", {}, True, None),
    ("cachalot", "CACHALOT_CACHE", {}, True, {"CACHALOT_ENABLED": False}),
    ("solo", "SOLO_CACHE", {}, False, {}),
    (
        "dynamic_preferences",
        "DYNAMIC_PREFERENCES CACHE_NAME",
        {},
        True,
        {"DYNAMIC_PREFERENCES": {"ENABLE_CACHE": False}},
    ),
    ("extra_settings", "EXTRA_SETTINGS_CACHE_NAME", {}, True, None),
    ("sorl.thumbnail", "THUMBNAIL_CACHE", {}, True, {"THUMBNAIL_KVSTORE": "sorl.thumbnail.kvstores.redis_kvstore"}),
    ("wagtailcache", "WAGTAIL_CACHE_BACKEND", {}, True, {"WAGTAIL_CACHE": False}),
    ("django_select2", "SELECT2_CACHE_BACKEND", {}, True, None),
    ("django_cron", "DJANGO_CRON_CACHE", {}, True, {"DJANGO_CRON_LOCK_BACKEND": "django_cron.backends.lock.file"}),
    ("django_q", "Q_CLUSTER cache", {}, True, None),
    (
        *("django_celery_results", "CELERY_CACHE_BACKEND", {"CELERY_RESULT_BACKEND": "django-cache"}, True),
        {"CELERY_RESULT_BACKEND": "django-db"},
    ),
    ("allauth.account", None, {}, True, {"ACCOUNT_RATE_LIMITS": False}),
    ("rest_framework", None, THROTTLED, True, {"REST_FRAMEWORK": {"DEFAULT_THROTTLE_RATES": {"user": None}}}),
    ("rest_framework", None, {"REST_FRAMEWORK": {"DEFAULT_THROTTLE_CLASSES": ["x"]}}, True, {}),
    ("maintenance_mode", None, MAINTENANCE, True, {}),
]


@pytest.mark.parametrize(("app", "setting", "given", "has_default", "off"), PACKAGES)
def test_a_package_that_needs_a_shared_cache_is_named_with_the_alias_that_it_uses(
    installed, app, setting, given, has_default, off
):
    apps = installed(app)
    for used, is_right in ALIASES.items() if setting else ():
        name, _, key = setting.partition(" ")
        found = sharing_warnings(**given, **{name: {key: used} if key else used}, INSTALLED_APPS=apps)
        assert len(found) == (not is_right), used
        assert all(f"the cache {used!r}" in each.msg and name in each.hint for each in found)
    found = sharing_warnings(**given, INSTALLED_APPS=apps)
    assert ["the cache 'default'" in each.msg for each in found] == [True] * has_default
    assert off is None or sharing_warnings(**off, INSTALLED_APPS=apps) == []
