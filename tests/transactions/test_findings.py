"""Single cases that runs of the history and reviews have found."""

import gc
import os
from contextlib import contextmanager, suppress
from itertools import count
from threading import Event

import pytest
from django.core.cache import caches
from django.db import connection, connections, transaction
from django.test import override_settings

from tests.scripts import run
from tests.transactions.conftest import FOLLOWS, SETTINGS, TIERED, WHEEL
from tests.waiting import PATIENCE, join, start
from wheelcache.django_backend import TieredCache, WheelCache, memoize
from wheelcache.engine.in_memory import InMemory
from wheelcache.host_cache.host_core import lane_of
from wheelcache.near_cache.near_copies import NearCopies
from wheelcache.runtime.steps import drive

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize("alias", ["wheel"])
def test_a_value_is_not_shared_if_another_caller_deleted_a_pattern_of_its_key_meanwhile(cache, others):
    with transaction.atomic():
        assert cache.get("key") is None
        cache.set("key", "from before the write of another caller")
        others(cache.delete_pattern, "k*")
    assert cache.get("key") is None


@pytest.mark.parametrize("alias", ["tiered"])
@pytest.mark.parametrize("invalidate", ["cache_delete", "cache_clear"])
def test_the_first_call_for_a_memoized_function_may_be_within_a_transaction(cache, others, invalidate):
    value, calls = "old", []

    @memoize(60)
    def memoized(number):
        calls.append(number)
        return value

    with transaction.atomic():
        if invalidate == "cache_delete":
            memoized.cache_delete(1)
        else:
            memoized.cache_clear()
        assert others(memoized, 1) == others(memoized, 2) == "old"
        # Committed with the end of the block.
        value = "new"
    assert (memoized(1), memoized(2)) == ("new", "old" if invalidate == "cache_delete" else "new")
    assert calls == ([1, 2, 1] if invalidate == "cache_delete" else [1, 2, 1, 2])


def test_a_transaction_is_followed_if_turning_autocommit_off_opens_the_connection(cache, others):
    def roll_back():
        transaction.set_autocommit(False)
        cache.set("key", "rolled back")
        transaction.rollback()
        transaction.set_autocommit(True)

    others(roll_back)
    assert cache.get("key") is None


class Undone(Exception):
    """Rolls a block back."""


@contextmanager
def one_more_database(alias, tmp_path, settings):
    settings.DATABASES[alias] = {}
    connection = connections["default"].copy(alias)
    connection.settings_dict["NAME"] = tmp_path / alias
    connections[alias] = connection
    # Django's test case would refuse a connection that begins later.
    connection.connect()
    yield alias
    connection.close()
    del connections[alias], settings.DATABASES[alias]


@pytest.fixture
def other(transactional_db, on_disk, tmp_path, settings):
    """The alias of a second database."""
    with one_more_database("other", tmp_path, settings) as alias:
        yield alias


@pytest.fixture
def third(other, tmp_path, settings):
    """The alias of a third database."""
    with one_more_database("third", tmp_path, settings) as alias:
        yield alias


@pytest.fixture
def cache_of_both(other, alias, cache):
    """A cache that follows both databases, and a third one if there is one."""
    settings, aliases = SETTINGS[alias], [each for each in ("default", other, "third") if each in connections.settings]
    settings = {**settings, "OPTIONS": {**settings["OPTIONS"], "TRANSACTIONS": aliases}}
    with override_settings(CACHES={**SETTINGS, "default": settings}):
        yield caches["default"]
        caches["default"].clear()


@pytest.mark.parametrize("is_committed", [True, False])
def test_a_delete_is_applied_if_one_of_the_open_transactions_commits(other, cache_of_both, others, is_committed):
    cache = cache_of_both
    cache.set("key", "old")
    with suppress(Undone), transaction.atomic():
        cache.set("of-the-outer", 1)
        with suppress(Undone), transaction.atomic(using=other):
            cache.delete("key")
            cache.set("of-the-inner", 1)
            if not is_committed:
                raise Undone
        assert others(cache.get, "key") == (None if is_committed else "old")
        assert cache.get("key") is None
        if is_committed:
            raise Undone
    assert cache.get_many(["key", "of-the-outer", "of-the-inner"]) == {}


