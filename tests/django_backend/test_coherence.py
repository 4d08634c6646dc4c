"""COHERENCE="host" in Django: aliases, pages, requests. Keys and values are in ``tests/backends``."""

import pytest
from django.http import HttpResponse
from django.test import RequestFactory
from django.utils.cache import get_cache_key, learn_cache_key, patch_vary_headers

from tests.waiting import join, start
from wheelcache.coherence.misses import FILL_WINDOW
from wheelcache.django_backend.request_context import page_tags

pytestmark = pytest.mark.usefixtures("own_stamps")


@pytest.fixture
def location(request):
    """A LOCATION of this test's own."""
    return request.node.name


def test_a_list_of_headers_that_a_request_without_a_page_leaves_is_a_fill(make, location):
    """The list is held back, stored at the end of the request, and does not outdate entries of other processes."""
    options = {"COHERENCE": "host", "FILL_WAIT": 5}
    one, other = make(options, location=location), make({**options, "MAX_ENTRIES": 7}, location=location)
    request = RequestFactory().get("/page")
    for cache in (one, other):
        assert get_cache_key(request, cache=cache) is None
        learn_cache_key(request, HttpResponse("page"), 60, cache=cache)
        cache.close()
    assert get_cache_key(request, cache=one)
    assert get_cache_key(request, cache=other)


@pytest.fixture(params=[{}, {"FILL_WAIT": 5}], ids=["", "with leases"])
def workers(make, location, request, clock, monkeypatch):
    """Two workers, each a function that visits a page. Called with the headers of the request, the names of those that
    the page varies on, and a function to call while the view runs, it returns whether the page was stored."""
    monkeypatch.setattr(page_tags, "are_used", True)

    def worker(most):
        cache = make({"COHERENCE": "host", "MAX_ENTRIES": most, **request.param}, location=location)

        def visit(headers=None, vary=("Theme",), meanwhile=None):
            request = RequestFactory().get("/page", headers=headers)
            request.cache_tags = ["tag"]
            tags = page_tags.begin(request)
            try:
                key = get_cache_key(request, cache=cache)
                if key is not None and cache.get(key) is not None:
                    return True
                if meanwhile is not None:
                    meanwhile()
                response = HttpResponse("page")
                patch_vary_headers(response, vary)
                cache.set(learn_cache_key(request, response, 60, cache=cache), response, 60)
                return False
            finally:
                page_tags.end(tags)
                cache.close()

        visit.cache = cache
        return visit

    return worker(7), worker(8)


LIGHT, DARK = {"Theme": "light"}, {"Theme": "dark"}


def test_a_page_of_one_worker_leaves_those_of_the_others(workers, clock):
    """Also if its view takes longer than other fills may, and if the list of headers that it leaves is known."""
    visits = [(worker, headers) for worker in workers for headers in (LIGHT, DARK)]
    for worker, headers in visits:
        assert not worker(headers, meanwhile=lambda: clock.advance(FILL_WINDOW + 1))
    assert [worker(headers) for worker, headers in visits] == [True] * 4
    # The last page has given the list a new timeout.
    clock.advance(5 * FILL_WINDOW + 1)
    assert worker(headers)


def test_a_list_of_headers_that_has_changed_reaches_the_other_workers(workers):
    one, other = workers
    for worker in workers:
        worker(LIGHT)
    one(DARK, vary=["Theme", "Cookie"])
    assert not other(LIGHT)
    one(LIGHT | {"Cookie": "a=1"}, vary=["Theme", "Cookie"])
    assert one(LIGHT | {"Cookie": "a=1"})
    assert not one(LIGHT | {"Cookie": "a=2"})


@pytest.mark.parametrize("outdate", ["clear", "delete_tags"])
def test_a_page_that_another_worker_outdates_while_it_is_computed_is_not_kept(workers, outdate):
    """Its key is not known before it is computed, and another variant stores the list of headers again."""
    one, other = workers
    calls = {"clear": other.cache.clear, "delete_tags": lambda: other.cache.delete_tags("tag")}

    # In a thread, which is not part of the request.
    assert not one(LIGHT, meanwhile=lambda: join(start(calls[outdate])))
    assert not one(DARK)
    assert not one(LIGHT)
    assert one(LIGHT)


def test_prefixes_and_versions_are_part_of_the_key(make, location):
    one = make({"COHERENCE": "host"}, location=location, KEY_PREFIX="a")
    other = make({"COHERENCE": "host", "MAX_ENTRIES": 7}, location=location, KEY_PREFIX="b")
    for each in (one, other):
        assert each.get_many(["k"]) == {}
        each.set_many({"k": "old"})
        assert each.get("k", version=2) is None
        each.set("k", "old", version=2)
    assert one.store is not other.store
    one.delete("k")
    assert (other.get("k"), one.get("k", version=2)) == ("old", "old")
    other.incr_version("k", version=1, delta=1)
    assert other.get("k", version=2) == "old"


@pytest.mark.filterwarnings("ignore::django.core.cache.CacheKeyWarning")
def test_a_key_that_django_warns_of_and_a_touch_are_told_as_well(make, location):
    one = make({"COHERENCE": "host"}, location=location)
    other = make({"COHERENCE": "host", "MAX_ENTRIES": 7}, location=location)
    for each in (one, other):
        assert each.get("a b", "missing") == "missing"
        each.set("a b", 1)
    one.set("a b", 2)
    assert other.get("a b", "missing") == "missing"
    assert one.get("a b") == 2
    for each in (one, other):
        assert each.get_or_set("k", 1) == 1
    one.touch("k", 100)
    assert other.get("k") is None
