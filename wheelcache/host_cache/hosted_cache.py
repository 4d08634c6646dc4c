"""A ``Cache`` whose entries are those of a host cache."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from wheelcache.cache import Cache
from wheelcache.core import access
from wheelcache.core.contract import MISSING
from wheelcache.engine.stats import Stats
from wheelcache.host_cache.host_core import HostCore
from wheelcache.host_cache.place import Place
from wheelcache.host_cache.write_moments import HostMoments
from wheelcache.runtime.clock import unfrozen


class HostedCache(Cache):
    """The entries of a host cache, with all calls of ``Cache``. Keys are strings, or tuples of one string.

    Args:
        find_place: finds the folder, at the first use.
        max_bytes: the most bytes of all keys and values.
        given: the other arguments of ``Cache``.
    """

    def __init__(self, find_place: Callable[[], Place], max_bytes: int, **given: Any) -> None:
        self._find_place, self._max_bytes = find_place, max_bytes
        super().__init__(**given)
        self._host.wake = self.engine.wake

    @property
    def has_shared_entries(self) -> bool:
        return True

    def stats(self) -> Stats:
        """Return the statistics of this process, with the number and the weight of all entries."""
        return replace(super().stats(), size=len(self._core), weight=self._core.weight)

    def _make_entries(self, options: SimpleNamespace) -> dict[str, Any]:
        # For the figures.
        options.max_weight = self._max_bytes
        self._host = core = HostCore(
            self._find_place,
            options.name,
            max_bytes=self._max_bytes,
            max_entries=options.max_entries,
            jitter=options.jitter,
            interval=options.interval,
            clock=unfrozen(options.clock),
        )
        return {"core": core, "moments": HostMoments(core), "claims": core.claims.on, "own_part": core.own_part}

    # The calls in Python: the compiled ones know the compiled core only.

    _core = property(lambda self: self._host)

    def _bind(self, core: Any, writes: Any) -> None:
        self._core_find, self._core_set, self._core_delete = core.find, core.set, core.delete
        self._writes = writes

    get = access.CacheAccess.get
    find = access.CacheAccess.find
    set = access.CacheAccess.set
    delete = access.CacheAccess.delete
    get_many = access.CacheAccess.get_many
    add = access.CacheAccess.add
    set_many = access.CacheAccess.set_many
    touch = access.CacheAccess.touch
    incr = access.CacheAccess.incr
    get_or_load = access.CacheAccess.get_or_load


class PythonAccess(access.PrefixAccess):
    """The fast paths of a backend, in Python."""

    _cache: Any
    _fill_wait: Any
    _found_or: Any

    def _get_missed(self, key: Any, default: Any, version: int | None) -> Any:
        cache_key = None if version is not None or self._fill_wait(key) else self._usual_key(key)
        # Before the first use of the cache, the fast path finds nothing.
        if cache_key is None or self._written is None or self._overlays or self._cache._core.is_shut or self._follows():
            return super()._get_missed(key, default, version)
        # The fast path has looked it up. A caller that passes MISSING counts the look-up itself.
        if default is not MISSING:
            self._cache._core.count_miss(cache_key)
        return self._found_or(default, cache_key, MISSING)
