"""A site that rehearses, on both drivers."""

from itertools import count

import pytest

from tests.pages.conftest import *  # noqa: F403
from tests.pages.site import Response, running_loop
from tests.waiting import until

numbers = count()
LINES = "<h1>Shop</h1>\n<p>Welcome</p>\n<ul>\n<li>one</li>\n<li>two</li>\n</ul>\n"


def serving(body, control="max-age=60", **headers):
    """Return an application that answers with ``body(request)``."""

    def respond(request):
        if request.notes is not None:
            request.notes.view = "the view"
        return Response(body(request).encode(), {"cache-control": control, **headers})

    return respond


def lines(request):
    return LINES


def noisy(request):
    return f"<p>{next(numbers)}</p>\n{LINES}"


def personal(request):
    return f"{LINES}<p>Hello {request.headers.get('cookie', 'you')}</p>"


def outcomes(site):
    """Return the counts of the only view, without those of the obstacles."""
    counts = site.cache.pages.rehearsal.counts().items()
    return {kind: found.number for (view, kind), found in counts if view and not kind.endswith("]")}


def example(site, kind):
    return next(each.example for (_, name), each in site.cache.pages.rehearsal.counts().items() if name == kind)


@pytest.fixture
def rehearsed(make_site):
    """Make a site that rehearses. Under ASGI, its event loop runs in a thread, as that of a server does."""
    with running_loop() as loop:

        def make(**options):
            site = make_site(**{"rehearse": 1, **options})
            site.loop = loop
            return site

        yield make


@pytest.fixture
def found(clock):
    """Return whether an outcome is found soon. The time passes in between."""

    def found(site, kind, number=1):
        def is_there():
            clock.advance(0.1)
            return outcomes(site).get(kind, 0) == number

        return until(is_there)

    return found


@pytest.fixture
def store(clock):
    """Request a page, and wait until it was compared with the answer to nobody."""

    def store(site, target="/", headers=None):
        number = len(site.requests)
        site.get(target, headers or {})
        clock.advance(0.2)
        assert until(lambda: len(site.requests) >= number + 2)

    return store
