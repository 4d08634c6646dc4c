"""The steps that call the store behind a near cache: see ``runtime.steps``.

A function that calls the store receives it as the driver of the steps calls it: in a task, its methods are awaitable.
The function returns a value, an awaitable, or steps to a value, and need not know which driver there is.

While the store is down, calls fail immediately instead of after a timeout: see ``CircuitBreaker``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from inspect import isawaitable
from types import GeneratorType
from typing import Any, NamedTuple

from wheelcache.core.contract import MISSING
from wheelcache.engine.codec import NOT_DECODED
from wheelcache.engine.stats import Meter
from wheelcache.errors import StoreUnavailable
from wheelcache.near_cache.outage_rule import OutageRule
from wheelcache.near_cache.store_state import StoreState
from wheelcache.near_cache.written_timeouts import NewTimeout, Started
from wheelcache.runtime.clock import Clock, SystemClock
from wheelcache.runtime.steps import Call, Outcome, StepsTo, drive, drive_async, result

logger = logging.getLogger("wheelcache")


class Stores(NamedTuple):
    """A store, as each driver calls it."""

    by_thread: Any
    by_task: Any


class Guard:
    """Stands before each call of one kind, the reads or the writes of one store, and records it.

    Args:
        name: the name of the cache in front of the store, for logs.
        clock: returns seconds.
        rule: decides which errors are outages.
        state: the knowledge about the store.
        meter: counts the calls.
        start_jobs: called before each call.

    Attributes:
        state: see above.
    """

    __slots__ = ("_clock", "_meter", "_name", "_rule", "_start_jobs", "state")

    def __init__(
        self,
        name: str,
        clock: Clock,
        rule: OutageRule,
        state: StoreState,
        meter: Meter,
        start_jobs: Callable[[], object],
    ) -> None:
        self._name = name
        self._clock = clock
        self._rule = rule
        self.state = state
        self._meter = meter
        self._start_jobs = start_jobs

    def begin(self) -> float:
        """Return the time at which a call begins.

        Raises:
            StoreUnavailable: if the store failed recently, so the call must not be made.
        """
        self._start_jobs()
        began, breaker = self._clock(), self.state.breaker
        if breaker is not None and not breaker.allows(began):
            self._meter.add("refused")
            raise StoreUnavailable(f"the store behind the cache {self._name!r} failed recently and is not called yet")
        return began

    def succeeded(self, began: float) -> None:
        """Record a call that has returned."""
        self._meter.ended(self._clock() - began)
        state = self.state
        if state.outages.began is not None:
            state.outages.succeeded(SystemClock.time())
        if state.breaker is not None and state.breaker.succeeded():
            logger.warning("The store behind the cache %r answers again.", self._name)

    def failed(self, began: float, error: BaseException) -> None:
        """Record a call that has raised ``error``."""
        now, state = self._clock(), self.state
        if not isinstance(error, Exception) or not self._rule.is_outage(error):
            self._meter.ended(now - began)
            return
        self._meter.ended(now - began, "errors")
        state.outages.failed(error, SystemClock.time())
        if state.breaker is not None and state.breaker.failed(now):
            logger.warning(
                "The store behind the cache %r fails (%r); calling it rarely until it answers.", self._name, error
            )


class StoreCall:
    """A step that calls ``function``, and sends an Outcome.

    Args:
        guard: refuses and records the call.
        stores: the argument of ``function``; None to call it without an argument.
    """

    __slots__ = ("_function", "_guard", "_stores")

    def __init__(self, guard: Guard, function: Callable[..., Any], stores: Stores | None = None) -> None:
        self._guard = guard
        self._function = function
        self._stores = stores

    def run(self) -> Outcome:
        try:
            began = self._guard.begin()
            try:
                found = self._function() if self._stores is None else self._function(self._stores.by_thread)
                if type(found) is GeneratorType:
                    found = drive(found)
            except BaseException as error:
                self._guard.failed(began, error)
                raise
            self._guard.succeeded(began)
            return found, None
        except BaseException as error:
            return None, error

    async def run_async(self) -> Outcome:
        try:
            began = self._guard.begin()
            try:
                found = self._function() if self._stores is None else self._function(self._stores.by_task)
                if type(found) is GeneratorType:
                    found = await drive_async(found)
                elif isawaitable(found):
                    found = await found
            except BaseException as error:
                self._guard.failed(began, error)
                raise
            self._guard.succeeded(began)
            return found, None
        except BaseException as error:
            return None, error


class StoreWrite(StoreCall):
    """A step that writes to the store. It ends even if its task is cancelled.

    After a cancellation, another task continues it: many async methods run a blocking method in a thread, which a
    cancellation does not stop.

    Args:
        keys: the keys whose timeouts the write changes.
        new_timeout: their new timeout; None if they keep theirs.

    Attributes:
        complete: called after a write that has not failed. Returns steps that complete it, or None.
        after_cancellation: receives the future of the write if its task is cancelled.
    """

    __slots__ = ("_keys", "_new_timeout", "after_cancellation", "complete")

    def __init__(
        self,
        guard: Guard,
        function: Callable[..., Any],
        stores: Stores | None,
        keys: Sequence[Any],
        new_timeout: NewTimeout | None,
    ) -> None:
        super().__init__(guard, function, stores)
        self._keys = keys
        self._new_timeout = new_timeout
        self.complete: Callable[[], StepsTo[None] | None] | None = None
        self.after_cancellation: Callable[[asyncio.Future[Any]], object] | None = None

    def run(self) -> Outcome:
        started, outcome = self._guard.state.timeouts.start(), None
        try:
            outcome = super().run()
        finally:
            self._record(started, outcome)
        if outcome[1] is None and self.complete is not None and (steps := self.complete()) is not None:
            try:
                drive(steps)
            except BaseException as error:
                return None, error
        return outcome

    async def run_async(self) -> Outcome:
        writing = asyncio.ensure_future(self._run_to_the_end())
        try:
            return await asyncio.shield(writing)
        except BaseException as error:
            if not isinstance(error, Exception) and self.after_cancellation is not None:
                writing.add_done_callback(self.after_cancellation)
            return None, error

    async def _run_to_the_end(self) -> Outcome:
        started, outcome = self._guard.state.timeouts.start(), None
        try:
            outcome = await super().run_async()
        finally:
            self._record(started, outcome)
        if outcome[1] is None and self.complete is not None and (steps := self.complete()) is not None:
            try:
                await drive_async(steps)
            except BaseException as error:
                return None, error
        return outcome

    def _record(self, started: Started, outcome: Outcome | None) -> None:
        """Record the timeouts that the write has given to its keys, unless the store was not called."""
        new = self._new_timeout
        if new is None or (outcome is not None and isinstance(outcome[1], StoreUnavailable)):
            return
        took_effect = None if outcome is None or outcome[1] is not None else new.took_effect(outcome[0])
        if took_effect is not False:
            self._guard.state.timeouts.end(self._keys, started, new, is_certain=took_effect is True)


# For functions that call a store.


def answer(found: Any) -> StepsTo[Any]:
    """Return the result of a call of the store."""
    if type(found) is GeneratorType:
        return (yield from found)
    return result((yield Call(lambda: found))) if isawaitable(found) else found


def then(function: Callable[[Any], Any], found: Any) -> Any:
    """Return ``function(found)``, given the result of a call of the store."""
    return _then(function, found) if type(found) is GeneratorType or isawaitable(found) else function(found)


def _then(function: Callable[[Any], Any], found: Any) -> StepsTo[Any]:
    return (yield from answer(function((yield from answer(found)))))


def read_each(keys: Iterable[str], read: Callable[[str], StepsTo[Any]]) -> StepsTo[dict[str, Any]]:
    """Read many keys by ``read``. Return a dict of the values that were found."""
    found = {}
    for key in keys:
        value = yield from read(key)
        if value is not MISSING:
            found[key] = value
    return found


def unless_undecoded(found: Any, again: StepsTo[Any]) -> StepsTo[Any]:
    """Return the awaitable result ``found``. If it cannot be decoded, return the result of the steps ``again``."""
    try:
        return (yield from answer(found))
    except NOT_DECODED:
        return (yield from again)
