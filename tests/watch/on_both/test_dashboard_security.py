"""Hostile requests to the dashboard, in both frameworks: forged ones, odd methods and forms, missing rights."""

import json
import logging
from itertools import chain, combinations
from urllib.parse import urlencode

import pytest

from tests.watch.on_both.dashboard_page import (
    ANSWERS,
    CLEAR,
    FIGURES,
    INSPECT,
    PAGE,
    PURGE,
    READS,
    SENT,
    has_the_headers,
)
from tests.watch.on_both.dashboard_sites import config_of, events, figures, press
from wheelcache.watch.dashboard.permissions import Permission
from wheelcache.watch.dashboard.responses import FORGED, HEADER
from wheelcache.watch.publisher import INTERVAL

ACTIONS = [CLEAR, PURGE, INSPECT, ANSWERS]
DELETE = {"cache": "atlas", "action": "delete", "kind": "pattern", "text": "*"}
HOST = {"Host": "example.com"}
PROXIED = {"Host": "internal:8000", "X-Forwarded-Host": "public.example"}
CROSS_SITE = {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}

FORGERIES = {
    "a form of another site": CROSS_SITE,
    "a form of a subdomain": {"Origin": "https://blog.example.com", "Sec-Fetch-Site": "same-site"},
    "a form in an old browser": {"Origin": "https://evil.example"},
    "no header at all": {},
    "the page itself without the header": {"Origin": "https://example.com", "Sec-Fetch-Site": "same-origin"},
    # The site's own CORS headers may let all origins send any header.
    "a script of another site": {**SENT, **CROSS_SITE},
    "a script of a subdomain": {**SENT, "Origin": "https://blog.example.com", "Sec-Fetch-Site": "same-site"},
    "a script of another site in an old browser": {**SENT, "Origin": "https://evil.example"},
    "an address that the user typed": {**SENT, "Sec-Fetch-Site": "none"},
    "two values": {**SENT, "Sec-Fetch-Site": "same-origin, cross-site"},
    "an unknown value": {**SENT, "Sec-Fetch-Site": "same-universe"},
    "a sandboxed frame": {**SENT, "Origin": "null"},
    "another port": {**SENT, "Origin": "https://example.com:8443"},
    "an origin that begins like it": {**SENT, "Origin": "https://example.com.evil.example"},
    "an origin that ends like it": {**SENT, "Origin": "https://evil-example.com"},
    "another scheme": {**SENT, "Origin": "ftp://example.com"},
    "no ASCII": {**SENT, "Origin": "https://\xe9xample.com"},
    "a proxy that is not trusted": {**SENT, "Origin": "https://evil.example", "X-Forwarded-Host": "evil.example"},
}

GENUINE = {
    "the page": {"Origin": "https://example.com", "Sec-Fetch-Site": "same-origin"},
    "the page without TLS": {"Origin": "http://example.com"},
    "a program": {},
    "a proxy that changes the host": {"Origin": "https://public.example", "Sec-Fetch-Site": "same-origin"},
}


@pytest.fixture
def site(make_site, settings):
    """A site whose user has all permissions."""
    settings.ALLOWED_HOSTS = ["*"]
    return make_site(grant=frozenset(Permission))


def is_untouched(site, clock):
    """Return whether no request had an effect, even in the workers that act later."""
    clock.advance(2 * INTERVAL)
    return site.cache.get("k") == "v" and events(site) == []


class Unreadable:
    """The body of a request that must not be read."""

    def read(self, *args):
        raise AssertionError("the body of a refused request was read")

    readline = readlines = __iter__ = read


# Forged requests.


def test_forged_requests_are_refused_unread_and_have_no_effect(site, clock):
    unread = {"wsgi.input": Unreadable(), "CONTENT_LENGTH": "1000"}
    for name, forgery in FORGERIES.items():
        for url in ACTIONS:
            status, headers, text = site.ask(site.browser(), "post", url, DELETE, {**HOST, **forgery}, unread)
            assert (status, json.loads(text), has_the_headers(headers)) == (403, {"error": FORGED}, True), name
    assert is_untouched(site, clock)


def test_genuine_requests_are_answered(site):
    for name, headers in GENUINE.items():
        site.cache.set("k", "v")
        assert press(site, CLEAR, {"cache": "atlas"}, **HOST, **headers)[0] == 200, name
        assert site.cache.get("k") is None


def test_behind_a_proxy_that_changes_the_host_the_site_has_to_trust_its_header(site):
    status, answer = press(site, CLEAR, {"cache": "atlas"}, **PROXIED, Origin="https://public.example")
    assert (status, answer) == (403, {"error": FORGED})
    site.trust_proxy()
    assert press(site, CLEAR, {"cache": "atlas"}, **PROXIED, Origin="https://public.example")[0] == 200
    assert press(site, CLEAR, {"cache": "atlas"}, **PROXIED, Origin="https://evil.example")[0] == 403


# Methods.


