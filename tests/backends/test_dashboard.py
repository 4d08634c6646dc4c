"""The dashboard in both frameworks: permissions, methods, headers, forged requests, and the effect of the buttons.

The figures and the page are the engine's; logins are each framework's own.
"""

import json
import logging
import re
from contextlib import ExitStack

import flask
import flask_caching
import pytest
from django.core.cache import caches
from django.http import HttpResponse
from django.test import Client, override_settings
from django.urls import include, path

from tests.backends.dashboard_page import (
    CLEAR,
    FIGURES,
    PAGE,
    PURGE,
    READS,
    RESET,
    SAVE,
    config_in,
    has_the_headers,
    token_in,
)
from tests.http_cache.site import WsgiSite
from tests.waiting import PATIENCE, until
from wheelcache.errors import FileUnusable
from wheelcache.flask_backend import dashboard as flask_dashboard
from wheelcache.flask_backend.pages import PAGES
from wheelcache.observability.dashboard.dashboard import ASSETS
from wheelcache.observability.dashboard.permissions import Permission
from wheelcache.observability.site import Site

ACTIONS = [CLEAR, PURGE, SAVE, RESET]

urlpatterns = [path("wheelcache/", include("wheelcache.django_backend.urls")), path("", lambda _: HttpResponse())]


class LoggedIn:
    """Log every visitor in as the same user."""

    def __init__(self, get_response):
        self.get_response = get_response

    def __call__(self, request):
        from django.contrib.auth.models import User

        request.user = User(username="ann")
        return self.get_response(request)


GRANTED = []
"""The permission of the user of a ``DjangoSite``. Django gives no test a place in its authentication backends."""


class Granted:
    """An authentication backend with one user, as far as ``has_perm`` is concerned."""

    def has_perm(self, user, permission, obj=None):
        return [permission] == [f"wheelcache.{each}" for each in GRANTED]


class DjangoSite:
    foreign = "https://elsewhere.example"
    user = "ann"

    def __init__(
        self, stack, figures_dir, name="atlas", *middleware, snapshot=None, inspect=False, grant="operate", **settings
    ):
        stack.callback(GRANTED.clear)
        GRANTED[:] = [grant]
        options = {"LOG_INTERVAL": None, "FIGURES_DIR": figures_dir, "SNAPSHOT": snapshot, "SNAPSHOT_KEY": "key of all"}
        options["INSPECT"] = inspect
        cache = {"BACKEND": "wheelcache.django_backend.WheelCache", "LOCATION": name, "OPTIONS": options}
        stack.enter_context(
            override_settings(
                CACHES={"default": cache},
                ROOT_URLCONF=__name__,
                **{
                    "INSTALLED_APPS": ["django.contrib.auth", "django.contrib.contenttypes"],
                    "AUTHENTICATION_BACKENDS": [f"{__name__}.Granted"],
                    "MIDDLEWARE": [*middleware, f"{__name__}.LoggedIn"],
                    **settings,
                },
            )
        )
        self.cache = caches["default"]

    def browser(self):
        return Client(enforce_csrf_checks=True)

    def ask(self, browser, method, url, data=None, headers=None):
        """Return the status, the headers and the text."""
        response = getattr(browser, method)(url, data or {}, headers=headers or {})
        return response.status_code, response.headers, response.content.decode()


class GuardedDjangoSite(DjangoSite):
    """A site without users: a function of its own lets requests in."""

    user = "the dashboard, from 127.0.0.1"

    def __init__(self, stack, figures_dir, name="atlas", snapshot=None, inspect=False, grant="operate"):
        empty = dict.fromkeys(("INSTALLED_APPS", "AUTHENTICATION_BACKENDS", "MIDDLEWARE"), ())
        settings = {**empty, "WHEELCACHE_DASHBOARD_GUARD": lambda request: grant}
        super().__init__(stack, figures_dir, name, snapshot=snapshot, inspect=inspect, **settings)


