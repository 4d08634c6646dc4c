"""The tracking thread ends before a fork, as idle threads do, and starts again after it."""

import pytest

from tests.runtime.forking import run_noting

pytestmark = pytest.mark.deep

TRACKING = """
import redis
from wheelcache.near_cache.redis_tracking import Tracking, connect_like

told = []

class Listener:
    def trust(self, trusted): told.append(trusted)
    def flushed(self): told.append("flushed")
    def invalidated(self, keys): told.extend(keys)
"""


@pytest.mark.servers
def test_the_tracking_thread_ends_before_a_fork_and_goes_on_after_it_on_the_same_connection(shared_redis):
    assert run_noting(f"""{TRACKING}
client = redis.Redis(port={shared_redis.port})
tracking = Tracking(connect_like(client), b"fork:", Listener())
tracking.start()
until(lambda: told == [True])
(before,) = client.client_list(_type="pubsub")
for number in range(20):
    client.set(f"fork:{{number}}", 1)
    assert in_child(lambda: None) == 0
    assert tracking.trusted_until > 0
until(lambda: len(told) == 21)
assert told[1:] == [b"fork:%d" % number for number in range(20)]
print(*set(seen_by_forks), *threads())
(after,) = client.client_list(_type="pubsub")
print(after["id"] == before["id"])
# PINGs go on.
asked = tracking.trusted_until
until(lambda: tracking.trusted_until > asked)
# Stopped between the end of the thread and a fork.
in_hook.append(tracking.stop)
print(in_child(lambda: None), seen_by_forks[-1])
until(lambda: not client.client_list(_type="pubsub"))
print(told[21:], *threads())
""") == ["1", "wheelcache-tracking", "True", "0", "1", "[False]"]
