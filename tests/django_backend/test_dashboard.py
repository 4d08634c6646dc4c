"""The dashboard in Django: which users get in, and other middleware. The rest is in ``tests/backends``."""

import asyncio
import json
import logging
import re
from pathlib import Path

import pytest
from django.core.cache import cache, caches
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpResponse
from django.test import AsyncClient, Client, override_settings
from django.test.utils import override_script_prefix
from django.urls import include, path, reverse
from django.utils.deprecation import MiddlewareMixin

from tests.django_backend.conftest import BACKEND
from tests.engines import engine
from wheelcache.observability.dashboard.dashboard import ASSETS, HEADERS

ROOT = Path(__file__).parents[2]
CONFIG = re.compile(r'id="config">(.*?)</script>', re.DOTALL)

PAGE = "/wheelcache/"
READS = [PAGE, *(f"{PAGE}{each}" for each in ("figures.json", *ASSETS))]
ACTIONS = [f"{PAGE}clear", f"{PAGE}reset"]
ALL = [*READS, *ACTIONS]

urlpatterns = [
    path("wheelcache/", include("wheelcache.django_backend.urls")),
    path("without-slash", include(("wheelcache.django_backend.urls", "without"), namespace="without")),
    path("page", lambda request: HttpResponse("a page of the site")),
]


class Users(MiddlewareMixin):
    """In the place of sessions, which the browser's tests have: the header X-User names the user that is logged in."""

    def process_request(self, request):
        from django.contrib.auth.models import AnonymousUser, User

        who = request.headers.get("X-User", "")
        request.user = (
            User(username=who, is_staff="staff" in who, is_superuser="super" in who, is_active="inactive" not in who)
            if who
            else AnonymousUser()
        )


def site_settings(tmp_path, *before, location="default", **more):
    options = {"JITTER": 0, "LOG_INTERVAL": None, "FIGURES_DIR": tmp_path / "figures"}
    return override_settings(
        **{
            "CACHES": {
                "default": {"BACKEND": BACKEND, "LOCATION": location, "OPTIONS": options},
                "again": {"BACKEND": BACKEND, "LOCATION": location, "OPTIONS": options, "KEY_PREFIX": "again"},
                "unused": {"BACKEND": BACKEND, "LOCATION": "unused", "OPTIONS": options},
                "elsewhere": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache", "LOCATION": str(tmp_path)},
                "tiered": {
                    "BACKEND": "wheelcache.django_backend.TieredCache",
                    "LOCATION": "tiered",
                    "OPTIONS": {**options, "L2": "elsewhere"},
                },
            },
            "INSTALLED_APPS": [
                "django.contrib.auth",
                "django.contrib.contenttypes",
                "django.contrib.sessions",
                "wheelcache.django_backend",
            ],
            "LOGIN_URL": "/login/here",
            "MIDDLEWARE": [*before, f"{__name__}.Users"],
            "ROOT_URLCONF": __name__,
            **more,
        }
    )


@pytest.fixture(autouse=True)
def _site(tmp_path):
    with site_settings(tmp_path):
        yield


def client(who="", **headers):
    return Client(enforce_csrf_checks=True, headers={**({"X-User": who} if who else {}), **headers})


def config_of(page):
    return json.loads(CONFIG.search(page.content.decode())[1])


def token_of(browser):
    """Open the page, as every user of its buttons does."""
    config = config_of(browser.get(PAGE))
    return {config["token_header"]: config["token"]}


def press(browser, url, data=None, **headers):
    return browser.post(url, data or {}, headers={**token_of(browser), **headers})


def has_the_headers(response):
    return all(response.headers.get(name) == value for name, value in HEADERS.items())


# Which users get in.


def test_who_is_not_logged_in_is_sent_to_the_login_from_the_page():
    response = client().get(f"{PAGE}?a=b")
    assert response.status_code == 302
    assert response.headers["Location"] == "/login/here?next=/wheelcache/%3Fa%3Db"
    assert has_the_headers(response)


OTHERS = ["somebody", "inactive staff", "inactive", "super"]


@pytest.mark.parametrize(("who", "status"), [("", 401), *((who, 403) for who in OTHERS)])
def test_all_but_active_staff_are_refused_in_json_and_never_redirected(who, status):
    for url in ALL if who else ALL[1:]:
        for method in ("get", "head", "post", "put", "delete", "options"):
            response = getattr(client(who), method)(url)
            assert response.status_code == status
            assert b"config" not in response.content
            if url != PAGE:
                assert has_the_headers(response)
                if method != "head":
                    assert response.json() == {"error": "Only staff may see this" if who else "You have to log in"}


