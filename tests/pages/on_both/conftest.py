"""A site of each framework behind an HTTP cache."""

import pytest
from django.urls import clear_script_prefix

from tests.django_backend.conftest import *  # noqa: F403
from tests.django_backend.conftest import BACKEND
from tests.pages.conftest import site  # noqa: F401
from tests.pages.on_both.sites import MIDDLEWARE, SITES, Urls, numbers
from tests.pages.site import maker


@pytest.fixture
def site_settings(settings):
    settings.ROOT_URLCONF = Urls()
    settings.MIDDLEWARE = MIDDLEWARE
    settings.LANGUAGES = [("en", "English"), ("de", "Deutsch")]
    settings.LANGUAGE_CODE = "en"
    settings.USE_I18N = True
    settings.ALLOWED_HOSTS = [".example.com", "public.example", "testserver"]
    settings.SESSION_ENGINE = "django.contrib.sessions.backends.signed_cookies"
    settings.MESSAGE_STORAGE = "django.contrib.messages.storage.cookie.CookieStorage"
    settings.CACHES = {"default": {"BACKEND": BACKEND, "LOCATION": f"pages {next(numbers)}"}}
    yield settings
    clear_script_prefix()


@pytest.fixture(params=SITES)
def make_site(request, site_settings, clock, closed):
    return maker(SITES[request.param], clock, closed)
