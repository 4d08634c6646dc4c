"""Values and deletes in ``atomic()``: they follow the block, for the caches of both classes."""

from contextlib import suppress
from importlib import import_module

import pytest
from django.db import connection, transaction

from tests.transactions.conftest import WRITES, rolled_back

ADD, SET_MANY = lambda cache: cache.add("key", "new"), lambda cache: cache.set_many({"key": "new"})

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_value_is_visible_in_its_block_and_to_others_after_the_commit(cache, others):
    with transaction.atomic():
        cache.set("key", "new")
        assert cache.get("key") == "new"
        assert others(cache.get, "key") is None
    assert cache.get("key") == others(cache.get, "key") == "new"


def test_a_value_of_a_block_that_rolls_back_is_never_seen(cache, others):
    with rolled_back():
        cache.set_many({"key": 1, "other": 2})
        cache.get_or_set("third", lambda: 3)
    assert cache.get_many(["key", "other", "third"]) == {}
    assert others(cache.get, "key") is None


def test_a_value_of_a_savepoint_that_rolls_back_is_dropped(cache):
    with transaction.atomic():
        cache.set("outer", 1)
        with rolled_back():
            cache.set("outer", 2)
            with transaction.atomic():
                cache.set("inner", 2)
        assert cache.get_many(["outer", "inner"]) == {"outer": 1}
        sid = connection.savepoint()
        cache.set_many({"outer": 2, "inner": 2})
        transaction.savepoint_rollback(sid)
        assert cache.get_many(["outer", "inner"]) == {"outer": 1}
    assert cache.get_many(["outer", "inner"]) == {"outer": 1}


@pytest.mark.pairs(full="alias", of="delete")
@pytest.mark.parametrize("delete", [each for each in WRITES if each != "set"])
def test_a_delete_is_immediate_in_the_block_and_reaches_others_at_commit(cache, others, delete):
    cache.set("key", "old", tags=["tag"])
    with rolled_back():
        WRITES[delete](cache)
        assert cache.get("key") is None
        assert "key" not in cache
        assert others(cache.get, "key") == "old"
    assert cache.get("key") == "old"
    with transaction.atomic():
        WRITES[delete](cache)
    assert others(cache.get, "key") is None


@pytest.mark.pairs(full="alias", of="delete")
@pytest.mark.parametrize("delete", ["delete", "delete_tags", "clear"])
def test_a_value_that_is_set_after_a_delete_in_the_same_block_is_shared(cache, others, delete, alias):
    cache.set("key", "old", tags=["tag"])
    with transaction.atomic():
        WRITES[delete](cache)
        cache.set("key", "new", tags=["tag"])
        assert cache.get("key") == "new"
    # The store behind does not show whether others have dropped the tag as well, nor the new file of a host cache
    # whether others have written the key in the old one. So the value is not shared.
    is_unknown = (alias, delete) in (("tiered", "delete_tags"), ("host", "clear"))
    assert others(cache.get, "key") == (None if is_unknown else "new")


@pytest.mark.pairs(full="alias", of="write")
@pytest.mark.parametrize("write", [*WRITES.values(), ADD, SET_MANY])
def test_a_value_that_others_outdated_since_the_block_began_is_not_shared(cache, others, write):
    with transaction.atomic():
        others(write, cache)
        assert cache.get("key") in (None, "new")
        cache.delete("key")
        cache.set("key", "ours", tags=["tag"])
        assert cache.get("key") == "ours"
    assert others(cache.get, "key") in (None, "new")


def test_a_fill_that_others_outdated_is_dropped_and_their_value_stays(cache, others):
    with transaction.atomic():
        assert cache.get("key") is cache.get("other") is None
        others(cache.set, "key", "theirs")
        cache.set_many({"key": "ours", "other": "ours"})
    assert cache.get_many(["key", "other"]) == {"key": "theirs", "other": "ours"}


def test_immediate_calls_reach_others_at_once_and_survive_a_rollback(cache, others):
    cache.set("counter", 1)
    with rolled_back():
        assert cache.add("lock", "ours")
        assert cache.incr("counter") == 2
        assert others(cache.get, "lock") == "ours"
        assert others(cache.get, "counter") == 2
    assert cache.get_many(["lock", "counter"]) == {"lock": "ours", "counter": 2}


def test_an_immediate_call_on_a_deleted_key_deletes_it_for_all(cache, others):
    cache.set("lock", "old")
    with transaction.atomic():
        cache.delete("lock")
        assert cache.add("lock", "new")
        assert others(cache.get, "lock") == "new"
        assert cache.get("lock") == "new"
    assert cache.get("lock") == "new"
    cache.set("counter", 1)
    with transaction.atomic():
        cache.clear()
        with pytest.raises(ValueError, match="counter"):
            cache.incr("counter")


