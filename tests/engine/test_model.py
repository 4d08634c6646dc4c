"""The facade against the model of a core, in random steps: its use of the core's steps, counts and notifications."""

from math import inf

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.core.model import ABSENT, SAME, Model
from tests.engine import invariants
from wheelcache import Cache, ManualClock, RemovalCause
from wheelcache.core.contract import KEEP_TTL, MISSING, STORED

KEYS = st.integers(0, 7)
VALUES = st.integers(0, 5)
TTLS = st.one_of(st.none(), st.integers(1, 40), st.floats(0.01, 1000))


class CacheAgainstModel(RuleBasedStateMachine):
    """The weight of an entry is its value."""

    @initialize(max_entries=st.sampled_from([1, 3, 5, None]), max_weight=st.sampled_from([4, 9, None]))
    def make(self, max_entries, max_weight):
        self.clock = ManualClock()
        self.removals, self.cleared = [], []
        self.loads = 0
        self.weigh = (lambda key, value: value) if max_weight else None
        self.cache = Cache(
            clock=self.clock,
            max_entries=max_entries,
            max_weight=max_weight,
            weigher=self.weigh,
            jitter=0,
            on_removal=lambda *removal: self.removals.append(removal),
        )
        self.model = Model(max_entries, max_weight)

    def write(self, key, value, ttl, **given):
        weight = self.weigh(key, value) if self.weigh else 0
        return self.model.set(key, value, ttl, weight=weight, **given) == STORED

    @rule(key=KEYS, value=VALUES, ttl=TTLS)
    def set(self, key, value, ttl):
        assert self.cache.set(key, value, ttl) == self.write(key, value, ttl)

    @rule(values=st.dictionaries(KEYS, VALUES, min_size=1), ttl=TTLS, jitter=st.booleans())
    def set_many(self, values, ttl, jitter):
        refused = [key for key, value in values.items() if not self.write(key, value, ttl)]
        assert self.cache.set_many(values, ttl, jitter=jitter) == refused

    @rule(key=KEYS, value=VALUES, ttl=TTLS)
    def add(self, key, value, ttl):
        assert self.cache.add(key, value, ttl) == self.write(key, value, ttl, mode=ABSENT)

    @rule(key=KEYS)
    def get(self, key):
        assert self.cache.get(key, MISSING) == self.model.get(key, MISSING)

    @rule(keys=st.lists(KEYS, unique=True))
    def get_many(self, keys):
        found = {key: self.model.get(key, MISSING) for key in keys}
        assert self.cache.get_many(keys) == {key: value for key, value in found.items() if value is not MISSING}

    @rule(key=KEYS, value=VALUES, ttl=TTLS, fails=st.booleans())
    def get_or_load(self, key, value, ttl, fails):
        def loader():
            if fails:
                raise LookupError
            return value

        expected = self.model.get(key, MISSING)
        if expected is MISSING and fails:
            with pytest.raises(LookupError):
                self.cache.get_or_load(key, loader, ttl)
            return
        if expected is MISSING:
            self.loads += 1
            self.write(key, value, ttl)
            expected = value
        assert self.cache.get_or_load(key, loader, ttl) == expected

    @rule(key=KEYS, ttl=TTLS)
    def touch(self, key, ttl):
        assert self.cache.touch(key, ttl) == (self.model.touch(key, ttl) == STORED)

    @rule(key=KEYS, delta=st.integers(0, 2))
    def incr(self, key, delta):
        live = self.model.live(key)
        if live is None:
            with pytest.raises(KeyError):
                self.cache.incr(key, delta)
            return
        assert self.cache.incr(key, delta) == live.value + delta
        self.write(key, live.value + delta, KEEP_TTL, mode=SAME, expected=live.value)

    @rule(key=KEYS, pop=st.booleans())
    def delete(self, key, pop):
        expected = self.model.delete(key, MISSING)
        if pop:
            assert self.cache.pop(key, MISSING) == expected
        else:
            assert self.cache.delete(key) == (expected is not MISSING)

    @rule(size=st.integers(0, 3))
    def evict_to(self, size):
        self.cache.engine.evict_to(size)
        self.model.evict(100, size)

    @rule()
    def clear(self):
        self.cleared += [(each.key, each.value, RemovalCause.CLEARED) for each in self.model.entries]
        self.model.clear()
        self.cache.clear()

    @rule(seconds=st.one_of(st.integers(0, 5), st.floats(0, 5), st.floats(0, 2000)))
    def time_passes(self, seconds):
        self.clock.advance(seconds)
        self.model.now = self.clock()
        self.model.advance()

    @invariant()
    def they_agree(self):
        cache, model = self.cache, self.model
        invariants.check(cache)
        assert len(cache) == len(model.entries)
        assert cache.keys() == [each.key for each in model.entries if model.is_live(each)]
        for each in model.entries:
            assert (each.key in cache) == model.is_live(each)
            if model.is_live(each):
                left = each.fresh_until - model.now
                assert cache.expires_in(each.key) == (None if left == inf else left)
        assert sorted(self.removals, key=repr) == sorted(model.left + self.cleared, key=repr)
        stats = cache.stats()
        assert (stats.hits, stats.misses, stats.loads) == (model.hits, model.misses, self.loads)
        assert stats.removals == {cause.value: count for cause, count in model.counts.items()}
        assert (stats.size, stats.weight) == (len(model.entries), model.weight)

    def teardown(self):
        if hasattr(self, "cache"):
            invariants.check_timers(self.cache, self.clock)


CacheAgainstModel.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
TestCacheAgainstModel = CacheAgainstModel.TestCase
