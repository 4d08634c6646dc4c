"""Time that tests move, in what Django builds on a cache. Scripts on the cache itself are in ``tests/backends``."""

from contextlib import ExitStack
from itertools import count

import pytest
from django.http import HttpResponse
from django.test import RequestFactory
from django.views.decorators.cache import cache_page

from tests.time_travel import FAR, LIBRARIES


@pytest.fixture(params=LIBRARIES.values(), ids=LIBRARIES)
def library(request):
    return request.param


def test_what_only_django_has_follows(library, make):
    cache = make()
    with library.freeze(FAR) as time_:
        cache.set("a", 1, 10)
        time_.shift(9)
        assert cache.touch("a", 20)
        assert cache.incr("a") == 2
        time_.shift(19)
        assert cache.get("a") == 2
        time_.shift(1)
        assert cache.touch("a", 20) is False
        with pytest.raises(ValueError, match="not found"):
            cache.incr("a")
        assert cache.get_or_set("b", 1, 10) == 1
        time_.shift(5)
        assert cache.get_or_set("b", 2, 10) == 1
        time_.shift(5)
        assert cache.get_or_set("b", 2, 10) == 2


def test_a_cached_page_expires(library, make, settings_with):
    calls = count()
    page = cache_page(300)(lambda request: HttpResponse(str(next(calls))))
    request = RequestFactory().get("/page")
    with library.freeze(FAR) as time_, settings_with(make()):
        assert page(request).content == page(request).content == b"0"
        time_.shift(301)
        assert page(request).content == b"1"


def test_a_session_expires(library, make, settings_with):
    from django.contrib.sessions.backends.cache import SessionStore

    with library.freeze(FAR) as time_, settings_with(make()):
        session = SessionStore()
        session.set_expiry(300)
        session["a"] = 1
        session.save()
        time_.shift(299)
        assert SessionStore(session.session_key).get("a") == 1
        time_.shift(2)
        assert SessionStore(session.session_key).get("a") is None


@pytest.fixture
def settings_with(monkeypatch):
    """Have ``caches["default"]`` be a backend of the test."""
    from django.core.cache import caches

    def use(backend):
        stack = ExitStack()
        old = caches["default"]
        caches["default"] = backend
        stack.callback(caches.__setitem__, "default", old)
        return stack

    return use
