"""A site for gunicorn that counts in a session. Environment: ``SESSION_SITE``, its backend and engine as JSON."""

import json
import os

import django
from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.http import JsonResponse
from django.urls import path

GIVEN = json.loads(os.environ["SESSION_SITE"])

settings.configure(
    ALLOWED_HOSTS=["*"],
    CACHES={
        "default": {
            "BACKEND": f"wheelcache.django_backend.{GIVEN['backend']}",
            "LOCATION": GIVEN["location"],
            "OPTIONS": {"FIGURES_DIR": None},
        }
    },
    DATABASES={
        "default": {"ENGINE": "django.db.backends.sqlite3", "NAME": GIVEN["database"], "OPTIONS": {"timeout": 20}}
    },
    INSTALLED_APPS=["django.contrib.sessions", "wheelcache.django_backend"],
    MIDDLEWARE=["django.contrib.sessions.middleware.SessionMiddleware"],
    ROOT_URLCONF=__name__,
    SECRET_KEY="not secret",
    SESSION_ENGINE=f"django.contrib.sessions.backends.{GIVEN['engine']}",
)


def count(request):
    request.session["count"] = request.session.get("count", 0) + 1
    return JsonResponse({"count": request.session["count"], "pid": os.getpid()})


urlpatterns = [path("", count)]

if __name__ == "__main__":
    django.setup()
    from django.core.management import call_command

    call_command("migrate", verbosity=0)
else:
    application = get_wsgi_application()
