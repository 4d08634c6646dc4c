"""The settings of ``why_site``. Environment: WHY_SITE is "wsgi", "asgi" or "unwrapped"; WHY_FIGURES is a directory."""

import os

KIND = os.environ.get("WHY_SITE", "wsgi")

ALLOWED_HOSTS = [".example.com", "127.0.0.1"]
CACHES = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}
INSTALLED_APPS = ["wheelcache.django_backend"]
LOGGING_CONFIG = None
MIDDLEWARE = [
    "wheelcache.django_backend.PageMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "tests.pages.on_django.why_site.log_access",
]
ROOT_URLCONF = "tests.pages.on_django.why_site"
SECRET_KEY = "not secret"
SESSION_ENGINE = "django.contrib.sessions.backends.signed_cookies"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "OPTIONS": {
            "context_processors": ["django.template.context_processors.request"],
            "loaders": [
                ("django.template.loaders.locmem.Loader", {"page.html": "<p>\n{{ request.COOKIES.theme }}</p>"}),
                "django.template.loaders.app_directories.Loader",
            ],
        },
    }
]
WSGI_APPLICATION = f"tests.pages.on_django.why_site.{'application' if KIND == 'wsgi' else 'unwrapped'}"
if KIND == "asgi":
    ASGI_APPLICATION = "tests.pages.on_django.why_site.asgi_application"
