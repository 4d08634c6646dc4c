"""TieredCache with coherence="host": no value is kept whose key another process wrote during its computation."""

import asyncio
from itertools import count
from threading import Event

import pytest
from flask import Flask

from tests.backends.adapter import QUIET
from tests.backends.tiers import SERVERS, TIERS
from tests.waiting import PATIENCE, until_waiting
from wheelcache.loading.steps import then

pytestmark = [pytest.mark.pairs(full="name, kind"), pytest.mark.servers, pytest.mark.usefixtures("own_stamps")]


KINDS = [(name, kind) for name, cls in TIERS.items() for kind in cls.kinds if kind != "memory"]
of_any_kind = pytest.mark.parametrize(("name", "kind"), KINDS)
names = pytest.mark.parametrize("name", TIERS)


@pytest.fixture
def make(over, request, tmp_path):
    """Make a tier that acts as one in another process."""
    sizes = count(7)

    def make(name, kind="files", **options):
        fixture = SERVERS.get(kind)
        place = request.getfixturevalue(fixture) if fixture else tmp_path / "files"
        options = {"coherence": "host", **options}
        return over(TIERS[name], kind, place, name=request.node.name, max_entries=next(sizes), **options)

    return make


@pytest.fixture
def pair(make):
    def pair(name, kind="files", **options):
        pair = make(name, kind, **options), make(name, kind, **options)
        pair[0].clear()
        # Otherwise the first token would be the first value that a store receives.
        pair[0].backend.set("made", 1, tags=["a"])
        return pair

    return pair


STORES = {
    "set": ("set", lambda tier: tier.set("k", "old")),
    "set with tags": ("set", lambda tier: tier.backend.set("k", "old", tags=["a"])),
    "add": ("add", lambda tier: tier.add("k", "old")),
    "set_many": ("set_many", lambda tier: tier.set_many({"k": "old", "other": 1})),
}
MISSES = {"get": lambda tier: tier.get("k"), "get_many": lambda tier: tier.get_many(["k"])}
WRITES = {
    "set": lambda tier: tier.set("k", "new"),
    "delete": lambda tier: tier.delete("k"),
    "clear": lambda tier: tier.clear(),
}
stores = pytest.mark.parametrize(("method", "store"), STORES.values(), ids=STORES)
writes = pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)


def around(tier, method, before=lambda: None, after=lambda: None):
    """Call functions directly before and after the next call of a method of the store behind, by any process."""
    l2 = tier.backend.l2 if hasattr(tier.backend, "l2") else tier.backend._l2
    for name in (method, f"a{method}"):
        if hasattr(l2, name):
            _around(l2, name, before, after)


def _around(l2, name, before, after):
    call = getattr(l2, name)

    def called(*args, **kwargs):
        delattr(l2, name)
        before()
        result = call(*args, **kwargs)

        def ended(result):
            after()
            return result

        return then(ended, result)

    setattr(l2, name, called)


def found(*tiers):
    return [tier.get("k") for tier in tiers]


@stores
@pytest.mark.parametrize("miss", MISSES.values(), ids=MISSES)
@writes
@of_any_kind
def test_a_value_that_was_missed_before_a_write_by_another_process_is_not_kept(
    pair, name, kind, method, store, miss, write, in_thread
):
    tier, other = pair(name, kind)
    assert not miss(tier)
    in_thread(write, other).result(PATIENCE)
    expected = found(other)[0]
    stored = store(tier)
    assert found(tier, other) == [expected] * 2
    if method == "add":
        assert stored is False
    if method == "set_many":
        assert "k" in stored
        assert "other" not in stored
        assert other.get("other") == 1


@pytest.mark.pairs(full="name")
@stores
@writes
@names
def test_a_value_that_was_missed_before_a_write_by_another_thread_is_not_kept(
    pair, name, method, store, write, in_thread
):
    tier, other = pair(name)
    assert tier.get("k") is None
    in_thread(write, tier).result(PATIENCE)
    expected = found(other)[0]
    store(tier)
    assert found(tier, other) == [expected] * 2


