"""A Django site behind an HTTP cache, on each of its servers' interfaces."""

import pytest

from tests.django_backend.conftest import *  # noqa: F403
from tests.pages.on_both.conftest import *  # noqa: F403
from tests.pages.on_both.sites import DJANGO
from tests.pages.site import maker


@pytest.fixture(params=DJANGO)
def make_site(request, site_settings, clock, closed):
    return maker(DJANGO[request.param], clock, closed)
