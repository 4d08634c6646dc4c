"""No visitor gets a page that was made for another one."""

import pytest
from django.middleware.csrf import get_token

from tests.pages.on_django.sites import MIDDLEWARE, ONE, OTHER, DjangoOnAsgi, DjangoOnWsgi, logged_in
from tests.pages.site import answer_of, is_stored
from wheelcache.pages.django_pages import COMPANION


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


def test_a_page_with_a_token_is_stored_for_its_visitor_if_the_token_is_in_the_session(make_site, site_settings):
    site_settings.CSRF_USE_SESSIONS = True
    site = make_site()
    ada, bob = ({"Cookie": site.get("/token?new")["set-cookie"].partition(";")[0].strip()} for _ in range(2))
    assert is_stored(site, "/token", ada)
    assert is_stored(site, "/token", bob)
    assert site.get("/token", ada).body != site.get("/token", bob).body
    assert site.stats().stored == 2


def test_a_page_with_messages_is_not_stored(site):
    assert not site.get("/says").detail.startswith("hit")
    assert site.stats().stored == 0


@pytest.mark.pairs(full="make_site")
@pytest.mark.parametrize("target", ["/numbered?page=2", "/numbered?page=%F2", "/numbered?p=2", "/media-type"])
@pytest.mark.parametrize("given", ["text/plain; charset=cp037", "application/json", "x; charset=UTF-16"])
def test_the_type_of_a_request_without_a_body_poisons_no_page(make_site, target, given):
    expected = make_site().get(target).body.rpartition(b" ")[0]
    site = make_site()
    for _ in range(2):
        site.get(target, {"Content-Type": given})
        assert site.get(target).body.rpartition(b" ")[0] == expected
    assert is_stored(site, target)


def test_a_name_that_django_takes_for_that_of_the_type_poisons_no_page(site_settings, clock):
    site = DjangoOnWsgi(clock)
    # Some servers make this entry from the name Content_Type.
    environ = site.environ(*site.parts("/content-type")) | {"HTTP_CONTENT_TYPE": "evil"}
    assert answer_of(site.app, environ).body.startswith(b"evil")
    assert site.get("/content-type").body.startswith(b"None")


def test_the_state_that_an_application_in_front_keeps_for_the_visitor_reaches_nobody_else(site_settings, clock):
    site = DjangoOnAsgi(clock)
    whole = site.scope
    for user in ("ada", "bob"):
        site.scope = lambda *parts, user=user: {**whole(*parts), "state": {"user": user}}
        assert site.get("/state").body.startswith(user.encode())


THEMES = {
    "a space of Unicode": "\xc2\xa0theme=EVIL",
    "a space of Latin-1": "\xa0theme=EVIL",
    "another space of Unicode": "a=1; \xe2\x80\x83theme=EVIL",
    "a separator": "\x85theme=EVIL",
    "a control character": "\x1ftheme=EVIL",
    "no name": "=; theme=EVIL",
    "no name and no sign": "theme; theme=EVIL",
    "a quote": 'a="; theme=EVIL; b="',
    "a name with a space": "a theme=EVIL; theme=EVIL",
}


@pytest.mark.parametrize("how", THEMES)
def test_a_cookie_that_django_reads_and_the_cache_does_not_poisons_no_page(site, how):
    for _ in range(2):
        site.get("/theme", {"Cookie": THEMES[how]})
        assert site.get("/theme").body.startswith(b"light")
        assert site.get("/theme", {"Cookie": "theme=dark"}).body.startswith(b"dark")


@pytest.mark.parametrize("space", ["\xc2\xa0", "\xa0", "\x85", "a=1; \xe2\x80\x83"])
def test_a_session_that_the_cache_does_not_recognize_reaches_nobody_else(site, space):
    ada = logged_in(site, "ada")["Cookie"]
    for target in ("/visitor", "/session-cookie"):
        site.get(target, {"Cookie": space + ada})
        assert site.get(target).body.split()[0] in (b"nobody", b"none")


def test_two_lines_of_cookies_are_those_that_the_application_sees(site):
    lines = [("Cookie", "a=1"), ("Cookie", "theme=dark")]
    seen = site.get("/theme", lines).body.split()[0]
    for _ in range(2):
        assert site.get("/theme").body.startswith(b"light")
        assert site.get("/theme", {"Cookie": "theme=blue"}).body.startswith(b"blue")
        assert site.get("/theme", lines).body.split()[0] == seen


@pytest.mark.parametrize("target", ["/csrf-cookie", "/csrf-entry"])
def test_a_view_that_reads_the_csrf_cookie_shows_each_visitor_the_own_one(site, target):
    for _ in range(2):
        for token in (ONE, OTHER):
            assert site.get(target, {"Cookie": f"csrftoken={token}"}).body.startswith(token.encode())
        assert site.get(target).body.startswith(b"none")


def test_a_view_that_reads_the_session_cookie_shows_each_visitor_the_own_one(site):
    for _ in range(2):
        for session in (ONE, OTHER):
            assert site.get("/session-cookie", {"Cookie": f"sessionid={session}"}).body.startswith(session.encode())
        assert site.get("/session-cookie").body.startswith(b"none")


def test_a_token_in_a_streamed_body_reaches_nobody_else(make_site, site_settings):
    # With sessions, no such page is stored.
    site_settings.MIDDLEWARE = [COMPANION, "django.middleware.csrf.CsrfViewMiddleware"]
    site = make_site()
    assert not is_stored(site, "/streamed-token", {"Cookie": f"csrftoken={ONE}"})
    assert not is_stored(site, "/streamed-token")
    assert site.stats().stored == 0


@pytest.mark.parametrize("use_sessions", [False, True])
def test_a_token_that_a_middleware_outside_of_csrf_protection_adds_reaches_nobody_else(
    make_site, site_settings, use_sessions
):
    site_settings.CSRF_USE_SESSIONS = use_sessions
    site_settings.MIDDLEWARE = [COMPANION, f"{__name__}.put_token", *MIDDLEWARE[1:]]
    site = make_site()
    one, other = ({"Cookie": f"csrftoken={token}"} for token in (ONE, OTHER))
    assert len({site.get("/plain", headers)["x-token"] for headers in (one, other, {}, {}, one)}) == 5
    assert "CSRF token" in site.get("/plain").detail
    assert site.stats().stored == 0


def put_token(get_response):
    def middleware(request):
        response = get_response(request)
        response["X-Token"] = get_token(request)
        return response

    return middleware


def test_a_streamed_page_of_a_site_with_sessions_is_not_stored(site):
    assert not is_stored(site, "/streamed")
