"""Pages with CSRF tokens are shared, and each visitor has a token of the own secret."""

import gzip
import re
import time
import zlib
from base64 import b64encode
from email.utils import parsedate_to_datetime
from http import cookies as http_cookies

import pytest
from django.core.cache import cache
from django.core.checks import Tags, run_checks
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpResponse, StreamingHttpResponse
from django.middleware import csrf
from django.middleware.csrf import CsrfViewMiddleware, _does_token_match, _unmask_cipher_token, get_token, rotate_token
from django.template import engines
from django.urls import path
from django.utils.crypto import get_random_string
from django.utils.deprecation import MiddlewareMixin
from django.utils.html import escapejs
from django.utils.safestring import mark_safe
from django.views.decorators.cache import cache_control, cache_page
from django.views.decorators.csrf import csrf_protect, ensure_csrf_cookie, requires_csrf_token

from tests.pages.on_both.sites import MIDDLEWARE, ONE, OTHER, DjangoOnWsgi, numbers, of_each
from tests.pages.site import is_stored
from wheelcache.pages import without_cookies

ALNUM = csrf.CSRF_ALLOWED_CHARS
FORMS = "/forms/1"
NOT_STORED = {"Cache-Control": "no-store"}
"""With it, what a view keeps for later requests is of the visitor of this one."""


for_a_minute = cache_control(max_age=60)

FORM = '<form method="post">{% csrf_token %}<input name="a"></form>'
LONG = "Enough text to be compressed. " * 20
DIGEST = "0af7" * 16


def rendered(request, text):
    return engines["django"].from_string(text).render({"number": next(numbers)}, request)


def rendering(text):
    """Return a view, which accepts its form."""
    return lambda request: HttpResponse("accepted" if request.method == "POST" else rendered(request, text))


def showing(*reads):
    """Return a view whose page shows the token, and more."""
    return lambda request: HttpResponse(" ".join(str(read(request)) for read in [get_token, *reads]))


def fragment(request, escape=str):
    """Return the form that the first visitor has got."""
    kept = cache.get_or_set("fragment", lambda: mark_safe(rendered(request, FORM)))
    return f"{escape(kept)} {next(numbers)}"


def streamed(request, text):
    async def async_body():
        yield text(request)

    return StreamingHttpResponse(async_body() if hasattr(request, "scope") else map(text, [request]))


def adding(add):
    """Return a view whose response has a token, and what ``add(response, token, secret)`` adds."""

    def view(request):
        response = HttpResponse(f"{(token := get_token(request))} ")
        add(response, token, secret(request))
        return response

    return view


def rotated(request):
    token = get_token(request)
    rotate_token(request)
    return HttpResponse(f"{token} {get_token(request)}")


def secret(request):
    """Return the secret. The first read does not count, and the next is not noticed."""
    meta = request.META
    meta.get("wsgi.multithread")
    return dict.get(meta, "CSRF_COOKIE")


def masked(secret):
    """Return a token of a secret without Django's function: each character is moved by that of the mask."""
    return "b" * 32 + "".join(ALNUM[(ALNUM.index(each) + 1) % 62] for each in secret)


SAFE = {
    "decorated": csrf_protect(showing()),
    "required": requires_csrf_token(showing()),
    "ensured": ensure_csrf_cookie(lambda request: HttpResponse(f"ensured {next(numbers)}")),
    "hundred": lambda request: HttpResponse(" ".join(get_token(request) for _ in range(100))),
}
"""Pages that are shared: each visitor has a token of the own secret."""

