"""Requests of a site whose settings only name a cache: pages and fragments are waited for by default."""

from collections import Counter

import pytest
from django.core.cache import caches
from django.http import HttpResponse
from django.template import Context, Template
from django.test import Client, override_settings
from django.urls import path
from django.views.decorators.cache import cache_page

from tests.caches import is_leased
from tests.guests import needs
from tests.waiting import PATIENCE, until_waiting

CACHES = {
    "WheelCache": {"LOCATION": "defaults"},
    "HostCache": {"LOCATION": "defaults"},
    "TieredCache": {"LOCATION": "defaults", "OPTIONS": {"L2": "behind"}},
}
GUESTS = {"HostCache": [needs("host_cache")], "TieredCache": [needs("near_cache")]}

runs = Counter()


def compute(name):
    runs[name] += 1
    if runs[name] == 1:
        until_waiting()
    return name


@cache_page(60)
def page(request):
    return HttpResponse(compute("page"))


def fragment(request):
    template = Template("{% load cache %}{% cache 60 name %}{{ value }}{% endcache %}")
    return HttpResponse(template.render(Context({"value": lambda: compute("fragment")})))


urlpatterns = [path("page", page), path("fragment", fragment)]


@pytest.fixture(params=[pytest.param(name, marks=GUESTS.get(name, ())) for name in CACHES])
def site(request, tmp_path):
    setting = {"BACKEND": f"wheelcache.django_backend.{request.param}", **CACHES[request.param]}
    if request.param == "HostCache":
        setting["LOCATION"] = str(tmp_path / "host")
    behind = {"BACKEND": "django.core.cache.backends.locmem.LocMemCache", "LOCATION": str(tmp_path)}
    runs.clear()
    with override_settings(CACHES={"default": setting, "behind": behind}, ROOT_URLCONF=__name__):
        caches["default"].clear()
        yield caches["default"]


@pytest.mark.parametrize(("name", "most"), [("page", 2), ("fragment", 1)])
def test_of_two_visitors_one_waits_for_a_page_or_a_fragment(site, in_thread, name, most):
    visits = [in_thread(lambda: Client().get(f"/{name}").content.decode()) for _ in range(2)]
    assert [visit.result(PATIENCE) for visit in visits] == [name] * 2
    assert runs[name] <= most
    assert Client().get(f"/{name}").content.decode() == name
    assert runs[name] <= most


def test_no_caller_waits_for_another_key(site):
    for key, waits in (
        ("views.decorators.cache.cache_header..en-us.UTC", True),
        ("template.cache.name.1", True),
        ("maintenance", False),
    ):
        assert site.get(key) is None
        assert is_leased(site.store.cache, f":1:{key}") is waits
