"""A Flask app behind an HTTP cache: no visitor gets a page that was made for another one."""

import copy
import pickle
from itertools import count

import flask
import orjson
import pytest
import werkzeug
from flask.sessions import SecureCookieSession, SessionInterface
from flask_wtf import CSRFProtect
from jinja2 import FileSystemLoader
from werkzeug.exceptions import NotFound
from werkzeug.middleware.proxy_fix import ProxyFix
from werkzeug.test import run_wsgi_app

from tests.pages import odd_responses
from tests.pages.middleware import SHOWN, VISITORS, ByCookie, assert_that_each_visitor_gets_their_page, target_of
from tests.pages.page_tags import PageTags
from tests.pages.site import Response, WsgiSite, answer_of, hits, is_stored, site_on
from tests.pages.why import traced
from tests.waiting import until
from wheelcache.engine.keys import NO_VIEW
from wheelcache.flask_backend import HTTPCache
from wheelcache.flask_backend.app_contexts import figures_directory
from wheelcache.pages import ttl, without_cookies
from wheelcache.watch.flask_commands import wheelcache
from wheelcache.watch.flask_dashboard import dashboard

numbers = count()

REFUSED = {
    "address": lambda: flask.request.remote_addr,
    "address-in-environ": lambda: flask.request.environ.get("REMOTE_ADDR"),
    "route": lambda: flask.request.access_route,
    "user": lambda: flask.request.remote_user,
    "cookies": lambda: flask.request.cookies.to_dict(),
    "copied-cookies": lambda: copy.deepcopy(flask.request.cookies) == flask.request.cookies,
    "pickled-cookies": lambda: pickle.loads(pickle.dumps(flask.request.cookies)),
    "cookie-items": lambda: [*flask.request.cookies.items(multi=True)],
    "number-of-cookies": lambda: len(flask.request.cookies),
    "headers": lambda: dict(flask.request.headers),
    "environ": lambda: {**flask.request.environ},
    "environ-of-the-headers-in-c": lambda: orjson.dumps(flask.request.headers.environ, default=str),
    "class-of-the-cookies": lambda: type(flask.request.cookies)(flask.request.cookies),
    "protocol": lambda: flask.request.environ.get("SERVER_PROTOCOL"),
    "port-of-the-server": lambda: flask.request.server,
    "port-of-the-server-in-environ": lambda: flask.request.environ["SERVER_PORT"],
    "address-before-the-proxy": lambda: flask.request.environ["werkzeug.proxy_fix.orig"]["REMOTE_ADDR"],
}
DETAILS = {
    "address": "reads REMOTE_ADDR",
    "user": "reads REMOTE_USER",
    "cookies": "reads all cookies",
    "headers": "reads all headers",
    "protocol": "reads SERVER_PROTOCOL",
}
READ = {
    "header": lambda: flask.request.headers.get("X-Flavor"),
    "presence": lambda: "X-Flavor" in flask.request.headers,
    "environ-item": lambda: flask.request.environ.get("HTTP_X_FLAVOR"),
    "browser": lambda: flask.request.user_agent.string,
    "language": lambda: flask.request.accept_languages.best,
    "cookie": lambda: flask.request.cookies.get("flavor"),
    "session": lambda: flask.request.cookies.get("session"),
    "list": lambda: flask.request.cookies.getlist("flavor"),
    "some-cookie": lambda: bool(flask.request.cookies),
    "connection": lambda: flask.request.headers.get("Connection"),
    "type": lambda: flask.request.mimetype,
}


def cache_on(clock, **options):
    """Return a cache whose time the test moves."""
    cache = HTTPCache(**options)
    cache._site = site_on(clock, has_companion=True)
    return cache


