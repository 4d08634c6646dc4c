"""Lets the code for loading be written once, for threads and for tasks: as generators of *steps*.

A generator yields each step that may block. A driver carries the step out and sends the result back: ``run`` in a
thread, ``run_async`` in a task. Errors are passed as values in both directions, in an ``Outcome``, since a generator
cannot raise a StopIteration. If an exception interrupts a driver, it closes the generator, whose ``finally`` clauses
clean up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator
from functools import wraps
from inspect import Signature, isawaitable, signature
from threading import TIMEOUT_MAX
from types import GeneratorType
from typing import Any, Final, Generic, TypeVar, overload

from wheelcache.runtime.alarm import Alarm
from wheelcache.runtime.clock import SystemClock
from wheelcache.runtime.reusable import USUAL, check_reusable, read_once

Outcome = tuple[Any, BaseException | None]
"""A value, or an error to raise instead."""


class Call:
    """A step that calls ``loader()``, and sends an Outcome: a TypeError if the result can be read only once.

    ``drive`` itself calls it: a loader may load another value, and so on, to the depth that Python's limit of recursion
    allows. Every function between two loaders would reduce that depth.

    Args:
        per_driver: the argument of ``loader``, which depends on the driver; None to call it without an argument.
    """

    __slots__ = ("loader", "per_driver")

    def __init__(self, loader: Callable[..., Any], per_driver: PerDriver | None = None) -> None:
        self.loader = loader
        self.per_driver = per_driver

    async def run_async(self) -> Outcome:
        try:
            value = self.loader() if self.per_driver is None else self.loader(self.per_driver.by_task)
            if isawaitable(value):
                value = await value
            return _checked(value), None
        except BaseException as error:
            return None, error


def _checked(value: Any) -> Any:
    if type(value) is Later:
        # Nothing awaits it.
        raise read_once(value.awaitable)
    check_reusable(value)
    return value


class InSteps:
    """A loader that is written as steps."""

    __slots__ = ("steps",)

    def __init__(self, steps: Callable[[], Steps]) -> None:
        self.steps = steps


Loader = Callable[[], Any] | InSteps


class Wait:
    """A step that waits for an alarm until ``deadline`` on the system's clock; None for no limit."""

    __slots__ = ("_alarm", "_deadline")

    def __init__(self, alarm: Alarm, deadline: float | None) -> None:
        self._alarm = alarm
        self._deadline = deadline

    def run(self) -> None:
        self._alarm.wait(seconds_until(self._deadline))

    async def run_async(self) -> None:
        await self._alarm.wait_async(seconds_until(self._deadline))


class PerDriver:
    """A step that sends ``by_thread`` or ``by_task``, depending on the driver."""

    __slots__ = ("by_task", "by_thread")

    def __init__(self, by_thread: Any, by_task: Any) -> None:
        self.by_thread = by_thread
        self.by_task = by_task

    def run(self) -> Any:
        return self.by_thread

    async def run_async(self) -> Any:
        return self.by_task


class ToTheEnd:
    """A step that drives other steps to their end, even if its task is cancelled, and sends an Outcome.

    After a cancellation, another task continues the steps, and calls ``after`` at the end: many async methods run a
    blocking method in a thread, which a cancellation does not stop.
    """

    __slots__ = ("_after", "_steps")

    def __init__(self, steps: StepsTo[Any], after: Callable[[asyncio.Future[Any]], object]) -> None:
        self._steps = steps
        self._after = after

    def run(self) -> Outcome:
        try:
            return drive(self._steps), None
        except BaseException as error:
            return None, error

    async def run_async(self) -> Outcome:
        driving = asyncio.ensure_future(drive_async(self._steps))
        try:
            return await asyncio.shield(driving), None
        except BaseException as error:
            if not isinstance(error, Exception):
                driving.add_done_callback(self._after)
            return None, error


T = TypeVar("T")
StepsTo = Generator[Call | Wait | PerDriver | ToTheEnd, Any, T]
Steps = StepsTo[Outcome]


def call(loader: Loader) -> Steps:
    """Run a loader. Return its outcome."""
    try:
        if isinstance(loader, InSteps):
            return (yield from loader.steps())
        outcome: Outcome = yield Call(loader)
        return outcome
    except GeneratorExit:
        raise
    except BaseException as error:
        return None, error


def step(function: Callable[[], Any]) -> StepsTo[Any]:
    """Return the result of ``function()``. In a task, it is awaited."""
    return result((yield Call(function)))


def outcome_of(steps: StepsTo[Any]) -> Steps:
    """Return the result of ``steps`` as an outcome."""
    return (yield from steps), None


