"""Measures the consequences if a hot key expires while 64 threads read it.

Each thread reads the key about 10 ms after its last read, so that the machine is mostly idle. A thread that must
compute the value calls a loader that sleeps for 20 ms, like a loader that waits for a database. Unlike a database, the
loader does not become slower with 64 concurrent calls. Therefore the number of calls shows the load that a stampede
causes, but the times do not.

About 2 % of the reads meet an expiry, so half of these wait for at least the 99th percentile. An expiry causes one
burst of loader calls. A call that comes so late that the value must have been stored in between begins the next burst.
With ``refresh_ahead`` no value expires, and a burst is a refresh.

A round has some expiries of one contender, on a key that no contender has used before. All use the exact TTL, ours with
a jitter of 0. Each contender is compared with peers that treat readers in the same way while the value is computed:
``get_or_load``, cachetools and Django let the reader wait, or compute the value as well; ``grace``, ``GRACE`` and
dogpile.cache serve the expired value, but the latter two not to the reader that computes.

In addition, 100 visitors ask for an expired view of Flask while it runs for a second, each at a random moment.
"""

import gc
import random
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import chain, pairwise
from typing import Any

import cachetools
from django.core.cache.backends.base import BaseCache
from django.core.cache.backends.locmem import LocMemCache
from dogpile.cache import make_region
from flask import Flask
from werkzeug.test import EnvironBuilder, run_wsgi_app

from benchmarks.django_rows import configure_django
from benchmarks.report import Row, Section, costlier, faster
from benchmarks.timing import Step
from wheelcache import Cache
from wheelcache.django_backend import WheelCache
from wheelcache.flask_backend import Cache as FlaskCache

THREADS = 64
TTL = 0.5
LOAD_SECONDS = 0.02
THINK_SECONDS = (0.005, 0.015)
EXPIRIES = 3
ROUNDS = 3
ROUND_SECONDS = EXPIRIES * (TTL + LOAD_SECONDS) + 2 * LOAD_SECONDS

VISITORS = 100
VIEW_SECONDS = 1
LONGEST_WAIT = 5
"""Milliseconds that a visitor may wait for an old page."""

VALUE = "a name and an address, such as a cache might hold"

LOAD = "get_or_load"
GRACE = "get_or_load with grace"
REFRESH_AHEAD = "get_or_load with refresh_ahead"
FILL_WAIT = "Django get and set with FILL_WAIT"
OLD_VALUES = "Django get and set with GRACE"
NO_FILL_WAIT = "the same without FILL_WAIT"
LOCMEM = "LocMemCache get and set"
LOCMEM_GET_OR_SET = "LocMemCache get_or_set"
LOCKED = "cachetools cached + lock"
CONDITION = "cachetools cached + condition"
DOGPILE = "dogpile.cache get_or_create"
ONE = "the minimum: one call"

PEERS = {
    LOAD: (LOCMEM_GET_OR_SET, LOCKED, CONDITION),
    FILL_WAIT: (NO_FILL_WAIT, LOCMEM),
    OLD_VALUES: (DOGPILE,),
    GRACE: (DOGPILE,),
    REFRESH_AHEAD: (DOGPILE,),
}

Load = Callable[[], str]
Read = Callable[[str], Any]


class Loader:
    """A slow loader that records the times of its calls."""

    def __init__(self) -> None:
        self.called: list[float] = []

    def __call__(self) -> str:
        self.called.append(time.monotonic())
        time.sleep(LOAD_SECONDS)
        return VALUE

    def bursts(self) -> int:
        return 1 + sum(later - earlier > TTL / 2 for earlier, later in pairwise(sorted(self.called)))


@dataclass(frozen=True, slots=True)
class Stampede:
    """The figures of one round of one contender.

    Attributes:
        calls: the calls of the loader per expiry.
        p99, longest: the milliseconds of a read.
    """

    expiries: int
    calls: float
    p99: float
    longest: float
    reads: int


def measure(step: Step) -> Section:
    # A background refresh closes Django's database connections afterwards, so Django needs settings.
    configure_django()
    loader = Loader()
    contenders = [(name, make(loader)) for name, make in MAKERS.items()]
    rounds: dict[str, list[Stampede]] = {name: [] for name in MAKERS}
    shuffled = random.Random(0)
    for number in range(ROUNDS):
        shuffled.shuffle(contenders)
        for name, read in contenders:
            rounds[name].append(stampede(partial(read, f"hot:{number}"), loader))
            step()

    def median(name: str, figure: str) -> float:
        figures: list[float] = [getattr(each, figure) for each in rounds[name]]
        return statistics.median(figures)

    def rows(operation: str, figure: str, unit: str, at_most: float | None = None) -> Iterator[Row]:
        for ours, peers in PEERS.items():
            measured = median(ours, figure)
            if at_most is not None:
                yield costlier(f"{operation}, {ours}", measured, ONE, 1, at_most, unit)
            for peer in peers:
                yield faster(f"{operation}, {ours}", measured, peer, median(peer, figure), unit=unit)

    def peers_within(figure: str, margin: float) -> str:
        """Return the peers that perform as well, so that readers need not search the table for them."""
        equals = [
            peer
            for peer in dict.fromkeys(chain.from_iterable(PEERS.values()))
            if all(median(peer, figure) <= median(ours, figure) + margin for ours in PEERS if peer in PEERS[ours])
        ]
        return ", ".join(equals) or "none"

    runs, waits = expired_view()
    step()
    view = f"expired @cached view of {VIEW_SECONDS:g} s with grace, {VISITORS} visitors"
    reads = [each.reads for each in chain.from_iterable(rounds.values())]
    return Section(
        "Stampede",
        f"{THREADS} threads read one key with a TTL of {TTL} s and a loader of {1_000 * LOAD_SECONDS:g} ms; median of "
        f"{ROUNDS} interleaved rounds of {EXPIRIES} expiries, {min(reads):,} to {max(reads):,} reads each. "
        f"Peers with as few calls as wheelcache: {peers_within('calls', 0.0)}. Peers with as low a 99th percentile, to "
        f"within a millisecond: {peers_within('p99', 1.0)}.",
        [
            *rows("loader calls per expiry", "calls", "calls", 1),
            *rows("99th percentile of reads", "p99", "ms"),
            *rows("longest read", "longest", "ms"),
            costlier(f"runs, {view}", runs, ONE, 1, 1, "runs"),
            costlier(f"longest wait of all but one, {view}", waits[-2], "a wait of 5 ms", LONGEST_WAIT, 1, "ms"),
        ],
        rounds | {"expired view": waits},
    )


