"""How long a reader stands still while 500,000 entries expire in one tick, and while 1,000,000 are saved.

A real cache, a real wheel thread, jitter 0: every entry is set to expire at the same instant. One thread reads on
without a break, in turns a key that is there and one that isn't, and keeps the longest time between two of its calls,
from before the expiry until after.

Beside it: the same with a budget without end, so that the wheel thread does all 500,000 under one hold of the lock;
and the longest pause of the same reader, before anything expires, beside a thread that only computes for 0.5 ms at a
time and then gives way, which is what the interpreter and the machine do to any two threads.

The saving of a million entries, some in the order of their setting and some used at random, so that their places in
memory have no order: the same reader, from before it begins until it is done, and how long it takes, beside that reader
and without, and to load them again, with a secret and without.

``sys.setswitchinterval`` is left at its default of 5 ms. The garbage collector is run and what it found frozen before
the reader starts, in both, since a full collection with so many objects would be a pause of its own.
"""

import gc
import statistics
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from unittest.mock import patch

from benchmarks.report import Row, Section, Target
from benchmarks.timing import Step
from wheelcache import Cache
from wheelcache.runtime.wheel_driver import WheelDriver

EXPIRING = 500_000
SAVED = 1_000_000
TRIALS = 5
SAVE_TRIALS = 3
STEPS = 2 * TRIALS + 2 * SAVE_TRIALS
FILL_SECONDS = 3.0
CONTROL_SECONDS = 1.5

BATCH_SECONDS = 0.0005
"""About what a batch of the wheel thread takes."""


BATCHED_ADVANCE = WheelDriver.advance


def advance_unbatched(driver: WheelDriver, now: float, budget: int = EXPIRING) -> None:
    """In place of ``WheelDriver.advance``: all that is due, under one hold of the lock."""
    BATCHED_ADVANCE(driver, now, 2 * EXPIRING)


@dataclass(frozen=True, slots=True)
class Pauses:
    """One trial, in milliseconds.

    Attributes:
        control: the reader's longest pause beside a thread that has nothing to do with the cache.
        longest: its longest while entries expired.
        longest_hit, longest_miss: that, by kind of call.
        expiry: how long it took until all were gone.
    """

    control: float
    longest: float
    longest_hit: float
    longest_miss: float
    expiry: float


@dataclass(frozen=True, slots=True)
class Saving:
    """One trial.

    Attributes:
        longest: the reader's longest pause while all was saved, in milliseconds.
        longest_hit, longest_miss: that, by kind of call.
        beside_reader, alone, load: seconds, to save beside the reader, without it, and to load.
    """

    longest: float
    longest_hit: float
    longest_miss: float
    beside_reader: float
    alone: float
    load: float


class Reader(threading.Thread):
    """Reads a key that is there and one that isn't, in turns, until it is told to stop."""

    def __init__(self, cache: Cache) -> None:
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
            get("not there")
            last = clock()
            if last - now > self.longest_miss:
                self.longest_miss = last - now

    def stop(self) -> None:
        self._stop_reading = True
        self.join()


