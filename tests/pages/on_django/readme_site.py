"""A worker of a site with the settings of README, whose pages Django caches.

Its arguments are the directory of the files that the workers share, and how pages are cached. It reads numbers of pages
from lines, visits each page, and writes a line: how often a view or a fragment has run by then.
"""

import asyncio
import sys

import django
from asgiref.testing import ApplicationCommunicator
from django.conf import settings
from django.core.handlers.asgi import ASGIHandler
from django.http import HttpResponse
from django.template import Context, Template
from django.test import Client
from django.urls import path
from django.utils.cache import patch_vary_headers
from django.views.decorators.cache import cache_page

from tests.snippets import ROOT, snippets
from tests.waiting import PATIENCE

_, folder, way = sys.argv

readme = {"INSTALLED_APPS": []}
exec(next(code for code in snippets(ROOT / "README.md").values() if code.startswith("# mysite/settings.py")), readme)
# Not in the directories of the user.
readme["CACHES"]["default"] |= {
    "LOCATION": f"{folder}/entries",
    "OPTIONS": {"FIGURES_DIR": folder, "TRANSACTIONS": way == "cache_page in a transaction"},
}

around = ["django.middleware.cache.UpdateCacheMiddleware"], ["django.middleware.cache.FetchFromCacheMiddleware"]
before, after = around if way.startswith("middleware") else ([], [])
settings.configure(
    ALLOWED_HOSTS=["testserver"],
    CACHES=readme["CACHES"],
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": ":memory:",
            "ATOMIC_REQUESTS": way == "cache_page in a transaction",
        }
    },
    INSTALLED_APPS=readme["INSTALLED_APPS"],
    MIDDLEWARE=[*before, "django.middleware.locale.LocaleMiddleware", *after],
    ROOT_URLCONF=__name__,
    TEMPLATES=[{"BACKEND": "django.template.backends.django.DjangoTemplates"}],
)

runs = 0


def counted():
    global runs
    runs += 1
    return runs


def page(request, number):
    response = HttpResponse(f"page {number}: {counted()}")
    patch_vary_headers(response, ["Accept-Encoding"])
    return response


def fragment(request, number):
    template = Template("{% load cache %}{% cache 300 part number %}page {{ number }}: {{ counted }}{% endcache %}")
    return HttpResponse(template.render(Context({"number": number, "counted": counted})))


view = fragment if way == "fragment" else page if before else cache_page(300)(page)
urlpatterns = [path("page/<int:number>", view)]


async def visit_async(place):
    """Visit a page as a server does, in the context of a request of its own."""
    scope = {"type": "http", "method": "GET", "path": place, "query_string": b"", "headers": [(b"host", b"testserver")]}
    server = ApplicationCommunicator(ASGIHandler(), scope)
    await server.send_input({"type": "http.request", "body": b""})
    await server.receive_output(PATIENCE)
    return (await server.receive_output(PATIENCE))["body"]


def visit(place):
    return asyncio.run(visit_async(place)) if way == "middleware under ASGI" else Client().get(place).content


django.setup()
for number in map(int, sys.stdin):
    assert visit(f"/page/{number}").startswith(b"page %d: " % number)
    print(runs, flush=True)
