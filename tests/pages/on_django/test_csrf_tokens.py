"""Pages with CSRF tokens are shared, and each visitor has a token of the own secret."""

import gzip
import re
import time
import zlib
from email.utils import parsedate_to_datetime
from http import cookies as http_cookies

import pytest
from asgiref.sync import iscoroutinefunction
from django.core.checks import Tags, run_checks
from django.core.exceptions import ImproperlyConfigured
from django.middleware import csrf
from django.middleware.csrf import _does_token_match, _unmask_cipher_token
from django.utils.crypto import get_random_string
from django.utils.decorators import sync_and_async_middleware

from tests.pages.on_django.sites import MIDDLEWARE
from tests.pages.on_django.token_site import HOSTILE
from wheelcache.pages import ttl, without_cookies

ALNUM = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
FORMS = "/forms/1"


class Visitor:
    """A browser with its cookies.

    Attributes:
        secrets: those that it has had.
    """

    def __init__(self, site, secret=None, cookies=()):
        self.site = site
        self.cookies = dict(cookies)
        self.secrets = set()
        if secret is not None:
            self.cookies["csrftoken"] = secret
            self.secrets.add(secret)

    def get(self, target, headers=(), **how):
        sent = dict(headers)
        if self.cookies:
            sent.setdefault("Cookie", "; ".join(f"{name}={value}" for name, value in self.cookies.items()))
        answer = self.site.get(target, sent, **how)
        found = http_cookies.SimpleCookie(answer.headers.get("set-cookie", ""))
        for name, morsel in found.items():
            self.cookies[name] = morsel.value
        if "csrftoken" in found:
            self.secrets.add(found["csrftoken"].value)
        return answer

    @property
    def secret(self):
        return self.cookies.get("csrftoken")

    def post(self, target, token):
        body = f"csrfmiddlewaretoken={token}&a=1".encode()
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        return self.get(target, headers, method="POST", body=body)


def visitor(site, **how):
    return Visitor(site, secret=get_random_string(32, ALNUM), **how)


def tokens(answer):
    return re.findall(r'name="csrfmiddlewaretoken" value="(\w+)"', answer.body.decode())


def shows(answer, secret):
    """Return whether an answer contains a secret, or any text that Django takes for a token of it."""
    text = "\n".join([answer.body.decode("latin-1"), *map(str, answer.headers.values())])
    windows = (found[1] for found in re.finditer(r"(?=([a-zA-Z0-9]{64}))", text))
    return secret in text or any(_unmask_cipher_token(each) == secret for each in windows)


def blanked(answer):
    return re.sub(rb"[a-zA-Z0-9]{64}", b"-", answer.body)


@pytest.fixture(autouse=True)
def urls(site_settings):
    site_settings.ROOT_URLCONF = "tests.pages.on_django.token_site"


@pytest.mark.parametrize("target", ["/forms/1", "/forms/10", "/json", "/twice", "/decorated", "/attribute-first"])
def test_visitors_share_a_page_and_have_a_token_of_their_own_secret(site, target):
    first = visitor(site).get(target)
    assert first.detail == "fwd=miss; stored"
    for other in (visitor(site), Visitor(site), Visitor(site), visitor(site, cookies={"analytics": "1"})):
        secret = other.secret
        answer = other.get(target)
        assert answer.detail.startswith("hit"), answer.detail
        assert blanked(answer) == blanked(first)
        assert other.secret == (secret or other.secret)
        found = re.findall(rb"[a-zA-Z0-9]{64}", answer.body)
        assert found
        assert all(_does_token_match(each.decode(), other.secret) for each in found)
    assert site.stats().stored == 1


def test_two_hits_of_one_visitor_have_different_tokens(site):
    one = visitor(site)
    found = [tokens(one.get(FORMS))[0] for _ in range(4)]
    assert len(set(found)) == 4


def test_a_form_of_a_hit_is_accepted_with_the_own_token_only(make_site):
    site = make_site()
    visitor(site).get(FORMS)
    one, other = visitor(site), Visitor(site)
    # Before the first form, which removes the page.
    pairs = [(*tokens(one.get(FORMS)), *tokens(other.get(FORMS))) for _ in range(3)]
    assert site.stats().stored == 1
    for own, foreign in pairs:
        assert one.post(FORMS, own).body == b"accepted"
        assert other.post(FORMS, foreign).body == b"accepted"
        assert one.post(FORMS, foreign).status == 403
        assert other.post(FORMS, own).status == 403