SET_AFTER = {
    "set": lambda cache: None,
    "delete": lambda cache: cache.delete("key"),
    "delete_tags": lambda cache: (cache.get("key"), cache.delete_tags("tag")),
    "clear": lambda cache: cache.clear(),
}


@pytest.mark.pairs(full="alias", of="invalidate")
@pytest.mark.parametrize("invalidate", SET_AFTER.values(), ids=SET_AFTER)
def test_a_value_that_an_inner_transaction_has_set_is_shared_at_the_outer_commit(
    third, other, cache_of_both, others, alias, invalidate
):
    cache = cache_of_both
    # A store behind keeps no value with a tag that the same transaction has dropped.
    tags = [] if alias == "tiered" else ["tag"]
    with transaction.atomic():
        with transaction.atomic(using=other):
            with transaction.atomic(using=third), transaction.atomic(using=third):
                invalidate(cache)
                cache.set("key", "new", tags=tags)
            cache.set("of-the-second", "new")
        assert others(cache.get_many, ["key", "of-the-second"]) == {}
    assert others(cache.get_many, ["key", "of-the-second"]) == {"key": "new", "of-the-second": "new"}


@pytest.mark.pairs(full="alias", of="when")
@pytest.mark.parametrize("when", ["before the inner one", "in the inner one", "after the inner one"])
def test_a_value_of_an_inner_transaction_is_not_shared_if_another_caller_wrote_the_key_meanwhile(
    other, cache_of_both, others, when
):
    cache = cache_of_both
    with transaction.atomic():
        if when == "before the inner one":
            others(cache.delete, "key")
        with transaction.atomic(using=other):
            cache.set("key", "from before the write of another caller")
            if when == "in the inner one":
                others(cache.delete, "key")
        if when == "after the inner one":
            others(cache.delete, "key")
    assert others(cache.get, "key") is None


def test_a_delete_in_a_savepoint_that_rolls_back_is_applied_if_another_database_commits(other, cache_of_both):
    cache = cache_of_both
    cache.set("key", "old")
    with transaction.atomic(), transaction.atomic(using=other):
        with suppress(Undone), transaction.atomic(using=other):
            cache.delete("key")
            cache.set("new", 1)
            raise Undone
        assert cache.get_many(["key", "new"]) == {}
    assert cache.get_many(["key", "new"]) == {}


def test_a_tag_that_an_outer_transaction_has_dropped_is_dropped_in_the_inner_one(other, cache_of_both):
    cache_of_both.set("key", "old", tags=["tag"])
    with transaction.atomic():
        cache_of_both.delete_tags("tag")
        with transaction.atomic(using=other):
            cache_of_both.set("of-the-inner", 1)
            assert cache_of_both.get("key") is None
            assert "key" not in cache_of_both


def test_a_value_that_the_transaction_has_set_before_it_dropped_its_tag_is_gone(cache_of_both, others):
    cache = cache_of_both
    with transaction.atomic():
        cache.set("key", "old", tags=["tag"])
        cache.delete_tags("tag")
        assert cache.get("key") is None
    assert cache.get("key") is others(cache.get, "key") is None


@pytest.mark.parametrize("has_savepoint", [False, True])
def test_a_tag_that_an_inner_block_has_dropped_hides_a_value_of_the_outer_one(other, cache_of_both, has_savepoint):
    cache = cache_of_both
    with transaction.atomic():
        cache.set("key", "old", tags=["tag"])
        with transaction.atomic(using=None if has_savepoint else other):
            cache.delete_tags("tag")
            assert cache.get("key") is None
            assert "key" not in cache
            assert cache.get_many(["key"]) == {}
            assert cache.get_or_set("key", lambda: "new", tags=["tag"]) == "new"
        assert cache.get("key") == "new"


