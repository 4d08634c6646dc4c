"""Measures setting and cancelling one timer among a thousand and among a million, through the public API.

One operation cancels the timer of a random key and sets it again, due in 2 to 62 minutes. So the number of timers is
constant, and no timer expires during the measurement.

At 1,000 and 1,000,000 timers, ``Timers`` executes the same number of bytecodes, which is counted. The remaining
difference is memory: in a large wheel, the neighbors of a timer are not in the processor's cache.

The peers keep cancelled timers in their heap and remove them occasionally. Therefore their figure is the mean over as
many operations as there are timers, which includes one complete removal. ``Timers`` can be called by any thread, the
peers by only one.
"""

import asyncio
import heapq
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import count, islice
from time import thread_time_ns
from types import FrameType
from typing import Any

from benchmarks.report import Section, by_core, costlier, faster
from benchmarks.timing import Contender, Round, Step, interleaved
from wheelcache import ManualClock
from wheelcache.timers import Timers

FEW = 1_000
MANY = 1_000_000
OPERATIONS = 1_000
ROUNDS = 200
CYCLE_ROUNDS = MANY // OPERATIONS
TRACED_OPERATIONS = 500
STEPS = ROUNDS + CYCLE_ROUNDS + 5

SOONEST = 120.0
LATEST = 3_720.0

INTERVAL = 1.0

FEW_NAME = "Timers at 1,000"
MANY_NAME = "Timers at 1,000,000"
HEAP = "heapq with lazy deletion"
CALL_LATER = "loop.call_later"

Operation = tuple[int, float]
"""The key whose timer is cancelled, and the delay of its new one, in seconds."""


def operations(timers: int) -> Iterator[Operation]:
    """Yield operations with random delays, which are the same for every number of timers."""
    victims, delays = random.Random(1), random.Random(2)
    while True:
        yield int(victims.random() * timers), delays.uniform(SOONEST, LATEST)


class TimersOf:
    """``Timers`` with ``size`` timers."""

    def __init__(self, size: int) -> None:
        self._timers = Timers(INTERVAL, _never, clock=ManualClock())
        for key, (_, delay) in zip(_shuffled(size), operations(size), strict=False):
            self._timers.set_timer(key, None, delay)

    def replace_each(self, batch: Sequence[Operation]) -> int:
        remove, set_timer = self._timers.remove_timer, self._timers.set_timer
        started = thread_time_ns()
        for key, delay in batch:
            remove(key)
            set_timer(key, None, delay)
        return thread_time_ns() - started


class HeapEntry:
    """A timer in ``Heap``."""

    __slots__ = ("cancelled", "key", "value")

    def __init__(self, key: int, value: object) -> None:
        self.key = key
        self.value = value
        self.cancelled = False


class Heap:
    """Timers by key in a heap, cancelled by a mark. If more than half are cancelled, the heap is rebuilt without them,
    as in asyncio.

    The items are tuples (due, number, entry), which C compares.
    """

    def __init__(self) -> None:
        self._entries: dict[int, HeapEntry] = {}
        self._heap: list[tuple[float, int, HeapEntry]] = []
        self._numbers = count()
        self._dead = 0

    def set_timer(self, key: int, value: object, due: float) -> None:
        entry = self._entries[key] = HeapEntry(key, value)
        heapq.heappush(self._heap, (due, next(self._numbers), entry))

    def remove_timer(self, key: int) -> None:
        self._entries.pop(key).cancelled = True
        self._dead += 1
        heap = self._heap
        if self._dead * 2 > len(heap):
            self._heap = [item for item in heap if not item[2].cancelled]
            heapq.heapify(self._heap)
            self._dead = 0
        while self._heap[0][2].cancelled:
            heapq.heappop(self._heap)
            self._dead -= 1


class HeapOf:
    """A heap with ``size`` timers."""

    def __init__(self, size: int) -> None:
        self._heap = Heap()
        for key, (_, delay) in zip(_shuffled(size), operations(size), strict=False):
            self._heap.set_timer(key, None, delay)

    def replace_each(self, batch: Sequence[Operation]) -> int:
        remove, set_timer = self._heap.remove_timer, self._heap.set_timer
        started = thread_time_ns()
        for key, delay in batch:
            remove(key)
            set_timer(key, None, delay)
        return thread_time_ns() - started


