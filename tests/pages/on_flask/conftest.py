"""A Flask app behind an HTTP cache."""

import pytest

from tests.flask_backend.conftest import *  # noqa: F403
from tests.pages.conftest import site  # noqa: F401
from tests.pages.on_both.sites import Flask
from tests.pages.site import maker


@pytest.fixture
def make_site(clock, closed):
    return maker(Flask, clock, closed)
