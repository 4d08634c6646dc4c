"""``WheelCache`` for Flask, in the words of ``adapter``. Imports nothing of Django."""

import cachelib.simple
from cachelib import BaseCache, SimpleCache

from tests.backends.adapter import DEFAULT, QUIET, Adapter, given, names
from tests.engines import noted
from wheelcache.flask_backend import WheelCache
from wheelcache.runtime.request_scope import forget_misses


class DocumentedSimpleCache(SimpleCache):
    """SimpleCache with the three differences that docs/how-to/migrate.md documents, and no others."""

    def _normalize_timeout(self, timeout):
        """Keep the fraction of the second at which the value is set."""
        seconds = BaseCache._normalize_timeout(self, timeout)
        return cachelib.simple.time() + seconds if seconds > 0 else seconds

    def delete(self, key):
        """Return whether the key existed: an expired one does not."""
        existed = self.has(key)
        super().delete(key)
        return existed

    def inc(self, key, delta=1):
        """Keep the expiry of a key that exists."""
        expires_at = self._cache[key][0] if self.has(key) else None
        value = super().inc(key, delta)
        if expires_at is not None:
            self._cache[key] = (expires_at, self._cache[key][1])
        return value


class OnFlask(Adapter):
    made, bound = WheelCache, "threshold"
    refused = (TypeError, ValueError, RuntimeError)

    @classmethod
    def make(cls, name=None, timeout=DEFAULT, **options):
        name = name or next(names)
        if "max_entries" in options:
            options[cls.bound] = options.pop("max_entries")
        default = given(default_timeout=cls.timeout(timeout).get("timeout", DEFAULT))
        return cls(noted(cls.made(**{**QUIET, **options, **default, "name": name})), name)

    @classmethod
    def documented(cls):
        return cls(DocumentedSimpleCache(), "")

    def end_request(self):
        # The end of an app context calls this, which is tested by apps.
        forget_misses()

    @staticmethod
    def spelled(option):
        return option

    @staticmethod
    def timeout(ttl):
        return given(timeout=0 if ttl is None else ttl)

    @staticmethod
    def key(key):
        return key

    def get_many(self, keys):
        return {key: value for key, value in self.backend.get_dict(*keys).items() if value is not None}

    def set_many(self, values, ttl=DEFAULT):
        stored = self.backend.set_many(values, **self.timeout(ttl))
        return [key for key in values if key not in stored]

    def delete_many(self, keys):
        self.backend.delete_many(*keys)

    def has(self, key):
        return self.backend.has(key)

    def count(self, key, delta=1):
        return self.backend.inc(key, delta)

    def load(self, key, loader, ttl=DEFAULT, **policy):
        return self.backend.get_or_load(key, loader, **self.timeout(ttl), **policy)
