"""A Django site whose pages are stored or not, for reasons that ``manage.py wheelcache why`` explains."""

import os
from pathlib import Path

from django.core.asgi import get_asgi_application
from django.core.wsgi import get_wsgi_application
from django.http import HttpResponse
from django.shortcuts import render
from django.urls import path
from django.views.decorators.cache import cache_control

from wheelcache.pages.django_pages import page_cache

for_a_minute = cache_control(max_age=60)


def log_access(get_response):
    def middleware(request):
        if "logged" in request.path:
            request.headers.get("User-Agent")
        return get_response(request)

    return middleware


@for_a_minute
def address(request):
    return HttpResponse(request.META["REMOTE_ADDR"])


@for_a_minute
def themed(request):
    return render(request, "page.html")


@for_a_minute
def plain(request):
    return HttpResponse(request.GET.get("page", "1"))


@for_a_minute
def visitor(request):
    return HttpResponse(request.session.get("name", "nobody"))


@for_a_minute
def counts(request):
    request.session["visits"] = request.session.get("visits", 0) + 1
    response = HttpResponse("counted")
    response.set_cookie("seen", "1")
    return response


@for_a_minute
def hidden(request):
    """A read that no companion can notice."""
    return HttpResponse(f"<p>Hello</p>\n<p>{dict.get(vars(request)['META'], 'HTTP_COOKIE', 'you')}</p>")


def without_lifetime(request):
    return HttpResponse("now")


def broken(request):
    raise ZeroDivisionError("in a view")


urlpatterns = [
    path("address", address),
    path("themed", themed),
    path("plain", plain),
    path("logged", plain),
    path("visitor", visitor),
    path("counts", counts),
    path("hidden", hidden),
    path("now", without_lifetime),
    path("broken", broken),
]

pages = page_cache(grace=30, figures_dir=Path(os.environ["WHY_FIGURES"]))
unwrapped = get_wsgi_application()
application = pages.wsgi(unwrapped)
asgi_application = pages.asgi(get_asgi_application())