class FlaskSite:
    foreign = "http://elsewhere.example"
    user = "the dashboard, from 127.0.0.1"

    def __init__(self, stack, figures_dir, name="atlas", snapshot=None, inspect=False, grant="operate"):
        self.app = flask.Flask(name)
        self.app.config.update(
            CACHE_TYPE="wheelcache.flask_backend.WheelCache",
            CACHE_OPTIONS={
                "log_interval": None,
                "figures_dir": figures_dir,
                "snapshot": snapshot,
                "snapshot_key": "key of all",
                "inspect": inspect,
            },
            SECRET_KEY="not secret",
        )
        cache = flask_caching.Cache(self.app)
        self.app.register_blueprint(flask_dashboard.dashboard(lambda: grant))
        self.cache = self.app.extensions["cache"][cache]

    def browser(self):
        return self.app.test_client()

    def ask(self, browser, method, url, data=None, headers=None):
        response = getattr(browser, method)(url, data=data, headers=headers)
        return response.status_code, response.headers, response.text


class CsrfDjangoSite(DjangoSite):
    def __init__(self, stack, figures_dir, name="atlas", **given):
        super().__init__(stack, figures_dir, name, "django.middleware.csrf.CsrfViewMiddleware", **given)


GUARDED = {"django with a guard": GuardedDjangoSite, "flask": FlaskSite}
SITES = {"django": DjangoSite, "django with the CSRF middleware": CsrfDjangoSite, **GUARDED}


@pytest.fixture(params=SITES.values(), ids=SITES)
def make_site(request):
    """Make a site with a dashboard that all users may operate: ``make_site(figures_dir)``."""
    with ExitStack() as stack:
        yield lambda *args, **options: request.param(stack, *args, **options)


@pytest.fixture
def site(make_site, tmp_path):
    site = make_site(tmp_path / "figures", snapshot=tmp_path / "snapshots")
    site.cache.clear()
    site.cache.set("k", "v")
    return site


def config_of(site, browser):
    return config_in(site.ask(browser, "get", PAGE)[2])


def token_of(site, browser):
    """Open the page, as every user of its buttons does."""
    return token_in(site.ask(browser, "get", PAGE)[2])


def press(site, url, data=None, **headers):
    browser = site.browser()
    status, _, text = site.ask(browser, "post", url, data, {**token_of(site, browser), **headers})
    return status, json.loads(text)


def figures(site):
    return json.loads(site.ask(site.browser(), "get", FIGURES)[2])


def is_untouched(site):
    return site.cache.get("k") == "v" and figures(site)["since"] is None


def test_all_is_there_with_its_type_and_its_headers_and_head_has_no_body(site):
    types = {}
    for url in READS:
        status, headers, text = site.ask(site.browser(), "get", url)
        assert (status, bool(text), has_the_headers(headers)) == (200, True, True)
        types[url.removeprefix(PAGE)] = headers["Content-Type"]
        status, headers, text = site.ask(site.browser(), "head", url)
        assert (status, text, has_the_headers(headers)) == (200, "", True)
    assert types == {
        "": "text/html; charset=utf-8",
        "figures.json": "application/json",
        "dashboard.css": "text/css; charset=utf-8",
        **{name: "text/javascript; charset=utf-8" for name in ASSETS if name.endswith(".js")},
        "icon.svg": "image/svg+xml; charset=utf-8",
    }


# Permissions.


def test_a_user_who_may_only_view_the_figures_sees_them_and_changes_nothing(make_site, tmp_path, caplog):
    caplog.set_level(logging.INFO, "wheelcache")
    site = make_site(tmp_path / "figures", snapshot=tmp_path / "snapshots", grant="view_figures")
    site.cache.set("k", "v")
    for url in READS:
        assert site.ask(site.browser(), "get", url)[0] == 200
    assert config_of(site, site.browser())["may_operate"] is False
    caplog.clear()
    for url in ACTIONS:
        browser = site.browser()
        status, headers, text = site.ask(browser, "post", url, {"cache": "atlas"}, token_of(site, browser))
        assert (status, json.loads(text)) == (403, {"error": "You may view the figures, but not change anything"})
        assert has_the_headers(headers)
    assert is_untouched(site)
    assert figures(site)["caches"][0]["saved"] is None
    assert not [each for each in figures(site)["events"] if each["kind"] in ("cleared", "reset", "save")]
    assert not [each for each in caplog.records if each.name == "wheelcache"]


