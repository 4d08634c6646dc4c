"""The figures of a cache: exact, whatever the causes and the threads, and they add up."""

import gc
import random
import tempfile
import threading
from collections import Counter, OrderedDict
from dataclasses import fields
from math import ceil, floor, inf
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.waiting import THREADS, until
from wheelcache import Cache, ManualClock, RemovalCause, caches
from wheelcache.coherence.shared_stamps import SharedStamps
from wheelcache.loading.policy import PLAIN
from wheelcache.stats import COUNTS, LOAD_BOUNDS, LoadTimes, Stats, Tally

EXPIRED, EVICTED, REPLACED, DELETED, CLEARED = RemovalCause

# Adding up.

STATS = st.builds(
    Stats,
    **{each.name: st.integers(0, 10**6) for each in fields(Stats) if each.name != "load_buckets"},
    load_buckets=st.tuples(*[st.integers(0, 10**6)] * (len(LOAD_BOUNDS) + 1)),
)


def test_counts_and_gauges_and_buckets_are_all_there_is():
    names = {each.name for each in fields(Stats)}
    assert names == {*COUNTS, "size", "weight", "load_buckets"}
    assert len(Stats().load_buckets) == len(LOAD_BOUNDS) + 1


@given(STATS, STATS)
def test_stats_add_up_field_by_field(one, other):
    total = one + other
    for name in (*COUNTS, "size", "weight"):
        assert getattr(total, name) == getattr(one, name) + getattr(other, name)
    assert total.load_buckets == tuple(map(sum, zip(one.load_buckets, other.load_buckets, strict=True)))
    assert total == other + one
    assert one + Stats() == one
    assert total.requests == one.requests + other.requests
    for cause, number in total.removals.items():
        assert number == one.removals[cause] + other.removals[cause]


@given(STATS, STATS)
def test_what_was_counted_in_between_is_a_difference_and_gauges_are_what_they_are(one, other):
    last_minute = (one + other) - one
    for name in (*COUNTS, "load_buckets"):
        assert getattr(last_minute, name) == getattr(other, name)
    assert (last_minute.size, last_minute.weight) == (one.size + other.size, one.weight + other.weight)


def test_removals_have_every_cause_by_its_value():
    stats = Stats(expirations=1, evictions=2, replacements=3, deletions=4, clearings=5)
    assert stats.removals == {cause.value: number for number, cause in enumerate(RemovalCause, 1)}


# Times of loads.


@pytest.mark.parametrize(
    ("seconds", "bucket"),
    [(0.0, 0), (0.001, 0), (0.0010001, 1), (0.0025, 1), (0.5, 8), (9.99, 12), (10.0, 12), (10.001, 13), (inf, 13)],
)
def test_a_load_is_counted_in_the_bucket_of_the_first_bound_it_does_not_exceed(seconds, bucket):
    times = LoadTimes()
    times.add(seconds)
    assert times.buckets == [int(number == bucket) for number in range(len(LOAD_BOUNDS) + 1)]
    assert times.seconds == seconds


def test_loads_that_return_and_loads_that_raise_are_both_in_the_buckets(clock):
    cache = Cache(clock=clock)

    def loader(seconds, fails):
        clock.advance(seconds)
        if fails:
            raise LookupError

    for number, seconds in enumerate((0, 0.03, 0.3, 3, 30)):
        cache.take(number, lambda seconds=seconds: loader(seconds, False))
        with pytest.raises(LookupError):
            cache.take(-number - 1, lambda seconds=seconds: loader(seconds, True))
    stats = cache.stats()
    assert (stats.loads, stats.load_failures) == (5, 5)
    assert sum(stats.load_buckets) == 10
    assert stats.load_seconds == pytest.approx(2 * 33.33)
    assert [stats.load_buckets[place] for place in (0, 5, 8, 11, 13)] == [2, 2, 2, 2, 2]


def test_many_keys_that_are_loaded_at_once_are_one_load(clock):
    cache = Cache(clock=clock)
    cache.loading.load_many(range(100), lambda keys: dict.fromkeys(keys, 1), None, PLAIN)
    assert sum(cache.stats().load_buckets) == cache.stats().loads


def test_a_stale_value_that_is_served_is_never_taken_for_a_fresh_one(clock, together):
    cache = Cache(clock=clock, ttl=10, jitter=0, log_interval=None, sample_interval=None)
    cache.take("k", lambda: "old", grace=100)
    clock.advance(11)
    over = threading.Event()

    def work(number):
        if number:
            while not over.is_set():
                cache.loading.get_stale("k")
            return set()
        try:
            return {stats.hits - stats.stale_hits for stats in (cache.stats() for _ in range(2000))}
        finally:
            over.set()

    assert together(work)[0] == {0}


