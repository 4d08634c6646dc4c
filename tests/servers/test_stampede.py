"""A stampede of 200 clients on real servers, with fill_wait and without, and requests that fail to fill."""

import socket
from concurrent.futures import ThreadPoolExecutor
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

names = map("number-{}".format, count())


@pytest.fixture(scope="module", autouse=True)
def _no_traceback_but_of_views_that_are_to_raise(fleet):
    yield
    logs = fleet.logs()
    assert logs.count("Traceback") == logs.count("views.Boom\n"), logs


@pytest.fixture
def start(fleet):
    def start_site(kind, *, fill_wait=True):
        framework, server, view, site_wide = kind
        options = {"jitter": 0, "max_entries": 10_000}
        options["fill_wait"] = WAITS[framework] if fill_wait else 0
        return fleet(framework, server, site_wide=site_wide, **options), view

    return start_site


def most_runs(kind):
    """Return how often a view is computed for callers that wait for each other. Pages of Django have two entries, and
    a caller may look between the ends of the two."""
    framework, _, view, _ = kind
    return 2 if framework == "django" and "value" not in view else 1


def kinds(**named):
    return pytest.mark.parametrize("kind", named.values(), ids=named)


def waiting(site):
    return site("waiting", "POST")["waiting"]


def runs(site, name):
    return site(f"ran/{name}", "POST")["runs"]


def asked_by_all(site, view, name):
    """Let all clients request a missing page, and then an expired one. Return how often each was computed."""
    found = []
    for turn in range(2):
        if turn:
            assert site("expire", "POST")["expired"] > 0
        # The first time there is no list of headers either.
        answers = site.together(*[f"{view}/{name}"] * CLIENTS)
        found.append((runs(site, name), {answer["round"] for _, answer in answers}))
        assert [status for status, _ in answers] == [200] * CLIENTS
    return found


@kinds(
    cache_page_on_waitress=("django", "waitress", "page", False),
    middleware_on_uvicorn_async_view=("django", "uvicorn", "awhole", True),
    aget_and_aset_on_uvicorn=("django", "uvicorn", "avalue", False),
    cached=("flask", "waitress", "page", False),
    cached_async_view=("flask", "waitress", "async", False),
    memoized=("flask", "waitress", "memoized", False),
)
def test_what_200_clients_ask_for_at_once_is_computed_once_with_fill_wait(start, kind):
    site, view = start(kind)
    for runs_of_turn, answers in asked_by_all(site, view, next(names)):
        assert runs_of_turn <= most_runs(kind)
        assert len(answers) <= most_runs(kind)
    assert waiting(site) == 0


@kinds(
    cache_page=("django", "waitress", "page", False),
    cached=("flask", "waitress", "page", False),
)
def test_and_more_than_once_without(start, kind):
    site, view = start(kind, fill_wait=False)
    assert all(times > 1 for times, _ in asked_by_all(site, view, next(names)))


# Requests that fail to fill.


@kinds(
    cache_page_on_waitress=("django", "waitress", "fails", False),
    middleware_on_uvicorn_sync_view=("django", "uvicorn", "whole-fails", True),
    middleware_on_uvicorn_async_view=("django", "uvicorn", "awhole-fails", True),
    aget_and_aset_on_uvicorn=("django", "uvicorn", "avalue-fails", False),
    cached=("flask", "waitress", "fails", False),
)
@pytest.mark.parametrize(("how", "status"), [("raises", 500), ("not-found", 404)])
def test_if_a_view_raises_or_is_not_cached_the_next_request_computes_for_all(start, kind, how, status):
    site, view = start(kind)
    name = next(names)
    site("hold", "POST")
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(site.together, *[f"{view}/{how}/{name}"] * FEW)
        assert until(lambda: waiting(site) == FEW - 1)
        site("release", "POST")
        answers = asking.result(PATIENCE)
    made = [answer for answer in answers if answer != (status, None)]
    assert len(made) == FEW - 1
    times = 1 + most_runs(kind)
    assert all(answer in [(200, {"run": run}) for run in range(2, times + 1)] for answer in made)
    assert 2 <= runs(site, name) <= times


