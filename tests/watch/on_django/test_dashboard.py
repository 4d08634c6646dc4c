"""The dashboard in Django: which users get in, and other middleware. The rest is in ``tests/backends``."""

import asyncio
from typing import ClassVar

import pytest
from django.core import checks
from django.core.cache import cache, caches
from django.core.exceptions import ImproperlyConfigured, PermissionDenied
from django.http import HttpResponse
from django.shortcuts import redirect
from django.test import AsyncClient, Client
from django.urls import include, path, reverse
from django.utils.deprecation import MiddlewareMixin

from tests.django_backend.conftest import BACKEND
from tests.engines import engine
from tests.scripts import run_python
from tests.watch.on_both.dashboard_page import CLEAR, PAGE, READS, SENT, config_in, has_the_headers

ACTIONS = [CLEAR]
ALL = [*READS, *ACTIONS]


urlpatterns = [
    path("wheelcache/", include("wheelcache.watch.urls")),
    path("page", lambda request: HttpResponse("a page of the site")),
]


class Users(MiddlewareMixin):
    """In the place of sessions: the header X-User names the user that is logged in."""

    def process_request(self, request):
        from django.contrib.auth.models import AnonymousUser, User

        who = request.headers.get("X-User", "")
        request.user = (
            User(username=who, is_staff="staff" in who, is_superuser="super" in who, is_active="inactive" not in who)
            if who
            else AnonymousUser()
        )


class Permissions:
    """An authentication backend: each of these users has one permission of the dashboard."""

    NAMES: ClassVar = {
        "wheelcache.inspect": "inspector",
        "wheelcache.operate": "operator",
        "wheelcache.view_figures": "viewer",
    }

    def has_perm(self, user, permission, obj=None):
        return user.is_active and self.NAMES[permission] in user.username


@pytest.fixture(autouse=True)
def _site(settings, tmp_path):
    options = {"JITTER": 0, "FIGURES_DIR": tmp_path / "figures"}
    settings.CACHES = {
        "default": {"BACKEND": BACKEND, "LOCATION": "default", "OPTIONS": options},
        "again": {"BACKEND": BACKEND, "LOCATION": "default", "OPTIONS": options, "KEY_PREFIX": "again"},
        "unused": {"BACKEND": BACKEND, "LOCATION": "unused", "OPTIONS": options},
        "elsewhere": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache", "LOCATION": str(tmp_path)},
    }
    settings.INSTALLED_APPS = ["django.contrib.auth", "django.contrib.contenttypes", "wheelcache.django_backend"]
    settings.AUTHENTICATION_BACKENDS = [f"{__name__}.Permissions"]
    settings.LOGIN_URL = "/login/here"
    settings.MIDDLEWARE = [f"{__name__}.Users"]
    settings.ROOT_URLCONF = __name__


def client(who="", **headers):
    return Client(enforce_csrf_checks=True, headers={**({"X-User": who} if who else {}), **headers})


def config_of(page):
    return config_in(page.content.decode())


def press(browser, url, data=None, **headers):
    return browser.post(url, data or {}, headers={**SENT, **headers})


# Users that get in.


def test_who_is_not_logged_in_is_sent_to_the_login_from_the_page():
    response = client().get(f"{PAGE}?a=b")
    assert response.status_code == 302
    assert response.headers["Location"] == "/login/here?next=/wheelcache/%3Fa%3Db"
    assert has_the_headers(response.headers)


OTHERS = ["somebody", "staff", "inactive super", "inactive operator"]


@pytest.mark.parametrize(("who", "status"), [("", 401), *((who, 403) for who in OTHERS)])
def test_users_without_a_permission_are_refused_in_json_and_never_redirected(who, status):
    for url in ALL if who else ALL[1:]:
        for method in ("get", "head", "post", "put", "delete", "options"):
            response = getattr(client(who), method)(url)
            assert response.status_code == status
            assert b"config" not in response.content
            if url != PAGE:
                assert has_the_headers(response.headers)
                if method != "head":
                    assert response.json() == {"error": "You may not see this" if who else "You have to log in"}


def test_superusers_have_all_permissions():
    assert config_of(client("super").get(PAGE))["may_operate"]
    assert config_of(client("super").get(PAGE))["may_inspect"]
    assert not config_of(client("operator").get(PAGE))["may_inspect"]
    assert press(client("super"), CLEAR, {"cache": "default"}).status_code == 200
    assert not config_of(client("viewer").get(PAGE))["may_operate"]


# The guard of a site.


