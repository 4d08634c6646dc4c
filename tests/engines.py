"""The engine behind a backend, found as an application finds it: among the ``caches`` of the process."""

from weakref import WeakKeyDictionary

from wheelcache import caches

_engines = WeakKeyDictionary()


def noted(backend):
    """``backend``, which was just made, with an engine of its own: the newest of the process."""
    _engines[backend] = caches()[-1]
    return backend


def engine(backend):
    """Of a backend that was noted, or of a Django backend, which is called by its LOCATION: the newest of that name."""
    if backend in _engines:
        return _engines[backend]
    return [each for each in caches() if each.name == (backend.location or "default")][-1]


def save_and_close(cache):
    """What the end of its process does to a cache with snapshots: it is saved if it was used."""
    if cache.keeper is not None:
        if cache.parts.gate.is_in_use():
            assert cache.keeper.save()
        cache.close()
