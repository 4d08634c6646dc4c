"""A cache in front of another cache, the store: reads keep copies here, and writes go to the store and drop the copies.

The store is the truth. A copy is kept for at most ``timeout`` seconds, no longer than the timeout that this process
gave to the value (see ``written_timeouts``), and only until a write of its key is reported: ``redis_tracking`` reports
the writes by any client of a Redis. Without such reports, a copy may be that old. A caller that reads during a write
may get the old value. A caller that begins to read after the write and its invalidation have arrived does not get it:
copies that were read earlier are not kept. The same holds for the tags of values: see ``store_tags``. A computed value
is not stored if its key was written or deleted since the computation began: see ``Computation``. If that happens while
the value is being stored, it is removed from the store again: see ``late_values``.

The backends pass functions that call the store. ``outage_rule`` decides which of their exceptions are outages.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import MappingProxyType
from typing import Any, Final

from wheelcache.cache import Cache
from wheelcache.core.contract import MISSING, Watch
from wheelcache.engine.codec import NOT_DECODED, Codec
from wheelcache.engine.loading.loads import TAKEN
from wheelcache.engine.loading.request import LoadPolicy, LoadRequest, Tagged, Unstored, takes_previous, untagged
from wheelcache.engine.turns import Turn
from wheelcache.engine.write_watcher import WritesSince
from wheelcache.errors import CacheClosed
from wheelcache.near_cache.many_loads import load_many
from wheelcache.near_cache.outage_rule import OutageRule
from wheelcache.near_cache.store_calls import Guard, StoreCall, Stores, StoreWrite
from wheelcache.near_cache.store_state import CircuitBreaker, StoreState
from wheelcache.near_cache.tokens import MARK, TokensRead
from wheelcache.near_cache.trust_epoch import TrustEpoch
from wheelcache.near_cache.written_timeouts import NO_TIMEOUT, NewTimeout, WrittenTimeouts
from wheelcache.runtime.steps import Call, InSteps, Outcome, Steps, StepsTo, result

Read = Callable[..., Any]
"""Reads from the store, which it receives if the caller passes ``stores``: see ``store_calls``."""


class Computation:
    """The computation of the value of one key for the store.

    The value is stored behind this cache, so the core cannot refuse it in the step that stores it. A write by this
    process supersedes the turn of the load that computes the value: see ``turns``. The watch of the turn would not do:
    it also breaks if the connection to the store begins to report writes, or reports one by this process from before
    the computation.

    Args:
        turn: the turn of the load that computes the value.
    """

    __slots__ = ("_is_refused", "_turn")

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._is_refused = False

    def outdate(self) -> None:
        self._is_refused = True

    @property
    def is_outdated(self) -> bool:
        """Whether a caller has begun to write or delete the key since then. Once True, it stays True."""
        turn = self._turn
        # A turn that is not open cannot be superseded: it has ended, or it is ALONE.
        return self._is_refused or turn.is_superseded or turn.turns.open.get(turn.key) is not turn


class CommittedValue:
    """The value of one key that a transaction computed, which was committed.

    Args:
        others: the writes by others since the transaction began.
    """

    __slots__ = ("_is_refused", "_key", "_others")

    def __init__(self, key: Any, others: WritesSince) -> None:
        self._key = key
        self._others = others
        self._is_refused = False

    def outdate(self) -> None:
        self._is_refused = True

    @property
    def is_outdated(self) -> bool:
        """Whether another caller has begun to write or delete the key since the transaction began."""
        return self._is_refused or self._others.contain([self._key])


Fill = Computation | CommittedValue
"""Shows whether a value that is being stored must not be kept."""

NO_CAUSES: Final[Mapping[Any, int]] = MappingProxyType({})
"""The causes of misses of keys that were not set since their look-ups began."""


def _nothing() -> None:
    """Do nothing: there is no tracking to start or stop."""


class Values:
    """The values that a write stores. This class is for a write that stores none.

    Attributes:
        fill: the computation of the only value, which is not kept if it is outdated; None if it is always kept.
        names: the tags of the values in the cache of the copies.
        may_be_marked: whether a commit may have invalidated one of the keys or tags: see ``store_commits``. If there
            are marks after the write, the values are removed.
    """

    __slots__ = ()

    fill: Fill | None = None
    names: tuple[str, ...] = ()
    may_be_marked = False

    def for_waiters(self, written: Any) -> Any:
        """Return the encoded value for callers that wait for a lease on the only key, given the result of the write;
        MISSING if they must not receive one."""
        return MISSING

    def remove(self, key: Any, store: Any = None) -> Any:
        """Remove a value from the store again."""

    def find_marks(self, store: Any = None) -> Any:
        """Return the marks of commits in the store that have invalidated one of the keys or tags."""


NO_VALUES: Final = Values()


def _all_untagged(found: Mapping[Any, Any]) -> dict[Any, Any]:
    return {key: untagged(value) for key, value in found.items()}


class GetOrAdd:
    """A ``get_or_set``: its key, and how its value is read, computed and stored.

    Args:
        key: the key of the copy.
        read: reads the stored form of the value, or MISSING.
        loader: computes the value.
        add: returns the steps that store a value, given its computation. They return whether it was stored.
        codec: encodes the value for other callers.
        tags: the tags of the value in the cache of the copies.
        begin: called before ``loader``, with the store; None if there are no tags.
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
        add: Callable[[Any, Computation], StepsTo[bool]],
        codec: Codec,
        tags: tuple[str, ...] = (),
        begin: Read | None = None,
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

    def loads(self) -> Callable[[], Any]:
        """Return ``loader`` as a function without parameters. Another process may have deleted the value of an old
        copy, so that there is no previous one."""
        return partial(self.loader, previous=None) if takes_previous(self.loader) else self.loader


