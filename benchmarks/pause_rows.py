"""A reader's longest pause: while 500,000 entries expire in one tick, and while 1,000,000 are scanned.

The measurement uses a real cache and wheel thread, with jitter 0, so that every entry expires at the same instant. One
thread reads all the time, alternating between an existing and a missing key. It records the longest time between two of
its calls, from before the expiry until after it.

This is compared with two other figures. For the first, the budget is unlimited, so that the wheel thread expires all
500,000 entries while it holds the lock once. The second is the longest pause of the same reader before any entry
expires, while another thread computes for 0.5 ms at a time and then yields: the interpreter and the machine cause such
a pause for any two threads.

The scans of a million keys are those of Django's backend. Each takes turns with a thread that only computes for the
same time: a reader waits for either until the interpreter switches threads.

``sys.setswitchinterval`` keeps its default of 5 ms. Before the reader starts, the garbage collector runs and its
objects are frozen, since a full collection with so many objects would cause a pause itself.
"""

import gc
import statistics
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from typing import Any
from unittest.mock import patch

from django.core.cache import caches

from benchmarks.django_rows import configure_django, wheel_alias
from benchmarks.report import Row, Section, Target, bounded
from benchmarks.timing import Step
from wheelcache import Cache
from wheelcache.runtime.wheel_driver import WheelDriver

EXPIRING = 500_000
SCANNED = 1_000_000
TRIALS = 5
STEPS = 2 * TRIALS + 1
FILL_SECONDS = 3.0
CONTROL_SECONDS = 1.5

COMPUTING = "in parallel with a thread that only computes"
HITS, MISSES = "the longest pause of its hits, which need no lock", "misses, which need it"
WORST = "the same, worst trial"

BATCH_SECONDS = 0.0005
"""The approximate duration of a batch of the wheel thread."""


BATCHED_ADVANCE = WheelDriver.advance


def advance_unbatched(driver: WheelDriver, now: float, budget: int = EXPIRING) -> None:
    """Replace ``WheelDriver.advance``: expire all entries that are due while holding the lock once."""
    BATCHED_ADVANCE(driver, now, 2 * EXPIRING)


@dataclass(frozen=True, slots=True)
class Pauses:
    """The figures of one trial, in milliseconds.

    Attributes:
        control: the longest pause of the reader while a thread runs that does not use the cache.
        longest: its longest pause while entries expired.
        longest_hit, longest_miss: the same, by kind of call.
        expiry: the time until all entries were removed.
    """

    control: float
    longest: float
    longest_hit: float
    longest_miss: float
    expiry: float


class Reader(threading.Thread):
    """Reads an existing and a missing key in turns, until ``stop``."""

    def __init__(self, cache: Any) -> None:
        super().__init__(daemon=True)
        self._cache = cache
        self._stop_reading = False
        self.longest_hit = self.longest_miss = 0.0

    def run(self) -> None:
        get, clock = self._cache.get, time.perf_counter
        last = clock()
        while not self._stop_reading:
            get("there")
            now = clock()
            if now - last > self.longest_hit:
                self.longest_hit = now - last
            get("missing")
            last = clock()
            if last - now > self.longest_miss:
                self.longest_miss = last - now

    def stop(self) -> None:
        self._stop_reading = True
        self.join()


def measure(executor: Executor, step: Step) -> Section:
    trials: dict[str, list[Pauses]] = {"batched": [], "unbatched": []}
    # The trials take turns, as in all measurements.
    for _ in range(TRIALS):
        for name, each in trials.items():
            each.append(executor.submit(mass_expiry, batched=name == "batched").result())
            step()

    scans = executor.submit(scan_pauses).result()
    step()

    def median(name: str, figure: str) -> float:
        milliseconds: list[float] = [getattr(trial, figure) for trial in trials[name]]
        return statistics.median(milliseconds)

    operation = f"a reader's longest pause while {EXPIRING:,} entries expire in one tick"
    ours = median("batched", "longest")
    return Section(
        "Mass expiry and scans",
        f"Median of {TRIALS} trials of each, in turns, each in a process of its own. Garbage is collected and frozen "
        "before the reader starts; the interpreter's switch interval has its default.",
        [
            bounded(operation, ours, "without batching", median("unbatched", "longest"), "ms", 10),
            Row(operation, ours, WORST, max(t.longest for t in trials["batched"]), "ms"),
            Row(operation, ours, COMPUTING, median("batched", "control"), "ms"),
            Row(HITS, median("batched", "longest_hit"), MISSES, median("batched", "longest_miss"), "ms"),
            Row(
                "the time until all entries are removed",
                median("batched", "expiry"),
                "without batching",
                median("unbatched", "expiry"),
                "ms",
            ),
            *(
                Row(
                    f"a reader's longest pause during {name} over {SCANNED:,} keys",
                    longest,
                    COMPUTING,
                    computing,
                    "ms",
                    longest,
                    "ms",
                    Target(10, at_least=False),
                )
                for name, (longest, computing) in scans.items()
            ),
        ],
        {"scans": scans, **trials},
    )


