"""Caches in the settings of a site, and the warnings that its system checks give."""

from django.core import checks
from django.test import override_settings

from tests.django_backend.conftest import BACKEND
from tests.django_backend.conftest import LOCMEM as LOCMEM_BACKEND

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


def assert_warns_beside_options(name, option, configured):
    """Check that an option next to OPTIONS of the cache ``name`` is a warning."""
    configured[name] = {**configured[name], option: 5}
    (warning,) = warnings_for(**configured)
    assert warning.id == "wheelcache.W002"
    assert f"CACHES[{name!r}] has {option!r} next to its OPTIONS" in warning.msg
    assert "OPTIONS" in warning.hint


def assert_warns_of_one_store(one, other):
    """Check that two aliases without a LOCATION that share one store are a warning."""
    (warning,) = warnings_for(default=one, other=other, apart=alias("apart"), named=alias("apart"))
    assert warning.id == "wheelcache.W004"
    for part in ("'default' and 'other'", "no LOCATION", "share one store"):
        assert part in warning.msg
    assert "LOCATION" in warning.hint
