"""A value that cannot be decoded is deleted from the store, whose client raises the errors."""

from functools import partial

import pytest

from tests.backends.undecoded import CALLS, ERRORS, Moved, load_while_three_wait
from tests.near_cache.tiers import WITH_ASYNC
from wheelcache.near_cache import store_tags


@pytest.fixture(params=WITH_ASYNC)
def tier(request, tier_of):
    return partial(tier_of, request.param)


@pytest.mark.pairs(full="call")
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("kind", ["memory", "files", pytest.param("redis", marks=pytest.mark.servers)])
@pytest.mark.parametrize("error", ERRORS[2:6], ids=lambda error: type(error).__name__)
def test_it_is_deleted_from_the_store(tier, deploy, undecoded, call, kind, error):
    cache = tier(kind)
    cache.behind.set_many({"key": Moved(1), "other": 1})
    deploy(error)
    if call == "count" and kind == "redis":
        # It counts by itself, and decodes nothing.
        cache.get("key")
    assert CALLS[call](cache)
    (line,) = undecoded()
    assert cache.key("key") in line
    assert repr(error) in line
    # Nothing is left that cannot be decoded.
    cache.behind.get_many(["key"])
    cache.set("key", "repaired")
    assert cache.get("key") == "repaired"


def test_a_value_that_another_process_has_set_in_its_place_stays_in_the_store(tier, deploy, undecoded, monkeypatch):
    cache = tier("files")
    cache.behind.set("key", Moved(1))
    deploy()
    monkeypatch.setattr(Moved, "meanwhile", lambda: cache.behind.set("key", ["replaced"]))
    assert cache.get("key") == cache.behind.get("key") == ["replaced"]
    assert undecoded() == []


@pytest.mark.parametrize("kind", ["memory", "files", pytest.param("redis", marks=pytest.mark.servers)])
def test_a_tag_whose_token_cannot_be_decoded_counts_as_dropped(tier, deploy, undecoded, monkeypatch, kind):
    cache = tier(kind)
    with monkeypatch.context() as patch:
        patch.setattr(store_tags, "first_token", lambda: Moved(1))
        for key in ("key", "other"):
            cache.backend.set(key, "old", tags=["a"])
    deploy()
    assert cache.get("key", "default") == "default"
    assert cache.get_many(["other"]) == {}
    assert len(undecoded()) == 1
    # Not a key that was missed: its new value may be from before the drop.
    cache.backend.set("new", "repaired", tags=["a"])
    assert cache.get("new") == "repaired"


def test_callers_that_wait_for_a_load_of_a_tier_that_is_not_decoded_load_their_own(tier, deploy, in_thread):
    cache = tier("memory")
    deploy()
    load_while_three_wait(cache, in_thread)
    assert cache.get("key") is None