def test_a_tally_is_exact_under_threads_and_reading_does_not_count(together):
    tally = Tally()
    lock = threading.Lock()

    def count(_):
        for number in range(1000):
            next(tally.ticks)
            if number % 100 == 0:
                with lock:
                    tally.read()

    together(count)
    assert tally.read() == tally.read() == 1000 * THREADS


# Removals, under threads.


@pytest.mark.parametrize("board", [False, True])
@pytest.mark.parametrize("weigher", [None, lambda key, value: 1])
def test_every_removal_is_counted_once_and_told_once_under_32_threads(tmp_path, together, board, weigher):
    """Every call that takes something out, and the wheel. What was set is what left and what is there."""
    told = Counter()
    lock = threading.Lock()

    def on_removal(key, value, cause):
        with lock:
            told[cause] += 1

    cache = Cache(
        max_entries=300,
        weigher=weigher,
        max_weight=None if weigher is None else 250,
        interval=0.005,
        on_removal=on_removal,
        stamps=SharedStamps("test", slots=1 << 16, directory=tmp_path) if board else None,
    )
    stored = [0] * THREADS

    def work(number):
        mine = random.Random(number)
        for step in range(600):
            key = mine.randrange(400)
            which = mine.random()
            if which < 0.5:
                stored[number] += cache.set(key, number, mine.choice([None, 0.001, 0.02, 60]))
            elif which < 0.6:
                many = {mine.randrange(400): number for _ in range(20)}
                stored[number] += len(many) - len(cache.set_many(many, 60))
            elif which < 0.65:
                stored[number] += cache.add(key, number)
            elif which < 0.7:
                try:
                    cache.incr(key)
                    stored[number] += 1
                except KeyError:
                    pass
            elif which < 0.8:
                cache.delete(key)
            elif which < 0.85:
                cache.delete_many(range(key, key + 20))
            elif which < 0.87:
                cache.evict_to(200)
            elif which < 0.88 and step % 10 == 0:
                cache.clear()
            elif which < 0.95:
                cache.get(key)
            else:
                cache.pop(key, None)

    assert together(work) == [None] * THREADS
    # The wheel thread may be between taking out and telling.
    assert until(lambda: sum(told.values()) == sum(cache.stats().removals.values()))
    stats = cache.stats()
    assert stats.removals == {cause.value: told[cause] for cause in RemovalCause}
    if not board:
        assert sum(stats.removals.values()) == sum(stored) - len(cache)
    assert all(stats.removals.values())
    cache.close()


def test_replacements_are_exact_under_threads_on_the_way_without_a_listener(together):
    cache = Cache()
    cache.set("a", 0, 60)
    together(lambda number: [cache.set("a", number, 60) for _ in range(1000)])
    assert cache.stats().replacements == 1000 * THREADS
    assert len(cache) == 1


def test_misses_and_hits_are_exact_under_threads(together):
    cache = Cache()
    cache.set("a", 0)
    together(lambda number: [(cache.get("a"), cache.get("b"), cache.get_many(["a", "b"])) for _ in range(500)])
    stats = cache.stats()
    assert (stats.hits, stats.misses) == (1000 * THREADS, 1000 * THREADS)


def test_what_a_listener_that_raises_an_exit_leaves_untold_is_counted(clock):
    def leave(*removal):
        raise SystemExit

    cache = Cache(clock=clock)
    cache.set_many(dict.fromkeys(range(5000), 1))
    cache.on_removal = leave
    with pytest.raises(SystemExit):
        cache.clear()
    assert cache.stats().clearings == 5000


# The listener.


def test_the_listener_may_be_set_and_unset_at_any_time(clock):
    cache = Cache(clock=clock)
    told = []
    assert cache.on_removal is None
    cache.set("a", 1)
    cache.set("a", 2)
    cache.on_removal = lambda *removal: told.append(removal)
    cache.set("a", 3)
    cache.delete("a")
    cache.set("b", 1, ttl=5)
    clock.advance(10)
    assert told == [("a", 2, REPLACED), ("a", 3, DELETED), ("b", 1, EXPIRED)]
    cache.on_removal = None
    cache.set("c", 1)
    cache.set("c", 2)
    cache.clear()
    assert len(told) == 3
    assert cache.stats().removals == {"expired": 1, "evicted": 0, "replaced": 3, "deleted": 1, "cleared": 1}


