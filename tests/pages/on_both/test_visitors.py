"""No visitor gets a page that was made for another one."""

import flask
import pytest
from django.core.exceptions import ImproperlyConfigured
from flask.sessions import SecureCookieSession, SessionInterface

from tests.pages.on_both.sites import logged_in, numbers, response_to, session_of
from tests.pages.site import is_stored, running_loop
from tests.waiting import until
from wheelcache.engine.keys import NO_VIEW
from wheelcache.pages import ttl, without_cookies


def show_name(request):
    return session_of(request).get("name")


def test_a_page_with_the_visitors_name_is_for_that_visitor(site):
    site.add("/visitor", show_name)
    ada, bob = logged_in(site, "ada"), logged_in(site, "bob")
    for _ in range(2):
        assert site.get("/visitor", ada).body.startswith(b"ada ")
        assert site.get("/visitor", bob).body.startswith(b"bob ")
        assert site.get("/visitor").body.startswith(b"None ")
    assert is_stored(site, "/visitor", ada)


def test_a_lifetime_of_a_rule_is_for_visitors_without_a_session(make_site):
    site = make_site(rules=[("/*", ttl(60))])
    site.add("/visitor", show_name, None)
    ada = logged_in(site, "ada")
    assert [site.get("/visitor").detail[:3] for _ in range(2)] == ["fwd", "hit"]
    for _ in range(2):
        answer = site.get("/visitor", ada)
        assert answer.body.startswith(b"ada")
        assert f"depends on the cookie {site.session_cookie}, which this visitor has" in answer.detail


def test_the_cookie_of_the_session_must_be_known_and_cannot_be_lost(make_site):
    with pytest.raises((ImproperlyConfigured, ValueError), match=r"session_cookies must contain 'session"):
        make_site(session_cookies=["jwt"], cookies=["theme"])
    with pytest.raises((ImproperlyConfigured, ValueError), match="must not name the cookie of a session"):
        make_site(rules=[("/*", without_cookies("session", "sessionid"))])


# Tags and figures.


def tagged(request, tag):
    """Return a response with a tag of its own, and tags in its header."""
    place = flask.g if hasattr(request, "endpoint") else request
    if tag == "assigned":
        place.cache_tags = {tag}
    place.cache_tags.add(tag)
    return response_to(request, f"page {next(numbers)}", Cache_Tag="all, pages")


@pytest.mark.parametrize("tag", ["one", "all", "pages", "assigned"])
def test_a_page_is_purged_by_the_tags_that_its_view_added_and_by_those_of_its_header(site, tag):
    site.add("/tagged/<tag>", tagged)
    target = "/tagged/assigned" if tag == "assigned" else "/tagged/one"
    answers = [site.get(target), site.get(target)]
    assert answers[0].body == answers[1].body
    other = site.get("/tagged/two").body
    site.cache.delete_tags(tag)
    answers.append(site.get(target))
    assert answers[2].body != answers[1].body
    assert (site.get("/tagged/two").body == other) == (tag in ("one", "assigned"))
    assert {answer.headers.get("cache-tag") for answer in answers} == {None}


@pytest.mark.compiled
def test_requests_are_counted_for_the_view_of_their_page(site):
    site.add("/tagged/<tag>", tagged)
    site.add("/not-stored", lambda request: tagged(request, "unused"), None)
    for target in ("/tagged/a", "/tagged/a", "/tagged/b", "/not-stored", "/not-stored", "/unknown"):
        site.get(target)
    stats = site.cache.cache.stats()
    groups = {name: (each.misses, each.loads) for name, each in stats.groups.items() if name}
    assert groups == {"tagged/<tag>": (2, 2), "not-stored": (1, 2), NO_VIEW: (1, 1)}
    assert stats.pages.refused_by_view == {"not-stored": 2, NO_VIEW: 1}


# Runs that repeat an earlier one.


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
            name = flask.request.cookies.get("session", "new")
            self.kept[name] = dict(session)
            response.set_cookie("session", name)


def test_a_message_is_not_lost_in_a_rerun(make_site, site_settings, clock):
    site_settings.SESSION_ENGINE = "django.contrib.sessions.backends.cache"
    site, shown = make_site(rehearse=1), []
    if hasattr(site, "flask"):
        site.flask.session_interface = SessionsOnServer()

    def show(request):
        shown.append(session_of(request).pop("flash", "none"))
        return shown[-1]

    def say(request):
        session_of(request)["flash"] = "saved"
        return "said"

    site.add("/flashes", show)
    site.add("/says", say, None)

    def noise():
        clock.advance(0.1)
        return site.cache.pages.rehearsal.counts().get(("flashes", "noise"))

    with running_loop() as loop:
        if hasattr(site, "loop"):
            site.loop = loop
        visitor = logged_in(site, "ada")
        for _ in range(2):
            assert b"none" in site.get("/flashes", visitor).body
        # Both visits, and the first rerun after each.
        clock.advance(0.2)
        assert until(lambda: len(shown) == 4)
        site.get("/says", visitor)
        assert until(noise)
        assert "saved" in shown
        assert b"saved" in site.get("/flashes", visitor).body
