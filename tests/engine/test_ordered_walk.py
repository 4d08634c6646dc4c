"""Going through a cache in order of use, in steps, while it is used: nobody else is to notice."""

import gc
import os
import threading
from collections import OrderedDict
from math import ceil, inf

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.engine import invariants
from tests.waiting import THREADS
from wheelcache import Cache, CacheClosed, ManualClock, RemovalCause, bounded_map
from wheelcache.core import ordered_walk

EXPIRED, EVICTED, REPLACED, DELETED, CLEARED = RemovalCause

KEYS = st.integers(0, 11)
VALUES = st.integers(0, 4)
TTLS = st.one_of(st.none(), st.none(), st.integers(1, 40))


class WalkedCache(RuleBasedStateMachine):
    """The model: key -> (value, due), least recently used first. Weight of an entry: its value."""

    @initialize(
        step=st.integers(1, 4),
        max_entries=st.sampled_from([2, 5, 8, None]),
        max_weight=st.sampled_from([7, 15, None]),
        graced=st.booleans(),
        first=st.lists(KEYS, unique=True, max_size=8),
    )
    def make(self, step, max_entries, max_weight, graced, first):
        self.step_before = ordered_walk.STEP
        ordered_walk.STEP = step
        self.clock = ManualClock()
        self.removals = []
        self.expected = []
        self.max_entries = max_entries or inf
        self.max_weight = max_weight or inf
        self.weigh = (lambda value: value) if max_weight else (lambda value: 0)
        self.grace = 5 if graced else None
        self.walk = None
        self.hits = self.misses = 0
        self.cache = Cache(
            clock=self.clock,
            max_entries=max_entries,
            max_weight=max_weight,
            weigher=(lambda key, value: value) if max_weight else None,
            jitter=0,
            log_interval=None,
            sample_interval=None,
            on_removal=lambda *removal: self.removals.append(removal),
        )
        self.cache._patience = inf
        self.model = OrderedDict()
        for key in first:
            self.set(key, 1, None)

    def teardown(self):
        ordered_walk.STEP = self.step_before
        if self.walk is not None:
            self.walk.close()
            invariants.check(self.cache)

    @property
    def now(self):
        return self.clock()

    def live(self, key):
        return key in self.model and self.model[key][1] > self.now

    def used(self, key):
        self.model.move_to_end(key)
        if self.walk is not None:
            self.used_meanwhile.add(key)

    def leave(self, key, cause):
        value, due = self.model.pop(key)
        self.expected.append((key, value, EXPIRED if due <= self.now else cause))
        if self.walk is not None:
            self.throughout.discard(key)

    def write(self, key, value, due):
        if key in self.model:
            old, old_due = self.model[key]
            self.expected.append((key, old, EXPIRED if old_due <= self.now else REPLACED))
        if self.weigh(value) > self.max_weight:
            if self.model.pop(key, None) and self.walk is not None:
                self.throughout.discard(key)
            return
        self.model[key] = (value, due)
        self.used(key)
        while (
            len(self.model) > self.max_entries or sum(self.weigh(v) for v, _ in self.model.values()) > self.max_weight
        ):
            self.leave(next(iter(self.model)), EVICTED)

    def due(self, ttl):
        return inf if ttl is None else self.now + ttl

    def read(self, key):
        if self.live(key):
            self.hits += 1
            self.used(key)
            return True
        self.misses += 1
        if key in self.model:
            self.leave(key, EXPIRED)
        return False

    # What others do.

    @rule(key=KEYS, value=VALUES, ttl=TTLS)
    def set(self, key, value, ttl):
        self.cache.set(key, value, ttl)
        self.write(key, value, self.due(ttl))

    @rule(values=st.dictionaries(KEYS, VALUES, min_size=1), ttl=TTLS)
    def set_many(self, values, ttl):
        self.cache.set_many(values, ttl)
        for key, value in values.items():
            self.write(key, value, self.due(ttl))

    @rule(key=KEYS)
    def get(self, key):
        expected = self.model[key][0] if self.read(key) else "missing"
        assert self.cache.get(key, "missing") == expected

    @rule(keys=st.lists(KEYS, unique=True))
    def get_many(self, keys):
        expected = {key: self.model[key][0] for key in keys if self.read(key)}
        assert self.cache.get_many(keys) == expected

    @rule(key=KEYS, value=VALUES)
    def take(self, key, value):
        # With a grace, entries of the other make, if it is loaded.
        if self.grace is not None and self.live(key):
            self.read(key)
            assert self.cache.take(key, lambda: value, None, grace=self.grace) == self.model[key][0]

    @rule(key=KEYS, ttl=TTLS)
    def touch(self, key, ttl):
        assert self.cache.touch(key, ttl) == self.live(key)
        if self.live(key):
            self.model[key] = (self.model[key][0], self.due(ttl))

    @rule(key=KEYS)
    def incr(self, key):
        if self.live(key):
            value, due = self.model[key]
            self.cache.incr(key, 1)
            self.write(key, value + 1, due)

    @rule(key=KEYS)
    def delete(self, key):
        assert self.cache.delete(key) == self.live(key)
        if key in self.model:
            self.leave(key, DELETED)

    @rule(size=st.integers(0, 6))
    def evict_to(self, size):
        self.cache.evict_to(size)
        while len(self.model) > size:
            self.leave(next(iter(self.model)), EVICTED)

    @rule()
    def delete_a_group(self):
        assert self.cache.delete_group("none") == 0

    @rule()
    def clear(self):
        self.cache.clear()
        for key in list(self.model):
            self.leave(key, CLEARED)

    @rule(seconds=st.integers(0, 20))
    def time_passes(self, seconds):
        self.clock.advance(seconds)
        for key, (_, due) in list(self.model.items()):
            if due != inf and ceil(due) <= self.now:
                self.leave(key, EXPIRED)

    @rule()
    def its_table_is_rebuilt(self):
        with self.cache._lock:
            self.cache._most = 1 << 30
            self.cache._fit_table()

    @rule()
    def it_is_forked(self):
        self.cache.after_fork_in_child()
        # As the child's first write sees to.
        self.cache.wake_at = self.cache._wheel.next_wake()
        self.hits = self.misses = 0
        self.expected.clear()
        self.removals.clear()
        assert self.cache._walk is None
        if self.walk is not None:
            # The thread that walks is not in the child. If the child is that very thread, there is no more for it.
            assert list(self.walk) == []
            self.walk = None

    # The walk.

    @precondition(lambda self: self.walk is None)
    @rule()
    def begin(self):
        self.walk = self.cache.in_order_of_use()
        self.order = list(self.model)
        self.throughout = set(self.model)
        self.used_meanwhile = set()
        self.came = []
        self.go_on()

    def go_on(self):
        batch = next(self.walk, None)
        if batch is not None:
            assert batch
            assert len(batch) <= ordered_walk.STEP
            for entry in batch:
                assert self.model[entry.key][0] == entry.value
            self.came += [entry.key for entry in batch]
            return True
        assert set(self.came) >= self.throughout
        undisturbed = self.throughout - self.used_meanwhile
        assert [key for key in self.came if key in undisturbed] == [key for key in self.order if key in undisturbed]
        if not self.used_meanwhile and undisturbed == set(self.order):
            assert self.came == self.order
        # What was used comes after all that was not.
        places = {key: place for place, key in enumerate(self.came)}
        if undisturbed:
            youngest = max(places[key] for key in undisturbed)
            assert all(places[key] > youngest for key in self.used_meanwhile & self.throughout)
        self.walk = None
        assert self.cache._walk is None
        assert list(self.cache.entries) == list(self.model)
        return False

    @precondition(lambda self: self.walk is not None)
    @rule(steps=st.integers(1, 3))
    def walk_on(self, steps):
        while steps and self.go_on():
            steps -= 1

    @precondition(lambda self: self.walk is not None)
    @rule()
    def walk_to_the_end(self):
        while self.go_on():
            pass

    @precondition(lambda self: self.walk is not None)
    @rule()
    def give_up(self):
        self.walk.close()
        self.walk = None
        assert self.cache._walk is None
        assert list(self.cache.entries) == list(self.model)

    @precondition(lambda self: self.walk is not None and self.cache._walk is not None)
    @rule()
    def a_second_one(self):
        with pytest.raises(RuntimeError, match="being saved already"):
            next(self.cache.in_order_of_use())

    @invariant()
    def nobody_notices(self):
        invariants.check(self.cache)
        assert len(self.cache) == len(self.model)
        assert self.cache.keys() == [key for key in self.model if self.live(key)]
        assert sorted(self.removals, key=repr) == sorted(self.expected, key=repr)
        stats = self.cache.stats()
        assert (stats.hits, stats.misses) == (self.hits, self.misses)
        causes = [cause for _, _, cause in self.expected]
        assert (stats.evictions, stats.expirations) == (causes.count(EVICTED), causes.count(EXPIRED))
        assert stats.size == len(self.model)
        assert stats.weight == sum(self.weigh(value) for value, _ in self.model.values())