def test_a_masked_cookie_of_an_old_django_is_unmasked(site):
    visitor(site).get(FORMS)
    mask, secret = "b" * 32, get_random_string(32, ALNUM)
    cipher = "".join(ALNUM[(ALNUM.index(each) + 1) % 62] for each in secret)
    old = Visitor(site, cookies={"csrftoken": mask + cipher})
    (token,) = tokens(old.get(FORMS))
    assert old.secret == secret
    assert _does_token_match(token, secret)


@pytest.mark.parametrize("value", ["", "short", "x" * 33, "x" * 63, "x" * 65, "x" * 5000])
def test_a_cookie_of_the_wrong_length_is_replaced(site, value):
    visitor(site).get(FORMS)
    odd = Visitor(site, cookies={"csrftoken": value})
    (token,) = tokens(odd.get(FORMS))
    assert len(odd.secret) == 32
    assert _does_token_match(token, odd.secret)


NOT_STORED = {"Cache-Control": "no-store"}
"""With it, what a view keeps for later requests is of the visitor of this one."""

A, B = "A" * 16 + "c" * 16, "B" * 16 + "d" * 16


@pytest.mark.parametrize(
    "header",
    [
        f"csrftoken={A}; csrftoken={B}",
        f"csrftoken={A}; a=1; csrftoken=",
        f"csrftoken={A};csrftoken={B}",
        f"csrftoken={A}; csrftoken\xa0={B}",
        f"csrftoken={A}; \xc2\xa0csrftoken={B}",
        f"csrftoken={A}\xc2\xa0",
        f'csrftoken="{A}"',
        f'a="; csrftoken={A}; b="',
        f"csrftoken; csrftoken={A}",
        f"csrftoken={A[:-1]}!",
        f"a=csrftoken={A}; csrftoken={B}; csrftoken={A}",
    ],
)
def test_a_cookie_that_django_may_read_differently_bypasses_the_page(site, header):
    for _ in range(2):
        visitor(site).get(FORMS)
        answer = site.get(FORMS, {"Cookie": header})
        assert answer.detail.startswith("fwd=bypass"), answer.detail
        secret = http_cookies.SimpleCookie(answer["set-cookie"])["csrftoken"].value
        assert _does_token_match(tokens(answer)[0], secret)


@pytest.mark.parametrize(
    "header", [f"a=csrftoken={A}; csrftoken={B}", f"xcsrftoken={A}; csrftoken={B}", f"csrftoken={B}"]
)
def test_the_text_of_the_name_in_another_cookie_makes_no_difference(site, header):
    visitor(site).get(FORMS)
    answer = site.get(FORMS, {"Cookie": header})
    assert answer.detail.startswith("hit")
    assert _does_token_match(tokens(answer)[0], B)


def test_the_cookie_is_the_one_that_django_sends(make_site, site_settings):
    site_settings.CSRF_COOKIE_NAME = "xsrf"
    site_settings.CSRF_COOKIE_AGE = 1000
    site_settings.CSRF_COOKIE_DOMAIN = "example.com"
    site_settings.CSRF_COOKIE_PATH = "/forms"
    site_settings.CSRF_COOKIE_SECURE = site_settings.CSRF_COOKIE_HTTPONLY = True
    site_settings.CSRF_COOKIE_SAMESITE = "Strict"
    site = make_site()
    sent = {"Cookie": f"xsrf={A}"}
    made, hit = site.get(FORMS, sent), site.get(FORMS, sent)
    assert hit.detail.startswith("hit")
    first, second = (re.sub("expires=[^;]*", "", each["set-cookie"]).strip() for each in (made, hit))
    assert first == second
    assert A in second
    assert "Secure" in second


def test_each_hit_renews_the_cookie(site, monkeypatch):
    now = 1_700_000_000.0
    monkeypatch.setattr(time, "time", lambda: now)
    for _ in range(3):
        made = int(now)
        sent = http_cookies.SimpleCookie(site.get(FORMS, {"Cookie": f"csrftoken={A}"})["set-cookie"])["csrftoken"]
        assert parsedate_to_datetime(sent["expires"]).timestamp() == made + int(sent["max-age"])
        assert sent["max-age"] == "31449600"
        now += 86_400


