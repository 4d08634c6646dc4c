"""One cache for the machine: HostCache compared with Django's LocMemCache and FileBasedCache, diskcache and Redis.

The files of all peers are in shared memory, as those of HostCache are. A new redis-server runs on a free port and
stores nothing on disk; its own processor time is not included.

- Calls by Django's ``cache``, as sites make them, and by the backend object. A round is 100 calls, each of another key.
- Load: four processes write and four read the same 1,000 keys as fast as they can, and a process has eight threads. The
  figure is the processor time of all of them per operation, compared with one process, or thread, alone.
- Memory: four processes read 100,000 values of 1 kB. The figure is the growth of their private memory, and the file.
- Views: eight visitors ask a site with two workers for 10 pages, 1,000 times. The figure is how often a view runs.
"""

import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from django.core.cache import CacheHandler, cache, caches
from django.test import override_settings
from django.utils.connection import ConnectionProxy

from benchmarks.django_rows import DICT, VALUE, configure_django, locmem_alias, wheel_alias
from benchmarks.report import Row, Section, bounded, costlier
from benchmarks.tiers_rows import redis_server, wait_until
from benchmarks.timing import Contender, Step, Timing, interleaved, own_bytecode, timed

OURS = "HostCache"
LOCMEM = "LocMemCache"
FILES = "FileBasedCache"
DISKCACHE = "diskcache"
REDIS = "Redis"
WHEEL = "WheelCache"

CALLS = 100
ROUNDS = 40
LOAD_ROUNDS = 5
LOAD_SECONDS = 1.0
START = 0.2
"""Seconds until the processes of a round begin together."""
PROCESSES = 4
ENTRIES = 100_000
LENGTH = 1_000
VISITORS, REQUESTS, PAGES = 8, 1_000, 10

PLACES = ("django.core.cache.cache", "the backend object")
OPERATIONS = (
    "get, small dict",
    "get, str",
    "get, missing key",
    "set, small dict",
    "incr",
    "get_or_set, missing",
    "delete",
)
WAYS = {"cache_page": "cache_page", "fragment": "{% cache %}", "http_cache": "HTTP cache over cache_page"}
STEPS = len(PLACES) * len(OPERATIONS) * ROUNDS + 2 * 5 * LOAD_ROUNDS + 2 + 2 * len(WAYS)

ROOT = Path(__file__).parents[1]


def measure(step: Step) -> Section:
    configure_django()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(_shared_memory()))
        aliases = {
            OURS: host_alias(folder),
            LOCMEM: locmem_alias("host", 10_000),
            FILES: {
                "BACKEND": "django.core.cache.backends.filebased.FileBasedCache",
                "LOCATION": str(folder / "files"),
                "OPTIONS": {"MAX_ENTRIES": 100_000},
            },
            DISKCACHE: {"BACKEND": "diskcache.DjangoCache", "LOCATION": str(folder / "diskcache")},
        }
        if shutil.which("redis-server") is not None:
            port = stack.enter_context(redis_server())
            aliases[REDIS] = {
                "BACKEND": "django.core.cache.backends.redis.RedisCache",
                "LOCATION": f"redis://127.0.0.1:{port}/0",
            }
        stack.enter_context(override_settings(CACHES={"default": aliases[OURS]}))
        calls = {place: _calls(place, aliases, step) for place in PLACES}
        loads = {name: _load(aliases[name], step) for name in (OURS, DISKCACHE)}
        memory = _memory(folder, step)
        views = {
            name: {way: _views(alias, way, folder, step) for way in WAYS}
            for name, alias in ((OURS, aliases[OURS]), (LOCMEM, aliases[LOCMEM]))
        }
    processors = len(os.sched_getaffinity(0))
    return Section(
        "Host",
        f"Calls: nanoseconds, median of {ROUNDS} interleaved rounds of {CALLS} calls. Load: median of {LOAD_ROUNDS} "
        f"rounds of {LOAD_SECONDS:g} s on {processors} processors. Memory: {PROCESSES} processes, {ENTRIES:,} values "
        f"of {LENGTH:,} characters. Views: {REQUESTS:,} requests of {PAGES} pages, two workers of gunicorn, {VISITORS} "
        "visitors at a time.",
        [
            *(row for place in PLACES for row in _call_rows(place, calls[place])),
            *_load_rows(loads),
            *_memory_rows(memory),
            *(
                bounded(f"runs of views, {words}", views[OURS][way], LOCMEM, views[LOCMEM][way], "runs", PAGES)
                for way, words in WAYS.items()
            ),
        ],
        {"calls": calls, "loads": loads, "memory": memory, "views": views},
    )


