"""A Flask app behind an HTTP cache: no visitor gets a page that was made for another one."""

from itertools import count

import flask
import pytest
from werkzeug.middleware.proxy_fix import ProxyFix

from tests.http_cache.site import EPOCH, WsgiSite, answer_of
from wheelcache.flask_backend import HTTPCache
from wheelcache.flask_backend.app_contexts import figures_directory
from wheelcache.flask_backend.commands import wheelcache
from wheelcache.flask_backend.dashboard import dashboard

numbers = count()

REFUSED = {
    "address": lambda: flask.request.remote_addr,
    "address-in-environ": lambda: flask.request.environ.get("REMOTE_ADDR"),
    "route": lambda: flask.request.access_route,
    "user": lambda: flask.request.remote_user,
    "cookies": lambda: flask.request.cookies.to_dict(),
    "cookie-items": lambda: [*flask.request.cookies.items(multi=True)],
    "number-of-cookies": lambda: len(flask.request.cookies),
    "headers": lambda: dict(flask.request.headers),
    "environ": lambda: {**flask.request.environ},
}
READ = {
    "header": lambda: flask.request.headers.get("X-Flavor"),
    "presence": lambda: "X-Flavor" in flask.request.headers,
    "environ-item": lambda: flask.request.environ.get("HTTP_X_FLAVOR"),
    "browser": lambda: flask.request.user_agent.string,
    "language": lambda: flask.request.accept_languages.best,
    "cookie": lambda: flask.request.cookies.get("flavor"),
    "list": lambda: flask.request.cookies.getlist("flavor"),
    "some-cookie": lambda: bool(flask.request.cookies),
}


class FlaskSite(WsgiSite):
    def __init__(self, clock, **options):
        self.cache = HTTPCache(
            **{"clock": clock, "wall_clock": lambda: EPOCH + clock(), "figures_dir": None, **options}
        )
        app = flask.Flask(__name__)
        app.secret_key = "not secret"
        app.wsgi_app = ProxyFix(app.wsgi_app, x_host=1)
        self.cache.init_app(app)
        self.app = app

        @app.get("/cached")
        @self.cache.cached(60)
        def cached():
            return f"page {next(numbers)}"

        @app.get("/async")
        @self.cache.cached(60)
        async def asynchronous():
            return f"page {next(numbers)}", 200, {"X-From": "async"}

        @app.get("/own")
        @self.cache.cached(60)
        def own():
            return f"page {next(numbers)}", {"Cache-Control": "no-store"}

        @app.get("/by-hand")
        def by_hand():
            response = flask.make_response(f"page {next(numbers)}")
            response.cache_control.max_age = 60
            return response

        @app.get("/host")
        @self.cache.cached(60)
        def host():
            return flask.request.host_url

        @app.get("/reads/<what>")
        @self.cache.cached(60)
        def reads(what):
            return f"{ {**READ, **REFUSED}[what]()!r} {next(numbers)}"

        @app.get("/login/<name>")
        def login(name):
            flask.session["name"] = name
            return "hello"

        @app.get("/tagged/<tag>")
        @self.cache.cached(60)
        def tagged(tag):
            if tag == "two":
                flask.g.cache_tags = {tag}
            flask.g.cache_tags.add(tag)
            return f"page {next(numbers)}", {"Cache-Tag": "all"}

        @app.get("/not-stored")
        def not_stored():
            flask.g.cache_tags.add("unused")
            return "page", {"Cache-Tag": "all"}

        @app.get("/visitor")
        @self.cache.cached(60)
        def visitor():
            return f"{flask.session.get('name')} {next(numbers)}"

    def ask(self, *parts):
        return answer_of(self.app, self.environ(*parts))


@pytest.fixture
def make_site(clock):
    sites = []

    def make(**options):
        sites.append(FlaskSite(clock, **options))
        return sites[-1]

    yield make
    for site in sites:
        site.cache.cache.close()


@pytest.fixture
def site(make_site):
    return make_site()


def is_stored(site, *request):
    """Return whether two equal requests get the same page."""
    return site.get(*request).body == site.get(*request).body


def test_a_page_is_purged_by_the_tags_that_its_view_added_and_by_those_of_its_header(site):
    for tag in ("one", "all"):
        answers = [site.get("/tagged/one"), site.get("/tagged/one")]
        assert answers[0].body == answers[1].body
        other = site.get("/tagged/two").body
        site.cache.delete_tags(tag)
        answers.append(site.get("/tagged/one"))
        assert answers[2].body != answers[1].body
        assert (site.get("/tagged/two").body == other) == (tag == "one")
        assert {answer.headers.get("cache-tag") for answer in answers} == {None}


def test_a_view_may_assign_its_tags(site):
    target = "/tagged/two"
    assert is_stored(site, target)
    before = site.get(target).body
    site.cache.delete_tags("two")
    assert site.get(target).body != before