WalkedCache.TestCase.settings = settings(max_examples=200, stateful_step_count=50, deadline=None)
TestWalkedCache = WalkedCache.TestCase


@pytest.fixture
def steps_of(monkeypatch):
    return lambda count: monkeypatch.setattr(ordered_walk, "STEP", count)


def cache_of(number, **options):
    cache = Cache(clock=ManualClock(), log_interval=None, sample_interval=None, **options)
    for key in range(number):
        cache.set(key, key)
    return cache


def keys_in(batches):
    return [entry.key for batch in batches for entry in batch]


def test_the_oldest_is_evicted_while_the_young_ones_have_yet_to_come(steps_of):
    steps_of(4)
    cache = cache_of(10, max_entries=10)
    walk = cache.in_order_of_use()
    assert keys_in([next(walk)]) == [0, 1, 2, 3]
    cache.get(1)
    for key in range(10, 16):
        cache.set(key, key)
    assert cache.keys() == [7, 8, 9, 1, *range(10, 16)]
    assert keys_in(walk) == [7, 8, 9, 1, *range(10, 16)]
    assert cache.keys() == list(cache.entries) == [7, 8, 9, 1, *range(10, 16)]


def test_what_is_used_before_its_turn_comes_as_well(steps_of):
    steps_of(3)
    cache = cache_of(10)
    walk = cache.in_order_of_use()
    next(walk)
    cache.get(9)
    cache.get(5)
    assert keys_in(walk) == [3, 4, 6, 7, 8, 9, 5]
    assert list(cache.entries) == [0, 1, 2, 3, 4, 6, 7, 8, 9, 5]


