"""Compares a wheel with rounds and a hierarchical wheel. ``python -m benchmarks.wheel_design`` measures the figures in
the docstring of ``wheelcache.core.timing_wheel``.

200,000 timers wait, with delays spread evenly up to 5 minutes, an hour, a day or 30 days. For a simulated hour, 3,600
ticks of 1 s, both wheels advance tick by tick, in turns. A timer that expires is scheduled again with another delay
from the same range, so the number of timers is constant. A figure is the mean time of ``advance`` over the hour, with
the garbage collector off.
"""

import gc
import random
from time import perf_counter_ns
from typing import Any, Protocol

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from wheelcache import Timer, TimingWheel

TIMERS = 200_000
SLOTS = 512
INTERVAL = 1.0
TICKS = 3_600
TICKS_A_STEP = 100
"""The number of ticks per step of the progress bar, and per turn of a wheel."""

DELAYS = {"5 min": 300.0, "1 hour": 3_600.0, "1 day": 86_400.0, "30 days": 30 * 86_400.0}


class Wheel(Protocol):
    def schedule(self, timer: Timer, due: float) -> None: ...

    def advance(self, now: float) -> list[Timer]: ...


class RoundsWheel:
    """Scheme 6 of Varghese & Lauck: one ring of slots. A timer with a longer delay waits in its slot for its round.

    The slots are linked through the timers, as in ``TimingWheel``, and a visit compares the time of each timer with the
    current time.
    """

    def __init__(self, interval: float, slots: int, now: float) -> None:
        self.interval = interval
        self.origin = now
        self.tick = 0
        self._slots = [Timer() for _ in range(slots)]
        for head in self._slots:
            head.prev = head.next = head

    def schedule(self, timer: Timer, due: float) -> None:
        timer.due = due
        tick = max(self.tick + 1, -int((self.origin - due) // self.interval))
        head = self._slots[tick % len(self._slots)]
        last = head.prev
        assert last is not None
        timer.prev, timer.next = last, head
        last.next = head.prev = timer

    def advance(self, now: float) -> list[Timer]:
        due: list[Timer] = []
        target = int((now - self.origin) // self.interval)
        slots = self._slots
        while self.tick < target:
            self.tick += 1
            tick_time = self.origin + self.tick * self.interval
            head = slots[self.tick % len(slots)]
            timer: Any = head.next
            while timer is not head:
                after = timer.next
                if timer.due <= tick_time:
                    before = timer.prev
                    before.next, after.prev = after, before
                    timer.prev = timer.next = None
                    due.append(timer)
                timer = after
        return due


class Hour:
    """One wheel's simulated hour."""

    def __init__(self, wheel: Wheel, longest: float) -> None:
        self._wheel = wheel
        self._longest = longest
        self._delays = random.Random(0)
        self._now = 0.0
        self._nanoseconds = 0
        for _ in range(TIMERS):
            wheel.schedule(Timer(), self._delays.uniform(0, longest))

    def run(self, ticks: int) -> None:
        advance, schedule, uniform = self._wheel.advance, self._wheel.schedule, self._delays.uniform
        for _ in range(ticks):
            self._now += INTERVAL
            started = perf_counter_ns()
            due = advance(self._now)
            self._nanoseconds += perf_counter_ns() - started
            for timer in due:
                schedule(timer, self._now + uniform(0, self._longest))

    @property
    def microseconds_a_tick(self) -> float:
        return self._nanoseconds / 1_000 / TICKS


def main() -> None:
    console = Console()
    table = Table(
        title="Mean cost of a tick, over a simulated hour", caption=f"{TIMERS:,} timers, {SLOTS} slots of 1 s"
    )
    table.add_column("delays up to")
    for name in ("rounds (scheme 6)", "hierarchy (scheme 7)", "ratio"):
        table.add_column(name, justify="right")
    with Progress(console=console) as progress:
        task = progress.add_task("ticks", total=len(DELAYS) * TICKS)
        for name, longest in DELAYS.items():
            rounds = Hour(RoundsWheel(INTERVAL, SLOTS, 0.0), longest)
            hierarchy = Hour(TimingWheel(INTERVAL, SLOTS, 0.0), longest)
            gc.collect()
            gc.disable()
            for _ in range(TICKS // TICKS_A_STEP):
                rounds.run(TICKS_A_STEP)
                hierarchy.run(TICKS_A_STEP)
                progress.advance(task, TICKS_A_STEP)
            gc.enable()
            table.add_row(
                name,
                f"{rounds.microseconds_a_tick:,.1f} us",
                f"{hierarchy.microseconds_a_tick:,.1f} us",
                f"{rounds.microseconds_a_tick / hierarchy.microseconds_a_tick:,.1f} x",
            )
    console.print(table)


if __name__ == "__main__":
    main()