def mass_expiry(*, batched: bool) -> Pauses:
    """Run one trial of the expiry. Run this in a new process."""
    with patch.object(WheelDriver, "advance", BATCHED_ADVANCE if batched else advance_unbatched):
        return _mass_expiry()


def _mass_expiry() -> Pauses:
    cache, deadline = _filled()
    gc.collect()
    gc.freeze()
    control = Reader(cache)
    control.start()
    _compute_in_batches(CONTROL_SECONDS)
    control.stop()

    reader = Reader(cache)
    time.sleep(max(0.0, deadline - 0.2 - time.monotonic()))
    if len(cache) != EXPIRING + 1:
        raise AssertionError(f"{len(cache)} entries instead of {EXPIRING + 1} before they are due")
    reader.start()
    while len(cache) == EXPIRING + 1:
        time.sleep(0.02)
    started = time.monotonic()
    while len(cache) > 1:
        time.sleep(0.02)
    gone = time.monotonic()
    # Until the table is rebuilt and the entries of the last batch are freed.
    time.sleep(0.2)
    reader.stop()
    return Pauses(
        control=1_000 * max(control.longest_hit, control.longest_miss),
        longest=1_000 * max(reader.longest_hit, reader.longest_miss),
        longest_hit=1_000 * reader.longest_hit,
        longest_miss=1_000 * reader.longest_miss,
        expiry=1_000 * (gone - started),
    )


def scan_pauses() -> dict[str, tuple[float, float]]:
    """Return, by the name of the scan, the longest pauses of a reader during the scan and during a computation that
    takes as long: the medians, in milliseconds. Run this in a new process."""
    configure_django(default=wheel_alias("scanned", 2 * SCANNED))
    scanned = caches["default"]
    scanned.set("there", "value", None)
    for number in range(SCANNED - 1):
        scanned.set(f"user:{number}:profile", number, None)
    gc.collect()
    gc.freeze()

    def longest_during(work: Callable[[], object]) -> tuple[float, float]:
        reader = Reader(scanned)
        reader.start()
        seconds = _seconds(work)
        reader.stop()
        return 1_000 * max(reader.longest_hit, reader.longest_miss), seconds

    works: dict[str, Callable[[], object]] = {
        "delete_pattern": lambda: scanned.delete_pattern("user:7:*"),
        "iter_keys": lambda: deque(scanned.iter_keys("user:77*"), maxlen=0),
    }
    longest: dict[str, list[tuple[float, float]]] = {name: [] for name in works}
    for _ in range(TRIALS):
        for name, work in works.items():
            during_scan, seconds = longest_during(work)
            longest[name].append((during_scan, longest_during(partial(_compute, seconds))[0]))
    return {
        name: (statistics.median(ours), statistics.median(theirs))
        for name, (ours, theirs) in ((name, zip(*each, strict=True)) for name, each in longest.items())
    }


def _compute(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _compute_in_batches(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        batch_end = time.perf_counter() + BATCH_SECONDS
        while time.perf_counter() < batch_end:
            pass
        time.sleep(0)


def _filled() -> tuple[Cache, float]:
    """Return a cache in which all entries but one expire at the same instant, in the middle of a tick, and that
    instant."""
    seconds = FILL_SECONDS
    while True:
        cache = Cache("pause", jitter=0.0)
        deadline = time.monotonic() + seconds + CONTROL_SECONDS + 1.5
        cache.set("there", "value", None)
        for number in range(EXPIRING):
            cache.set(f"user:{number}:profile", f"the profile of {number}", deadline - time.monotonic())
            if number % 1024 == 0 and time.monotonic() > deadline - CONTROL_SECONDS - 1.0:
                break
        else:
            return cache, deadline
        # The machine is slow: try again with more time.
        cache.close()
        seconds *= 2
