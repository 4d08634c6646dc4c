"""A Django site behind an HTTP cache, on each of its servers' interfaces."""

import pytest

from tests.django_backend.conftest import *  # noqa: F403
from tests.pages.on_both.conftest import *  # noqa: F403
from tests.pages.on_both.sites import DJANGO


@pytest.fixture(params=DJANGO)
def make_site(request, site_settings, clock, closed):
    def make(**options):
        site = DJANGO[request.param](clock, **options)
        closed(site.cache.cache)
        return site

    return make


@pytest.fixture
def site(make_site):
    return make_site()
