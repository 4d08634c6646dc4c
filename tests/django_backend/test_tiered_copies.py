"""Which copies a fail-safe TieredCache has when Redis dies while tracking is lost, or was."""

import asyncio

import pytest
from django.core.cache import caches

from tests.django_backend.test_tiered_outages import tiered
from tests.engines import engine
from tests.redis_server import RedisServer
from tests.waiting import until

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


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_a_process_that_has_read_the_new_value_does_not_go_back_to_the_old_one(server, cache, read, caplog):
    cache.set_many({"k": "v1", "gone": "v1"})
    assert until(lambda: {read(cache, "k"), read(cache, "gone")} == {"v1"} and len(engine(cache)) == 2)
    # Redis drops the connection that tells, and refuses another one.
    server.client().execute_command("ACL", "SETUSER", "default", "-subscribe")
    server.client().client_kill_filter(_type="pubsub")
    assert until(lambda: "It takes Redis 6, and the rights" in caplog.text)
    caches["behind"].set("k", "v2")
    caches["behind"].delete("gone")
    assert (read(cache, "k"), read(cache, "gone")) == ("v2", None)
    server.kill()
    assert (read(cache, "k"), read(cache, "gone")) == ("v2", None)
