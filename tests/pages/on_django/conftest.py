"""A Django site behind an HTTP cache."""

import pytest
from django.urls import clear_script_prefix
from django.utils import timezone, translation

from tests.django_backend.conftest import *  # noqa: F403
from tests.django_backend.conftest import BACKEND
from tests.pages.on_django.pages_site import numbers
from tests.pages.on_django.sites import MIDDLEWARE, SITES


@pytest.fixture
def site_settings(settings, tmp_path):
    settings.ROOT_URLCONF = "tests.pages.on_django.pages_site"
    settings.MIDDLEWARE = MIDDLEWARE
    settings.LANGUAGES = [("en", "English"), ("de", "Deutsch")]
    settings.LANGUAGE_CODE = "en"
    settings.USE_I18N = True
    settings.ALLOWED_HOSTS = ["example.com", "testserver"]
    settings.SESSION_ENGINE = "django.contrib.sessions.backends.signed_cookies"
    settings.MESSAGE_STORAGE = "django.contrib.messages.storage.cookie.CookieStorage"
    settings.CACHES = {"default": {"BACKEND": BACKEND, "LOCATION": f"pages {next(numbers)}"}}
    yield settings
    translation.deactivate()
    timezone.deactivate()
    clear_script_prefix()


@pytest.fixture(params=SITES)
def make_site(request, site_settings, clock, closed):
    def make(**options):
        site = SITES[request.param](clock, **options)
        closed(site.cache.cache)
        return site

    return make


@pytest.fixture
def site(make_site):
    return make_site()
