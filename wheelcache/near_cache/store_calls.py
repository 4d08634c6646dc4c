"""The steps that call a store: see ``runtime.steps``.

A function that calls the store receives it as the driver of the steps calls it: in a task, its methods are awaitable.
The function returns a value, an awaitable, or steps to a value, and need not know which driver there is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from inspect import isawaitable
from types import GeneratorType
from typing import TYPE_CHECKING, Any, NamedTuple

from wheelcache.core.contract import MISSING
from wheelcache.engine.codec import NOT_DECODED
from wheelcache.engine.stats import Meter
from wheelcache.errors import StoreUnavailable
from wheelcache.near_cache.written_timeouts import NewTimeout, Started
from wheelcache.runtime.steps import Call, Outcome, StepsTo, drive, drive_async, result

if TYPE_CHECKING:
    from wheelcache.near_cache.guarded_store import GuardedStore


class Stores(NamedTuple):
    """A store, as each driver calls it."""

    by_thread: Any
    by_task: Any


class StoreCall:
    """A step that calls ``function``, and sends an Outcome. See ``GuardedStore`` for the call.

    Args:
        stores: the argument of ``function``; None to call it without an argument.
    """

    __slots__ = ("_function", "_guard", "_meter", "_stores")

    def __init__(self, guard: GuardedStore, meter: Meter, function: Callable[..., Any], stores: Stores | None) -> None:
        self._guard = guard
        self._meter = meter
        self._function = function
        self._stores = stores

    def run(self) -> Outcome:
        try:
            began = self._guard.begin(self._meter)
            try:
                found = drive(self._function() if self._stores is None else self._function(self._stores.by_thread))
            except BaseException as error:
                self._guard.failed(self._meter, began, error)
                raise
            self._guard.succeeded(self._meter, began)
            return found, None
        except BaseException as error:
            return None, error

    async def run_async(self) -> Outcome:
        try:
            began = self._guard.begin(self._meter)
            try:
                found = await drive_async(
                    self._function() if self._stores is None else self._function(self._stores.by_task)
                )
                if isawaitable(found):
                    found = await found
            except BaseException as error:
                self._guard.failed(self._meter, began, error)
                raise
            self._guard.succeeded(self._meter, began)
            return found, None
        except BaseException as error:
            return None, error


class Written(NamedTuple):
    """The effects of a write.

    Attributes:
        keys: the keys whose timeouts it changes.
        new_timeout: their new timeout; None if they keep theirs.
        check: called after a write that has not failed. Returns steps that complete it, or None.
        after_cancellation: receives the future of the write if its task is cancelled.
    """

    keys: Sequence[Any]
    new_timeout: NewTimeout | None
    check: Callable[[], StepsTo[None] | None]
    after_cancellation: Callable[[asyncio.Future[Any]], object]


class StoreWrite(StoreCall):
    """A step that writes to the store. It ends even if its task is cancelled.

    After a cancellation, another task continues it: many async methods run a blocking method in a thread, which a
    cancellation does not stop.
    """

    __slots__ = ("_written",)

    def __init__(
        self, guard: GuardedStore, meter: Meter, function: Callable[..., Any], stores: Stores | None, written: Written
    ) -> None:
        super().__init__(guard, meter, function, stores)
        self._written = written

    def run(self) -> Outcome:
        started, outcome = self._guard.state.timeouts.start(), None
        try:
            outcome = super().run()
        finally:
            self._record(started, outcome)
        if outcome[1] is None and (steps := self._written.check()) is not None:
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
            if not isinstance(error, Exception):
                writing.add_done_callback(self._written.after_cancellation)
            return None, error

    async def _run_to_the_end(self) -> Outcome:
        started, outcome = self._guard.state.timeouts.start(), None
        try:
            outcome = await super().run_async()
        finally:
            self._record(started, outcome)
        if outcome[1] is None and (steps := self._written.check()) is not None:
            try:
                await drive_async(steps)
            except BaseException as error:
                return None, error
        return outcome

    def _record(self, started: Started, outcome: Outcome | None) -> None:
        """Record the timeouts that the write has given to its keys, unless the store was not called."""
        new = self._written.new_timeout
        if new is None or (outcome is not None and isinstance(outcome[1], StoreUnavailable)):
            return
        took_effect = None if outcome is None or outcome[1] is not None else new.took_effect(outcome[0])
        if took_effect is not False:
            self._guard.state.timeouts.end(self._written.keys, started, new, is_certain=took_effect is True)


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
