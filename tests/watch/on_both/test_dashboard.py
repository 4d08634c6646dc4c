"""The dashboard in both frameworks: permissions, methods, headers, and the effect of the buttons.

Hostile requests are in ``test_dashboard_security``. The figures and the page are the engine's; logins are each
framework's own.
"""

import logging
import re

import pytest

from tests.pages.site import WsgiSite
from tests.watch.on_both.dashboard_page import CLEAR, PAGE, PURGE, READS, has_the_headers
from tests.watch.on_both.dashboard_sites import GUARDED, FlaskSite, config_of, events, figures, press
from wheelcache.errors import FileUnusable
from wheelcache.pages.flask_pages import PAGES
from wheelcache.watch.dashboard.dashboard import ASSETS
from wheelcache.watch.dashboard.permissions import Permission
from wheelcache.watch.site import Site

pytestmark = pytest.mark.pairs(full="make_site", of="make_site")

ACTIONS = [CLEAR, PURGE]


def test_all_is_there_with_its_type_and_its_headers_and_head_has_no_body(site):
    types = {}
    for url in READS:
        status, headers, text = site.ask(site.browser(), "get", url)
        assert (status, bool(text), has_the_headers(headers)) == (200, True, True)
        types[url.removeprefix(PAGE)] = headers["Content-Type"]
        status, headers, text = site.ask(site.browser(), "head", url)
        assert (status, text, has_the_headers(headers)) == (200, "", True)
    assert types == {
        "": "text/html; charset=utf-8",
        "figures.json": "application/json",
        **{name: "text/css; charset=utf-8" for name in ASSETS if name.endswith(".css")},
        **{name: "text/javascript; charset=utf-8" for name in ASSETS if name.endswith(".js")},
        "icon.svg": "image/svg+xml; charset=utf-8",
    }


# Guards.


guarded = pytest.mark.parametrize("make_site", GUARDED.values(), ids=GUARDED, indirect=True)
"""The sites whose guard returns the value of ``grant``."""


@guarded
@pytest.mark.parametrize(
    ("granted", "may_operate", "may_inspect"),
    [
        ({"operate"}, True, False),
        (frozenset(Permission), True, True),
        ({"view_figures"}, False, False),
        ({Permission.INSPECT}, False, True),
        ({"operate": "a dict has a set of keys"}.keys(), True, False),
    ],
)
def test_a_guard_grants_a_set_of_permissions(make_site, granted, may_operate, may_inspect):
    site = make_site(grant=granted)
    config = config_of(site, site.browser())
    assert (config["may_operate"], config["may_inspect"]) == (may_operate, may_inspect)
    assert press(site, CLEAR, {"cache": "atlas"})[0] == (200 if may_operate else 403)
    assert site.cache.get("k") == (None if may_operate else "v")


REFUSALS = [
    *(False, None, True, 0, 1, "operate", "view_figures", b"operate", ["operate"], ("operate",), object),
    *({"Operate"}, {"wheelcache.operate"}, {"operate", "yes"}, {"operate", 1}, frozenset()),
]


@guarded
@pytest.mark.parametrize("verdict", REFUSALS, ids=lambda each: type(each).__name__)
def test_any_other_value_of_a_guard_is_refused_and_logged_if_it_looks_like_a_mistake(make_site, verdict, caplog):
    site = make_site(grant=verdict)
    for url in (*READS, *ACTIONS):
        for method in ("get", "head", "post", "options"):
            status, _, text = site.ask(site.browser(), method, url, {"cache": "atlas"} if method == "post" else None)
            assert (status, "config" in text) == (403, False)
    assert site.cache.get("k") == "v"
    logged = [each for each in caplog.messages if each.startswith("The guard of the dashboard returned")]
    assert bool(logged) == (verdict is not False and verdict is not None and not isinstance(verdict, frozenset))
    kind = "set with another name" if isinstance(verdict, set) else type(verdict).__name__
    for each in logged:
        assert f"a {kind}, which lets no user in" in each
        assert "'view_figures'" in each