class FlaskSite(WsgiSite):
    def __init__(self, clock, app_class=flask.Flask, middleware=lambda app: ProxyFix(app, x_host=1), **options):
        self.cache = cache_on(clock, **{"figures_dir": None, **options})
        app = app_class(__name__)
        app.secret_key = "not secret"
        app.wsgi_app = middleware(app.wsgi_app)
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

        @app.get("/seen")
        @app.get("/<country>/seen")
        @self.cache.cached(60)
        def seen(country=""):
            request = flask.request
            parts = (country, request.host, request.headers.get("X-Country"), request.cookies.get("theme"))
            return f"{parts} {request.get_data()} {request.args.to_dict()}"

        @app.get("/seen-own")
        @self.cache.cached(60)
        def seen_own():
            return str(flask.request.environ.get("site.country"))

        @app.get("/login/<name>")
        def login(name):
            flask.session["name"] = name
            return "hello"

        @app.get("/tagged/<tag>")
        @self.cache.cached(60)
        def tagged(tag):
            if tag == "assigned":
                flask.g.cache_tags = {tag}
            flask.g.cache_tags.add(tag)
            return f"page {next(numbers)}", {"Cache-Tag": "all, pages"}

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
def make_site(clock, closed):
    def make(**options):
        site = FlaskSite(clock, **options)
        closed(site.cache.cache)
        return site

    return make


@pytest.fixture
def site(make_site):
    return make_site()


class TestPageTags(PageTags):
    pass


def test_the_command_and_the_dashboard_find_the_pages_of_an_app_without_another_cache(site, tmp_path):
    app = flask.Flask("app", instance_path=str(tmp_path))
    pages = HTTPCache(figures_dir=tmp_path / "figures")
    pages.init_app(app)
    for arguments in (["--json"], ["purge", "example.com"]):
        done = app.test_cli_runner().invoke(wheelcache, arguments)
        assert done.exit_code == 1
        assert f"No worker of this site publishes figures. Looked in {tmp_path / 'figures'}" in done.output
    app.register_blueprint(dashboard(lambda: {"operate"}))
    found = app.test_client().get("/wheelcache/figures.json").json["caches"]
    assert [(each["name"], each["pages"]["stored"]) for each in found] == [("pages", 0)]
    pages.cache.close()


def test_the_figures_are_published_where_the_app_publishes_those_of_its_caches(tmp_path):
    app = flask.Flask("app", instance_path=str(tmp_path))
    pages = HTTPCache()
    pages.init_app(app)
    assert pages.cache.engine.observed.observer.publication.publisher.file.directory == figures_directory(app)
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


@pytest.mark.parametrize("part", SHOWN)
def test_each_visitor_gets_the_page_of_the_request_that_middleware_makes(make_site, clock, part):
    site = make_site(middleware=lambda app: ByCookie(app, part))
    reason = f"changed by a middleware inside the cache: {SHOWN[part]}"
    assert site.get(target_of(part), VISITORS[1]).detail.endswith(f'detail="{reason}"')
    hits = assert_that_each_visitor_gets_their_page(site, part, clock)
    assert (hits > 0) is (part != "own")


@pytest.mark.parametrize("what", READ)
def test_a_header_or_a_cookie_that_a_page_reads_is_a_part_of_its_key(site, what):
    def request(flavor):
        names = ("X-Flavor", "User-Agent", "Accept-Language", "Connection", "Content-Type")
        sent = f"session={flavor}" if what == "session" else f"flavor={flavor}"
        return dict.fromkeys(names, flavor) | ({"Cookie": sent} if flavor != "en" else {})

    url = f"/reads/{what}"
    if what != "presence":
        assert site.get(url, request("de")).body != site.get(url, request("en")).body
    assert site.get(url, request("de")).body != site.get(url).body
    assert is_stored(site, url, request("de"))
    assert is_stored(site, url, request("en"))
    assert is_stored(site, url)


ASKED = {
    "attribute": lambda: str(hasattr(flask.request, "cookies") and hasattr(flask.request, "environ")),
    "cookies": lambda: "some" if flask.request.cookies else "none",
    "response of Werkzeug": lambda: werkzeug.Response("page"),
    "context": lambda: flask.copy_current_request_context(lambda: "page")(),
    "headers": lambda: str(flask.request.headers == flask.request.headers),
    "file": lambda: flask.send_file(__file__, max_age=60),
    "set": lambda: flask.request.environ.update({"site.item": "value"}) or "page",
}


@pytest.mark.parametrize("what", ASKED)
def test_an_access_that_reads_nothing_makes_no_variants(make_site, what):
    site = make_site(rules=[("/*", ttl(60))])
    site.app.add_url_rule("/asked", "asked", ASKED[what])
    assert hits(site, "/asked") == 11


@pytest.mark.parametrize("what", REFUSED)
def test_a_page_that_cannot_be_keyed_is_not_stored(site, what):
    url = f"/reads/{what}"
    assert site.get(url, {"Cookie": "a=1"}).status == 200
    assert not is_stored(site, url, {"Cookie": "a=1"})
    assert DETAILS.get(what, "") in site.get(url).detail


