"""Loading for one cache: ``get_or_load`` and its relatives, on turns.

The keys and TTLs are those of the callers: ``Cache``, ``memoize``, the backends, the near cache. A look-up that missed
comes here with a ``LoadRequest``. Its caller leads a turn: it looks again, runs the loader, and stores the value under
the watch of the turn. If a set, a delete or a clear has broken the watch, only the callers that joined before receive
the value, and it is not stored. A caller that has to wait, or may receive a stale value, takes the steps of
``WaitingLoads``.

A look-up counts once, when it has ended: as a hit of the core if the core finds a value, as a stale hit if a stale
value is served, otherwise as a miss.

No lock is held while a loader, a listener, a weigher or a log handler runs. Each ``with turn, turn``, and each
``finally`` that closes a turn twice, ends the turns of its code: an exception that arrives at any point leaves no turn
without a leader, and no caller waiting.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterable
from inspect import isawaitable
from typing import Any, Final

from wheelcache.core.access import MAX_FAST_TTL, SECONDS, Lifetime, Serialized
from wheelcache.core.contract import MISSING, STORED, Core, Record, Removals
from wheelcache.engine.codec import NOT_DECODED, Codec
from wheelcache.engine.entry_writer import EntryWriter
from wheelcache.engine.keys import KeyProxies, unwrap
from wheelcache.engine.loading.failures import Backoff
from wheelcache.engine.loading.misses import Misses
from wheelcache.engine.loading.request import (
    LoadPolicy,
    LoadRequest,
    Tagged,
    Unstored,
    WithPrevious,
    check_has_no_refresh_ahead,
    computed,
    takes_previous,
)
from wheelcache.engine.turns import End, Turn, Turns, led
from wheelcache.runtime.steps import (
    InSteps,
    Loader,
    Outcome,
    Steps,
    as_it_is,
    drive,
    drive_async,
    result,
)

logger = logging.getLogger("wheelcache")

TAKEN: Final = object()
"""The result of ``Loads.begin`` if the caller must wait."""


class Loads:
    """The loads of one cache.

    Args:
        core: the core of the cache.
        writer: stores the values.
        keys: adapts the callers' keys.
        misses: counts the misses and the loads.

    Attributes:
        load: returns the steps of ``get`` for a caller that may have to wait: see ``WaitingLoads``.
        refresh: returns the steps to ``found``, the present value of the request's key, which is loaded again.
        turns: the loads in progress, and the refreshes that wait for a thread.
        backoff: the keys whose loads fail.
        is_closed: whether the cache is closed, so that loads in progress fail quietly.
    """

    load: Callable[[LoadRequest], Steps]
    refresh: Callable[[LoadRequest, Any], Steps]

    def __init__(self, core: Core, writer: EntryWriter, keys: KeyProxies, misses: Misses) -> None:
        self._core = core
        self._writer = writer
        self._keys = keys
        self._misses = misses
        self.turns = Turns(core, core.watch)
        self.counts = misses.counts
        self.backoff = Backoff()
        self.is_closed = False

    # Requests.

    def request(
        self,
        key: Hashable,
        loader: Any,
        ttl: Any,
        policy: LoadPolicy,
        tags: tuple[str, ...] = (),
        codec: Codec | None = None,
        *,
        passes_previous: bool | None = None,
    ) -> LoadRequest:
        """Return a request for ``get`` or ``load``, after a ``find`` that missed. It answers the miss of ``key``, so no
        later ``set`` by the caller is a fill.

        Args:
            loader, ttl, codec: see ``LoadRequest``. With a TTL of 0 or less, the caller computes the value for itself.
            passes_previous: whether ``loader`` receives the previous value; None if its parameters decide.

        Raises:
            TypeError, ValueError: if ``ttl`` is neither a number of seconds nor None nor a function.
        """
        is_alone = False
        if callable(ttl):
            check_has_no_refresh_ahead(ttl, policy)
        elif not (ttl is None or (type(ttl) in SECONDS and 0 < ttl < MAX_FAST_TTL)):
            is_alone = ttl <= 0
            ttl = ttl if is_alone else self._writer.seconds(ttl)
        plain = key if type(key) is str else self._keys.adapt(key)
        if self._misses.scopes:
            self._misses.pop_miss(plain)
        if passes_previous is None:
            passes_previous = type(loader) is not InSteps and takes_previous(loader)
        if passes_previous:
            loader = WithPrevious(key, loader, self.previous, as_it_is if codec is None else codec.decode)
        names = self._writer.tag_names(plain, tags) if tags or type(plain) is not str else ()
        request = LoadRequest(plain, key, loader, ttl, policy, names, codec)
        if is_alone:
            request.stay_alone()
        return request

    def needs_refresh(self, key: Hashable, value: Any, ttl: Lifetime, policy: LoadPolicy) -> bool:
        """Return whether the share ``refresh_ahead`` of the TTL has passed for ``value``, which a ``find`` has found.

        Raises:
            TypeError, ValueError: if ``ttl`` is wrong, even if there is nothing to refresh.
        """
        if callable(ttl):
            check_has_no_refresh_ahead(ttl, policy)
            return False
        seconds = self._writer.seconds(ttl)
        if value is None and policy.negative_ttl is not None:
            seconds = policy.negative_ttl
        if policy.refresh_ahead is None or seconds is None:
            return False
        times = self._core.times(self._keys.adapt(key))
        return times is not None and times.fresh_until - self._core.now() < (1 - policy.refresh_ahead) * seconds

    def previous(self, key: Hashable) -> Record | None:
        """Return the entry of ``key`` with the value that a loader replaces: one that is fresh, or within its grace."""
        record = self._core.peek(self._keys.adapt(key))
        if record is None or not record.times.is_current or record.times.expires_at <= self._core.now():
            return None
        return record

    def get_stale(self, key: Hashable, grace: float) -> Any:
        """Return the old value of ``key`` during an outage of its source, or MISSING: one within ``grace`` seconds past
        its TTL, which it was stored with, or from a past epoch of trust."""
        key = self._keys.adapt(key)
        record = self._core.peek(key)
        if record is None or self._core.now() >= min(record.times.expires_at, record.times.fresh_until + grace):
            return MISSING
        self.count_stale_hit(key)
        return record.value

    def count_stale_hit(self, key: Any) -> None:
        self.counts.add("stale_hits")
        self._core.count_stale_hit(key)

    # A look-up that missed.

    def get(self, request: LoadRequest, found: Any = MISSING) -> Any:
        """Return the value of a key for which a ``find`` returned ``found``, decoded. If that is MISSING, and no other
        caller computes the value, this thread does. Otherwise, the value is refreshed.

        If the value of another caller cannot be decoded, this one loads it again.

        Raises:
            LoadDeadlock: if the loader needs the key that it loads, itself or through other loaders.
            LoadTimeout: if the timeout has passed and there is no stale value.
        """
        if found is not MISSING:
            return result(drive(self.refresh(request, found)))
        stored = TAKEN
        if request.is_at_once:
            turn = Turn(self.turns, request.key, request.watched, request.names)
            try:
                stored = self.begin(turn, request)
                if stored is MISSING:
                    stored = self.finish(turn, request, request.complete(request.loader()))
                    turn.exit()
                else:
                    turn.close()
            except BaseException as error:
                # From Python 3.14 on, an exception may arrive on entry of a ``with``, which is too late here, as it may
                # on entry of a method that ``aget`` could share. Before a ``try``, none does.
                try:
                    if stored is MISSING:
                        self.fail(turn, request, error)
                    raise
                finally:
                    # Twice: the second call completes an interrupted one.
                    try:
                        turn.close()
                    finally:
                        turn.close()
        if stored is TAKEN:
            stored = result(drive(self.load(request)))
        if type(stored) is not Serialized or request.codec is None:
            return stored
        try:
            return request.codec.loads(stored)
        except NOT_DECODED as error:
            again = self._again(request, stored, error)
        return request.computed if again is None else self.get(again)

    async def aget(self, request: LoadRequest, found: Any = MISSING) -> Any:
        """Do the same as ``get`` in a task, and await an awaitable result of the loader."""
        if found is not MISSING:
            return result(await drive_async(self.refresh(request, found)))
        stored = TAKEN
        if request.is_at_once:
            turn = Turn(self.turns, request.key, request.watched, request.names)
            try:
                stored = self.begin(turn, request)
                if stored is MISSING:
                    value = request.loader()
                    value = request.complete(await value if isawaitable(value) else value)
                    stored = self.finish(turn, request, value)
                    turn.exit()
                else:
                    turn.close()
            except BaseException as error:
                # As in ``get``.
                try:
                    if stored is MISSING:
                        self.fail(turn, request, error)
                    raise
                finally:
                    try:
                        turn.close()
                    finally:
                        turn.close()
        if stored is TAKEN:
            stored = result(await drive_async(self.load(request)))
        if type(stored) is not Serialized or request.codec is None:
            return stored
        try:
            return request.codec.loads(stored)
        except NOT_DECODED as error:
            again = self._again(request, stored, error)
        return request.computed if again is None else await self.aget(again)

    def _again(self, request: LoadRequest, stored: Any, error: Exception) -> LoadRequest | None:
        """Remove a value that cannot be decoded. Return the request of another one, or None if the caller of
        ``request`` has computed the value."""
        self._writer.remove_undecoded(request.key, stored, error)
        return request.again() if request.computed is MISSING else None

    # The two ends of a load. The code that leads a turn calls ``begin``, the loader, and then ``finish`` or ``fail``.

    def begin(self, turn: Turn, request: LoadRequest) -> Any:
        """Begin to compute the value of a request. Return MISSING if ``turn`` leads, so that the caller computes the
        value and calls ``finish`` or ``fail``; otherwise the value, if another caller has just stored it, or TAKEN, if
        the caller must wait, or leads the key itself. It then calls ``load``.

        The caller closes the turn, twice after an exception: the second call completes an interrupted one.
        """
        if not self.turns.lead(turn):
            return TAKEN
        found = self.look_again(request)
        if found is not MISSING:
            return found
        if turn.is_behind:
            return TAKEN
        if not request.is_counted:
            if request.policy.is_at_once and not (request.leaves_miss or request.is_preliminary):
                request.is_counted = True
                if request.key is request.watched:
                    # The caller of a load apart has counted its look-up of the key.
                    self._core.count_miss(request.key, group=request.group)
            elif request.cause < 0:
                # Before the value is stored.
                request.cause = self._core.miss_cause(request.watched)
        return MISSING

    def look_again(self, request: LoadRequest) -> Any:
        """Look up the key, since another caller may have stored the value between the miss and the turn."""
        # Marked first, so that a look-up counts at most once if it is interrupted.
        was_counted, request.is_counted = request.is_counted, True
        found = self._core.find(request.key, MISSING)
        if found is not MISSING:
            request.is_hit = True
            return found
        request.is_counted = was_counted
        request.started = self._core.now()
        return MISSING

    def finish(self, turn: Turn, request: LoadRequest, value: Any) -> Any:
        """Store a loaded value, and end the turn with it. Return the value.

        Args:
            value: the stored form of the value, which may be Unstored or Tagged. MISSING if there is none to store.

        Raises:
            Exception: an error of the weigher. The caller calls ``fail``.
        """
        stored: tuple[int, Removals | None] | None = None
        source = request.policy.source
        turn.loader_returned = True
        if type(value) is Unstored:
            request.is_computed &= value.is_computed
            value = value.value
        elif value is not MISSING:
            if type(value) is Tagged:
                turn.names = request.names = self._writer.tag_names(turn.key, value.tags)
                value = value.value
            # A turn that is ALONE has no watch.
            if turn.watch is not None and turn.ended is None and not turn.is_superseded:
                ttl, grace = (request.ttl, request.grace) if source is None else source.lifetime(turn.key)
                stored = self._writer.store(turn.key, value, ttl, grace, turn.watch, request.names, request.group)
        if turn.is_superseded or (
            source is not None and source.keeps_for_outages and (stored is None or not stored[0] & STORED)
        ):
            # Drop an older value before the caller continues: a thread that superseded the turn may be slower. A watch
            # that was broken between its beginning and that of the turn shows a store of such a value.
            self.drop_other(turn.key, value)
        if request.is_computed and source is None:
            self._misses.count_load(request.watched, self._core.now() - request.started, request.group)
        if self.backoff.failures:
            self.backoff.succeeded(turn.key)
        turn.end(End.VALUE, value)
        if stored is not None and (stored[0] != self._writer.usual_outcome or not self._writer.is_plain):
            self._writer.announce(*stored)
        return value

    def outcome(self, turn: Turn, request: LoadRequest, value: Any) -> Outcome:
        """Do the same as ``finish``, and return an error instead of raising it, after ``fail``."""
        # Not in the callers: Python raises a signal's exception at a nested ``try``, outside of the outer one.
        try:
            return self.finish(turn, request, value), None
        except BaseException as error:
            self.fail(turn, request, error)
            return None, error

    def fail(self, turn: Turn, request: LoadRequest, error: BaseException, *, is_logged: bool = False) -> None:
        """End the turn with an error of the loader, and log it for callers that have joined, unless ``is_logged``, or
        the cache is closed."""
        source = request.policy.source
        if source is not None and not source.shares(error):
            turn.end(End.AGAIN)
            return
        is_first = turn.ended is None
        is_failed_load = is_first and (source is None or not source.counts(error))
        # A waiter may remove the traceback.
        exc_info = type(error), error, error.__traceback__
        group = ""
        if is_failed_load:
            seconds = self._core.now() - request.started
            group = self._misses.count_load(request.watched, seconds, request.group, has_failed=True)
        turn.end(End.ERROR, error)
        if is_failed_load:
            self._misses.count_failure(error, group)
        if is_first and turn.is_joined and isinstance(error, Exception) and not (is_logged or self.is_closed):
            logger.warning(
                "Loading %r into the cache %r failed; the callers that wait for it receive copies of the error.",
                request.caller_key,
                self._writer.name,
                exc_info=exc_info,
            )

    def count_end(self, request: LoadRequest, value: Any, *, has_failed: bool) -> None:
        """Count a look-up that has ended as a miss, unless it was counted, or its caller counts it."""
        # A copy that is kept for the caller may still turn a failure into a hit.
        source = request.policy.source
        is_kept = source is not None and source.keeps_for_outages
        is_left = is_kept if has_failed else request.leaves_miss and value is MISSING
        is_left = is_left or (value is not MISSING and request.is_preliminary)
        # The caller of a load apart has counted its look-up of the key.
        if not (request.is_counted or is_left or request.key is not request.watched):
            request.is_counted = True
            self._core.count_miss(request.watched, request.cause, group=request.group)

    def drop_other(self, key: Any, value: Any) -> None:
        """Delete the entry of ``key`` unless its value is known to equal ``value``, which was read from the source."""
        record = self._core.peek(key)
        if record is not None and not _is_same(record.value, value):
            self._writer.delete(key)

    def compute(self, request: LoadRequest) -> Steps:
        """Return the steps to the stored form of a value that the caller computes for itself. It counts as a load."""
        if not request.is_counted:
            request.is_counted = True
            self._core.count_miss(request.key, group=request.group)
        started = self._core.now()
        value, error = yield from computed(request)
        if request.is_computed:
            group = self._misses.count_load(
                request.watched, self._core.now() - started, request.group, has_failed=error is not None
            )
            if error is not None:
                self._misses.count_failure(error, group)
        return value, error

    # Loads that share turns only with each other.

    def request_apart(self, key: Hashable, loader: Loader, tags: tuple[str, ...] = ()) -> LoadRequest:
        """Return a request whose callers share turns only with each other, not with other loads of ``key``.

        ``loader()`` returns an ``Unstored``. As in other loads, a write of ``key`` outdates its value, and
        waiters may receive the old value of ``key``.
        """
        plain = self._keys.adapt(key)
        names = self._writer.tag_names("", tags) if tags else ()
        request = LoadRequest(_apart(plain), key, loader, None, names=names)
        request.watched = plain
        return request

    def turn(self, request: LoadRequest) -> Turn:
        """Return a turn for ``begin``."""
        return Turn(self.turns, request.key, request.watched, request.names)

    def led_apart(self, key: Hashable) -> Turn:
        """Return the turn of the ``request_apart`` of ``key`` that the running code leads."""
        own = _apart(self._keys.adapt(key))
        # A turn that has ended, since its event loop had stopped, is no longer there. A new one is not open either.
        turns = [turn for turn in led() if turn.turns is self.turns and turn.key == own]
        return turns[0] if turns else Turn(self.turns, own)

    def apart_in_progress(self) -> list[Any]:
        """Return the keys of the loads apart that are in progress."""
        turns = self.turns.open.copy().values() if self.turns.open else ()
        return [unwrap(turn.watched) for turn in turns if turn.key is not turn.watched]

    def supersede_apart(self, keys: Iterable[Hashable]) -> None:
        """Note in the turns of loads apart that ``keys`` will be written or deleted."""
        if self.turns.open:
            for key in keys:
                self.turns.supersede(_apart(self._keys.adapt(key)))

    def reconcile(self, key: Any, value: Any) -> None:
        """Drop the entry of ``key`` unless its value equals ``value``, which was just read from the source (MISSING if
        there was none). A load in progress does not store its value, since either value may be the older one."""
        key = self._keys.adapt(key)
        self.turns.supersede(key)
        self.drop_other(key, value)

    # Monitoring and lifecycle.

    def keys_in_progress(self) -> list[Any]:
        """Return the keys that are being loaded. Deleting a pattern deletes them, too."""
        return list(self.turns.open)

    @property
    def is_idle(self) -> bool:
        """Whether no load is in progress and no refresh waits for a thread."""
        return not self.turns.open

    def forget_failures(self) -> None:
        """Forget which loads failed, since the cache is cleared: every key may be loaded again immediately."""
        self.backoff.clear()

    def after_fork_in_child(self) -> None:
        """Forget the loads and refreshes, whose callers and threads are in the parent process."""
        self.turns.after_fork_in_child()

    def close(self) -> None:
        """Let the loads in progress fail quietly with the error of the core's gate, which is shut for good."""
        self.is_closed = True
        self.forget_failures()


def _apart(key: Any) -> tuple[str, Any]:
    """Return the key of the turns of loads apart, for a key of the core."""
    return "load", key


def _is_same(one: Any, other: Any) -> bool:
    """Return whether two values are known to be equal. They may have an ``__eq__`` of their own."""
    try:
        return one is other or (type(one) is type(other) and bool(one == other))
    except Exception:
        return False