def test_a_session_cookie_without_an_age_has_no_end(make_site, site_settings):
    site_settings.CSRF_COOKIE_AGE = None
    site = make_site()
    made, hit = site.get(FORMS, {"Cookie": f"csrftoken={A}"}), site.get(FORMS, {"Cookie": f"csrftoken={A}"})
    assert made["set-cookie"].strip() == hit["set-cookie"] == f"csrftoken={A}; Path=/; SameSite=Lax"


@pytest.mark.parametrize("view", HOSTILE)
def test_nothing_of_a_visitor_reaches_another_one(site, view):
    seen = [visitor(site), visitor(site), Visitor(site), Visitor(site), visitor(site)]
    seen[0].get(f"/{view}", NOT_STORED)
    for _ in range(2):
        for each in seen[1:]:
            answer = each.get(f"/{view}")
            others = set().union(*(other.secrets for other in seen if other is not each))
            # A view that keeps a form of another visitor leaks it without this cache, too.
            is_own_leak = ("fragment" in view or view == "cache-page") and not answer.detail.startswith("hit")
            assert is_own_leak or not any(shows(answer, secret) for secret in others), answer


STORED = {
    *("json", "decorated", "required", "ensured", "twice", "attribute-first", "joined", "thread", "thread-and-own"),
}


@pytest.mark.parametrize("view", HOSTILE)
def test_only_pages_whose_tokens_are_all_found_are_stored(site, view):
    visitor(site).get(f"/{view}", NOT_STORED)
    details = [visitor(site).get(f"/{view}").detail for _ in range(3)]
    assert [detail.startswith("hit") for detail in details] == [False, view in STORED, view in STORED], details


def test_a_chosen_secret_keeps_no_page_from_being_stored_for_others(site):
    """The page contains the text by chance."""
    text = site.get("/forms/0").body
    assert b"page" in text
    # Each is a refusal that depends on the visitor: a malformed cookie leads to a new secret.
    for _ in range(3):
        Visitor(site, cookies={"csrftoken": "!" * 32}).get(FORMS)
    assert visitor(site).get(FORMS).detail == "fwd=miss; stored"
    assert visitor(site).get(FORMS).detail.startswith("hit")


def test_answers_with_tokens_are_for_one_visitor(make_site):
    site = make_site(rules=[("/no-lifetime", ttl(60))])
    for target, control in (
        (FORMS, "private, max-age=60"),
        ("/public", "private, no-cache"),
        ("/no-lifetime", "private, no-cache"),
        ("/ensured", "private, max-age=60"),
        ("/for-other-caches", "private, no-cache, must-revalidate"),
    ):
        for detail in ("fwd=miss", "hit"):
            answer = Visitor(site).get(target)
            assert answer.detail.startswith(detail)
            assert answer["cache-control"] == control
            assert "Cookie" in answer["vary"]
            others = {"expires", "cdn-cache-control", "surrogate-control"}
            assert (others | {"etag", "last-modified"}).isdisjoint(answer.headers)


def test_a_page_without_tokens_is_as_before(site):
    for detail in ("fwd=miss", "hit"):
        answer = visitor(site).get("/forms/0")
        assert answer.detail.startswith(detail)
        assert answer["cache-control"] == "max-age=60"
        assert "set-cookie" not in answer.headers


@pytest.mark.parametrize(
    "headers",
    [
        {"Range": "bytes=0-9"},
        {"If-None-Match": "*"},
        {"If-None-Match": '"x"'},
        {"If-Modified-Since": "Wed, 15 Nov 2033 22:13:20 GMT"},
        {"If-Range": '"x"', "Range": "bytes=0-9"},
        {"Cache-Control": "max-age=0"},
    ],
)
def test_conditions_and_ranges_get_the_whole_page(site, site_settings, headers):
    site_settings.MIDDLEWARE = [MIDDLEWARE[0], "django.middleware.http.ConditionalGetMiddleware", *MIDDLEWARE[1:]]
    visitor(site).get(FORMS)
    one = visitor(site)
    answer = one.get(FORMS, headers)
    assert answer.status == 200
    assert answer.detail.startswith("hit")
    assert _does_token_match(tokens(answer)[0], one.secret)


