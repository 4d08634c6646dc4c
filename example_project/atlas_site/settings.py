"""Settings of the example site, for a developer's own machine."""

import os
from pathlib import Path

BASE_DIR = Path(__file__).resolve().parent.parent

SECRET_KEY = "for-development-only-and-known-to-everyone-who-reads-this-repository"
DEBUG = True
ALLOWED_HOSTS = ["localhost", "127.0.0.1", "testserver"]

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.humanize",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "wheelcache.django_backend",
    "atlas",
]

# The cache of the machine: all workers share its entries, as those of demo do.
CACHES = {
    "default": {
        "BACKEND": "wheelcache.django_backend.HostCache",
        "LOCATION": "atlas",
        "OPTIONS": {"MAX_ENTRIES": int(os.environ.get("ATLAS_MAX_ENTRIES", "5000"))},
    },
    # A cache of their own, so that an operator who empties the other cache on the dashboard stays logged in.
    "sessions": {
        "BACKEND": "wheelcache.django_backend.HostCache",
        "LOCATION": "sessions",
        "OPTIONS": {"MAX_ENTRIES": 1000},
    },
}

# A folder for the entries and figures of one run, which demo and the tests keep apart from other runs.
if "ATLAS_RUN_DIR" in os.environ:
    for alias, each in CACHES.items():
        each["LOCATION"] = os.path.join(os.environ["ATLAS_RUN_DIR"], alias)
        each["OPTIONS"]["FIGURES_DIR"] = os.path.join(os.environ["ATLAS_RUN_DIR"], "figures")

# Seconds that a page is kept. ``demo`` has fewer seconds and fewer entries, so that some entries leave.
PAGE_SECONDS = int(os.environ.get("ATLAS_PAGE_SECONDS", "300"))

# Sessions are in the cache only, so the app that would make a table for them is not installed.
SESSION_ENGINE = "django.contrib.sessions.backends.cache"
SESSION_CACHE_ALIAS = "sessions"

# The login for the dashboard of the cache, for which make run creates a user.
LOGIN_URL = "login"
LOGIN_REDIRECT_URL = "wheelcache:dashboard"

# The country pages are cached by their view, inside all middleware. So the additions of the middleware, the line on how
# the page was served and the visitor's session, are not cached and shared.
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.middleware.common.CommonMiddleware",
    "atlas.middleware.served",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "atlas.middleware.recent_countries",
]

ROOT_URLCONF = "atlas_site.urls"
WSGI_APPLICATION = "atlas_site.wsgi.application"
ASGI_APPLICATION = "atlas_site.asgi.application"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]

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

# wheelcache.stats logs a line per minute for every cache that is in use.
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "{asctime} {name} {message}", "style": "{"}},
    "handlers": {"lines": {"class": "logging.StreamHandler", "formatter": "line"}},
    "loggers": {"wheelcache": {"handlers": ["lines"], "level": "INFO"}},
}
