"""Runs tests of Django's source distribution in a process of their own."""

from __future__ import annotations

import unittest
import warnings

REQUIRED = {
    "DATABASES": {name: {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"} for name in ("default", "other")},
    "DEFAULT_AUTO_FIELD": "django.db.models.AutoField",
    "MIDDLEWARE": ["django.contrib.sessions.middleware.SessionMiddleware"],
    "ROOT_URLCONF": "urls",
    "SECRET_KEY": "django_tests_secret_key",
    "USE_TZ": False,
}
"""The settings that Django's cache tests need."""


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
