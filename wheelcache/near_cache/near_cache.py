"""A cache in front of another one: values that were read are kept here, writes go to the store behind, and values that
change there are dropped here.

The store behind is the truth. A copy is kept for ``timeout`` seconds at most, and only until its key is known to be
written: ``SharedStamps`` report the writes of the processes of this machine, ``redis_tracking`` those of any client of
a Redis. A caller that reads while a key is written may get the old value. A caller that begins to read after the write
and its invalidation have arrived does not: a value that was read before is neither kept nor shared with that caller.

The store behind is reached by functions that the backends give. Any exception from them is an outage, unless it is
about the key or the value: TypeError, ValueError, LookupError, AttributeError, the errors of pickle, and errors with
which Redis or Memcached answer a command.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any, Protocol, TypeVar

from wheelcache.codec import Codec
from wheelcache.core.contract import MISSING
from wheelcache.errors import CacheClosed
from wheelcache.loading.key_loading import KeyLoading
from wheelcache.loading.policy import PLAIN, LoadPolicy
from wheelcache.loading.steps import DRIVE, RUN, Call, Steps, StepsTo, ToTheEnd, result
from wheelcache.loading.unstored import Unstored
from wheelcache.near_cache.guarded_store import GuardedStore, is_about_the_value
from wheelcache.near_cache.trust_epoch import TrustEpoch
from wheelcache.runtime.clock import Clock

T = TypeVar("T")

ValueOf = Callable[[Any], Any]
"""Returns the value that was written, or MISSING, given the result of the write."""


def _nothing() -> None:
    """Start nothing, where no connection reports writes."""


def _no_value(result: object) -> Any:
    """Keep the written value from the callers that wait for a lease."""
    return MISSING


class Copies(Protocol):
    """The part of the cache of the copies that this module needs: see ``wheelcache.Cache``."""

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
    def clear_for(self, by: str | None) -> None: ...
    def leased(self, key: Hashable, wait: float, may_wait: bool = True) -> StepsTo[Any]: ...
    def lease_fill(self, key: Hashable) -> Callable[[Any], object]: ...
    def invalidate(self, key: Hashable) -> None: ...
    def discard_stale(self, key: Hashable) -> None: ...
    def count_miss(self) -> None: ...
    def observe_store(self, store: GuardedStore) -> None: ...


class NearCache:
    """The copies of one process.

    Args:
        cache: the cache with the copies.
        timeout: the seconds for which a copy is kept at most; the jitter of ``cache`` shortens them.
        epoch: the stamps of ``cache``, if a connection, which can be lost, reports every write to this process.
        fail_safe: while the store behind fails, old copies are returned, for ``grace`` seconds past their time.
        drop_writes: with ``fail_safe``, a write that fails is dropped; otherwise its error reaches the caller.

    Attributes:
        trusted: whether copies may be used. With an epoch, ``trust`` sets it.
        start_tracking: is called where copies may not be used; cheap if it was called before.
        stop_tracking: the owner calls it when the copies are no longer used.
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
        # Copies are kept for as long as they may be needed. Old ones are not returned while the store answers.
        self._policy = LoadPolicy(keep=grace) if fail_safe else PLAIN
        self._store = GuardedStore(cache.name, cache.steady, epoch=epoch, watches_outages=fail_safe)
        cache.observe_store(self._store)

    # For the connection that reports writes: see ``redis_tracking.Listener``.

    def invalidated(self, keys: list[bytes]) -> None:
        for raw in keys:
            self.cache.invalidate(raw.decode(errors="surrogateescape"))

    def flushed(self) -> None:
        self.cache.clear_for("a flush of the server behind it")

    def trust(self, trusted: bool) -> None:
        # Distrusting acquires no lock, since it may be called during a fork.
        self.trusted = False
        if self._epoch is not None:
            self._epoch.is_told = False
            self._epoch.write_all()
        if trusted:
            if not self.fail_safe:
                # With ``fail_safe``, suspect copies stay for an outage.
                self.cache.clear_for(None)
            if self._epoch is not None:
                self._epoch.is_told = True
            self.trusted = True

    # Reading. The methods below are steps, for threads and tasks: see ``loading.steps``. In a task, the functions that
    # read and write may return awaitables.

    def get(self, key: Any, read: Callable[[], Any]) -> StepsTo[Any]:
        """Return the copy of ``key``; otherwise the result of ``read()``, which runs once for all callers that miss the
        key. Keep a copy of the result unless it is MISSING."""
        try:
            if self.trusted:
                stored = self.cache.find(key, MISSING)
                if stored is not MISSING:
                    return stored
                run = yield RUN
                load = self.cache.loading.load(key, lambda: run(self._read(read)), self.timeout, self._policy)
                stored = result((yield from load))
            else:
                found = yield from self._get_untrusted([key], lambda keys: self._read_one(key, read))
                stored = found.get(key, MISSING)
        except Exception as error:
            return self._instead([key], error).get(key, MISSING)
        if stored is MISSING:
            self.cache.discard_stale(key)
        return stored

    def get_many(self, keys: Iterable[Any], read: Callable[[list[Any]], Any]) -> StepsTo[dict[Any, Any]]:
        """Return the copies of ``keys``; for keys without a copy the result of ``read(keys)``, in one call."""
        keys = list(keys)
        if not keys:
            # Redis refuses a command without keys.
            return {}
        try:
            if not self.trusted:
                return (yield from self._get_untrusted(keys, lambda keys: self._store.read(partial(read, keys))))
            found = {key: stored for key in keys if (stored := self.cache.find(key, MISSING)) is not MISSING}
            missing = [key for key in dict.fromkeys(keys) if key not in found]
            if missing:
                self._count_misses_if(not self.fail_safe, missing)
                found |= yield from self._load_many(missing, lambda keys: self._store.read(partial(read, keys)))
                self._count_misses_if(self.fail_safe, missing)
            return self._without_stale(keys, found)
        except Exception as error:
            return self._instead(keys, error)

    def lease(self, key: Any, read: Callable[[], Any], *, wait: float, may_wait: bool = True) -> StepsTo[Any]:
        """Wait for another caller to set the missing ``key``, and return its value; otherwise MISSING, with a lease."""
        stored = yield from self.cache.leased(key, wait, may_wait)
        if stored is MISSING:
            # This caller holds the lease now. Another process, or an earlier holder, may have set the key meanwhile.
            fill = self.cache.lease_fill(key)
            stored = yield from self.read(read, key)
            if stored is not MISSING:
                fill(stored)
        return stored

    def has(self, key: Any, ask: Callable[[], Any]) -> StepsTo[bool]:
        """Return True if there is a copy of ``key``; otherwise the result of ``ask()``."""
        if self.trusted and key in self.cache:
            return True
        try:
            found: bool = yield from self._store.read(ask)
        except Exception as error:
            self._check_may_fail(error)
            return self.cache.loading.get_stale(key, MISSING) is not MISSING
        if not found:
            self.cache.discard_stale(key)
        return found

    def read(self, read: Callable[[], Any], key: Any = MISSING) -> StepsTo[Any]:
        """Return the result of ``read()``, without a look at the copies; MISSING if it fails and may fail.

        Args:
            key: the key that is read, if there may be a copy of it.
        """
        try:
            value = yield from self._store.read(read)
        except Exception as error:
            self._check_may_fail(error)
            return MISSING
        if key is not MISSING and self.fail_safe and not self.trusted:
            self.cache.loading.read_beside(key, value)
        return value

    def load(self, key: Any, loader: Callable[[], Any]) -> Steps:
        """Return the result of ``loader()``, which runs once for all callers of this method that miss ``key`` together.
        No copy of it is kept.

        Callers that ``get`` the key do not share it: they wait for the store behind, not for a loader, which may take
        long, raise an error of its own, or look up the key itself.
        """

        def load() -> Steps:
            value, error = yield Call(loader)
            # The loader's result is no copy of the store's value.
            return Unstored(value), error

        run = yield RUN
        return (yield from self.cache.loading.load_apart(key, lambda: run(load()), self.timeout, PLAIN))

    def get_or_add(
        self,
        key: Any,
        read: Callable[[], Any],
        loader: Callable[[], Any],
        add: Callable[[Any], StepsTo[bool]],
        codec: Codec,
    ) -> Steps:
        """Return the result of ``read()``; otherwise that of ``loader()``, which runs once for all callers together and
        is stored by ``add``."""

        def compute() -> Steps:
            # A caller that came while another one computed the value finds it there.
            stored = yield from self.read(read, key)
            if stored is MISSING:
                value, error = yield Call(loader)
                if error is not None:
                    return None, error
                if not (yield from add(value)):
                    # Another process was first, or it could not be kept.
                    stored = yield from self.read(read, key)
                if stored is MISSING:
                    stored = codec.encode(value)
            return stored, None

        run = yield RUN
        stored, error = yield from self.load(key, lambda: run(compute()))
        return (None, error) if error is not None else (codec.decode(stored), None)

    # Writing.

    def write(
        self, keys: Iterable[Any], write: Callable[[], T], *, dropped: Any = MISSING, value_of: ValueOf = _no_value
    ) -> StepsTo[T]:
        """Return the result of ``write()``, after which there are no copies of ``keys``. Return ``dropped`` if it
        failed and may be dropped.

        Args:
            dropped: if not given, the write may not be dropped.
            value_of: returns the value that the keys were set to, for the callers that wait for a lease. Its argument
                is the result of ``write()``.
        """
        keys = list(keys)
        fills = [] if value_of is _no_value else [self.cache.lease_fill(key) for key in keys]
        try:
            outcome = yield ToTheEnd(self._store.write(write), partial(self._written_after_all, keys))
            value = MISSING if outcome[1] is not None else value_of(outcome[0])
            if value is not MISSING:
                for fill in fills:
                    fill(value)
        finally:
            # Also after a failure, since the store may have done the write.
            self._written(keys)
        try:
            return result(outcome)  # type: ignore[no-any-return]
        except Exception as error:
            if dropped is MISSING or not self.drop_writes:
                raise
            self._check_may_fail(error)
            return dropped  # type: ignore[no-any-return]

    def clear(self, write: Callable[[], Any]) -> StepsTo[Any]:
        """Clear the store by ``write()``, and drop all copies."""
        try:
            return (yield from self.write((), write, dropped=None))
        finally:
            self.cache.clear()

    def _written(self, keys: list[Any]) -> None:
        for key in keys:
            self.cache.delete(key)

    def _written_after_all(self, keys: list[Any], done: asyncio.Future[Any]) -> None:
        if not done.cancelled():
            # The writer is gone. Without this, asyncio would log that the exception was never retrieved.
            done.exception()
        with suppress(CacheClosed):
            self._written(keys)

    # The store behind.

    def _read(self, read: Callable[[], Any]) -> Steps:
        value = yield from self._store.read(read)
        return Unstored(MISSING) if value is MISSING else value, None

    def _read_one(self, key: Any, read: Callable[[], Any]) -> StepsTo[dict[Any, Any]]:
        """Read one key, and return the result in the form of a read of many."""
        value = yield from self._store.read(read)
        return {} if value is MISSING else {key: value}

    def _load_many(self, keys: list[Any], read: Callable[[list[Any]], StepsTo[Any]]) -> StepsTo[Any]:
        drive = yield DRIVE
        steps = self.cache.loading.load_many(keys, lambda keys: drive(read(keys)), self.timeout, self._policy)
        return result((yield from steps))

    def _get_untrusted(self, keys: list[Any], read: Callable[[list[Any]], StepsTo[Any]]) -> StepsTo[dict[Any, Any]]:
        """Return the result of ``read(keys)``. With ``fail_safe``, copies are kept, for an outage only.

        The read is for this caller alone, since the keys may have been written after another caller began to read.
        """
        self.start_tracking()
        if not self.fail_safe:
            self._count_misses_if(True, keys)
            return dict((yield from read(keys)))
        found = dict((yield from self._load_many(keys, read)))
        self._count_misses_if(True, keys)
        return self._without_stale(keys, found)

    def _without_stale(self, keys: list[Any], found: dict[Any, Any]) -> dict[Any, Any]:
        """Drop the stale copies of keys that were not found, and return ``found``."""
        for key in keys:
            if key not in found:
                self.cache.discard_stale(key)
        return found

    def _count_misses_if(self, is_known: bool, keys: list[Any]) -> None:
        """Count a miss for each key if ``is_known``. With ``fail_safe``, a look-up that fails may still be a stale hit,
        so it is counted when it has ended."""
        if is_known:
            for _ in keys:
                self.cache.count_miss()

    def _check_may_fail(self, error: Exception) -> None:
        if not self.fail_safe or is_about_the_value(error):
            raise error

    def _instead(self, keys: list[Any], error: Exception) -> dict[Any, Any]:
        """Return the copies that are kept for an outage. End the look-ups and count them."""
        if not self.fail_safe:
            # Counted when they began.
            raise error
        found = {}
        if not is_about_the_value(error):
            found = {key: self.cache.loading.get_stale(key, MISSING) for key in keys}
            found = {key: stale for key, stale in found.items() if stale is not MISSING}
        self._count_misses_if(True, [key for key in keys if key not in found])
        self._check_may_fail(error)
        return found
