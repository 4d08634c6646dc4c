"""A near cache in front of any other cache of ``CACHES``: ``"wheelcache.django_backend.TieredCache"``."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from inspect import isawaitable
from typing import Any, ClassVar, Final

from asgiref.sync import sync_to_async
from django.core.cache import caches
from django.core.cache.backends.base import DEFAULT_TIMEOUT, MEMCACHE_MAX_KEY_LENGTH, BaseCache, default_key_func
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from wheelcache import options
from wheelcache.coherence.write_moments import WritesSince
from wheelcache.core.access import NO_TAGS, is_printable
from wheelcache.core.contract import MISSING
from wheelcache.django_backend.backend import WheelCache
from wheelcache.django_backend.database_bus import awaits_notices
from wheelcache.django_backend.redis_calls import Awaited, check_xx
from wheelcache.django_backend.request_context import (
    act_for_request,
    headers_of,
    is_held_back,
    page_tags,
    shares_its_thread,
    store_headers,
)
from wheelcache.django_backend.second_level import (
    SERVE_ALL_THREADS,
    TOKEN_VERSION,
    second_level,
    store_tags,
    token_mark,
)
from wheelcache.django_backend.site_settings import cache_in_words
from wheelcache.django_backend.stores import Store, shared_stamps, store_for
from wheelcache.loading.adaptive import seconds_for
from wheelcache.loading.request import untagged
from wheelcache.loading.steps import PerDriver, Steps, StepsTo, drive, drive_async, run, run_async, then, twins
from wheelcache.near_cache.computations import CommittedValue
from wheelcache.near_cache.invalidations import Invalidations
from wheelcache.near_cache.late_values import remove_own
from wheelcache.near_cache.near_cache import Fills, GetOrAdd, Here, are_outdated
from wheelcache.near_cache.store_commits import MARKED, marks_of
from wheelcache.near_cache.store_tags import UNTAGGED, StoreTags, TaggedWrite
from wheelcache.near_cache.written_timeouts import NO_TIMEOUT, NewTimeout
from wheelcache.option_table import DJANGO_TIERED as OPTIONS
from wheelcache.option_table import Options
from wheelcache.runtime.request_scope import current_scope
from wheelcache.transactions.overlay import Fill

KEY_SETTINGS: Final = ("KEY_PREFIX", "VERSION", "KEY_FUNCTION")

SET_AGAIN: Final = (BaseCache.incr, BaseCache.aincr)
"""Methods that set the new value with the default timeout. Overriding methods keep the timeout of the value."""


class TieredStore(Store):
    """The copies of one process, and the source of their invalidations.

    Attributes:
        level: reads and writes the copies.
        is_notified: whether the writes of other processes are reported to this one.
    """

    __slots__ = ("is_notified", "level")

    options: ClassVar[Options] = OPTIONS
    cull_frequency: None

    def __init__(self, location: str, checked: Mapping[str, Any], l2: BaseCache, name: str) -> None:
        # The prefix covers all versions. Another key function may use it in an unknown way.
        prefix = f"{l2.key_prefix}:" if l2.key_func is default_key_func else ""
        invalidations = Invalidations(l2, prefix, shared_stamps(location, checked))
        super().__init__(location or name, checked, invalidations.stamps)
        self.level = invalidations.near_cache(self.cache, checked)
        self.is_notified = invalidations.is_notified
        self.level.token_mark = token_mark(l2)
        # With COHERENCE, the stamps show the commits of this machine.
        self.level.marks_commits = self.followed is not None and not self.cache.engine.reports_writes


def _usable_aliases() -> str:
    """Return the aliases that L2 may name, in words."""
    usable = []
    for alias, settings in caches.settings.items():
        # An alias whose backend cannot be imported is not usable either.
        with suppress(ImportError):
            backend = import_string(settings["BACKEND"])
            if not (isinstance(backend, type) and issubclass(backend, TieredCache)):
                usable.append(repr(alias))
    return (
        f"one of {', '.join(usable)}" if usable else "the alias of a cache that is not a TieredCache (CACHES has none)"
    )


def _method(l2: Any, name: str) -> Any:
    """Return a method of the other cache that Django's own caches do not have."""
    found = getattr(l2, name, None)
    if found is None:
        raise NotImplementedError(f"TieredCache passes {name} on to the cache that L2 names, which does not have it")
    return found