@pytest.mark.parametrize("wrong", [1, "print", [], object()])
def test_what_is_no_function_is_refused_as_a_listener_and_the_one_before_stays(clock, wrong):
    told = []
    cache = Cache(clock=clock, on_removal=lambda *removal: told.append(removal))
    with pytest.raises(TypeError, match="on_removal must be callable, or None, not"):
        cache.on_removal = wrong
    cache.set("a", 1)
    cache.delete("a")
    assert len(told) == 1


def test_without_a_listener_a_weigher_still_sees_every_write(clock):
    cache = Cache(clock=clock, weigher=lambda key, value: value, max_weight=10, on_removal=print)
    cache.on_removal = None
    cache.set("a", 5, 60)
    cache.set("a", 9, 60)
    assert cache.stats().weight == 9


def test_a_listener_that_is_set_and_unset_while_others_write_raises_nothing(together):
    cache = Cache(max_entries=50, interval=0.01)

    def work(number):
        for step in range(500):
            if number == 0:
                cache.on_removal = (lambda *removal: None) if step % 2 else None
            cache.set((number, step), step, 0.01)

    assert together(work) == [None] * THREADS
    cache.close()


# Which caches there are.


def test_the_caches_of_the_process_are_listed_while_they_are_in_use(clock):
    before = caches()
    first, second = Cache("first", clock=clock), Cache("second", clock=clock)
    assert [each for each in caches() if each not in before] == [first, second]
    first.close()
    assert [each for each in caches() if each not in before] == [second]
    del second
    gc.collect()
    assert [each for each in caches() if each not in before] == []


def test_a_cache_that_could_not_be_made_is_not_listed():
    before = caches()
    with pytest.raises(TypeError):
        Cache(max_entries="many")
    assert caches() == before


# Against a model, with everything that writes, stale values, weights, and a board on which others write.

KEYS = st.integers(0, 5)
VALUES = st.integers(0, 6)
TTLS = st.none() | st.integers(1, 30)