@pytest.mark.parametrize("leave", [lambda walk: walk.close(), lambda walk: None], ids=["closed", "collected"])
def test_who_gives_up_leaves_no_marker_and_everything_in_its_place(steps_of, leave):
    steps_of(3)
    cache = cache_of(10)
    walk = cache.in_order_of_use()
    next(walk)
    cache.get(4)
    leave(walk)
    del walk
    gc.collect()
    assert list(cache.entries) == [0, 1, 2, 3, 5, 6, 7, 8, 9, 4]
    assert len(list(cache.in_order_of_use())) > 0


def test_a_search_for_the_oldest_does_not_pass_over_more_than_takes_a_moment(steps_of, monkeypatch):
    steps_of(10)
    monkeypatch.setattr(ordered_walk, "SKIPS", 5)
    cache = cache_of(30, max_entries=30)
    walk = cache.in_order_of_use()
    next(walk)
    for key in range(10):
        cache.get(key)
    cache.set("new", 1)
    # The next best, which is the oldest.
    assert 10 not in cache
    cache.evict_to(3)
    assert len(cache) == 3
    invariants.check(cache)
    list(walk)
    assert cache.keys() == list(cache.entries) == [8, 9, "new"]


def test_an_empty_cache_is_gone_through(steps_of):
    cache = cache_of(0)
    assert list(cache.in_order_of_use()) == []
    assert not cache.entries


@pytest.mark.parametrize("end", ["clear", "close"])
def test_what_is_cleared_or_closed_meanwhile_ends_the_walk_and_tells_nobody_of_markers(steps_of, end):
    steps_of(2)
    removed = []
    cache = cache_of(10, on_removal=lambda *removal: removed.append(removal))
    walk = cache.in_order_of_use()
    next(walk)
    getattr(cache, end)()
    assert sorted(removed) == [(key, key, CLEARED) for key in range(10)]
    if end == "close":
        with pytest.raises(CacheClosed):
            next(walk)
        return
    cache.set("new", 1)
    other = cache.in_order_of_use()
    assert keys_in([next(other)]) == ["new"]
    # The one that was ended takes no part in the other.
    assert list(walk) == []
    assert list(other) == []
    assert list(cache.entries) == ["new"]


