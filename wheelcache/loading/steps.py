"""Loading is written once, as generators of steps, and driven by threads (``run``) or by tasks (``run_async``).

A step's errors are sent into the generator as values, since a generator may not let a StopIteration pass, and a
generator returns the error that its driver is to raise. An exception that interrupts a driver closes the generator,
whose ``finally`` clauses end what it has begun.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from inspect import isawaitable
from threading import TIMEOUT_MAX
from typing import Any, TypeVar

from wheelcache.loading.wait_graph import Lead, Leading
from wheelcache.runtime.alarm import Alarm
from wheelcache.runtime.clock import SystemClock

Outcome = tuple[Any, BaseException | None]
"""A value, or an error to raise in its place."""


class Call:
    """Run a loader as the given leads. Sends an Outcome."""

    __slots__ = ("_leads", "_loader")

    def __init__(self, loader: Callable[[], Any], leads: tuple[Lead, ...]) -> None:
        self._loader = loader
        self._leads = leads

    def run(self) -> Outcome:
        try:
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


T = TypeVar("T")
StepsTo = Generator[Call | Wait, Any, T]
Steps = StepsTo[Outcome]


def run(steps: Steps) -> Any:
    """Drive ``steps`` in this thread. What they return."""
    # Nothing here keeps an error in a variable: error, traceback and frame would be a cycle.
    try:
        step = next(steps)
        while True:
            step = steps.send(step.run())
    except StopIteration as end:
        outcome = end.value
    finally:
        steps.close()
    if outcome[1] is None:
        return outcome[0]
    try:
        raise outcome[1]
    finally:
        del outcome


async def run_async(steps: Steps) -> Any:
    """Drive ``steps`` in the running task. What they return."""
    try:
        step = next(steps)
        while True:
            step = steps.send(await step.run_async())
    except StopIteration as end:
        outcome = end.value
    finally:
        steps.close()
    if outcome[1] is None:
        return outcome[0]
    try:
        raise outcome[1]
    finally:
        del outcome


def seconds_until(deadline: float | None) -> float | None:
    """Seconds left, clamped to what a lock can wait: some 292 years."""
    return None if deadline is None else min(max(0.0, deadline - SystemClock.steady()), TIMEOUT_MAX)
