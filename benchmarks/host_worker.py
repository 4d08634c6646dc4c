"""A worker of ``host_rows``: ``python -m benchmarks.host_worker '<alias of CACHES as JSON>'``.

Reads jobs from its input, one JSON document a line, and prints the result of each.
"""

import json
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any

from django.core.cache import caches

from benchmarks.django_rows import DICT, configure_django

KEYS = [f"user:{number}:profile" for number in range(1_000)]


def run(seconds: float, at: float, operation: str, threads: int = 1) -> dict[str, float]:
    """Write, read or do both in turns from ``at`` on, a time on the monotonic clock.

    Returns:
        the nanoseconds of processor time per operation, and the longest operation in milliseconds.
    """
    calls: list[int] = []
    longest: list[int] = []

    def each() -> None:
        # As a thread of a server, which gets a backend object of its own.
        cache, choose, clock = caches["default"], random.Random().choice, time.perf_counter_ns
        operate = OPERATIONS[operation]
        number = slowest = 0
        time.sleep(max(0.0, at - time.monotonic()))
        end = clock() + int(seconds * 1e9)
        before = clock()
        while before < end:
            operate(cache, choose(KEYS))
            after = clock()
            slowest = max(slowest, after - before)
            before = after
            number += 1
        calls.append(number)
        longest.append(slowest)

    running = [Thread(target=each) for _ in range(threads)]
    before = time.process_time_ns()
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    spent = time.process_time_ns() - before
    return {"processor": spent / sum(calls), "longest": max(longest) / 1e6}


def _write(cache: Any, key: str) -> None:
    cache.set(key, DICT, 300)


def _read(cache: Any, key: str) -> None:
    cache.get(key)


def _write_and_read(cache: Any, key: str) -> None:
    _write(cache, key)
    _read(cache, key)


OPERATIONS = {"write": _write, "read": _read, "write and read": _write_and_read}


def fill(entries: int, length: int) -> int:
    """Set ``entries`` values. Return the bytes of all keys and values."""
    cache, size = caches["default"], 0
    for number in range(entries):
        key = f"user:{number}:profile"
        cache.set(key, str(number).rjust(length), None)
        size += len(cache.make_key(key)) + length
    return size


def read(entries: int) -> int:
    """Read all values. Return the number of those that are there."""
    return sum(caches["default"].get(f"user:{number}:profile") is not None for number in range(entries))


def memory() -> int:
    """Return the bytes of this process that it shares with no other, but for files."""
    (line,) = (each for each in Path("/proc/self/status").read_text().splitlines() if each.startswith("RssAnon"))
    return int(line.split()[1]) * 1024


JOBS: dict[str, Callable[..., Any]] = {"run": run, "fill": fill, "read": read, "memory": memory}

if __name__ == "__main__":
    configure_django(default=json.loads(sys.argv[1]))
    for line in sys.stdin:
        name, given = json.loads(line)
        print(json.dumps(JOBS[name](**given)), flush=True)
