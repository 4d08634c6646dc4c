"""Lets the code for loading be written once, for threads and for tasks: as generators of *steps*.

A generator yields each step that may block. A driver carries the step out and sends the result back: ``run`` in a
thread, ``run_async`` in a task. Errors are passed as values in both directions, in an ``Outcome``, since a generator
cannot raise a StopIteration. If an exception interrupts a driver, it closes the generator, whose ``finally`` clauses
clean up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from functools import wraps
from inspect import Signature, isawaitable, signature
from threading import TIMEOUT_MAX
from typing import Any, Final, TypeVar

from wheelcache.loading.wait_graph import Lead, Leading
from wheelcache.runtime.alarm import Alarm
from wheelcache.runtime.clock import SystemClock

Outcome = tuple[Any, BaseException | None]
"""A value, or an error to raise instead."""


class Call:
    """A step that runs a loader on behalf of ``leads``, and sends an Outcome."""

    __slots__ = ("_leads", "_loader")

    def __init__(self, loader: Callable[[], Any], leads: tuple[Lead, ...] = ()) -> None:
        self._loader = loader
        self._leads = leads

    def run(self) -> Outcome:
        try:
            if not self._leads:
                return self._loader(), None
            with Leading(self._leads):
                return self._loader(), None
        except BaseException as error:
            return None, error

    async def run_async(self) -> Outcome:
        try:
            with Leading(self._leads):
                value = self._loader()
                if isawaitable(value):
                    value = await value
                return value, None
        except BaseException as error:
            return None, error


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


class ByDriver:
    """A step that sends ``by_thread`` or ``by_task``, depending on the driver."""

    __slots__ = ("_by_task", "_by_thread")

    def __init__(self, by_thread: Any, by_task: Any) -> None:
        self._by_thread = by_thread
        self._by_task = by_task

    def run(self) -> Any:
        return self._by_thread

    async def run_async(self) -> Any:
        return self._by_task


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
StepsTo = Generator[Call | Wait | ByDriver | ToTheEnd, Any, T]
Steps = StepsTo[Outcome]


def call(loader: Loader, leads: tuple[Lead, ...] = ()) -> Steps:
    """Run a loader on behalf of ``leads``. Return its outcome."""
    if not isinstance(loader, InSteps):
        outcome: Outcome = yield Call(loader, leads)
        return outcome
    try:
        with Leading(leads):
            return (yield from loader.steps())
    except GeneratorExit:
        raise
    except BaseException as error:
        return None, error


def outcome_of(steps: StepsTo[Any]) -> Steps:
    """Return the result of ``steps`` as an outcome."""
    return (yield from steps), None


def drive(steps: StepsTo[T]) -> T:
    """Drive ``steps`` in this thread, and return their result."""
    try:
        step = next(steps)
        while True:
            step = steps.send(step.run())
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    finally:
        steps.close()


async def drive_async(steps: StepsTo[T]) -> T:
    """Drive ``steps`` in the running task, and return their result."""
    try:
        step = next(steps)
        while True:
            step = steps.send(await step.run_async())
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    finally:
        steps.close()


def run(steps: Steps) -> Any:
    """Drive ``steps`` in this thread, and return the value of their outcome."""
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


def twins(
    steps: Callable[..., Any], by_threads: Callable[[Any], Any] = drive, by_tasks: Callable[[Any], Any] = drive_async
) -> tuple[Callable[..., Any], Callable[..., Coroutine[Any, Any, Any]]]:
    """Return a method that drives ``steps`` in threads, and its twin for coroutines, whose name begins with an "a"."""
    name = steps.__name__.removeprefix("_")

    @wraps(steps)
    def by_thread(*args: Any, **kwargs: Any) -> Any:
        return by_threads(steps(*args, **kwargs))

    @wraps(steps)
    async def by_task(*args: Any, **kwargs: Any) -> Any:
        return await by_tasks(steps(*args, **kwargs))

    by_thread.__name__, by_task.__name__ = name, f"a{name}"
    # Callers receive the result of the steps.
    shown = signature(steps).replace(return_annotation=Signature.empty)
    vars(by_thread)["__signature__"] = vars(by_task)["__signature__"] = shown
    return by_thread, by_task


def then(function: Callable[[Any], T], value: Any) -> T | Coroutine[Any, Any, T]:
    """Return ``function(value)``; if ``value`` is awaitable, a coroutine that awaits it first."""

    async def awaited() -> T:
        return function(await value)

    return awaited() if isawaitable(value) else function(value)


BLOCKS: Final = ByDriver(True, False)


def seconds_until(deadline: float | None) -> float | None:
    """Return the seconds left, at most as many as a lock can wait: some 292 years."""
    return None if deadline is None else min(max(0.0, deadline - SystemClock.steady()), TIMEOUT_MAX)