@pytest.mark.parametrize("change", ["delete", "set"])
def test_an_add_in_an_inner_transaction_is_visible_after_a_change_in_the_outer_one(other, cache_of_both, change):
    cache = cache_of_both
    cache.set("key", "old")
    with transaction.atomic():
        getattr(cache, change)("key", *["of the outer"] * (change == "set"))
        with transaction.atomic(using=other):
            cache.delete("key")
            assert cache.add("key", "new")
            assert cache.get("key") == "new"
        assert cache.get("key") == "new"
    assert cache.get("key") == "new"


def test_a_clear_in_an_inner_transaction_is_repeated_at_the_commit_of_the_outer_one(other, cache_of_both, others):
    cache = cache_of_both
    cache.set("key", "old")
    with transaction.atomic():
        with transaction.atomic(using=other):
            cache.clear()
        assert others(cache.get_or_set, "key", lambda: "from before the commit") == "from before the commit"
    assert cache.get("key") is None


def test_a_transaction_of_a_database_that_only_another_cache_follows_does_not_delay_the_values(other, others):
    one, another = (
        {"BACKEND": WHEEL, "LOCATION": alias, "OPTIONS": {**FOLLOWS, "TRANSACTIONS": [alias]}}
        for alias in ("default", "other")
    )
    with override_settings(CACHES={"default": one, "another": another}):
        cache = caches["default"]
        assert caches["another"].get("key") is None
        with suppress(Undone), transaction.atomic(using=other):
            with transaction.atomic():
                cache.set("key", 1)
            assert cache.get("key") == others(cache.get, "key") == 1
            raise Undone
        assert cache.get("key") == 1


def test_a_thread_does_not_see_the_values_of_an_ended_thread_whose_identifier_it_has(cache):
    seen, left = [], []

    def leave_a_transaction_open():
        transaction.set_autocommit(False)
        left.append(connection.connection)
        cache.set("key", "never committed")

    gc.disable()
    try:
        for function in (leave_a_transaction_open, lambda: seen.append(cache.get("key"))):
            thread = start(function)
            thread.join()
    finally:
        gc.enable()
        left.pop().close()
        gc.collect()
    assert seen == [None]


@pytest.mark.parametrize("first", ["set", "get_or_set"])
def test_a_value_that_is_set_after_a_fill_in_the_same_block_removes_the_values_of_others(cache, others, first):
    def fill():
        assert cache.get("key") is None
        cache.set("key", "from before the commit")

    with transaction.atomic():
        assert cache.get("key") is None
        getattr(cache, first)("key", "from before the change of its data")
        cache.set("key", "new")
        others(fill)
    assert others(cache.get, "key") in (None, "new")


@pytest.mark.pairs(full="alias", of="call")
@pytest.mark.parametrize(
    "call",
    [
        lambda cache: cache.touch("key", 100),
        lambda cache: cache.incr("key"),
        lambda cache: cache.decr("key"),
    ],
)
def test_an_immediate_call_that_finds_nothing_keeps_the_delete_of_the_block(cache, others, call):
    cache.set("key", 1)
    with transaction.atomic():
        cache.delete("key")
        with suppress(Undone), transaction.atomic():
            with suppress(ValueError):
                assert not call(cache)
            raise Undone
        others(cache.get_or_set, "key", lambda: 1)
        assert cache.get("key") is None
    assert others(cache.get, "key") is None


def test_an_add_that_others_precede_keeps_the_delete_of_the_block(cache, others, monkeypatch):
    cache.set("key", "old")
    layer = NearCopies if isinstance(cache, TieredCache) else InMemory
    delete_many = layer.delete_many

    def delete_before_others(*args):
        monkeypatch.setattr(layer, "delete_many", delete_many)
        drive(delete_many(*args))
        others(cache.get_or_set, "key", lambda: "old")

    with transaction.atomic():
        cache.delete("key")
        monkeypatch.setattr(layer, "delete_many", delete_before_others)
        assert not cache.add("key", "new")
    assert others(cache.get, "key") is None