@kinds(
    cache_page_on_waitress=("django", "waitress", "short", False),
    aget_and_aset_on_uvicorn=("django", "uvicorn", "avalue-fails", False),
    cached=("flask", "waitress", "fails", False),
)
def test_no_request_waits_longer_than_fill_wait_for_a_view_that_hangs(start, kind):
    site, view = start(kind)
    name = f"short:{next(names)}"
    site("hold", "POST")
    with ThreadPoolExecutor(1) as pool:
        hanging = pool.submit(site.ask, f"{view}/hangs/{name}")
        assert until(lambda: runs(site, name) == 1)
        answers = site.together(*[f"{view}/hangs/{name}"] * FEW)
        assert [status for status, _ in answers] == [200] * FEW
        # Now it is cached, and the one that hangs is still at it.
        assert (site.ask(f"{view}/hangs/{name}")[0], hanging.done()) == (200, False)
        assert 2 <= runs(site, name) <= 1 + FEW
        site("release", "POST")
        assert hanging.result(PATIENCE) == (404, None)


def test_a_request_that_bypasses_the_cache_is_not_held_up_and_holds_no_other_up(start):
    site, view = start(("flask", "waitress", "fails", False))
    path = f"{view}/raises/{(name := next(names))}"
    site("hold", "POST")
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(site.together, *[path] * FEW)
        assert until(lambda: waiting(site) == FEW - 1)
        assert site(f"{path}?bypass") == {"run": 2}
        assert waiting(site) == FEW - 1
        site("release", "POST")
        answers = asking.result(PATIENCE)
    assert sorted(answers, key=str) == sorted([(500, None), *[(200, {"run": 3})] * (FEW - 1)], key=str)
    assert runs(site, name) == 3


# Clients that go away, and the event loop.


def leave(site, path):
    """Send a request, for which no client is there when the connection is closed."""
    connection = socket.create_connection(("127.0.0.1", site.port))
    connection.sendall(f"GET /{path} HTTP/1.1\r\nHost: 127.0.0.1:{site.port}\r\n\r\n".encode())
    return connection


@kinds(
    aget_and_aset=("django", "uvicorn", "avalue-fails", False),
    middleware=("django", "uvicorn", "awhole-fails", True),
)
def test_if_the_client_goes_away_its_view_is_cancelled_and_the_next_request_computes(start, kind):
    site, view = start(kind)
    name = next(names)
    site("hold", "POST")
    impatient = leave(site, f"{view}/hangs/{name}")
    assert until(lambda: runs(site, name) == 1)
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(site.together, *[f"{view}/hangs/{name}"] * FEW)
        assert until(lambda: waiting(site) == FEW)
        impatient.close()
        answers = asking.result(PATIENCE)
    times = 1 + most_runs(kind)
    assert all(answer in [(200, {"run": run}) for run in range(2, times + 1)] for answer in answers)
    assert 2 <= runs(site, name) <= times


def test_a_waiter_whose_client_goes_away_takes_no_other_with_it(start):
    site, view = start(("django", "uvicorn", "avalue-fails", False))
    name = next(names)
    site("hold", "POST")
    path = f"{view}/raises/{name}"
    with ThreadPoolExecutor(1) as pool:
        failing = pool.submit(site.ask, path)
        assert until(lambda: runs(site, name) == 1)
        impatient = leave(site, path)
        assert until(lambda: waiting(site) == 1)
        impatient.close()
        assert until(lambda: waiting(site) == 0)
        site("release", "POST")
        assert failing.result(PATIENCE) == (500, None)
    assert site(path) == {"run": 2}


def test_cache_page_on_an_async_view_itself_never_waits_since_that_would_stop_the_loop(start):
    """Django's decorator reads the cache in the event loop. All requests are in the view together, so none waited."""
    site, _ = start(("django", "uvicorn", "page", False))
    answers = site.together(*[f"apage-for/{FEW}"] * FEW)
    assert [status for status, _ in answers] == [200] * FEW
    assert runs(site, "together") == FEW
    assert site.ask(f"apage-for/{FEW}")[0] == 200
    assert runs(site, "together") == FEW
