"""A Django project behind an HTTP cache, on real servers: no visitor gets a page that was made for another one."""

import random
from contextlib import closing

import pytest

from tests.pages.servers.conftest import SERVERS
from tests.pages.servers.visitors import Visits
from tests.scripts import ROOT


@pytest.fixture(scope="module", autouse=True)
def _no_tracebacks(on_server):
    yield
    # Tracebacks of Django may name the folder of this checkout.
    lines = on_server.logs().replace(str(ROOT), "").splitlines()
    named = [number for number, line in enumerate(lines) if "wheelcache" in line]
    assert not named, "\n".join(lines[max(0, named[0] - 20) : named[-1] + 20])


@pytest.fixture(params=SERVERS)
def site(request, on_server):
    site = on_server(request.param, Visits)
    site.wrong = []
    yield site
    assert not site.wrong


@pytest.fixture
def client(site):
    with closing(site.client()) as client:
        yield client


@pytest.fixture
def visitors(site):
    """Return the headers of the requests of each visitor."""
    alice, bob = site.sessions["alice"], site.sessions["bob"]
    return {
        "a stranger": {},
        "a tracked stranger": {"Cookie": "_ga=1.2.3; __utm=4"},
        "a German": {"Cookie": "_ga=5; django_language=de"},
        "a German browser": {"Accept-Language": "de-DE,de;q=0.9,en;q=0.5"},
        "one from Tokyo": {"Cookie": "zone=Asia/Tokyo"},
        "one in the dark": {"Cookie": "theme=dark"},
        "a Swiss": {"X-Country": "CH"},
        "an attacker with a forwarded host": {"X-Forwarded-Host": "evil.example"},
        "an attacker with a session": {"Cookie": "sessionid=forged; theme=dark"},
        "one with a form": {"Cookie": f"csrftoken={'a' * 32}"},
        "another one with a form": {"Cookie": f"csrftoken={'b' * 32}"},
        "Alice": {"Cookie": alice},
        "Bob": {"Cookie": bob},
    }


# Pairs of requests for a page: by a first visitor, and by a second one, who is answered with the page that was stored
# for the first one ("shared"), with another one that is stored, too ("own"), or with one that is not stored ("none").
PAIRS = [
    ("plain", "a stranger", "a tracked stranger", "shared"),
    ("plain", "a stranger", "a German", "own"),
    ("plain", "a German browser", "a stranger", "own"),
    ("plain", "a stranger", "Alice", "none"),
    ("theme", "a stranger", "one in the dark", "own"),
    ("theme", "one in the dark", "an attacker with a session", "none"),
    ("country", "a Swiss", "a stranger", "own"),
    ("url", "a stranger", "an attacker with a forwarded host", "own"),
    ("address", "a stranger", "a stranger", "none"),
    ("user", "Alice", "Bob", "own"),
    ("user", "Alice", "a stranger", "own"),
    ("form", "one with a form", "another one with a form", "shared"),
    ("kept_form", "one with a form", "another one with a form", "shared"),
    ("kept", "one from Tokyo", "a stranger", "own"),
    ("kept_user", "Alice", "Bob", "own"),
    ("fresh", "a stranger", "a stranger", "none"),
    ("marked", "a stranger", "a stranger", "none"),
    ("streamed", "Alice", "a stranger", "none"),
]
CACHED = sorted({path for path, *_, result in PAIRS if result != "none"})


@pytest.mark.pairs(full="site", of="name, first, second")
@pytest.mark.parametrize(("name", "first", "second", "expected"), PAIRS)
def test_a_visitor_gets_the_page_of_another_one_only_if_it_is_the_same(
    site, client, visitors, name, first, second, expected
):
    url = site.url(f"/long/{name}/")
    site.visit(client, visitors[first], url)
    hits = [site.visit(client, visitors[second], url).is_hit for _ in range(4)]
    # If the first answer could not be stored, the next one shows that one can be, and the one after it is stored.
    assert (hits[0], hits[-1]) == (expected == "shared", expected != "none")
    site.visit(client, visitors[first], url)


@pytest.mark.parametrize("lifetime", ["long", "renewed"])
@pytest.mark.parametrize("site", ["gunicorn", "uvicorn"], indirect=True)
def test_no_order_of_visits_mixes_pages_also_if_they_are_renewed_in_the_background(site, client, visitors, lifetime):
    """A renewal sends only the headers on which the page depends."""
    chance, hits = random.Random(1), 0
    for name in CACHED:
        url = site.url(f"/{lifetime}/{name}/")
        for visitor in chance.sample([*visitors] * 2, 2 * len(visitors)):
            hits += site.visit(client, visitors[visitor], url).is_hit
    assert hits > len(CACHED) * len(visitors) / 4


def test_a_browser_with_a_page_receives_a_304_unless_the_page_is_of_another_visitor(site, client, visitors):
    url = site.url("/long/theme/")
    dark = visitors["one in the dark"]
    for _ in range(2):
        tag = dict(client.ask("cached", url, dark).headers)["etag"]
        unchanged = client.ask("cached", url, {**dark, "If-None-Match": tag})
        assert (unchanged.status, unchanged.body) == (304, b"")
        assert site.visit(client, {"If-None-Match": tag}, url).status == 200
