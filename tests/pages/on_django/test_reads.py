"""Reads that do not count, since the site says so, and those that are recorded."""

from pathlib import Path

import orjson
import pytest
from asgiref.sync import markcoroutinefunction
from django.apps import apps
from django.utils.deprecation import MiddlewareMixin
from django.utils.functional import SimpleLazyObject

from tests.pages.on_django.sites import MIDDLEWARE
from tests.pages.site import hits
from tests.pages.why import traced
from wheelcache.pages.django_pages import COMPANION


class AccessLog:
    """Log in each of the ways that a middleware has."""

    def __init__(self, get_response):
        self.get_response = get_response

    def __call__(self, request):
        self.log(request)
        response = self.get_response(request)
        self.log(request)
        return response

    def log(self, request):
        assert request.META["REMOTE_ADDR"]
        # The names in a function of its own, as with a formatter.
        [*(request.headers.get(name) for name in ("User-Agent", "Referer"))]
        request.COOKIES.get("tracked"), dict(request.COOKIES), orjson.dumps(request.COOKIES)


class AsyncAccessLog(AccessLog):
    sync_capable = False
    async_capable = True

    def __init__(self, get_response):
        super().__init__(get_response)
        markcoroutinefunction(self)

    async def __call__(self, request):
        self.log(request)
        response = await self.get_response(request)
        self.log(request)
        return response


class OldAccessLog(AccessLog, MiddlewareMixin):
    def __init__(self, get_response):
        MiddlewareMixin.__init__(self, get_response)

    __call__ = MiddlewareMixin.__call__

    def process_request(self, request):
        self.log(request)

    def process_view(self, request, view, args, kwargs):
        self.log(request)

    def process_response(self, request, response):
        self.log(request)
        return response


def access_log(get_response):
    def middleware(request):
        for name in ("HTTP_USER_AGENT", "REMOTE_ADDR"):
            request.META.get(name)
        response = get_response(request)
        [request.META.get(name) for name in ("HTTP_USER_AGENT", "REMOTE_ADDR")]
        if response.streaming and not response.is_async:
            response.streaming_content = (chunk for chunk in response.streaming_content if chunk)
        return response

    return middleware


LOGS = [AccessLog, AsyncAccessLog, OldAccessLog, access_log]


@pytest.fixture(params=LOGS)
def log(request, site_settings):
    site_settings.MIDDLEWARE = [COMPANION, f"{__name__}.{request.param.__name__}", *MIDDLEWARE[1:]]
    return site_settings.MIDDLEWARE[1]


@pytest.mark.pairs(full="make_site")
@pytest.mark.parametrize("target", ["/plain", "/streamed-agent", "/agent-in-async"])
def test_the_reads_of_a_middleware_that_logs_do_not_count_if_the_site_says_so(make_site, log, target):
    assert hits(make_site(), target, 4) == 0
    # The requests differ in what the middleware reads, and only these views read the browser themselves.
    site = make_site(ignore_reads_by=[log])
    assert hits(site, target, 120 if target == "/plain" else 12) == (119 if target == "/plain" else 0)


@pytest.mark.pairs(full="make_site")
@pytest.mark.parametrize("target", ["/agent", "/agent-in-async", "/streamed-agent"])
def test_a_view_behind_a_middleware_whose_reads_do_not_count_depends_on_what_it_reads(
    make_site, site_settings, log, target
):
    # With sessions, no streamed page is stored.
    site_settings.MIDDLEWARE = site_settings.MIDDLEWARE[:2]
    site = make_site(ignore_reads_by=[log])
    for _ in range(2):
        for browser in ("a", "b"):
            assert site.get(target, {"User-Agent": browser}).body.startswith(f"{browser} ".encode())


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


def test_a_value_that_code_whose_reads_do_not_count_leaves_for_the_view_counts(make_site, site_settings):
    site_settings.MIDDLEWARE = [COMPANION, f"{__name__}.add_flavor", f"{__name__}.log_flavor"]
    site = make_site(ignore_reads_by=[f"{__name__}.log_flavor"])
    for _ in range(2):
        for flavor in ("text/sweet", "text/sour"):
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


def test_a_site_that_is_chosen_by_the_port_of_the_server_has_pages_if_its_class_is_named(make_site, site_settings):
    site_settings.MIDDLEWARE = [COMPANION, f"{__name__}.find_site", *MIDDLEWARE[1:]]
    assert hits(make_site(), "/plain", 4) == 0
    assert hits(make_site(ignore_reads_by=[f"{__name__}.Site"]), "/plain", 4) == 3


