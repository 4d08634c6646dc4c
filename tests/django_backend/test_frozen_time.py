"""Time that tests move, in what Django builds on a cache. Scripts on the cache itself are in ``tests/backends``."""

from itertools import count

import pytest
from django.contrib.sessions.backends.cache import SessionStore
from django.core.cache import caches
from django.http import HttpResponse
from django.test import RequestFactory
from django.views.decorators.cache import cache_page

from tests.django_backend.conftest import BACKEND
from tests.time_travel import FAR, LIBRARIES


@pytest.mark.parametrize("library", LIBRARIES.values(), ids=LIBRARIES)
def test_a_cached_page_a_session_a_touch_and_a_counter_expire(library, settings):
    settings.CACHES = {"default": {"BACKEND": BACKEND, "LOCATION": f"{library}", "OPTIONS": {"JITTER": 0}}}
    cache, calls = caches["default"], count()
    page = cache_page(300)(lambda request: HttpResponse(str(next(calls))))
    request = RequestFactory().get("/page")
    with library.freeze(FAR) as time_:
        session = SessionStore()
        session.set_expiry(300)
        session["a"] = 1
        session.save()
        cache.set("a", 1, 10)
        assert cache.touch("a", 300)
        assert page(request).content == page(request).content == b"0"
        time_.shift(299)
        assert (SessionStore(session.session_key).get("a"), cache.incr("a")) == (1, 2)
        time_.shift(2)
        assert SessionStore(session.session_key).get("a") is None
        assert cache.touch("a", 20) is False
        with pytest.raises(ValueError, match="not found"):
            cache.incr("a")
        assert page(request).content == b"1"