def stampede(read: Callable[[], Any], loader: Loader) -> Stampede:
    """Run one round: all threads read until the end of the last expiry."""
    ready = threading.Barrier(THREADS)

    def read_on(seed: int) -> list[int]:
        """Read until the end of the round. Return the nanoseconds of each read."""
        think = random.Random(seed).uniform
        nanoseconds = []
        ready.wait()
        while time.monotonic() < end:
            time.sleep(think(*THINK_SECONDS))
            started = time.perf_counter_ns()
            value = read()
            nanoseconds.append(time.perf_counter_ns() - started)
            if value != VALUE:
                raise AssertionError(f"a reader got {value!r}")
        return nanoseconds

    collecting = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        with ThreadPoolExecutor(THREADS) as threads:
            read()
            loader.called.clear()
            end = time.monotonic() + ROUND_SECONDS
            nanoseconds = list(chain.from_iterable(threads.map(read_on, range(THREADS))))
    finally:
        if collecting:
            gc.enable()
    expiries = loader.bursts()
    return Stampede(
        expiries=expiries,
        calls=len(loader.called) / expiries,
        p99=statistics.quantiles(nanoseconds, n=100)[-1] / 1e6,
        longest=max(nanoseconds) / 1e6,
        reads=len(nanoseconds),
    )


def expired_view() -> tuple[int, list[float]]:
    """Let visitors ask for a view that has expired. Return the number of its runs, and the milliseconds of each
    visitor, shortest first."""
    app = Flask("expired view")
    options = {"fill_wait": 10 * VIEW_SECONDS, "grace": 60, "jitter": 0}
    cache = FlaskCache(app, config={"CACHE_TYPE": "wheelcache.flask_backend.WheelCache", "CACHE_OPTIONS": options})
    runs: list[float] = []

    def view() -> str:
        runs.append(time.monotonic())
        if len(runs) > 1:
            time.sleep(VIEW_SECONDS)
        return VALUE

    app.add_url_rule("/", view_func=cache.cached(VIEW_SECONDS)(view))
    environ = EnvironBuilder("/").get_environ()
    run_wsgi_app(app.wsgi_app, dict(environ), buffered=True)
    time.sleep(VIEW_SECONDS)
    arrival = random.Random(0).uniform

    def visit(seconds: float) -> float:
        time.sleep(seconds)
        started = time.perf_counter()
        run_wsgi_app(app.wsgi_app, dict(environ), buffered=True)
        return 1_000 * (time.perf_counter() - started)

    with ThreadPoolExecutor(VISITORS) as visitors:
        waits = sorted(visitors.map(visit, [arrival(0, VIEW_SECONDS) for _ in range(VISITORS)]))
        return len(runs) - 1, waits


def _loading(load: Load, **options: Any) -> Read:
    return partial(Cache("stampede", jitter=0.0).get_or_load, loader=load, ttl=TTL, **options)


def _wheel(location: str, **options: Any) -> BaseCache:
    return WheelCache(location, {"OPTIONS": {"JITTER": 0, **options}})


def _getting_and_setting(cache: BaseCache, load: Load) -> Read:
    """Return a read that uses Django's cache API only."""

    def read(key: str) -> Any:
        value = cache.get(key)
        if value is None:
            value = load()
            cache.set(key, value, TTL)
        return value

    return read


def _cached(load: Load, **guard: Any) -> Read:
    cache: cachetools.TTLCache[object, str] = cachetools.TTLCache(100, TTL)
    read: Read = cachetools.cached(cache, **guard)(lambda key: load())  # type: ignore[no-untyped-call]  # cachetools has no types
    return read


def _dogpile(load: Load) -> Read:
    region = make_region().configure("dogpile.cache.memory", expiration_time=TTL)
    return partial(region.get_or_create, creator=load)


MAKERS: dict[str, Callable[[Load], Read]] = {
    LOAD: _loading,
    GRACE: partial(_loading, grace=TTL),
    REFRESH_AHEAD: partial(_loading, refresh_ahead=0.8),
    FILL_WAIT: lambda load: _getting_and_setting(_wheel("filling", FILL_WAIT=1), load),
    OLD_VALUES: lambda load: _getting_and_setting(_wheel("gracing", FILL_WAIT=1, GRACE=TTL), load),
    NO_FILL_WAIT: lambda load: _getting_and_setting(_wheel("setting"), load),
    LOCMEM: lambda load: _getting_and_setting(LocMemCache("setting", {}), load),
    LOCMEM_GET_OR_SET: lambda load: partial(LocMemCache("get_or_set", {}).get_or_set, default=load, timeout=TTL),
    LOCKED: lambda load: _cached(load, lock=threading.Lock()),
    CONDITION: lambda load: _cached(load, condition=threading.Condition()),
    DOGPILE: _dogpile,
}
STEPS = ROUNDS * len(MAKERS) + 1
