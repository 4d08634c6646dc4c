"""Runs Django's own cache tests on WheelCache or HostCache, or its cache contract on TieredCache, as they stand in
Django's source distribution: ``python -m tests.conformance.django_suite <Django's tests folder> <a backend>``, or
``<the backend of L2> <Redis's URL>`` at the end.

For WheelCache and HostCache, these are the contract ``BaseCacheTests`` and every test that uses LocMemCache
(middleware, ``cache_page``, fragments, i18n, sessions), with our class in the place of LocMemCache. TieredCache stands
in front of Django's own RedisCache or our RedisClusterCache, which report writes, or of LocMemCache. RedisClusterCache
itself has to keep the contract, too.
"""

from __future__ import annotations

import sys
import unittest
import warnings

import django
from django.conf import settings

from tests.waiting import until

HOST = "wheelcache.django_backend.HostCache"
TIERED = "wheelcache.django_backend.TieredCache"
LOCMEM = "django.core.cache.backends.locmem.LocMemCache"
REDIS = "django.core.cache.backends.redis.RedisCache"
CLUSTER = "wheelcache.django_backend.RedisClusterCache"

APPS = ("contenttypes", "auth", "sites", "sessions", "messages", "staticfiles")

settings.configure(
    CACHES={"default": {"BACKEND": sys.argv[2] if len(sys.argv) == 3 else LOCMEM}},
    DATABASES={name: {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"} for name in ("default", "other")},
    DEFAULT_AUTO_FIELD="django.db.models.AutoField",
    INSTALLED_APPS=[*map("django.contrib.{}".format, APPS), "wheelcache.django_backend", "cache", "sessions_tests"],
    LANGUAGE_CODE="en",
    MIDDLEWARE=["django.contrib.sessions.middleware.SessionMiddleware"],
    ROOT_URLCONF="urls",
    SECRET_KEY="django_tests_secret_key",
    SITE_ID=1,
    STATIC_URL="static/",
    TEMPLATES=[{"BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True}],
    USE_TZ=False,
)


def on_own_entries(backend: str) -> unittest.TestSuite:
    import django.core.cache.backends.locmem as locmem
    from django.utils.module_loading import import_string

    import wheelcache

    locmem.LocMemCache = import_string(backend)
    django.setup()

    import cache.tests as cache_tests
    import sessions_tests.tests as session_tests
    from django.test import TestCase, override_settings

    # Without a LOCATION, each alias of a HostCache has entries of its own.
    configured = cache_tests.caches_setting_for_tests(BACKEND=backend, LOCATION="tests" if backend == HOST else "")

    @override_settings(CACHES=configured)
    class OwnEntriesTests(cache_tests.BaseCacheTests, TestCase):
        # They expect that a full cache drops a share of its entries at a time. So do the tests of recency.
        test_cull = test_zero_cull = None
        # The LocMemCacheTests that apply to any cache in memory. The others use its private attributes.
        test_multiple_caches = cache_tests.LocMemCacheTests.test_multiple_caches

        def tearDown(self):
            # LocMemCache has one store for a LOCATION whatever its OPTIONS, so clearing one alias clears them all.
            for each in wheelcache.caches():
                each.clear()

    names = (
        *("CacheClosingTests", "CacheUtils", "PrefixedCacheUtils", "CacheHEADTest", "CacheI18nTest"),
        *("PrefixedCacheI18nTest", "CacheMiddlewareTest", "TestWithTemplateResponse", "TestMakeTemplateFragmentKey"),
        *("CacheHandlerTest", "CustomCacheKeyValidationTests"),
    )
    classes = [OwnEntriesTests, *(getattr(cache_tests, name) for name in names)]
    classes += [session_tests.CacheSessionTests, session_tests.CacheDBSessionTests]
    loader = unittest.defaultTestLoader
    return unittest.TestSuite(loader.loadTestsFromTestCase(each) for each in classes)


def on_tiered_cache(second_level: str, url: str) -> unittest.TestSuite:
    django.setup()

    import cache.tests as cache_tests
    import redis
    from django.core.cache import caches
    from django.test import TestCase, override_settings

    def over(second_level: str, location: str, excluded: set[str], **options: str) -> dict[str, dict[str, object]]:
        """Django's aliases, each a first level in front of one alias, or of one each if the second level culls."""
        behind = cache_tests.caches_setting_for_tests({"BACKEND": second_level, "LOCATION": location}, excluded)
        in_front = {
            alias: {
                **params,
                "BACKEND": TIERED,
                "OPTIONS": {"L2": "behind default" if excluded else f"behind {alias}", **options},
            }
            for alias, params in behind.items()
        }
        return {**in_front, **{f"behind {alias}": params for alias, params in behind.items()}}

    class Tiered(cache_tests.BaseCacheTests):
        def setUp(self) -> None:
            for alias in ("default", "prefix", "v2", "custom_key"):
                level = caches[alias].store.level
                if not level.trusted:
                    # The contract is that of a first level which is used.
                    level.start_tracking()
                    assert until(lambda level=level: level.trusted)

    class InRedis:
        incr_decr_type_error = redis.ResponseError
        # Redis evicts by itself; Django does not run these on it either.
        test_cull = test_zero_cull = test_cull_delete_when_store_empty = None

    @override_settings(CACHES=over(REDIS, url, {"cull", "zero_cull"}))
    class OverRedisTests(InRedis, Tiered, TestCase):
        pass

    @override_settings(CACHES=over(CLUSTER, url, {"cull", "zero_cull"}))
    class OverClusterTests(InRedis, Tiered, TestCase):
        pass

    in_cluster = {"BACKEND": CLUSTER, "LOCATION": url}

    @override_settings(CACHES=cache_tests.caches_setting_for_tests(in_cluster, {"cull", "zero_cull"}))
    class InClusterTests(InRedis, cache_tests.BaseCacheTests, TestCase):
        pass

    @override_settings(CACHES=over(LOCMEM, "behind", set()))
    class OverLocMemTests(Tiered, TestCase):
        # LocMemCache reports no writes: for L1_TIMEOUT seconds, an alias may have an older copy than another one.
        test_cache_versioning_incr_decr = test_incr_version = None

    classes = {REDIS: [OverRedisTests], CLUSTER: [InClusterTests, OverClusterTests], LOCMEM: [OverLocMemTests]}
    load = unittest.defaultTestLoader.loadTestsFromTestCase
    return unittest.TestSuite(map(load, classes[second_level]))


def failures(suite: unittest.TestSuite) -> int:
    """Run ``suite`` after ``django.setup()`` and return the number of its failures."""
    from django.test.runner import DiscoverRunner

    warnings.simplefilter("default")
    runner = DiscoverRunner(verbosity=1, interactive=False)
    runner.setup_test_environment()
    databases = runner.setup_databases()
    try:
        result = runner.run_suite(suite)
    finally:
        runner.teardown_databases(databases)
        runner.teardown_test_environment()
    return len(result.failures) + len(result.errors) + len(result.unexpectedSuccesses)


if __name__ == "__main__":
    tests_folder, *given = sys.argv[1:]
    sys.path.insert(0, tests_folder)
    sys.exit(failures(on_tiered_cache(*given) if len(given) == 2 else on_own_entries(*given)))