@pytest.mark.parametrize("who", ["", *OTHERS])
def test_a_token_is_no_way_in(who):
    cache.set("k", "v")
    staff = client("staff")
    token = token_of(staff)
    other = client(who)
    other.cookies = staff.cookies
    for url in ACTIONS:
        assert other.post(url, {"cache": "default"}, headers=token).status_code in (401, 403)
    assert cache.get("k") == "v"
    assert client("staff").get(READS[1]).json()["since"] is None


def test_without_authentication_it_says_what_to_install(settings):
    settings.MIDDLEWARE = []
    for url in ALL:
        with pytest.raises(ImproperlyConfigured, match=r"django\.contrib\.auth\.middleware\.Authentication"):
            client("staff").get(url)


def test_a_site_that_asks_everybody_to_log_in_changes_nothing(settings):
    settings.MIDDLEWARE = [f"{__name__}.Users", "django.contrib.auth.middleware.LoginRequiredMiddleware"]
    assert client().get("/page").status_code == 302
    assert client().get(READS[1]).status_code == 401
    assert client("staff").get(READS[1]).status_code == 200


# Forged requests.


def test_the_token_comes_in_the_header_of_the_settings(settings):
    settings.CSRF_HEADER_NAME = "HTTP_X_MY_TOKEN"
    staff = client("staff")
    assert [name.lower() for name in token_of(staff)] == ["x-my-token"]
    assert press(staff, ACTIONS[1]).status_code == 200


# What is shown and done.


def test_the_title_is_the_address_of_the_site(settings):
    settings.ALLOWED_HOSTS = ["example.org"]
    staff = client("staff", host="example.org:8000")
    assert staff.get(READS[1]).json()["title"] == "example.org:8000"
    with override_script_prefix("/shop/"):
        assert staff.get(READS[1]).json()["title"] == "example.org:8000/shop"
        assert "<title>Caches of example.org:8000/shop" in staff.get(PAGE).text


def test_every_cache_of_the_settings_is_shown_also_those_that_were_not_used():
    assert reverse("wheelcache:dashboard") == PAGE
    document = client("staff").get(READS[1]).json()
    assert [each["name"] for each in document["caches"]] == ["default", "tiered", "unused"]
    # Two aliases of one store count once.
    cache.set("k", "v")
    cache.get("k")
    caches["again"].get("k")
    total = client("staff").get(READS[1]).json()["caches"][0]["total"]
    assert (total["hits"], total["misses"], total["entries"]) == (1, 1, 1)


def test_clearing_copies_leaves_what_they_are_copies_of():
    caches["tiered"].set("k", "v")
    assert caches["tiered"].get("k") == "v"
    assert press(client("staff"), ACTIONS[0], {"cache": "tiered"}).status_code == 200
    assert len(engine(caches["tiered"])) == 0
    assert caches["elsewhere"].get("k") == "v"


def test_a_name_in_the_log_is_on_one_line(caplog, tmp_path):
    caplog.set_level(logging.INFO, "wheelcache")
    with site_settings(tmp_path, location="a\nb"):
        assert press(client("staff\nroot"), ACTIONS[0], {"cache": "a\nb"}).status_code == 200
    assert caplog.messages == [r"'staff\nroot' cleared the cache 'a\nb' from the dashboard"]


def test_the_page_says_so_where_its_address_has_no_slash():
    with pytest.raises(ImproperlyConfigured, match="has to end with a slash"):
        client("staff").get("/without-slash")


# In company of other middleware, under ASGI, and in several processes.


def test_the_cache_middleware_never_keeps_it(settings):
    update, fetch = (f"django.middleware.cache.{each}CacheMiddleware" for each in ("Update", "FetchFrom"))
    settings.MIDDLEWARE = [update, f"{__name__}.Users", fetch]
    staff = client("staff")
    for url in READS:
        assert staff.get(url).status_code == 200
        assert client().get(url).status_code in (302, 401)
        assert client("somebody").get(url).status_code == 403
    assert len(engine(caches["default"])) == 0
    first, second = (staff.get(READS[1]).json()["at"] for _ in range(2))
    assert second > first
    # It does keep others.
    staff.get("/page")
    assert len(engine(caches["default"])) > 0


def test_it_works_under_asgi():
    async def visit():
        staff, who = AsyncClient(enforce_csrf_checks=True), {"X-User": "staff"}
        page = await staff.get(PAGE, headers=who)
        config = config_of(page)
        await cache.aset("k", "v")
        token = {config["token_header"]: config["token"]}
        figures = await staff.get(READS[1], headers=who)
        forged = await staff.post(ACTIONS[0], {"cache": "default"}, headers=who)
        assert (forged.status_code, await cache.aget("k")) == (403, "v")
        cleared = await staff.post(ACTIONS[0], {"cache": "default"}, headers={**who, **token})
        anonymous = await AsyncClient().get(READS[1])
        statuses = [each.status_code for each in (page, figures, cleared, anonymous)]
        return statuses, await cache.aget("k")

    assert asyncio.run(visit()) == ([200, 200, 200, 401], None)
