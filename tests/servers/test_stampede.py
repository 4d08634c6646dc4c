"""A stampede of clients on real servers with fill_wait, and requests that fail to fill."""

import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count

import pytest

from tests.waiting import PATIENCE, until

CLIENTS = 200
FEW = 8
LONG, SHORT = 1000, 1
"""Seconds of fill_wait: one that ends after any test, and one for the tests of views that hang."""

PAGES = "views.decorators.cache."
WAITS = {
    "django": {
        PAGES: LONG,
        f"{PAGES}cache_header.short.": SHORT,
        f"{PAGES}cache_page.short.": SHORT,
        "value:": LONG,
        "value:short:": SHORT,
    },
    "flask": {"": LONG, "view//fails/hangs/": SHORT},
}

KINDS = {
    "cache_page": ("django", "waitress", "page"),
    "middleware, async": ("django", "uvicorn", "awhole"),
    "aget and aset": ("django", "uvicorn", "avalue"),
    "cached": ("flask", "waitress", "page"),
    "cached, async": ("flask", "waitress", "async"),
    "memoized": ("flask", "waitress", "memoized"),
}
FAILING = {
    "cache_page": ("django", "waitress", "fails"),
    "middleware": ("django", "uvicorn", "whole-fails"),
    "middleware, async": ("django", "uvicorn", "awhole-fails"),
    "aget and aset": ("django", "uvicorn", "avalue-fails"),
    "cached": ("flask", "waitress", "fails"),
}

names = map("number-{}".format, count())


@pytest.fixture(scope="module", autouse=True)
def _no_traceback_but_of_views_that_are_to_raise(fleet):
    yield
    logs = fleet.logs()
    assert logs.count("Traceback") == logs.count("views.Boom\n"), logs


@pytest.fixture
def start(fleet):
    """Start a site of a kind. Return it, and how often a view is computed for callers that wait for each other: pages
    of Django have two entries, and a caller may look between the ends of the two."""

    def start_site(kind):
        framework, server, view = kind
        options = {"jitter": 0, "max_entries": 10_000, "fill_wait": WAITS[framework]}
        most = 2 if framework == "django" and "value" not in view else 1
        return fleet(framework, server, site_wide="whole" in view, **options), most

    return start_site


def waiting(site):
    return site("waiting", "POST")["waiting"]


def runs(site, name):
    return site(f"ran/{name}", "POST")["runs"]


@contextmanager
def held(site):
    """Hold the views up until the end of the block."""
    site("hold", "POST")
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit
        site("release", "POST")


def leave(site, path):
    """Send a request, for which no client is there when the connection is closed."""
    connection = socket.create_connection(("127.0.0.1", site.port))
    connection.sendall(f"GET /{path} HTTP/1.1\r\nHost: 127.0.0.1:{site.port}\r\n\r\n".encode())
    return connection


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_what_200_clients_ask_for_at_once_is_computed_once(start, kind):
    site, most = start(kind)
    name = next(names)
    for turn in range(2):
        if turn:
            assert site("expire", "POST")["expired"] > 0
        answers = site.together(*[f"{kind[2]}/{name}"] * CLIENTS)
        assert [status for status, _ in answers] == [200] * CLIENTS
        computed = runs(site, name)
        assert computed <= most
        assert len({answer["round"] for _, answer in answers}) <= computed
    assert waiting(site) == 0


@pytest.mark.parametrize("kind", FAILING.values(), ids=FAILING)
@pytest.mark.parametrize(("how", "status"), [("raises", 500), ("not-found", 404)])
def test_if_a_view_raises_or_is_not_cached_the_next_request_computes_for_all(start, kind, how, status):
    site, most = start(kind)
    name = next(names)
    with held(site) as submit:
        asking = submit(site.together, *[f"{kind[2]}/{how}/{name}"] * FEW)
        assert until(lambda: waiting(site) == FEW - 1)
    answers = asking.result(PATIENCE)
    made = [answer for answer in answers if answer != (status, None)]
    assert len(made) == FEW - 1
    assert all(answer in [(200, {"run": run}) for run in range(2, most + 2)] for answer in made)
    assert 2 <= runs(site, name) <= most + 1


@pytest.mark.parametrize("kind", [("django", "waitress", "short"), FAILING["aget and aset"], FAILING["cached"]])
def test_no_request_waits_longer_than_fill_wait_for_a_view_that_hangs(start, kind):
    site, _ = start(kind)
    name = f"short:{next(names)}"
    path = f"{kind[2]}/hangs/{name}"
    with held(site) as submit:
        hanging = submit(site.ask, path)
        assert until(lambda: runs(site, name) == 1)
        assert [status for status, _ in site.together(*[path] * FEW)] == [200] * FEW
        # Now it is cached, and the one that hangs is still at it.
        assert (site.ask(path)[0], hanging.done()) == (200, False)
        assert 2 <= runs(site, name) <= 1 + FEW
    assert hanging.result(PATIENCE) == (404, None)


@pytest.mark.parametrize("kind", [FAILING["aget and aset"], FAILING["middleware, async"]])
def test_if_the_client_goes_away_its_view_is_cancelled_and_the_next_request_computes(start, kind):
    site, most = start(kind)
    path = f"{kind[2]}/hangs/{(name := next(names))}"
    with held(site) as submit:
        impatient = leave(site, path)
        assert until(lambda: runs(site, name) == 1)
        asking = submit(site.together, *[path] * FEW)
        assert until(lambda: waiting(site) == FEW)
        impatient.close()
        answers = asking.result(PATIENCE)
    assert all(answer in [(200, {"run": run}) for run in range(2, most + 2)] for answer in answers)
    assert 2 <= runs(site, name) <= most + 1