class LoopOf:
    """An event loop with ``size`` pending ``call_later``. It runs once after each round, and then removes cancelled
    timers."""

    def __init__(self, runner: asyncio.Runner, size: int) -> None:
        self._runner = runner
        loop = runner.get_loop()
        self.handles = [loop.call_later(delay, _nothing) for _, delay in islice(operations(size), size)]
        random.Random(3).shuffle(self.handles)

    def replace_each(self, batch: Sequence[Operation]) -> int:
        return self._runner.run(self._replace_each(batch))

    async def _replace_each(self, batch: Sequence[Operation]) -> int:
        handles, call_later = self.handles, asyncio.get_running_loop().call_later
        started = thread_time_ns()
        for index, delay in batch:
            handles[index].cancel()
            handles[index] = call_later(delay, _nothing)
        await asyncio.sleep(0)
        return thread_time_ns() - started


def executed_bytecodes(work: Callable[[Sequence[Operation]], object], batch: Sequence[Operation]) -> float:
    """Return the bytecodes per operation, counted one by one as the interpreter executes them."""
    executed = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal executed
        frame.f_trace_opcodes = True
        if event == "opcode":
            executed += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work(batch)
    finally:
        sys.settrace(before)
    return executed / len(batch)


def measure(step: Step) -> Section:
    few, many = TimersOf(FEW), TimersOf(MANY)
    step()
    own = interleaved(
        [
            _contender(FEW_NAME, few.replace_each, FEW),
            _contender(MANY_NAME, many.replace_each, MANY),
        ],
        ROUNDS,
        step,
    )
    counted = {
        FEW_NAME: executed_bytecodes(few.replace_each, list(islice(operations(FEW), TRACED_OPERATIONS))),
        MANY_NAME: executed_bytecodes(many.replace_each, list(islice(operations(MANY), TRACED_OPERATIONS))),
    }
    step()
    heap = HeapOf(MANY)
    step()
    with asyncio.Runner() as runner:
        loop = LoopOf(runner, MANY)
        step()
        peers = interleaved(
            [
                _contender(MANY_NAME, many.replace_each, MANY),
                _contender(HEAP, heap.replace_each, MANY),
                _contender(CALL_LATER, loop.replace_each, MANY),
            ],
            CYCLE_ROUNDS,
            step,
        )
        # Before the loop closes, so that its million handles are freed together instead of one by one.
        loop.handles.clear()
    step()
    operation = "Timers, set + cancel at 1,000,000"
    return Section(
        "Timers",
        f"Nanoseconds for one set and one cancel. Compared with Timers at 1,000: median of {ROUNDS} interleaved rounds "
        f"of {OPERATIONS:,}. Compared with the others: mean of {CYCLE_ROUNDS:,} such rounds, which include one removal "
        "of all cancelled timers.",
        [
            # With the compiled core, most of the difference is memory: see the module's docstring.
            costlier(operation, own[MANY_NAME].median, FEW_NAME, own[FEW_NAME].median),
            costlier(
                "bytecodes per set + cancel", counted[MANY_NAME], FEW_NAME, counted[FEW_NAME], by_core(compiled=1), ""
            ),
            costlier(operation, peers[MANY_NAME].mean, HEAP, peers[HEAP].mean, by_core(compiled=1)),
            costlier(operation, peers[MANY_NAME].mean, CALL_LATER, peers[CALL_LATER].mean, by_core(compiled=1)),
            faster("the same, without that removal (median)", peers[MANY_NAME].median, HEAP, peers[HEAP].median),
            faster(
                "the same, without that removal (median)",
                peers[MANY_NAME].median,
                CALL_LATER,
                peers[CALL_LATER].median,
            ),
        ],
        {"sizes": own, "bytecodes": counted, "peers": peers},
    )


def _contender(name: str, work: Round, timers: int) -> Contender:
    batches = operations(timers)
    return Contender(name, work, lambda: list(islice(batches, OPERATIONS)))


def _shuffled(size: int) -> list[int]:
    """Return the keys in random order. As in a wheel in use, neighbors in a slot are then not neighbors in memory."""
    keys = list(range(size))
    random.Random(3).shuffle(keys)
    return keys


def _never(key: int, value: object) -> None:
    """Do nothing. This is never called, since no timer expires."""


def _nothing() -> None:
    """Do nothing. This is the callback of the loop's timers, none of which expires."""