def host_alias(folder: Path) -> dict[str, Any]:
    """Return the alias of a HostCache whose entries are in a folder inside ``folder``."""
    return {
        "BACKEND": "wheelcache.django_backend.HostCache",
        "LOCATION": str(folder / "host"),
        "OPTIONS": {"MAX_SIZE": 256 << 20},
    }


@contextmanager
def _shared_memory() -> Iterator[str]:
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(prefix="wheelcache-benchmark-", dir=memory if memory.is_dir() else None) as folder:
        yield folder


# Calls.


def _get(cache: Any, keys: Sequence[str]) -> None:
    for key in keys:
        cache.get(key)


def _set(cache: Any, keys: Sequence[str]) -> None:
    for key in keys:
        cache.set(key, DICT)


def _incr(cache: Any, keys: Sequence[str]) -> None:
    for key in keys:
        cache.incr(key)


def _get_or_set(cache: Any, keys: Sequence[str]) -> None:
    for key in keys:
        cache.get_or_set(key, _make)


def _make() -> dict[str, Any]:
    return DICT


def _delete(cache: Any, keys: Sequence[str]) -> None:
    for key in keys:
        cache.delete(key)


def _calls(place: str, aliases: dict[str, Any], step: Step) -> dict[str, dict[str, Timing]]:
    """Return the timings by operation and contender."""
    handlers = {name: CacheHandler({"default": alias}) for name, alias in aliases.items()}
    backends = {name: caches["default"] if name == OURS else handlers[name]["default"] for name in aliases}
    if place == PLACES[0]:
        by_place = {name: cache if name == OURS else ConnectionProxy(handlers[name], "default") for name in aliases}
    else:
        by_place = backends
    kept = {kind: [f"{kind}:{number}" for number in range(CALLS)] for kind in ("dict", "str", "number", "missing")}
    for backend in backends.values():
        backend.set_many(dict.fromkeys(kept["dict"], DICT))
        backend.set_many(dict.fromkeys(kept["str"], VALUE))
        backend.set_many(dict.fromkeys(kept["number"], 1))

    def same(keys: Sequence[str]) -> Callable[[Any], Sequence[str]]:
        return lambda backend: keys

    def missing(backend: Any) -> Sequence[str]:
        backend.delete_many(kept["missing"])
        return kept["missing"]

    def existing(backend: Any) -> Sequence[str]:
        backend.set_many(dict.fromkeys(kept["missing"], DICT))
        return kept["missing"]

    work = (
        (_get, same(kept["dict"])),
        (_get, same(kept["str"])),
        (_get, missing),
        (_set, same(kept["dict"])),
        (_incr, same(kept["number"])),
        (_get_or_set, missing),
        (_delete, existing),
    )
    found = {}
    for operation, (calls, keys) in zip(OPERATIONS, work, strict=True):
        contenders = []
        for name, target in by_place.items():
            round_of = timed(own_bytecode(calls), target)
            contenders.append(Contender(name, round_of, partial(keys, backends[name])))
        found[operation] = interleaved(contenders, ROUNDS, step)
    return found


def _call_rows(place: str, timings: dict[str, dict[str, Timing]]) -> Iterator[Row]:
    their_set = timings["set, small dict"][DISKCACHE].median
    for operation, by_name in timings.items():
        ours = by_name[OURS].median
        # As sites call it.
        has_target = place == PLACES[0]
        for peer, timing in by_name.items():
            if peer in (LOCMEM, DISKCACHE) or (has_target and peer != OURS):
                at_most = 0.8 if has_target and peer == LOCMEM and operation.startswith("get,") else None
                yield costlier(f"{operation}, by {place}", ours, peer, timing.median, at_most)
        if has_target and operation in ("set, small dict", "incr"):
            yield costlier(f"{operation}, by {place}", ours, "set of diskcache", their_set, 0.35)


# Load.


class _Worker:
    """A process of ``host_worker``."""

    def __init__(self, alias: dict[str, Any]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.host_worker", json.dumps(alias)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def start(self, job: str, **given: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{json.dumps([job, given])}\n")
        self._process.stdin.flush()

    def result(self) -> Any:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())

    def do(self, job: str, **given: Any) -> Any:
        self.start(job, **given)
        return self.result()

    def end(self) -> None:
        self._process.communicate(timeout=60)


@contextmanager
def _workers(alias: dict[str, Any], number: int) -> Iterator[list[_Worker]]:
    workers = [_Worker(alias) for _ in range(number)]
    try:
        yield workers
    finally:
        for worker in workers:
            worker.end()


