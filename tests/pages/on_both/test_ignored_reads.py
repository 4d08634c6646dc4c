"""Reads that do not count, since the site says so, and those that are recorded."""

import flask
import orjson
import pytest
from asgiref.sync import markcoroutinefunction
from django.apps import apps
from django.http import StreamingHttpResponse
from django.template import loader
from django.utils.deprecation import MiddlewareMixin
from django.utils.functional import SimpleLazyObject
from jinja2 import FileSystemLoader

from tests.pages.on_both.sites import DJANGO, MIDDLEWARE, cookies_of, environ_of, of_each, response_to
from tests.pages.site import hits, is_stored
from wheelcache.pages.django_pages import COMPANION


def log(request):
    """Log in each of the ways that a middleware has."""
    assert environ_of(request)["REMOTE_ADDR"]
    # The names in a function of its own, as with a formatter.
    [*(request.headers.get(name) for name in ("User-Agent", "Referer"))]
    cookies_of(request).get("tracked"), dict(cookies_of(request)), orjson.dumps(cookies_of(request))


class AccessLog:
    def __init__(self, get_response):
        self.get_response = get_response

    def __call__(self, request):
        log(request)
        response = self.get_response(request)
        log(request)
        return response


class AsyncAccessLog(AccessLog):
    sync_capable = False
    async_capable = True

    def __init__(self, get_response):
        super().__init__(get_response)
        markcoroutinefunction(self)

    async def __call__(self, request):
        log(request)
        response = await self.get_response(request)
        log(request)
        return response


class OldAccessLog(AccessLog, MiddlewareMixin):
    def __init__(self, get_response):
        MiddlewareMixin.__init__(self, get_response)

    __call__ = MiddlewareMixin.__call__

    def process_request(self, request):
        log(request)

    def process_view(self, request, view, args, kwargs):
        log(request)

    def process_response(self, request, response):
        log(request)
        return response


def access_log(get_response):
    def middleware(request):
        log(request)
        response = get_response(request)
        if response.streaming and not response.is_async:
            response.streaming_content = (chunk for chunk in response.streaming_content if chunk)
        return response

    return middleware


def add_log(site, kind):
    """Let a site of Flask log before or after each request."""
    if kind == "before":
        site.flask.before_request(lambda: log(flask.request))
    else:
        site.flask.after_request(lambda response: log(flask.request) or response)


class Nested(flask.Flask):
    """An app that logs around its views."""

    def full_dispatch_request(self):
        log(flask.request)
        return super().full_dispatch_request()


def agent(request):
    return request.headers.get("User-Agent")


async def agent_in_async(request):
    return request.headers.get("User-Agent")


def streamed_agent(request):
    def body():
        yield f"{request.META.get('HTTP_USER_AGENT')} "

    async def async_body():
        for each in body():
            yield each

    return StreamingHttpResponse(async_body() if hasattr(request, "scope") else body())


def check_log(site, other, agents):
    """Check that reads of the log count on the ``other`` site only, and those of the views on both."""
    for each in (site, other):
        each.add("/plain", lambda request: "plain")
    for number, view in enumerate(agents):
        site.add(f"/agent{number}", view)
    site.add("/address", lambda request: environ_of(request).get("REMOTE_ADDR"))
    assert hits(other, "/plain", 4) == 0
    assert hits(site, "/plain", 12) == 11
    for number in range(len(agents)):
        for browser in ("a", "b") * 2:
            assert site.get(f"/agent{number}", {"User-Agent": browser}).body.startswith(f"{browser} ".encode())
    assert not is_stored(site, "/address")


@pytest.mark.parametrize("make_site", DJANGO, indirect=True)
@pytest.mark.parametrize("middleware", [AccessLog, AsyncAccessLog, OldAccessLog, access_log])
def test_the_reads_of_a_middleware_that_logs_do_not_count_if_the_site_says_so(make_site, site_settings, middleware):
    path = f"{__name__}.{middleware.__name__}"
    # With sessions, no streamed page is stored.
    site_settings.MIDDLEWARE = [COMPANION, path]
    check_log(
        make_site(ignore_reads_by=[path, f"{__name__}.log"]), make_site(), [agent, agent_in_async, streamed_agent]
    )


