"""Reads that do not count, since the site says so, and those that are recorded."""

import flask
import orjson
import pytest
from django.http import StreamingHttpResponse
from django.template import loader
from django.utils.deprecation import MiddlewareMixin
from django.utils.functional import SimpleLazyObject
from jinja2 import FileSystemLoader

from tests.pages.on_both.sites import DJANGO, cookies_of, environ_of, of_each, query_of, traced
from tests.pages.site import hits, is_stored
from wheelcache.pages.django_pages import COMPANION


def log(request):
    """Log in each of the ways that a middleware has."""
    assert environ_of(request)["REMOTE_ADDR"]
    # The names in a function of its own, as with a formatter.
    [*(request.headers.get(name) for name in ("User-Agent", "Referer"))]
    cookies_of(request).get("tracked"), dict(cookies_of(request)), orjson.dumps(cookies_of(request))


class AccessLog(MiddlewareMixin):
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
            answer = site.get(f"/agent{number}", {"User-Agent": browser})
            assert answer.body.startswith(f"{browser} ".encode())
        assert answer.detail.startswith("hit")
    assert not is_stored(site, "/address")


@pytest.mark.parametrize("make_site", DJANGO, indirect=True)
@pytest.mark.parametrize("middleware", [AccessLog, access_log])
def test_the_reads_of_a_middleware_that_logs_do_not_count_if_the_site_says_so(make_site, site_settings, middleware):
    path = f"{__name__}.{middleware.__name__}"
    # With sessions, no streamed page is stored.
    site_settings.MIDDLEWARE = [COMPANION, path]
    check_log(
        make_site(ignore_reads_by=[path, f"{__name__}.log"]), make_site(), [agent, agent_in_async, streamed_agent]
    )


@pytest.mark.parametrize("make_site", ["Flask"], indirect=True)
@pytest.mark.parametrize("kind", ["before", "after"])
def test_the_reads_of_functions_that_log_do_not_count_if_the_app_says_so(make_site, kind):
    sites = [make_site(ignore_reads_by=[f"{__name__}.log"]), make_site()]
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


WRONG = {
    "no module": (["tests.nowhere.Log"], "cannot be imported: No module named 'tests.nowhere'"),
    "no function": ([f"{__name__}.WRONG"], "is not a class or a function in Python"),
    "a string": ("a.b", "must be a list of dotted paths of middleware and functions, such as .*, not 'a.b'"),
}


@of_each(WRONG)
def test_code_that_cannot_be_ignored_is_an_error_at_start_up_or_at_the_first_request(make_site, item):
    by, complaint = item
    with pytest.raises((TypeError, ValueError), match=f"ignore_reads_by.*{complaint}"):
        make_site(ignore_reads_by=by).get("/login/ada")


# Where the reads are.


@pytest.mark.parametrize("make_site", ["Django on WSGI", "Flask"], indirect=True)
def test_the_line_of_the_template_that_reads_is_found(make_site, site_settings, tmp_path):
    (tmp_path / "page").write_text("\n{{ request.headers.get('X-Flavor') }}")
    site_settings.TEMPLATES = [{"BACKEND": "django.template.backends.jinja2.Jinja2", "DIRS": [tmp_path]}]
    site = make_site()
    if hasattr(site, "flask"):
        site.flask.jinja_loader = FileSystemLoader(tmp_path)
        site.add("/rendered", lambda request: flask.render_template("page"))
    else:
        site.add("/rendered", lambda request: loader.get_template("page").render({}, request))
    assert ("X-Flavor", str(tmp_path / "page"), 2, None) in [read[:4] for read in traced(site, "/rendered").found]


UNREAD = {
    "one": ("?page=1&gclid=x&y=1&y=2", {"gclid", "y"}, lambda request: query_of(request).get("page")),
    "none": ("?a=1", {"a"}, lambda request: request.headers.get("Host")),
    "the URL": ("?a=1", set(), lambda request: getattr(request, "full_path", None) or request.get_full_path()),
    "in C": ("?a=1", set(), lambda request: orjson.dumps(query_of(request)).decode()),
}


@of_each(UNREAD)
def test_parameters_that_the_application_never_reads_are_recorded(make_site, item):
    query, unread, read = item
    site = make_site()
    site.add("/page", read)
    assert traced(site, f"/page{query}").unread == unread
