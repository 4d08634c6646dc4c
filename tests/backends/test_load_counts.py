"""Loads are conserved: each computation of a value counts as one load, however the value is cached."""

from contextlib import contextmanager, nullcontext, suppress

import pytest
from django.db import transaction

from tests.backends.adapters import IN_PROCESS, WITH_ASYNC
from tests.guests import needs
from wheelcache.engine.guests import module_of

pytestmark = pytest.mark.django_db(transaction=True)

MODES = {
    "plain": {},
    "fill_waits": {"fill_wait": 5, "grace": 5},
    "transactions": {"transactions": True},
    "near_cache": {},
    "near_cache transactions": {"transactions": True},
}


def kinds(*names):
    """Return the adapters in each mode. The TieredCache of Flask follows no transactions."""
    return [
        pytest.param(name, mode, marks=needs(*mode.replace("plain", "").split()))
        for name in names
        for mode in MODES
        if "django" in name or mode != "near_cache transactions"
    ]


@pytest.fixture
def make_in_mode(request):
    def make(name, mode):
        if "near_cache" not in mode:
            return WITH_ASYNC[name].make(**MODES[mode])
        from tests.near_cache import tiers

        return request.getfixturevalue("over")(tiers.WITH_ASYNC[name], **MODES[mode])

    return make


class Undone(Exception):
    """Rolls a block back."""


class Computed:
    """A function that counts its calls."""

    def __init__(self):
        self.calls = 0

    def __call__(self):
        self.calls += 1
        return "computed"

    def fail(self):
        self.calls += 1
        raise Undone


@contextmanager
def on_django(is_kept):
    with suppress(Undone), transaction.atomic():
        yield
        if not is_kept:
            raise Undone


@contextmanager
def on_flask(is_kept):
    scope = module_of("transactions", "announced").transaction_scope
    scope.begin(on_flask)
    yield
    if is_kept:
        scope.will_commit(on_flask)
    (scope.commit if is_kept else scope.rollback)(on_flask)


BLOCKS = {"django": on_django, "flask": on_flask}


def loads(cache):
    """Return the number of loads, in which the total, the histogram and the groups of keys agree."""
    stats = cache.engine.stats()
    loads = stats.loads + stats.load_failures
    assert sum(stats.load_buckets) == loads
    assert sum(each.loads for each in stats.groups.values()) == loads
    return loads


# The ways to cache a computed value. Each computes at least one, and finds it again, or writes it again.


def get_and_set(cache, compute):
    for key in ("a", "b", "a", "k" * 300):
        if cache.get(key) is None:
            cache.set(key, compute())
            cache.set(key, "written again")


def get_many_and_set_many(cache, compute):
    for keys in (["a", "b"], ["b", "c"]):
        found = cache.get_many(keys)
        cache.set_many({key: compute() for key in keys if key not in found})
    cache.get_many(["t", "u"])
    cache.backend.set_many({key: compute() for key in ("t", "u")}, tags=["a"])


def load(cache, compute):
    for key in ("a", "b", "a"):
        cache.load(key, compute)
    cache.load("tagged", compute, tags=["a"])
    cache.load("over", compute, -1)
    cache.load("adaptive", compute, lambda value: 60)
    with suppress(Undone):
        cache.load("fails", compute.fail)


@pytest.mark.pairs
@pytest.mark.filterwarnings("ignore:Cache key will cause errors")
@pytest.mark.parametrize("flow", [get_and_set, get_many_and_set_many, load])
@pytest.mark.parametrize(("name", "mode"), kinds(*IN_PROCESS))
def test_each_computation_is_one_load(make_in_mode, name, mode, flow):
    cache, compute = make_in_mode(name, mode), Computed()
    blocks = [nullcontext()]
    if "transactions" in mode:
        blocks += [BLOCKS[name](is_kept) for is_kept in (True, False)]
    for block in blocks:
        cache.clear()
        with block:
            flow(cache, compute)
        assert loads(cache) == compute.calls > 0


@pytest.mark.parametrize(("name", "mode"), kinds("django async"))
def test_each_computation_of_a_coroutine_is_one_load(make_in_mode, name, mode):
    cache, compute = make_in_mode(name, mode), Computed()

    async def main():
        assert await cache.backend.aget("a") is None
        await cache.backend.aset("a", compute())
        assert await cache.backend.aget_many(["b", "c"]) == {}
        await cache.backend.aset_many({"b": compute(), "c": compute()})

    cache.run(main())
    load(cache, compute)
    assert loads(cache) == compute.calls


@needs("transactions")
@pytest.mark.parametrize("look_up", [lambda cache: cache.get("key"), lambda cache: cache.get_many(["key"])])
@pytest.mark.parametrize("delete", [lambda cache: cache.delete("key"), lambda cache: cache.backend.delete_tags("tag")])
@pytest.mark.parametrize("name", IN_PROCESS)
def test_the_computation_of_a_key_that_the_transaction_has_deleted_is_one_load(make_in_mode, name, delete, look_up):
    cache, compute = make_in_mode(name, "transactions"), Computed()
    cache.backend.set("key", 1, tags=["tag"])
    with BLOCKS[name](is_kept=True):
        delete(cache)
        assert not look_up(cache)
        cache.set("key", compute())
    assert loads(cache) == compute.calls == 1