def test_who_takes_long_gets_fewer_at_a_time(monkeypatch):
    cache = cache_of(2000)
    monkeypatch.setattr(bounded_map, "LONGEST_BETWEEN_STEPS", -1.0)
    sizes = [len(batch) for batch in cache.in_order_of_use()]
    assert sizes[:9] == [256, 128, 64, 32, 16, 8, 4, 2, 1]
    assert sum(sizes) == 2000


def test_a_child_of_a_fork_has_everything_in_its_place(steps_of):
    steps_of(3)
    cache = cache_of(10, max_entries=10)
    walk = cache.in_order_of_use()
    next(walk)
    cache.get(4)
    pid = os.fork()
    if pid == 0:
        cache.set("new", 1)
        os._exit(list(cache.entries) != [1, 2, 3, 5, 6, 7, 8, 9, 4, "new"])
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    list(walk)
    assert list(cache.entries) == [0, 1, 2, 3, 5, 6, 7, 8, 9, 4]


@pytest.mark.parametrize("step", [20, 256])
def test_among_threads_that_use_it_nothing_is_lost_and_nothing_is_one_too_many(together, steps_of, step):
    steps_of(step)
    cache = Cache(max_entries=1000, log_interval=None, sample_interval=None)
    for key in range(600):
        cache.set(key, key)
    over = threading.Event()
    walked = []

    def work(number):
        if number == 0:
            try:
                walked.extend(set(keys_in(cache.in_order_of_use())) for _ in range(40))
            finally:
                over.set()
            return
        turn = 0
        # Of 32 that do nothing but compute, each would wait a sixth of a second for its turn.
        while not over.is_set() and number < 6:
            turn += 1
            for key in range(number, 600, 17):
                # These stay, and may be anywhere in the order.
                assert cache.get(key) == key
            for key in range(5):
                mine = ("of", number, turn % 4, key)
                cache.set(mine, turn)
                if key % 2:
                    cache.delete(mine)
            assert len(cache) <= 1000
            assert turn % 50 or set(range(600)) <= set(cache.keys())

    outcomes = together(work)
    assert [each for each in outcomes if each is not None] == []
    assert len(walked) == 40
    assert all(set(range(600)) <= each for each in walked)
    invariants.check(cache)
    assert cache._walk is None


@pytest.mark.deep
def test_evictions_meanwhile_in_threads_keep_what_is_used(together, steps_of):
    """Each thread uses the hot keys before each key it adds, so none of those can be the oldest."""
    steps_of(16)
    cache = Cache(max_entries=2000, log_interval=None, sample_interval=None)
    for key in range(2000):
        cache.set(key, key)
    over = threading.Event()

    def work(number):
        if number == 0:
            try:
                for _ in range(40):
                    list(cache.in_order_of_use())
            finally:
                over.set()
            return None
        lost, turn = 0, 0
        mine = ("hot", number)
        cache.set(mine, 1)
        while not over.is_set() and number < 6:
            turn += 1
            lost += cache.get(mine) is None
            # Few enough that each thread had its turn before as many were added as there is room for.
            if turn % 200 == 0:
                cache.set((number, turn), 1)
        return lost

    outcomes = together(work)
    assert outcomes[1:] == [0] * (THREADS - 1)
    assert len(cache) == 2000
    invariants.check(cache)


def test_a_walk_does_not_have_the_table_rebuilt():
    """Of a million entries that would be a pause of 300 ms: markers are strings, as most keys are, and stay in."""
    cache = Cache(log_interval=None, sample_interval=None)
    for key in range(20_000):
        cache.set(str(key), key)
    size = dict.__sizeof__(cache.entries)
    for _ in range(3):
        for _ in cache.in_order_of_use():
            assert dict.__sizeof__(cache.entries) == size
    assert dict.__sizeof__(cache.entries) == size