COOKIES = {
    "a space of Unicode": "\xc2\xa0flavor=EVIL",
    "a space of Latin-1": "\xa0flavor=EVIL",
    "a vertical tab": "a=1;\x0bflavor=EVIL",
    "no name": "=; flavor=EVIL",
    "a quote": 'a="; flavor=EVIL; b="',
    "the quote of another cookie": 'flavor="; a=1; flavor=EVIL"',
    "a name with a space": "a flavor=EVIL; flavor=EVIL",
    "a quote in a name": 'a"; flavor=EVIL',
}


@pytest.mark.parametrize("how", COOKIES)
def test_a_cookie_that_flask_reads_and_the_cache_does_not_poisons_no_page(site, how):
    for _ in range(2):
        site.get("/reads/cookie", {"Cookie": COOKIES[how]})
        assert site.get("/reads/cookie").body.startswith(b"None")
        assert site.get("/reads/cookie", {"Cookie": "flavor=sweet"}).body.startswith(b"'sweet'")


def test_a_session_that_the_cache_does_not_recognize_reaches_nobody_else(site):
    ada = site.get("/login/ada")["set-cookie"].partition(";")[0]
    for prefix in ("\xc2\xa0", 'a="; ', "\x0b"):
        site.get("/visitor", {"Cookie": prefix + ada})
        assert site.get("/visitor").body.startswith(b"None")


def test_a_view_that_reads_the_cookie_of_the_session_shows_each_visitor_the_own_one(site):
    for _ in range(2):
        for session in ("one", "other"):
            assert f"'{session}'" in site.get("/reads/session", {"Cookie": f"session={session}"}).body.decode()
        assert site.get("/reads/session").body.startswith(b"None")


def log(response=None):
    assert flask.request.user_agent.string is not None
    assert flask.request.remote_addr
    dict(flask.request.cookies), orjson.dumps(flask.request.cookies)
    return response


@pytest.mark.parametrize("where", ["before_request", "after_request"])
def test_the_reads_of_functions_that_log_do_not_count_if_the_site_says_so(make_site, where):
    for options, expected in (({}, 0), ({"ignore_reads_by": [f"{__name__}.log"]}, 119)):
        site = make_site(**options)
        getattr(site.app, where)(log)
        assert hits(site, "/cached", 120) == expected
        for browser in ("a", "b"):
            assert site.get("/reads/browser", {"User-Agent": browser}).body.startswith(f"'{browser}'".encode())
        assert not is_stored(site, "/reads/address")


class Nested(flask.Flask):
    """An app that logs around its views."""

    def full_dispatch_request(self):
        log()
        return super().full_dispatch_request()


def test_a_view_on_top_of_code_whose_reads_do_not_count_depends_on_what_it_reads(make_site):
    site = make_site(app_class=Nested, ignore_reads_by=[f"{__name__}.Nested", f"{__name__}.log"])
    assert hits(site, "/cached", 4) == 3
    for _ in range(2):
        for browser in ("a", "b"):
            assert site.get("/reads/browser", {"User-Agent": browser}).body.startswith(f"'{browser}'".encode())


def test_code_that_cannot_be_imported_is_an_error_at_the_first_request(make_site):
    site = make_site(ignore_reads_by=[f"{__name__}.nothing"])
    with pytest.raises(ValueError, match=r"ignore_reads_by contains '.*\.nothing', which cannot be imported"):
        site.get("/cached")


def test_the_code_that_reads_is_found(site, tmp_path):
    (tmp_path / "page").write_text("\n{{ request.cookies.theme }}{{ request.cookies['theme'] }}")
    site.app.jinja_loader = FileSystemLoader(tmp_path)
    site.app.before_request(log)
    site.app.get("/rendered")(lambda: flask.render_template("page"))
    found = traced(site, site.app.wsgi_app, "/rendered").found
    assert [read[:2] + read[3:4] for read in found[:3]] == [
        (what, __file__, "log") for what in ("User-Agent", "REMOTE_ADDR", "all cookies")
    ]
    assert [read[:4] for read in found[3:]] == [("cookie theme", str(tmp_path / "page"), 2, None)]