def measure(executor: Executor, step: Step) -> Section:
    trials: dict[str, list[Pauses]] = {"batched": [], "unbatched": []}
    # In turns, as everywhere.
    for _ in range(TRIALS):
        for name, each in trials.items():
            each.append(executor.submit(mass_expiry, batched=name == "batched").result())
            step()

    savings: dict[str, list[Saving]] = {"unsigned": [], "signed": []}
    for _ in range(SAVE_TRIALS):
        for name, saving in savings.items():
            saving.append(executor.submit(save_and_load, signed=name == "signed").result())
            step()

    def of_saving(name: str, figure: str) -> float:
        return statistics.median(getattr(trial, figure) for trial in savings[name])

    def median(name: str, figure: str) -> float:
        milliseconds: list[float] = [getattr(trial, figure) for trial in trials[name]]
        return statistics.median(milliseconds)

    what = f"a reader's longest pause while {EXPIRING:,} entries expire in one tick"
    ours = median("batched", "longest")
    while_saving = f"a reader's longest pause while {SAVED:,} entries are saved"
    saved = of_saving("unsigned", "longest")
    worst = max(trial.longest for trials in savings.values() for trial in trials)
    return Section(
        "Mass expiry, and saving",
        f"Median of {TRIALS} trials of each, {SAVE_TRIALS} of saving, in turns, each in a process of its own; garbage "
        "collected and frozen before the reader starts, the interpreter's switch interval at its default.",
        [
            Row(
                what,
                ours,
                "without batching",
                median("unbatched", "longest"),
                "ms",
                ours,
                "ms",
                Target(10, at_least=False),
            ),
            Row(what, ours, "the same, worst trial", max(t.longest for t in trials["batched"]), "ms", None, "ms"),
            Row(what, ours, "beside a thread that only computes", median("batched", "control"), "ms", None, "ms"),
            Row(
                "of its hits, which take no lock",
                median("batched", "longest_hit"),
                "misses, which take it",
                median("batched", "longest_miss"),
                "ms",
                None,
                "ms",
            ),
            Row(
                "until all are gone",
                median("batched", "expiry"),
                "without batching",
                median("unbatched", "expiry"),
                "ms",
                None,
                "ms",
            ),
            Row(
                while_saving,
                saved,
                "with a secret",
                of_saving("signed", "longest"),
                "ms",
                saved,
                "ms",
                Target(10, at_least=False),
            ),
            Row(while_saving, saved, "the same, worst trial", worst, "ms", None, "ms"),
            Row(
                "of its hits, which take no lock",
                of_saving("unsigned", "longest_hit"),
                "misses, which take it",
                of_saving("unsigned", "longest_miss"),
                "ms",
                None,
                "ms",
            ),
            *(
                Row(what, of_saving("unsigned", figure), "with a secret", of_saving("signed", figure), "s", None, "s")
                for what, figure in (
                    (f"to save {SAVED:,} entries", "alone"),
                    ("beside that reader", "beside_reader"),
                    ("to load them", "load"),
                )
            ),
        ],
        {**trials, **{f"saving, {name}": each for name, each in savings.items()}},
    )


def mass_expiry(*, batched: bool) -> Pauses:
    """One trial, in a process of its own."""
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
    # The table is rebuilt, the last batch's entries are freed.
    time.sleep(0.2)
    reader.stop()
    return Pauses(
        control=1_000 * max(control.longest_hit, control.longest_miss),
        longest=1_000 * max(reader.longest_hit, reader.longest_miss),
        longest_hit=1_000 * reader.longest_hit,
        longest_miss=1_000 * reader.longest_miss,
        expiry=1_000 * (gone - started),
    )


def save_and_load(*, signed: bool) -> Saving:
    """One trial, in a process of its own."""
    secret = "a secret" if signed else None
    cache = Cache("saved", log_interval=None, sample_interval=None)
    cache.set("there", "value", None)
    for number in range(SAVED - 1):
        cache.set(f"user:{number}:profile", f"the profile of {number}", 86_400)
    order = Random(7)
    for _ in range(SAVED):
        cache.get(f"user:{order.randrange(SAVED - 1)}:profile")
    gc.collect()
    gc.freeze()
    with TemporaryDirectory() as folder:
        path = Path(folder) / "a.snapshot"
        reader = Reader(cache)
        reader.start()
        time.sleep(0.2)
        beside_reader = _seconds(lambda: cache.save(path, secret=secret))
        time.sleep(0.2)
        reader.stop()
        alone = _seconds(lambda: cache.save(path, secret=secret))
        other = Cache("loaded", log_interval=None, sample_interval=None)
        load = _seconds(lambda: other.load(path, secret=secret))
    if len(other) != SAVED:
        raise AssertionError(f"{len(other)} entries were loaded, of {SAVED}")
    return Saving(
        longest=1_000 * max(reader.longest_hit, reader.longest_miss),
        longest_hit=1_000 * reader.longest_hit,
        longest_miss=1_000 * reader.longest_miss,
        beside_reader=beside_reader,
        alone=alone,
        load=load,
    )


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
    """A cache of which all entries but one are due at one instant, in the middle of a tick, and when that is."""
    seconds = FILL_SECONDS
    while True:
        cache = Cache("pause", jitter=0.0, interval=1.0)
        deadline = time.monotonic() + seconds + CONTROL_SECONDS + 1.5
        cache.set("there", "value", None)
        for number in range(EXPIRING):
            cache.set(f"user:{number}:profile", f"the profile of {number}", deadline - time.monotonic())
            if number % 1024 == 0 and time.monotonic() > deadline - CONTROL_SECONDS - 1.0:
                break
        else:
            return cache, deadline
        # A slow machine: once more, with more time.
        cache.close()
        seconds *= 2