@pytest.mark.pairs(full="name, kind", of="name, kind")
@stores
@of_any_kind
def test_a_value_that_is_stored_while_a_delete_by_another_process_has_not_returned_is_not_kept(
    pair, name, kind, method, store
):
    tier, other = pair(name, kind)
    assert tier.get("k") is None
    around(other, "delete", after=lambda: store(tier))
    other.delete("k")
    assert found(tier, other) == [None, None]


@stores
@writes
@of_any_kind
def test_a_value_that_reaches_the_store_after_a_write_by_another_process_is_removed(
    pair, name, kind, method, store, write, in_thread
):
    tier, other = pair(name, kind)
    other.get("k")
    assert tier.get("k") is None
    around(tier, method, before=lambda: in_thread(write, other).result(PATIENCE))
    store(tier)
    kept = "new" if method == "add" and write is WRITES["set"] else None
    assert found(tier, other) == [kept, kept]


@names
def test_an_add_whose_value_is_removed_again_since_another_process_wrote_the_key_was_not_stored(pair, name, in_thread):
    tier, other = pair(name)
    assert tier.get("k") is None
    around(tier, "add", before=lambda: in_thread(other.delete, "k").result(PATIENCE))
    assert tier.add("k", "old") is False
    assert found(tier, other) == [None, None]


@pytest.mark.pairs(full="name, kind", of="name, kind")
@stores
@of_any_kind
def test_a_newer_value_of_another_process_that_replaced_the_stored_one_stays(
    pair, name, kind, method, store, in_thread
):
    tier, other = pair(name, kind)
    assert tier.get("k") is None
    around(tier, method, after=lambda: in_thread(other.set, "k", "new").result(PATIENCE))
    store(tier)
    assert found(tier, other) == ["new", "new"]


@writes
@of_any_kind
def test_a_loaded_value_is_not_kept_if_another_process_writes_its_key_meanwhile(pair, name, kind, write):
    tier, other = pair(name, kind)

    def load():
        write(other)
        return "old"

    tier.load("k", load)
    assert found(tier, other) == [found(other)[0]] * 2
    assert "old" not in found(tier, other)
    tier.delete("k")
    around(tier, "add", before=lambda: other.delete("k"))
    tier.load("k", lambda: "old")
    assert found(tier, other) == [None, None]
    assert tier.load("k", lambda: "new") == "new"
    assert found(tier, other) == ["new", "new"]


@names
def test_processes_that_compute_a_value_together_do_not_outdate_each_other(pair, name):
    tier, other = pair(name)
    assert found(tier, other) == [None, None]
    tier.set("k", 1)
    other.set("k", 2)
    assert found(tier, other) == [2, 2]
    tier.delete("k")
    assert found(tier, other) == [None, None]
    around(tier, "set", after=lambda: other.set("k", 4))
    tier.set("k", 3)
    assert found(tier, other) == [4, 4]


@names
def test_a_value_that_expires_immediately_outdates_as_a_delete_does(pair, name):
    tier, other = pair(name)
    assert found(tier, other) == [None, None]
    tier.set("k", 1, -1)
    other.set("k", "old")
    assert found(tier, other) == [None, None]


@names
def test_a_filled_value_replaces_the_copies_of_other_processes(pair, name):
    tier, other = pair(name)
    assert found(tier, other) == [None, None]
    other.set("k", 1)
    assert found(other) == [1]
    tier.set("k", 2)
    assert found(other) == [2]


def test_a_decorated_function_of_flask_keeps_no_outdated_value(pair):
    # It needs Flask-Caching 2.5.
    from wheelcache.flask_backend import Cache

    tier, other = pair("flask")
    app = Flask("decorated")
    app.config.update(CACHE_TYPE="wheelcache.flask_backend.WheelCache", CACHE_OPTIONS=QUIET)
    cache = Cache(app)
    app.extensions["cache"][cache] = tier.backend
    values = iter(range(9))
    meanwhile = [lambda: other.delete("k"), lambda: around(tier, "set", before=lambda: other.delete("k")), lambda: None]

    @cache.cached(key_prefix="k")
    def compute():
        meanwhile.pop(0)()
        return next(values)

    with app.test_request_context():
        assert [compute() for _ in range(5)] == [0, 1, 2, 2, 2]


