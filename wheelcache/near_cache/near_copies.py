"""The layer of the copies of a store's entries: see ``engine.layer`` and ``near_cache``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from inspect import isawaitable
from math import floor
from typing import Any, Protocol

from wheelcache.core.contract import MISSING
from wheelcache.engine import options
from wheelcache.engine.codec import NOT_DECODED, Codec
from wheelcache.engine.layer import NO_GRACES, Select, Shared
from wheelcache.engine.loading.memoize import Group
from wheelcache.engine.loading.request import PLAIN, LoadRequest, Tagged, Unstored, seconds_for, untagged
from wheelcache.engine.write_watcher import WritesSince
from wheelcache.near_cache.computations import CommittedValue
from wheelcache.near_cache.near_cache import NO_FILLS, Fills, GetOrAdd, NearCache, are_outdated
from wheelcache.near_cache.store_commits import MARKED, marks_of
from wheelcache.near_cache.store_tags import UNTAGGED, StoreTags, TaggedWrite
from wheelcache.near_cache.written_timeouts import NO_TIMEOUT, NewTimeout
from wheelcache.runtime.steps import PerDriver, Steps, StepsTo, drive, then


class Store(Protocol):
    """A second level as a driver of steps calls it: there is one object for threads, and one for tasks, whose results
    are awaitable. Keys are final strings, TTLs seconds, None for no expiry. Only the differences between the families
    of caches are in it.

    Attributes:
        drive: drives steps. In a task, its result is awaitable.
        can_replace: whether there is a ``replace``.
        timeout_of_counts: the timeout that ``add_to`` gives to the number; None if the number keeps its own.
        takes_whole_seconds: whether TTLs must be whole numbers.
        dropped_count: the result of an ``add_to`` that is dropped in an outage; MISSING to raise the error.
    """

    takes_whole_seconds: bool
    dropped_count: Any
    drive: Callable[[StepsTo[Any]], Any]

    def method(self, name: str) -> Any:
        """Return a method that is not common to all stores."""

    @property
    def can_replace(self) -> bool: ...

    @property
    def timeout_of_counts(self) -> NewTimeout | None: ...

    def get(self, key: str, is_sure: bool = True) -> Any:
        """Return the value, or MISSING. Without ``is_sure``, a None may be MISSING."""

    def get_many(self, keys: list[str]) -> Any: ...

    def set(self, key: str, value: Any, ttl: Any) -> Any: ...

    def is_stored(self, written: Any) -> bool:
        """Return whether a ``set`` or ``replace`` with this result has stored the value."""

    def add(self, key: str, value: Any, ttl: Any) -> Any: ...

    def replace(self, key: str, value: Any, ttl: Any) -> Any: ...

    def set_many(self, values: Mapping[str, Any], ttl: Any) -> Any:
        """Return the keys that were not stored."""

    def touch(self, key: str, ttl: Any) -> Any: ...

    def add_to(self, key: str, delta: Any, is_made: bool) -> Any: ...

    def delete(self, key: str) -> Any: ...

    def delete_many(self, keys: list[str]) -> Any: ...

    def delete_pattern(self, pattern: str, itersize: int | None) -> Any: ...

    def milliseconds_left(self, key: str) -> Any:
        """Return None if the key never expires, 0 if it does not exist."""

    def clear(self) -> Any: ...

    def remove(self, key: str, sealed: Any) -> Any:
        """Delete a key unless its value was replaced: see ``late_values``."""

    def get_tokens(self, keys: list[str]) -> Any: ...

    def add_token(self, key: str, token: str) -> Any: ...

    def set_tokens(self, tokens: dict[str, str], ttl: Any = None) -> Any:
        """Set keys, or delete those that cannot be set."""


def name_of(key: Any) -> str:
    """Return the key in the store."""
    return key[0] if type(key) is tuple else key  # type: ignore[no-any-return]


def _took_effect(stored: Any) -> bool | None:
    """Return whether a ``set`` with this result took effect; None if it is not known."""
    return None if stored is False else True


class _Write:
    """A write of values to the store: its methods store them, and remove them again.

    Args:
        values: the values by their keys.
    """

    __slots__ = ("_copies", "begun", "ttl", "values")

    def __init__(self, copies: NearCopies, begun: TaggedWrite, values: Mapping[Any, Any], ttl: Any) -> None:
        self._copies = copies
        self.begun = begun
        self.values = values
        self.ttl = ttl

    def set(self, store: Store) -> Any:
        """Set one value."""
        ((key, value),) = self.values.items()
        if self.begun is UNTAGGED:
            return store.set(name_of(key), UNTAGGED.sealed(value), self.ttl)
        put = lambda sealed: store.set(name_of(key), sealed(value), self.ttl)  # noqa: E731
        return self.begun.write(store, store.drive, put)

    def add(self, store: Store) -> Any:
        """Add one value, or replace one whose tags were dropped."""
        ((key, value),) = self.values.items()
        name, tags = name_of(key), self._copies.tags
        if self.begun is not UNTAGGED:
            return store.drive(tags.add_value(store, self.begun, name, value, self.ttl))
        sealed = UNTAGGED.sealed(value)
        added = store.add(name, sealed, self.ttl)
        if added is True:
            return True
        return then(
            lambda added: added or store.drive(tags.replace_dropped(store, name, sealed, self.ttl)),
            added,
        )

    def undo(self, key: Any, store: Store) -> Any:
        """Remove a value again."""
        return store.remove(name_of(key), self.begun.sealed(self.values[key]))

    def find_marks(self, store: Store) -> Any:
        """Read the marks of commits that have invalidated one of the keys or tags."""
        return store.get_tokens([*self._copies.marks([*self.values, *self.begun.names])])

    def for_waiters(self, stored: Any) -> Any:
        """Return one encoded value for callers that wait for a lease; MISSING if they must not receive it."""
        (value,) = self.values.values()
        return self._copies.for_waiters(value, self.ttl, stored is not False and self.begun.is_current)


class NearCopies(Shared):
    """Copies of the entries of a store. The operations are steps.

    Args:
        level: the copies of this process.
        store: the store: see ``Store``.
        tags: the tags of the store.
        codec: encodes the copies.

    Attributes:
        leases: see ``Layer``.
        cache: the cache of the copies.
        level, codec, tags: see above.
    """

    has_store = True
    tag_prefix = ""

    __slots__ = ("_store", "aload", "cache", "codec", "find", "level", "load", "tags")

    def __init__(self, level: NearCache, store: PerDriver, tags: StoreTags, codec: Codec) -> None:
        self.cache = level.cache
        self.codec = codec
        self.tags = tags
        self.level = level
        self._store = store
        loads = level.cache.engine.loads()
        self.find, self.load, self.aload = level.cache.find, loads.get, loads.aget

    @property
    def leases(self) -> Any:
        return self.level.leases

    @leases.setter
    def leases(self, leases: Any) -> None:
        self.level.leases = leases

    def names(self, tags: Iterable[str]) -> tuple[str, ...]:
        return self.tags.names(tags)

    # Reading.

    def look_up(
        self, key: Any, wait: float = 0.0, may_wait: bool = True, grace: float = 0.0, *, goes_on: bool = False
    ) -> StepsTo[Any]:
        level = self.level
        read = partial(self._read, key, goes_on or wait > 0)
        if type(key) is tuple:
            return (yield from level.read(read, self._store))
        stored = yield from level.get(key, read, self._store, leaves_miss=wait > 0)
        if stored is MISSING and wait:
            stored = yield from level.lease(key, read, self._store, wait=wait, may_wait=may_wait)
        return stored

    def remove_undecoded(self, key: Any, stored: Any, error: Exception) -> None:
        # It is not known whether the look-up has found a copy or has read the value.
        self.cache.engine.remove_undecoded(key, stored, error)

    def _read(self, key: Any, is_sure: bool, store: Store) -> Any:
        found = store.get(key if type(key) is str else name_of(key), is_sure)
        if isawaitable(found):
            return then(lambda value: self.tags.opened_one(store, value, self.codec.encode), found)
        return self.tags.opened_one(store, found, self.codec.encode)

    def get_many(self, keys: list[Any]) -> StepsTo[dict[Any, Any]]:
        by_name = {name_of(key): key for key in keys}

        def read(missing: list[Any], store: Store) -> Any:
            def opened(found: Mapping[str, Any]) -> Any:
                return self.tags.opened(
                    store, {by_name[name]: value for name, value in found.items()}, self.codec.encode
                )

            return then(opened, store.get_many([*map(name_of, missing)]))

        if tuple in map(type, keys):
            # No copies are kept under tuples.
            found = yield from self.level.read(partial(read, keys), self._store)
            found = {} if found is MISSING else {key: untagged(stored) for key, stored in found.items()}
        else:
            found = yield from self.level.get_many(by_name.values(), read, self._store)
        for key in by_name.values():
            if key not in found:
                self.level.missed(key)
        return found

    def has(self, key: Any) -> StepsTo[bool]:
        # Its value shows whether its tags were dropped.
        def ask(store: Store) -> Any:
            return then(lambda found: found is not MISSING, self._read(key, True, store))

        return self.level.has(key, ask, self._store)

    def seconds_left(self, key: Any) -> StepsTo[float | None]:
        left = yield from self.read(lambda store: store.milliseconds_left(name_of(key)))
        return 0.0 if left is MISSING else None if left is None else left / 1000

    def fits(self, key: Any, stored: Any) -> bool:
        return True

    def read(self, read: Callable[[Store], Any]) -> StepsTo[Any]:
        """Return the result of ``read``, which is called with the store; MISSING in an outage with ``fail_safe``."""
        return self.level.read(read, self._store)

    # Writing.

    def set(
        self, key: Any, value: Any, ttl: Any, tags: tuple[str, ...] = (), since: int = 0, grace: float = 0.0
    ) -> StepsTo[bool]:
        level = self.level
        begun = self.tags.begin(tags, [key], since)
        may_be_marked = level.marks_commits and level.may_be_marked([key])
        level.count_computations([key])
        return self._put(begun, key, value, ttl, NO_FILLS, may_be_marked)

    def _put(
        self, begun: TaggedWrite, key: Any, value: Any, ttl: Any, fills: Fills, may_be_marked: bool
    ) -> StepsTo[bool]:
        write = _Write(self, begun, {key: value}, ttl)
        stored = yield from self._write_value(write, write.set, fills, NewTimeout(ttl, _took_effect), may_be_marked)
        return self._store.by_thread.is_stored(stored) and not (fills and are_outdated(fills))

    def add(self, key: Any, value: Any, ttl: Any, tags: tuple[str, ...] = ()) -> StepsTo[bool]:
        level = self.level
        write = _Write(self, self.tags.begin(tags, [key]), {key: value}, ttl)
        may_be_marked = level.may_be_marked([key])
        level.count_computations([key])
        return self._add(write, NO_FILLS, may_be_marked)

    def _add(self, write: _Write, fills: Fills, may_be_marked: bool) -> StepsTo[bool]:
        added = yield from self._write_value(write, write.add, fills, NewTimeout(write.ttl, bool), may_be_marked)
        return added and not (fills and are_outdated(fills))

    def _write_value(
        self,
        write: _Write,
        put: Callable[[Store], Any],
        fills: Fills,
        new_timeout: NewTimeout,
        may_be_marked: bool,
    ) -> StepsTo[Any]:
        """Store one value by ``put``, a method of ``write``. Return its result."""
        return self.level.write(
            [*write.values],
            put,
            self._store,
            result_if_dropped=False,
            value_of=write.for_waiters,
            new_timeout=new_timeout,
            tags=write.begun.names,
            fills=fills,
            undo=write.undo,
            find_marks=write.find_marks if may_be_marked else None,
        )

    def replace(self, key: Any, value: Any, ttl: Any, grace: float = 0.0) -> StepsTo[bool]:
        """Do the same as ``InMemory.replace``; the new value has no tags."""
        store: Store = self._store.by_thread
        if not store.can_replace:
            raise NotImplementedError("TieredCache passes xx on to the cache that L2 names, which does not have it")
        # To the store, a value whose tags were dropped exists.
        if (yield from self.level.read(partial(self._read, key, True), self._store)) is MISSING:
            return False
        sealed = UNTAGGED.sealed(value)
        written = yield from self._write(
            [key], lambda store: store.replace(name_of(key), sealed, ttl), False, NewTimeout(ttl, bool)
        )
        return store.is_stored(written)

    def set_many(
        self,
        values: Mapping[Any, Any],
        ttl: Any,
        tags: tuple[str, ...] = (),
        graces: Mapping[Any, float] = NO_GRACES,
        *,
        is_exact: bool = False,
    ) -> StepsTo[list[Any]]:
        level, keys = self.level, [*values]
        write = _Write(self, self.tags.begin(tags, keys), values, ttl)
        may_be_marked = level.may_be_marked(keys)
        level.count_computations(keys)

        def put(store: Store) -> Any:
            def put_sealed(sealed: Callable[[Any], Any]) -> Any:
                return store.set_many({name_of(key): sealed(value) for key, value in values.items()}, ttl)

            return write.begun.write(store, store.drive, put_sealed)

        failed = yield from level.write(
            keys,
            put,
            self._store,
            result_if_dropped=[*map(name_of, keys)],
            new_timeout=NewTimeout(ttl, lambda failed: None if failed else True),
            undo=write.undo,
            find_marks=write.find_marks if may_be_marked else None,
        )
        return [key for key in keys if name_of(key) in failed]

    def touch(self, key: Any, ttl: Any) -> StepsTo[bool]:
        return self._write([key], lambda store: store.touch(name_of(key), ttl), False, NewTimeout(ttl, bool))

    def add_to(
        self, key: Any, delta: Any, start: Any = MISSING, ttl: Any = None, *, or_none: bool = False
    ) -> StepsTo[Any]:
        """Do the same as ``InMemory.add_to``; the store decides what becomes of a missing number.

        Raises:
            TagsUnsupported: if the number has tags.
        """
        store: Store = yield self._store
        name = name_of(key)
        count = partial(store.add_to, name, delta, start is not MISSING)
        return (
            yield from self.level.write(
                [key],
                lambda: store.drive(self.tags.count(store, count, name)),
                result_if_dropped=store.dropped_count,
                value_of=lambda total: self.for_waiters(total, None, total is not None),
                new_timeout=store.timeout_of_counts,
            )
        )

    def delete(self, key: Any) -> StepsTo[bool]:
        return self._write([key], lambda store: store.delete(name_of(key)), False)

    def delete_many(self, keys: list[Any]) -> StepsTo[Any]:
        return self._write(keys, lambda store: store.delete_many([*map(name_of, keys)]), None)

    def _write(
        self, keys: list[Any], write: Callable[[Store], Any], dropped: Any, new_timeout: NewTimeout = NO_TIMEOUT
    ) -> StepsTo[Any]:
        return self.level.write(keys, write, self._store, result_if_dropped=dropped, new_timeout=new_timeout)

    def delete_tags(self, tags: Iterable[str]) -> StepsTo[None]:
        checked = [options.tag("tags", tag) for tag in tags]
        return self._write([*self.tags.names(checked)], lambda store: self.tags.drop(store, checked), None)

    def delete_pattern(self, select: Select, pattern: str, itersize: int | None = None) -> StepsTo[int]:
        self.level.computations.outdate_where(select)
        try:
            write = lambda store: store.delete_pattern(pattern, itersize)  # noqa: E731
            return (yield from self.level.write((), write, self._store, result_if_dropped=0))  # type: ignore[no-any-return]
        finally:
            sum(self.cache.engine.deletions(select))

    def delete_group(self, group: Group) -> int:
        return group.delete()

    def clear(self) -> StepsTo[Any]:
        return self.level.clear(lambda store: store.clear(), self._store)

    def for_waiters(self, value: Any, ttl: Any, is_stored: bool) -> Any:
        """Return the encoded value for callers that wait for a lease; MISSING if they must not receive it."""
        if not is_stored or self.leases is None or options.expires_now(ttl):
            return MISSING
        return self.codec.encode(value)

    # Computing.

    def compute(
        self,
        key: Any,
        loader: Callable[..., Any],
        ttl: Any,
        tags: tuple[str, ...],
        *,
        is_computed: bool = True,
        is_missing: bool = False,
    ) -> Steps:
        """Return the outcome of a look-up, or of ``loader`` after a miss: see ``NearCache.get_or_add``.

        Args:
            ttl: seconds, or a function of the value.
            is_computed: see ``LoadRequest``.
            is_missing: whether the key was looked up before.
        """
        begun = self.tags.begin(tags)
        sought = GetOrAdd(
            key,
            partial(self._read, key, True),
            loader,
            partial(self._add_computed, begun, key, ttl),
            self.codec,
            begun.names,
            lambda store: store.drive(begun.begin(store)),
            is_computed=is_computed,
        )
        return self.level.add_missing(sought, self._store) if is_missing else self.level.get_or_add(sought, self._store)

    def _add_computed(self, begun: TaggedWrite, key: Any, ttl: Any, value: Any, fills: Fills) -> StepsTo[bool]:
        write = _Write(self, begun, {key: value}, seconds_for(ttl, value))
        return self._add(write, fills, self.level.marks_commits)

    # For decorators that compute a value and store it by themselves.

    def begin(self, tags: tuple[str, ...]) -> TaggedWrite:
        """Begin the computation of a value with ``tags``."""
        begun = self.tags.begin(tags)
        if tags:
            drive(self.level.read(lambda store: drive(begun.begin(store)), self._store))
        return begun

    def request_apart(self, key: Any, load: Callable[[], Any], begun: TaggedWrite) -> LoadRequest:
        """Return the request of a value that ``load`` computes and stores, once for all callers."""
        read = partial(self._read, key, True)

        def look_and_load() -> Any:
            # A caller that arrives after another one has computed the value finds it in the store.
            stored = drive(self.level.read(read, self._store, key))
            return load() if stored is MISSING else Unstored(stored, is_computed=False)

        return self.cache.engine.loads().request_apart(key, look_and_load, PLAIN, begun.names)

    def keep(self, begun: TaggedWrite, key: Any, value: Any, ttl: Any, *, is_fill: bool) -> bool:
        """Store a value of ``begin``; with ``is_fill``, only if the key was not written since ``request_apart``."""
        fills = {key: self.level.computations.led(key)} if is_fill else NO_FILLS
        return drive(self._put(begun, key, value, ttl, fills, self.level.marks_commits and is_fill))

    # Transactions.

    def tags_of(self, key: Any) -> StepsTo[tuple[str, ...]]:
        def read(store: Store) -> Any:
            return then(lambda found: found.tags if type(found) is Tagged else (), self._read(key, True, store))

        tags = yield from self.read(read)
        return () if tags is MISSING else tags

    def marks(self, names: Iterable[Any]) -> dict[str, Any]:
        """Return the final keys of the marks of commits that invalidate these keys and tags: see ``store_commits``."""
        return {self.tags.key_of(mark): value for mark, value in marks_of(names).items()}

    def begin_commit(self, names: Iterable[Any]) -> Callable[[], object]:
        """Let nobody keep computed values of these keys and tags in the store. Return a function that ends this."""
        marks = self.marks(names) if self.level.marks_commits else {}
        if not marks:
            return lambda: None
        drive(self.level.write((), lambda store: store.set_tokens(marks, MARKED), self._store, result_if_dropped=None))
        end = lambda store: store.delete_many([*marks])  # noqa: E731
        return lambda: drive(self.level.write((), end, self._store, result_if_dropped=None))

    def store_committed(
        self,
        key: Any,
        stored: Any,
        ttl: float | None,
        grace: float,
        tags: tuple[str, ...],
        names: tuple[str, ...],
        others: WritesSince,
    ) -> None:
        if self.level.is_in_transaction():
            # Autocommit is off: the store would have the value after the check that others have not outdated it.
            self.cache.engine.refuse_fill(key)
            return
        if ttl is not None and self._store.by_thread.takes_whole_seconds:
            ttl = floor(ttl)
            if ttl < 1:
                # Callers that wait for it must look again.
                self.cache.engine.refuse_fill(key)
                return
        try:
            value = self.codec.decode(stored)
        except NOT_DECODED as error:
            self.cache.engine.remove_undecoded(key, MISSING, error)
            self.cache.engine.refuse_fill(key)
            return
        begun = self.tags.begin(tags, (), others.since)
        fills = {key: CommittedValue(key, others)}
        drive(self._put(begun, key, value, ttl, fills, self.level.marks_commits))