@pytest.mark.pairs(full="make_site", of="make_site")
@pytest.mark.parametrize(
    ("by", "complaint"),
    [
        (["tests.django_backend.nowhere.Log"], "cannot be imported: No module named 'tests.django_backend.nowhere'"),
        ([f"{__name__}.Log"], "cannot be imported: module .* has no attribute 'Log'"),
        ([f"{__name__}.LOGS"], "is not a class or a function in Python"),
        (["AccessLog"], "must be a list of dotted paths"),
        ("a.b", "must be a list of dotted paths of middleware and functions, such as .*, not 'a.b'"),
    ],
)
def test_a_wrong_path_of_a_middleware_is_an_error_at_start_up(make_site, by, complaint):
    with pytest.raises((TypeError, ValueError), match=f"ignore_reads_by.*{complaint}"):
        make_site(ignore_reads_by=by)


def test_code_that_cannot_be_imported_before_the_apps_are_loaded_is_an_error_at_the_first_request(
    make_site, monkeypatch
):
    monkeypatch.setattr(apps, "ready", False)
    site = make_site(ignore_reads_by=[f"{__name__}.Log"])
    assert site.get("/plain").status == 500


FILE, SITE = __file__, str(Path(__file__).with_name("pages_site.py"))


def test_the_code_that_reads_is_found(make_site, site_settings):
    site_settings.MIDDLEWARE = [COMPANION, f"{__name__}.AccessLog", *MIDDLEWARE[1:]]
    site = make_site()
    found = [read[:2] + read[3:4] for read in traced(site, site.app, "/theme").found]
    log = [(what, FILE, "AccessLog.log") for what in ("REMOTE_ADDR", "User-Agent", "Referer", "cookie tracked")]
    assert [read for read in found if read[0] != "Accept-Language"][:5] == [
        *log[:1],
        *((what, FILE, "AccessLog.log.<locals>.<genexpr>") for what in ("User-Agent", "Referer")),
        *log[3:],
        ("all cookies", FILE, "AccessLog.log"),
    ]
    assert ("cookie theme", SITE, "theme") in found
    (language,) = {read[1:] for read in found if read[0] == "cookie django_language"}
    assert language[0].endswith("django/middleware/locale.py")
    assert language[1] == "LocaleMiddleware.process_request"


def test_the_access_of_a_part_that_code_in_c_may_read_is_found(site):
    found = {read[:2] + read[3:4] for read in traced(site, site.app, "/shown/cookies/orjson").found}
    assert ("all cookies", SITE, "shown_part.<locals>.<lambda>") in found


def test_reads_that_do_not_count_are_not_recorded(make_site, site_settings):
    site_settings.MIDDLEWARE = [COMPANION, f"{__name__}.AccessLog", *MIDDLEWARE[1:]]
    site = make_site(ignore_reads_by=[f"{__name__}.AccessLog"])
    found = traced(site, site.app, "/plain").found
    assert {read.what for read in found} == {"cookie django_language", "Accept-Language"}


TEMPLATES = {
    "django": "{{ nothing }}\n{% if request.META.HTTP_X_FLAVOR %}{% endif %}",
    "token": "\n{% csrf_token %}",
    "jinja": "{{ 1 }}\n\n{{ request.headers.get('X-Flavor') }}",
}


@pytest.mark.pairs(full="make_site", of="template")
@pytest.mark.parametrize(
    ("template", "read"), [("django", ("X-Flavor", 2)), ("token", ("CSRF token", 2)), ("jinja", ("X-Flavor", 3))]
)
def test_the_line_of_the_template_that_reads_is_found(make_site, site_settings, tmp_path, template, read):
    (tmp_path / template).write_text(TEMPLATES[template])
    backend = "jinja2.Jinja2" if template == "jinja" else "django.DjangoTemplates"
    processors = ["django.template.context_processors.request"]
    site_settings.TEMPLATES = [
        {
            "BACKEND": f"django.template.backends.{backend}",
            "DIRS": [tmp_path],
            "OPTIONS": {} if template == "jinja" else {"context_processors": processors},
        }
    ]
    what, line = read
    site = make_site()
    assert (what, str(tmp_path / template), line, None) in [
        read[:4] for read in traced(site, site.app, f"/rendered/{template}").found
    ]


@pytest.mark.pairs(full="make_site", of="target")
@pytest.mark.parametrize(
    ("target", "unread"),
    [
        ("/numbered?page=1&gclid=x&y=1&y=2", {"gclid", "y"}),
        ("/host?a=1", {"a"}),
        ("/url?a=1", set()),
        ("/parameters-in-c?a=1", set()),
        ("/changed-parameters?page=1&a=1", set()),
    ],
)
def test_parameters_that_the_application_never_reads_are_recorded(site, target, unread):
    assert traced(site, site.app, target).unread == unread