def test_a_user_who_may_operate_may_also_view_the_figures(site):
    assert config_of(site, site.browser())["may_operate"] is True
    assert press(site, CLEAR, {"cache": "atlas"})[0] == 200


@pytest.mark.parametrize("grant", [None, "clear"])
def test_a_user_without_a_permission_gets_nothing(make_site, tmp_path, grant):
    site = make_site(tmp_path / "figures", grant=grant)
    site.cache.set("k", "v")
    for method, urls in (("get", READS), ("post", ACTIONS)):
        for url in urls:
            status, _, text = site.ask(site.browser(), method, url, {"cache": "atlas"} if method == "post" else None)
            assert status == 403
            assert "config" not in text
            if url in ACTIONS:
                assert json.loads(text) == {"error": "You may not see this"}
    assert site.cache.get("k") == "v"


@pytest.fixture(params=GUARDED.values(), ids=GUARDED)
def make_guarded(request):
    """Make a site whose guard returns a value: ``make_guarded(figures_dir, grant=value)``."""
    with ExitStack() as stack:
        yield lambda *args, **options: request.param(stack, *args, **options)


@pytest.mark.parametrize(
    ("verdict", "may_operate"),
    [(True, True), (Permission.OPERATE, True), ("operate", True), (Permission.VIEW_FIGURES, False)],
)
def test_a_guard_grants_both_permissions_by_true_or_one_by_its_name(make_guarded, tmp_path, verdict, may_operate):
    site = make_guarded(tmp_path / "figures", grant=verdict)
    site.cache.set("k", "v")
    assert config_of(site, site.browser())["may_operate"] is may_operate
    assert press(site, CLEAR, {"cache": "atlas"})[0] == (200 if may_operate else 403)
    assert site.cache.get("k") == (None if may_operate else "v")


class Truthy:
    def __eq__(self, other):
        return True

    def __bool__(self):
        return True

    def __repr__(self):
        return "Truthy()"


REFUSALS = [False, None, 0, 1, "yes", "Operate", "wheelcache.operate", b"operate", [True], object, Truthy()]


@pytest.mark.parametrize("verdict", REFUSALS, ids=repr)
def test_any_other_value_of_a_guard_is_refused_and_logged_if_it_looks_like_a_mistake(
    make_guarded, tmp_path, verdict, caplog
):
    site = make_guarded(tmp_path / "figures", grant=verdict)
    site.cache.set("k", "v")
    for url in (*READS, *ACTIONS):
        for method in ("get", "head", "post", "options"):
            status, _, text = site.ask(site.browser(), method, url, {"cache": "atlas"} if method == "post" else None)
            # Flask finds a wrong method before it calls a guard.
            assert status in (403, 405)
            assert status == 403 or isinstance(site, FlaskSite)
            assert "config" not in text
    assert site.cache.get("k") == "v"
    logged = [each.getMessage() for each in caplog.records if each.name == "wheelcache"]
    assert bool(logged) == (verdict is not False and verdict is not None)
    for each in logged:
        assert f"a {type(verdict).__name__}, which lets no user in" in each
        assert "'view_figures'" in each


# Requests.


def test_what_is_read_is_only_read_and_actions_are_only_posted(site):
    for urls, methods in ((READS, ["post", "put", "patch", "delete"]), (ACTIONS, ["get", "head", "put", "patch"])):
        for url in urls:
            for method in methods:
                browser = site.browser()
                assert site.ask(browser, method, f"{url}?cache=atlas", headers=token_of(site, browser))[0] == 405
    assert is_untouched(site)


