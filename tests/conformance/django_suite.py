"""Runs Django's own cache tests on WheelCache:
``python -m tests.conformance.django_suite <Django's tests folder>``.

Two things are run, both as they stand in Django's source distribution: the contract ``BaseCacheTests``, as a class for
our backend; and every test that uses LocMemCache (middleware, ``cache_page``, fragments, i18n, sessions), with our
class standing where LocMemCache was.
"""

from __future__ import annotations

import sys
import unittest

import django
from django.conf import settings

from tests.conformance.django_runner import REQUIRED, failures

BACKEND = "wheelcache.django_backend.WheelCache"

settings.configure(
    CACHES={"default": {"BACKEND": BACKEND}},
    INSTALLED_APPS=[
        "django.contrib.contenttypes",
        "django.contrib.auth",
        "django.contrib.sites",
        "django.contrib.sessions",
        "django.contrib.messages",
        "django.contrib.staticfiles",
        "wheelcache.django_backend",
        "cache",
        "sessions_tests",
    ],
    LANGUAGE_CODE="en",
    SITE_ID=1,
    STATIC_URL="static/",
    TEMPLATES=[{"BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True}],
    **REQUIRED,
)


def load(tests_folder: str) -> unittest.TestSuite:
    sys.path.insert(0, tests_folder)

    import django.core.cache.backends.locmem as locmem

    import wheelcache
    from wheelcache.django_backend import WheelCache

    class InLocMemsPlace(WheelCache):
        """With default options, but for the three tests of recency: they set MAX_ENTRIES and count on a cull, which
        WheelCache does only when told to."""

        def __init__(self, location, params):
            given = params.get("OPTIONS", {})
            culls = {"CULL_FREQUENCY": 3} if "MAX_ENTRIES" in given else {}
            super().__init__(location, {**params, "OPTIONS": {**culls, **given}})

    locmem.LocMemCache = InLocMemsPlace
    django.setup()

    import cache.tests as cache_tests
    import sessions_tests.tests as session_tests
    from django.test import TestCase, override_settings

    configured = cache_tests.caches_setting_for_tests(BACKEND=BACKEND)
    # What the contract expects of a cull is what LocMemCache does unasked; WheelCache does it when told to.
    configured["cull"] = {"BACKEND": BACKEND, "OPTIONS": {"MAX_ENTRIES": 30, "CULL_FREQUENCY": 3}}

    @override_settings(CACHES=configured)
    class WheelCacheTests(cache_tests.BaseCacheTests, TestCase):
        # Those of LocMemCacheTests that hold for any cache in memory; the others look at its private parts.
        test_lru_get = cache_tests.LocMemCacheTests.test_lru_get
        test_lru_set = cache_tests.LocMemCacheTests.test_lru_set
        test_lru_incr = cache_tests.LocMemCacheTests.test_lru_incr
        test_multiple_caches = cache_tests.LocMemCacheTests.test_multiple_caches

        def tearDown(self):
            # LocMemCache has one store for a LOCATION whatever its OPTIONS, so clearing one alias clears them all.
            for each in wheelcache.caches():
                each.clear()

    loader = unittest.defaultTestLoader
    classes = [
        WheelCacheTests,
        cache_tests.CacheClosingTests,
        cache_tests.CacheUtils,
        cache_tests.PrefixedCacheUtils,
        cache_tests.CacheHEADTest,
        cache_tests.CacheI18nTest,
        cache_tests.PrefixedCacheI18nTest,
        cache_tests.CacheMiddlewareTest,
        cache_tests.TestWithTemplateResponse,
        cache_tests.TestMakeTemplateFragmentKey,
        cache_tests.CacheHandlerTest,
        cache_tests.CustomCacheKeyValidationTests,
        session_tests.CacheSessionTests,
        session_tests.CacheDBSessionTests,
    ]
    return unittest.TestSuite(loader.loadTestsFromTestCase(each) for each in classes)


if __name__ == "__main__":
    sys.exit(failures(load(sys.argv[1])))
