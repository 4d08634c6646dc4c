"""The effect of a million entries on the rest of the process: garbage collections, ``clear``, and a growing table.

Each figure comes from a process of its own, in CPU time of the thread. The longest ``set`` is the minimum of three
runs, since other work on the machine can only add to it.
"""

import gc
from collections.abc import Callable
from concurrent.futures import Executor
from time import thread_time_ns

from django.core.cache import caches

from benchmarks.django_rows import configure_django, locmem_alias
from benchmarks.report import Row, Section, bounded, by_core
from benchmarks.timing import Step
from wheelcache import Cache
from wheelcache.core import IMPLEMENTATION

ENTRIES = 1_000_000
FILLINGS = 3
STEPS = 3

LOCMEM = "LocMemCache"
MILLISECOND = 1e6


def measure(executor: Executor, step: Step) -> Section:
    collect, clear = executor.submit(collect_and_clear, ours=True).result()
    step()
    locmem_collect, locmem_clear = executor.submit(collect_and_clear, ours=False).result()
    step()
    longest = executor.submit(longest_set).result()
    step()

    def row(operation: str, ours: float, theirs: float | None, at_most: float) -> Row:
        return bounded(operation, ours, LOCMEM, theirs, "ms", by_core(compiled=at_most))

    return Section(
        "A million entries",
        f"Keys and values are strings; the core is {IMPLEMENTATION}.",
        [
            row("gc.collect()", collect, locmem_collect, 5),
            row("clear(), for the caller", clear, locmem_clear, 1),
            row("the longest set while the cache fills", longest, None, 5),
        ],
        {"collect": collect, "clear": clear, "longest set": longest},
    )


def collect_and_clear(*, ours: bool) -> tuple[float, float]:
    """Return the milliseconds of ``gc.collect()`` and of ``clear()``. Run this in a new process."""
    configure_django(default=locmem_alias("million", 2 * ENTRIES))
    gc.collect()
    # Exclude the other objects of the process.
    gc.freeze()
    if ours:
        cache = Cache("million", max_entries=ENTRIES, ttl=300)
        set_, clear = cache.set, cache.clear
    else:
        set_, clear = caches["default"].set, caches["default"].clear
    _fill(set_)
    gc.collect()
    began = thread_time_ns()
    gc.collect()
    collected = thread_time_ns()
    clear()
    return (collected - began) / MILLISECOND, (thread_time_ns() - collected) / MILLISECOND


def longest_set() -> float:
    """Return the milliseconds of the longest ``set``. Run this in a new process."""
    gc.disable()
    return min(_longest_set() for _ in range(FILLINGS)) / MILLISECOND


def _longest_set() -> int:
    set_ = Cache("filling", max_entries=ENTRIES, ttl=300).set
    longest = 0
    for number in range(ENTRIES):
        key, value = f"user:{number}:profile", str(number)
        began = thread_time_ns()
        set_(key, value)
        longest = max(longest, thread_time_ns() - began)
    return longest


def _fill(set_: Callable[[str, str], object]) -> None:
    for number in range(ENTRIES):
        set_(f"user:{number}:profile", str(number))