HOSTILE = {
    "stream": lambda request: streamed(request, get_token),
    "escaped": lambda request: HttpResponse("".join(f"\\u{ord(each):04x}" for each in get_token(request))),
    "base64": lambda request: HttpResponse(b64encode(get_token(request).encode())),
    "unused": lambda request: HttpResponse(f"{get_token(request)[:0]}unused"),
    "rotated": rotated,
    "hundred-and-one": lambda request: HttpResponse(" ".join(get_token(request) for _ in range(101))),
    # In a header.
    "in-header": adding(lambda response, token, own: response.headers.setdefault("X-Token", token)),
    "in-cookie": adding(lambda response, token, own: response.set_cookie("XSRF-TOKEN", token)),
    "in-reason": adding(lambda response, token, own: setattr(response, "reason_phrase", f"OK {token}")),
    "remasked": adding(lambda response, token, own: response.write(masked(own))),
    # Reads of the secret.
    "reads-cookie": showing(lambda request: request.COOKIES.get("csrftoken")),
    "reads-cookie-only": lambda request: HttpResponse(str(request.COOKIES.get("csrftoken"))),
    "reads-entry": showing(lambda request: request.META["CSRF_COOKIE"]),
    "reads-entry-only": lambda request: HttpResponse(str(request.META.get("CSRF_COOKIE"))),
    "reads-header": showing(lambda request: request.META.get("HTTP_COOKIE")),
    "found-secret": lambda request: HttpResponse(str(CsrfViewMiddleware(rotated)._get_secret(request))),
    # The form of another visitor.
    "cache-page": cache_page(600)(rendering(FORM)),
    "fragment": lambda request: HttpResponse(fragment(request)),
    "fragment-in-script": lambda request: HttpResponse(fragment(request, escapejs)),
    "fragment-in-utf-16": lambda request: HttpResponse(fragment(request), charset="utf-16"),
    "fragment-in-a-stream": lambda request: streamed(request, lambda request: fragment(request) + "y" * 300),
}
"""By name. None of these pages may be stored, or show a visitor anything of another one."""

OTHERS = {
    **{f"forms/{number}": rendering("<p>page {{ number }}</p>" + FORM * number) for number in (1, 10)},
    "long": rendering(FORM + LONG),
    "words": lambda request: HttpResponse(LONG),
    "comment": lambda request: HttpResponse("csrfmiddlewaretoken is the name of a field. " + "0af7" * 8),
    "digests": lambda request: HttpResponse(f"<i>{DIGEST}</i><code>csrfmiddlewaretoken</code><i>{DIGEST}</i>"),
    "dated": lambda request: HttpResponse(get_token(request), headers={"Last-Modified": "0"}),
    "styles": lambda request: HttpResponse("* {color: red}", content_type="text/css"),
}


class Signed(HttpResponse):
    """A response that is completed while the server iterates over it."""

    def __iter__(self):
        return iter([self.content.replace(b"unsigned", b"signed  ")])


urlpatterns = [
    *(path(name, for_a_minute(view)) for name, view in {**SAFE, **HOSTILE, **OTHERS}.items()),
    path("signed", for_a_minute(lambda request: Signed(rendered(request, f"unsigned {FORM}")))),
]


@pytest.fixture(autouse=True)
def urls(site_settings):
    site_settings.ROOT_URLCONF = __name__


@pytest.fixture
def insert(site_settings):
    """Let middleware of this module, or of Django, run first behind the companion."""

    def insert(*names):
        paths = [name if "." in name else f"{__name__}.{name}" for name in names]
        site_settings.MIDDLEWARE = [MIDDLEWARE[0], *paths, *MIDDLEWARE[1:]]

    return insert


GZIP = "django.middleware.gzip.GZipMiddleware"


class Visitor:
    """A browser with its cookies.

    Attributes:
        secrets: those that it has had.
    """

    def __init__(self, site, secret=None):
        self.site = site
        self.secret = secret
        self.secrets = {secret}

    def get(self, target, headers=(), **how):
        cookie = {} if self.secret is None else {"Cookie": f"csrftoken={self.secret}; analytics=1"}
        answer = self.site.get(target, {**cookie, **dict(headers)}, **how)
        sent = http_cookies.SimpleCookie(answer.headers.get("set-cookie", ""))
        if "csrftoken" in sent:
            self.secret = sent["csrftoken"].value
            self.secrets.add(self.secret)
        return answer

    def post(self, token):
        body = f"csrfmiddlewaretoken={token}&a=1".encode()
        return self.get(FORMS, {"Content-Type": "application/x-www-form-urlencoded"}, method="POST", body=body)


def visitor(site):
    return Visitor(site, get_random_string(32, ALNUM))


def tokens(answer):
    return re.findall(r"[a-zA-Z0-9]{64}", answer.body.decode())


def is_for(answer, secret):
    found = tokens(answer)
    return bool(found) and all(_does_token_match(each, secret) for each in found)


def shows(answer, secret):
    """Return whether an answer contains a secret, or any text that Django takes for a token of it."""
    text = "\n".join([answer.body.decode("latin-1")[:5000], *map(str, answer.headers.values())])
    windows = (found[1] for found in re.finditer(r"(?=([a-zA-Z0-9]{64}))", text))
    return secret in text or any(_unmask_cipher_token(each) == secret for each in windows)


