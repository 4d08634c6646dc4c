"""Runs Django's cache contract on TieredCache:
``python -m tests.conformance.django_tiered_suite <Django's tests folder> <the backend of L2> <Redis's URL>``.

``BaseCacheTests`` as they stand in Django's source distribution, over Django's own RedisCache, which tells of
writes, or LocMemCache, with shared stamps.
"""

from __future__ import annotations

import sys
import unittest

import django
from django.conf import settings

from tests.conformance.django_runner import REQUIRED, failures
from tests.waiting import until

TIERED = "wheelcache.django_backend.TieredCache"
LOCMEM = "django.core.cache.backends.locmem.LocMemCache"
REDIS = "django.core.cache.backends.redis.RedisCache"

settings.configure(
    CACHES={"default": {"BACKEND": LOCMEM}},
    INSTALLED_APPS=["django.contrib.contenttypes", "django.contrib.auth", "cache"],
    **REQUIRED,
)


def load(tests_folder: str, second_level: str, url: str) -> unittest.TestSuite:
    sys.path.insert(0, tests_folder)
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

    @override_settings(CACHES=over(REDIS, url, {"cull", "zero_cull"}))
    class OverRedisTests(Tiered, TestCase):
        incr_decr_type_error = redis.ResponseError
        # Redis evicts by itself; Django does not run these on it either.
        test_cull = test_zero_cull = test_cull_delete_when_store_empty = None

    @override_settings(CACHES=over(LOCMEM, "behind", set(), COHERENCE="host"))
    class OverLocMemTests(Tiered, TestCase):
        pass

    classes = {REDIS: OverRedisTests, LOCMEM: OverLocMemTests}
    return unittest.defaultTestLoader.loadTestsFromTestCase(classes[second_level])


if __name__ == "__main__":
    sys.exit(failures(load(*sys.argv[1:])))
