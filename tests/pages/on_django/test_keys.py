"""The parts of a request on which a page depends are a part of its key."""

import re

import pytest
from django.utils import timezone, translation

from tests.pages.on_django.pages_site import ASKED, DETAILS, READS, REFUSED
from tests.pages.on_django.sites import MIDDLEWARE, DjangoOnWsgi
from tests.pages.site import hits, is_stored
from tests.waiting import until
from wheelcache.pages.wsgi import renewal_pool


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


@pytest.mark.pairs(full="make_site", of="target")
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
    site = make_site(grace=60)
    for target in ("/any-cookie", "/theme"):
        for headers in ({"Cookie": "theme=dark; a=1"}, {}):
            before = site.get(target, headers)
            clock.advance(61)
            assert site.get(target, headers).body == before.body
            assert until(lambda: not renewal_pool.pending)
            after = site.get(target, headers)
            assert after.body.split()[0] == before.body.split()[0]
            assert after.body != before.body


@pytest.mark.pairs(full="make_site", of="how")
@pytest.mark.parametrize("how", READS)
def test_a_header_that_a_page_reads_is_a_part_of_its_key(site, how):
    url = f"/reading/{how.replace(' ', '%20')}"
    sweet, sour = ({"X-Flavor": flavor, "User-Agent": flavor} for flavor in ("sweet", "sour"))
    assert site.get(url, sweet).body.startswith(b"sweet")
    assert site.get(url, sour).body.startswith(b"sour")
    assert is_stored(site, url, sweet)
    assert is_stored(site, url)


@pytest.mark.pairs(full="make_site", of="how")
@pytest.mark.parametrize("how", REFUSED)
def test_a_page_that_cannot_be_keyed_is_not_stored(site, how):
    url, visitor = f"/reading/{how.replace(' ', '%20')}", {"Cookie": "a=1", "X-Flavor": "sweet"}
    assert site.get(url, visitor).status == 200
    assert not is_stored(site, url, visitor)
    assert DETAILS.get(how, "") in site.get(url).detail


@pytest.mark.pairs(full="make_site", of="how")
@pytest.mark.parametrize("how", ASKED)
def test_an_access_that_reads_nothing_makes_no_variants(site, how):
    assert hits(site, f"/reading/{how.replace(' ', '%20')}") == 11


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