def test_a_view_whose_pages_are_not_stored_may_have_tags_as_well(site):
    answers = [site.get("/not-stored", method=method) for method in ("GET", "GET", "GET", "HEAD")]
    assert {(answer.status, answer.headers.get("cache-tag")) for answer in answers} == {(200, None)}


def test_the_command_and_the_dashboard_find_the_pages_of_an_app_without_another_cache(site, tmp_path):
    app = flask.Flask("app", instance_path=str(tmp_path))
    pages = HTTPCache(figures_dir=tmp_path / "figures")
    pages.init_app(app)
    for arguments in (["--json"], ["purge", "example.com"]):
        done = app.test_cli_runner().invoke(wheelcache, arguments)
        assert done.exit_code == 1
        assert f"No worker of this site publishes figures. Looked in {tmp_path / 'figures'}" in done.output
    app.register_blueprint(dashboard(lambda: True))
    found = app.test_client().get("/wheelcache/figures.json").json["caches"]
    assert [(each["name"], each["pages"]["stored"]) for each in found] == [("pages", 0)]
    pages.cache.close()


def test_the_figures_are_published_where_the_app_publishes_those_of_its_caches(clock, tmp_path):
    app = flask.Flask("app", instance_path=str(tmp_path))
    pages = HTTPCache(clock=clock)
    pages.init_app(app)
    assert pages.cache.observer.publication.publisher.file.directory == figures_directory(app)
    pages.cache.close()


@pytest.mark.parametrize("target", ["/cached", "/async", "/by-hand"])
def test_a_page_with_a_lifetime_is_made_once(site, clock, target):
    page = site.get(target)
    assert page["cache-control"] == "max-age=60"
    clock.advance(59)
    assert site.get(target).body == page.body
    clock.advance(1)
    assert site.get(target).body != page.body


def test_a_response_with_a_cache_control_of_its_own_keeps_it(site):
    assert site.get("/own")["cache-control"] == "no-store"
    assert not is_stored(site, "/own")


def test_cookies_and_browsers_that_no_code_reads_make_no_variants(site):
    first = site.get("/cached", {"Cookie": "_ga=1", "User-Agent": "a"})
    assert site.get("/cached", {"Cookie": "_ga=2", "User-Agent": "b", "Connection": "close"}).body == first.body


@pytest.mark.parametrize("what", READ)
def test_a_header_or_a_cookie_that_a_page_reads_is_a_part_of_its_key(site, what):
    def request(flavor):
        names = ("X-Flavor", "User-Agent", "Accept-Language")
        return dict.fromkeys(names, flavor) | ({"Cookie": f"flavor={flavor}"} if flavor != "en" else {})

    url = f"/reads/{what}"
    if what != "presence":
        assert site.get(url, request("de")).body != site.get(url, request("en")).body
    assert site.get(url, request("de")).body != site.get(url).body
    assert is_stored(site, url, request("de"))
    assert is_stored(site, url, request("en"))
    assert is_stored(site, url)


@pytest.mark.parametrize("what", REFUSED)
def test_a_page_that_cannot_be_keyed_is_not_stored(site, what):
    url = f"/reads/{what}"
    assert site.get(url, {"Cookie": "a=1"}).status == 200
    assert not is_stored(site, url, {"Cookie": "a=1"})


def test_a_page_with_the_visitors_name_is_for_that_visitor(site):
    ada, bob = ({"Cookie": site.get(f"/login/{name}")["set-cookie"].partition(";")[0]} for name in ("ada", "bob"))
    for _ in range(2):
        assert site.get("/visitor", ada).body.startswith(b"ada ")
        assert site.get("/visitor", bob).body.startswith(b"bob ")
        assert site.get("/visitor").body.startswith(b"None ")
    assert is_stored(site, "/visitor", ada)


def test_a_forwarded_host_poisons_no_page(site):
    assert site.get("/host", {"X-Forwarded-Host": "evil.example"}).body == b"http://evil.example/"
    assert site.get("/host").body == b"http://example.com/"


def test_the_cookie_of_the_session_must_be_known(clock):
    app = flask.Flask(__name__)
    app.config["SESSION_COOKIE_NAME"] = "shop"
    pages = HTTPCache(clock=clock)
    with pytest.raises(ValueError, match="session_cookies must contain 'shop'"):
        pages.init_app(app)
    HTTPCache(clock=clock, session_cookies=["shop"]).init_app(app)


@pytest.mark.parametrize("seconds", [0, -1, "60", None])
def test_the_lifetime_must_be_a_number_of_seconds(site, seconds):
    with pytest.raises((TypeError, ValueError), match="seconds must be"):
        site.cache.cached(seconds)
