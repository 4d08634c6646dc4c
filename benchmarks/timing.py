"""Measures contenders in rounds that take turns, and summarizes the rounds.

A round is some hundred calls of one contender. Rounds are short, so other work on the machine affects a few rounds of
every contender instead of one contender. Each round of the measurement runs a round of every contender, in a new random
order. During the measurement, the garbage collector is off, as in ``timeit``. Every figure includes the loop around the
calls; nothing is subtracted. Time is the CPU time of the thread, so other work on the machine adds little. For calls
that wait for other threads, it is elapsed time.
"""

import asyncio
import gc
import random
import statistics
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from time import perf_counter_ns, thread_time_ns
from types import FunctionType
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])

WARM_UP_ROUNDS = 5
"""Rounds that do not count. During these, CPython specializes its bytecode, and caches fill."""

Step = Callable[[], None]
"""Advances the progress bar by one round."""

Round = Callable[[Sequence[Any]], int]
"""Makes one call for each argument. Returns the nanoseconds of all calls."""


@dataclass(frozen=True, slots=True)
class Contender:
    """One of the compared implementations.

    Attributes:
        arguments: returns the arguments of a round; its time does not count.
    """

    name: str
    round: Round
    arguments: Callable[[], Sequence[Any]]


@dataclass(frozen=True, slots=True)
class Timing:
    """The nanoseconds per call, from all rounds of one contender."""

    median: float
    mean: float
    lower_quartile: float
    upper_quartile: float


def calling(call: Callable[[Any], object]) -> Round:
    """Return rounds of ``call(argument)``."""
    return partial(own_bytecode(_call_each), call)


def calling_with_two(call: Callable[[Any, Any], object]) -> Round:
    """Return rounds of ``call(first, second)``; the arguments are pairs."""
    return partial(own_bytecode(_call_each_with_two), call)


def getting(cache: Any) -> Round:
    """Return rounds of ``cache.get(argument)``, which look the attribute up at every call, as a site does."""
    return partial(own_bytecode(_get_each), cache)


def getting_by_alias(caches: Any, alias: str) -> Round:
    """Return rounds of ``caches[alias].get(argument)``."""
    return partial(own_bytecode(_get_each_by_alias), caches, alias)


def awaiting(call: Callable[[Any], Awaitable[object]], runner: asyncio.Runner) -> Round:
    """Return rounds of ``await call(argument)``. Each round is one coroutine, which measures the time."""
    await_each = own_bytecode(_await_each)
    return lambda arguments: runner.run(await_each(call, arguments))


def timed(calls: Callable[[Any, Sequence[Any]], object], cache: Any) -> Round:
    """Return rounds of ``calls(cache, arguments)``, which makes one call for each argument."""

    def time_round(arguments: Sequence[Any]) -> int:
        started = thread_time_ns()
        calls(cache, arguments)
        return thread_time_ns() - started

    return time_round


def interleaved(contenders: Sequence[Contender], rounds: int, step: Step) -> dict[str, Timing]:
    """Measure ``rounds`` rounds of every contender in turns. Call ``step`` after each."""
    shuffled = random.Random(0)
    order = list(contenders)
    measured: dict[str, list[float]] = {contender.name: [] for contender in contenders}
    collecting = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        for number in range(-WARM_UP_ROUNDS, rounds):
            shuffled.shuffle(order)
            for contender in order:
                arguments = contender.arguments()
                nanoseconds = contender.round(arguments)
                if number >= 0:
                    measured[contender.name].append(nanoseconds / len(arguments))
            if number >= 0:
                step()
    finally:
        if collecting:
            gc.enable()
    return {name: _timing(each) for name, each in measured.items()}


def _timing(nanoseconds: list[float]) -> Timing:
    lower, median, upper = statistics.quantiles(nanoseconds, n=4)
    return Timing(median, statistics.fmean(nanoseconds), lower, upper)


def own_bytecode(function: F) -> F:
    """Return a copy of ``function``. CPython specializes the bytecode of a loop for the first contender, which slows
    down the others."""
    assert isinstance(function, FunctionType)
    return cast(F, FunctionType(function.__code__.replace(), function.__globals__))


def _call_each(call: Callable[[Any], object], arguments: Sequence[Any]) -> int:
    started = thread_time_ns()
    for argument in arguments:
        call(argument)
    return thread_time_ns() - started


def _call_each_with_two(call: Callable[[Any, Any], object], arguments: Sequence[Any]) -> int:
    started = thread_time_ns()
    for first, second in arguments:
        call(first, second)
    return thread_time_ns() - started


def _get_each(cache: Any, arguments: Sequence[Any]) -> int:
    started = thread_time_ns()
    for argument in arguments:
        cache.get(argument)
    return thread_time_ns() - started


def _get_each_by_alias(caches: Any, alias: str, arguments: Sequence[Any]) -> int:
    started = thread_time_ns()
    for argument in arguments:
        caches[alias].get(argument)
    return thread_time_ns() - started


async def _await_each(call: Callable[[Any], Awaitable[object]], arguments: Sequence[Any]) -> int:
    started = perf_counter_ns()
    for argument in arguments:
        await call(argument)
    return perf_counter_ns() - started
