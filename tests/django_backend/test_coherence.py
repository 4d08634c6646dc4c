"""COHERENCE="host" in Django: aliases, pages, requests. Keys and values are in ``tests/backends``."""

import pytest
from django.http import HttpResponse
from django.test import RequestFactory
from django.utils.cache import get_cache_key, learn_cache_key

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
