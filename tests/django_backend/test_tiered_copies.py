"""Which copies a fail-safe TieredCache has when Redis dies while tracking is lost, or was."""

import asyncio

import pytest
from django.core.cache import caches

from tests.django_backend.test_tiered_outages import tiered
from tests.engines import engine
from tests.redis_server import RedisServer
from tests.waiting import until

KEYS = [f"k{number}" for number in range(100)]

READS = {
    "get": lambda cache, key: cache.get(key),
    "get_many": lambda cache, key: cache.get_many([key]).get(key),
    "aget": lambda cache, key: asyncio.run(cache.aget(key)),
    "aget_many": lambda cache, key: asyncio.run(cache.aget_many([key])).get(key),
}


@pytest.fixture
def server():
    with RedisServer() as server:
        yield server


@pytest.fixture
def cache(server, trackings):
    with tiered(server, FAIL_SAFE=True, L1_TIMEOUT=600) as (cache, _):
        yield cache


@pytest.fixture
def tracking(server, caplog):
    """Take the tracking connection away, as a Redis that drops a client does: for a moment, or for good."""

    class Tracking:
        def lines(self, text):
            return sum(text in record.getMessage() for record in caplog.records)

        def is_dropped(self):
            lost, again = self.lines("are not told"), self.lines("are told again")
            server.client().client_kill_filter(_type="pubsub")
            assert until(lambda: self.lines("are not told") > lost and self.lines("are told again") > again)

        def is_lost(self):
            server.client().execute_command("ACL", "SETUSER", "default", "-subscribe")
            server.client().client_kill_filter(_type="pubsub")
            assert until(lambda: self.lines("It takes Redis 6, and the rights"))

    return Tracking()


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_a_process_that_has_read_the_new_value_does_not_go_back_to_the_old_one(server, cache, tracking, read):
    cache.set_many({"k": "v1", "gone": "v1"})
    assert until(lambda: {read(cache, "k"), read(cache, "gone")} == {"v1"} and len(engine(cache)) == 2)
    tracking.is_lost()
    caches["behind"].set("k", "v2")
    caches["behind"].delete("gone")
    assert (read(cache, "k"), read(cache, "gone")) == ("v2", None)
    server.kill()
    assert (read(cache, "k"), read(cache, "gone")) == ("v2", None)


def test_after_repeated_losses_of_tracking_everything_that_was_read_is_served_in_an_outage(server, cache, tracking):
    cache.set_many({key: key for key in KEYS})
    assert until(lambda: all(cache.get(key) == key for key in KEYS) and len(engine(cache)) == len(KEYS))
    for _ in range(3):
        tracking.is_dropped()
    tracking.is_lost()
    for key in KEYS[: len(KEYS) // 2]:
        assert cache.get(key) == key
    server.kill()
    assert cache.get_many(KEYS) == {key: key for key in KEYS}


def test_a_process_that_reads_only_while_tracking_is_lost_has_copies_for_an_outage(server, cache, tracking):
    cache.set_many({key: key for key in KEYS})
    tracking.is_lost()
    for key in KEYS:
        assert cache.get(key) == key
    server.kill()
    assert cache.get_many(KEYS) == {key: key for key in KEYS}