def test_a_head_has_the_cookie_and_the_length_of_the_visitors_page(site):
    full = visitor(site).get(FORMS)
    one = Visitor(site)
    head = one.get(FORMS, method="HEAD")
    assert (head.status, head.body) == (200, b"")
    assert head["content-length"] == str(len(full.body))
    assert head.detail.startswith("hit")
    assert one.secret is not None


def test_stale_pages_and_pages_instead_of_an_error_are_filled(make_site, clock, site_settings):
    site = make_site(fail_safe=600)
    visitor(site).get(FORMS)
    clock.advance(61)
    site_settings.ROOT_URLCONF = "tests.pages.on_django.sites"
    one = visitor(site)
    answer = one.get(FORMS)
    assert answer.detail.startswith("fwd=stale")
    assert answer.status == 200
    assert _does_token_match(tokens(answer)[0], one.secret)


def test_a_renewal_runs_without_the_visitors_secret(make_site, clock):
    site = make_site(grace=600)
    visitor(site).get(FORMS)
    clock.advance(61)
    one = visitor(site)
    stale = one.get(FORMS)
    assert stale.detail.endswith("detail=stale")
    assert _does_token_match(tokens(stale)[0], one.secret)


def test_gzip_middleware_compresses_each_answer(make_site, site_settings):
    site_settings.MIDDLEWARE = [MIDDLEWARE[0], "django.middleware.gzip.GZipMiddleware", *MIDDLEWARE[1:]]
    site = make_site()
    for detail in ("fwd=", "hit"):
        for accepted in ("gzip, deflate", "br", None):
            one = visitor(site)
            answer = one.get("/long", {} if accepted is None else {"Accept-Encoding": accepted})
            assert answer.detail.startswith(detail)
            assert answer["content-length"] == str(len(answer.body))
            if accepted == "gzip, deflate":
                assert answer["content-encoding"] == "gzip"
                answer.body = gzip.decompress(answer.body)
            else:
                assert "content-encoding" not in answer.headers
            assert _does_token_match(tokens(answer)[0], one.secret)
            assert "Accept-Encoding" in answer["vary"]


def test_a_page_that_is_not_stored_is_as_without_the_cache(make_site, site_settings):
    site_settings.MIDDLEWARE = [MIDDLEWARE[0], "django.middleware.gzip.GZipMiddleware", *MIDDLEWARE[1:]]
    site = make_site()
    headers = {"Accept-Encoding": "gzip", "Cookie": f"csrftoken={A}"}
    answer = site.get("/no-lifetime", headers)
    assert answer.detail == 'fwd=miss; detail="no lifetime"'
    assert "cache-control" not in answer.headers
    assert A in answer["set-cookie"]


def test_tokens_are_off_with_the_option(make_site):
    site = make_site(csrf_tokens=False)
    details = [visitor(site).get(FORMS).detail for _ in range(2)]
    assert details == ['fwd=miss; detail="contains a CSRF token"'] * 2
    assert site.stats().stored == 0


def test_a_django_that_makes_tokens_in_another_way_is_reported_and_stores_no_tokens(make_site, monkeypatch):
    monkeypatch.delattr(csrf, "_mask_cipher_secret")
    site = make_site()
    monkeypatch.undo()
    assert not visitor(site).get(FORMS).detail.endswith("stored")
    monkeypatch.delattr(csrf, "_mask_cipher_secret")
    assert "wheelcache.W010" in [message.id for message in run_checks(tags=[Tags.caches])]


@pytest.mark.parametrize("rule", [without_cookies("csrftoken"), without_cookies("a", "sessionid")])
def test_the_cookies_of_the_token_and_the_session_cannot_be_lost(make_site, rule):
    with pytest.raises(
        (ImproperlyConfigured, ValueError), match=r"without_cookies\(\) in rules must not name the cookie of"
    ):
        make_site(rules=[("/*", rule)])