@pytest.mark.parametrize("look", ["get", "get_many"])
def test_a_set_replaces_the_entry_that_an_immediate_call_has_made_in_the_same_block(cache, others, look):
    with transaction.atomic():
        assert not getattr(cache, look)("key" if look == "get" else ["key"])
        assert cache.add("key", "added")
        cache.set("key", "set")
        assert cache.get("key") == "set"
        assert others(cache.get, "key") == "added"
    assert others(cache.get, "key") in (None, "set")


@pytest.mark.parametrize("deletes", [("delete", "key-{}"), ("delete_pattern", "key-{}*"), ("delete_tags", "tag-{}")])
def test_many_deletes_remove_nothing_else_from_the_cache_and_the_store_behind(deletes):
    name, text = deletes
    backends = {"wheel": (WHEEL, {}), "tiered": (TIERED, {"L2": "store"})}
    for backend, options in backends.values():
        settings = {"BACKEND": backend, "OPTIONS": {**FOLLOWS, **options, "MAX_ENTRIES": 10}}
        store = {"BACKEND": WHEEL, "LOCATION": "behind"}
        with override_settings(CACHES={"default": settings, "store": store}):
            cache = caches["default"]
            cache.set("session", 1)
            with transaction.atomic():
                for number in range(100):
                    getattr(cache, name)(text.format(number))
            assert cache.get("session") == 1
            cache.clear()


def test_set_with_xx_keeps_the_tags():
    with override_settings(CACHES={"default": SETTINGS["wheel"]}):
        cache = caches["default"]
        cache.set_many({"shared": 1}, tags=["tag"])
        with transaction.atomic():
            cache.set("own", 1, tags=["tag"])
            assert cache.set("shared", 2, xx=True)
            assert cache.set("own", 2, xx=True)
            assert not cache.set("missing", 2, xx=True)
        assert cache.get_many(["shared", "own", "missing"]) == {"shared": 2, "own": 2}
        cache.delete_tags("tag")
        assert cache.get_many(["shared", "own"]) == {}


def test_a_value_of_add_is_visible_after_the_savepoint_in_which_it_replaced_a_deleted_one(cache):
    with transaction.atomic():
        cache.set("key", 1)
        cache.delete_tags("of-others")
        with transaction.atomic():
            cache.delete("key")
            assert cache.add("key", 2)
        assert cache.get("key") == 2


def test_others_do_not_keep_values_from_before_the_commit_of_a_cache_clear(cache, others):
    version = "old"

    @memoize(100)
    def read(argument):
        return version

    assert read(1) == read(2) == "old"
    with transaction.atomic():
        read.cache_clear()
        version = "new"
        assert read(1) == "new"
        version = "old"
        assert others(read, 2) == "old"
        version = "new"
    assert read(1) == read(2) == "new"


def delete_in_transaction(cache, key):
    with transaction.atomic():
        cache.delete(key)


@pytest.mark.parametrize(
    "write", [lambda cache, key: cache.delete(key), delete_in_transaction, lambda cache, key: cache.delete_tags("tag")]
)
def test_a_block_that_clears_the_cache_shares_no_fill_that_others_outdated(cache, others, write):
    with transaction.atomic():
        cache.clear()
        assert cache.get_many(["key"]) == {}
        cache.set("key", "old", tags=["tag"])
        others(write, cache, "key")
    assert cache.get("key") is None


@pytest.mark.parametrize("alias", ["wheel"])
def test_an_invalidation_that_is_interrupted_is_applied(cache, monkeypatch):
    cache.set("key", "old")
    delete_many = InMemory.delete_many

    def interrupted(*args):
        monkeypatch.setattr(InMemory, "delete_many", delete_many)
        raise KeyboardInterrupt

    @transaction.atomic
    def delete():
        cache.delete("key")
        monkeypatch.setattr(InMemory, "delete_many", interrupted)

    with pytest.raises(KeyboardInterrupt):
        delete()
    assert cache.get("key") is None


class Prefixed(WheelCache):
    """A cache of a site with calls of its own."""

    def set(self, key, *args, **kwargs):
        return super().set(f"own.{key}", *args, **kwargs)

    def get(self, key, *args, **kwargs):
        return super().get(f"own.{key}", *args, **kwargs)


