"""Sites with caches for memoized functions."""

import pytest
from django.test import override_settings

from tests.django_backend.memoize.sites import locmem, tiered, wheel
from tests.guests import needs


@pytest.fixture
def site():
    """Settings with these caches."""
    with override_settings(CACHES={"default": wheel(), "other": wheel(TIMEOUT=10, VERSION=2, KEY_PREFIX="p")}):
        yield


@pytest.fixture(params=["memory", pytest.param("tiered", marks=needs("near_cache")), "locmem"])
def any_site(request):
    """Settings whose default cache is of each kind."""
    kinds = {"memory": wheel, "tiered": tiered, "locmem": locmem}
    with override_settings(CACHES={"default": kinds[request.param](), "second": locmem()}):
        yield request.param
