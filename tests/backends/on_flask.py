"""``WheelCache`` for Flask, in the words of ``adapter``. Imports nothing of Django."""

from cachelib import SimpleCache

from tests.backends.adapter import DEFAULT, QUIET, Adapter, given, names
from tests.engines import noted
from wheelcache.flask_backend import WheelCache
from wheelcache.leases.fill_scope import forget_misses


class OnFlask(Adapter):
    refused = (TypeError, ValueError, RuntimeError)

    @classmethod
    def make(cls, name=None, timeout=DEFAULT, **options):
        name = name or next(names)
        if "max_entries" in options:
            options["threshold"] = options.pop("max_entries")
        default = given(default_timeout=cls.timeout(timeout).get("timeout", DEFAULT))
        return cls(noted(WheelCache(**{**QUIET, **options, **default, "name": name})), name)

    @classmethod
    def beside(cls):
        return cls(SimpleCache(), "")

    def end_request(self):
        # The end of an app context calls these, which is tested by apps.
        forget_misses()
        self.engine.fill_times.forget()

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
