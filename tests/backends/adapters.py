"""Both backends in the same words, for what they do alike.

``ttl`` is in seconds, None for ever, below 0 over at once; options are in lower case, ``max_entries`` among them.
"""

from itertools import count

from cachelib import SimpleCache
from django.core.cache.backends.locmem import LocMemCache
from django.core.exceptions import ImproperlyConfigured

from tests.engines import engine, noted
from wheelcache import django_backend, flask_backend

DEFAULT = object()
"""The ``ttl`` of a call without one."""

QUIET = {"jitter": 0, "log_interval": None}

_names = map("contract {}".format, count())


def _given(**arguments):
    return {name: value for name, value in arguments.items() if value is not DEFAULT}


class Adapter:
    """A backend.

    Attributes:
        backend: the object that the framework has.
        name: what it is called: two of one name, and the same options but ``max_entries``, are of one cache to others.
    """

    def __init__(self, backend, name):
        self.backend = backend
        self.name = name
        self.get = backend.get
        self.add = lambda key, value, ttl=DEFAULT: backend.add(key, value, **self.timeout(ttl))
        self.delete = backend.delete
        self.clear = backend.clear

    @property
    def engine(self):
        return engine(self.backend)

    def set(self, key, value, ttl=DEFAULT):
        self.backend.set(key, value, **self.timeout(ttl))

    def ttl_left(self, key):
        return self.engine.expires_in(self.key(key))


class OnDjango(Adapter):
    refused = ImproperlyConfigured

    @classmethod
    def make(cls, name=None, timeout=DEFAULT, **options):
        name = name or next(_names)
        spelled = {option.upper(): value for option, value in {**QUIET, **options}.items()}
        return cls(django_backend.WheelCache(name, {"OPTIONS": spelled, **_given(TIMEOUT=timeout)}), name)

    @classmethod
    def beside(cls):
        """What the framework has in its own package."""
        return cls(LocMemCache(next(_names), {}), "")

    @staticmethod
    def spelled(option):
        return option.upper()

    @staticmethod
    def timeout(ttl):
        return _given(timeout=ttl)

    @staticmethod
    def key(key):
        """What the engine has it under."""
        return f":1:{key}"

    def get_many(self, keys):
        """What was found."""
        return self.backend.get_many(keys)

    def set_many(self, values, ttl=DEFAULT):
        """The keys that were refused."""
        return self.backend.set_many(values, **self.timeout(ttl))

    def delete_many(self, keys):
        self.backend.delete_many(keys)

    def has(self, key):
        return self.backend.has_key(key)

    def touch(self, key, ttl):
        return self.backend.touch(key, ttl)

    def count(self, key, delta=1):
        """Add to what is there."""
        return self.backend.incr(key, delta)

    def load(self, key, loader, ttl=DEFAULT, **policy):
        return self.backend.get_or_set(key, loader, **self.timeout(ttl), **policy)


class OnFlask(Adapter):
    refused = (TypeError, ValueError, RuntimeError)

    @classmethod
    def make(cls, name=None, timeout=DEFAULT, **options):
        name = name or next(_names)
        if "max_entries" in options:
            options["threshold"] = options.pop("max_entries")
        given = _given(default_timeout=cls.timeout(timeout).get("timeout", DEFAULT))
        return cls(noted(flask_backend.WheelCache(**{**QUIET, **options, **given, "name": name})), name)

    @classmethod
    def beside(cls):
        return cls(SimpleCache(), "")

    @staticmethod
    def spelled(option):
        return option

    @staticmethod
    def timeout(ttl):
        return _given(timeout=0 if ttl is None else ttl)

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


ADAPTERS = {"django": OnDjango, "flask": OnFlask}
