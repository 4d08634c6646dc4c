"""The dashboard in Flask: the guard's responses and errors, and forged requests. The rest is in ``tests/backends``."""

import re
from pathlib import Path

import cachelib
import flask
import flask_caching
import pytest
from flask_wtf import CSRFProtect
from werkzeug.wrappers import Response as WerkzeugResponse

from tests.backends.dashboard_page import CLEAR, FIGURES, PAGE, READS, RESET, has_the_headers, token_in
from tests.flask_backend.conftest import BACKEND
from wheelcache.flask_backend.dashboard import COOKIE, HEADER, dashboard

ROOT = Path(__file__).parents[2]
FOLDER = PAGE.rstrip("/")
ACTIONS = [CLEAR, RESET]
ALL = [*READS, *ACTIONS]


@pytest.fixture
def site(make_app, tmp_path):
    """Make an app with a dashboard: ``app, cache = site(guard)``."""

    def make(guard=lambda: True, *, user=None, register=None, **config):
        options = {"figures_dir": tmp_path / "figures", **config.pop("CACHE_OPTIONS", {})}
        app, cache = make_app(name="atlas", CACHE_OPTIONS=options, SECRET_KEY="not secret", **config)
        app.register_blueprint(dashboard(guard, user=user), **(register or {}))
        return app, cache

    return make


def token_of(client, page=PAGE):
    """Open the page, as every user of its buttons does."""
    return token_in(client.get(page).text)


def press(client, url, data=None, **headers):
    return client.post(url, data=data, headers={**token_of(client), **headers})


def ask(app, url):
    client = app.test_client()
    return (client.post if url.split("?")[0] in ACTIONS else client.get)(url)


# The guard.


@pytest.mark.parametrize("guard", [None, True, "login", object()])
def test_there_is_no_dashboard_without_a_guard(guard):
    with pytest.raises(TypeError, match="guard must be a function that returns True"):
        dashboard(guard)
    with pytest.raises(TypeError, match="guard"):
        dashboard()


def test_scripts_are_refused_in_json_and_people_in_the_words_of_the_app(site):
    app, _ = site(lambda: False)
    app.register_error_handler(403, lambda error: ("our own words", 403))
    client = app.test_client()
    assert client.get(PAGE).text == "our own words"
    for response in (client.get(FIGURES), client.post(CLEAR), client.post(RESET)):
        assert response.json == {"error": "You may not see this"}
        assert has_the_headers(response.headers)


@pytest.mark.parametrize("kind", [flask.Response, WerkzeugResponse])
def test_a_response_of_the_guard_is_sent_as_it_is(site, kind):
    app, cache = site(lambda: kind("who are you?", 401, {"WWW-Authenticate": "Basic"}))
    with app.app_context():
        cache.set("k", "v")
    for url in ALL:
        response = ask(app, url)
        assert (response.status_code, response.text) == (401, "who are you?")
        assert response.headers["WWW-Authenticate"] == "Basic"
    with app.app_context():
        assert cache.get("k") == "v"


def test_the_guard_may_redirect_and_abort_and_one_that_fails_lets_no_user_in(site):
    app, _ = site(lambda: flask.abort(401) if flask.request.args else flask.redirect("/login"))
    failing, _ = site(lambda: 1 / 0)
    failing.debug = failing.testing = False
    for url in ALL:
        assert ask(app, url).headers["Location"] == "/login"
        assert ask(app, f"{url}?abort").status_code == 401
        assert ask(failing, url).status_code == 500


async def path_of_request():
    return flask.request.path


@pytest.mark.parametrize(
    ("user", "headers", "expected"),
    [
        (lambda: "ann", {"Authorization": "Basic Ym9iOng="}, "by ann"),
        (lambda: 7, {}, "by 7"),
        (path_of_request, {}, f"by {RESET}"),
        (None, {"Authorization": "Basic Ym9iOng="}, "by bob"),
        (None, {"Authorization": "Bearer x"}, "by the dashboard, from 127.0.0.1"),
    ],
)
def test_recent_events_have_the_name_of_the_user_as_far_as_the_app_tells(site, user, headers, expected):
    app, _ = site(user=user)
    assert press(app.test_client(), RESET, **headers).status_code == 200
    assert ask(app, FIGURES).json["events"][0]["text"] == expected


def test_a_user_that_is_no_function_is_refused():
    with pytest.raises(TypeError, match="user must be a function"):
        dashboard(lambda: True, user="ann")