class NearCache:
    """The copies of one process.

    Args:
        cache: holds the copies.
        timeout: the maximum lifetime of a copy in seconds; the jitter of ``cache`` shortens it.
        rule: decides which errors of the store are outages.
        epoch: the trust in the copies if a connection reports every write to this process, and can be lost.
        fail_safe: the seconds past its expiry for which a copy is returned during an outage, in which writes are
            dropped. 0.0 if the errors reach the callers.

    Attributes:
        token_mark: a part of the keys of all tokens of tags.
        tokens: the tokens of tags that this process has read.
        leases: see ``Layer``.
        marks_commits: whether transactions mark their commits in the store: see ``store_commits``.
        is_tracked: whether there is an epoch.
        trusted: whether copies may be used. With an epoch, ``trust`` sets it.
        in_transaction: returns whether the running code has a transaction open in the database of the store. It may
            read an old snapshot, or values that are not committed. So it makes no copies, and shares no reads. None if
            the store is in no database.
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
        fail_safe: float = 0.0,
    ) -> None:
        self.cache = cache
        self._engine = cache.engine
        self._is_preliminary = cache.engine.core().is_preliminary
        self._misses = cache.engine.misses()
        self._loads = cache.engine.loads()
        self.timeout = timeout
        self.fail_safe = fail_safe
        self.token_mark = MARK
        self.tokens = TokensRead()
        self.leases: Any = None
        self.marks_commits = False
        self.is_tracked = epoch is not None
        self.trusted = epoch is None
        self.in_transaction: Callable[[], bool] | None = None
        self.start_tracking: Callable[[], object] = _nothing
        self.stop_tracking: Callable[[], object] = _nothing
        # Only a tracking connection, which comes with an epoch, calls ``trust`` and ``refused``.
        self._epoch = epoch or TrustEpoch()
        self._timeouts = WrittenTimeouts(cache.engine.now)
        self._policy = LoadPolicy.of_store(rule.is_of_the_call, rule.is_outage, self._lifetime, fail_safe)
        self._is_outage = rule.is_outage
        self._state = state = StoreState(epoch, self._timeouts, CircuitBreaker() if fail_safe else None)
        self._reads, self._writes = [
            Guard(cache.name, cache.engine.clock, rule, state, meter, cache.engine.start_jobs)
            for meter in (state.reads, state.writes)
        ]
        # The calls of the store start the jobs.
        cache.engine.keep_copies_of(state)

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

    # Reading. The methods below are steps, for threads and tasks: see ``runtime.steps``, and ``store_calls``
    # for the functions that read and write. The values that are read may be Tagged.

    def get(self, key: Any, read: Read, stores: Stores | None = None, *, leaves_miss: bool = False) -> StepsTo[Any]:
        """Return the copy of ``key``, otherwise the result of ``read``, which is kept unless it is MISSING.

        Callers that miss the key together share one ``read``.

        Args:
            leaves_miss: whether the caller goes on with ``lease`` if the result is MISSING, which counts the look-up.
        """
        try:
            if self.trusted and not (self.in_transaction and self.in_transaction()):
                stored = self.cache.find(key, MISSING)
                if stored is not MISSING:
                    return stored
                request = self._loads.request(
                    key, InSteps(partial(self._outcome, read, stores)), self.timeout, self._policy
                )
                request.leaves_miss, request.is_preliminary = leaves_miss, self._is_preliminary(key)
                turn, stored = self._loads.turn(request), TAKEN
                with turn, turn:
                    try:
                        stored = self._loads.begin(turn, request)
                        if stored is MISSING:
                            found = result((yield StoreCall(self._reads, read, stores)))
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
                by_key = yield from self._get_untrusted([key], lambda _: self._read_one(key, read, stores), leaves_miss)
                stored = by_key.get(key, MISSING)
        except Exception as error:
            return self._fallback([key], error, leaves_miss).get(key, MISSING)
        if stored is not MISSING or not leaves_miss:
            self._count_answer(key, stored)
        if stored is MISSING and self.fail_safe:
            self._engine.discard_stale(key)
        return stored

    def get_many(
        self, keys: Iterable[Any], read: Callable[..., Any], stores: Stores | None = None
    ) -> StepsTo[dict[Any, Any]]:
        """Return the copies of ``keys`` and, for keys without a copy, the result of one call of ``read``, whose first
        argument is a list of keys."""
        keys = list(keys)
        if not keys:
            # Redis would raise an error.
            return {}
        try:
            if not self.trusted or (self.in_transaction and self.in_transaction()):
                found = yield from self._get_untrusted(keys, lambda keys: self._value(partial(read, keys), stores))
                self._answered(keys, found)
                return found
            found = {key: stored for key in keys if (stored := self.cache.find(key, MISSING)) is not MISSING}
            missing = [key for key in dict.fromkeys(keys) if key not in found]
            if missing:
                self._count_misses_if(not self.fail_safe, missing)
                # Before the values are stored.
                causes = self._causes(missing) if self.fail_safe else {}
                found |= yield from self._load_many(missing, lambda keys: self._value(partial(read, keys), stores))
                self._count_misses_if(self.fail_safe > 0, missing, causes)
                self._answered(missing, found)
            return self._without_stale(keys, found)
        except Exception as error:
            return self._fallback(keys, error)

    def lease(
        self, key: Any, read: Read, stores: Stores | None = None, *, wait: float, may_wait: bool = True
    ) -> StepsTo[Any]:
        """Wait for another caller to set the missing ``key``, or look it up again in the store. Return its value, or
        MISSING if this caller must compute it."""
        stored = yield from self.leases.get(key, wait, may_wait)
        if stored is not MISSING:
            self._count_answer(key, MISSING)
        else:
            # This caller may hold the lease now. Another process, or an earlier holder, may have set the key meanwhile.
            fill = self.leases.fill(key)
            stored = yield from self._read_now(read, stores, key)
            self._count_answer(key, stored)
            if stored is not MISSING:
                fill(untagged(stored), stored.tags if type(stored) is Tagged else ())
                # A later write by this caller does not answer the miss.
                self._misses.pop_miss(key)
        return untagged(stored)

    def has(self, key: Any, ask: Read, stores: Stores | None = None) -> StepsTo[bool]:
        """Return True if there is a copy of ``key``, otherwise the result of ``ask``."""
        if self.trusted and key in self.cache:
            return True
        try:
            found: bool = result((yield StoreCall(self._reads, ask, stores)))
        except Exception as error:
            self._check_may_fail(error)
            return self._loads.get_stale(key, self.fail_safe) is not MISSING
        if not found and self.fail_safe:
            self._engine.discard_stale(key)
        return found

    def read(self, read: Read, stores: Stores | None = None, key: Any = MISSING) -> StepsTo[Any]:
        """Return the result of ``read`` without using the copies; MISSING in an outage with ``fail_safe``.

        Args:
            key: the key that is read, if there may be a copy of it.
        """
        return untagged((yield from self._read_now(read, stores, key)))

    def _read_now(self, read: Read, stores: Stores | None, key: Any) -> StepsTo[Any]:
        try:
            value = result((yield StoreCall(self._reads, read, stores)))
        except Exception as error:
            self._check_may_fail(error)
            return MISSING
        if key is not MISSING and self.fail_safe and not self.trusted:
            self._loads.reconcile(key, untagged(value))
        return value

    def get_or_add(self, op: GetOrAdd, stores: Stores | None = None, *, is_missing: bool = False) -> Steps:
        """Return the value of a key; if it is missing, the result of a loader, which is stored and shared by concurrent
        callers. Callers of ``get`` do not share it: they wait for the store, not for a loader, which may take long,
        raise an error of its own, or look up the key itself. No copy of the result is kept.

        Args:
            is_missing: whether the caller has read the key before.
        """
        if is_missing:
            return (yield from self._add_missing(op, stores))
        # Before the first read: a caller that stores the value after that breaks it.
        op.watch = self._engine.watch(op.key)
        try:
            try:
                if type(op.key) is tuple:
                    stored = yield from self.read(op.read, stores)
                else:
                    stored = yield from self.get(op.key, op.read, stores)
            except Exception as error:
                return None, error
            if stored is not MISSING:
                try:
                    return op.codec.decode(stored), None
                except NOT_DECODED as error:
                    self._engine.remove_undecoded(op.key, stored, error)
            return (yield from self._add_missing(op, stores))
        finally:
            op.watch.close()

    def _add_missing(self, op: GetOrAdd, stores: Stores | None) -> Steps:
        loads = self._loads
        request = loads.request_apart(op.key, InSteps(partial(self._compute, op, stores, None)), op.tags)
        turn, stored = loads.turn(request), TAKEN
        error: BaseException | None = None
        with turn, turn:
            try:
                stored = loads.begin(turn, request)
                if stored is MISSING:
                    value, error = yield from self._compute(op, stores, turn)
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
        return (None, error) if error is not None else (yield from self._decoded(op, request, stored))

    def _decoded(self, op: GetOrAdd, request: LoadRequest, stored: Any) -> Steps:
        """Return the value of ``add_missing``. If it cannot be decoded, this is the object that this caller has
        computed. If another caller has, this one computes a value for itself, which is not stored."""
        try:
            return op.codec.decode(stored), None
        except NOT_DECODED as error:
            self._engine.remove_undecoded(op.key, stored, error)
        if op.computed is not MISSING:
            return op.computed, None
        # Its look-up has ended.
        request.loader, request.is_counted, request.is_computed = op.loads(), True, op.is_computed
        return (yield from self._loads.compute(request))

    def _compute(self, op: GetOrAdd, stores: Stores | None, turn: Turn | None) -> Steps:
        """Compute and store a value.

        Args:
            turn: the turn that the caller leads for it; None if that is the one of a load.
        """
        if op.watch is None or self._engine.is_outdated(op.watch):
            # A caller that arrived while another one computed the value finds it in the store.
            stored = yield from self.read(op.read, stores, op.key)
            if stored is not MISSING:
                return Unstored(stored, is_computed=False), None
        if op.begin is not None:
            yield from self.read(op.begin, stores)
        computation = self.computation(op.key) if turn is None else Computation(turn)
        value, error = yield Call(op.loads())
        if error is not None:
            return None, error
        op.computed = value
        if (yield from op.add(value, computation)):
            return Unstored(op.codec.encode(value), op.is_computed), None
        # Another caller has written the key, or the store could not keep the value.
        stored = yield from self.read(op.read, stores, op.key)
        return Unstored(op.codec.encode(value) if stored is MISSING else stored, op.is_computed), None

    def computation(self, key: Any) -> Computation:
        """Return the computation of ``key`` by the load apart that the running code leads."""
        return Computation(self._loads.led_apart(key))

    # Writing.

    def write(
        self,
        keys: Sequence[Any],
        write: Callable[..., Any],
        stores: Stores | None = None,
        *,
        result_if_dropped: Any = MISSING,
        new_timeout: NewTimeout | None = None,
        values: Values = NO_VALUES,
    ) -> StepsTo[Any]:
        """Call ``write``, drop the copies of ``keys``, and return the result.

        Args:
            stores: the argument of the functions that call the store.
            result_if_dropped: returned in an outage if failing writes are dropped, and for an outdated value. If not
                given, the error is raised.
            new_timeout: the timeout that the write gives to the keys; None if they keep theirs.
        """
        fill = values.fill
        if fill is None:
            self._begin_write(keys)
        elif fill.is_outdated:
            self._engine.refuse_fill(keys[0])
            return result_if_dropped
        are_leased = values is not NO_VALUES and self.leases is not None and self.leases.are_any
        lease_fills = [self.leases.fill(key) for key in keys] if are_leased else ()
        try:
            # There are no copies of other keys, and comparing those may run the site's code.
            plain = keys if len(keys) == 1 and type(keys[0]) is str else [key for key in keys if type(key) is str]
            step = StoreWrite(self._writes, write, stores, plain, new_timeout)
            if fill is not None or values.may_be_marked:
                step.complete = partial(self._completed, keys, values, stores)
            step.after_cancellation = partial(self._written_after_cancellation, keys, fill)
            outcome = yield step
            if lease_fills and outcome[1] is None and not (fill is not None and fill.is_outdated):
                value = values.for_waiters(outcome[0])
                if value is not MISSING:
                    for give in lease_fills:
                        give(value, values.names)
        finally:
            # After a failure, too, since it is unknown whether the store applied the write.
            is_outdated = self._written(keys, fill)
        if outcome[1] is None:
            return result_if_dropped if is_outdated else outcome[0]
        try:
            return result(outcome)
        except Exception as error:
            if result_if_dropped is MISSING:
                raise
            self._check_may_fail(error)
            return result_if_dropped

    def _begin_write(self, keys: Sequence[Any]) -> None:
        """Outdate the computations of ``keys``, and drop tags whose tokens they are. This comes before a write, too: a
        value that is stored between the write and its end would otherwise not be known to be outdated."""
        self._loads.supersede_apart(keys)
        for key in keys:
            self._engine.begin_store_write(key)
        self._drop_tags(keys)

    def _completed(self, keys: Sequence[Any], values: Values, stores: Stores | None) -> StepsTo[None] | None:
        """Return the steps that complete a write: they remove the values that others have outdated."""
        is_outdated = values.fill is not None and values.fill.is_outdated
        return self._remove_outdated(keys, values, stores) if is_outdated or values.may_be_marked else None

    def _remove_outdated(self, keys: Sequence[Any], values: Values, stores: Stores | None) -> StepsTo[None]:
        fill = values.fill
        if values.may_be_marked and result((yield StoreCall(self._reads, values.find_marks, stores))):
            if fill is not None:
                fill.outdate()
        elif fill is None or not fill.is_outdated:
            return
        for key in keys:
            plain = [key] if type(key) is str else []
            result((yield StoreWrite(self._writes, partial(values.remove, key), stores, plain, NO_TIMEOUT)))

    def is_outage(self, error: BaseException | None) -> bool:
        """Return whether an error of the store is an outage."""
        return self._is_outage(error)

    def clear(self, write: Callable[..., Any], stores: Stores | None = None) -> StepsTo[Any]:
        """Call ``write``, drop all copies, and return the result."""
        self.outdate_where(lambda apart: apart)
        try:
            return (yield from self.write((), write, stores, result_if_dropped=None))
        finally:
            self.cache.clear()

    def outdate_where(self, select: Callable[[list[Any]], Iterable[Any]]) -> None:
        """Note that the keys that ``select`` returns, given those of the loads apart, will be written or deleted."""
        self._loads.supersede_apart(select(self._loads.apart_in_progress()))

    def _written(self, keys: Sequence[Any], fill: Fill | None) -> bool:
        """Drop the copies of ``keys``. Return whether the value was outdated."""
        for key in keys:
            self._engine.delete(key)
        if fill is None:
            self._drop_tags(keys)
            return False
        is_outdated = fill.is_outdated
        if is_outdated:
            self._engine.refuse_fill(keys[0])
        return is_outdated

    def _drop_tags(self, keys: Iterable[Any]) -> None:
        """Drop the tags whose tokens were written, if some of the written ``keys`` are those of tokens."""
        for key in keys:
            if type(key) is str and self.token_mark in key:
                self._engine.delete_tags([key])

    def _written_after_cancellation(self, keys: Sequence[Any], fill: Fill | None, done: asyncio.Future[Any]) -> None:
        with suppress(CacheClosed):
            self._written(keys, fill)

    # The store.

    def _outcome(self, read: Read, stores: Stores | None) -> Steps:
        """Return the outcome of ``read``."""
        outcome: Outcome = yield StoreCall(self._reads, read, stores)
        return outcome

    def _value(self, read: Read, stores: Stores | None) -> StepsTo[Any]:
        return result((yield StoreCall(self._reads, read, stores)))

    def _read_one(self, key: Any, read: Read, stores: Stores | None) -> StepsTo[dict[Any, Any]]:
        """Read one key. Return the result in the form of a read of many keys."""
        value = result((yield StoreCall(self._reads, read, stores)))
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
        if not self.fail_safe or (self.in_transaction and self.in_transaction()):
            found = None
            try:
                found = yield from read(keys)
            finally:
                self._count_misses_if(not leaves_misses or found != {}, self._missed(keys, found or {}))
            return _all_untagged(found)
        # Before the copies are stored.
        causes = self._causes(keys)
        found = yield from self._load_many(keys, read)
        self._count_misses_if(not leaves_misses or found != {}, self._missed(keys, found), causes)
        return self._without_stale(keys, found)

    def _without_stale(self, keys: list[Any], found: dict[Any, Any]) -> dict[Any, Any]:
        """Drop the stale copies of ``keys`` that were not found, and return ``found``."""
        for key in keys if self.fail_safe else ():
            if key not in found:
                self._engine.discard_stale(key)
        return found

    def _lifetime(self, key: Any) -> tuple[float, float]:
        """Return the TTL of the copy of ``key``, and the seconds past it for which the copy stays in memory."""
        return min(self.timeout, self._timeouts.left(key)), self.fail_safe

    def _answered(self, keys: Sequence[Any], found: Collection[Any]) -> None:
        """Count the look-ups of ``keys`` without a copy; the store had values for those in ``found``."""
        hits = sum(key in found for key in keys)
        self._state.look_ups.add("hits", hits)
        self._state.look_ups.add("misses", len(keys) - hits)

    def _count_answer(self, key: Any, stored: Any) -> None:
        """Count a look-up of ``key`` without a copy, for which the store had this value or MISSING."""
        if stored is MISSING:
            self._state.look_ups.add("misses")
        elif not self._is_preliminary(key):
            self._state.look_ups.add("hits")

    def _missed(self, keys: list[Any], found: Collection[Any]) -> list[Any]:
        """Return the keys whose look-ups without a copy are misses: all but preliminary keys that the store had."""
        return [key for key in keys if not (key in found and self._is_preliminary(key))]

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
        if not self.fail_safe or not self._is_outage(error):
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
        found, is_outage = {}, self._is_outage(error)
        if is_outage:
            found = {key: self._loads.get_stale(key, self.fail_safe) for key in keys}
            found = {key: stale for key, stale in found.items() if stale is not MISSING}
        self._count_misses_if(not (leaves_misses and is_outage), [key for key in keys if key not in found])
        self._check_may_fail(error)
        return found