@pytest.mark.parametrize("position", ["outside", "inside"])
def test_a_page_without_tokens_is_compressed_as_before(make_site, site_settings, position):
    own = [f"{__name__}.note_encoding", "django.middleware.gzip.GZipMiddleware"]
    own = own if position == "outside" else own[::-1]
    site_settings.MIDDLEWARE = [MIDDLEWARE[0], *own, *MIDDLEWARE[1:]]
    site = make_site()
    expected = "gzip" if position == "outside" else "None"
    for detail in ("fwd=miss; stored", "hit"):
        answer = site.get("/words", {"Accept-Encoding": "gzip"})
        assert answer.detail.startswith(detail)
        assert answer["x-seen"] == expected
        assert gzip.decompress(answer.body).startswith(b"Enough")


@sync_and_async_middleware
def note_encoding(get_response):
    def noted(response):
        response["X-Seen"] = str(response.get("Content-Encoding"))
        return response

    async def middleware_of_tasks(request):
        return noted(await get_response(request))

    return middleware_of_tasks if iscoroutinefunction(get_response) else lambda request: noted(get_response(request))


def test_a_visitor_with_a_malformed_secret_removes_no_stale_page(make_site, clock, site_settings):
    site = make_site(fail_safe=600)
    visitor(site).get(FORMS)
    clock.advance(61)
    Visitor(site, cookies={"csrftoken": "x" * 33}).get(FORMS)
    site_settings.ROOT_URLCONF = "tests.pages.on_django.sites"
    assert visitor(site).get(FORMS).status == 200


@pytest.mark.parametrize("target", ["/comment", "/digests"])
def test_text_about_tokens_keeps_no_page_from_being_stored(site, target):
    details = [visitor(site).get(target).detail for _ in range(2)]
    assert details[1].startswith("hit"), details


def test_a_token_in_the_session_is_named_as_the_reason_for_its_cookie(make_site, site_settings):
    site_settings.CSRF_USE_SESSIONS = True
    assert make_site().get(FORMS).detail == 'fwd=miss; detail="CSRF token in the session (CSRF_USE_SESSIONS)"'


def in_two_members(body):
    return gzip.compress(body[:9]) + gzip.compress(body[9:])


def after_nine_million_bytes(body):
    return gzip.compress(b" " * 9_000_000 + body)


def with_a_wrong_checksum(body):
    return gzip.compress(body)[:-8] + b"wrong" * 2


def cut_off(body):
    return gzip.compress(body)[:-8]


READ = [("gzip", gzip.compress), ("gzip", in_two_members), ("GZip", gzip.compress), ("Identity", bytes)]
ENCODED = [
    *READ,
    *(("gzip", each) for each in (after_nine_million_bytes, with_a_wrong_checksum, cut_off)),
    *(("x-gzip", gzip.compress), ("deflate", zlib.compress), ("DEFLATE", zlib.compress)),
    # The compression does not matter, as only the middleware of the site has it.
    *((name, zlib.compress) for name in ("br", "zstd", "compress", "gzip, br", "identity, gzip", "unknown", ",")),
]


class Compressing:
    """A middleware that compresses pages as the test has chosen."""

    sync_capable, async_capable = True, False
    coding, compress = ENCODED[0]

    def __init__(self, get_response):
        self.get_response = get_response

    def __call__(self, request):
        response = self.get_response(request)
        response.content = Compressing.compress(response.content)
        response["Content-Encoding"] = Compressing.coding
        response["Content-Length"] = len(response.content)
        return response


@pytest.mark.parametrize("encoded", ENCODED, ids=lambda encoded: f"{encoded[0]} {encoded[1].__name__}")
def test_a_compressed_page_with_a_token_of_another_visitor_is_not_stored(
    make_site, site_settings, monkeypatch, encoded
):
    site_settings.MIDDLEWARE = [MIDDLEWARE[0], f"{__name__}.Compressing", *MIDDLEWARE[1:]]
    site = make_site()
    monkeypatch.setattr(Compressing, "coding", encoded[0])
    monkeypatch.setattr(Compressing, "compress", staticmethod(encoded[1]))
    visitor(site).get("/fragment", NOT_STORED)
    assert not any(visitor(site).get("/fragment").detail.startswith("hit") for _ in range(3))
    assert site.stats().stored == 0
    # A page is stored if the cache finds that it has no token, or if its type has no forms.
    is_read = encoded in READ
    for target, is_stored in (("/words", is_read), ("/styles", is_read or encoded[0] != "gzip")):
        details = [visitor(site).get(target).detail for _ in range(2)]
        assert details[1].startswith("hit") == is_stored, details
