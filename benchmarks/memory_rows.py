"""The memory per entry, and the memory that remains when all entries have expired.

Every figure comes from a process of its own. ``tracemalloc`` counts the allocations of Python to the byte, but not the
allocations of Rust. The resident memory, of another process without ``tracemalloc``, includes everything, in pages.
Keys and values are distinct, and only the cache refers to them.
"""

import gc
import tracemalloc
from collections.abc import Callable
from concurrent.futures import Executor
from pathlib import Path
from resource import getpagesize
from typing import Any

from django.core.cache import caches

from benchmarks import engine_rows
from benchmarks.django_rows import configure_django, locmem_alias, wheel_alias
from benchmarks.report import Row, Section, Target, by_core, costlier
from benchmarks.timing import Step
from wheelcache import Cache, ManualClock

ENTRIES = 100_000
EXPIRING = 1_000_000
VALUE_LENGTH = 100
MEGABYTE = 1 << 20

OURS = "wheelcache, Django"
LOCMEM = "LocMemCache"
ENGINE = "wheelcache, engine"
UNSEEN_BY_TRACEMALLOC = ("cachebox.TTLCache", "cachebox.VTTLCache", "moka-py", "theine")

ENGINES = {ENGINE if name == engine_rows.OURS else name: make for name, make in engine_rows.MAKERS.items()}
NAMES = (OURS, LOCMEM, *ENGINES)
STEPS = 2 * len(NAMES) - len(UNSEEN_BY_TRACEMALLOC) + 1

STATM = Path("/proc/self/statm")


def measure(executor: Executor, step: Step) -> Section:
    traced: dict[str, float | None] = {}
    resident: dict[str, float | None] = {}
    for name in NAMES:
        if name not in UNSEEN_BY_TRACEMALLOC:
            traced[name] = executor.submit(traced_bytes, name).result()
            step()
        resident[name] = executor.submit(resident_bytes, name).result()
        step()
    peak, left = executor.submit(bytes_after_expiry).result()
    step()

    def rows(operation: str, figures: dict[str, float | None], at_most: float | None) -> list[Row]:
        ours = figures[OURS]
        if ours is None:
            return []
        return [
            costlier(operation, ours, peer, theirs, at_most if peer == LOCMEM else None, "B")
            for peer, theirs in figures.items()
            if peer != OURS and theirs is not None
        ]

    return Section(
        "Memory",
        f"One of {ENTRIES:,} entries, with a {VALUE_LENGTH}-character value and its key; each figure comes from a "
        "process of its own. The ratio compares wheelcache's Django backend with the peer.",
        [
            *rows("bytes per entry (tracemalloc)", traced, by_core(compiled=None, python=1)),
            *rows("bytes per entry (resident memory)", resident, by_core(compiled=0.85)),
            Row(
                f"memory left after {EXPIRING:,} entries expire",
                left / MEGABYTE,
                "peak",
                peak / MEGABYTE,
                "MB",
                100 * left / peak,
                "%",
                Target(5, at_least=False),
            ),
        ],
        {"traced": traced, "resident": resident, "peak": peak, "left": left},
    )


def traced_bytes(name: str) -> float:
    """Return the bytes per entry by ``tracemalloc``. Run this in a new process."""
    set_ = _setter(name)
    gc.collect()
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    _fill(set_, ENTRIES)
    gc.collect()
    after, _ = tracemalloc.get_traced_memory()
    return (after - before) / ENTRIES


def resident_bytes(name: str) -> float | None:
    """Return the bytes per entry by the growth of the process; None if it is unknown. Run this in a new process."""
    if not STATM.exists():
        return None
    set_ = _setter(name)
    gc.collect()
    before = _resident()
    _fill(set_, ENTRIES)
    gc.collect()
    return (_resident() - before) / ENTRIES


def bytes_after_expiry() -> tuple[int, int]:
    """Return the peak memory of a million entries, and the memory that remains after their TTLs."""
    clock = ManualClock()
    cache = Cache("expiring", max_entries=EXPIRING, ttl=300, clock=clock)
    gc.collect()
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    _fill(cache.set, EXPIRING)
    _, peak = tracemalloc.get_traced_memory()
    clock.advance(600)
    after, _ = tracemalloc.get_traced_memory()
    if len(cache):
        raise AssertionError(f"{len(cache)} entries did not expire")
    return peak - before, after - before


def _setter(name: str) -> Callable[[str, Any], object]:
    """Return the ``set`` of a new cache, which was called once so that the objects of the first write exist."""
    configure_django(default=wheel_alias("default", 2 * ENTRIES), locmem=locmem_alias("default", 2 * ENTRIES))
    set_: Callable[[str, Any], object]
    if name == OURS:
        set_ = caches["default"].set
    elif name == LOCMEM:
        set_ = caches["locmem"].set
    else:
        _, set_ = ENGINES[name](2 * ENTRIES)
    set_("first", "")
    return set_


def _fill(set_: Callable[[str, Any], object], entries: int) -> None:
    for number in range(entries):
        set_(f"user:{number}:profile", str(number).rjust(VALUE_LENGTH))


def _resident() -> int:
    return int(STATM.read_text().split()[1]) * getpagesize()
