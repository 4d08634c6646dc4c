"""A Flask cache that follows the transactions that the site announces: the option ``transactions``.

Within a transaction, the calls below read and write its overlay; ``super()`` is the cache that all share. ``add`` and
``inc`` act on the shared cache immediately, unless the transaction itself has set the key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from typing import Any, Final

from wheelcache import options
from wheelcache.coherence.write_moments import WritesSince
from wheelcache.core.access import NO_TAGS
from wheelcache.core.contract import MISSING, Record
from wheelcache.flask_backend.engine_backend import (
    TO_BE_COMPUTED,
    Timeout,
    new_version,
)
from wheelcache.followed_cache import FollowedCache, FollowingAccess, with_calls
from wheelcache.loading.policy import load_policy
from wheelcache.loading.request import Kept, LoadRequest, Unstored
from wheelcache.transactions.announced import transaction_scope
from wheelcache.transactions.overlay import Fill


class InTransactions(FollowingAccess):
    """The calls of a cache that follows transactions, in the order of ``WheelCache``. It comes before
    the backend: see ``with_calls``."""

    def __init__(self, *args: Any, **given: Any) -> None:
        super().__init__(*args, **given)
        engine = self._cache
        self._follow(
            FollowedCache(
                engine,
                transaction_scope.open_transactions,
                self._max_entries,
                self._max_bytes,
                outlives_process=engine.engine.reports_writes,
            )
        )

    # The end of a transaction calls these: see ``FollowedCache``.

    def delete_now(self, keys: list[str]) -> None:
        super().delete_many(*keys)  # type: ignore[misc]

    def store_committed(self, cache_key: str, key: str, fill: Fill, ttl: float | None, others: WritesSince) -> None:
        """Share a value of a transaction that was committed, unless it is outdated: see ``Engine.store_committed``."""
        self._cache.engine.store_committed(cache_key, fill.value, ttl, self._fill_grace(key), fill.tags, others)

    # cachelib's calls.

    def _key(self, key: str, version: int | None) -> str:
        return self._cache_key(key)  # type: ignore[no-any-return]

    def _get_missed(self, key: str, default: Any, version: int | None) -> Any:
        overlay = self.overlay()
        value = super()._get_missed(key, MISSING if default is not TO_BE_COMPUTED else default, version)  # type: ignore[misc]
        if value is not MISSING and value is not TO_BE_COMPUTED:
            return value
        if overlay is not None:
            overlay.missed(self._cache_key(key))
        return default

    def set(self, key: str, value: Any, timeout: Timeout = None, *, tags: Iterable[str] = NO_TAGS) -> bool:
        overlay = self.overlay()
        if overlay is None:
            return self._set_shared(key, value, timeout, tags=tags)  # type: ignore[no-any-return]
        self._count_computation(self._cache_key(key))
        return self._set_in_overlay(key, self._encode(value), self._ttl(timeout), self._tag_names(tags))

    def _set_in_overlay(self, key: str, stored: Any, ttl: float | None, names: tuple[str, ...]) -> bool:
        cache_key, overlay = self._cache_key(key), self.overlay()
        if options.expires_now(ttl):
            self.delete(key)
        elif not self._fits(cache_key, stored):
            return False
        elif overlay is not None:
            overlay.set(cache_key, self._new_fill(cache_key, stored, ttl, (self, key), names), (self, key))
        return True

    def add(self, key: str, value: Any, timeout: Timeout = None, *, tags: Iterable[str] = NO_TAGS) -> bool:
        cache_key = self._cache_key(key)
        if self._own_value_or_apply_delete(cache_key, key) is not None:
            return False
        is_added: bool = super().add(key, value, timeout, tags=tags)  # type: ignore[misc]
        if is_added:
            self._made(cache_key, key)
        return is_added

    def inc(self, key: str, delta: int = 1) -> Any:
        cache_key = self._cache_key(key)
        fill = self._own_value_or_apply_delete(cache_key, key)
        if fill is None:
            total = super().inc(key, delta)  # type: ignore[misc]
            if total is not None:
                self._made(cache_key, key)
            return total
        total = (self._decode(fill.value) or 0) + delta
        left = fill.seconds_left(self._cache.engine.now())
        return total if self._set_in_overlay(key, self._encode(total), left, fill.tags) else None

    def set_many(
        self, mapping: Mapping[str, Any], timeout: Timeout = None, *, tags: Iterable[str] = NO_TAGS
    ) -> list[Any]:
        if self.overlay() is None:
            return super().set_many(mapping, timeout, tags=tags)  # type: ignore[misc,no-any-return]
        return [key for key, value in mapping.items() if self.set(key, value, timeout, tags=tags)]

    def get_many(self, *keys: str) -> list[Any]:
        if self.overlay() is None:
            return super().get_many(*keys)  # type: ignore[misc,no-any-return]
        return [self.get(key) for key in keys]

    def delete(self, key: str) -> bool:
        overlay = self.overlay()
        if overlay is None:
            return super().delete(key)  # type: ignore[misc,no-any-return]
        existed = self.has(key)
        overlay.delete(self._cache_key(key), (self, key))
        return existed

    def delete_many(self, *keys: str) -> list[Any]:
        if self.overlay() is None:
            return super().delete_many(*keys)  # type: ignore[misc,no-any-return]
        for key in keys:
            self.delete(key)
        return list(keys)

    def has(self, key: str) -> bool:
        cache_key = self._cache_key(key)
        found = self._in_overlay(cache_key)
        if found is not None:
            return type(found) is Fill
        return super().has(key) and not self._hides_entry(cache_key)  # type: ignore[misc]

    def clear(self) -> bool:
        overlay = self.overlay()
        if overlay is None:
            return super().clear()  # type: ignore[misc,no-any-return]
        overlay.clear()
        return True

    # Computed values. Within a transaction, a caller computes them by itself, and keeps them.

    def get_or_load(
        self, key: str, loader: Callable[..., Any], timeout: Any = None, *, tags: Iterable[str] = NO_TAGS, **given: Any
    ) -> Any:
        if self.overlay() is None:
            return super().get_or_load(key, loader, timeout, tags=tags, **given)  # type: ignore[misc]
        return self._load_alone(key, loader, timeout, tags, **given)

    def _load_alone(self, key: str, loader: Callable[..., Any], timeout: Any, tags: Iterable[str], **given: Any) -> Any:
        """Do the same as ``get_or_load`` within a transaction. The options about other callers are only checked."""
        policy, value = load_policy(**given), self.get(key, MISSING)
        if value is not MISSING:
            return value
        ttl = timeout if callable(timeout) else self._ttl(timeout)
        request = self.loading.request(*(self._cache_key(key), loader, ttl, policy), encode=self._encode, is_alone=True)
        # The ``get`` has counted the look-up.
        request.is_counted = True
        stored = self.loading.get(request)
        seconds, _ = request.lifetime(stored)
        if not options.expires_now(seconds):
            self._set_in_overlay(key, stored, seconds, self._tag_names(tags))
        return self._decode(stored)

    def request_shared(self, key: str, load: Callable[[], Any], begun: Any) -> LoadRequest:
        if self.overlay() is None:
            return super().request_shared(key, load, begun)  # type: ignore[misc,no-any-return]
        return self.request_alone(key, load)  # type: ignore[no-any-return]

    def shared(self, value: Any, timeout: Timeout, begun: Any) -> Kept | Unstored:
        return super().shared(value, timeout, begun if self.overlay() is None else begun._replace(is_fill=False))  # type: ignore[misc,no-any-return]

    def keep(self, key: str, value: Any, timeout: Timeout, begun: Any) -> None:
        if self.overlay() is None:
            super().keep(key, value, timeout, begun)  # type: ignore[misc]
        else:
            self._set_in_overlay(key, self._encode(value), self._ttl(timeout), begun.names)

    def previous(self, key: str) -> Record | None:
        return None if self.overlay() is not None else super().previous(key)  # type: ignore[misc]

    def version(self, key: str) -> str:
        if self._in_overlay(self._cache_key(key)) is None:
            return super().version(key)  # type: ignore[misc,no-any-return]
        # The transaction has deleted the version, whose stamp will change at the commit.
        return str(self.get_or_load(key, new_version, 0))


following: Final[Callable[[Any], Any]] = cache(partial(with_calls, InTransactions))
"""Return a class of backends with the calls of a cache that follows transactions."""
