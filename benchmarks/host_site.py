"""A site for ``host_rows`` that counts how often its view runs.

Environment: ``HOST_SITE``, as JSON: ``alias`` of CACHES, ``way`` (``cache_page``, ``fragment`` or ``http_cache``), and
``folder``, whose file ``runs`` has a byte for each run and whose file ``workers`` has a byte for each worker.
"""

import json
import os
from pathlib import Path

import django
from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, HttpResponse
from django.template import Context, Template
from django.urls import path
from django.views.decorators.cache import cache_page

from wheelcache.pages.django_pages import page_cache

GIVEN = json.loads(os.environ["HOST_SITE"])
FOLDER = Path(GIVEN["folder"])
BY_HTTP = GIVEN["way"] == "http_cache"

settings.configure(
    ALLOWED_HOSTS=["*"],
    CACHES={"default": GIVEN["alias"]},
    MIDDLEWARE=["wheelcache.django_backend.PageMiddleware"] if BY_HTTP else [],
    ROOT_URLCONF=__name__,
    SECRET_KEY="benchmark",
    TEMPLATES=[{"BACKEND": "django.template.backends.django.DjangoTemplates"}],
)
django.setup()

FRAGMENT = Template("{% load cache %}{% cache 600 page number %}{{ run }}{% endcache %}")


def note(name: str) -> None:
    with (FOLDER / name).open("ab", buffering=0) as file:
        file.write(b"x")


def run(number: int) -> str:
    note("runs")
    return f"page {number}"


def page(request: HttpRequest, number: int) -> HttpResponse:
    if GIVEN["way"] == "fragment":
        return HttpResponse(FRAGMENT.render(Context({"number": number, "run": lambda: run(number)})))
    return HttpResponse(run(number))


urlpatterns = [path("<int:number>", page if GIVEN["way"] == "fragment" else cache_page(600)(page))]
site = get_wsgi_application()
application = page_cache(figures_dir=None).wsgi(site) if BY_HTTP else site


def post_worker_init(worker: object) -> None:
    """Count the workers that start. gunicorn calls this."""
    note("workers")
