"""``WheelCache`` for Django, in the words of ``adapter``. Imports nothing of Flask."""

import asyncio
import threading

from django.core.cache.backends.locmem import LocMemCache
from django.core.exceptions import ImproperlyConfigured

from tests.backends.adapter import DEFAULT, QUIET, Adapter, given, names
from wheelcache.django_backend import WheelCache


class DocumentedLocMemCache(LocMemCache):
    """LocMemCache whose ``delete`` returns whether the key existed: an expired one does not."""

    def delete(self, key, version=None):
        return self.has_key(key, version) and super().delete(key, version)


class OnDjango(Adapter):
    made = WheelCache
    refused = ImproperlyConfigured

    @classmethod
    def make(cls, name=None, timeout=DEFAULT, **options):
        name = name or next(names)
        spelled = {option.upper(): value for option, value in {**QUIET, **options}.items()}
        return cls(cls.made(name, {"OPTIONS": spelled, **given(TIMEOUT=timeout)}), name)

    @classmethod
    def documented(cls):
        """Return the cache of the framework's own package, with the documented differences of WheelCache."""
        return cls(DocumentedLocMemCache(next(names), {}), "")

    def end_request(self):
        self.backend.close()

    @staticmethod
    def spelled(option):
        return option.upper()

    @staticmethod
    def timeout(ttl):
        return given(timeout=ttl)

    @staticmethod
    def key(key):
        """Return the key of the engine."""
        return f":1:{key}"

    def get_many(self, keys):
        """Return the found values."""
        return self.backend.get_many(keys)

    def set_many(self, values, ttl=DEFAULT):
        """Store many values. Return the keys that were refused."""
        return self.backend.set_many(values, **self.timeout(ttl))

    def delete_many(self, keys):
        self.backend.delete_many(keys)

    def has(self, key):
        return self.backend.has_key(key)

    def touch(self, key, ttl):
        return self.backend.touch(key, **self.timeout(ttl))

    def count(self, key, delta=1):
        """Add ``delta`` to a value."""
        return self.backend.incr(key, delta)

    def load(self, key, loader, ttl=DEFAULT, **policy):
        return self.backend.get_or_set(key, loader, **self.timeout(ttl), **policy)


class OnDjangoAsync(OnDjango):
    """The Django backend, by its async methods."""

    runner = None
    """The runner of the test thread. A fixture makes it, since a loop for each call would take most of the time."""

    def __init__(self, backend, name):
        super().__init__(backend, name)
        self.get = lambda *args: self.run(backend.aget(*args))
        self.add = lambda key, value, ttl=DEFAULT: self.run(backend.aadd(key, value, **self.timeout(ttl)))
        self.delete = lambda key: self.run(backend.adelete(key))
        self.clear = lambda: self.run(backend.aclear())

    def for_any_code(self):
        return OnDjango(self.backend, self.name)

    def run(self, coroutine):
        if threading.current_thread() is threading.main_thread():
            return self.runner.run(coroutine)
        return asyncio.run(coroutine)

    def set(self, key, value, ttl=DEFAULT):
        self.run(self.backend.aset(key, value, **self.timeout(ttl)))

    def get_many(self, keys):
        return self.run(self.backend.aget_many(keys))

    def set_many(self, values, ttl=DEFAULT):
        return self.run(self.backend.aset_many(values, **self.timeout(ttl)))

    def delete_many(self, keys):
        self.run(self.backend.adelete_many(keys))

    def has(self, key):
        return self.run(self.backend.ahas_key(key))

    def touch(self, key, ttl):
        return self.run(self.backend.atouch(key, **self.timeout(ttl)))

    def count(self, key, delta=1):
        return self.run(self.backend.aincr(key, delta))

    def load(self, key, loader, ttl=DEFAULT, **policy):
        return self.run(self.backend.aget_or_set(key, loader, **self.timeout(ttl), **policy))