@overload
def drive(steps: StepsTo[T]) -> T: ...
@overload
def drive(steps: T) -> T: ...
def drive(steps: Any) -> Any:
    """Drive ``steps`` in this thread, and return their result. Return anything else as it is."""
    if type(steps) is not GeneratorType:
        return steps
    sent: Any = None
    try:
        while True:
            step = steps.send(sent)
            if type(step) is not Call:
                sent = step.run()
                continue
            try:
                value = step.loader() if step.per_driver is None else step.loader(step.per_driver.by_thread)
                sent = (value if type(value) in USUAL else _checked(value)), None
            except BaseException as error:
                sent = None, error
    except StopIteration as end:
        return end.value
    finally:
        # An error in it, its traceback and this frame would be a cycle.
        sent = value = None
        steps.close()


@overload
async def drive_async(steps: StepsTo[T]) -> T: ...
@overload
async def drive_async(steps: T) -> T: ...
async def drive_async(steps: Any) -> Any:
    """Do the same in the running task."""
    if type(steps) is not GeneratorType:
        return steps
    try:
        step = next(steps)
        while True:
            step = steps.send(await step.run_async())
    except StopIteration as end:
        return end.value
    finally:
        steps.close()


def after(function: Callable[[Any], T], found: Any) -> T | StepsTo[T]:
    """Return ``function(found)``; if ``found`` is steps, steps to ``function`` of their result."""
    return _after(function, found) if type(found) is GeneratorType else function(found)


def in_steps(found: StepsTo[T] | T) -> StepsTo[T]:
    """Return the result of steps, and anything else as it is, as steps."""
    return (yield from found) if type(found) is GeneratorType else found  # type: ignore[return-value]


def _after(function: Callable[[Any], T], steps: StepsTo[Any]) -> StepsTo[T]:
    return function((yield from steps))


def run(steps: Steps) -> Any:
    """Drive ``steps`` in this thread, and return the value of their outcome.

    Callers that a loader may call again write this out: see ``Call``.
    """
    return result(drive(steps))


async def run_async(steps: Steps) -> Any:
    """Drive ``steps`` in the running task, and return the value of their outcome."""
    return result(await drive_async(steps))


def result(outcome: Outcome) -> Any:
    """Return the value of ``outcome``, or raise its error."""
    # Nothing here keeps an error in a variable: error, traceback and frame would be a cycle.
    if outcome[1] is None:
        return outcome[0]
    try:
        raise outcome[1]
    finally:
        del outcome


def call_now(function: Callable[..., Any], *args: Any) -> Any:
    """Return ``function(*args)``."""
    return function(*args)


def as_it_is(value: Any) -> Any:
    """Return ``value``."""
    return value


def twins(
    steps: Callable[..., Any], value_of: Callable[[Any], Any] | None = None
) -> tuple[Callable[..., Any], Callable[..., Coroutine[Any, Any, Any]]]:
    """Return a method that drives ``steps`` in threads, and its twin for coroutines, whose name begins with an "a".

    Args:
        value_of: returns the result of the methods, given that of the steps: ``result`` if they return outcomes.
    """
    name = steps.__name__.removeprefix("_")

    @wraps(steps)
    def by_thread(*args: Any, **kwargs: Any) -> Any:
        found = drive(steps(*args, **kwargs))
        return found if value_of is None else value_of(found)

    @wraps(steps)
    async def by_task(*args: Any, **kwargs: Any) -> Any:
        found = await drive_async(steps(*args, **kwargs))
        return found if value_of is None else value_of(found)

    by_thread.__name__, by_task.__name__ = name, f"a{name}"
    # Callers receive the result of the steps.
    shown = signature(steps).replace(return_annotation=Signature.empty)
    vars(by_thread)["__signature__"] = vars(by_task)["__signature__"] = shown
    return by_thread, by_task


class Later(Generic[T]):
    """An awaitable: awaits ``awaitable``, and then the result of ``function`` if that is awaitable, too."""

    __slots__ = ("_function", "awaitable")

    def __init__(self, function: Callable[[Any], T], awaitable: Awaitable[Any]) -> None:
        self._function = function
        self.awaitable = awaitable

    def __await__(self) -> Generator[Any, None, T]:
        return self._run().__await__()

    async def _run(self) -> T:
        outcome: Any = self._function(await self.awaitable)
        return await outcome if isawaitable(outcome) else outcome  # type: ignore[no-any-return]


def then(function: Callable[[Any], T], value: Any) -> T | Later[T]:
    """Return ``function(value)``; if ``value`` is awaitable, an awaitable of it."""
    return Later(function, value) if isawaitable(value) else function(value)


BLOCKS: Final = PerDriver(True, False)

PAUSE: Final = Call(lambda pause: pause(0), PerDriver(as_it_is, asyncio.sleep))
"""Lets other tasks run."""


def seconds_until(deadline: float | None) -> float | None:
    """Return the seconds left, at most as many as a lock can wait: some 292 years."""
    return None if deadline is None else min(max(0.0, deadline - SystemClock.steady()), TIMEOUT_MAX)
