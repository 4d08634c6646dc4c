"""Rounds that take turns, and what they add up to.

A round is some hundred calls of one contender, so short that a noisy neighbour hits a few rounds and not a contender.
Each round of the measurement runs one of every contender, in an order shuffled anew. The garbage collector is off
meanwhile, as in ``timeit``. The loop around the calls is in every figure; nothing is subtracted. Time is the CPU time
of the thread, so other work on the machine adds little; where calls wait for other threads, it is elapsed time.
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
"""Not counted: CPython fits its bytecode to what it meets, and caches fill."""

Step = Callable[[], None]
"""Tells the progress bar that one more round is done."""

Round = Callable[[Sequence[Any]], int]
"""Makes one call for each argument; returns the nanoseconds that took."""


@dataclass(frozen=True, slots=True)
class Contender:
    """What is measured.

    Attributes:
        arguments: makes a round's arguments; its time does not count.
    """

    name: str
    round: Round
    arguments: Callable[[], Sequence[Any]]


@dataclass(frozen=True, slots=True)
class Timing:
    """Nanoseconds a call: what the rounds of one contender add up to."""

    median: float
    mean: float
    lower_quartile: float
    upper_quartile: float


def calling(call: Callable[[Any], object]) -> Round:
    """Rounds of ``call(argument)``."""
    return partial(_own_bytecode(_call_each), call)


def calling_with_two(call: Callable[[Any, Any], object]) -> Round:
    """Rounds of ``call(first, second)``; the arguments are pairs."""
    return partial(_own_bytecode(_call_each_with_two), call)


def awaiting(call: Callable[[Any], Awaitable[object]], runner: asyncio.Runner) -> Round:
    """Rounds of ``await call(argument)``, each round one coroutine. The clock runs inside it."""
    await_each = _own_bytecode(_await_each)
    return lambda arguments: runner.run(await_each(call, arguments))


def interleaved(contenders: Sequence[Contender], rounds: int, step: Step) -> dict[str, Timing]:
    """Measure ``rounds`` rounds of every contender, taking turns; a ``step`` after each."""
    shuffled = random.Random(0)
    order = list(contenders)
    taken: dict[str, list[float]] = {contender.name: [] for contender in contenders}
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
                    taken[contender.name].append(nanoseconds / len(arguments))
            if number >= 0:
                step()
    finally:
        if collecting:
            gc.enable()
    return {name: _timing(each) for name, each in taken.items()}


def _timing(nanoseconds: list[float]) -> Timing:
    lower, median, upper = statistics.quantiles(nanoseconds, n=4)
    return Timing(median, statistics.fmean(nanoseconds), lower, upper)


def _own_bytecode(function: F) -> F:
    """A copy: CPython fits the bytecode of a loop to the first that is called in it, which slows down the others."""
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


async def _await_each(call: Callable[[Any], Awaitable[object]], arguments: Sequence[Any]) -> int:
    started = perf_counter_ns()
    for argument in arguments:
        await call(argument)
    return perf_counter_ns() - started
