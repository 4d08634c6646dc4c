"""The cache against a plain dict, with random operations and steps of the clock."""

from collections import OrderedDict
from math import ceil, floor, inf

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.engine import invariants
from wheelcache import Cache, ManualClock, RemovalCause

EXPIRED, EVICTED, REPLACED, DELETED, CLEARED = RemovalCause

KEYS = st.integers(0, 7)
VALUES = st.integers(0, 5)
TTLS = st.one_of(st.none(), st.integers(1, 40), st.floats(0.01, 1000))


class CacheAgainstADict(RuleBasedStateMachine):
    """The model: key -> (value, due), least recently used first. The weight of an entry is its value.

    Between two ticks, expired entries are in memory. What is left open is whether a read removes the one that it finds:
    after such a read, the time passes until the tick that does.
    """

    @initialize(
        max_entries=st.sampled_from([1, 3, 5, None]),
        max_weight=st.sampled_from([4, 9, None]),
        slots=st.sampled_from([1, 3, 64]),
        interval=st.sampled_from([1, 8]),
    )
    def make(self, max_entries, max_weight, slots, interval):
        self.clock = ManualClock()
        self.removals = []
        self.expected = []
        self.interval = interval
        self.max_entries = max_entries or inf
        self.max_weight = max_weight or inf
        self.weigh = (lambda value: value) if max_weight else (lambda value: 0)
        self.cache = Cache(
            clock=self.clock,
            max_entries=max_entries,
            max_weight=max_weight,
            weigher=(lambda key, value: value) if max_weight else None,
            slots=slots,
            interval=interval,
            jitter=0,
            log_interval=None,
            sample_interval=None,
            on_removal=lambda *removal: self.removals.append(removal),
        )
        self.model = OrderedDict()
        self.hits = self.misses = self.loads = 0

    @property
    def now(self):
        return self.clock()

    def live(self, key):
        return key in self.model and self.model[key][1] > self.now

    def leave(self, key, cause):
        value, due = self.model.pop(key)
        self.expected.append((key, value, EXPIRED if due <= self.now else cause))

    def write(self, key, value, due):
        if key in self.model:
            old, old_due = self.model[key]
            self.expected.append((key, old, EXPIRED if old_due <= self.now else REPLACED))
        if self.weigh(value) > self.max_weight:
            self.model.pop(key, None)
            return False
        self.model[key] = (value, due)
        self.model.move_to_end(key)
        while (
            len(self.model) > self.max_entries or sum(self.weigh(v) for v, _ in self.model.values()) > self.max_weight
        ):
            self.leave(next(iter(self.model)), EVICTED)
        return True

    def due(self, ttl):
        return inf if ttl is None else self.now + ttl

    def read(self, key):
        """The model of a get: whether it hits."""
        if self.live(key):
            self.hits += 1
            self.model.move_to_end(key)
            return True
        self.misses += 1
        return False

    def after_reads_of(self, *keys):
        if any(key in self.model and not self.live(key) for key in keys):
            self.pass_to_a_tick()

    def pass_to_a_tick(self):
        """Move the clock on until the wheel has removed all that is expired."""
        while any(not self.live(key) for key in self.model):
            self.pass_time(ceil(self.now / self.interval) * self.interval - self.now)

    def pass_time(self, seconds):
        self.clock.advance(seconds)
        tick = floor(self.now / self.interval) * self.interval
        for key, (_, due) in list(self.model.items()):
            if due <= tick:
                self.leave(key, EXPIRED)

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

    @rule(key=KEYS)
    def get(self, key):
        expected = self.model[key][0] if self.read(key) else "missing"
        assert self.cache.get(key, "missing") == expected
        self.after_reads_of(key)

    @rule(keys=st.lists(KEYS, unique=True))
    def get_many(self, keys):
        expected = {key: self.model[key][0] for key in keys if self.read(key)}
        assert self.cache.get_many(keys) == expected
        self.after_reads_of(*keys)

    @rule(key=KEYS, value=VALUES, ttl=TTLS, fails=st.booleans())
    def take(self, key, value, ttl, fails):
        def loader():
            if fails:
                raise LookupError
            return value

        if self.read(key):
            assert self.cache.take(key, loader, ttl) == self.model[key][0]
            return
        try:
            assert self.cache.take(key, loader, ttl) == value
        except LookupError:
            assert fails
            self.after_reads_of(key)
        else:
            self.loads += 1
            self.write(key, value, self.due(ttl))

    @rule(key=KEYS, ttl=TTLS)
    def touch(self, key, ttl):
        assert self.cache.touch(key, ttl) == self.live(key)
        if self.live(key):
            self.model[key] = (self.model[key][0], self.due(ttl))

    @rule(key=KEYS, delta=st.integers(0, 2))
    def incr(self, key, delta):
        try:
            assert self.cache.incr(key, delta) == self.model[key][0] + delta
        except KeyError:
            assert not self.live(key)
            self.after_reads_of(key)
        else:
            value, due = self.model[key]
            self.write(key, value + delta, due)

    @rule(key=KEYS)
    def delete(self, key):
        assert self.cache.delete(key) == self.live(key)
        if key in self.model:
            self.leave(key, DELETED)

    @rule(key=KEYS)
    def pop(self, key):
        assert self.cache.pop(key, "missing") == (self.model[key][0] if self.live(key) else "missing")
        if key in self.model:
            self.leave(key, DELETED)

    @rule(size=st.integers(0, 3))
    def evict_to(self, size):
        self.cache.evict_to(size)
        while len(self.model) > size:
            self.leave(next(iter(self.model)), EVICTED)

    @rule()
    def clear(self):
        self.pass_to_a_tick()
        self.cache.clear()
        for key in list(self.model):
            self.leave(key, CLEARED)

    @rule(seconds=st.one_of(st.integers(0, 5), st.floats(0, 5), st.floats(0, 2000)))
    def time_passes(self, seconds):
        self.pass_time(seconds)

    @invariant()
    def they_agree(self):
        invariants.check(self.cache)
        assert len(self.cache) == len(self.model)
        assert self.cache.keys() == [key for key in self.model if self.live(key)]
        for key, (_, due) in self.model.items():
            assert (key in self.cache) == (due > self.now)
            if due > self.now:
                assert self.cache.expires_in(key) == (None if due == inf else due - self.now)
        assert sorted(self.removals, key=repr) == sorted(self.expected, key=repr)
        stats = self.cache.stats()
        assert (stats.hits, stats.misses, stats.loads) == (self.hits, self.misses, self.loads)
        causes = [cause for _, _, cause in self.expected]
        assert (stats.evictions, stats.expirations) == (causes.count(EVICTED), causes.count(EXPIRED))
        assert stats.size == len(self.model)
        assert stats.weight == sum(self.weigh(value) for value, _ in self.model.values())

    def teardown(self):
        if hasattr(self, "cache"):
            invariants.check_timers(self.cache, self.clock)


CacheAgainstADict.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestCacheAgainstADict = CacheAgainstADict.TestCase
