"""A cache in front of another cache, the store: reads keep copies here, and writes go to the store and drop the copies.

The store is the truth. A copy is kept for at most ``timeout`` seconds, no longer than the timeout that this process
gave to the value (see ``written_timeouts``), and only until a write of its key is reported: ``redis_tracking`` reports
the writes by any client of a Redis. Without such reports, a copy may be that old. A caller that reads during a write
may get the old value. A caller that begins to read after the write and its invalidation have arrived does not get it:
copies that were read earlier are not kept. The same holds for the tags of values: see ``store_tags``. A computed value
is not stored if its key was written or deleted since the computation began: see ``computations``. If that happens while
the value is being stored, it is removed from the store again: see ``late_values``.

The backends pass functions that call the store. ``outage_rule`` decides which of their exceptions are outages.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import MappingProxyType
from typing import Any, Final, TypeVar

from wheelcache.cache import Cache
from wheelcache.core.contract import MISSING, Watch
from wheelcache.engine.codec import NOT_DECODED, Codec
from wheelcache.engine.loading.loads import TAKEN
from wheelcache.engine.loading.request import (
    FRESH_ONLY,
    PLAIN,
    LoadPolicy,
    LoadRequest,
    Receivers,
    Source,
    Staleness,
    Tagged,
    Unstored,
    WithPrevious,
    computed,
    takes_previous,
    untagged,
)
from wheelcache.engine.turns import Turn
from wheelcache.errors import CacheClosed
from wheelcache.near_cache.computations import CommittedValue, Computation, Computations
from wheelcache.near_cache.guarded_store import GuardedStore
from wheelcache.near_cache.many_loads import load_many
from wheelcache.near_cache.outage_rule import OutageRule
from wheelcache.near_cache.tokens import MARK, TokensRead
from wheelcache.near_cache.trust_epoch import TrustEpoch
from wheelcache.near_cache.written_timeouts import NO_TIMEOUT, NewTimeout, WrittenTimeouts
from wheelcache.runtime.steps import InSteps, PerDriver, Steps, StepsTo, ToTheEnd, outcome_of, result

T = TypeVar("T")


Read = Callable[..., Any]
"""Reads from the store, which it is given if the caller passes ``here``. In a task, the result is awaited."""

ValueOf = Callable[[Any], Any]
"""Returns the value that was written, or MISSING, for the result of a write."""

Fills = Mapping[Any, Computation | CommittedValue]
NO_FILLS: Final[Fills] = MappingProxyType({})
"""The computations of the values that a write stores, by their keys."""

NO_CAUSES: Final[Mapping[Any, int]] = MappingProxyType({})
"""The causes of misses of keys that were not set since their look-ups began."""


def _nothing() -> None:
    """Do nothing: there is no tracking to start or stop."""


def _never() -> bool:
    """Return False: the store is not in a database whose transactions the callers use."""
    return False


def _no_value(result: object) -> Any:
    """Return MISSING: the waiters do not receive the written value."""
    return MISSING


def no_previous(key: object) -> None:
    """Return None: another process may have deleted the value of an old copy."""


def are_outdated(fills: Fills) -> bool:
    """Return whether one of the values must not be kept."""
    return any(computation.is_outdated for computation in fills.values())


def _all_untagged(found: Mapping[Any, Any]) -> dict[Any, Any]:
    return {key: untagged(value) for key, value in found.items()}


class GetOrAdd:
    """A ``get_or_set``: its key, and how its value is read, computed and stored.

    Args:
        key: the key of the copy.
        read: reads the stored form of the value, or MISSING.
        loader: computes the value.
        add: returns the steps that store a value, given its computations. They return whether it was stored.
        codec: encodes the value for other callers.
        tags: the tags of the value in the cache of the copies.
        begin: called before ``loader`` if there are tags.
        is_computed: see ``LoadRequest``.

    Attributes:
        computed: the value that this caller has computed; MISSING before that.
        watch: begun before the key was looked up first; None if that is unknown.
    """

    __slots__ = ("add", "begin", "codec", "computed", "is_computed", "key", "loader", "read", "tags", "watch")

    def __init__(
        self,
        key: Any,
        read: Read,
        loader: Callable[..., Any],
        add: Callable[[Any, Fills], StepsTo[bool]],
        codec: Codec,
        tags: tuple[str, ...] = (),
        begin: Read = _no_value,
        *,
        is_computed: bool = True,
    ) -> None:
        self.key = key
        self.read = read
        self.loader = loader
        self.add = add
        self.codec = codec
        self.tags = tags
        self.begin = begin
        self.is_computed = is_computed
        self.computed: Any = MISSING
        self.watch: Watch | None = None

    def request(self) -> LoadRequest:
        """Return the request by which the leader computes the value."""
        loader = self.loader
        if takes_previous(loader):
            loader = WithPrevious(self.key, loader, no_previous, self.codec.decode)
        return LoadRequest(self.key, self.key, loader, None)


class NearCache:
    """The copies of one process.

    Args:
        cache: holds the copies.
        timeout: the maximum lifetime of a copy in seconds; the jitter of ``cache`` shortens it.
        rule: decides which errors of the store are outages.
        epoch: the trust in the copies if a connection reports every write to this process, and can be lost.
        fail_safe: whether old copies are returned during an outage, until ``grace`` seconds past their expiry.
        drop_writes: whether a write that fails is dropped, with ``fail_safe``. Otherwise its error reaches the caller.

    Attributes:
        computations: the computations of values for the store.
        token_mark: a part of the keys of all tokens of tags.
        tokens: the tokens of tags that this process has read.
        leases: see ``Layer``.
        marks_commits: whether transactions mark their commits in the store: see ``store_commits``.
        is_tracked: whether there is an epoch.
        trusted: whether copies may be used. With an epoch, ``trust`` sets it.
        is_in_transaction: returns whether the running code has a transaction open in the database of the store. It may
            read an old snapshot, or values that are not committed. So it makes no copies, and shares no reads.
        start_tracking: called when copies may not be used; cheap if tracking was started before.
        stop_tracking: the owner calls it when the copies are no longer used.
    """

    def __init__(
        self,
        cache: Cache,
        timeout: float,
        rule: OutageRule,
        *,
        epoch: TrustEpoch | None = None,
        fail_safe: bool = False,
        grace: float = 0.0,
        drop_writes: bool = True,
    ) -> None:
        self.cache = cache
        self._engine = cache.engine
        self._misses = cache.engine.misses()
        self._loads = cache.engine.loads()
        self.timeout = timeout
        self.fail_safe = fail_safe
        self.drop_writes = drop_writes
        self.token_mark = MARK
        self.tokens = TokensRead()
        self.leases: Any = None
        self.marks_commits = False
        self.is_tracked = epoch is not None
        self.trusted = epoch is None
        self.is_in_transaction: Callable[[], bool] = _never
        self.start_tracking: Callable[[], object] = _nothing
        self.stop_tracking: Callable[[], object] = _nothing
        self.computations = Computations(cache.engine)
        # Only a tracking connection, which comes with an epoch, calls ``trust`` and ``refused``.
        self._epoch = epoch or TrustEpoch()
        # Expired copies stay for outages. They are not returned while the store answers.
        stale = Staleness(grace, Receivers.OUTAGE) if fail_safe else FRESH_ONLY
        self._grace = stale.seconds
        self._timeouts = WrittenTimeouts(cache.engine.now)
        self._policy = LoadPolicy(
            stale,
            source=Source(rule.is_of_the_call, rule.is_outage, self._lifetime, keeps_for_outages=fail_safe),
        )
        self._store = GuardedStore(
            cache.name,
            cache.engine.clock,
            rule,
            self._timeouts,
            epoch,
            fail_safe,
            cache.engine.start_jobs,
        )
        # The calls of the store start the jobs.
        cache.engine.keep_copies_of(self._store)

    # The tracking calls these: see ``redis_tracking.Listener``.

    def invalidated(self, keys: list[bytes]) -> None:
        for raw in keys:
            key = raw.decode(errors="surrogateescape")
            self._engine.invalidate(key)
            self._drop_tags([key])

    def flushed(self) -> None:
        self._engine.clear_for("a flush of the server behind it")

    def trust(self, trusted: bool) -> None:
        # Without a lock: the fork hook may be the caller.
        self.trusted = False
        self._epoch.end()
        if trusted:
            if not self.fail_safe:
                # Otherwise suspect copies stay for an outage.
                self._engine.clear_for(None)
            self._epoch.begin()
            self.trusted = True

    def refused(self) -> None:
        self._epoch.is_refused = True

    def missed(self, key: Any) -> None:
        """Note that the running thread or task missed ``key``: its next write of it answers the miss."""
        self._misses.note(key)

    def note_undecoded(self, key: str, error: Exception) -> None:
        """Log that a value was deleted from the store, since it cannot be decoded."""
        self._engine.remove_undecoded(key, MISSING, error)

    def may_be_marked(self, keys: Iterable[Any]) -> bool:
        """Return whether a write of ``keys`` by the running thread or task answers a miss, and a commit in progress may
        be marked in the store. ``count_computations`` forgets the miss."""
        return self.marks_commits and any(map(self._misses.since, keys))

    def count_computations(self, keys: Collection[Any]) -> None:
        """Count the computations that end with a write of ``keys`` by the running thread or task as loads."""
        if self._misses.scopes:
            for key in keys:
                self._misses.count_computation(key, len(keys))

    # Reading. The methods below are steps, for threads and tasks: see ``loading.steps``. In a task, the results of the
    # functions that read and write may be awaitable. The values that are read may be Tagged.

    def get(self, key: Any, read: Read, here: PerDriver | None = None, *, leaves_miss: bool = False) -> StepsTo[Any]:
        """Return the copy of ``key``, otherwise the result of ``read``, which is kept unless it is MISSING.

        Callers that miss the key together share one ``read``.

        Args:
            leaves_miss: whether the caller goes on with ``lease`` if the result is MISSING, which counts the look-up.
        """
        try:
            if self.trusted and not self.is_in_transaction():
                stored = self.cache.find(key, MISSING)
                if stored is not MISSING:
                    return stored
                request = self._loads.request(
                    *(key, InSteps(lambda: outcome_of(self._store.read(read, here))), self.timeout, self._policy),
                    passes_previous=False,
                )
                request.leaves_miss = leaves_miss
                turn, stored = self._loads.turn(request), TAKEN
                with turn, turn:
                    try:
                        stored = self._loads.begin(turn, request)
                        if stored is MISSING:
                            found = yield from self._store.read(read, here)
                            stored = self._loads.finish(turn, request, found)
                            if not request.is_counted:
                                self._loads.count_end(request, stored, has_failed=False)
                        elif stored is TAKEN:
                            stored = result((yield from self._loads.load(request)))
                    except BaseException as error:
                        if stored is MISSING:
                            self._loads.fail(turn, request, error)
                            self._loads.count_end(request, MISSING, has_failed=True)
                        raise
                if request.is_hit:
                    # Another caller has made the copy since, or a stale one was served.
                    return stored
            else:
                by_key = yield from self._get_untrusted([key], lambda _: self._read_one(key, read, here), leaves_miss)
                stored = by_key.get(key, MISSING)
        except Exception as error:
            return self._fallback([key], error, leaves_miss).get(key, MISSING)
        self._store.answered(int(stored is not MISSING), 1)
        if stored is MISSING and self._grace:
            self._engine.discard_stale(key)
        return stored

    def get_many(
        self, keys: Iterable[Any], read: Callable[..., Any], here: PerDriver | None = None
    ) -> StepsTo[dict[Any, Any]]:
        """Return the copies of ``keys`` and, for keys without a copy, the result of one call of ``read``, whose first
        argument is a list of keys."""
        keys = list(keys)
        if not keys:
            # Redis would raise an error.
            return {}
        try:
            if not self.trusted or self.is_in_transaction():
                found = yield from self._get_untrusted(keys, lambda keys: self._store.read(partial(read, keys), here))
                self._store.answered(sum(key in found for key in keys), len(keys))
                return found
            found = {key: stored for key in keys if (stored := self.cache.find(key, MISSING)) is not MISSING}
            missing = [key for key in dict.fromkeys(keys) if key not in found]
            if missing:
                self._count_misses_if(not self.fail_safe, missing)
                # Before the values are stored.
                causes = self._causes(missing) if self.fail_safe else {}
                found |= yield from self._load_many(missing, lambda keys: self._store.read(partial(read, keys), here))
                self._count_misses_if(self.fail_safe, missing, causes)
                self._store.answered(sum(key in found for key in missing), len(missing))
            return self._without_stale(keys, found)
        except Exception as error:
            return self._fallback(keys, error)

    def lease(
        self, key: Any, read: Read, here: PerDriver | None = None, *, wait: float, may_wait: bool = True
    ) -> StepsTo[Any]:
        """Wait for another caller to set the missing ``key``, or look it up again in the store. Return its value, or
        MISSING if this caller must compute it."""
        stored = yield from self.leases.get(key, wait, may_wait)
        if stored is MISSING:
            # This caller may hold the lease now. Another process, or an earlier holder, may have set the key meanwhile.
            fill = self.leases.fill(key)
            stored = yield from self._read_now(read, here, key)
            self._store.answered(int(stored is not MISSING), 1)
            if stored is not MISSING:
                fill(untagged(stored), stored.tags if type(stored) is Tagged else ())
                # A later write by this caller does not answer the miss.
                self._misses.pop_miss(key)
        return untagged(stored)

    def has(self, key: Any, ask: Read, here: PerDriver | None = None) -> StepsTo[bool]:
        """Return True if there is a copy of ``key``, otherwise the result of ``ask``."""
        if self.trusted and key in self.cache:
            return True
        try:
            found: bool = yield from self._store.read(ask, here)
        except Exception as error:
            self._check_may_fail(error)
            return self._loads.get_stale(key, self._grace) is not MISSING
        if not found and self._grace:
            self._engine.discard_stale(key)
        return found

    def read(self, read: Read, here: PerDriver | None = None, key: Any = MISSING) -> StepsTo[Any]:
        """Return the result of ``read`` without using the copies; MISSING in an outage with ``fail_safe``.

        Args:
            key: the key that is read, if there may be a copy of it.
        """
        return untagged((yield from self._read_now(read, here, key)))

    def _read_now(self, read: Read, here: PerDriver | None, key: Any) -> StepsTo[Any]:
        try:
            value = yield from self._store.read(read, here)
        except Exception as error:
            self._check_may_fail(error)
            return MISSING
        if key is not MISSING and self.fail_safe and not self.trusted:
            self._loads.reconcile(key, untagged(value))
        return value

    def get_or_add(self, op: GetOrAdd, here: PerDriver | None = None) -> Steps:
        """Return the value of a key; if it is missing, the result of a loader, which is stored and shared by concurrent
        callers. Callers of ``get`` do not share it: they wait for the store, not for a loader, which may take long,
        raise an error of its own, or look up the key itself. No copy of the result is kept.
        """
        # Before the first read: a caller that stores the value after that breaks it.
        op.watch = self._engine.watch(op.key)
        try:
            try:
                if type(op.key) is tuple:
                    stored = yield from self.read(op.read, here)
                else:
                    stored = yield from self.get(op.key, op.read, here)
            except Exception as error:
                return None, error
            if stored is not MISSING:
                try:
                    return op.codec.decode(stored), None
                except NOT_DECODED as error:
                    self._engine.remove_undecoded(op.key, stored, error)
            return (yield from self.add_missing(op, here))
        finally:
            op.watch.close()

    def add_missing(self, op: GetOrAdd, here: PerDriver | None = None) -> Steps:
        """Do the same after a read that found nothing."""
        loads = self._loads
        request = loads.request_apart(op.key, InSteps(partial(self._compute, op, here, None)), PLAIN, op.tags)
        turn, stored = loads.turn(request), TAKEN
        error: BaseException | None = None
        with turn, turn:
            try:
                stored = loads.begin(turn, request)
                if stored is MISSING:
                    value, error = yield from self._compute(op, here, turn)
                    if error is None:
                        stored = loads.finish(turn, request, value)
                    else:
                        loads.fail(turn, request, error)
                elif stored is TAKEN:
                    stored, error = yield from loads.load(request)
            except BaseException as raised:
                if stored is MISSING:
                    loads.fail(turn, request, raised)
                raise
        return (None, error) if error is not None else (yield from self._decoded(op, stored))

    def _decoded(self, op: GetOrAdd, stored: Any) -> Steps:
        """Return the value of ``add_missing``. If it cannot be decoded, this is the object that this caller has
        computed. If another caller has, this one computes a value for itself, which is not stored."""
        try:
            return op.codec.decode(stored), None
        except NOT_DECODED as error:
            self._engine.remove_undecoded(op.key, stored, error)
        if op.computed is not MISSING:
            return op.computed, None
        request = op.request()
        # Its look-up has ended.
        request.is_counted, request.is_computed = True, op.is_computed
        return (yield from self._loads.compute(request))

    def _compute(self, op: GetOrAdd, here: PerDriver | None, turn: Turn | None) -> Steps:
        """Compute and store a value.

        Args:
            turn: the turn that the caller leads for it; None if that is the one of a load.
        """
        if op.watch is None or self._engine.is_outdated(op.watch):
            # A caller that arrived while another one computed the value finds it in the store.
            stored = yield from self.read(op.read, here, op.key)
            if stored is not MISSING:
                return Unstored(stored, is_computed=False), None
        if op.tags:
            yield from self.read(op.begin, here)
        computation = self.computations.led(op.key, turn)
        value, error = yield from computed(op.request())
        if error is not None:
            return None, error
        op.computed = value
        if (yield from op.add(value, {op.key: computation})):
            return Unstored(op.codec.encode(value), op.is_computed), None
        # Another caller has written the key, or the store could not keep the value.
        stored = yield from self.read(op.read, here, op.key)
        return Unstored(op.codec.encode(value) if stored is MISSING else stored, op.is_computed), None

    # Writing.

    def write(
        self,
        keys: Sequence[Any],
        write: Callable[..., T],
        here: PerDriver | None = None,
        *,
        result_if_dropped: Any = MISSING,
        value_of: ValueOf = _no_value,
        new_timeout: NewTimeout | None = None,
        tags: tuple[str, ...] = (),
        fills: Fills = NO_FILLS,
        undo: Callable[[Any, Any], Any] | None = None,
        find_marks: Read | None = None,
    ) -> StepsTo[T]:
        """Call ``write``, drop the copies of ``keys``, and return the result.

        Args:
            here: the argument of the functions that call the store, which depends on the driver.
            result_if_dropped: returned in an outage if failing writes are dropped, and if the computations of all
                values are outdated. If not given, the error is raised.
            value_of: returns the value that the keys were set to, given the result of ``write``, for the waiters of a
                lease.
            new_timeout: the timeout that the write gives to the keys; None if they keep theirs.
            tags: the tags of the written value in the cache of the copies.
            fills: the computations of the values by their keys. A value whose computation is outdated is not kept.
            undo: removes a value that was written from the store. Its first argument is the key.
            find_marks: returns the marks of commits that have invalidated one of the keys or tags: see
                ``store_commits``. If there are some afterwards, the values are removed. None if there can be none.
        """
        if fills and len(fills) == len(keys) and all(fill.is_outdated for fill in fills.values()):
            for key in keys:
                self._engine.refuse_fill(key)
            return result_if_dropped  # type: ignore[no-any-return]
        self._begin_write([key for key in keys if key not in fills] if fills else keys)
        lease_fills = (
            [self.leases.fill(key) for key in keys]
            if value_of is not _no_value and self.leases is not None and self.leases.are_any
            else ()
        )
        try:
            # There are no copies of other keys, and comparing those may run the site's code.
            plain = keys if len(keys) == 1 and type(keys[0]) is str else [key for key in keys if type(key) is str]
            steps = self._store.write(write, plain, new_timeout, here)
            if fills or find_marks is not None:
                steps = self._checked(steps, keys, fills, here, undo, find_marks)
            outcome = yield ToTheEnd(steps, partial(self._written_after_cancellation, keys, fills))
            if lease_fills:
                value = MISSING if outcome[1] is not None or are_outdated(fills) else value_of(outcome[0])
                if value is not MISSING:
                    for fill in lease_fills:
                        fill(value, tags)
        finally:
            # After a failure, too, since it is unknown whether the store applied the write.
            self._written(keys, fills)
        if outcome[1] is None:
            return outcome[0]  # type: ignore[no-any-return]
        try:
            return result(outcome)  # type: ignore[no-any-return]
        except Exception as error:
            if result_if_dropped is MISSING or not self.drop_writes:
                raise
            self._check_may_fail(error)
            return result_if_dropped  # type: ignore[no-any-return]

    def _begin_write(self, keys: Sequence[Any]) -> None:
        """Outdate the computations of ``keys``, and drop tags whose tokens they are. This comes before a write, too: a
        value that is stored between the write and its end would otherwise not be known to be outdated."""
        self._loads.supersede_apart(keys)
        for key in keys:
            self._engine.begin_store_write(key)
        self._drop_tags(keys)

    def _checked(
        self,
        steps: StepsTo[T],
        keys: Sequence[Any],
        fills: Fills,
        here: PerDriver | None,
        undo: Callable[[Any, Any], Any] | None,
        find_marks: Read | None,
    ) -> StepsTo[T]:
        """Store values by ``steps``, and remove those whose computations are outdated then."""
        written = yield from steps
        is_marked = find_marks is not None and bool((yield from self._store.read(find_marks, here)))
        for key in keys if is_marked else fills:
            computation = fills.get(key)
            if computation is not None and is_marked:
                computation.outdate()
            if undo is not None and (is_marked or (computation is not None and computation.is_outdated)):
                plain = [key] if type(key) is str else []
                yield from self._store.write(partial(undo, key), plain, NO_TIMEOUT, here)
        return written

    def is_outage(self, error: BaseException | None) -> bool:
        """Return whether an error of the store is an outage."""
        return self._store.rule.is_outage(error)

    def clear(self, write: Callable[..., Any], here: PerDriver | None = None) -> StepsTo[Any]:
        """Call ``write``, drop all copies, and return the result."""
        self.computations.outdate_where(lambda apart: apart)
        try:
            return (yield from self.write((), write, here, result_if_dropped=None))
        finally:
            self.cache.clear()

    def _written(self, keys: Sequence[Any], fills: Fills) -> None:
        written = [key for key in keys if key not in fills] if fills else keys
        for key in fills:
            self._engine.delete(key)
            if fills[key].is_outdated:
                self._engine.refuse_fill(key)
        if written:
            self.cache.delete_many(written)
            self._drop_tags(written)

    def _drop_tags(self, keys: Iterable[Any]) -> None:
        """Drop the tags whose tokens were written, if some of the written ``keys`` are those of tokens."""
        for key in keys:
            if type(key) is str and self.token_mark in key:
                self._engine.delete_tags([key])

    def _written_after_cancellation(self, keys: Sequence[Any], fills: Fills, done: asyncio.Future[Any]) -> None:
        if not done.cancelled():
            # The writer was cancelled. Without this, asyncio would log that the exception was never retrieved.
            done.exception()
        with suppress(CacheClosed):
            self._written(keys, fills)

    # The store.

    def _read_one(self, key: Any, read: Read, here: PerDriver | None) -> StepsTo[dict[Any, Any]]:
        """Read one key. Return the result in the form of a read of many keys."""
        value = yield from self._store.read(read, here)
        return {} if value is MISSING else {key: value}

    def _load_many(self, keys: list[Any], read: Callable[[list[Any]], StepsTo[Any]]) -> StepsTo[dict[Any, Any]]:
        return _all_untagged((yield from load_many(self._engine, keys, read, self.timeout, self._policy)))

    def _get_untrusted(
        self, keys: list[Any], read: Callable[[list[Any]], StepsTo[Any]], leaves_misses: bool = False
    ) -> StepsTo[dict[Any, Any]]:
        """Return the result of ``read(keys)``. With ``fail_safe``, copies of it are kept for outages only.

        Callers do not share it: nothing shows whether a key was written since another caller began to read.
        """
        self.start_tracking()
        if not self.fail_safe or self.is_in_transaction():
            found = None
            try:
                found = yield from read(keys)
            finally:
                self._count_misses_if(not leaves_misses or found != {}, keys)
            return _all_untagged(found)
        # Before the copies are stored.
        causes = self._causes(keys)
        found = yield from self._load_many(keys, read)
        self._count_misses_if(not leaves_misses or found != {}, keys, causes)
        return self._without_stale(keys, found)

    def _without_stale(self, keys: list[Any], found: dict[Any, Any]) -> dict[Any, Any]:
        """Drop the stale copies of ``keys`` that were not found, and return ``found``."""
        for key in keys if self._grace else ():
            if key not in found:
                self._engine.discard_stale(key)
        return found

    def _lifetime(self, key: Any) -> tuple[float, float]:
        """Return the TTL of the copy of ``key``, and the seconds past it for which the copy stays in memory."""
        return min(self.timeout, self._timeouts.left(key)), self._grace

    def _causes(self, keys: list[Any]) -> dict[Any, int]:
        return {key: self._misses.cause(key) for key in keys}

    def _count_misses_if(self, is_certain: bool, keys: list[Any], causes: Mapping[Any, int] = NO_CAUSES) -> None:
        """Count misses of ``keys`` if ``is_certain``. With ``fail_safe``, a look-up that fails may still become a stale
        hit, so it is not certain until the look-up has ended.

        Args:
            causes: the causes when the look-ups began, of keys that may have been set since.
        """
        if is_certain:
            for key in keys:
                self._misses.count(key, causes.get(key, -1))

    def _check_may_fail(self, error: Exception) -> None:
        if not self.fail_safe or not self._store.rule.is_outage(error):
            raise error

    def _fallback(self, keys: list[Any], error: Exception, leaves_misses: bool = False) -> dict[Any, Any]:
        """Return the copies that are kept for outages. This ends the look-ups and counts them; the caller counts the
        misses if it goes on with ``leaves_misses``.

        Raises:
            Exception: ``error``, if it is not an outage, or without ``fail_safe``.
        """
        if not self.fail_safe:
            # The misses were counted when the look-ups began.
            raise error
        found, is_outage = {}, self._store.rule.is_outage(error)
        if is_outage:
            found = {key: self._loads.get_stale(key, self._grace) for key in keys}
            found = {key: stale for key, stale in found.items() if stale is not MISSING}
        self._count_misses_if(not (leaves_misses and is_outage), [key for key in keys if key not in found])
        self._check_may_fail(error)
        return found
