"""Django's system checks of CACHES, and of state that workers must share: sessions, rate limits, failed logins."""

import sys

import pytest
from django.conf import settings
from django.core import checks
from django.test import override_settings
from django.urls import include, path

from tests.django_backend.conftest import BACKEND
from tests.near_cache.tiers import LOCMEM as LOCMEM_BACKEND
from tests.scripts import run_python
from wheelcache.django_backend import WheelCache
from wheelcache.engine.option_table import DJANGO
from wheelcache.host_cache.options import DJANGO_HOST
from wheelcache.near_cache.options import DJANGO_TIERED

LOCMEM = {"BACKEND": LOCMEM_BACKEND}
REDIS = {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": "redis://127.0.0.1:1"}


def alias(location="", options=None, **beside):
    return {"BACKEND": BACKEND, "LOCATION": location, "OPTIONS": options or {}, **beside}


def tiered(location="tiered", l2="redis", **options):
    return {"BACKEND": "wheelcache.django_backend.TieredCache", "LOCATION": location, "OPTIONS": {"L2": l2, **options}}


def host(location="", **options):
    return {"BACKEND": "wheelcache.django_backend.HostCache", "LOCATION": location, "OPTIONS": options}


def warnings_for(**configured):
    with override_settings(CACHES=configured):
        found = checks.run_checks(tags=[checks.Tags.caches])
    # I001 reports the core in Python: see tests/test_core_choice.py.
    found = [message for message in found if message.id.startswith("wheelcache.") and message.id != "wheelcache.I001"]
    assert all(message.level == checks.WARNING for message in found)
    return found


@pytest.mark.parametrize(
    "configured",
    [
        {"default": alias(), "other": alias("other")},
        {"default": alias("a", {"INTERVAL": 8}), "other": alias("b", {"INTERVAL": 9})},
        {
            "default": alias("a", TIMEOUT=5, KEY_PREFIX="p", VERSION=2, KEY_FUNCTION=lambda key, prefix, version: key),
            "other": alias("a"),
        },
        {
            "default": alias("a", {"MAX_ENTRIES": 5, "INTERVAL": 8}),
            "other": alias("a", {"INTERVAL": 8, "MAX_ENTRIES": 5}),
        },
        {"default": alias("a"), "other": {**LOCMEM, "LOCATION": "a", "MAX_ENTRIES": 1}},
        # An option of a TieredCache is none of a WheelCache's.
        {"default": alias(L2="redis")},
        {"default": LOCMEM, "redis": REDIS, "front": tiered()},
        {"default": LOCMEM, "redis": {**REDIS, "BACKEND": "django_redis.cache.RedisCache"}, "front": tiered()},
        # Each has a folder of its own.
        {"default": host(), "small": host(MAX_SIZE=1 << 20), "named": host("n"), "other": host("o")},
        # An option of a WheelCache is none of a HostCache's.
        {"default": {**host(), "POLICY": "lru"}},
        # Their entries are behind.
        {"default": alias(), "redis": REDIS, "front": tiered(""), "other": tiered("", L1_TIMEOUT=5)},
    ],
)
def test_there_is_no_warning_when_all_is_well(configured):
    assert warnings_for(**configured) == []


def test_each_location_with_different_options_is_one_warning_however_many_aliases_it_has():
    first, second, unnamed = warnings_for(
        default=alias("x", {"INTERVAL": 1}),
        b=alias("x", {"INTERVAL": 2}),
        c=alias("x", {"INTERVAL": 2}),
        d=alias("x", {"INTERVAL": 3}),
        e=alias("y", {"INTERVAL": 1}),
        f=alias("y", {"INTERVAL": 2}),
        g=alias("z"),
        h={"BACKEND": BACKEND},
        i=alias(options={"INTERVAL": 8}),
    )
    assert {each.id for each in (first, second, unnamed)} == {"wheelcache.W001"}
    for part in ("'default'", "'b'", "'d'", "LOCATION 'x'", "different OPTIONS", "do not share"):
        assert part in first.msg
    assert "LOCATION" in first.hint
    assert ("'y'" in second.msg, "LOCATION ''" in unnamed.msg) == (True, True)


@pytest.mark.parametrize(("one", "other"), [(alias(), alias()), (alias(), {"BACKEND": BACKEND}), (host(), host())])
def test_aliases_without_a_location_that_share_one_store_are_a_warning_that_names_them(one, other):
    (warning,) = warnings_for(default=one, other=other, apart=alias("apart"), named=alias("apart"))
    assert warning.id == "wheelcache.W004"
    for part in ("'default' and 'other'", "no LOCATION", "share one store"):
        assert part in warning.msg
    assert "LOCATION" in warning.hint


OPTIONS = {"default": DJANGO, "front": DJANGO_TIERED, "machine": DJANGO_HOST}
BESIDE = [(name, option) for name, options in OPTIONS.items() for option in options]


@pytest.mark.pairs(full="name", of="name")
@pytest.mark.parametrize(("name", "option"), BESIDE)
def test_an_option_beside_options_is_a_warning_that_names_it_and_its_alias(name, option):
    configured = {"default": alias("beside"), "redis": REDIS, "front": tiered(), "machine": host()}
    configured[name] = {**configured[name], option: 5}
    (warning,) = warnings_for(**configured)
    assert warning.id == "wheelcache.W002"
    assert f"CACHES[{name!r}] has {option!r} next to its OPTIONS" in warning.msg
    assert "OPTIONS" in warning.hint


def test_the_subclass_of_a_project_is_checked_as_well():
    found = warnings_for(
        default={"BACKEND": f"{__name__}.OurCache", "INTERVAL": 8, "LOCATION": "sub"},
        other=alias("sub", {"INTERVAL": 8}),
    )
    assert sorted(warning.id for warning in found) == ["wheelcache.W001", "wheelcache.W002"]


def OurCache(location, params):  # a factory, as good as a class to Django
    return type("OurCache", (WheelCache,), {})(location, params)


@pytest.mark.parametrize("redis", [LOCMEM, {**REDIS, "LOCATION": ["redis://127.0.0.1:1", "redis://127.0.0.1:2"]}])
def test_a_tiered_cache_that_nothing_tells_of_writes_is_a_warning_that_says_how_old_it_may_be(redis):
    """Replicas send no notifications."""
    (warning,) = warnings_for(default=LOCMEM, redis=redis, front=tiered(L1_TIMEOUT=7.5))
    assert warning.id == "wheelcache.W003"
    for part in ("'front'", "7.5 seconds"):
        assert part in warning.msg
    for part in ("HostCache", "Redis", "L1_TIMEOUT"):
        assert part in warning.hint


def test_a_folder_that_others_can_access_is_a_warning_with_the_cause(monkeypatch, tmp_path):
    # Tests have other folders.
    monkeypatch.setattr("wheelcache.host_cache.django_host.test_process", lambda **_: "")
    folder = tmp_path / "cache"
    assert warnings_for(default=host(str(folder))) == []
    folder.mkdir(0o700)
    assert warnings_for(default=host(str(folder))) == []
    folder.chmod(0o750)
    (warning,) = warnings_for(default=host(str(folder)))
    assert warning.id == "wheelcache.W011"
    assert f"The cache 'default' is empty for this user: {folder} must be accessible to its owner only" in warning.msg


SITE = f"""
from django.conf import settings
settings.configure(
    CACHES={{
        "default": {{"BACKEND": {BACKEND!r}, "MAX_ENTRIES": 5}},
        "other": {{"BACKEND": {BACKEND!r}, "OPTIONS": {{"INTERVAL": 8}}}},
    }},
    INSTALLED_APPS=["wheelcache.django_backend"],
    SESSION_ENGINE="django.contrib.sessions.backends.cache",
)
from django.core.management import execute_from_command_line
execute_from_command_line(["manage.py", "check", "--deploy", "--fail-level", "WARNING"])
"""


def test_manage_py_check_prints_the_warnings_once_the_app_is_installed():
    outcome = run_python("-c", SITE)
    assert outcome.returncode == 1
    for line in (
        "(wheelcache.W001) The caches 'default' and 'other' have the same LOCATION ''",
        "(wheelcache.W002) CACHES['default'] has 'MAX_ENTRIES' next to its OPTIONS",
        "(wheelcache.W005) Sessions are only in the cache 'default'",
    ):
        assert outcome.stderr.count(line) == 1


# State that all workers must share.

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


def deployment_warnings(*, deploy=True, **configured):
    with override_settings(CACHES=SHARED, **configured):
        found = checks.run_checks(tags=[checks.Tags.caches], include_deployment_checks=deploy)
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
def test_sessions_in_a_cache_of_each_process_are_a_warning_of_deployments_that_names_it(engine, name):
    (warning,) = deployment_warnings(SESSION_ENGINE=engine, SESSION_CACHE_ALIAS=name)
    assert warning.level == checks.WARNING
    assert f"the cache {name!r}" in warning.msg
    assert all(part in warning.hint for part in ("Make this cache a HostCache", "TieredCache"))
    assert deployment_warnings(deploy=False, SESSION_ENGINE=engine, SESSION_CACHE_ALIAS=name) == []


@pytest.mark.parametrize(("engine", "name"), RIGHT)
def test_sessions_that_all_processes_see_are_none(engine, name):
    assert deployment_warnings(SESSION_ENGINE=engine, SESSION_CACHE_ALIAS=name) == []


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
        assert deployment_warnings(**given) == []
    else:
        told, hint = "django-ratelimit counts", "RATELIMIT_USE_CACHE"
        given = {hint: name}
        off = {**given, "RATELIMIT_ENABLE": False}
    found = deployment_warnings(**given, INSTALLED_APPS=apps)
    assert len(found) == (not is_right)
    for each in found:
        assert f"{told} in the cache {name!r}" in each.msg
        assert hint in each.hint
    assert deployment_warnings(**off, INSTALLED_APPS=apps) == []


def test_rate_limits_are_in_the_default_cache_unless_told_otherwise(installed):
    assert len(deployment_warnings(INSTALLED_APPS=installed("django_ratelimit"))) == 1


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
        found = deployment_warnings(**given(name), INSTALLED_APPS=apps)
        assert len(found) == (not is_right), name
        for each in found:
            assert f"the cache {name!r}" in each.msg
            assert next(iter(given(name))) in each.hint
            assert "HostCache" in each.hint
    assert deployment_warnings(**given("default")) == []
    if off is not None:
        assert deployment_warnings(**off, INSTALLED_APPS=apps) == []


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
    (warning,) = deployment_warnings(**BY_DEFAULT[app], INSTALLED_APPS=installed(app))
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
    assert deployment_warnings(**given, INSTALLED_APPS=installed(app)) == []