# Actions.


def test_the_buttons_say_what_they_did_and_it_is_logged(site, caplog):
    caplog.set_level(logging.INFO, "wheelcache")
    site.cache.get("missing")
    status, answer = press(site, CLEAR, {"cache": "atlas"})
    assert status == 200
    assert re.fullmatch(r"Cleared atlas\. Takes effect in worker \d+, the only one\.", answer["message"])
    assert site.cache.get("k") is None
    assert events(site)[0] == ("cleared", "atlas", f"by {site.user}")
    logged = [each.getMessage() for each in caplog.records if each.name == "wheelcache"]
    assert logged == [f"{site.user!r} cleared the cache 'atlas' from the dashboard"]


@pytest.fixture
def pages(site, tmp_path, clock, closed):
    """A site whose pages are cached in the process of the dashboard."""
    found = WsgiSite(clock, figures_dir=tmp_path / "figures")
    if isinstance(site, FlaskSite):
        site.app.extensions[PAGES] = [found.cache]
    closed(found.cache.cache)
    return found


def test_pages_are_purged_and_the_event_names_the_user(site, pages):
    for target in ("/a", "/b", "/a", "/b"):
        pages.get(target)
    pages.cache.cache.engine.observed.observer.publication.run_now()
    (card,) = (each for each in figures(site, "?details=pages")["caches"] if each["name"] == "pages")
    assert (card["pages"]["stored"], card["pages"]["fresh"]) == (2, 2)
    assert card["pages"].keys() >= {"not_stored_paths", "full_variants"}
    status, answer = press(site, PURGE, {"cache": "pages", "target": " https://example.com/a "})
    assert status == 200
    purged = r"Purged https://example.com/a \(1 pages in this process\)\. Takes effect in worker \d+, the only one\."
    assert re.fullmatch(purged, answer["message"])
    for target in ("/a", "/b"):
        pages.get(target)
    assert pages.runs == 3
    assert press(site, PURGE, {"cache": "pages", "target": "example.com"})[0] == 200
    assert press(site, CLEAR, {"cache": "pages"})[0] == 200
    assert len(pages.cache.cache) == 0
    assert events(site)[:3] == [
        ("cleared", "pages", f"by {site.user}"),
        ("purge", "pages", f"by {site.user}: example.com"),
        ("purge", "pages", f"by {site.user}: https://example.com/a"),
    ]


@pytest.mark.parametrize(
    ("data", "status", "error"),
    [
        ({"cache": "pages", "target": "/a"}, 400, "purge takes an absolute URL"),
        ({"cache": "pages"}, 400, "purge takes an absolute URL"),
        ({"cache": "atlas", "target": "example.com"}, 409, "The cache 'atlas' has no pages to purge"),
        ({"cache": "other", "target": "example.com"}, 404, "There is no cache 'other'"),
    ],
)
def test_a_purge_that_makes_no_sense_is_refused(site, pages, data, status, error):
    pages.get("/a")
    answered, answer = press(site, PURGE, data)
    assert answered == status
    assert answer["error"].startswith(error)
    assert "purge" not in [kind for kind, *_ in events(site)]


def test_the_settings_that_differ_from_the_default_are_shown_as_they_are_spelled(site, tmp_path):
    (card,) = figures(site)["caches"]
    found = {name.lower(): value for name, value in card["settings"]}
    assert found["figures_dir"] == str(tmp_path / "figures")
    assert not found.keys() & {"jitter", "grace", "fill_wait"}


@pytest.mark.parametrize("error", [FileUnusable("it is another user's"), PermissionError(13, "Permission denied")])
def test_where_files_cannot_be_used_it_says_so(site, monkeypatch, error):
    def fail(*args, **options):
        raise error

    monkeypatch.setattr(Site, "ask", fail)
    assert press(site, CLEAR, {"cache": "atlas"}) == (503, {"error": str(error)})
