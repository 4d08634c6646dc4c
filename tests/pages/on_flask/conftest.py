"""A Flask app behind an HTTP cache."""

import pytest

from tests.flask_backend.conftest import *  # noqa: F403
from tests.pages.on_both.sites import Flask


@pytest.fixture
def make_site(clock, closed):
    def make(**options):
        site = Flask(clock, **options)
        closed(site.cache.cache)
        return site

    return make


@pytest.fixture
def site(make_site):
    return make_site()
