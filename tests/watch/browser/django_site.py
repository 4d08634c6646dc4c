"""A Django site with users that log in, for a browser. ``python -m`` makes its database.

Environment: ``BROWSER_TEST_DIRECTORY``, where that and the figures are.
"""

import os
import random
import time
from contextlib import suppress
from pathlib import Path

import django
from django.conf import settings

from tests.engines import engine
from tests.watch.often import publish_often

DIRECTORY = Path(os.environ["BROWSER_TEST_DIRECTORY"])
LOGIN = """
<title>Log in</title>
<form method="post">{% csrf_token %}{{ form }}<input type="hidden" name="next" value="{{ next }}"><button>Go</button>
</form>
"""
HOSTILE = "<img src=x onerror=alert(1)>"
OPTIONS = {"JITTER": 0, "MAX_ENTRIES": 400, "FIGURES_DIR": DIRECTORY / "figures"}

settings.configure(
    ALLOWED_HOSTS=["127.0.0.1"],
    CACHES={
        "default": {
            "BACKEND": "wheelcache.django_backend.WheelCache",
            "LOCATION": "atlas",
            "OPTIONS": {**OPTIONS, "MAX_BYTES": 4_000_000},
        },
        "hostile": {"BACKEND": "wheelcache.django_backend.WheelCache", "LOCATION": HOSTILE, "OPTIONS": OPTIONS},
    },
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": DIRECTORY / "users.sqlite3"}},
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    INSTALLED_APPS=[
        "django.contrib.auth",
        "django.contrib.contenttypes",
        "django.contrib.sessions",
        "wheelcache.django_backend",
    ],
    LOGIN_URL="/login",
    MIDDLEWARE=[
        "django.middleware.security.SecurityMiddleware",
        "django.contrib.sessions.middleware.SessionMiddleware",
        "django.middleware.common.CommonMiddleware",
        "django.middleware.csrf.CsrfViewMiddleware",
        "django.contrib.auth.middleware.AuthenticationMiddleware",
        "django.middleware.clickjacking.XFrameOptionsMiddleware",
    ],
    PASSWORD_HASHERS=["django.contrib.auth.hashers.MD5PasswordHasher"],
    ROOT_URLCONF=__name__,
    SECRET_KEY="not secret",
    TEMPLATES=[
        {
            "BACKEND": "django.template.backends.django.DjangoTemplates",
            "OPTIONS": {"loaders": [("django.template.loaders.locmem.Loader", {"login.html": LOGIN})]},
        }
    ],
)
django.setup()

# These imports read the settings.
from django.contrib.auth.views import LoginView  # noqa: E402
from django.core.cache import cache, caches  # noqa: E402
from django.core.wsgi import get_wsgi_application  # noqa: E402
from django.http import JsonResponse  # noqa: E402
from django.urls import include, path  # noqa: E402

publish_often()


def load():
    time.sleep(random.uniform(0.0005, 0.004))
    return ["a city", random.random()]


def visit(request):
    """Look up ten keys, a few of them often, and return the number of this process."""
    for _ in range(10):
        cache.get_or_set(f"city {int(random.paretovariate(0.6))}"[:12], load, 120)
    return state(request)


def fail(request):
    with suppress(ZeroDivisionError):
        cache.get_or_set("failing", lambda: 1 / 0)
    return state(request)


def state(request):
    """Return the number of this process, and the number of its entries."""
    return JsonResponse({"pid": os.getpid(), "entries": len(engine(caches["default"]))})


urlpatterns = [
    path("login", LoginView.as_view(template_name="login.html")),
    path("visit", visit),
    path("fail", fail),
    path("state", state),
    path("wheelcache/", include("wheelcache.watch.urls")),
]

application = get_wsgi_application()


if __name__ == "__main__":
    from django.contrib.auth.models import Permission, User
    from django.core.management import call_command

    call_command("migrate", verbosity=0)
    users = {"inspector": ["inspect", "operate"], "operator": ["operate"], "viewer": ["view_figures"], "visitor": []}
    for name, granted in users.items():
        user = User.objects.create_user(name, password="secret")
        user.user_permissions.set(Permission.objects.filter(codename__in=granted))
