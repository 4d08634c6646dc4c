"""The memory that entries use: weighed with ``MAX_BYTES``, otherwise estimated from samples."""

import random
import time

import pytest

from tests.watch.published import steps_of
from wheelcache import Cache
from wheelcache.core.contract import Record, Times
from wheelcache.engine.codec import Codec, Pickle, size_of
from wheelcache.watch.memory_use import MemoryUse
from wheelcache.watch.site import Site

ENCODE = Codec(Pickle()).encode
PERIOD = 10.0
"""Seconds between two samples, as nothing is published."""


@pytest.fixture(autouse=True)
def _no_time_passes(monkeypatch):
    """A collection of the objects of other tests would take longer than a sample may."""
    monkeypatch.setattr(time, "thread_time", lambda: 0.0)


@pytest.fixture
def fill(clock):
    """Make a cache of these values, and let its jobs run."""

    def filled(values, **options):
        cache = Cache(clock=clock, jitter=0, log_interval=None, **options)
        for number, value in enumerate(values):
            cache.set(f"key {number}", value)
        clock.advance(PERIOD)
        return cache

    return filled


def memory(cache):
    return cache.engine.observed.observer.memory_use()


choose = random.Random(1)
KINDS = [lambda: "x" * choose.randrange(2000), lambda: ENCODE({"row": choose.random()}), lambda: 17]
MIXED = [choose.choice(KINDS)() for _ in range(20_000)]


def test_an_estimate_is_near_what_weighing_all_entries_gives(fill, clock):
    exact = memory(fill(MIXED, max_weight=2**40, weigher=size_of))
    cache = fill(MIXED)
    assert not cache.engine.observed.observer.state().weighs_bytes
    clock.advance(20 * PERIOD)
    assert memory(cache) == pytest.approx(exact, rel=0.2)


def test_a_few_entries_are_weighed_whole(fill, clock):
    cache = fill(MIXED[:50])
    # An entry that is weighed takes a few bytes more.
    assert memory(cache) == pytest.approx(memory(fill(MIXED[:50], max_weight=2**40, weigher=size_of)), rel=0.1)
    for number in range(49):
        cache.delete(f"key {number}")
    clock.advance(PERIOD)
    assert memory(cache) == memory(fill([None] * 49 + MIXED[49:50])) - memory(fill([None] * 49))


def test_of_objects_that_are_kept_by_reference_it_is_not_known(fill, clock):
    cache = fill([*range(60), {"of": "unknown size"}])
    assert memory(cache) is None
    cache.delete("key 60")
    clock.advance(PERIOD)
    assert memory(cache) > 0
    # Only some samples contain the entry. The other samples must not hide it.
    cache = fill([*range(70), {"of": "unknown size"}])
    clock.advance(40 * PERIOD)
    assert memory(cache) is None


def test_weights_that_are_no_bytes_are_not_taken_for_it(fill):
    cache = fill(["x" * 1000], max_weight=10, weigher=lambda key, value: 1)
    assert memory(cache) > 1000


def test_an_empty_cache_takes_nothing_and_one_that_was_not_looked_at_is_not_known(fill):
    cache = fill([1])
    assert memory(cache) > 0
    cache.clear()
    assert memory(cache) == 0
    cache.set("key", "x" * 1000)
    assert memory(Cache(log_interval=None)) == 0


@pytest.mark.parametrize("seconds", [0.001, 0.05, 10.0])
def test_values_that_take_long_to_weigh_do_not_take_more_of_the_time(monkeypatch, seconds):
    now, weighed = [0.0], []

    class Core:
        entry_bytes = 100

        def __len__(self):
            return 1000

        def scan(self, start):
            return self

        def step(self, count):
            for _ in range(count):
                weighed.append(now[0])
                now[0] += seconds
                yield Record("key", 1, Times(0.0, 0.0, True), 0, None)

    monkeypatch.setattr(time, "thread_time", lambda: now[0])
    memory_use = MemoryUse(Core(), lambda: (1000, 0), PERIOD, is_weighed=bool)
    for _ in range(20_000):
        memory_use.run()
        now[0] += PERIOD
    assert memory_use() == 1000 * size_of("key", 1, entry_bytes=100)
    assert 0 < len(weighed) * seconds / now[0] < 0.002


@pytest.mark.parametrize("values", [["x" * 1000] * 10, [object()]])
def test_the_history_has_it_unless_it_is_not_known(fill, clock, values):
    cache = fill(values)
    clock.advance(30.0)
    steps = steps_of(Site([cache]), cache.name)
    step = list(steps.values())[-1]
    assert step.entries == len(values)
    assert step.memory == (memory(cache) or 0)
    assert (memory(cache) is None) == (values[0] != "x" * 1000)
