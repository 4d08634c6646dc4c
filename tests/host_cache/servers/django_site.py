"""A Django site whose workers share a HostCache, which has its pages and values.

Environment: ``HOST_FOLDER``, with the entries, and the file ``runs``: a byte for each computation.
"""

import os
from pathlib import Path

import django
from django.conf import settings

from tests.host_cache.servers.runs import computed

settings.configure(
    ALLOWED_HOSTS=["*"],
    CACHES={
        "default": {
            "BACKEND": "wheelcache.django_backend.HostCache",
            "LOCATION": str(Path(os.environ["HOST_FOLDER"], "cache")),
            "OPTIONS": {"FIGURES_DIR": None, "FILL_WAIT": {"pages": 30}},
        }
    },
    INSTALLED_APPS=["wheelcache.django_backend"],
    LOGGING_CONFIG=None,
    ROOT_URLCONF=__name__,
    SECRET_KEY="not secret",
)
django.setup()

from django.core.asgi import get_asgi_application  # noqa: E402
from django.core.cache import cache  # noqa: E402
from django.core.wsgi import get_wsgi_application  # noqa: E402
from django.http import JsonResponse  # noqa: E402
from django.urls import path  # noqa: E402
from django.views.decorators.cache import cache_page  # noqa: E402

urlpatterns = [
    path("page/<name>", cache_page(600)(lambda request, name: JsonResponse(computed(name)))),
    path("value/<name>", lambda request, name: JsonResponse(cache.get_or_set(name, lambda: computed(name)))),
]
application = get_wsgi_application()
asgi_application = get_asgi_application()
