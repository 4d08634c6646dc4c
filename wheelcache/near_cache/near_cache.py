"""A cache in front of another one: what is read is kept here, what is written goes there, and what changes there is
dropped here.

The store behind is the truth. A copy is kept for ``timeout`` seconds at most, and only until its key is known to be
written: ``SharedStamps`` tell what the processes of this machine write, ``redis_tracking`` what any client writes to a
Redis. A caller that reads while a key is written may get the old value. A caller that begins to read when the write,
and the word of it, have arrived does not: a copy that was read before that is not kept.

The store behind is reached by functions that the backends give. Whatever they raise is an outage, unless it is about
the key or the value: TypeError, ValueError, LookupError, AttributeError, what pickle raises, and what Redis or
Memcached say of a command.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Protocol, TypeVar

from wheelcache.core.contract import MISSING
from wheelcache.errors import CacheClosed
from wheelcache.loading.key_loading import KeyLoading
from wheelcache.loading.policy import PLAIN, LoadPolicy
from wheelcache.loading.unstored import Unstored
from wheelcache.near_cache.guarded_store import GuardedStore, is_about_the_value
from wheelcache.near_cache.trust_epoch import TrustEpoch
from wheelcache.runtime.clock import Clock

T = TypeVar("T")

ValueOf = Callable[[Any], Any]
"""Makes of what a write returned the value that was written, or MISSING."""


def _nothing() -> None:
    """Nothing tells of writes that could be started."""


def _no_value(result: object) -> Any:
    """What was written is not for the waiters."""
    return MISSING


def _as_many(key: Any, value: Any) -> dict[Any, Any]:
    """What a read of many would have returned."""
    return {} if value is MISSING else {key: value}


class Copies(Protocol):
    """The cache that the copies are kept in, as far as this module is concerned: see ``wheelcache.Cache``."""

    @property
    def name(self) -> str: ...
    @property
    def steady(self) -> Clock: ...
    @property
    def loading(self) -> KeyLoading: ...

    def __contains__(self, key: Hashable) -> bool: ...
    def find(self, key: Hashable, default: Any = None) -> Any: ...
    def delete(self, key: Hashable) -> bool: ...
    def clear(self) -> None: ...
    def get_or_lease(self, key: Hashable, default: Any = None, *, wait: float, may_wait: bool = True) -> Any: ...
    async def aget_or_lease(self, key: Hashable, default: Any = None, *, wait: float) -> Any: ...
    def fill_lease(self, key: Hashable, value: Any) -> None: ...
    def invalidate(self, key: Hashable) -> None: ...
    def discard_stale(self, key: Hashable) -> None: ...
    def count_miss(self) -> None: ...


class NearCache:
    """The copies of one process.

    Args:
        cache: where they are kept.
        timeout: seconds that a copy is kept at most; the jitter of ``cache`` shortens them.
        epoch: the stamps of ``cache`` if a connection tells this process of every write, and can be lost.
        fail_safe: while the store behind fails, old copies are returned, for ``grace`` seconds past their time.
        drop_writes: with ``fail_safe``, a write that fails is dropped; else its error reaches the caller.

    Attributes:
        trusted: whether copies may be used. With an epoch, ``trust`` says so.
        start_tracking: called where copies may not be used; cheap if it was called before.
        stop_tracking: for the owner to call when the copies are not used any more.
    """

    def __init__(
        self,
        cache: Copies,
        timeout: float,
        *,
        epoch: TrustEpoch | None = None,
        fail_safe: bool = False,
        grace: float = 0.0,
        drop_writes: bool = True,
    ) -> None:
        self.cache = cache
        self.timeout = timeout
        self.fail_safe = fail_safe
        self.drop_writes = drop_writes
        self.trusted = epoch is None
        self.start_tracking: Callable[[], object] = _nothing
        self.stop_tracking: Callable[[], object] = _nothing
        self._epoch = epoch
        if epoch is not None:
            epoch.is_told = False
        # Kept for as long as they may be needed, which is not served while the store answers.
        self._policy = LoadPolicy(keep=grace) if fail_safe else PLAIN
        self._store = GuardedStore(cache.name, cache.steady, watches_outages=fail_safe)

    # What tells of writes calls these: see ``redis_tracking.Listener``.

    def invalidated(self, keys: list[bytes]) -> None:
        for raw in keys:
            self.cache.invalidate(raw.decode(errors="surrogateescape"))

    def flushed(self) -> None:
        self.cache.clear()

    def trust(self, trusted: bool) -> None:
        # No lock is taken to distrust: it may be a fork that says so.
        self.trusted = False
        if self._epoch is not None:
            self._epoch.is_told = False
            self._epoch.write_all()
        if trusted:
            if not self.fail_safe:
                # Else what is suspect stays for an outage.
                self.cache.clear()
            if self._epoch is not None:
                self._epoch.is_told = True
            self.trusted = True

    # Reading.

    def get(self, key: Any, read: Callable[[], Any]) -> Any:
        """The copy of ``key``; else what ``read()`` returns, once for all callers that miss it, kept unless MISSING."""
        try:
            if not self.trusted:
                return self._get_untrusted([key], lambda _: _as_many(key, read())).get(key, MISSING)
            stored = self.cache.find(key, MISSING)
            if stored is not MISSING:
                return stored
            stored = self.cache.loading.load(key, lambda: self._read(read), self.timeout, self._policy)
        except Exception as error:
            return self._instead(key, error)
        return self._without_stale_copy(key, stored)

    async def aget(self, key: Any, read: Callable[[], Awaitable[Any]]) -> Any:
        """``get`` for coroutines."""

        async def read_many(_: list[Any]) -> Mapping[Any, Any]:
            return _as_many(key, await read())

        try:
            if not self.trusted:
                return (await self._aget_untrusted([key], read_many)).get(key, MISSING)
            stored = self.cache.find(key, MISSING)
            if stored is not MISSING:
                return stored
            stored = await self.cache.loading.aload(key, lambda: self._aread(read), self.timeout, self._policy)
        except Exception as error:
            return self._instead(key, error)
        return self._without_stale_copy(key, stored)

    def _without_stale_copy(self, key: Any, stored: Any) -> Any:
        if stored is MISSING:
            self.cache.discard_stale(key)
        return stored

    def get_many(self, keys: Iterable[Any], read: Callable[[list[Any]], Mapping[Any, Any]]) -> dict[Any, Any]:
        """The copies of ``keys``; of those that are not here what ``read(keys)`` returns, in one call."""
        keys = list(keys)
        if not keys:
            # Which Redis calls an error.
            return {}
        try:
            if not self.trusted:
                return self._get_untrusted(keys, read)

            def load(missing: list[Any]) -> Mapping[Any, Any]:
                return self._store.call(lambda: read(missing))

            found, missing = self._find_many(keys)
            if missing:
                self._count_misses_if(not self.fail_safe, missing)
                found |= self.cache.loading.load_many(missing, load, self.timeout, self._policy)
                self._count_misses_if(self.fail_safe, missing)
            return self._without_stale(keys, found)
        except Exception as error:
            return self._all_instead(keys, error)

    async def aget_many(
        self, keys: Iterable[Any], read: Callable[[list[Any]], Awaitable[Mapping[Any, Any]]]
    ) -> dict[Any, Any]:
        """``get_many`` for coroutines."""
        keys = list(keys)
        if not keys:
            # Which Redis calls an error.
            return {}
        try:
            if not self.trusted:
                return await self._aget_untrusted(keys, read)

            async def load(missing: list[Any]) -> Mapping[Any, Any]:
                return await self._store.acall(lambda: read(missing))

            found, missing = self._find_many(keys)
            if missing:
                self._count_misses_if(not self.fail_safe, missing)
                found |= await self.cache.loading.aload_many(missing, load, self.timeout, self._policy)
                self._count_misses_if(self.fail_safe, missing)
            return self._without_stale(keys, found)
        except Exception as error:
            return self._all_instead(keys, error)

    def _find_many(self, keys: list[Any]) -> tuple[dict[Any, Any], list[Any]]:
        """The copies that are here, and the keys that are missing."""
        found = {key: stored for key in keys if (stored := self.cache.find(key, MISSING)) is not MISSING}
        return found, [key for key in dict.fromkeys(keys) if key not in found]

    def lease(self, key: Any, read: Callable[[], Any], *, wait: float, may_wait: bool = True) -> Any:
        """What another caller sets the missing ``key`` to while this one waits; else MISSING, with a lease on it."""
        stored = self.cache.get_or_lease(key, MISSING, wait=wait, may_wait=may_wait)
        return self._found(key, self.read(read, key)) if stored is MISSING else stored

    async def alease(self, key: Any, read: Callable[[], Awaitable[Any]], *, wait: float) -> Any:
        """``lease`` for coroutines."""
        stored = await self.cache.aget_or_lease(key, MISSING, wait=wait)
        return self._found(key, await self.aread(read, key)) if stored is MISSING else stored

    def _found(self, key: Any, stored: Any) -> Any:
        # Looked up once more with the lease in hand: another process, or an earlier holder, may have set it by now.
        if stored is not MISSING:
            self.cache.fill_lease(key, stored)
        return stored

    def has(self, key: Any, ask: Callable[[], bool]) -> bool:
        """Whether there is a copy of ``key``; else what ``ask()`` returns."""
        if self.trusted and key in self.cache:
            return True
        try:
            found = self._store.call(ask)
        except Exception as error:
            if not self.fail_safe or is_about_the_value(error):
                raise
            return self.cache.loading.get_stale(key, MISSING) is not MISSING
        if not found:
            self.cache.discard_stale(key)
        return found

    async def ahas(self, key: Any, ask: Callable[[], Awaitable[bool]]) -> bool:
        """``has`` for coroutines."""
        if self.trusted and key in self.cache:
            return True
        try:
            found = await self._store.acall(ask)
        except Exception as error:
            if not self.fail_safe or is_about_the_value(error):
                raise
            return self.cache.loading.get_stale(key, MISSING) is not MISSING
        if not found:
            self.cache.discard_stale(key)
        return found

    def read(self, read: Callable[[], Any], key: Any = MISSING) -> Any:
        """What ``read()`` returns, without a look at the copies; MISSING if it fails and may.

        Args:
            key: what is read, if there may be a copy of it.
        """
        try:
            return self._read_beside(key, self._store.call(read))
        except Exception as error:
            if not self.fail_safe or is_about_the_value(error):
                raise
            return MISSING

    async def aread(self, read: Callable[[], Awaitable[Any]], key: Any = MISSING) -> Any:
        """``read`` for coroutines."""
        try:
            return self._read_beside(key, await self._store.acall(read))
        except Exception as error:
            if not self.fail_safe or is_about_the_value(error):
                raise
            return MISSING

    def _read_beside(self, key: Any, value: T) -> T:
        if key is not MISSING and self.fail_safe and not self.trusted:
            self.cache.loading.read_beside(key, value)
        return value

    def load(self, key: Any, loader: Callable[[], Any]) -> Any:
        """What ``loader()`` returns, once for all callers of this together for ``key``. No copy of it is kept.

        Callers that ``get`` the key are apart: they wait for the store behind, not for a loader, which may take long,
        raise an error of its own, or look for the key itself.
        """
        flight = ("load", key)

        # What is loaded is no copy of what the store has.
        return self.cache.loading.load(flight, lambda: Unstored(loader()), self.timeout, PLAIN)

    async def aload(self, key: Any, loader: Callable[[], Awaitable[Any]]) -> Any:
        """``load`` for coroutines."""
        flight = ("load", key)

        async def load() -> Any:
            return Unstored(await loader())

        return await self.cache.loading.aload(flight, load, self.timeout, PLAIN)

    # Writing.

    def write(
        self, keys: Iterable[Any], write: Callable[[], T], *, dropped: Any = MISSING, value_of: ValueOf = _no_value
    ) -> T:
        """What ``write()`` returns, and no copies of ``keys`` after it; ``dropped`` if it failed and may be dropped.

        Args:
            dropped: if not given, it may not be dropped.
            value_of: of what ``write()`` returned, the value that the keys were set to, for the waiters of a lease.
        """
        keys = list(keys)
        try:
            result = self._store.call(write)
        except Exception as error:
            self._written(keys, MISSING)
            self._check_dropped(error, dropped)
            return dropped  # type: ignore[no-any-return]
        except BaseException:
            self._written(keys, MISSING)
            raise
        self._written(keys, value_of(result))
        return result

    async def awrite(
        self,
        keys: Iterable[Any],
        write: Callable[[], Awaitable[T]],
        *,
        dropped: Any = MISSING,
        value_of: ValueOf = _no_value,
    ) -> T:
        """``write`` for coroutines."""
        keys = list(keys)
        # A task of its own, since many a method that is not async runs in a thread, and goes on when it is cancelled.
        writing = asyncio.ensure_future(self._store.acall(write))
        try:
            result = await asyncio.shield(writing)
        except Exception as error:
            self._written(keys, MISSING)
            self._check_dropped(error, dropped)
            return dropped  # type: ignore[no-any-return]
        except BaseException:
            self._written(keys, MISSING)
            writing.add_done_callback(lambda done: self._written_after_all(keys, done))
            raise
        self._written(keys, value_of(result))
        return result

    def clear(self, write: Callable[[], object]) -> None:
        """``write`` for all keys."""
        try:
            self.write((), write, dropped=None)
        finally:
            self.cache.clear()

    async def aclear(self, write: Callable[[], Awaitable[object]]) -> None:
        """``clear`` for coroutines."""
        try:
            await self.awrite((), write, dropped=None)
        finally:
            self.cache.clear()

    def _written(self, keys: list[Any], value: Any) -> None:
        # Also after a failure: what the store made of it is not known.
        for key in keys:
            if value is not MISSING:
                self.cache.fill_lease(key, value)
            self.cache.delete(key)

    def _written_after_all(self, keys: list[Any], done: asyncio.Future[Any]) -> None:
        if not done.cancelled():
            # Asked for, or asyncio would log that it was never retrieved. The writer is gone.
            done.exception()
        with suppress(CacheClosed):
            self._written(keys, MISSING)

    def _without_stale(self, keys: list[Any], found: dict[Any, Any]) -> dict[Any, Any]:
        """``found``; what is not is gone, whatever was kept of it."""
        for key in keys:
            if key not in found:
                self.cache.discard_stale(key)
        return found

    def _check_dropped(self, error: Exception, dropped: Any) -> None:
        if dropped is MISSING or not self.fail_safe or not self.drop_writes or is_about_the_value(error):
            raise error

    # Without trust.

    def _get_untrusted(self, keys: list[Any], read: Callable[[list[Any]], Mapping[Any, Any]]) -> dict[Any, Any]:
        """What ``read(keys)`` returns. With ``fail_safe`` copies of it are kept, for an outage only.

        It is read for this caller alone: nothing tells whether the key was written since another caller began to read.
        """
        self.start_tracking()
        if not self.fail_safe:
            self._count_misses_if(True, keys)
            return dict(self._store.call(lambda: read(keys)))

        def load(keys: list[Any]) -> Mapping[Any, Any]:
            return self._store.call(lambda: read(keys))

        found = dict(self.cache.loading.load_many(keys, load, self.timeout, self._policy))
        self._count_misses_if(True, keys)
        return self._without_stale(keys, found)

    async def _aget_untrusted(
        self, keys: list[Any], read: Callable[[list[Any]], Awaitable[Mapping[Any, Any]]]
    ) -> dict[Any, Any]:
        """``_get_untrusted`` for coroutines."""
        self.start_tracking()
        if not self.fail_safe:
            self._count_misses_if(True, keys)
            return dict(await self._store.acall(lambda: read(keys)))

        async def load(keys: list[Any]) -> Mapping[Any, Any]:
            return await self._store.acall(lambda: read(keys))

        found = dict(await self.cache.loading.aload_many(keys, load, self.timeout, self._policy))
        self._count_misses_if(True, keys)
        return self._without_stale(keys, found)

    # The store behind.

    def _count_misses_if(self, is_known: bool, keys: list[Any]) -> None:
        """With ``fail_safe``, a look-up that fails may yet be a stale hit, so it is counted when it has ended."""
        if is_known:
            for _ in keys:
                self.cache.count_miss()

    def _read(self, read: Callable[[], Any]) -> Any:
        value = self._store.call(read)
        return Unstored(MISSING) if value is MISSING else value

    async def _aread(self, read: Callable[[], Awaitable[Any]]) -> Any:
        value = await self._store.acall(read)
        return Unstored(MISSING) if value is MISSING else value

    def _instead(self, key: Any, error: Exception) -> Any:
        """The copy that is kept for an outage, MISSING if there is none. This ends the look-up, and counts it."""
        if not self.fail_safe:
            # Counted when it began.
            raise error
        stale = MISSING if is_about_the_value(error) else self.cache.loading.get_stale(key, MISSING)
        if stale is MISSING:
            self.cache.count_miss()
        if is_about_the_value(error):
            raise error
        return stale

    def _all_instead(self, keys: list[Any], error: Exception) -> dict[Any, Any]:
        if not self.fail_safe:
            # Counted when it began.
            raise error
        if is_about_the_value(error):
            self._count_misses_if(True, keys)
            raise error
        found = {key: self.cache.loading.get_stale(key, MISSING) for key in keys}
        self._count_misses_if(True, [key for key, stale in found.items() if stale is MISSING])
        return {key: value for key, value in found.items() if value is not MISSING}
