"""What the two backends for Flask-Caching have in common: entries in a ``wheelcache.Cache``, isolated, with leases."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any, Final

from flask import Flask
from flask_caching.backends.base import BaseCache

from wheelcache.cache import Cache
from wheelcache.codec import ATOMS, Codec, Pickle, Serializer, is_bare
from wheelcache.core import PrefixAccess
from wheelcache.flask_backend.app_contexts import end_leases
from wheelcache.leases.fill_scope import forget_misses
from wheelcache.option_table import Setting

Timeout = int | float | timedelta | None
"""Seconds, or a timedelta; 0 means never, below 0 at once, None the default timeout."""

PICKLE: Final = Pickle()


class EngineBackend(PrefixAccess, BaseCache):
    """A cachelib cache with an engine.

    Args:
        fill_waits: pairs of a key prefix and how long a ``get`` waits for another caller to set such a key, in seconds;
            the longest prefix first.
        settings: see below.

    Attributes:
        settings: the options, for operators.
        serializer: in cachelib's form; set on the class or on the object, it takes the place of pickle, and then gets
            every value but ints and None.
    """

    serializer: Serializer = PICKLE

    def __init__(
        self,
        engine: Cache,
        *,
        default_timeout: float,
        ignore_delete_many_errors: bool,
        fill_waits: tuple[tuple[str, float], ...],
        settings: list[Setting],
    ) -> None:
        super().__init__()
        # Before version 0.16, cachelib has no such parameter.
        self.ignore_delete_many_errors = ignore_delete_many_errors
        # cachelib makes an int of it; fractions are kept here.
        self.default_timeout = default_timeout  # type: ignore[assignment]
        # As cachelib's SimpleCache calls it.
        self._cache = engine
        self._checks_keys = False
        self._fill_waits = fill_waits
        self.settings = settings
        self._isolate()

    @property
    def engine(self) -> Cache:
        """Where the entries are, or the copies."""
        return self._cache

    def is_of_this_process(self) -> bool:
        """Whether other processes have other entries, also with ``coherence``, which tells them of writes only."""
        return True

    def serve(self, app: Flask) -> None:
        """Have the end of each app context of ``app`` end the leases that were taken in it, and its fills."""
        if self._fill_waits:
            app.teardown_appcontext(end_leases)
        fill_times = self.engine.parts.fill_times
        app.teardown_appcontext(lambda error: fill_times.forget())
        if self.engine.is_coherent:
            app.teardown_appcontext(lambda error: forget_misses())

    def get_dict(self, *keys: str) -> dict[str, Any]:
        """``get_many`` as a dict."""
        return dict(zip(keys, self.get_many(*keys), strict=True))

    def dec(self, key: str, delta: int = 1) -> Any:
        """``inc`` by ``-delta``."""
        return self.inc(key, -delta)

    def _fill_wait(self, key: str) -> float:
        """Seconds that a ``get`` waits for another caller to set ``key``."""
        for prefix, wait in self._fill_waits:
            if str(key).startswith(prefix):
                return wait
        return 0.0

    def _waits_for_versions(self, keys: Iterable[Any]) -> bool:
        """Whether ``keys``, by which Flask-Caching asks for versions of memoized functions, take a ``get`` each.

        What these functions are called for cannot be computed before the versions are set, and all callers that miss
        them would set their own.
        """
        return bool(self._fill_waits) and any(map(is_memoize_version, keys))

    def __setattr__(self, name: str, value: Any) -> None:
        # Flask-Caching sets CACHE_SERIALIZER on the finished object.
        super().__setattr__(name, value)
        if name == "serializer":
            self._isolate()

    def __delattr__(self, name: str) -> None:
        super().__delattr__(name)
        if name == "serializer":
            self._isolate()

    def _isolate(self) -> None:
        serializer = self.serializer
        self._codec = Codec(serializer) if serializer is PICKLE else Codec(serializer, keep=is_bare)
        self._loads, self._encode = self._codec.loads, self._codec.encode
        self._atoms = ATOMS if serializer is PICKLE else frozenset()


def is_memoize_version(key: Any) -> bool:
    """Whether Flask-Caching keeps the version of a memoized function under ``key``; it asks for it by ``get_many``."""
    return str(key).endswith("_memver")