@pytest.mark.parametrize("verdict", [True, False])
def test_the_guard_may_be_a_coroutine_function_that_looks_at_the_request(site, verdict):
    async def guard():
        return flask.request.path.startswith(PAGE) and "key" in flask.request.headers and verdict

    app, _ = site(guard)
    assert app.test_client().get(PAGE, headers={"key": ""}).status_code == (200 if verdict else 403)
    assert app.test_client().get(PAGE).status_code == 403


def test_the_guard_is_asked_every_time(site):
    asked = []
    app, _ = site(lambda: asked.append(flask.request.path) or True)
    client = app.test_client()
    for url in READS:
        client.get(url)
    for url in ACTIONS:
        client.post(url)
    assert asked == ALL


# Forged requests.


def test_the_cookie_is_for_the_page_alone(site):
    app, _ = site()
    client = app.test_client()
    plain = client.get(PAGE).headers["Set-Cookie"]
    # Without a path it is for that of the page in the browser, also behind a proxy that takes a part of it away.
    assert re.fullmatch(rf"{COOKIE}=[\w-]{{43}}; HttpOnly; SameSite=Strict", plain)
    assert client.get_cookie(COOKIE, path=FOLDER)
    secure = client.get(PAGE, base_url="https://localhost").headers["Set-Cookie"]
    assert "; Secure; " in secure


def test_all_tabs_of_a_browser_have_one_token_and_browsers_differ(site):
    app, _ = site()
    one, other = app.test_client(), app.test_client()
    assert token_of(one) == token_of(one) != token_of(other)


@pytest.mark.parametrize("planted", ["x", "x" * 42, "x" * 44, "é" * 43, "x" * 42 + "\\", '"' * 43])
def test_a_cookie_that_was_not_made_here_is_replaced(site, planted):
    app, _ = site()
    client = app.test_client()
    client.set_cookie(COOKIE, planted, path=FOLDER)
    assert planted not in token_of(client).values()
    assert press(client, RESET).status_code == 200


FORGERIES = {
    "no ASCII": {HEADER: "\xe9"},
    "another site": {"Sec-Fetch-Site": "cross-site"},
    "a site beside it": {"Sec-Fetch-Site": "same-site"},
    "no page at all": {"Sec-Fetch-Site": "none"},
    "another origin": {"Origin": "http://elsewhere.example"},
    "another port": {"Origin": "http://localhost:81"},
    "an origin that begins like it": {"Origin": "http://localhost.elsewhere.example"},
    "an origin that ends like it": {"Origin": "http://elsewhere-localhost"},
    "a user called like it": {"Origin": "http://localhost@elsewhere.example"},
    "no origin": {"Origin": "null"},
    "no address": {"Origin": "http://[half"},
    "another referrer": {"Referer": "http://elsewhere.example/localhost"},
}


@pytest.mark.parametrize("forgery", [*FORGERIES, "empty cookie"])
def test_a_forged_request_is_refused_and_has_no_effect(site, forgery):
    app, cache = site()
    client = app.test_client()
    headers = {**token_of(client), **FORGERIES.get(forgery, {})}
    if forgery == "empty cookie":
        client.delete_cookie(COOKIE, path=FOLDER)
        client.set_cookie(COOKIE, "", path=FOLDER)
        headers[HEADER] = ""
    with app.app_context():
        cache.set("k", "v")
    for url in ACTIONS:
        response = client.post(url, data={"cache": "atlas"}, headers=headers)
        assert response.status_code == 403
        assert response.json == {"error": "This page is older than your login, reload it"}
        assert has_the_headers(response.headers)
    with app.app_context():
        assert cache.get("k") == "v"
    assert client.get(FIGURES).json["since"] is None


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Sec-Fetch-Site": "same-origin", "Origin": "http://localhost"},
        {"Origin": "http://localhost"},
        {"Referer": f"http://localhost{PAGE}"},
        # Behind a proxy that takes the TLS off.
        {"Origin": "https://localhost"},
        # Behind one that says another name as well.
        {"Sec-Fetch-Site": "same-origin", "Origin": "https://public.example"},
    ],
)
def test_the_requests_of_the_page_come_through(site, headers):
    app, cache = site()
    client = app.test_client()
    with app.app_context():
        cache.set("k", "v")
    assert press(client, CLEAR, {"cache": "atlas"}, **headers).status_code == 200
    with app.app_context():
        assert cache.get("k") is None
    assert press(client, RESET, **headers).status_code == 200


