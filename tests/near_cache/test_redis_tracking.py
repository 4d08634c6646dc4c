"""Invalidations from a real redis-server, and everything that can come between."""

import pytest

from tests.waiting import happens, until
from wheelcache.near_cache.redis_tracking import connect_like

pytestmark = pytest.mark.servers


# Reported writes.


def test_set_delete_rename_and_scripts_are_told_in_order_and_what_changes_nothing_is_not(client, copies):
    client.set("a:1", 1)
    client.delete("a:1")
    client.get("a:1")
    client.delete("a:none")
    client.set("a:2", 1)
    client.rename("a:2", "a:3")
    client.eval("redis.call('set', 'a:4', 1)", 0)
    assert copies.are_told(True, b"a:1", b"a:1", b"a:2", b"a:2", b"a:3", b"a:4")


@pytest.mark.parametrize(
    ("prefix", "told"),
    [(b"x:", [b"x:1"]), (b"", [b"x", b"z:1", b"X:1", b"x:1", b"\xff\r\n", b"a:x:1"])],
    ids=["a prefix", "every key"],
)
def test_keys_of_other_prefixes_are_not_told(shared_redis, track, copies, prefix, told):
    client = shared_redis.client()
    track(client, copies, prefix)
    for key in ("x", "z:1", "X:1", "x:1", b"\xff\r\n", "a:x:1"):
        client.set(key, 1)
    assert copies.are_told(True, *told)


@pytest.mark.parametrize("command", ["FLUSHALL", "FLUSHDB", "FLUSHALL ASYNC"])
def test_a_flush_is_told_as_everything(client, copies, command):
    client.execute_command(*command.split())
    assert copies.are_told(True, "all")


# The connection.


@pytest.mark.parametrize("options", [{"protocol": 3, "decode_responses": True, "health_check_interval": 1}, {"db": 2}])
def test_clients_of_any_options_are_told(shared_redis, track, copies, options):
    with shared_redis.client(**options) as client:
        track(client, copies)
        client.set("a:1", 1)
        assert copies.are_told(True, b"a:1")


REFUSALS = {
    "no right to track": "allchannels +@all -client|tracking",
    "no right to the channel": "resetchannels +@all",
    "no right to ping": "allchannels +@all -ping",
}


@pytest.mark.parametrize("rights", REFUSALS.values(), ids=REFUSALS)
def test_a_server_that_refuses_is_tried_once_a_minute(own_redis, rights, tracking_of, copies, lines):
    own_redis.client().execute_command("ACL", "SETUSER", "web", "on", ">secret", "~a:*", *rights.split())
    tries, connect = [], connect_like(own_redis.client(username="web", password="secret"))
    tracking_of(lambda timeout: tries.append(1) or connect(timeout), copies).start()
    assert until(lambda: lines())
    assert not happens(lambda: len(tries) > 1, 0.3)
    assert copies.told == ["refused"]
    assert len(lines()) == 1
