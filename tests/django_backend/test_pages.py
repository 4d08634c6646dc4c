"""A Django site behind an HTTP cache: no visitor gets a page that was made for another one."""

import re
from io import StringIO

import pytest
from django.conf import settings
from django.core.checks import Tags, run_checks
from django.core.exceptions import ImproperlyConfigured
from django.core.handlers.asgi import ASGIHandler
from django.core.handlers.wsgi import WSGIHandler
from django.core.management import call_command
from django.core.management.base import CommandError
from django.utils import timezone, translation

from tests.django_backend.conftest import BACKEND
from tests.django_backend.pages_site import READS, REFUSED, numbers
from tests.http_cache.site import EPOCH, AsgiSite, WsgiSite, answer_of
from tests.waiting import until
from wheelcache.django_backend.page_cache_middleware import NAME, PageCacheMiddleware, middleware_cache
from wheelcache.django_backend.pages import COMPANION, page_cache
from wheelcache.http_cache.wsgi import renewal_pool

MIDDLEWARE = [
    COMPANION,
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]


def use_middleware(clock, **options):
    """Set the site up as one whose ``wsgi.py`` cannot be changed."""
    settings.WHEELCACHE_PAGES = {"clock": clock, "wall_clock": lambda: EPOCH + clock(), **options}
    settings.MIDDLEWARE = [NAME, *settings.MIDDLEWARE[1:]]


class DjangoOnWsgi(WsgiSite):
    def __init__(self, clock, **options):
        self.cache = page_cache(clock=clock, wall_clock=lambda: EPOCH + clock(), **options)
        self.app = self.cache.wsgi(WSGIHandler())

    def ask(self, *parts):
        # Without wsgiref's validator, which refuses other classes of environ than dict.
        return answer_of(self.app, self.environ(*parts))


class DjangoOnAsgi(AsgiSite):
    def __init__(self, clock, **options):
        self.cache = page_cache(clock=clock, wall_clock=lambda: EPOCH + clock(), **options)
        self.app = self.cache.asgi(ASGIHandler())


class MiddlewareOnWsgi(DjangoOnWsgi):
    def __init__(self, clock, **options):
        use_middleware(clock, **options)
        self.app = WSGIHandler()
        self.cache = middleware_cache()


class MiddlewareOnAsgi(DjangoOnAsgi):
    def __init__(self, clock, **options):
        use_middleware(clock, **options)
        self.app = ASGIHandler()
        self.cache = middleware_cache()


class AsyncAroundSync(MiddlewareOnAsgi):
    """A middleware that is not async makes Django call all of them in a thread."""

    def __init__(self, clock, **options):
        settings.MIDDLEWARE = [*settings.MIDDLEWARE, f"{__name__}.not_async"]
        super().__init__(clock, **options)


def not_async(get_response):
    return lambda request: get_response(request)


SITES = {
    "wsgi": DjangoOnWsgi,
    "asgi": DjangoOnAsgi,
    "middleware on wsgi": MiddlewareOnWsgi,
    "middleware on asgi": MiddlewareOnAsgi,
    "middleware on asgi, with one that is not async": AsyncAroundSync,
}


@pytest.fixture
def site_settings(settings, tmp_path):
    settings.ROOT_URLCONF = "tests.django_backend.pages_site"
    settings.MIDDLEWARE = MIDDLEWARE
    settings.LANGUAGES = [("en", "English"), ("de", "Deutsch")]
    settings.LANGUAGE_CODE = "en"
    settings.USE_I18N = True
    settings.ALLOWED_HOSTS = ["example.com", "testserver"]
    settings.SESSION_ENGINE = "django.contrib.sessions.backends.signed_cookies"
    settings.MESSAGE_STORAGE = "django.contrib.messages.storage.cookie.CookieStorage"
    settings.CACHES = {"default": {"BACKEND": BACKEND, "LOCATION": f"pages {next(numbers)}"}}
    yield settings
    translation.deactivate()
    timezone.deactivate()


@pytest.fixture(params=SITES)
def make_site(request, site_settings, clock):
    sites = []

    def make(**options):
        sites.append(SITES[request.param](clock, **options))
        return sites[-1]

    yield make
    for site in sites:
        site.cache.cache.close()


@pytest.fixture
def site(make_site):
    return make_site()


def is_stored(site, *request, **how):
    """Return whether two equal requests get the same page."""
    return site.get(*request, **how).body == site.get(*request, **how).body