def _reading(name: str, missing: Callable[[], Any]) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return a method that calls the method ``name`` of the other cache, and its twin for coroutines."""

    def read(self: TieredCache, *args: Any, **kwargs: Any) -> StepsTo[Any]:
        found = yield from self._level.read(lambda here: _method(here.l2, name)(*args, **kwargs), self._here)
        return missing() if found is MISSING else found

    read.__name__ = name
    return twins(read)


class _Write:
    """A write of values to the other cache: its methods store them, and remove them again.

    Args:
        values: the callers' keys and the values by the keys of the copies.
    """

    __slots__ = ("_l2", "_tags", "_version", "begun", "ttl", "values")

    def __init__(
        self,
        tags: StoreTags,
        l2: BaseCache,
        begun: TaggedWrite,
        values: Mapping[Any, tuple[Any, Any]],
        ttl: Any,
        version: int | None,
    ) -> None:
        self._tags = tags
        self._l2 = l2
        self._version = version
        self.begun = begun
        self.values = values
        self.ttl = ttl

    def set(self, here: Here) -> Any:
        """Set one value."""
        ((key, value),) = self.values.values()
        if self.begun is UNTAGGED:
            return here.l2.set(key, UNTAGGED.sealed(value), self.ttl, version=self._version)
        put = lambda sealed: here.l2.set(key, sealed(value), self.ttl, version=self._version)  # noqa: E731
        return self.begun.write(here.l2, here.drive, put)

    def add(self, here: Here) -> Any:
        """Add one value, or replace one whose tags were dropped."""
        ((key, value),) = self.values.values()
        given = {"version": self._version}
        if self.begun is not UNTAGGED:
            return here.drive(self._tags.add_value(here.l2, self.begun, key, value, self.ttl, **given))
        sealed = UNTAGGED.sealed(value)
        added = here.l2.add(key, sealed, self.ttl, **given)
        if added is True:
            return True
        replace = self._tags.replace_dropped
        return then(lambda added: added or here.drive(replace(here.l2, key, sealed, self.ttl, **given)), added)

    def shares(self, stored: Any) -> bool:
        """Return whether callers that wait may receive the value, given the result of its write."""
        return stored is not False and self.begun.is_current

    def undo(self, cache_key: Any, here: Here) -> Any:
        """Remove a value again."""
        return here.call(self._remove, cache_key)

    def _remove(self, cache_key: Any) -> None:
        key, value = self.values[cache_key]
        remove_own(
            *(self._l2, self._l2.make_key(key, self._version), self.begun.sealed(value)),
            partial(self._l2.get, key, version=self._version),
            partial(self._l2.delete, key, version=self._version),
        )

    def find_marks(self, here: Here) -> Any:
        """Read the marks of commits that have invalidated one of the keys or tags."""
        return here.l2.get_many([*marks_of((*self.values, *self.begun.names))], version=TOKEN_VERSION)


def _call_in_thread(function: Callable[..., Any], *args: Any) -> Any:
    return sync_to_async(function)(*args)


class TieredCache(WheelCache):
    """Keeps copies of the values of another cache, named by the option ``L2``, in the memory of the process.

    The other cache makes the keys, so code that uses it directly finds the values. TIMEOUT, KEY_PREFIX, VERSION and
    KEY_FUNCTION are those of the other cache unless they are given here. Values are isolated as in ``WheelCache``.

    ``get`` looks at the copies and then asks the other cache, once for all callers that miss a key together. Every
    write goes to the other cache and drops the copy. See ``near_cache``.
    """

    store: TieredStore

    @property
    def serves_all_threads(self) -> bool:  # type: ignore[override]
        """Whether all threads and tasks may use one object at the same time. This depends on the other cache."""
        return any(f"{cls.__module__}.{cls.__qualname__}" in SERVE_ALL_THREADS for cls in type(self._l2).__mro__)

    # The key prefix and function for which writes are reported, once they are known.
    _reported: tuple[Any, Any] | None = None
    _keeps = True

    def __init__(self, location: str, params: dict[str, Any]) -> None:
        super().__init__(location, params)
        l2 = self._l2
        if not any(name in params for name in ("TIMEOUT", "timeout")):
            self.default_timeout = l2.default_timeout
        self.key_prefix, self.version, self.key_func = l2.key_prefix, l2.version, l2.key_func
        self._level = self.store.level
        # The look-up in the copies is not the last one.
        self._notes_misses = True
        self._here = PerDriver(Here(l2, drive), Here(Awaited(l2), drive_async, _call_in_thread))
        self._has_redis_calls = hasattr(l2, "ttl")
        self._reported = (l2.key_prefix, l2.key_func)
        self._store_tags = store_tags(self._level, l2)

    def _find_store(self, location: str, params: dict[str, Any]) -> TieredStore:
        given = params.get("OPTIONS", {})
        alias = given.get("L2") if isinstance(given, Mapping) else None
        if not isinstance(alias, str) or alias not in caches.settings:
            raise ImproperlyConfigured(
                f"Wrong setting of {cache_in_words(location, params)}: L2 must be {_usable_aliases()}, not {alias!r}."
            )
        key_settings: dict[str, Any] = {name: params[name] for name in KEY_SETTINGS if name in params}
        self._l2 = l2 = second_level(
            alias, key_settings, given.get("L2_TIMEOUT", OPTIONS["L2_TIMEOUT"].default), TieredCache
        )
        # The alias alone is not enough: tests override its settings.
        # The version is left out: aliases that differ only in it share the copies and see each other's writes.
        variant = ("tiered", repr(caches.settings[alias]), l2.key_prefix, l2.key_func)
        return store_for(
            *(location, params, OPTIONS),
            lambda place, checked: TieredStore(place, checked, l2, f"copies of {alias}"),
            variant,
        )

    def _find_prefix(self) -> None:
        super()._find_prefix()
        if self._reported is not None:
            # A key setting was changed at run time.
            self._l2.key_prefix, self._l2.version, self._l2.key_func = self.key_prefix, self.version, self.key_func
            self._keeps = (self.key_prefix, self.key_func) == self._reported

    def _key(self, key: Any, version: int | None) -> Any:
        """Return the key of a copy. It is a tuple, under which no copies are kept, if the other cache would warn of the
        key or if writes are not reported for it."""
        if version is None and self._keeps:
            cache_key = self._usual_key(key)
            if cache_key is not None:
                return cache_key
        cache_key = self.make_key(key, version=version)
        return cache_key if self._keeps and is_printable(cache_key, MEMCACHE_MAX_KEY_LENGTH) else (cache_key,)

    # Steps, from each of which two methods are made. The methods for tasks await the calls of the other cache.

    def _delete_tags(self, *tags: str) -> StepsTo[None]:
        """Do the same as ``WheelCache.delete_tags`` for the values in the other cache, whatever their version."""
        names = [options.tag("tags", tag) for tag in tags]
        yield from self._level.write(
            self._store_tags.names(names),
            lambda here: self._store_tags.drop(here.l2, names),
            self._here,
            result_if_dropped=None,
            new_timeout=NO_TIMEOUT,
        )

    delete_tags, adelete_tags = twins(_delete_tags)

    def _add(
        self, key: Any, value: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None, *, tags: Any = NO_TAGS
    ) -> StepsTo[Any]:
        cache_keys, ttl = [self._key(key, version)], self._ttl(timeout)
        write = self._new_write(self._store_tags.begin(tags, cache_keys), cache_keys[0], key, value, ttl, version)
        may_be_marked = self._level.may_be_marked(cache_keys)
        fills = self._level.fills(cache_keys, ttl)
        added = yield from self._write_value(write, write.add, fills, NewTimeout(ttl, bool), may_be_marked)
        return added and not (fills and are_outdated(fills))

    add, aadd = twins(_add)

    def _new_write(
        self, begun: TaggedWrite, cache_key: Any, key: Any, value: Any, ttl: Any, version: int | None
    ) -> _Write:
        return _Write(self._store_tags, self._l2, begun, {cache_key: (key, value)}, ttl, version)

    def _write_value(
        self,
        write: _Write,
        put: Callable[[Here], Any],
        fills: Fills,
        new_timeout: NewTimeout,
        may_be_marked: bool,
    ) -> StepsTo[Any]:
        """Store one value by ``put``, a method of ``write``. Return its result."""
        ((cache_key, (_, value)),) = write.values.items()
        return self._level.write(
            [cache_key],
            put,
            self._here,
            result_if_dropped=False,
            value_of=lambda stored: self._for_waiters(value, write.ttl, write.shares(stored)),
            new_timeout=new_timeout,
            tags=write.begun.names,
            fills=fills,
            undo=write.undo,
            find_marks=write.find_marks if may_be_marked else None,
        )

    def begin_commit(self, names: Iterable[Any]) -> Callable[[], object]:
        """Mark the commit of a transaction that invalidates these keys and tags. Return a function that ends it."""
        marks = marks_of(names)
        if not (marks and self._level.marks_commits):
            return lambda: None
        set_many = partial(self._l2.set_many, marks, MARKED, version=TOKEN_VERSION)
        delete_many = partial(self._l2.delete_many, [*marks], version=TOKEN_VERSION)
        drive(self._level.write((), set_many, result_if_dropped=None))
        return lambda: drive(self._level.write((), delete_many, result_if_dropped=None))

    def _get_missed(self, key: Any, default: Any, version: int | None) -> Any:
        return drive(self._look_up(key, default, version))

    def _look_up(self, key: Any, default: Any, version: int | None) -> StepsTo[Any]:
        cache_key = self._key(key, version)
        read = partial(self._read, key, version)
        if type(cache_key) is tuple:
            stored = yield from self._level.read(read, self._here)
            return self._found_or(default, cache_key, stored)
        # A caller that passes MISSING goes on to ``get_or_set``, which shares the computation without a lease.
        wait = 0.0 if default is MISSING else self._fill_wait(key)
        stored = yield from self._level.get(cache_key, read, self._here, leaves_miss=wait > 0)
        if stored is MISSING and wait:
            act_for_request()
            grace, may_wait = self._fill_grace(key), not shares_its_thread()
            headers = headers_of(key) if grace else None
            leader = None if headers is None else self._key(headers, version)
            stored = yield from self._level.lease(
                cache_key, read, self._here, wait=wait, may_wait=may_wait, grace=grace, leader=leader
            )
        if default is MISSING:
            return stored if stored is MISSING else self._decode(stored)
        return self._found_or(default, cache_key, stored)

    def _read(self, key: Any, version: int | None, here: Here) -> Any:
        found = here.l2.get(key, MISSING, version=version)
        if isawaitable(found):
            return then(lambda value: self._store_tags.opened_one(here.l2, value, self._encode), found)
        return self._store_tags.opened_one(here.l2, found, self._encode)

    def set(  # type: ignore[override]
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
        ttl = self._ttl(timeout)
        write = partial(self._write_through, key, value, ttl, version, nx=nx, xx=xx, tags=tags)
        if page_tags.are_used and tags is NO_TAGS and not (nx or xx):
            found, since = page_tags.collected(key, value)
            if len(found) > options.MOST_TAGS:
                self.delete(key, version)
                return False
            if found:
                begun = self._store_tags.begin(found, (), since)
                write = partial(drive, self._put(begun, self._key(key, version), key, value, ttl, version))
        if self._fill_waits and is_held_back(self._cache, key, self._key(key, version), write):
            return True
        written: bool = write()
        if self._fill_waits:
            store_headers(self._cache, key, lambda headers: self._key(headers, version))
        return written

    def _set(
        self,
        key: Any,
        value: Any,
        timeout: Any = DEFAULT_TIMEOUT,
        version: int | None = None,
        *,
        nx: bool = False,
        xx: bool = False,
        tags: Any = NO_TAGS,
    ) -> StepsTo[bool]:
        if xx:
            check_xx(nx=nx, tags=tags)
            return (yield from self._put_existing(key, value, self._ttl(timeout), version))
        if nx:
            return (yield from self._add(key, value, timeout, version, tags=tags))  # type: ignore[no-any-return]
        cache_key = self._key(key, version)
        begun = self._store_tags.begin(tags, [cache_key])
        return (yield from self._put(begun, cache_key, key, value, self._ttl(timeout), version))

    def _put(
        self,
        begun: TaggedWrite,
        cache_key: Any,
        key: Any,
        value: Any,
        ttl: float | None,
        version: int | None,
        fills: Fills | None = None,
    ) -> StepsTo[bool]:
        may_be_marked = self._level.marks_commits and (fills is not None or self._level.may_be_marked([cache_key]))
        fills = self._level.fills([cache_key], ttl) if fills is None else fills
        write = self._new_write(begun, cache_key, key, value, ttl, version)
        written = yield from self._write_value(write, write.set, fills, NewTimeout(ttl), may_be_marked)
        return self._is_stored(written) and not (fills and are_outdated(fills))

    def _tag_names(self, tags: Any) -> tuple[str, ...]:
        return () if tags is NO_TAGS else self._store_tags.names(options.tags("tags", tags))

    def store_committed(
        self,
        cache_key: Any,
        key: Any,
        version: int | None,
        tags: tuple[str, ...],
        fill: Fill,
        ttl: float | None,
        others: WritesSince,
    ) -> None:
        begun = self._store_tags.begin(tags, (), others.since)
        fills = {cache_key: CommittedValue(cache_key, others)}
        drive(self._put(begun, cache_key, key, self._decode(fill.value), ttl, version, fills))

    def _put_existing(self, key: Any, value: Any, ttl: float | None, version: int | None) -> StepsTo[bool]:
        """Do a ``set`` with ``xx``, which the other cache must support. The new value has no tags."""
        if not self._has_redis_calls:
            raise NotImplementedError("TieredCache passes xx on to the cache that L2 names, which does not have it")
        # To the other cache, a value whose tags were dropped exists.
        if (yield from self._level.read(partial(self._read, key, version), self._here)) is MISSING:
            return False
        sealed = UNTAGGED.sealed(value)
        write = self._write(False, NewTimeout(ttl, bool), "set", key, sealed, ttl, version=version, keys=[key], xx=True)
        return self._is_stored((yield from write))

    def _is_stored(self, written: Any) -> bool:
        """Return whether a value was stored, given the result of the other cache's ``set``: django-redis returns None
        for an error that it ignores, and other caches return None always."""
        return bool(written) if self._has_redis_calls else written is not False

    _write_through, aset = twins(_set)

    def _write(
        self,
        result_if_dropped: Any,
        new_timeout: NewTimeout | None,
        name: str,
        *args: Any,
        version: int | None,
        keys: list[Any],
        **given: Any,
    ) -> StepsTo[Any]:
        """Call the method ``name`` of the other cache, which writes ``keys``."""
        here: Here = yield self._here
        method = getattr(here.l2, name)
        if given and getattr(method, "__func__", None) in (BaseCache.aincr, BaseCache.aset):
            # Django's own methods for coroutines have no additional arguments.
            method = sync_to_async(getattr(self._l2, name))
        elif getattr(method, "__func__", None) in SET_AGAIN:
            new_timeout = NewTimeout(self._l2.default_timeout)
        write: Callable[[], Any] = partial(method, *args, version=version, **given)
        if name == "incr":
            write = partial(here.drive, self._store_tags.count(here.l2, write, keys[0], version=version))
        cache_keys = [self._key(key, version) for key in keys]
        return (
            yield from self._level.write(
                cache_keys, write, result_if_dropped=result_if_dropped, new_timeout=new_timeout
            )
        )

    def _touch(self, key: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None) -> StepsTo[bool]:
        ttl = self._ttl(timeout)
        return self._write(False, NewTimeout(ttl, bool), "touch", key, ttl, version=version, keys=[key])

    touch, atouch = twins(_touch)

    def _delete(self, key: Any, version: int | None = None) -> StepsTo[bool]:
        return self._write(False, NO_TIMEOUT, "delete", key, version=version, keys=[key])

    delete, adelete = twins(_delete)

    def _get_many(self, keys: Iterable[Any], version: int | None = None) -> StepsTo[dict[Any, Any]]:
        cache_keys = {key: self._key(key, version) for key in keys}
        # Two of the caller's keys, such as 1 and "1", may be one key.
        originals = {cache_key: key for key, cache_key in cache_keys.items()}

        def read(missing: list[Any], here: Here) -> Any:
            def opened(found: Mapping[Any, Any]) -> Any:
                found = {self._key(key, version): value for key, value in found.items()}
                return self._store_tags.opened(here.l2, found, self._encode)

            return then(opened, here.l2.get_many([originals[cache_key] for cache_key in missing], version=version))

        if tuple in map(type, originals):
            # No copies are kept under tuples.
            found = yield from self._level.read(partial(read, list(originals)), self._here)
            found = {} if found is MISSING else {cache_key: untagged(stored) for cache_key, stored in found.items()}
        else:
            found = yield from self._level.get_many(originals, read, self._here)
        for cache_key in originals.keys() - found.keys():
            self._level.missed(cache_key)
        return {key: self._decode(found[cache_key]) for key, cache_key in cache_keys.items() if cache_key in found}

    get_many, aget_many = twins(_get_many)

    # These have no ``grace`` of a call: FILL_GRACE keeps old values in the copies only.
    def get_or_set(  # type: ignore[override]
        self, key: Any, default: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None, *, tags: Any = NO_TAGS
    ) -> Any:
        """Do the same as Django's ``get_or_set``, except that only one of the callers that miss the key together calls
        ``default``. With FILL_GRACE, a parameter named ``previous`` receives the old copy, which KEEP stores again."""
        begun, ttl = self._store_tags.begin(tags), timeout if callable(timeout) else self._ttl(timeout)
        found = self._get_at_once(key) if version is None else MISSING
        if found is not MISSING:
            return found
        return run(self._level.get_or_add(self._get_or_add(begun, key, default, ttl, version), self._here))

    async def aget_or_set(  # type: ignore[override]
        self, key: Any, default: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None, *, tags: Any = NO_TAGS
    ) -> Any:
        """Do the same as ``get_or_set``; if ``default()`` returns an awaitable, it is awaited."""
        begun, ttl = self._store_tags.begin(tags), timeout if callable(timeout) else self._ttl(timeout)
        found = self._get_at_once(key) if version is None else MISSING
        if found is not MISSING:
            return found
        steps = self._level.get_or_add(self._get_or_add(begun, key, default, ttl, version), self._here)
        return await run_async(steps)

    def load_missed(self, *args: Any, **given: Any) -> Any:
        """Do a ``get_or_set`` after a ``get`` that missed, which counts the look-up."""
        return run(self._load_missed(*args, **given))

    async def aload_missed(self, *args: Any, **given: Any) -> Any:
        return await run_async(self._load_missed(*args, **given))

    def _load_missed(
        self, key: Any, default: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None, *, tags: Any = NO_TAGS
    ) -> Steps:
        begun, ttl = self._store_tags.begin(tags), timeout if callable(timeout) else self._ttl(timeout)
        return self._level.add_missing(self._get_or_add(begun, key, default, ttl, version), self._here)

    def _get_or_add(self, begun: TaggedWrite, key: Any, default: Any, timeout: Any, version: int | None) -> GetOrAdd:
        cache_key = self._key(key, version)
        return GetOrAdd(
            cache_key,
            partial(self._read, key, version),
            default if callable(default) else lambda: default,
            partial(self._add_computed, begun, cache_key, key, timeout, version),
            self._codec,
            self._fill_grace(key) if self._fill_graces else 0.0,
            begun.names,
            lambda here: here.drive(begun.begin(here.l2)),
            is_computed=callable(default),
        )

    def _add_computed(
        self, begun: TaggedWrite, cache_key: Any, key: Any, timeout: Any, version: int | None, value: Any, fills: Fills
    ) -> StepsTo[Any]:
        ttl = seconds_for(timeout, value)
        write = self._new_write(begun, cache_key, key, value, ttl, version)
        added = yield from self._write_value(write, write.add, fills, NewTimeout(ttl, bool), self._level.marks_commits)
        return added and not are_outdated(fills)

    def _has_key(self, key: Any, version: int | None = None) -> StepsTo[Any]:
        # Its value shows whether its tags were dropped.
        def ask(here: Here) -> Any:
            return then(lambda found: found is not MISSING, self._read(key, version, here))

        return (yield from self._level.has(self._key(key, version), ask, self._here))

    has_key, ahas_key = twins(_has_key)

    def _incr(
        self, key: Any, delta: int = 1, version: int | None = None, *, ignore_key_check: bool = False
    ) -> StepsTo[int]:
        """Do the same as Django's ``incr``. In an outage, the error always reaches the caller.

        Raises:
            TagsUnsupported: if the number has tags.
        """
        given = {"ignore_key_check": True} if ignore_key_check else {}
        return self._write(MISSING, None, "incr", key, delta, version=version, keys=[key], **given)

    incr, aincr = twins(_incr)

    # The methods below call the methods above.
    aget, adecr = WheelCache.aget, BaseCache.adecr
    aincr_version, adecr_version = BaseCache.aincr_version, BaseCache.adecr_version

    def _set_many(
        self,
        data: Mapping[Any, Any],
        timeout: Any = DEFAULT_TIMEOUT,
        version: int | None = None,
        *,
        tags: Any = NO_TAGS,
    ) -> StepsTo[list[Any]]:
        keys, ttl = list(data), self._ttl(timeout)
        written = {self._key(key, version): (key, value) for key, value in data.items()}
        begun = self._store_tags.begin(tags, written)
        may_be_marked = self._level.may_be_marked(written)
        fills = self._level.fills(written, ttl)
        write = _Write(self._store_tags, self._l2, begun, written, ttl, version)

        def refused() -> list[Any]:
            return [written[cache_key][0] for cache_key, fill in fills.items() if fill.is_outdated]

        def set_many(here: Here) -> Any:
            left_out = refused()

            def put(sealed: Callable[[Any], Any]) -> Any:
                values = {key: sealed(value) for key, value in data.items() if key not in left_out}
                return here.l2.set_many(values, ttl, version=version)

            return begun.write(here.l2, here.drive, put)

        failed: list[Any] = yield from self._level.write(
            [*written],
            set_many,
            self._here,
            result_if_dropped=keys,
            new_timeout=NewTimeout(ttl, lambda failed: None if failed else True),
            fills=fills,
            undo=write.undo,
            find_marks=write.find_marks if may_be_marked else None,
        )
        # django-redis returns None.
        return list({*(failed or ()), *refused()}) if fills else failed

    set_many, aset_many = twins(_set_many)

    def _delete_many(self, keys: Iterable[Any], version: int | None = None) -> StepsTo[None]:
        keys = list(keys)
        return self._write(None, NO_TIMEOUT, "delete_many", keys, version=version, keys=keys)

    delete_many, adelete_many = twins(_delete_many)

    def _clear(self) -> StepsTo[None]:
        yield from self._level.clear(lambda here: here.l2.clear(), self._here)

    clear, aclear = twins(_clear)

    # The calls of django-redis. The other cache must have them; the calls that change a timeout only need ``touch``.

    ttl, attl = _reading("ttl", int)
    pttl, apttl = _reading("pttl", int)
    keys, akeys = _reading("keys", list)

    def iter_keys(self, *args: Any, **kwargs: Any) -> Iterator[str]:
        return _method(self._l2, "iter_keys")(*args, **kwargs)  # type: ignore[no-any-return]

    async def aiter_keys(self, *args: Any, **kwargs: Any) -> AsyncIterator[str]:
        # The call may wait for the other cache.
        keys: list[str] = await sync_to_async(lambda: [*self.iter_keys(*args, **kwargs)])()
        for key in keys:
            yield key

    def _delete_pattern(
        self, pattern: str, version: int | None = None, prefix: str | None = None, itersize: int | None = None
    ) -> StepsTo[int]:
        """Delete the keys that match a pattern from the other cache, and their copies. Return their number."""
        copies = self._deletions(pattern, version, prefix, itersize)
        self._level.computations.outdate_where(self._filter(pattern, *self._around(version, prefix), itersize))
        if self._cache.engine.reports_writes:
            self._cache.engine.clear_for(None)
        given = {"prefix": prefix, "itersize": itersize}
        given = {name: value for name, value in given.items() if value is not None}

        def write(here: Here) -> Any:
            return _method(here.l2, "delete_pattern")(pattern, version=version, **given)

        try:
            return (yield from self._level.write((), write, self._here, result_if_dropped=0))  # type: ignore[no-any-return]
        finally:
            sum(copies)

    delete_pattern, adelete_pattern = twins(_delete_pattern)

    def lock(self, *args: Any, **kwargs: Any) -> Any:
        """Return a lock of the other cache. django-redis's locks cover all machines."""
        return _method(self._l2, "lock")(*args, **kwargs)

    def alock(self, *args: Any, **kwargs: Any) -> Any:
        return _method(self._l2, "alock")(*args, **kwargs)

    def close(self, **kwargs: Any) -> None:
        super().close(**kwargs)
        self._l2.close(**kwargs)

    async def aclose(self, **kwargs: Any) -> None:
        held_back = current_scope().held_back
        for cache, cache_key in list(held_back):
            if cache is self._cache:
                # ``close`` would write it to the other cache in this thread and block the event loop.
                store = held_back.pop((cache, cache_key))
                if isinstance(store, partial):
                    await self.aset(*store.args, **store.keywords)
        super().close(**kwargs)
        await self._l2.aclose(**kwargs)


for _name in (
    *("aadd", "aset", "atouch", "adelete", "aset_many", "adelete_many", "adelete_tags", "adelete_pattern"),
    *("aincr", "aget_or_set", "aload_missed", "aclear"),
):
    setattr(TieredCache, _name, awaits_notices(getattr(TieredCache, _name)))