def _load(alias: dict[str, Any], step: Step) -> dict[str, float]:
    """Return the processor time per operation, and the longest operation, in nanoseconds and milliseconds."""
    found: dict[str, list[float]] = {}
    longest = 0.0

    def measured(workers: Sequence[_Worker], at: float, operation: str, threads: int = 1) -> Callable[[], list[Any]]:
        for worker in workers:
            worker.start("run", seconds=LOAD_SECONDS, at=at, operation=operation, threads=threads)
        return lambda: [worker.result() for worker in workers]

    def note(name: str, results: Sequence[dict[str, float]]) -> None:
        found.setdefault(name, []).append(statistics.fmean(each["processor"] for each in results))

    with _workers(alias, 2 * PROCESSES) as workers:
        workers[0].do("fill", entries=1_000, length=LENGTH)
        writers, readers = workers[:PROCESSES], workers[PROCESSES:]
        for _ in range(LOAD_ROUNDS):
            for name, operation, threads in (
                ("write", "write", 1),
                ("read", "read", 1),
                ("write and read", "write and read", 1),
                ("threads", "write and read", 2 * PROCESSES),
            ):
                note(name, measured(writers[:1], time.monotonic() + START, operation, threads)())
                step()
            at = time.monotonic() + START
            together = {"writers": measured(writers, at, "write"), "readers": measured(readers, at, "read")}
            for name, results in together.items():
                each = results()
                note(name, each)
                longest = max(longest, *(one["longest"] for one in each))
            step()
    return {name: statistics.median(each) for name, each in found.items()} | {"longest": longest}


def _load_rows(loads: dict[str, dict[str, float]]) -> Iterator[Row]:
    ours, theirs = loads[OURS], loads[DISKCACHE]
    for operation, many, alone, at_most in (
        (f"set, while {PROCESSES} processes write and {PROCESSES} read", "writers", "write", 3),
        (f"get, while {PROCESSES} processes write and {PROCESSES} read", "readers", "read", 3),
        (f"set and get, {2 * PROCESSES} threads of a process", "threads", "write and read", 2),
    ):
        yield costlier(operation, ours[many], "HostCache, alone", ours[alone], at_most)
        yield costlier(operation, ours[many], DISKCACHE, theirs[many])
    yield bounded("the longest of these operations", ours["longest"], DISKCACHE, theirs["longest"], "ms", 300)


# Memory.


def _memory(folder: Path, step: Step) -> dict[str, float]:
    """Return the live bytes, and the bytes that four workers take, by cache."""
    found: dict[str, float] = {}
    place = folder / "memory"
    place.mkdir(mode=0o700)
    for name, alias in ((OURS, host_alias(place)), (WHEEL, wheel_alias("memory", 2 * ENTRIES))):
        with _workers(alias, PROCESSES) as workers:
            # The objects of the first call.
            before = sum(worker.do("read", entries=1) + worker.do("memory") for worker in workers)
            for worker in workers[:1] if name == OURS else workers:
                live = worker.do("fill", entries=ENTRIES, length=LENGTH)
            for worker in workers:
                if worker.do("read", entries=ENTRIES) != ENTRIES:
                    raise AssertionError(f"{name} has lost values")
            found |= {name: sum(worker.do("memory") for worker in workers) - before, "live": live}
        step()
    found[OURS] += sum(path.stat().st_blocks * 512 for path in place.rglob("*"))
    return {each: size / (1 << 20) for each, size in found.items()}


def _memory_rows(memory: dict[str, float]) -> list[Row]:
    operation = f"memory of {PROCESSES} workers"
    return [
        costlier(operation, memory[OURS], "keys and values", memory["live"], 1.5, "MB"),
        costlier(operation, memory[OURS], f"{PROCESSES} WheelCaches", memory[WHEEL], 0.4, "MB"),
    ]


# Views.


def _views(alias: dict[str, Any], way: str, folder: Path, step: Step) -> int:
    """Return how often a view runs."""
    place = Path(tempfile.mkdtemp(dir=folder))
    if "HostCache" in alias["BACKEND"]:
        alias = host_alias(place)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "gunicorn", "--workers", "2", "--log-level", "error", "--no-control-socket"),
            *(
                "--config",
                "python:benchmarks.host_site",
                "--bind",
                f"127.0.0.1:{port}",
                "benchmarks.host_site:application",
            ),
        ],
        cwd=ROOT,
        env={**os.environ, "HOST_SITE": json.dumps({"alias": alias, "way": way, "folder": str(place)})},
    )
    try:
        wait_until(lambda: _size(place / "workers") == 2, "both workers run")
        with ThreadPoolExecutor(VISITORS) as pool:
            asked = [number % PAGES for number in range(REQUESTS)]
            answers = [*pool.map(lambda number: _ask(port, number), asked)]
        if answers != [f"page {number}" for number in asked]:
            raise AssertionError("the site has answered with another page")
    finally:
        process.terminate()
        process.wait(60)
    step()
    return _size(place / "runs")


def _ask(port: int, number: int) -> str:
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", f"/{number}")
        return connection.getresponse().read().decode()
    finally:
        connection.close()


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