@pytest.fixture(params=[True, False], ids=["all are checked", "none are checked"])
def with_wtf(site, request):
    def make(**config):
        app, cache = site(**config, WTF_CSRF_CHECK_DEFAULT=request.param)
        CSRFProtect(app)
        return app, cache

    return make


def test_beside_flask_wtf_the_token_is_its_own(with_wtf):
    app, cache = with_wtf()
    client = app.test_client()
    with app.app_context():
        cache.set("k", "v")
    assert press(client, CLEAR, {"cache": "atlas"}).status_code == 200
    with app.app_context():
        assert cache.get("k") is None
    assert COOKIE not in client.get(PAGE).headers.get("Set-Cookie", "")


def test_beside_flask_wtf_two_tabs_both_work(with_wtf):
    app, _ = with_wtf()
    client = app.test_client()
    first, second = token_of(client), token_of(client)
    assert [client.post(RESET, headers=each).status_code for each in (first, second)] == [200, 200]


def test_beside_flask_wtf_its_header_is_the_one(with_wtf):
    app, _ = with_wtf(WTF_CSRF_HEADERS=["X-Mine"])
    client = app.test_client()
    assert list(token_of(client)) == ["X-Mine"]
    assert press(client, RESET).status_code == 200


@pytest.mark.parametrize(
    "headers", [{HEADER: ""}, {HEADER: "x" * 43}, {HEADER: "another's"}, {"Sec-Fetch-Site": "cross-site"}], ids=repr
)
def test_beside_flask_wtf_a_forged_request_is_refused(with_wtf, headers):
    app, cache = with_wtf()
    client = app.test_client()
    if headers.get(HEADER) == "another's":
        headers = token_of(app.test_client())
    with app.app_context():
        cache.set("k", "v")
    for url in ACTIONS:
        assert press(client, url, {"cache": "atlas"}, **headers).status_code in (400, 403)
    with app.app_context():
        assert cache.get("k") == "v"
    assert client.get(FIGURES).json["since"] is None


# Contents and actions.


def test_the_caches_are_those_of_the_app_also_if_they_were_not_used(site, make_app):
    app, _ = site()
    make_app(name="another app")
    document = app.test_client().get(FIGURES).json
    assert [each["name"] for each in document["caches"]] == ["atlas"]


def test_the_title_is_the_address_of_the_site(site):
    client = site()[0].test_client()
    assert client.get(FIGURES).json["title"] == "localhost"
    below = {"HTTP_HOST": "example.org", "SCRIPT_NAME": "/shop"}
    assert client.get(FIGURES, environ_overrides=below).json["title"] == "example.org/shop"
    assert "<title>Caches of example.org/shop" in client.get(PAGE, environ_overrides=below).text


def test_an_app_with_several_caches_shows_those_of_this_package(site, tmp_path):
    app, _ = site()
    options = {"log_interval": None, "figures_dir": tmp_path / "figures"}
    tiered = flask_caching.Cache(
        config={
            "CACHE_TYPE": "wheelcache.flask_backend.TieredCache",
            "CACHE_OPTIONS": {**options, "name": "tiered", "l2": cachelib.SimpleCache()},
        }
    )
    tiered.init_app(app)
    flask_caching.Cache(config={"CACHE_TYPE": "SimpleCache", "CACHE_OPTIONS": {}}).init_app(app)
    flask_caching.Cache(config={"CACHE_TYPE": BACKEND, "CACHE_OPTIONS": {**options, "name": "b"}}).init_app(app)
    assert [each["name"] for each in app.test_client().get(FIGURES).json["caches"]] == ["atlas", "b", "tiered"]


def test_it_may_be_elsewhere_and_twice(site):
    app, cache = site(register={"url_prefix": "/admin/caches"})
    app.register_blueprint(dashboard(lambda: False, name="closed"))
    client = app.test_client()
    assert client.get("/admin/caches").headers["Location"] == "http://localhost/admin/caches/"
    token = token_of(client, "/admin/caches/")
    with app.app_context():
        cache.set("k", "v")
    assert client.post("/admin/caches/clear", data={"cache": "atlas"}, headers=token).status_code == 200
    with app.app_context():
        assert cache.get("k") is None
    assert client.get(FIGURES).status_code == 403
    with app.test_request_context():
        assert flask.url_for("wheelcache.page") == "/admin/caches/"