def test_what_is_read_is_only_read_and_actions_are_only_posted(site, clock):
    override = dict.fromkeys(("X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override"), "POST")
    preflight = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": HEADER, **CROSS_SITE}
    query = "?_method=POST&cache=atlas&action=delete&kind=pattern&text=*"
    for urls, allowed in ((READS, ["GET", "HEAD"]), (ACTIONS, ["POST"])):
        for method in {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"} - set(allowed):
            for url in urls:
                given = {**SENT, **(preflight if method == "OPTIONS" else override)}
                status, headers, _ = site.ask(site.browser(), method.lower(), url + query, headers=given)
                assert (status, headers["Allow"], has_the_headers(headers)) == (405, ", ".join(allowed), True)
                assert not [name for name in headers.keys() if name.lower().startswith("access-control")]
    assert is_untouched(site, clock)


# Rights.

FIND = {**DELETE, "action": "find", "kind": "key"}
NEEDED = [
    (INSPECT, FIND, {"inspect"}),
    (ANSWERS, {"token": "x"}, {"inspect"}),
    (INSPECT, DELETE, {"inspect", "operate"}),
    (PURGE, {"cache": "atlas", "target": "example.com"}, {"operate"}),
    (CLEAR, {"cache": "atlas"}, {"operate"}),
]
SUBSETS = [frozenset(each) for each in chain.from_iterable(combinations(Permission, number) for number in range(4))]


@pytest.mark.parametrize("granted", SUBSETS, ids=lambda each: "+".join(sorted(each)) or "none")
def test_each_right_permits_its_own_requests_and_no_others(make_site, clock, caplog, granted):
    caplog.set_level(logging.INFO, "wheelcache")
    site = make_site(grant=granted)
    caplog.clear()
    for url in READS:
        status, _, text = site.ask(site.browser(), "get", url)
        assert (status == 200, "config" in text) == (
            bool(granted),
            bool(granted) and url in (PAGE, f"{PAGE}dashboard.js", f"{PAGE}words.js"),
        )
    for url, fields, needed in NEEDED:
        status, answer = press(site, url, fields)
        if needed <= granted:
            # There are no answers for this token, and no pages.
            assert status == {ANSWERS: 404, PURGE: 409}.get(url, 200)
        elif not granted:
            assert (status, answer) == (403, {"error": "You may not see this"})
        elif "inspect" in needed - granted:
            assert (status, answer) == (403, {"error": "You may not inspect entries"})
        else:
            assert (status, answer) == (403, {"error": "You may view the figures, but not change anything"})
    clock.advance(2 * INTERVAL)
    logged = [
        each for each in caplog.records if each.name == "wheelcache" and "from the dashboard" in each.getMessage()
    ]
    assert len(logged) == ("operate" in granted) + ("inspect" in granted) + ({"inspect", "operate"} <= granted)
    if "operate" not in granted:
        assert site.cache.get("k") == "v"
    if granted:
        config = config_of(site, site.browser())
        assert (config["may_operate"], config["may_inspect"]) == ("operate" in granted, "inspect" in granted)
        found = {kind for kind, *_ in events(site)}
        assert (not found, "deleted" in found) == (granted == {"view_figures"}, {"inspect", "operate"} <= granted)


@pytest.mark.parametrize("granted", [(), ("view_figures",)], ids=len)
def test_a_form_without_the_right_is_not_read(make_site, granted):
    site = make_site(grant=frozenset(granted))
    unread = {"wsgi.input": Unreadable(), "CONTENT_LENGTH": str(10**12)}
    for url in ACTIONS:
        assert site.ask(site.browser(), "post", url, None, SENT, unread)[0] == 403


def test_an_inspector_smuggles_no_deletion(make_site, clock):
    site = make_site(grant=frozenset({"inspect"}))
    for actions in (["find", "delete"], ["delete", "find"], ["Delete"], ["delete "], ["DELETE", "delete"]):
        press(site, f"{INSPECT}?action=delete&kind=pattern&text=*", {**DELETE, "action": actions, "rights": "operate"})
    clock.advance(2 * INTERVAL)
    assert site.cache.get("k") == "v"
    assert "deleted" not in [kind for kind, *_ in events(site)]


# Forms.


def test_unknown_and_repeated_fields_change_nothing_and_a_query_is_no_form(site, clock):
    unknown = dict.fromkeys(
        ("rights", "granted", "by", "user", "path", "method", "__class__", "csrfmiddlewaretoken"), "x"
    )
    assert press(site, f"{CLEAR}?cache=atlas", unknown)[0] == 404
    assert press(site, f"{INSPECT}?cache=atlas&action=delete&kind=pattern&text=*", unknown)[0] == 404
    assert press(site, CLEAR, {"cache": ["other", "atlas"]})[0] == 404
    assert is_untouched(site, clock)
    assert press(site, CLEAR, {"cache": ["atlas", "other"], **unknown})[0] == 200
    assert events(site)[0][2] == f"by {site.user}"


HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "a\r\nSet-Cookie: a=b\r\n\r\n<b>",
    "\u2028\x00",
]


def test_no_text_of_a_request_becomes_markup_or_a_header(site):
    expected = set(site.ask(site.browser(), "post", CLEAR, {"cache": "other"}, SENT)[1].keys())
    for text in HOSTILE:
        forms = [
            (CLEAR, {"cache": text}),
            (PURGE, {"cache": "atlas", "target": text}),
            (INSPECT, {**DELETE, "cache": text}),
            (INSPECT, {**DELETE, "kind": text}),
            (ANSWERS, {"token": text}),
        ]
        for url, fields in forms:
            status, headers, answered = site.ask(site.browser(), "post", url, fields, SENT)
            assert status in (400, 404, 409)
            assert headers["Content-Type"] == "application/json"
            assert set(headers.keys()) == expected
            assert json.loads(answered).keys() == {"error"}
        for name in ("details", "span"):
            _, headers, _ = site.ask(site.browser(), "get", f"{FIGURES}?{urlencode({name: text})}")
            assert headers["Content-Type"] == "application/json"


def test_a_name_of_a_cache_is_text_in_all_answers(make_site):
    name = "</script><script>alert(1)</script>"
    site = make_site(name=name)
    assert name not in site.ask(site.browser(), "get", PAGE)[2]
    _, headers, _ = site.ask(site.browser(), "get", FIGURES)
    assert (headers["Content-Type"], headers["X-Content-Type-Options"]) == ("application/json", "nosniff")
    assert figures(site)["caches"][0]["name"] == name
    assert press(site, CLEAR, {"cache": name})[1]["message"].startswith(f"Cleared {name}. ")
