"""Make a test's cache the near cache of a store."""

from wheelcache.near_cache.near_cache import NearCache
from wheelcache.near_cache.outage_rule import OutageRule
from wheelcache.near_cache.trust_epoch import TrustEpoch
from wheelcache.runtime.steps import drive


def use_store(cache, clock):
    """Put ``cache`` in front of a store that tells nothing of writes yet: two reads of it, of 0.125 and 0.2 seconds, a
    write of 2, and three of 0.75, which fail; one read and two writes are refused. The near cache."""
    near = NearCache(cache, 60.0, OutageRule(None), epoch=TrustEpoch(), fail_safe=100.0)

    def slow(seconds, error=None):
        def call():
            clock.advance(seconds)
            if error is not None:
                raise error

        return call

    def write(call):
        drive(near.write((), call, result_if_dropped=None))

    for seconds in (0.125, 0.2):
        drive(near.read(slow(seconds)))
    write(slow(2.0))
    for _ in range(3):
        write(slow(0.75, ConnectionError()))
    for _ in range(2):
        write(slow(1.0))
    drive(near.read(slow(1.0)))
    return near
