"""A cache that follows the transactions of several databases, which are open at the same time."""

import pytest
from django.db import connections, transaction

from tests.transactions.conftest import rolled_back

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def other(transactional_db, on_disk, tmp_path, settings):
    """The alias of a second database."""
    settings.DATABASES["other"] = {}
    connection = connections["default"].copy("other")
    connection.settings_dict["NAME"] = tmp_path / "other"
    connections["other"] = connection
    # Django's test case would refuse a connection that begins later.
    connection.connect()
    yield "other"
    connection.close()
    del connections["other"], settings.DATABASES["other"]


@pytest.fixture
def follows(other):
    return ["default", other]


@pytest.mark.parametrize("is_committed", [True, False])
@pytest.mark.parametrize(("outer", "inner"), [("default", "other"), ("other", "default")])
def test_a_delete_is_applied_if_one_of_the_open_transactions_commits(cache, others, outer, inner, is_committed):
    cache.set("key", "old")
    ends = (transaction.atomic, rolled_back) if is_committed else (rolled_back, transaction.atomic)
    with ends[1](using=outer):
        cache.set("of-the-outer", 1)
        with ends[0](using=inner):
            cache.delete("key")
            cache.set("of-the-inner", 1)
        assert others(cache.get, "key") == (None if is_committed else "old")
        assert cache.get_many(["key", "of-the-outer"]) == ({"of-the-outer": 1} if is_committed else {})
    assert cache.get_many(["key", "of-the-outer", "of-the-inner"]) == {}


def test_a_rollback_of_an_inner_transaction_without_values_drops_those_of_the_outer_one(other, cache):
    with transaction.atomic():
        cache.set("key", "perhaps of the inner one")
        with rolled_back(using=other):
            pass
        assert cache.get("key") is None


SET_AFTER = {
    "set": lambda cache: None,
    "delete": lambda cache: cache.delete("key"),
    "delete_tags": lambda cache: (cache.get("key"), cache.delete_tags("tag")),
    "clear": lambda cache: cache.clear(),
}


@pytest.mark.pairs(full="alias", of="invalidate")
@pytest.mark.parametrize("invalidate", SET_AFTER.values(), ids=SET_AFTER)
def test_a_value_of_an_inner_transaction_is_shared_at_the_outer_commit(other, cache, others, alias, invalidate):
    # A store behind keeps no value with a tag that the same transaction has dropped.
    tags = [] if alias == "tiered" else ["tag"]
    with transaction.atomic():
        with transaction.atomic(using=other), transaction.atomic(using=other):
            invalidate(cache)
            cache.set("key", "new", tags=tags)
        assert others(cache.get, "key") is None
    assert others(cache.get, "key") == "new"


@pytest.mark.pairs(full="alias", of="when")
@pytest.mark.parametrize("when", ["before the inner one", "in the inner one", "after the inner one"])
def test_a_value_of_an_inner_transaction_is_not_shared_if_others_wrote_the_key(other, cache, others, when):
    def pass_moment(moment):
        if moment == when:
            others(cache.delete, "key")

    with transaction.atomic():
        pass_moment("before the inner one")
        with transaction.atomic(using=other):
            cache.set("key", "from before the write of another caller")
            pass_moment("in the inner one")
        pass_moment("after the inner one")
    assert others(cache.get, "key") is None


@pytest.mark.parametrize("database", ["default", "other"])
def test_a_delete_in_a_savepoint_that_rolls_back_is_applied_if_another_database_commits(other, cache, database):
    cache.set("key", "old")
    with transaction.atomic(), transaction.atomic(using=other):
        with rolled_back(using=database):
            cache.delete("key")
            cache.set("new", 1)
        assert cache.get_many(["key", "new"]) == {}
    assert cache.get_many(["key", "new"]) == {}


@pytest.mark.parametrize("has_savepoint", [False, True])
def test_a_tag_that_an_inner_block_has_dropped_hides_a_value_of_the_outer_one(other, cache, has_savepoint):
    with transaction.atomic():
        cache.set("key", "old", tags=["tag"])
        with transaction.atomic(using=None if has_savepoint else other):
            cache.delete_tags("tag")
            assert cache.get_many(["key"]) == {}
            assert cache.get_or_set("key", lambda: "new", tags=["tag"]) == "new"
        assert cache.get("key") == "new"


def test_a_clear_in_an_inner_transaction_is_repeated_at_the_commit_of_the_outer_one(other, cache, others):
    cache.set("key", "old")
    with transaction.atomic():
        with transaction.atomic(using=other):
            cache.clear()
        assert others(cache.get_or_set, "key", lambda: "from before the commit") == "from before the commit"
    assert cache.get("key") is None