def test_calls_that_a_subclass_overrides_are_called_in_a_block():
    cache = Prefixed("subclass", {"OPTIONS": FOLLOWS})
    with transaction.atomic():
        cache.set("key", 1)
        assert cache.get("key") == 1
    assert cache.get("key") == cache.get_many(["own.key"])["own.key"] == 1
    cache.clear()


@pytest.mark.usefixtures("on_disk")
def test_nothing_is_seen_of_the_rest_of_a_block_whose_connection_was_closed(cache):
    with transaction.atomic():
        connections["default"].close()
        cache.set("key", 1)
    assert cache.get("key") is None
    cache.set("key", 2)
    assert cache.get("key") == 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_thread_of_a_forked_child_does_not_see_the_transactions_of_the_parent():
    run(SITE + FORK)


def test_each_greenlet_sees_its_own_transaction():
    pytest.importorskip("gevent")
    run("from gevent import monkey; monkey.patch_all()\n" + SITE + GREENLETS)


SITE = """
import os, tempfile, threading
import django
from django.conf import settings
settings.configure(
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": tempfile.mkstemp()[1]}},
    CACHES={"default": {
        "BACKEND": "wheelcache.django_backend.WheelCache",
        "OPTIONS": {"TRANSACTIONS": True, "FIGURES_DIR": None},
    }},
    INSTALLED_APPS=["wheelcache.django_backend"],
)
django.setup()
from django.core.cache import caches
from django.db import transaction
"""

FORK = """
has_set, may_end = threading.Event(), threading.Event()

def hold():
    with transaction.atomic():
        caches["default"].set("key", "uncommitted")
        has_set.set()
        may_end.wait()

holder = threading.Thread(target=hold)
holder.start()
has_set.wait()
child = os.fork()
if child == 0:
    seen = []
    # It gets the identifier of the thread of the parent.
    thread = threading.Thread(target=lambda: seen.append(caches["default"].get("key")))
    thread.start()
    thread.join()
    os._exit(seen != [None])
status = os.waitpid(child, 0)[1]
may_end.set()
holder.join()
assert status == 0
"""

GREENLETS = """
import gevent

def hold():
    cache = caches["default"]
    with transaction.atomic():
        cache.set("key", 1)
        assert cache.get("key") == 1
        gevent.spawn(look).get()

def look():
    assert caches["default"].get("key") is None

hold()
caches["default"].clear()
gevent.spawn(hold).get()
"""


@pytest.mark.parametrize("alias", ["wheel"])
@pytest.mark.parametrize("wrong", [{"graec": 5}, {"grace": -1}, {"load_timeout": "x"}, {"fail_safe": True}])
def test_a_block_accepts_no_other_options_of_get_or_set(cache, wrong):
    with pytest.raises((TypeError, ValueError)) as outside:
        cache.get_or_set("key", 1, **wrong)
    with transaction.atomic(), pytest.raises((TypeError, ValueError), match=next(iter(wrong))) as within:
        cache.get_or_set("key", 1, **wrong)
    assert type(within.value) is type(outside.value)


def test_the_keys_of_a_cache_of_this_package_behind_are_those_that_the_transaction_sees():
    behind = {"BACKEND": WHEEL, "LOCATION": "the keys behind"}
    tiered = {"BACKEND": TIERED, "OPTIONS": {**FOLLOWS, "L2": "behind"}}
    with override_settings(CACHES={"default": {"BACKEND": WHEEL}, "behind": behind, "tiered": tiered}):
        cache = caches["tiered"]
        cache.set_many({"a": 1, "b": 1})
        with transaction.atomic():
            cache.delete("b")
            cache.set_many({"a": 2, "n": 3})
            assert sorted(cache.keys("*")) == sorted(cache.iter_keys("*")) == ["a", "n"]
        assert sorted(cache.keys("*")) == ["a", "n"]


