"""A cache that follows the transactions of databases: the option TRANSACTIONS.

Within a transaction, the calls below read and write the overlay of the transaction; ``super()`` is the cache that all
share. ``add``, ``incr``, ``decr`` and ``touch`` act on the shared cache immediately, unless the transaction itself has
set the key: then there is nobody else to be atomic with. If the transaction has deleted the key, they delete it for all
first. Keys of IMMEDIATE follow no transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, partial
from itertools import chain
from typing import Any, Final

from django.contrib.sessions.backends.cache import KEY_PREFIX as SESSIONS
from django.core.cache.backends.base import DEFAULT_TIMEOUT

from wheelcache import options
from wheelcache.core.access import NO_TAGS
from wheelcache.core.contract import HIDDEN, MISSING
from wheelcache.core.reusable import USUAL, check_reusable
from wheelcache.django_backend.redis_calls import check_xx
from wheelcache.django_backend.request_context import page_tags
from wheelcache.followed_cache import NOTHING, FollowingAccess, with_calls
from wheelcache.keys import callers_tags, text_of
from wheelcache.loading.policy import PLAIN, LoadPolicy, load_policy
from wheelcache.loading.request import LoadRequest
from wheelcache.loading.steps import Steps, drive, drive_async, result
from wheelcache.transactions.overlay import Fill, Overlay

IMMEDIATE: Final = (SESSIONS, "throttle_", "allauth", "axes-")
"""The beginnings of the keys of sessions that are only in a cache, and of the counters of Django REST framework,
django-allauth and django-axes. These use ``get`` and ``set``, and a rollback would reset the count of failed logins."""


class InTransactions(FollowingAccess):
    """The calls of a cache that follows transactions. It comes before the backend: see ``with_calls``."""

    def __init__(self, location: str, params: dict[str, Any]) -> None:
        super().__init__(location, params)  # type: ignore[call-arg]
        self._follow(self.store.followed)

    # The overlays of the running code.

    def overlay(self, key: Any = None) -> Overlay | None:
        """Return the overlay of the open transaction, which the first call makes; None without a transaction, or if
        ``key`` is one of IMMEDIATE."""
        return None if type(key) is str and key.startswith(IMMEDIATE) else super().overlay(key)

    def _fill(
        self, cache_key: Any, stored: Any, ttl: float | None, origin: tuple[Any, ...], tags: tuple[str, ...]
    ) -> Fill:
        names = self._tag_names(tags) if tags else ()
        return self._new_fill(cache_key, stored, ttl, (*origin, tags), names)

    def _set_in_overlay(
        self, overlay: Overlay, key: Any, stored: Any, ttl: float | None, version: int | None, tags: tuple[str, ...]
    ) -> None:
        cache_key, origin = self._key(key, version), (self, key, version)
        overlay.set(cache_key, self._fill(cache_key, stored, ttl, origin, tags), origin)

    # Calls that act on the shared cache.

    def delete_pattern_now(self, pattern: str, version: int | None, *given: tuple[str, Any]) -> None:
        super().delete_pattern(pattern, version, **dict(given))  # type: ignore[misc]

    def delete_now(self, keys: list[Any], version: int | None) -> None:
        super().delete_many(keys, version)  # type: ignore[misc]

    # Django's calls, in the order of BaseCache.

    def add(
        self, key: Any, value: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None, *, tags: Any = NO_TAGS
    ) -> bool:
        cache_key = self._key(key, version)
        if self._own_value_or_apply_delete(cache_key, key, version) is not None:
            return False
        is_added: bool = super().add(key, value, timeout, version, tags=tags)  # type: ignore[misc]
        if is_added:
            self._made(cache_key, key)
        return is_added

    def _get_missed(self, key: Any, default: Any, version: int | None) -> Any:
        value = super()._get_missed(key, MISSING if default is MISSING else NOTHING, version)  # type: ignore[misc]
        if value is NOTHING or value is MISSING:
            overlay = self.overlay(key)
            if overlay is not None:
                overlay.missed(self._key(key, version))
            return default
        return value

    async def aget(self, key: Any, default: Any = None, version: int | None = None) -> Any:
        if self.overlay(key) is not None:
            return self.get(key, default, version)
        return await super().aget(key, default, version)  # type: ignore[misc]

    def set(
        self,
        key: Any,
        value: Any,
        timeout: Any = DEFAULT_TIMEOUT,
        version: int | None = None,
        *,
        nx: bool = False,
        xx: bool = False,
        tags: Any = NO_TAGS,
    ) -> bool:
        overlay = self.overlay(key)
        if overlay is None:
            return self._set_shared(key, value, timeout, version, nx=nx, xx=xx, tags=tags)  # type: ignore[no-any-return]
        if not nx:
            self._count_computation(self._key(key, version))
        if xx:
            check_xx(nx=nx, tags=tags)
            if not self.has_key(key, version):
                return False
            tags = self._tags_of(self._key(key, version))
        if nx:
            return self.add(key, value, timeout, version, tags=tags)
        if page_tags.are_used and tags is NO_TAGS:
            tags, since = page_tags.collected(key, value)
            if len(tags) > options.MOST_TAGS or self._cache.engine.dropped_since(self._tag_names(tags), since):
                self.delete(key, version)
                return False
        ttl = self._ttl(timeout)
        if ttl is not None and ttl <= 0:
            return self.delete(key, version)
        if type(value) not in USUAL:
            check_reusable(value)
        names = () if tags is NO_TAGS else options.tags("tags", tags)
        self._set_in_overlay(overlay, key, self._encode(value), ttl, version, names)
        return True

    def _tags_of(self, cache_key: Any) -> tuple[str, ...]:
        """Return the tags of an entry that ``set`` with ``xx`` replaces. A store behind keeps none."""
        found = self._in_overlay(cache_key)
        if type(found) is Fill:
            return found.origin[-1]  # type: ignore[no-any-return]
        record = None if self._followed.has_store else self._cache.engine.peek(cache_key)
        names = () if record is None else callers_tags(record.tags)
        return tuple([name.removeprefix(self._shared.tag_prefix) for name in names])

    def touch(self, key: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None) -> bool:
        fill = self._own_value_or_apply_delete(self._key(key, version), key, version)
        if fill is None:
            return super().touch(key, timeout, version)  # type: ignore[misc,no-any-return]
        return self._replace(key, fill, fill.value, self._ttl(timeout), version)

    def _replace(self, key: Any, fill: Fill, stored: Any, ttl: float | None, version: int | None) -> bool:
        """Replace a value of the transaction."""
        if options.expires_now(ttl):
            return self.delete(key, version)
        overlay = self.overlay(key)
        if overlay is not None:
            self._set_in_overlay(overlay, key, stored, ttl, version, fill.origin[-1])
        return True

    def delete(self, key: Any, version: int | None = None) -> bool:
        overlay = self.overlay(key)
        if overlay is None:
            return super().delete(key, version)  # type: ignore[misc,no-any-return]
        is_there = self.has_key(key, version)
        overlay.delete(self._key(key, version), (self, key, version))
        return is_there

    def get_many(self, keys: Iterable[Any], version: int | None = None) -> dict[Any, Any]:
        overlay = self.overlay()
        if overlay is None:
            return super().get_many(keys, version)  # type: ignore[misc,no-any-return]
        seen = {key: self._in_overlay(self._key(key, version)) for key in keys}
        shared = super().get_many([key for key, found in seen.items() if found is None], version)  # type: ignore[misc]
        values = {}
        for key, found in seen.items():
            if type(found) is Fill:
                values[key] = self._decode(found.value)
            elif key in shared and not self._hides_entry(self._key(key, version), key):
                values[key] = shared[key]
            else:
                cache_key = self._key(key, version)
                if found is HIDDEN or key in shared:
                    self._misses.begin(cache_key)
                overlay.missed(cache_key)
        return values

    def get_or_set(
        self, key: Any, default: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None, **given: Any
    ) -> Any:
        if self.overlay(key) is None:
            return super().get_or_set(key, default, timeout, version, **given)  # type: ignore[misc]
        return result(drive(self._load_alone(key, default, timeout, version, **given)))

    async def aget_or_set(
        self, key: Any, default: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None, **given: Any
    ) -> Any:
        if self.overlay(key) is None:
            return await super().aget_or_set(key, default, timeout, version, **given)  # type: ignore[misc]
        return result(await drive_async(self._load_alone(key, default, timeout, version, **given)))

    def _load_alone(
        self, key: Any, default: Any, timeout: Any, version: int | None, *, tags: Iterable[str] = NO_TAGS, **given: Any
    ) -> Steps:
        """Do the same as ``get_or_set`` within a transaction: the caller computes the value by itself, and keeps it.
        The options about other callers are only checked."""
        policy, overlay, value = load_policy(**given), self.overlay(key), self.get(key, NOTHING, version)
        if value is not NOTHING or overlay is None:
            return value, None
        return (yield from self._compute_alone(overlay, key, default, timeout, version, policy, tags))

    def _load_missed(
        self, key: Any, default: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None, *, tags: Any = NO_TAGS
    ) -> Steps:
        overlay = self.overlay(key)
        if overlay is None:
            return super()._load_missed(key, default, timeout, version, tags=tags)  # type: ignore[misc,no-any-return]
        return self._compute_alone(overlay, key, default, timeout, version, PLAIN, tags)

    def _compute_alone(
        self,
        overlay: Overlay,
        key: Any,
        default: Any,
        timeout: Any,
        version: int | None,
        policy: LoadPolicy,
        tags: Iterable[str],
    ) -> Steps:
        loader = default if callable(default) else lambda: default
        ttl = timeout if callable(timeout) else self._ttl(timeout)
        request = self.loading.request(
            *(self._key(key, version), loader, ttl, policy), encode=self._encode, is_alone=True
        )
        # The caller has counted the look-up.
        request.is_counted, request.is_computed = True, callable(default)
        origin, names = (self, key, version), options.tags("tags", tags)
        stored, error = yield from self.compute(overlay, request, origin, names)
        return (None, error) if error is not None else (self._decode(stored), None)

    def compute(self, overlay: Overlay, request: LoadRequest, origin: tuple[Any, ...], tags: tuple[str, ...]) -> Steps:
        """Return the steps to the stored form of a value that is computed within a transaction, which keeps it."""
        stored, error = yield from self.loading.compute(request)
        if error is not None:
            return None, error
        ttl, _ = request.lifetime(stored)
        if not options.expires_now(ttl):
            overlay.set(request.key, self._fill(request.key, stored, ttl, origin, tags), origin)
        return stored, None

    def find_in_transaction(self, cache_key: Any, default: Any) -> Any:
        """Do the same as ``Cache.find``, with the values of the running transaction."""
        found = self._in_overlay(cache_key)
        if found is not None:
            return default if found is HIDDEN else found.value
        stored = self._cache.find(cache_key, default)
        return default if self._overlays and stored is not default and self._hides_entry(cache_key) else stored

    def has_key(self, key: Any, version: int | None = None) -> bool:
        cache_key = self._key(key, version)
        found = self._in_overlay(cache_key)
        if found is not None:
            return type(found) is Fill
        return super().has_key(key, version) and not self._hides_entry(cache_key, key)  # type: ignore[misc]

    def incr(self, key: Any, delta: int = 1, version: int | None = None, *, ignore_key_check: bool = False) -> int:
        cache_key = self._key(key, version)
        fill = self._own_value_or_apply_delete(cache_key, key, version)
        if fill is None:
            if not ignore_key_check:
                return super().incr(key, delta, version)  # type: ignore[misc,no-any-return]
            total: int = super().incr(key, delta, version, ignore_key_check=True)  # type: ignore[misc]
            self._made(cache_key, key)
            return total
        total = self._decode(fill.value) + delta
        left = fill.seconds_left(self._cache.engine.now())
        self._replace(key, fill, self._encode(total), left, version)
        return total

    def set_many(
        self,
        data: Mapping[Any, Any],
        timeout: Any = DEFAULT_TIMEOUT,
        version: int | None = None,
        *,
        tags: Any = NO_TAGS,
    ) -> list[Any]:
        if self.overlay() is None:
            return super().set_many(data, timeout, version, tags=tags)  # type: ignore[misc,no-any-return]
        for key, value in data.items():
            self.set(key, value, timeout, version, tags=tags)
        return []

    def delete_many(self, keys: Iterable[Any], version: int | None = None) -> int | None:
        if self.overlay() is None:
            return super().delete_many(keys, version)  # type: ignore[misc,no-any-return]
        keys = list(dict.fromkeys(keys))
        # Every look-up in a store behind takes its time, and its own ``delete_many`` returns no number.
        is_counted = bool(keys) and not self._followed.has_store
        count = sum(self.has_key(key, version) for key in keys) if is_counted else None
        for key in keys:
            overlay = self.overlay(key)
            if overlay is None:
                self.delete_now([key], version)
            else:
                overlay.delete(self._key(key, version), (self, key, version))
        return count

    def clear(self) -> None:
        overlay = self.overlay()
        if overlay is None:
            super().clear()  # type: ignore[misc]
        else:
            overlay.clear()

    # The calls of django-redis.

    def delete_pattern(self, pattern: str, version: int | None = None, **given: Any) -> int:
        overlay = self.overlay()
        if overlay is None:
            return super().delete_pattern(pattern, version, **given)  # type: ignore[misc,no-any-return]
        select = self._filter(pattern, *self._around(version, given.get("prefix")), given.get("itersize"))
        known = chain.from_iterable(self._cache.engine.key_batches())
        matching = [key for key in select(list(known)) if self._shows_entry(key)]
        deleted: int = overlay.delete_pattern(select, (self, pattern, version, *given.items()))
        return deleted + len(matching)

    def iter_keys(self, search: str, itersize: int | None = None, version: int | None = None) -> Iterator[str]:
        shared = super().iter_keys(search, itersize=itersize, version=version)  # type: ignore[misc]
        overlay = self.overlay()
        if overlay is None:
            return shared  # type: ignore[no-any-return]
        before, after = self._around(version, None)
        own = self._filter(search, before, after, itersize)([*overlay.fills()])
        return chain(
            (key for key in shared if self._shows_entry(self._key(key, version))),
            (text_of(key).removeprefix(before).removesuffix(after) for key in own),
        )

    def _shows_entry(self, cache_key: Any) -> bool:
        """Return whether the transaction sees the entry of the shared cache."""
        return self._in_overlay(cache_key) is None and not self._hides_entry(cache_key)

    def pttl(self, key: Any, version: int | None = None) -> int | None:
        found = self._in_overlay(self._key(key, version))
        if found is None:
            return super().pttl(key, version)  # type: ignore[misc,no-any-return]
        if found is HIDDEN:
            return 0
        left = found.seconds_left(self._cache.engine.now())
        return None if left is None else int(left * 1000 + 0.5)

    def ttl(self, key: Any, version: int | None = None) -> int | None:
        if self._in_overlay(self._key(key, version)) is None:
            return super().ttl(key, version)  # type: ignore[misc,no-any-return]
        left = self.pttl(key, version)
        return None if left is None else int(left / 1000 + 0.5)


def _for_tasks(name: str) -> Callable[..., Any]:
    """Return the method ``name`` for coroutines. Only unsafe code has a transaction in an event loop."""

    async def call(self: InTransactions, *args: Any, **kwargs: Any) -> Any:
        if self.overlay() is None:
            return await getattr(super(InTransactions, self), f"a{name}")(*args, **kwargs)
        return getattr(self, name)(*args, **kwargs)

    call.__name__ = f"a{name}"
    return call


for name in (
    *("add", "set", "touch", "delete", "get_many", "has_key", "incr", "set_many", "delete_many", "clear"),
    *("delete_tags", "delete_pattern", "keys", "pttl", "ttl"),
):
    setattr(InTransactions, f"a{name}", _for_tasks(name))


following: Final[Callable[[Any], Any]] = cache(partial(with_calls, InTransactions))
"""Return a class of backends with the calls of a cache that follows transactions."""


def follows(params: Mapping[str, Any]) -> bool:
    """Return whether the arguments of a backend make it follow transactions. The options are checked later."""
    given = params.get("OPTIONS")
    return isinstance(given, Mapping) and bool(given.get("TRANSACTIONS"))