# Shared pages.


@pytest.mark.parametrize("target", [FORMS, "/forms/10", *(f"/{name}" for name in SAFE if name != "ensured")])
def test_visitors_share_a_page_and_have_a_token_of_their_own_secret(site, target):
    first = visitor(site).get(target)
    assert first.detail == "fwd=miss; stored"
    for other in (visitor(site), Visitor(site), visitor(site)):
        secret = other.secret
        answer = other.get(target)
        assert answer.detail.startswith("hit"), answer.detail
        assert re.sub(rb"\w{64}", b"-", answer.body) == re.sub(rb"\w{64}", b"-", first.body)
        assert secret in (None, other.secret)
        assert is_for(answer, other.secret)
    assert site.stats().stored == 1


@of_each(django={name: name for name in HOSTILE})
def test_a_page_with_anything_else_of_its_visitor_is_not_stored_and_nothing_reaches_another_one(make_site, item):
    site, view = make_site(), item
    # What finds no secret shows none, and is the same for all.
    stranger = visitor(site) if view == "found-secret" else Visitor(site)
    seen = [visitor(site), visitor(site), stranger, visitor(site)]
    seen[0].get(f"/{view}", NOT_STORED)
    for each in seen[1:] * 2:
        is_known = each.secret is not None
        answer = each.get(f"/{view}")
        assert not (is_known and answer.detail.startswith("hit"))
        others = set().union(*(other.secrets for other in seen if other is not each)) - {None}
        # A view that keeps a form of another visitor leaks it without this cache, too.
        assert "fragment" in view or view == "cache-page" or not any(shows(answer, secret) for secret in others)


@pytest.mark.parametrize("target", ["/comment", "/digests"])
def test_text_about_tokens_keeps_no_page_from_being_stored(site, target):
    assert [visitor(site).get(target).detail[:3] for _ in range(2)] == ["fwd", "hit"]


def test_two_hits_of_one_visitor_have_different_tokens_of_all_characters(site):
    one = visitor(site)
    found = [tokens(one.get("/hundred")) for _ in range(4)]
    assert len({each[0] for each in found}) == 4
    # A hit masks once for all blanks, with characters of the whole alphabet.
    texts = "".join(tokens(one.get(FORMS))[0] for _ in range(40))
    assert set(texts) == set(ALNUM)


def test_a_form_of_a_hit_is_accepted_with_the_own_token_only(site):
    visitor(site).get(FORMS)
    one, other = visitor(site), Visitor(site)
    # Before the first form, which removes the page.
    pairs = [(*tokens(one.get(FORMS)), *tokens(other.get(FORMS))) for _ in range(3)]
    assert site.stats().stored == 1
    for own, foreign in pairs:
        assert one.post(own).body == other.post(foreign).body == b"accepted"
        assert one.post(foreign).status == other.post(own).status == 403


# The cookie.

A, B = "A" * 16 + "c" * 16, "B" * 16 + "d" * 16


@pytest.mark.parametrize(
    "header",
    [
        f"csrftoken={A}; csrftoken={B}",
        f"csrftoken={A}; a=1; csrftoken=",
        f"csrftoken={A}; csrftoken\xa0={B}",
        f"csrftoken={A}; \xc2\xa0csrftoken={B}",
        f"csrftoken={A}\xc2\xa0",
        f'csrftoken="{A}"',
        f'a="; csrftoken={A}; b="',
        f"csrftoken; csrftoken={A}",
        f"csrftoken={A[:-1]}!",
    ],
)
def test_a_cookie_that_django_may_read_differently_bypasses_the_page(site, header):
    visitor(site).get(FORMS)
    answer = site.get(FORMS, {"Cookie": header})
    assert answer.detail.startswith("fwd=bypass"), answer.detail
    assert is_for(answer, http_cookies.SimpleCookie(answer["set-cookie"])["csrftoken"].value)


@pytest.mark.parametrize("value", ["", "x" * 31, "x" * 33, "x" * 63, "x" * 65, "x" * 5000])
def test_a_cookie_of_the_wrong_length_is_replaced(site, value):
    visitor(site).get(FORMS)
    odd = Visitor(site, value)
    answer = odd.get(FORMS)
    assert len(odd.secret) == 32
    assert is_for(answer, odd.secret)


def test_a_masked_cookie_of_an_old_django_is_unmasked(site):
    visitor(site).get(FORMS)
    secret = get_random_string(32, ALNUM)
    old = Visitor(site, masked(secret))
    assert is_for(old.get(FORMS), secret)
    assert old.secret == secret


