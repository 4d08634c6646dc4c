"""Settings of the example site. They are for a developer's own machine."""

import os
from pathlib import Path

BASE_DIR = Path(__file__).resolve().parent.parent

SECRET_KEY = "for-development-only-and-known-to-everyone-who-reads-this-repository"
DEBUG = True
ALLOWED_HOSTS = ["localhost", "127.0.0.1", "testserver"]

INSTALLED_APPS = [
    "django.contrib.humanize",
    "django.contrib.staticfiles",
    "wheelcache.django_backend",
    "atlas",
]

CACHES = {
    "default": {
        "BACKEND": "wheelcache.django_backend.WheelCache",
        "LOCATION": "atlas",
        "TIMEOUT": 300,
        "OPTIONS": {
            "MAX_ENTRIES": 5000,
            # Of all who ask for a page that expired, or for a part of one, one computes it, and the others wait for it,
            # at most so many seconds. For nothing else: a session that is missing is not filled by another request.
            "FILL_WAIT": {"views.decorators.cache.": 5, "template.cache.": 5},
        },
    },
}

# Sessions live in the cache alone, so the app that would make a table for them is not installed.
SESSION_ENGINE = "django.contrib.sessions.backends.cache"

# The country pages are cached by a decorator on their view, inside all of these. So what these add, the line on how
# the page was served and the visitor's session, is not part of what is cached and shared.
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.middleware.common.CommonMiddleware",
    "atlas.middleware.served",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "atlas.middleware.recent_countries",
]

ROOT_URLCONF = "atlas_site.urls"
WSGI_APPLICATION = "atlas_site.wsgi.application"
ASGI_APPLICATION = "atlas_site.asgi.application"

TEMPLATES = [{"BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True}]

DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.environ.get("ATLAS_DATABASE", BASE_DIR / "atlas.sqlite3"),
    },
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

LANGUAGE_CODE = "en"
TIME_ZONE = "UTC"
USE_TZ = True
STATIC_URL = "static/"

# wheelcache.stats has a line a minute on every cache that is in use.
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "{asctime} {name} {message}", "style": "{"}},
    "handlers": {"lines": {"class": "logging.StreamHandler", "formatter": "line"}},
    "loggers": {"wheelcache": {"handlers": ["lines"], "level": "INFO"}},
}
