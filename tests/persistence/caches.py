"""Caches without jitter, log and samples, with their own clock, which tests save and load."""

from wheelcache import Cache, ManualClock


def kept(name="mine", **options):
    quiet = {"clock": ManualClock(), "jitter": 0, "log_interval": None, "sample_interval": None}
    return Cache(name, **{**quiet, **options})


def filled(values, ttl=None, **options):
    cache = kept(**options)
    assert cache.set_many(values, ttl) == []
    return cache