@pytest.mark.parametrize("age", [1000, None])
def test_the_cookie_of_a_hit_is_the_one_that_django_sends(make_site, site_settings, age):
    names = {"NAME": "xsrf", "AGE": age, "DOMAIN": "example.com", "PATH": "/forms"}
    for name, value in {**names, "SECURE": True, "HTTPONLY": True, "SAMESITE": "Strict"}.items():
        setattr(site_settings, f"CSRF_COOKIE_{name}", value)
    site = make_site()
    made, hit = (site.get(FORMS, {"Cookie": f"xsrf={A}"}) for _ in range(2))
    assert hit.detail.startswith("hit")
    first, second = (re.sub("expires=[^;]*", "", each["set-cookie"]).strip() for each in (made, hit))
    assert first == second
    assert A in second


def test_each_hit_renews_the_cookie(site, monkeypatch):
    now = 1_700_000_000.0
    monkeypatch.setattr(time, "time", lambda: now)
    for _ in range(3):
        made = int(now)
        sent = http_cookies.SimpleCookie(site.get(FORMS, {"Cookie": f"csrftoken={A}"})["set-cookie"])["csrftoken"]
        assert parsedate_to_datetime(sent["expires"]).timestamp() == made + int(sent["max-age"])
        assert sent["max-age"] == "31449600"
        now += 86_400


class PutToken(MiddlewareMixin):
    def process_response(self, request, response):
        response["X-Token"] = get_token(request)
        return response


# The answers of hits.


@pytest.mark.parametrize("target", [FORMS, "/ensured", "/dated"])
def test_answers_with_tokens_are_for_one_visitor(site, target):
    for detail in ("fwd=miss", "hit"):
        answer = Visitor(site).get(target)
        assert answer.detail.startswith(detail)
        assert answer["cache-control"] == "private, max-age=60"
        assert "Cookie" in answer["vary"]
        assert "last-modified" not in answer.headers


@pytest.mark.parametrize("headers", [{"Range": "bytes=0-9"}, {"If-None-Match": "*"}])
def test_conditions_and_ranges_get_the_whole_page(site, insert, headers):
    insert("django.middleware.http.ConditionalGetMiddleware")
    visitor(site).get(FORMS)
    one = visitor(site)
    answer = one.get(FORMS, headers)
    assert (answer.status, answer.detail[:3]) == (200, "hit")
    assert is_for(answer, one.secret)


def test_a_head_has_the_cookie_and_the_length_of_the_visitors_page(site):
    full, one = visitor(site).get(FORMS), Visitor(site)
    head = one.get(FORMS, method="HEAD")
    assert (head.status, head.body, head.detail[:3]) == (200, b"", "hit")
    assert head["content-length"] == str(len(full.body))
    assert one.secret is not None


# Compression.


def test_gzip_middleware_compresses_each_answer_with_tokens(make_site, insert):
    insert(GZIP)
    site = make_site()
    for detail in ("fwd=", "hit"):
        for accepted in ({"Accept-Encoding": "gzip, deflate"}, {"Accept-Encoding": "br"}, {}):
            one = visitor(site)
            answer = one.get("/long", accepted)
            assert answer.detail.startswith(detail)
            assert answer["content-length"] == str(len(answer.body))
            assert answer.headers.get("content-encoding") == ("gzip" if "gzip" in str(accepted) else None)
            if "content-encoding" in answer.headers:
                answer.body = gzip.decompress(answer.body)
            assert is_for(answer, one.secret)
            assert "Accept-Encoding" in answer["vary"]


READ = {
    **{name: (name, gzip.compress) for name in ("gzip", "GZip")},
    "two members": ("gzip", lambda body: gzip.compress(body[:9]) + gzip.compress(body[9:])),
    "identity": ("Identity", bytes),
}
UNREAD = {
    "nine million bytes": ("gzip", lambda body: gzip.compress(b" " * 9_000_000 + body, 1)),
    "cut off": ("gzip", lambda body: gzip.compress(body)[:-8]),
    # The compression does not matter, as only the middleware of the site has it.
    **{name: (name, zlib.compress) for name in ("x-gzip", "DEFLATE", "br", "gzip, br", "identity, gzip", "unknown")},
}
encode = None