@pytest.mark.parametrize("make_site", ["Flask"], indirect=True)
@pytest.mark.parametrize("kind", ["before", "after", "around"])
def test_the_reads_of_functions_that_log_do_not_count_if_the_app_says_so(make_site, kind):
    app_class = Nested if kind == "around" else flask.Flask
    sites = [make_site(app_class=app_class, **options) for options in ({"ignore_reads_by": [f"{__name__}.log"]}, {})]
    if kind != "around":
        for site in sites:
            add_log(site, kind)
    check_log(*sites, [agent])


def add_flavor(get_response):
    def middleware(request):
        request.flavor = SimpleLazyObject(lambda: request.META.get("HTTP_X_FLAVOR"))
        return get_response(request)

    return middleware


def log_flavor(get_response):
    def middleware(request):
        assert str(request.flavor)
        assert request.accepted_types is not None
        return get_response(request)

    return middleware


@pytest.mark.parametrize("make_site", DJANGO, indirect=True)
def test_a_value_that_code_whose_reads_do_not_count_leaves_for_the_view_counts(make_site, site_settings):
    site_settings.MIDDLEWARE = [COMPANION, f"{__name__}.add_flavor", f"{__name__}.log_flavor"]
    site = make_site(ignore_reads_by=[f"{__name__}.log_flavor"])
    site.add("/flavor", lambda request: f"{request.flavor} {request.accepted_types[0]}")
    for flavor in ("text/sweet", "text/sour") * 2:
        assert site.get("/flavor", {"X-Flavor": flavor}).body.startswith(flavor.encode())
        assert site.get("/flavor", {"Accept": flavor}).body.startswith(f"None {flavor}".encode())


class Site:
    """A site that is chosen by the host and the port, as in Wagtail."""

    @staticmethod
    def find_for_request(request):
        return Site._found(request.get_host(), request.get_port())

    @staticmethod
    def _found(host, port):
        return f"{host} {port}"


def find_site(get_response):
    def middleware(request):
        request.site = Site.find_for_request(request)
        return get_response(request)

    return middleware


@pytest.mark.parametrize("make_site", ["Django on WSGI", "Django on ASGI"], indirect=True)
def test_a_site_that_is_chosen_by_the_port_of_the_server_has_pages_if_its_class_is_named(make_site, site_settings):
    site_settings.MIDDLEWARE = [COMPANION, f"{__name__}.find_site", *MIDDLEWARE[1:]]
    for options, expected in (({}, 0), ({"ignore_reads_by": [f"{__name__}.Site"]}, 3)):
        site = make_site(**options)
        site.add("/plain", lambda request: "plain")
        assert hits(site, "/plain", 4) == expected


WRONG = {
    "no module": (["tests.nowhere.Log"], "cannot be imported: No module named 'tests.nowhere'"),
    "no name": ([f"{__name__}.Log"], "cannot be imported: module .* has no attribute 'Log'"),
    "no function": ([f"{__name__}.WRONG"], "is not a class or a function in Python"),
    "no path": (["AccessLog"], "must be a list of dotted paths"),
    "a string": ("a.b", "must be a list of dotted paths of middleware and functions, such as .*, not 'a.b'"),
}


@of_each(WRONG)
def test_code_that_cannot_be_ignored_is_an_error_at_start_up_or_at_the_first_request(make_site, item):
    by, complaint = item
    with pytest.raises((TypeError, ValueError), match=f"ignore_reads_by.*{complaint}"):
        make_site(ignore_reads_by=by).get("/login/ada")


def test_django_imports_the_code_at_the_first_request_if_its_apps_are_not_loaded(site_settings, clock, monkeypatch):
    monkeypatch.setattr(apps, "ready", False)
    site = DJANGO["Django on WSGI"](clock, ignore_reads_by=[f"{__name__}.Log"])
    assert site.get("/login/ada").status == 500


# Where the reads are.


def reads_of(site, target):
    return [read[:2] + read[3:4] for read in site.traced(target).found if read.what != "Accept-Language"]


