"""Lets the code for loading be written once, for threads and for tasks: as generators of *steps*.

A generator yields each step that may block. A driver carries the step out and sends the result back: ``run`` in a
thread, ``run_async`` in a task. Errors are passed as values in both directions, in an ``Outcome``, since a generator
cannot raise a StopIteration. If an exception interrupts a driver, it closes the generator, whose ``finally`` clauses
clean up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from inspect import isawaitable
from threading import TIMEOUT_MAX
from types import GeneratorType
from typing import Any, Final, Protocol, TypeVar, overload

from wheelcache.runtime.alarm import Alarm
from wheelcache.runtime.clock import SystemClock
from wheelcache.runtime.reusable import USUAL, check_reusable

Outcome = tuple[Any, BaseException | None]
"""A value, or an error to raise instead."""


class Call:
    """A step that calls ``loader()``, and sends an Outcome: a TypeError if the result can be read only once.

    ``drive`` itself calls it: a loader may load another value, and so on, to the depth that Python's limit of recursion
    allows. Every function between two loaders would reduce that depth.
    """

    __slots__ = ("loader",)

    def __init__(self, loader: Callable[[], Any]) -> None:
        self.loader = loader

    async def run_async(self) -> Outcome:
        try:
            value = self.loader()
            if isawaitable(value):
                value = await value
            check_reusable(value)
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


class Pause:
    """A step that lets other tasks run."""

    __slots__ = ()

    def run(self) -> None:
        pass

    async def run_async(self) -> None:
        await asyncio.sleep(0)


class Step(Protocol):
    """A step of any other kind sends the result of one of these methods."""

    def run(self) -> Any: ...
    async def run_async(self) -> Any: ...


T = TypeVar("T")
StepsTo = Generator[Call | Step, Any, T]
"""A generator of steps, whose result is a T. A driver runs it, for a thread or for a task."""
Steps = StepsTo[Outcome]
"""Steps to the outcome of a load."""


def call(loader: InSteps) -> Steps:
    """Run a loader. Return its outcome."""
    try:
        return (yield from loader.steps())
    except GeneratorExit:
        raise
    except BaseException as error:
        return None, error


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
                value = step.loader()
                if type(value) not in USUAL:
                    check_reusable(value)
                sent = value, None
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


def as_it_is(value: Any) -> Any:
    """Return ``value``."""
    return value


BLOCKS: Final = PerDriver(True, False)
"""A step that returns whether the driver blocks its thread while it waits."""

PAUSE: Final = Pause()


def seconds_until(deadline: float | None) -> float | None:
    """Return the seconds left, at most as many as a lock can wait: some 292 years."""
    return None if deadline is None else min(max(0.0, deadline - SystemClock.steady()), TIMEOUT_MAX)