class RemovalsAgainstAModel(RuleBasedStateMachine):
    """The model: key -> (value, due, grace). What leaves is counted by cause, whether or not a listener is told of it.

    What is left open is whether a read removes the entry that it finds expired, and what ``clear`` says of one.
    """

    @initialize(
        max_entries=st.sampled_from([2, 4, None]),
        max_weight=st.sampled_from([8, None]),
        listens=st.booleans(),
        stamps=st.booleans(),
    )
    def make(self, max_entries, max_weight, listens, stamps):
        self.clock = ManualClock()
        self.told = []
        self.max_entries, self.max_weight = max_entries or inf, max_weight or inf
        self.boards = []
        if stamps:
            self.folder = tempfile.TemporaryDirectory()
            self.boards = [SharedStamps("test", slots=1 << 10, directory=Path(self.folder.name)) for _ in range(2)]
            self.elsewhere = Cache(clock=self.clock, stamps=self.boards[1])
        self.cache = Cache(
            clock=self.clock,
            max_entries=max_entries,
            max_weight=max_weight,
            weigher=(lambda key, value: value) if max_weight else None,
            jitter=0,
            stamps=self.boards[0] if stamps else None,
            on_removal=self.tell if listens else None,
        )
        self.model = OrderedDict()
        self.counts = Counter()
        self.sets = 0
        self.expected_told = 0

    def teardown(self):
        if hasattr(self, "cache"):
            self.cache.close()
        if hasattr(self, "elsewhere"):
            self.elsewhere.close()
            self.folder.cleanup()

    def tell(self, key, value, cause):
        self.told.append(cause)

    def leave(self, key, cause):
        _, due, _ = self.model.pop(key)
        self.count(EXPIRED if due <= self.clock() else cause)

    def count(self, cause):
        self.counts[cause] += 1
        self.expected_told += self.cache.on_removal is not None

    def live(self, key):
        return key in self.model and self.model[key][1] > self.clock()

    def end(self, key):
        _, due, grace = self.model[key]
        return due + grace

    def weight(self):
        return sum(value for value, _, _ in self.model.values()) if self.max_weight != inf else 0

    def write(self, key, value, due, grace=0):
        if self.max_weight != inf and value > self.max_weight:
            if key in self.model:
                self.leave(key, REPLACED)
            return False
        if key in self.model:
            self.count(EXPIRED if self.model[key][1] <= self.clock() else REPLACED)
        self.sets += 1
        self.model[key] = (value, due, grace)
        self.model.move_to_end(key)
        while len(self.model) > self.max_entries or self.weight() > self.max_weight:
            self.leave(next(iter(self.model)), EVICTED)
        return True

    def due(self, ttl):
        return inf if ttl is None else self.clock() + ttl

    @rule(key=KEYS, value=VALUES, ttl=TTLS)
    def set(self, key, value, ttl):
        assert self.cache.set(key, value, ttl) == self.write(key, value, self.due(ttl))

    @rule(values=st.dictionaries(KEYS, VALUES, min_size=1), ttl=TTLS)
    def set_many(self, values, ttl):
        refused = [key for key, value in values.items() if not self.write(key, value, self.due(ttl))]
        assert self.cache.set_many(values, ttl) == refused

    @rule(key=KEYS, value=VALUES, ttl=TTLS)
    def add(self, key, value, ttl):
        expected = not self.live(key) and self.write(key, value, self.due(ttl))
        assert self.cache.add(key, value, ttl) == expected

    @rule(key=KEYS, delta=st.integers(0, 3))
    def incr(self, key, delta):
        try:
            self.cache.incr(key, delta)
        except KeyError:
            assert not self.live(key)
            self.pass_to_a_tick(key)
            return
        value, due, grace = self.model[key]
        # What never expires needs none.
        self.write(key, value + delta, due, grace if due != inf else 0)

    @rule(key=KEYS, value=VALUES, ttl=st.integers(1, 30), grace=st.integers(1, 30))
    def take_with_grace(self, key, value, ttl, grace):
        if key in self.model and not self.live(key):
            # A stale value would be refreshed in the background: tested elsewhere.
            return
        found = self.cache.take(key, lambda: value, ttl, grace)
        if self.live(key):
            assert found == self.model[key][0]
            self.model.move_to_end(key)
        else:
            self.write(key, value, self.due(ttl), grace)

    @rule(key=KEYS)
    def get(self, key):
        expected = self.model[key][0] if self.live(key) else None
        assert self.cache.get(key) == expected
        if self.live(key):
            self.model.move_to_end(key)
        self.pass_to_a_tick(key)

    def pass_to_a_tick(self, key):
        """If ``key`` has come to its end, move the clock on until the wheel has removed it."""
        while key in self.model and self.end(key) <= self.clock():
            self.time_passes(ceil(self.clock()) - self.clock())

    @rule(key=KEYS, ttl=TTLS)
    def touch(self, key, ttl):
        assert self.cache.touch(key, ttl) == self.live(key)
        if self.live(key):
            value, _, grace = self.model[key]
            self.model[key] = (value, self.due(ttl), grace)

    @rule(key=KEYS)
    def delete(self, key):
        assert self.cache.delete(key) == self.live(key)
        if key in self.model:
            self.leave(key, DELETED)

    @rule(keys=st.lists(KEYS, unique=True))
    def delete_many(self, keys):
        self.cache.delete_many(keys)
        for key in keys:
            if key in self.model:
                self.leave(key, DELETED)

    @rule(size=st.integers(0, 3))
    def evict_to(self, size):
        self.cache.evict_to(size)
        while len(self.model) > size:
            self.leave(next(iter(self.model)), EVICTED)

    @rule()
    def clear(self):
        self.delete_many([key for key in self.model if not self.live(key)])
        self.cache.clear()
        for key in list(self.model):
            self.leave(key, CLEARED)

    @precondition(lambda self: self.boards)
    @rule(key=KEYS)
    def another_process_writes(self, key):
        self.elsewhere.set(key, 0, 60)
        assert self.cache.get(key) is None
        assert not self.cache.delete(key)
        if key in self.model:
            self.leave(key, DELETED)

    @rule(listens=st.booleans())
    def listen(self, listens):
        self.cache.on_removal = self.tell if listens else None

    @rule(seconds=st.integers(0, 40) | st.floats(0, 5))
    def time_passes(self, seconds):
        self.clock.advance(seconds)
        for key in list(self.model):
            # It leaves at the first tick, of one each second, that is not before its end.
            if self.end(key) <= floor(self.clock()):
                self.leave(key, EXPIRED)

    @invariant()
    def they_agree(self):
        stats = self.cache.stats()
        assert stats.removals == {cause.value: self.counts[cause] for cause in RemovalCause}
        assert len(self.told) == self.expected_told
        assert sum(stats.removals.values()) == self.sets - stats.size
        assert (stats.size, stats.weight) == (len(self.model), self.weight())


TestRemovalsAgainstAModel = RemovalsAgainstAModel.TestCase
TestRemovalsAgainstAModel.settings = settings(deadline=None, max_examples=100, stateful_step_count=40)