def test_calls_find_no_entry_whose_tag_the_block_has_dropped(cache, others):
    tagged = {"touched": 1, "counted": 1, "added": 1}
    cache.set_many(tagged, tags=["tag"])
    cache.set("untagged", 1)
    with rolled_back():
        cache.delete_tags("tag")
        assert not cache.touch("touched", 100)
        with pytest.raises(ValueError, match="counted"):
            cache.incr("counted")
        assert cache.add("added", "new")
        assert cache.add("with-tag", "new", tags=["tag"])
        assert cache.touch("untagged", 100)
        assert cache.incr("untagged") == 2
        assert cache.get_many([*tagged, "with-tag"]) == {"added": "new", "with-tag": "new"}
        assert [key in cache for key in (*tagged, "untagged")] == [False, False, True, True]
    expected = {**tagged, "added": "new", "untagged": 2}
    assert others(cache.get_many, [*expected, "with-tag"]) == expected


def test_a_rollback_shows_no_value_that_the_outer_block_had_deleted(cache):
    with transaction.atomic():
        cache.set("key", "old")
        with transaction.atomic():
            cache.delete("key")
            with rolled_back():
                assert cache.add("key", "new")
            assert cache.get("key") == "new"


def test_touch_and_incr_keep_the_tags_of_a_value_that_the_block_has_set_and_incr_its_timeout(cache):
    keys = ["touched", "counted"]
    with transaction.atomic():
        cache.set_many(dict.fromkeys(keys, 1), 50, tags=["tag"])
        assert cache.touch("touched", 100)
        assert cache.incr("counted") == 2
        assert [cache.ttl(key) for key in keys] == [100, 50]
        with rolled_back():
            cache.delete_tags("tag")
            assert cache.get_many(keys) == {}
    assert cache.get_many(keys) == {"touched": 1, "counted": 2}
    cache.delete_tags("tag")
    assert cache.get_many(keys) == {}


def test_an_on_commit_function_that_fails_does_not_lose_the_invalidation(cache):
    cache.set("key", "old")
    with suppress(ZeroDivisionError), transaction.atomic():
        transaction.on_commit(lambda: 1 / 0)
        cache.delete("key")
    assert cache.get("key") is None


def test_manual_transactions_are_followed(cache, others):
    transaction.set_autocommit(False)
    try:
        cache.set("key", 1)
        assert others(cache.get, "key") is None
        transaction.rollback()
        assert cache.get("key") is None
        cache.set("key", 2)
        transaction.commit()
        assert others(cache.get, "key") == 2
    finally:
        transaction.set_autocommit(True)


@pytest.mark.usefixtures("on_disk")
def test_a_connection_that_is_closed_in_a_block_shares_nothing(cache):
    cache.set("kept", "old")
    with transaction.atomic():
        cache.set("before", 1)
        connection.close()
        assert cache.get("before") is None
        cache.set("after", 1)
        cache.delete("kept")
    assert cache.get_many(["before", "after", "kept"]) == {"kept": "old"}
    with transaction.atomic():
        cache.set("next", 1)
    assert cache.get("next") == 1


def test_an_inner_block_without_a_savepoint_rolls_back_with_the_outer_one(cache):
    with transaction.atomic():
        cache.set("outer", 1)
        with rolled_back(savepoint=False):
            cache.set("inner", 1)
    assert cache.get_many(["outer", "inner"]) == {}


class Fragile:
    """Can be pickled, and raises an error when it is unpickled."""

    def __reduce__(self):
        return import_module, ("shop.old",)


def test_a_value_of_the_block_that_cannot_be_decoded_is_a_miss_and_hides_the_older_one(cache, others):
    cache.set_many(dict.fromkeys("abcde", 1))
    with transaction.atomic():
        cache.set_many({key: Fragile() for key in "abcde"})
        assert cache.get("a", "default") == "default"
        assert cache.get_many(["b"]) == {}
        assert cache.get_or_set("c", lambda: "new") == "new"
        with pytest.raises(ValueError, match="not found"):
            cache.incr("d")
        # The computed object itself.
        assert isinstance(cache.get_or_set("f", Fragile), Fragile)
    assert others(cache.get_many, "abcdef") == {"c": "new"}
    cache.set("e", "repaired")
    assert others(cache.get, "e") == "repaired"
