"""A Django site whose workers share a HostCache, which has its sessions, pages, fragments and values.

Environment: ``HOST_FOLDER``, with the entries, and the file ``runs``: a byte for each computation.
"""

import os
from pathlib import Path

import django
from django.conf import settings

from tests.host_cache.servers.runs import note_run

settings.configure(
    ALLOWED_HOSTS=["*"],
    CACHES={
        "default": {
            "BACKEND": "wheelcache.django_backend.HostCache",
            "LOCATION": str(Path(os.environ["HOST_FOLDER"], "cache")),
            "OPTIONS": {
                "FIGURES_DIR": None,
                "FILL_WAIT": {"views.decorators.cache.": 30, "template.cache.": 30},
            },
        }
    },
    INSTALLED_APPS=["django.contrib.sessions", "wheelcache.django_backend"],
    LOGGING_CONFIG=None,
    MIDDLEWARE=["django.contrib.sessions.middleware.SessionMiddleware"],
    ROOT_URLCONF=__name__,
    SECRET_KEY="not secret",
    SESSION_ENGINE="django.contrib.sessions.backends.cache",
    TEMPLATES=[{"BACKEND": "django.template.backends.django.DjangoTemplates"}],
)
django.setup()

from django.core.asgi import get_asgi_application  # noqa: E402
from django.core.cache import cache  # noqa: E402
from django.core.wsgi import get_wsgi_application  # noqa: E402
from django.http import HttpResponse, JsonResponse  # noqa: E402
from django.template import Context, Template  # noqa: E402
from django.urls import path  # noqa: E402
from django.views.decorators.cache import cache_page  # noqa: E402

FRAGMENT = Template("{% load cache %}{% cache 600 fragment number %}{{ compute }}{% endcache %}")


def count(request):
    request.session["count"] = request.session.get("count", 0) + 1
    return JsonResponse({"count": request.session["count"], "pid": os.getpid()})


def fragment(request, number):
    compute = lambda: note_run(number)  # noqa: E731
    return HttpResponse(FRAGMENT.render(Context({"number": number, "compute": compute})))


urlpatterns = [
    path("count", count),
    path("page/<int:number>", cache_page(600)(lambda request, number: HttpResponse(note_run(number)))),
    path("fragment/<int:number>", fragment),
    path(
        "value/<int:number>",
        lambda request, number: HttpResponse(cache.get_or_set(f"value:{number}", lambda: note_run(number))),
    ),
]
application = get_wsgi_application()
asgi_application = get_asgi_application()