def test_a_page_is_purged_by_the_tags_that_its_view_added_and_by_those_of_its_header(site):
    for tag in ("one", "all", "pages"):
        answers = [site.get("/tagged/one"), site.get("/tagged/one")]
        assert answers[0].body == answers[1].body
        other = site.get("/tagged/two").body
        site.cache.delete_tags(tag)
        answers.append(site.get("/tagged/one"))
        assert answers[2].body != answers[1].body
        assert (site.get("/tagged/two").body == other) == (tag == "one")
        assert {answer.headers.get("cache-tag") for answer in answers} == {None}


def test_a_view_may_assign_its_tags(site):
    target = "/tagged/assigned"
    assert is_stored(site, target)
    before = site.get(target).body
    site.cache.delete_tags("assigned")
    assert site.get(target).body != before


def test_a_view_whose_pages_are_not_stored_may_have_tags_as_well(site):
    answers = [site.get("/not-stored", method=method) for method in ("GET", "GET", "GET", "HEAD", "POST")]
    assert {(answer.status, answer.headers.get("cache-tag")) for answer in answers} <= {(200, None), (403, None)}
    assert [answer.status for answer in answers[:4]] == [200] * 4


@pytest.mark.parametrize("target", ["/plain", "/expires", "/by-cache-page", "/plain?a=1"])
def test_a_page_with_a_lifetime_is_made_once(site, target):
    assert is_stored(site, target)


def test_a_page_is_made_again_when_its_time_is_over(site, clock):
    first = site.get("/plain")
    clock.advance(59)
    assert site.get("/plain").body == first.body
    clock.advance(1)
    assert site.get("/plain").body != first.body


def test_the_time_that_cache_page_kept_a_page_counts(make_site, clock):
    site = make_site()
    stored = site.get("/by-cache-page")
    assert stored["cache-control"] == "max-age=600"
    # Another worker, or this one after a restart, gets the page from Django's cache.
    other = make_site()
    assert other.get("/by-cache-page").body == stored.body
    assert int(other.get("/by-cache-page")["age"]) >= 0


def test_the_cookie_of_the_language_is_a_part_of_the_key(site):
    german = {"Cookie": "django_language=de"}
    assert site.get("/language", german).body.startswith(b"de ")
    assert site.get("/language").body.startswith(b"en ")
    assert is_stored(site, "/language", german)
    assert is_stored(site, "/language")


def test_the_language_that_the_browser_asks_for_is_a_part_of_the_key(site):
    assert site.get("/language", {"Accept-Language": "de"}).body.startswith(b"de ")
    assert site.get("/language", {"Accept-Language": "en"}).body.startswith(b"en ")


def test_a_cookie_that_a_view_reads_is_a_part_of_the_key(site):
    assert site.get("/theme", {"Cookie": "theme=dark"}).body.startswith(b"dark")
    assert site.get("/theme").body.startswith(b"light")
    assert site.get("/theme", {"Cookie": "theme=blue"}).body.startswith(b"blue")
    assert is_stored(site, "/theme", {"Cookie": "theme=dark"})


@pytest.mark.parametrize("target", ["/plain", "/theme", "/visitor"])
def test_cookies_that_no_code_reads_make_no_variants(site, target):
    assert site.get(target, {"Cookie": "_ga=1"}).body == site.get(target, {"Cookie": "_ga=2"}).body


def test_browsers_share_a_page_unless_the_site_disallows_some(site, site_settings):
    assert site.get("/plain", {"User-Agent": "a"}).body == site.get("/plain", {"User-Agent": "b"}).body
    site_settings.DISALLOWED_USER_AGENTS = [re.compile("bot")]
    site.cache.purge_all()
    assert site.get("/plain", {"User-Agent": "a"}).status == 200
    assert site.get("/plain", {"User-Agent": "a bot"}).status == 403


def test_a_host_that_is_refused_leaves_no_page_for_others(site, site_settings):
    site_settings.USE_X_FORWARDED_HOST = True
    assert site.get("/host", {"X-Forwarded-Host": "evil.example"}).status == 400
    assert site.get("/host").body.startswith(b"http://example.com/ ")
    assert site.get("/host", {"X-Forwarded-Host": "evil.example"}).status == 400


def test_the_scheme_that_a_proxy_reports_is_a_part_of_the_key(site, site_settings):
    site_settings.SECURE_PROXY_SSL_HEADER = ("HTTP_X_SCHEME", "https")
    assert site.get("/host", {"X-Scheme": "https"}).body.startswith(b"https://")
    assert site.get("/host").body.startswith(b"http://")


def logged_in(site, name):
    cookie = site.get(f"/login?name={name}")["set-cookie"].partition(";")[0].strip()
    return {"Cookie": cookie}


