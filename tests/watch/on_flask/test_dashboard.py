"""The dashboard in Flask: the guard's responses and errors, and other extensions. The rest is in ``tests/backends``."""

import flask
import flask_caching
import pytest
from flask_wtf import CSRFProtect

from tests.watch.on_both.dashboard_page import CLEAR, FIGURES, PAGE, READS, SENT, has_the_headers
from wheelcache.watch.flask_commands import wheelcache
from wheelcache.watch.flask_dashboard import dashboard

ACTIONS = [CLEAR]
ATLAS = {"cache": "atlas"}
ALL = [*READS, *ACTIONS]


@pytest.fixture
def site(make_app, tmp_path):
    """Make an app with a dashboard: ``app, cache = site(guard)``."""

    def make(guard=lambda: {"operate"}, *, user=None, register=None, **config):
        options = {"figures_dir": tmp_path / "figures", **config.pop("CACHE_OPTIONS", {})}
        app, cache = make_app(name="atlas", CACHE_OPTIONS=options, SECRET_KEY="not secret", **config)
        app.register_blueprint(dashboard(guard, user=user), **(register or {}))
        return app, cache

    return make


def press(client, url, data=None, **headers):
    return client.post(url, data=data, headers={**SENT, **headers})


def ask(app, url):
    client = app.test_client()
    return (client.post if url.split("?")[0] in ACTIONS else client.get)(url)


# The guard.


@pytest.mark.parametrize("guard", [None, True, "login", object()])
def test_there_is_no_dashboard_without_a_guard(guard):
    with pytest.raises(TypeError, match="guard must be a function that returns the set"):
        dashboard(guard)
    with pytest.raises(TypeError, match="guard"):
        dashboard()


def test_scripts_are_refused_in_json_and_people_in_the_words_of_the_app(site):
    app, _ = site(lambda: False)
    app.register_error_handler(403, lambda error: ("our own words", 403))
    client = app.test_client()
    assert client.get(PAGE).text == "our own words"
    for response in (client.get(FIGURES), client.post(CLEAR)):
        assert response.json == {"error": "You may not see this"}
        assert has_the_headers(response.headers)


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
        (path_of_request, {}, f"by {CLEAR}"),
        (None, {"Authorization": "Basic Ym9iOng="}, "by bob"),
        (None, {"Authorization": "Bearer x"}, "by the dashboard, from 127.0.0.1"),
    ],
)
def test_recent_events_have_the_name_of_the_user_as_far_as_the_app_tells(site, user, headers, expected):
    app, _ = site(user=user)
    assert press(app.test_client(), CLEAR, ATLAS, **headers).status_code == 200
    assert ask(app, FIGURES).json["events"][0]["text"] == expected


@pytest.mark.parametrize("granted", [{"view_figures"}, False])
def test_the_guard_may_be_a_coroutine_function_that_looks_at_the_request(site, granted):
    async def guard():
        return flask.request.path.startswith(PAGE) and "key" in flask.request.headers and granted

    app, _ = site(guard)
    assert app.test_client().get(PAGE, headers={"key": ""}).status_code == (200 if granted else 403)
    assert app.test_client().get(PAGE).status_code == 403


# The app's own protection.


@pytest.fixture(params=["before", "after"])
def with_wtf(make_app, tmp_path, request):
    """An app with Flask-WTF's protection, which is set up before or after the dashboard."""
    app, _ = make_app(name="atlas", CACHE_OPTIONS={"figures_dir": tmp_path / "figures"}, SECRET_KEY="not secret")
    csrf = CSRFProtect() if request.param == "after" else CSRFProtect(app)
    app.register_blueprint(dashboard(lambda: {"operate"}))
    if request.param == "after":
        csrf.init_app(app)
    app.add_url_rule("/other", "other", lambda: "done", methods=["POST"])
    return app.test_client()


def test_the_protection_of_flask_wtf_is_not_for_the_dashboard_but_still_for_the_app(with_wtf):
    assert press(with_wtf, CLEAR, ATLAS).status_code == 200
    assert with_wtf.post(CLEAR, data=ATLAS).status_code == 403
    assert with_wtf.post("/other", headers=SENT).status_code == 400


# Contents and actions.


@pytest.mark.parametrize(
    ("has_other", "complaint"),
    [
        (False, "The app 'bare' has no Flask-Caching cache"),
        (True, "No cache of the app 'bare' is one of wheelcache.flask_backend"),
    ],
)
def test_the_command_says_that_an_app_has_no_cache_of_ours(has_other, complaint):
    app = flask.Flask("bare")
    if has_other:
        flask_caching.Cache(app, config={"CACHE_TYPE": "SimpleCache"})
    done = app.test_cli_runner().invoke(wheelcache)
    assert (done.exit_code, complaint in done.output) == (1, True)


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


def test_it_may_be_elsewhere_and_twice(site):
    app, _ = site(register={"url_prefix": "/admin/caches"})
    app.register_blueprint(dashboard(lambda: False, name="closed"))
    client = app.test_client()
    assert client.get("/admin/caches").headers["Location"] == "http://localhost/admin/caches/"
    assert press(client, "/admin/caches/clear", {"cache": "atlas"}).status_code == 200
    assert client.get(FIGURES).status_code == 403
    with app.test_request_context():
        assert flask.url_for("wheelcache.page") == "/admin/caches/"
