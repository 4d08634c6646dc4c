"""Loads of many keys, as a near cache makes them."""

from functools import partial

from wheelcache.engine.loading.request import PLAIN
from wheelcache.near_cache import many_loads
from wheelcache.runtime.steps import Call, outcome_of, result, run


def steps_of_many(cache, keys, loader, ttl=10):
    """Return the steps that load ``keys`` by one call of ``loader(keys)``."""

    def read(keys):
        return result((yield Call(partial(loader, keys))))

    return outcome_of(many_loads.load_many(cache.engine, keys, read, ttl, PLAIN))


def load_many(cache, keys, loader, ttl=10):
    return run(steps_of_many(cache, keys, loader, ttl))