def test_a_page_with_the_visitors_name_is_for_that_visitor(site):
    ada, bob = logged_in(site, "ada"), logged_in(site, "bob")
    for _ in range(2):
        assert site.get("/visitor", ada).body.startswith(b"ada")
        assert site.get("/visitor", bob).body.startswith(b"bob")
        assert site.get("/visitor").body.startswith(b"nobody")
    assert is_stored(site, "/visitor", ada)


def test_a_visitor_with_a_session_gets_no_page_of_all_visitors(site):
    """A view may have forgotten to say that it depends on the session."""
    shared = site.get("/plain")
    assert site.get("/plain", logged_in(site, "ada")).body != shared.body
    assert site.get("/plain").body == shared.body


def test_no_visitor_gets_the_token_of_another(site):
    assert "csrftoken" in site.get("/token")["set-cookie"]
    assert not is_stored(site, "/token")
    assert site.stats().stored == 0


def test_a_page_with_a_token_is_stored_for_its_visitor_if_the_token_is_in_the_session(make_site, site_settings):
    site_settings.CSRF_USE_SESSIONS = True
    site = make_site()
    ada, bob = ({"Cookie": site.get("/token?new")["set-cookie"].partition(";")[0].strip()} for _ in range(2))
    assert is_stored(site, "/token", ada)
    assert is_stored(site, "/token", bob)
    assert site.get("/token", ada).body != site.get("/token", bob).body
    assert site.stats().stored == 2


def test_a_page_of_cache_page_that_depends_on_cookies_is_for_the_worker_that_made_it(make_site):
    """A worker that gets it from Django's cache cannot know which cookies the view has read."""
    maker, other = make_site(), make_site()
    dark, light = {"Cookie": "theme=dark"}, {"Cookie": "theme=light"}
    for site in (maker, other):
        assert site.get("/themed", dark).body.startswith(b"dark")
        assert site.get("/themed", light).body.startswith(b"light")
    assert (maker.stats().stored, other.stats().stored) == (2, 0)


def test_whether_there_are_cookies_is_a_part_of_the_key(site):
    assert site.get("/any-cookie").body.startswith(b"False")
    assert site.get("/any-cookie", {"Cookie": "a=1"}).body.startswith(b"True")
    assert site.get("/any-cookie", {"Cookie": "a=1"}).body == site.get("/any-cookie", {"Cookie": "b=2"}).body


def test_a_renewal_in_the_background_has_no_cookies_but_those_of_the_key(make_site, clock):
    site = make_site(stale_while_revalidate=60)
    for target in ("/any-cookie", "/theme"):
        for headers in ({"Cookie": "theme=dark; a=1"}, {}):
            before = site.get(target, headers)
            clock.advance(61)
            assert site.get(target, headers).body == before.body
            assert until(lambda: not renewal_pool.pending)
            after = site.get(target, headers)
            assert after.body.split()[0] == before.body.split()[0]
            assert after.body != before.body


def test_a_page_with_messages_is_not_stored(site):
    assert not site.get("/says").detail.startswith("hit")
    assert site.stats().stored == 0


def test_a_streamed_page_of_a_site_with_sessions_is_not_stored(site):
    assert not is_stored(site, "/streamed")


@pytest.mark.parametrize("how", READS)
def test_a_header_that_a_page_reads_is_a_part_of_its_key(site, how):
    url = f"/reading/{how.replace(' ', '%20')}"
    sweet, sour = ({"X-Flavor": flavor, "User-Agent": flavor} for flavor in ("sweet", "sour"))
    assert site.get(url, sweet).body.startswith(b"sweet")
    assert site.get(url, sour).body.startswith(b"sour")
    assert is_stored(site, url, sweet)
    assert is_stored(site, url)


@pytest.mark.parametrize("how", REFUSED)
def test_a_page_that_cannot_be_keyed_is_not_stored(site, how):
    url = f"/reading/{how.replace(' ', '%20')}"
    assert site.get(url, {"Cookie": "a=1"}).status == 200
    assert not is_stored(site, url, {"Cookie": "a=1"})


def test_a_language_or_a_time_zone_that_an_earlier_request_left_behind_is_not_stored(site_settings, clock):
    site_settings.MIDDLEWARE = [name for name in MIDDLEWARE if "Locale" not in name]
    site = DjangoOnWsgi(clock)
    site.get("/activated?language=de&zone=Asia/Tokyo")
    assert site.get("/language").body.startswith(b"de ")
    assert site.get("/zone").body.startswith(b"Asia/Tokyo")
    translation.deactivate()
    timezone.deactivate()
    assert site.get("/language").body.startswith(b"en ")
    assert not site.get("/zone").body.startswith(b"Asia/Tokyo")
    site.cache.cache.close()