def test_an_immediate_key_is_there_for_every_call_after_the_transaction_has_cleared_the_cache(cache):
    cache.set("throttle_user", [1])
    with transaction.atomic():
        cache.set("key", 1)
        cache.clear()
        found = cache.get("throttle_user"), cache.get_many(["throttle_user", "key"]), cache.has_key("throttle_user")
        assert found == ([1], {"throttle_user": [1]}, True)


def test_a_key_function_gets_the_number_of_the_version_of_a_pattern():
    def key_function(key, prefix, version):
        return f"{version:d}|{prefix}|{key}"

    cache = WheelCache("patterns", {"OPTIONS": FOLLOWS, "KEY_FUNCTION": key_function})
    cache.set_many({"a1": 1, "a2": 2, "b": 3})
    assert cache.delete_pattern("a*") == 2
    assert cache.keys("*") == ["b"]


@contextmanager
def during_commit(call):
    """Call ``call`` during the commit in this block: after the first invalidation, and before the database commits."""
    commit = connection._commit

    def commit_after_call():
        del connection._commit
        call()
        commit()

    connection._commit = commit_after_call
    yield


WRITES = {
    "delete": lambda cache: cache.delete("key"),
    "delete_many": lambda cache: cache.delete_many(["key"]),
    "delete_tags": lambda cache: cache.delete_tags("tag"),
    "delete_pattern": lambda cache: cache.delete_pattern("k*"),
    "clear": lambda cache: cache.clear(),
    "set": lambda cache: cache.set("key", "new"),
}


def in_block(write, cache):
    with transaction.atomic():
        write(cache)


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
@pytest.mark.parametrize("own", WRITES.values(), ids=WRITES)
@pytest.mark.parametrize("is_block", [False, True])
@pytest.mark.parametrize("alias", ["wheel", "host"])
def test_a_write_by_others_during_a_commit_outdates_the_values_of_the_block(
    cache, others, on_disk, own, write, is_block
):
    arguments = (in_block, write, cache) if is_block else (write, cache)
    with during_commit(lambda: others(*arguments)), transaction.atomic():
        own(cache)
        cache.set("key", "old", tags=["tag"])
    assert cache.get("key") != "old"


@pytest.mark.parametrize("own", ["delete_pattern", "clear"])
@pytest.mark.parametrize("write", ["delete_pattern", "clear"])
@pytest.mark.parametrize("alias", ["wheel", "host"])
def test_no_value_from_before_a_commit_is_kept_if_another_commit_ends_meanwhile(cache, others, on_disk, own, write):
    is_loading, is_committed, loads = Event(), Event(), []

    def load():
        is_loading.set()
        assert is_committed.wait(PATIENCE)
        return "old"

    def commit_another_and_begin_to_load():
        others(in_block, WRITES[write], cache)
        loads.append(start(cache.get_or_set, "key", load))
        assert is_loading.wait(PATIENCE)

    with during_commit(commit_another_and_begin_to_load), transaction.atomic():
        WRITES[own](cache)
    is_committed.set()
    join(*loads)
    assert cache.get("key") is None


@pytest.mark.parametrize("alias", ["host"])
def test_a_write_by_others_outdates_the_value_of_a_block_that_deletes_a_key_with_the_same_floor(cache, others):
    def lane(key):
        return lane_of(cache.make_key(key))

    twin = next(name for name in map(str, count()) if lane(name) == lane("key"))
    with transaction.atomic():
        cache.delete(twin)
        cache.set("key", "old")
        others(cache.set, "key", "new")
    assert cache.get("key") != "old"


@pytest.mark.parametrize("alias", ["host"])
@pytest.mark.parametrize("is_deleted_first", [False, True])
def test_the_values_of_a_block_that_writes_keys_with_the_same_floor_are_shared(cache, is_deleted_first):
    def lane(key):
        return lane_of(cache.make_key(key))

    twin = next(name for name in map(str, count()) if lane(name) == lane("key"))
    cache.set_many({"key": "old", twin: "old"})
    with transaction.atomic():
        if is_deleted_first:
            cache.delete_many([twin, "key"])
        cache.set_many({"key": "new", twin: "new"})
    assert cache.get_many(["key", twin]) == {"key": "new", twin: "new"}
