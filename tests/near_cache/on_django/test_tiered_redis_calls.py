"""The calls of django-redis on a TieredCache in front of it: they go to Redis, and the copies follow."""

import time

import pytest

from tests.waiting import until

pytestmark = pytest.mark.servers


@pytest.fixture
def front(tier, empty_redis):
    """A tier over django-redis, whose copies are used."""
    return tier("django-redis", empty_redis, behind={"KEY_PREFIX": "site"})


def copied(tier, *keys):
    """Set the keys, and read them until there are copies of all."""
    tier.backend.set_many(dict.fromkeys(keys, 1), 100)
    made = sorted(map(tier.backend.make_key, keys))
    assert until(lambda: len(tier.backend.get_many(keys)) == len(keys) and tier.copies() == made)


@pytest.mark.pairs(full="call", of="call")
@pytest.mark.parametrize(
    ("name", "given"), [("expire", (50,)), ("pexpire", (50_000,)), ("expire_at", (None,)), ("persist", ())]
)
def test_a_new_timeout_is_set_in_redis_and_drops_the_copy(front, call, name, given):
    copied(front, "key")
    given = [time.time() + 50 if each is None else each for each in given]
    assert call(front.backend, name, "key", *given) is True
    assert front.copies() == []
    left = front.client().ttl("site:1:key")
    assert left == -1 if name == "persist" else 48 <= left <= 50
    assert call(front.backend, name, "none", *given) is False


def test_another_version_of_a_value_keeps_its_timeout_as_in_django_redis(tier, empty_redis, call):
    for kind, left in (("django-redis", 5), ("redis", 300)):
        front = tier(kind, empty_redis)
        cache = front.backend
        for name, version in (("incr_version", 2), ("decr_version", 1)):
            cache.set("key", "value", 5, version=3 - version)
            assert call(cache, name, "key", 1, 3 - version) == version
            assert (cache.get("key", version=version), cache.get("key", version=3 - version)) == ("value", None)
            assert left - 2 <= front.client().ttl(f":{version}:key") <= left
    with pytest.raises(ValueError, match="Key 'none' not found"):
        call(cache, "incr_version", "none")


def test_a_pattern_is_deleted_from_redis_from_the_copies_and_while_a_value_is_computed(front, call):
    cache = front.backend
    for key in ("user:7:c", "user:8:c"):
        assert cache.get_or_set(key, lambda: call(cache, "delete_pattern", "user:7:*"), 100) == 0
    assert (cache.get("user:7:c"), cache.delete("user:8:c")) == (None, True)
    copied(front, "user:7:a", "user:7:b", "user:8:a")
    assert call(cache, "delete_pattern", "user:7:*") == 2
    assert cache.get_many(["user:7:a", "user:7:b", "user:8:a"]) == {"user:8:a": 1}
    assert front.client().keys() == [b"site:1:user:8:a"]
    assert front.copies() == ["site:1:user:8:a"]


def test_set_returns_whether_redis_has_the_value_also_with_xx(front, call):
    cache = front.backend
    assert call(cache, "set", "key", 1, xx=True) is False
    assert call(cache, "set", "key", 1, 100) is True
    copied(front, "key")
    assert call(cache, "set", "key", 2, 50, xx=True) is True
    assert front.copies() == []
    assert (cache.get("key"), 0 < front.client().ttl("site:1:key") <= 50) == (2, True)
    assert call(cache, "set", "key", 1, 0) is True
    assert call(cache, "set", "key", 1, 0) is False


def test_a_lock_is_held_in_redis(front):
    with front.backend.lock("name", timeout=10) as lock:
        assert front.client().exists("site:1:name")
        assert not front.behind.backend.lock("name").acquire(blocking=False)
        assert lock.owned()
    assert not front.client().exists("site:1:name")