def encoding(get_response):
    """A middleware that compresses pages as the test has chosen."""
    coding, compress = encode

    def middleware(request):
        response = get_response(request)
        response.content = compress(response.content)
        response["Content-Encoding"], response["Content-Length"] = coding, len(response.content)
        return response

    return middleware


@pytest.mark.parametrize("make_site", ["Django on WSGI"], indirect=True)
@pytest.mark.parametrize("how", [*READ, *UNREAD])
def test_a_compressed_page_with_a_token_of_another_visitor_is_not_stored(make_site, insert, monkeypatch, how):
    coding, _ = chosen = {**READ, **UNREAD}[how]
    monkeypatch.setattr(f"{__name__}.encode", chosen)
    insert("encoding")
    site = make_site()
    visitor(site).get("/fragment", NOT_STORED)
    assert not any(visitor(site).get("/fragment").detail.startswith("hit") for _ in range(2))
    assert site.stats().stored == 0
    # A page is stored if the cache finds that it has no token, or if its type has no forms.
    for target, expected in (("/words", how in READ), ("/styles", how in READ or coding != "gzip")):
        assert [visitor(site).get(target).detail[:3] for _ in range(2)] == ["fwd", "hit" if expected else "fwd"]


# Where no page with a token is stored.


@pytest.mark.parametrize(
    ("names", "options", "detail"),
    [
        ({}, {"csrf_tokens": False}, "contains a CSRF token"),
        ({"CSRF_USE_SESSIONS": True}, {}, "CSRF token in the session (CSRF_USE_SESSIONS)"),
        ({}, {"max_body": 100}, "longer than max_body"),
    ],
)
def test_options_that_keep_pages_with_tokens_out(make_site, site_settings, names, options, detail):
    for name, value in names.items():
        setattr(site_settings, name, value)
    site = make_site(**options)
    assert [visitor(site).get(FORMS).detail for _ in range(2)] == [f'fwd=miss; detail="{detail}"'] * 2
    assert site.stats().stored == 0


def test_a_django_that_makes_tokens_in_another_way_is_reported_and_stores_no_tokens(make_site, monkeypatch):
    monkeypatch.delattr(csrf, "_mask_cipher_secret")
    site = make_site()
    monkeypatch.undo()
    assert not visitor(site).get(FORMS).detail.endswith("stored")
    monkeypatch.delattr(csrf, "_mask_cipher_secret")
    assert "wheelcache.W010" in [message.id for message in run_checks(tags=[Tags.caches])]


def test_the_cookie_of_the_token_cannot_be_lost(make_site):
    with pytest.raises(ImproperlyConfigured, match=r"without_cookies\(\) in rules must not name the cookie of"):
        make_site(rules=[("/*", without_cookies("csrftoken"))])


def test_a_token_that_a_middleware_outside_of_csrf_protection_adds_reaches_nobody_else(make_site, insert):
    insert("PutToken")
    site = make_site()
    one, other = ({"Cookie": f"csrftoken={token}"} for token in (ONE, OTHER))
    assert len({site.get("/words", headers)["x-token"] for headers in (one, other, {}, {}, one)}) == 5
    assert "CSRF token" in site.get("/words").detail
    assert site.stats().stored == 0


def test_a_token_in_a_streamed_body_reaches_nobody_else(make_site, site_settings):
    # With sessions, no such page is stored.
    site_settings.MIDDLEWARE = [MIDDLEWARE[0], "django.middleware.csrf.CsrfViewMiddleware"]
    site = make_site()
    assert not is_stored(site, "/stream", {"Cookie": f"csrftoken={ONE}"})
    assert site.stats().stored == 0


# Middleware between the cache and Django.


def passing(app):
    return lambda environ, start_response: app(environ, start_response)


def test_a_page_with_a_token_is_not_stored_behind_unknown_middleware(site_settings, clock):
    """It would depend on the cookie with the visitor's secret, which no stored page may contain."""
    site = DjangoOnWsgi(clock, passing)
    for cookies in ({}, {"Cookie": f"csrftoken={ONE}"}):
        refused = 'fwd=miss; detail="CSRF token in a page that depends on the whole Cookie header"'
        assert [site.get(FORMS, cookies).detail for _ in range(2)] == [refused, refused]


def test_a_page_with_tokens_whose_body_changes_inside_the_cache_is_not_stored(site_settings, clock):
    site = DjangoOnWsgi(clock)
    for _ in range(2):
        assert site.get("/signed").body.startswith(b"signed")
    assert site.stats().stored == 0