def test_the_code_that_reads_is_found(make_site, site_settings):
    site_settings.MIDDLEWARE = [COMPANION, f"{__name__}.AccessLog", *MIDDLEWARE[1:]]
    site = make_site()
    site.add("/theme", lambda request: cookies_of(request).get("theme"))
    if hasattr(site, "flask"):
        add_log(site, "before")
    found = reads_of(site, "/theme")
    assert found[:5] == [
        ("REMOTE_ADDR", __file__, "log"),
        ("User-Agent", __file__, "log.<locals>.<genexpr>"),
        ("Referer", __file__, "log.<locals>.<genexpr>"),
        ("cookie tracked", __file__, "log"),
        ("all cookies", __file__, "log"),
    ]
    assert ("cookie theme", __file__, f"{test_the_code_that_reads_is_found.__name__}.<locals>.<lambda>") in found
    if not hasattr(site, "flask"):
        (language,) = [read for read in found if read[0] == "cookie django_language"]
        assert language[2] == "LocaleMiddleware.process_request"


def test_reads_that_do_not_count_are_not_recorded(make_site, site_settings):
    site_settings.MIDDLEWARE = [COMPANION, f"{__name__}.AccessLog"]
    site = make_site(ignore_reads_by=[f"{__name__}.AccessLog", f"{__name__}.log"])
    site.add("/plain", lambda request: "plain")
    if hasattr(site, "flask"):
        add_log(site, "before")
    assert reads_of(site, "/plain") == []


TEMPLATES = {
    "django": ("{{ nothing }}\n{% if request.META.HTTP_X_FLAVOR %}{% endif %}", "X-Flavor"),
    "token": ("\n{% csrf_token %}", "CSRF token"),
    "jinja": ("\n{{ request.headers.get('X-Flavor') }}", "X-Flavor"),
}


@pytest.mark.parametrize(
    ("make_site", "name"),
    [*(("Django on WSGI", name) for name in TEMPLATES), ("Flask", "jinja")],
    indirect=["make_site"],
)
def test_the_line_of_the_template_that_reads_is_found(make_site, site_settings, tmp_path, name):
    text, what = TEMPLATES[name]
    (tmp_path / name).write_text(text)
    backend = "jinja2.Jinja2" if name == "jinja" else "django.DjangoTemplates"
    options = {} if name == "jinja" else {"context_processors": ["django.template.context_processors.request"]}
    site_settings.TEMPLATES = [
        {"BACKEND": f"django.template.backends.{backend}", "DIRS": [tmp_path], "OPTIONS": options}
    ]
    site = make_site()
    if hasattr(site, "flask"):
        site.flask.jinja_loader = FileSystemLoader(tmp_path)
        site.add("/rendered", lambda request: flask.render_template(name))
    else:
        site.add("/rendered", lambda request: response_to(request, loader.get_template(name).render({}, request)))
    assert (what, str(tmp_path / name), 2, None) in [read[:4] for read in site.traced("/rendered").found]


def parameters(request):
    return request.GET if hasattr(request, "GET") else request.args


def changed(request):
    """Change the parameters, as some sites do."""
    request.GET._mutable = True
    request.GET["page"] = "2"
    request.GET._mutable = False
    return request.GET["page"]


UNREAD = {
    "one": ("?page=1&gclid=x&y=1&y=2", {"gclid", "y"}, lambda request: parameters(request).get("page")),
    "none": ("?a=1", {"a"}, lambda request: request.headers.get("Host")),
    "the URL": (
        "?a=1",
        set(),
        lambda request: request.full_path if hasattr(request, "full_path") else request.get_full_path(),
    ),
    "in C": ("?a=1", set(), lambda request: orjson.dumps(parameters(request)).decode()),
}


@of_each(UNREAD, django={"changed": ("?page=1&a=1", set(), changed)})
def test_parameters_that_the_application_never_reads_are_recorded(make_site, item):
    query, unread, read = item
    site = make_site()
    site.add("/page", read)
    assert site.traced(f"/page{query}").unread == unread