@pytest.mark.parametrize(
    "middleware", ["django.middleware.gzip.GZipMiddleware", "django.middleware.http.ConditionalGetMiddleware"]
)
def test_django_s_middleware_for_pages_works_behind_the_cache(make_site, site_settings, middleware):
    site_settings.MIDDLEWARE = [COMPANION, middleware, *MIDDLEWARE[1:]]
    site = make_site()
    assert is_stored(site, "/plain")
    assert is_stored(site, "/plain", {"Accept-Encoding": "gzip"})
    head = site.get("/plain", method="HEAD")
    assert (head.status, head.body) == (200, b"")
    tag = site.get("/plain").headers.get("etag")
    if tag is not None:
        assert site.get("/plain", {"If-None-Match": tag}).status == 304


def test_a_slash_is_appended(site):
    assert site.get("/slash")["location"] == "/slash/"
    assert is_stored(site, "/slash/")


def test_items_that_a_middleware_puts_into_meta_reach_the_server(site_settings, clock):
    site_settings.MIDDLEWARE = [COMPANION, f"{__name__}.put_number", *MIDDLEWARE[1:]]
    environ = {}
    site = DjangoOnWsgi(clock)
    application = site.cache.wsgi(lambda given, start: environ.update(wsgi=given) or WSGIHandler()(given, start))
    answer_of(application, site.environ(*site.parts("/plain")))
    assert environ["wsgi"]["app.number"] == 7
    assert site.stats().stored == 1
    site.cache.cache.close()


def put_number(get_response):
    def middleware(request):
        request.META["app.number"] = 7
        assert request.META["app.number"] == 7
        return get_response(request)

    return middleware


@pytest.mark.parametrize("middleware", [MIDDLEWARE[1:], [*MIDDLEWARE[1:], COMPANION], []])
def test_the_cache_insists_on_its_companion(settings, middleware):
    settings.MIDDLEWARE = middleware
    first = middleware[0] if middleware else None
    with pytest.raises(ImproperlyConfigured, match=f"MIDDLEWARE must begin with {COMPANION!r}, not with {first!r}"):
        page_cache()
    with pytest.raises(ImproperlyConfigured, match=f"MIDDLEWARE must begin with {NAME!r}, not with {first!r}"):
        PageCacheMiddleware(lambda request: None)


@pytest.mark.parametrize("given", [{"max_bytes": -1}, {"max_byte": 1}, ["max_bytes"]])
def test_a_wrong_setting_of_the_middleware_is_named_with_its_value(settings, given):
    settings.MIDDLEWARE = [NAME]
    settings.WHEELCACHE_PAGES = given
    with pytest.raises(
        ImproperlyConfigured,
        match=re.escape(f"WHEELCACHE_PAGES must be a dict of options of HTTPCache, not {given!r}: "),
    ):
        PageCacheMiddleware(lambda request: None)


@pytest.mark.parametrize(
    ("middleware", "complaint"),
    [
        ([NAME], r"No worker of this site publishes figures\. Looked in .+"),
        ([COMPANION], r"No worker of this site publishes figures\. Looked in .+"),
        ([], "None of CACHES is a cache of wheelcache.django_backend, and no pages are cached"),
    ],
)
def test_the_command_finds_the_pages_of_a_site_without_another_cache(settings, tmp_path, middleware, complaint):
    settings.CACHES = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}
    settings.MIDDLEWARE = middleware
    settings.BASE_DIR = tmp_path
    for action in (["--json"], ["purge", "example.com"]):
        with pytest.raises(CommandError, match=complaint):
            call_command("wheelcache", *action, stdout=StringIO())


def check_ids():
    """Return our errors and warnings. The checks of other apps stay registered when a test has removed the apps."""
    found = run_checks(tags=[Tags.caches])
    return [each.id for each in found if each.id.startswith("wheelcache") and "I" not in each.id]


def test_checks_report_a_companion_that_is_not_first(settings):
    settings.MIDDLEWARE = [MIDDLEWARE[1], COMPANION]
    assert check_ids() == ["wheelcache.E003"]
    settings.MIDDLEWARE = MIDDLEWARE
    assert check_ids() == []


@pytest.mark.parametrize(
    "given",
    [
        {"SESSION_SAVE_EVERY_REQUEST": True},
        {"MIDDLEWARE": [*MIDDLEWARE, "django.contrib.auth.middleware.LoginRequiredMiddleware"]},
    ],
)
def test_checks_report_a_session_that_every_page_reads(settings, given):
    settings.MIDDLEWARE = MIDDLEWARE
    for name, value in given.items():
        setattr(settings, name, value)
    assert check_ids() == ["wheelcache.W006"]
