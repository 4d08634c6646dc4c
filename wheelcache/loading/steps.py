"""Loading is written once, as generators of steps, and driven by threads (``run``) or by tasks (``run_async``).

A step's errors are sent into the generator as values, since a generator may not let a StopIteration pass, and a
generator returns the error that its driver is to raise. An exception that interrupts a driver closes the generator,
whose ``finally`` clauses end what it has begun.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from functools import wraps
from inspect import isawaitable
from threading import TIMEOUT_MAX
from typing import Any, Final, TypeVar

from wheelcache.loading.wait_graph import Lead, Leading
from wheelcache.runtime.alarm import Alarm
from wheelcache.runtime.clock import SystemClock

Outcome = tuple[Any, BaseException | None]
"""A value, or an error to raise in its place."""


class Call:
    """Run a loader as the given leads. Sends an Outcome."""

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
    """Wait for an alarm, until ``deadline`` on the system's clock; None for as long as it takes."""

    __slots__ = ("_alarm", "_deadline")

    def __init__(self, alarm: Alarm, deadline: float | None) -> None:
        self._alarm = alarm
        self._deadline = deadline

    def run(self) -> None:
        self._alarm.wait(seconds_until(self._deadline))

    async def run_async(self) -> None:
        await self._alarm.wait_async(seconds_until(self._deadline))


class ByDriver:
    """Send ``by_thread`` or ``by_task``, as the steps are driven."""

    __slots__ = ("_by_task", "_by_thread")

    def __init__(self, by_thread: Any, by_task: Any) -> None:
        self._by_thread = by_thread
        self._by_task = by_task

    def run(self) -> Any:
        return self._by_thread

    async def run_async(self) -> Any:
        return self._by_task


class ToTheEnd:
    """Drive other steps. A task that is cancelled leaves them to another one, which calls ``after`` in the end: many a
    method that is not async runs in a thread, and goes on. Sends an Outcome."""

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
    """Run a loader as the given leads. Return its outcome."""
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
    """Drive ``steps`` in this thread. What they return."""
    try:
        step = next(steps)
        while True:
            step = steps.send(step.run())
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    finally:
        steps.close()


async def drive_async(steps: StepsTo[T]) -> T:
    """Drive ``steps`` in the running task. What they return."""
    try:
        step = next(steps)
        while True:
            step = steps.send(await step.run_async())
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    finally:
        steps.close()


def run(steps: Steps) -> Any:
    """Drive ``steps`` in this thread. The value of their outcome."""
    return result(drive(steps))


async def run_async(steps: Steps) -> Any:
    """Drive ``steps`` in the running task. The value of their outcome."""
    return result(await drive_async(steps))


def result(outcome: Outcome) -> Any:
    """The value, or its error raised."""
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
    """Return a method of ``steps`` for threads, and the same for coroutines, whose name begins with an "a"."""
    name = steps.__name__.removeprefix("_")

    @wraps(steps)
    def by_thread(*args: Any, **kwargs: Any) -> Any:
        return by_threads(steps(*args, **kwargs))

    @wraps(steps)
    async def by_task(*args: Any, **kwargs: Any) -> Any:
        return await by_tasks(steps(*args, **kwargs))

    by_thread.__name__, by_task.__name__ = name, f"a{name}"
    return by_thread, by_task


def then(function: Callable[[Any], T], value: Any) -> T | Coroutine[Any, Any, T]:
    """``function(value)``; of what is to be awaited, a coroutine that returns it."""

    async def awaited() -> T:
        return function(await value)

    return awaited() if isawaitable(value) else function(value)


BLOCKS: Final = ByDriver(True, False)


def seconds_until(deadline: float | None) -> float | None:
    """Seconds left, clamped to what a lock can wait: some 292 years."""
    return None if deadline is None else min(max(0.0, deadline - SystemClock.steady()), TIMEOUT_MAX)