@pytest.mark.parametrize(
    ("target", "unread"), [("/arguments?page=1&gclid=x", {"gclid"}), ("/cached?a=1", {"a"}), ("/url?a=1", set())]
)
def test_parameters_that_the_application_never_reads_are_recorded(site, target, unread):
    site.app.add_url_rule("/arguments", "arguments", lambda: flask.request.args.get("page", ""))
    site.app.add_url_rule("/url", "url", lambda: flask.request.full_path)
    assert traced(site, site.app.wsgi_app, target).unread == unread


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


def test_the_cookie_of_the_session_must_be_known():
    app = flask.Flask(__name__)
    app.config["SESSION_COOKIE_NAME"] = "shop"
    pages = HTTPCache()
    with pytest.raises(ValueError, match="session_cookies must contain 'shop'"):
        pages.init_app(app)
    HTTPCache(session_cookies=["shop"]).init_app(app)


@pytest.mark.parametrize("seconds", [0, -1, "60", None])
def test_the_lifetime_must_be_a_number_of_seconds(site, seconds):
    with pytest.raises((TypeError, ValueError), match="seconds must be"):
        site.cache.cached(seconds)


class Strange(NotFound):
    """An error that shows a part of the request."""

    def get_body(self, environ=None, scope=None):
        return environ.get("HTTP_X_FLAVOR", "none")


def fail(error):
    raise error


def shows_flavor(environ, start_response):
    start_response("404 Not Found", [])
    return [environ.get("HTTP_X_FLAVOR", "none").encode()]


ERRORS = {
    "strange": lambda: fail(Strange()),
    "given": lambda: fail(NotFound(response=shows_flavor)),
    "application": lambda: shows_flavor,
}


def test_errors_of_werkzeug_are_stored_and_those_of_the_app_reach_nobody_else(make_site):
    site = make_site(rules=[("/*", ttl(60))])
    site.app.add_url_rule("/error/<how>", "error", lambda how: ERRORS[how]())
    site.app.add_url_rule("/slash/", "slash", lambda: "page")
    for target in ("/missing", "/slash"):
        assert [site.get(target, {"X-Flavor": str(number)}).detail[:3] for number in range(2)] == ["fwd", "hit"]
    for how in ERRORS:
        assert b"evil" in site.get(f"/error/{how}", {"X-Flavor": "evil"}).body
        assert b"none" in site.get(f"/error/{how}").body


# The state of visitors.


def test_a_lifetime_of_a_rule_is_for_visitors_without_a_session(make_site):
    site = make_site(rules=[("/*", ttl(60))])
    site.app.add_url_rule("/basket", "basket", lambda: f"{flask.session.get('items', 0)} items {next(numbers)}")
    site.app.add_url_rule("/add", "add", add)
    cookie = {"Cookie": site.get("/add")["set-cookie"].partition(";")[0]}
    assert [site.get("/basket").detail[:3] for _ in range(2)] == ["fwd", "hit"]
    for _ in range(2):
        answer = site.get("/basket", cookie)
        assert answer.body.startswith(b"1 items")
        assert "depends on the cookie session, which this visitor has" in answer.detail


def add():
    flask.session["items"] = 1
    return "added"


def test_pages_lose_a_cookie(make_site):
    site = make_site(rules=[("/*", ttl(60)), ("/lost/*", without_cookies("history"))])
    for path in ("/lost/page", "/other"):
        site.app.add_url_rule(path, path, shows_history)
    details = [site.get("/lost/page", {"Cookie": f"history={each}"}).detail for each in "abc"]
    assert details[0] == 'fwd=miss; detail="keeps the cookies that a rule removes"'
    assert [each[:3] for each in details[1:]] == ["fwd", "hit"]
    assert site.get("/lost/page").body == b"none"
    assert site.get("/other", {"Cookie": "history=a"}).body == b"a"


def shows_history():
    response = flask.make_response(flask.request.cookies.get("history", "none"))
    response.set_cookie("history", flask.request.path)
    return response


def test_the_cookie_of_the_session_cannot_be_lost(make_site):
    with pytest.raises(ValueError, match="must not name the cookie of a session: 'session'"):
        make_site(rules=[("/*", without_cookies("session"))])


def test_a_rehearsal_counts_by_endpoint(make_site):
    site = make_site(rehearse=1)
    for _ in range(3):
        site.get("/cached")
    counts = site.cache.pages.rehearsal.counts()
    assert {key: found.number for key, found in counts.items() if key[1] in ("stored", "hits")} == {
        ("cached", "stored"): 1,
        ("cached", "hits"): 2,
    }