LATER = {
    "the next write": lambda tier, clock: tier.set("k", "filled"),
    "a later request": lambda tier, clock: tier.end_request(),
    "ten seconds later": lambda tier, clock: clock.advance(10.1),
    "a delete by the same caller": lambda tier, clock: tier.delete("k"),
    "a load": lambda tier, clock: tier.load("k", lambda: "loaded"),
}


@pytest.mark.pairs(full="name", of="name")
@pytest.mark.parametrize("later", LATER.values(), ids=LATER)
@names
def test_a_write_that_answers_no_miss_is_kept(pair, name, later, clock):
    tier, other = pair(name)
    tier.engine._core.use_clock(clock)
    assert tier.get("k") is None
    later(tier, clock)
    other.set("k", "theirs")
    tier.set("k", "ours")
    assert found(tier, other) == ["ours", "ours"]


@names
def test_without_coherence_the_last_write_wins(pair, name):
    tier, other = pair(name, coherence=None)
    assert tier.get("k") is None
    other.delete("k")
    tier.set("k", "old")
    assert found(tier, other) == ["old", "old"]


@pytest.mark.parametrize("when", ["before", "during"])
@pytest.mark.parametrize("name", TIERS)
def test_no_caller_that_waits_receives_an_outdated_value(pair, name, when, in_thread):
    tier, other = pair(name, fill_wait=1000)
    has_missed, may_set = Event(), Event()

    def get_and_set():
        assert tier.get("k") is None
        has_missed.set()
        assert may_set.wait(PATIENCE)
        tier.set("k", "old")

    def get():
        value = tier.get("k")
        tier.end_request()
        return value

    filling = in_thread(get_and_set)
    assert has_missed.wait(PATIENCE)
    waiting = in_thread(get)
    until_waiting()
    if when == "before":
        other.delete("k")
    else:
        around(tier, "set", before=lambda: other.delete("k"))
    may_set.set()
    filling.result(PATIENCE)
    assert waiting.result(PATIENCE) is None


@pytest.mark.parametrize("kind", TIERS["django"].kinds)
def test_a_task_keeps_no_value_whose_key_was_written_meanwhile(pair, kind, in_thread):
    tier, other = pair("django", kind)
    cache = tier.backend

    async def get_and_set(write):
        assert await cache.aget("k") is None
        write()
        await cache.aset("k", "old")

    def delete():
        in_thread(other.delete, "k").result(PATIENCE)

    asyncio.run(get_and_set(delete))
    assert found(tier, other) == [None, None]
    asyncio.run(get_and_set(lambda: around(tier, "set", before=delete)))
    assert found(tier, other) == [None, None]
    asyncio.run(get_and_set(lambda: None))
    assert found(tier, other) == ["old", "old"]


@pytest.mark.parametrize("coherence", ["host", None])
def test_a_loader_whose_event_loop_stops_and_runs_again_keeps_no_outdated_value(pair, coherence):
    tier, _ = pair("django", coherence=coherence)
    loop = asyncio.new_event_loop()
    has_begun, may_end = asyncio.Event(), asyncio.Event()

    async def load():
        has_begun.set()
        await may_end.wait()
        return "old"

    loading = loop.create_task(tier.backend.aget_or_set("k", load))
    loop.run_until_complete(has_begun.wait())
    assert tier.load("k", lambda: "newer") == "newer"
    tier.delete("k")
    may_end.set()
    assert loop.run_until_complete(loading) == "old"
    assert tier.get("k") is None
    loop.close()


@pytest.mark.pairs(full="name")
@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
@names
@pytest.mark.parametrize("coherence", ["host", None])
def test_a_loaded_value_is_not_kept_if_this_process_writes_its_key_meanwhile(pair, name, write, coherence, in_thread):
    tier, other = pair(name, coherence=coherence)

    def load():
        in_thread(write, tier).result(PATIENCE)
        return "old"

    tier.load("k", load)
    expected = "new" if write is WRITES["set"] else None
    assert found(tier, other) == [expected] * 2
