"""Which copies a fail-safe TieredCache has when Redis dies while tracking is lost."""

import cachelib
import pytest

from tests.engines import engine, noted
from tests.redis_server import RedisServer
from tests.waiting import until
from wheelcache.flask_backend import TieredCache

READS = {
    "get": lambda cache, key: cache.get(key),
    "get_many": lambda cache, key: cache.get_many(key)[0],
    "get_or_load": lambda cache, key: cache.get_or_load(key, lambda: None),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_a_process_that_has_read_the_new_value_does_not_go_back_to_the_old_one(read, trackings, caplog):
    with RedisServer() as server:
        behind = cachelib.RedisCache(server.client(socket_timeout=1, retry=None))
        cache = noted(TieredCache(behind, fail_safe=True, log_interval=None))
        cache.set("k", "v1")
        # Once it is told of writes, what it reads is found without Redis.
        assert until(lambda: read(cache, "k") == "v1" and engine(cache).keys() == ["k"])
        server.client().execute_command("ACL", "SETUSER", "default", "-subscribe")
        server.client().client_kill_filter(_type="pubsub")
        assert until(lambda: "It takes Redis 6, and the rights" in caplog.text)
        behind.set("k", "v2")
        behind.set("read only now", "v1")
        assert [read(cache, key) for key in ("k", "read only now")] == ["v2", "v1"]
        server.kill()
        assert [read(cache, key) for key in ("k", "read only now")] == ["v2", "v1"]