def test_a_query_that_werkzeug_cannot_decode_fails_where_the_app_reads_it(make_site):
    site = make_site(rehearse=1)
    site.app.add_url_rule("/parameters", "parameters", lambda: flask.request.args.to_dict())
    assert [site.get(f"{path}?a=\xff").status for path in ("/cached", "/parameters")] == [200, 500]


class SessionsOnServer(SessionInterface):
    """Keeps sessions as Flask-Session does."""

    def __init__(self):
        self.kept = {}

    def open_session(self, app, request):
        session = SecureCookieSession(self.kept.get(request.cookies.get("session"), {}))
        session.modified = False
        return session

    def save_session(self, app, session, response):
        response.vary.add("Cookie")
        if session.modified:
            self.kept[flask.request.cookies["session"]] = dict(session)


def test_a_message_is_not_lost_in_a_rerun(make_site, clock):
    site = make_site(rehearse=1)
    sessions = site.app.session_interface = SessionsOnServer()
    shown = []

    def flashes():
        shown.append(flask.session.pop("flash", "none"))
        return f"{shown[-1]} {next(numbers)}"

    site.app.add_url_rule("/flashes", "flashes", site.cache.cached(60)(flashes))
    for _ in range(2):
        assert b"none" in site.get("/flashes", {"Cookie": "session=1"}).body
    # Both visits, and the first rerun after each.
    clock.advance(0.2)
    assert until(lambda: len(shown) == 4)
    sessions.kept["1"] = {"flash": "saved"}
    assert until(lambda: (clock.advance(0.1), ("flashes", "noise") in site.cache.pages.rehearsal.counts())[1])
    assert "saved" in shown
    assert sessions.kept["1"] == {"flash": "saved"}


def test_a_token_of_flask_wtf_is_named_as_the_reason_for_its_cookie(make_site):
    site = make_site(rules=[("/*", ttl(60))])
    CSRFProtect(site.app)
    site.app.add_url_rule("/form", "form", lambda: flask.render_template_string("{{ csrf_token() }}"))
    assert site.get("/form").detail == 'fwd=miss; detail="CSRF token of Flask-WTF in the session"'


@pytest.mark.compiled
def test_requests_are_counted_for_the_endpoint_of_their_page(site):
    for target in ("/cached", "/cached", "/cached?page=2", "/own", "/own", "/unknown"):
        site.get(target)
    stats = site.cache.cache.stats()
    groups = {name: each for name, each in stats.groups.items() if name}
    assert {name: (each.misses, each.loads) for name, each in groups.items()} == {
        "cached": (2, 2),
        "own": (1, 2),
        NO_VIEW: (1, 1),
    }
    assert stats.pages.refused_by_view == {"own": 2, NO_VIEW: 1}
    assert groups["cached"].hits == stats.hits >= 1
    assert sum(each.misses for each in stats.groups.values()) == stats.misses
    assert sum(stats.pages.refused_by_view.values()) == sum(stats.pages.not_stored.values())


ODD = {
    "status": lambda: ("page", "fine"),
    "header": lambda: ("page", {"X-Name": "\u017c"}),
    "tags": lambda: setattr(flask.g, "cache_tags", 7) or "page",
    **{
        each: lambda each=each: ("page", {"Content-Type": each, "Cache-Control": "max-age=60"})
        for each in odd_responses.CONTENT_TYPES
    },
}


def comparable(answer):
    body, status, headers = answer
    return odd_responses.comparable(Response(b"".join(body), {name.lower(): value for name, value in headers}, status))


@pytest.mark.parametrize("name", ODD, ids=lambda name: repr(name[:60]))
def test_an_odd_response_is_as_without_the_cache(make_site, name):
    site, plain = make_site(rules=[("/odd", ttl(60))]), flask.Flask(__name__)
    for app in (site.app, plain):
        app.add_url_rule("/odd", view_func=ODD[name], methods=["GET", "POST"])
    for method in ("GET", "GET", "POST"):
        environ = site.environ(*site.parts("/odd", method=method))
        # Not by ``answer_of``, for which each status has a number.
        answer, expected = (run_wsgi_app(app, environ.copy()) for app in (site.app, plain))
        assert comparable(answer) == comparable(expected)