def test_a_guard_decides_instead_of_the_users_and_may_send_a_response_of_its_own(settings):
    settings.WHEELCACHE_DASHBOARD_GUARD = f"{__name__}.guard"
    for url in ALL:
        response = client("super").get(url)
        assert (response.status_code, response.headers["Location"]) == (302, "/our-login")
        assert "Content-Security-Policy" not in response.headers
        assert client("super", guard="abort").get(url).status_code == 403
    assert config_of(client(guard="operate").get(PAGE))["may_operate"]


def guard(request):
    verdict = request.headers.get("guard")
    if verdict == "abort":
        raise PermissionDenied
    return {verdict} if verdict else redirect("/our-login")


async def async_guard(request):
    await asyncio.sleep(0)
    return guard(request)


def test_the_guard_may_be_a_coroutine_function_under_wsgi_and_asgi(settings):
    settings.WHEELCACHE_DASHBOARD_GUARD = async_guard

    async def visit(headers):
        return (await AsyncClient().get(PAGE, headers=headers)).status_code

    for verdict, status in (("view_figures", 200), ("", 302)):
        assert client(guard=verdict).get(PAGE).status_code == status
        assert asyncio.run(visit({"guard": verdict})) == status


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("", "cannot be imported"),
        ("nowhere.guard", "cannot be imported"),
        (f"{__name__}.PAGE", "must be a function"),
        (0, "must be a function"),
    ],
)
def test_a_wrong_guard_lets_no_user_in_and_is_an_error_of_the_system_check(settings, given, why):
    settings.WHEELCACHE_DASHBOARD_GUARD = given
    for url in ALL:
        with pytest.raises(ImproperlyConfigured, match=f"^WHEELCACHE_DASHBOARD_GUARD.*{why}"):
            client("super").get(url)
    (error,) = [each for each in checks.run_checks() if each.id == "wheelcache.E002"]
    assert (error.level, error.msg.startswith("WHEELCACHE_DASHBOARD_GUARD")) == (checks.ERROR, True)
    assert why in error.msg


# The permissions in the database.

MIGRATED = """
import os, sys
from django.conf import settings
settings.configure(
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": sys.argv[1]}},
    INSTALLED_APPS=["django.contrib.auth", "django.contrib.contenttypes", "wheelcache.django_backend"],
    CACHES={"default": {"BACKEND": "wheelcache.django_backend.WheelCache"}},
    DEFAULT_AUTO_FIELD="django.db.models.SmallAutoField",
    SILENCED_SYSTEM_CHECKS=["wheelcache.I001"],
)
import django
django.setup()
from django.core.management import call_command
call_command("migrate", verbosity=0)
call_command("makemigrations", check_changes=True, dry_run=True, verbosity=0)
call_command("check", fail_level="INFO", stdout=open(os.devnull, "w"))
call_command("dumpdata", stdout=open(os.devnull, "w"), use_base_manager=True)
from django.contrib.auth.models import Permission, User
from django.db import connection
print(*[each.codename for each in Permission.objects.filter(content_type__app_label="wheelcache").order_by("id")])
print(*[each for each in connection.introspection.table_names() if "wheelcache" in each])
user = User.objects.create(username="ann")
user.user_permissions.set(Permission.objects.filter(codename="operate"))
print(user.has_perm("wheelcache.view_figures"), user.has_perm("wheelcache.operate"))
"""


def test_migrate_creates_the_permissions_and_no_table_and_other_commands_run_as_before(tmp_path):
    done = run_python("-c", MIGRATED, str(tmp_path / "site.sqlite3"))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["view_figures operate inspect", "", "False True"]


# Contents and actions.


def test_every_cache_of_the_settings_is_shown_also_those_that_were_not_used():
    assert reverse("wheelcache:dashboard") == PAGE
    document = client("operator").get(READS[1]).json()
    assert [each["name"] for each in document["caches"]] == ["default", "unused"]
    # Two aliases of one store count once.
    cache.set("k", "v")
    cache.get("k")
    caches["again"].get("k")
    engine(caches["default"]).engine.observed.observer.publication.run_now()
    total = client("operator").get(READS[1]).json()["caches"][0]["total"]
    assert (total["hits"], total["misses"], total["entries"]) == (1, 1, 1)


# In company of other middleware, under ASGI, and in several processes.


def test_the_cache_middleware_never_keeps_it(settings):
    update, fetch = (f"django.middleware.cache.{each}CacheMiddleware" for each in ("Update", "FetchFrom"))
    settings.MIDDLEWARE = [update, f"{__name__}.Users", fetch]
    staff = client("operator")
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
