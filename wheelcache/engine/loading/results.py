"""The result of a load: its value is stored, or its error recorded, its turn ends, and the waiters go on."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from wheelcache.core.contract import MISSING, STORED, Core, Watch
from wheelcache.engine.loading.backoff import Backoff
from wheelcache.engine.loading.request import LoadRequest, Stored, Tagged, Target, Unstored
from wheelcache.engine.loading.steps import Outcome
from wheelcache.engine.observer import Observer
from wheelcache.engine.stats import Meter
from wheelcache.engine.turns import End, Turn

logger = logging.getLogger("wheelcache")


@dataclass(slots=True, eq=False)
class Results:
    """Handles the results of the loads of one cache.

    Args:
        counts, backoff: the counts of loads, and the keys whose refreshes fail.
        start_jobs: called at a failed load, since a cache whose loads all fail has no writes.

    Attributes:
        is_left_out: decides whether the loads of a key of the core are not counted; None if all are counted.
        observer: records the loads and the exceptions; None if nothing observes the cache.
    """

    _core: Core
    _target: Target
    _counts: Meter
    _backoff: Backoff
    _start_jobs: Callable[[], object]
    is_left_out: Callable[[Any], bool] | None = None
    observer: Observer | None = None

    def finish(self, turn: Turn, request: LoadRequest, value: Any) -> Any:
        """Store a loaded value, and end the turn with it. Return the value.

        Args:
            value: the stored form of the value, which may be Unstored or Tagged. MISSING if there is none to store.

        Raises:
            Exception: an error of the weigher, with which the turn has ended.
        """
        stored: Stored | None = None
        turn.loader_returned = True
        try:
            if value is MISSING:
                # The store has no value.
                pass
            elif type(value) is Unstored:
                request.is_computed &= value.is_computed
                value = value.value
            else:
                if type(value) is Tagged:
                    turn.names = request.names = self._target.tag_names(turn.key, value.tags)
                    value = value.value
                # A turn that is ALONE has no watch.
                if turn.watch is not None and turn.ended is None and not turn.is_superseded:
                    stored = self._store(turn, request, value)
            if turn.is_superseded or (request.policy.is_for_outages and (stored is None or not stored[0] & STORED)):
                # Drop an older value before the caller continues: a thread that superseded the turn may be slower. A
                # watch that was broken between its beginning and that of the turn shows a store of such a value.
                self.drop_other(turn.key, value)
            # A store counts its reads itself.
            if request.is_computed and request.policy.is_counted_by_store is None:
                self.count(request.watched, self._core.now() - request.started, "loads", request.group)
            if self._backoff.failures:
                self._backoff.succeeded(turn.key)
            turn.end(End.VALUE, value)
        except BaseException as error:
            self.fail(turn, request, error)
            raise
        if stored is not None and (stored[0] != self._target.usual_outcome or not self._target.is_plain):
            self._target.announce(*stored)
        return value

    def outcome(self, turn: Turn, request: LoadRequest, value: Any) -> Outcome:
        """Do the same as ``finish``, and return an error instead of raising it."""
        # Not in the callers: Python raises a signal's exception at a nested ``try``, outside of the outer one.
        try:
            return self.finish(turn, request, value), None
        except BaseException as error:
            return None, error

    def _store(self, turn: Turn, request: LoadRequest, value: Any) -> Stored | None:
        policy = request.policy
        ttl: float | None
        if policy.lifetime is not None:
            ttl, grace = policy.lifetime(turn.key)
        elif value is not None:
            ttl, grace = request.ttl, policy.stale.seconds
        else:
            ttl, grace = request.lifetime(value)
        if ttl is not None and ttl <= 0:
            # An older value that is kept past its time must not be returned after this one.
            self._target.discard(turn.key)
            return None
        return self._target.store(turn.key, value, ttl, grace, cast("Watch", turn.watch), request.names, request.group)

    def count(self, key: Any, seconds: float, name: str, group: str | None = None) -> None:
        """Count a load of ``key``, a key of the core, that took ``seconds``, under ``name``, and for the group of the
        key or the given one. Every load is counted here."""
        if self.is_left_out is not None and self.is_left_out(key):
            return
        # The time is negative if a test has moved the clock back.
        seconds = max(0.0, seconds)
        self._counts.ended(seconds, name)
        self._core.count_load(key, seconds, group=group)
        if self.observer is not None:
            self.observer.loaded(key, seconds)

    def computed(self, key: Any, seconds: float, error: BaseException | None, group: str | None = None) -> None:
        """Count a load of ``key`` that a caller made for itself, and that ended after ``seconds``."""
        self.count(key, seconds, "loads" if error is None else "load_failures", group)
        if error is not None:
            self._note(error)

    def _note(self, error: BaseException) -> None:
        """Record ``error``, unless it concerns only the leader of the load, such as a cancellation or an exit."""
        if isinstance(error, Exception):
            if self.observer is not None:
                self.observer.failed(error)
            self._start_jobs()

    def drop_other(self, key: Any, value: Any) -> None:
        """Delete the entry of ``key`` unless its value is known to equal ``value``, which was read from the source."""
        record = self._core.peek(key)
        if record is not None and not _is_same(record.value, value):
            self._target.delete(key)

    def fail(self, turn: Turn, request: LoadRequest, error: BaseException, *, is_logged: bool = False) -> None:
        """End the turn with an error of the loader, and log it for callers that have joined, unless ``is_logged``."""
        if not request.policy.shares(error):
            turn.end(End.AGAIN)
            return
        is_first = turn.ended is None
        is_counted_by_store = request.policy.is_counted_by_store
        is_failed_load = is_first and not (is_counted_by_store and is_counted_by_store(error))
        # A waiter may remove the traceback.
        exc_info = type(error), error, error.__traceback__
        if is_failed_load:
            self.count(request.watched, self._core.now() - request.started, "load_failures", request.group)
        turn.end(End.ERROR, error)
        if is_failed_load:
            self._note(error)
        if is_first and turn.is_joined and isinstance(error, Exception) and not is_logged:
            logger.warning(
                "Loading %r into the cache %r failed; the callers that wait for it receive copies of the error.",
                request.caller_key,
                self._target.name,
                exc_info=exc_info,
            )

    def found_nothing(self, turn: Turn, request: LoadRequest) -> None:
        """End the turn on a key that a load of many keys did not find. It counts as a load; the waiters look again."""
        if request.policy.is_counted_by_store is None:
            self.count(request.watched, self._core.now() - request.started, "loads", request.group)
        turn.end(End.AGAIN)

    def log_failure(self, request: LoadRequest, error: BaseException, pause: float) -> None:
        """Log an error that is not raised to the caller."""
        logger.warning(
            "Loading %r into the cache %r failed; the next refresh waits for %.1f s.",
            request.caller_key,
            self._target.name,
            pause,
            exc_info=error,
        )


def _is_same(one: Any, other: Any) -> bool:
    """Return whether two values are known to be equal. They may have an ``__eq__`` of their own."""
    try:
        return one is other or (type(one) is type(other) and bool(one == other))
    except Exception:
        return False
