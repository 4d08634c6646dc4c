"""The engine behind a backend, found as an application finds it: among the ``caches`` of the process."""

from weakref import WeakKeyDictionary

from wheelcache import caches

_engines = WeakKeyDictionary()


def noted(backend):
    """Note that the newest engine of the process belongs to ``backend``, and return ``backend``."""
    _engines[backend] = caches()[-1]
    return backend


def engine(backend):
    """Return the engine of a noted backend, or of a Django backend: the newest one with its LOCATION as the name."""
    if backend in _engines:
        return _engines[backend]
    return [each for each in caches() if each.name == (backend.location or "default")][-1]
