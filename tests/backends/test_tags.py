"""Tags of both backends, and of a TieredCache over a cache in memory."""

from contextlib import contextmanager, nullcontext
from functools import partial

import pytest

from tests.backends.adapters import ADAPTERS
from tests.guests import has, needs
from tests.waiting import PATIENCE

pytestmark = pytest.mark.pairs(full="make")

WAYS_TO_STORE = {
    "set": lambda backend, key, tags: backend.set(key, "old", tags=tags),
    "set, with a timeout": lambda backend, key, tags: backend.set(key, "old", 10, tags=tags),
    "add": lambda backend, key, tags: backend.add(key, "old", tags=tags),
    "set_many": lambda backend, key, tags: backend.set_many({key: "old"}, tags=tags),
}


MAKERS = {name: partial(nullcontext, adapter.make) for name, adapter in ADAPTERS.items()}
if has("near_cache"):
    from tests.near_cache.tiers import WITH_ASYNC, made_tiers

    @contextmanager
    def over_memory(tier):
        with made_tiers(list) as over:
            yield partial(over, tier)

    MAKERS |= {f"tiered {name}": partial(over_memory, tier) for name, tier in WITH_ASYNC.items()}


@pytest.fixture(params=MAKERS.values(), ids=MAKERS)
def make(request):
    with request.param() as make:
        yield make


@pytest.fixture
def backend(make):
    return make().backend


@pytest.mark.parametrize("store", WAYS_TO_STORE.values(), ids=WAYS_TO_STORE)
@pytest.mark.filterwarnings("ignore::django.core.cache.CacheKeyWarning")
@pytest.mark.parametrize("key", ["key", "with a space"])
def test_an_entry_leaves_with_any_of_its_tags(backend, store, key):
    for tag in ("user:7", "articles"):
        store(backend, key, ("user:7", "articles"))
        backend.set("other", 1, tags=["user:8"])
        backend.set("none", 1)
        assert backend.get(key) == "old"
        assert backend.delete_tags(tag) is None
        assert backend.get(key) is None
        assert [backend.get("other"), backend.get("none")] == [1, 1]


def test_a_loaded_value_has_tags(make):
    adapter = make()
    for value in range(2):
        assert adapter.load("key", lambda value=value: [value], tags=("a",)) == [value]
        assert adapter.load("key", lambda: "unused", tags=("a",)) == [value]
        adapter.backend.delete_tags("a")


@pytest.mark.pairs(full="make", of="make")
@pytest.mark.parametrize("tags", ["user:7", None, 7, ("",), (7,), [f"{number}" for number in range(65)]])
def test_wrong_tags_are_refused(make, tags):
    adapter = make()
    calls = [lambda store=store: store(adapter.backend, "key", tags) for store in WAYS_TO_STORE.values()]
    for call in (*calls, lambda: adapter.load("key", lambda: 1, tags=tags)):
        with pytest.raises((TypeError, ValueError), match="tags must be an iterable of at most 64 non-empty strings"):
            call()
    assert adapter.get("key") is None


@pytest.mark.parametrize("store", WAYS_TO_STORE.values(), ids=WAYS_TO_STORE)
def test_a_value_that_is_set_after_a_clear_by_the_same_caller_is_kept(make, store):
    backend = make().backend
    assert backend.get("key") is None
    backend.clear()
    store(backend, "key", ("a",))
    assert backend.get("key") is not None


@pytest.mark.parametrize("options", [{}, pytest.param({"fill_wait": 5}, marks=needs("fill_waits"))])
@pytest.mark.parametrize("store", WAYS_TO_STORE.values(), ids=WAYS_TO_STORE)
def test_a_value_that_was_computed_while_its_tag_was_dropped_is_not_kept(make, store, options, in_thread):
    backend = make(**options).backend
    assert backend.get("key") is None
    in_thread(backend.delete_tags, "a").result(PATIENCE)
    store(backend, "key", ("a",))
    assert backend.get("key") is None


def test_a_value_that_is_set_after_a_load_is_kept_whatever_was_dropped_during_the_load(make, in_thread):
    adapter = make()
    adapter.load("key", lambda: in_thread(adapter.backend.delete_tags, "a").result(PATIENCE), tags=("a",))
    adapter.backend.set("key", "new", tags=("a",))
    assert adapter.get("key") == "new"


@needs("fill_waits")
def test_a_caller_that_waits_for_a_value_does_not_receive_one_that_a_drop_has_overtaken(make, in_thread):
    adapter = make(fill_wait=PATIENCE)
    backend = adapter.backend
    assert backend.get("key") is None
    in_thread(backend.delete_tags, "a").result(PATIENCE)

    def compute():
        found = backend.get("key")
        if found is None:
            backend.set("key", "new", tags=("a",))
        return found or "new"

    waiting = in_thread(compute)
    backend.set("key", "old", tags=("a",))
    adapter.end_request()
    assert waiting.result(PATIENCE) == "new"
    assert backend.get("key") == "new"


def test_a_load_that_a_drop_has_overtaken_is_not_kept(make, in_thread):
    adapter = make()
    drop = partial(in_thread, adapter.backend.delete_tags, "a")
    assert adapter.load("key", lambda: drop().result(PATIENCE) or "old", tags=("a",)) == "old"
    assert adapter.get("key") is None