@pytest.mark.parametrize(
    "forgery", ["no token", "empty token", "wrong token", "no cookie", "another's cookie", "cross-origin", "query"]
)
def test_a_forged_request_is_refused_and_has_no_effect(site, forgery):
    browser = site.browser()
    token = token_of(site, browser)
    headers = {
        "no token": {},
        "empty token": dict.fromkeys(token, ""),
        "wrong token": dict.fromkeys(token, "x" * 43),
        "cross-origin": {**token, "Origin": site.foreign},
        "query": {},
    }.get(forgery, token)
    if forgery == "no cookie":
        browser = site.browser()
    if forgery == "another's cookie":
        browser = site.browser()
        token_of(site, browser)
    query = f"?csrfmiddlewaretoken={next(iter(token.values()))}" if forgery == "query" else ""
    for url in ACTIONS:
        status, answered, text = site.ask(browser, "post", url + query, {"cache": "atlas"}, headers)
        assert status == 403
        assert json.loads(text) == {"error": "This page is older than your login, reload it"}
        assert has_the_headers(answered)
    assert is_untouched(site)


def test_the_buttons_say_what_they_did_and_it_is_logged(site, caplog):
    caplog.set_level(logging.INFO, "wheelcache")
    site.cache.get("missing")
    status, answer = press(site, CLEAR, {"cache": "atlas"})
    assert status == 200
    assert re.fullmatch(r"Cleared atlas\. Takes effect in worker \d+, the only one\.", answer["message"])
    assert site.cache.get("k") is None
    assert press(site, RESET) == (200, {"message": "The figures start from zero."})
    assert figures(site)["caches"][0]["total"]["misses"] == 0
    told = [(each["kind"], each["cache"], each["text"]) for each in figures(site)["events"]]
    assert told[:2] == [("reset", None, f"by {site.user}"), ("cleared", "atlas", f"by {site.user}")]
    assert ["atlas" in each.message for each in caplog.records if each.name == "wheelcache"] == [True, False]


@pytest.fixture
def pages(site, tmp_path, clock):
    """A site whose pages are cached in the process of the dashboard."""
    found = WsgiSite(clock, figures_dir=tmp_path / "figures")
    if isinstance(site, FlaskSite):
        site.app.extensions[PAGES] = [found.cache]
    yield found
    found.cache.cache.close()


def test_pages_are_purged_and_the_event_names_the_user(site, pages):
    for target in ("/a", "/b", "/a", "/b"):
        pages.get(target)
    (card,) = (each for each in figures(site)["caches"] if each["name"] == "pages")
    assert (card["pages"]["stored"], card["pages"]["fresh"]) == (2, 2)
    status, answer = press(site, PURGE, {"cache": "pages", "target": " https://example.com/a "})
    assert status == 200
    assert re.fullmatch(r"Purged https://example.com/a\. Takes effect in worker \d+, the only one\.", answer["message"])
    for target in ("/a", "/b"):
        pages.get(target)
    assert pages.runs == 3
    assert press(site, PURGE, {"cache": "pages", "target": "example.com"})[0] == 200
    assert press(site, CLEAR, {"cache": "pages"})[0] == 200
    assert len(pages.cache.cache) == 0
    told = [(each["kind"], each["cache"], each["text"]) for each in figures(site)["events"]]
    assert told[:3] == [
        ("cleared", "pages", f"by {site.user}"),
        ("purge", "pages", f"by {site.user}: example.com"),
        ("purge", "pages", f"by {site.user}: https://example.com/a"),
    ]


@pytest.mark.parametrize(
    ("data", "status", "error"),
    [
        ({"cache": "pages", "target": "/a"}, 400, "purge takes an absolute URL"),
        ({"cache": "pages"}, 400, "purge takes an absolute URL"),
        ({"cache": "atlas", "target": "example.com"}, 409, "The cache 'atlas' has no pages to purge"),
        ({"cache": "other", "target": "example.com"}, 404, "There is no cache 'other'"),
    ],
)
def test_a_purge_that_makes_no_sense_is_refused(site, pages, data, status, error):
    pages.get("/a")
    answered, answer = press(site, PURGE, data)
    assert answered == status
    assert answer["error"].startswith(error)
    assert [each["kind"] for each in figures(site)["events"] if each["kind"] == "purge"] == []


def test_a_cache_is_saved_at_once(site, tmp_path, caplog):
    assert figures(site)["caches"][0]["saved"] is None
    caplog.set_level(logging.INFO, "wheelcache")
    status, answer = press(site, SAVE, {"cache": "atlas"})
    assert status == 200
    assert re.fullmatch(r"atlas is being saved\. Takes effect in worker \d+, the only one\.", answer["message"])
    assert ["atlas" in each.message for each in caplog.records if each.name == "wheelcache"] == [True]
    assert [(each["kind"], each["cache"]) for each in figures(site)["events"]][:1] == [("save", "atlas")]
    assert until(lambda: figures(site)["caches"][0]["saved"], PATIENCE)
    assert [each.suffix for each in (tmp_path / "snapshots").iterdir() if each.suffix != ".lock"] == [".snapshot"]


def test_a_cache_without_a_place_for_snapshots_cannot_be_saved(make_site, tmp_path):
    site = make_site(tmp_path / "figures", "not kept")
    site.cache.set("k", "v")
    (card,) = figures(site)["caches"]
    assert (card["can_save"], card["saved"]) == (False, None)
    status, answer = press(site, SAVE, {"cache": "not kept"})
    assert status == 409
    assert answer["error"].startswith("The cache 'not kept' has no snapshots")


def test_the_settings_are_told_as_they_are_spelled_with_what_is_set_and_no_secret(site, tmp_path):
    (card,) = figures(site)["caches"]
    assert card["can_save"]
    found = {name.lower(): (value, is_default) for name, value, is_default, _ in card["settings"]}
    assert found["figures_dir"] == (str(tmp_path / "figures"), False)
    assert found["snapshot"] == (str(tmp_path / "snapshots"), False)
    assert found["log_interval"] == ("None", False)
    assert found["jitter"] == ("0.05", True)
    assert found["fill_wait"] == ("0", True)
    assert found["snapshot_key"] == ("secret", False)
    assert "key of all" not in json.dumps(figures(site))
    assert all(meaning for *_, meaning in card["settings"])


def test_workers_and_history_are_told_of_the_caches_that_are_asked_for(site):
    for query, expected in (("", True), ("?details=", False), ("?details=other&details=atlas", True)):
        (card,) = json.loads(site.ask(site.browser(), "get", FIGURES + query)[2])["caches"]
        assert ({"workers", "history"} <= card.keys()) == expected
        assert card["worker_count"] == 1


def test_looking_does_not_change_the_figures(site):
    before = figures(site)["caches"]
    for url in READS:
        site.ask(site.browser(), "get", url)
    assert [each["total"] for each in figures(site)["caches"]] == [each["total"] for each in before]


@pytest.mark.parametrize("name", [None, "Atlas", "a\r\nSet-Cookie: a=b", "💥", "x" * 100_000])
def test_an_unknown_cache_is_404_whatever_it_is_called(site, name, caplog):
    caplog.set_level(logging.INFO, "wheelcache")
    for url in (CLEAR, SAVE):
        status, answer = press(site, url, {} if name is None else {"cache": name})
        assert status == 404
        assert answer["error"].startswith("There is no cache ")
        assert not answer["error"].endswith(".")
    assert is_untouched(site)
    assert not [each for each in caplog.records if each.name == "wheelcache"]


def test_where_nothing_is_published_a_reset_is_409(make_site):
    status, answer = press(make_site(None, "not published"), RESET)
    assert status == 409
    assert answer["error"].startswith("These caches do not publish")


@pytest.mark.parametrize("error", [FileUnusable("it is another user's"), PermissionError(13, "Permission denied")])
def test_where_files_cannot_be_used_it_says_so(site, monkeypatch, error):
    def fail(*args, **options):
        raise error

    for name in ("ask", "reset"):
        monkeypatch.setattr(Site, name, fail)
    for url in (CLEAR, SAVE, RESET):
        assert press(site, url, {"cache": "atlas"}) == (503, {"error": str(error)})
