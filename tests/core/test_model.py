"""Every implementation against the model, in random steps."""

from array import array
from math import ceil, floor, inf

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.core.cores import Clock, labels
from tests.core.model import ABSENT, ANY, SAME, Model
from wheelcache.core.contract import (
    COMPLETED,
    KEEP_TTL,
    MISSING,
    MORE,
    SWEEP_INTERVAL,
    WAKE,
    MissCause,
    RemovalCause,
)
from wheelcache.core.python_core import PythonCore
from wheelcache.runtime.clock import moment

KEYS = st.integers(0, 4)
SOME_KEYS = st.lists(KEYS, min_size=1, unique=True)
"""Otherwise, few steps would meet an entry."""
VALUES = st.integers(0, 5)
TTLS = st.one_of(st.none(), st.integers(1, 10), st.floats(0.01, 1000))
GRACES = st.one_of(st.just(0.0), st.floats(0, 30))
WEIGHTS = st.integers(0, 6)
# Names that cannot share a place in the table of drops, which is by their hashes.
NAMES = sorted({hash(name) % 2: name for name in map(str, range(64))}.values())
TAGS = st.lists(st.sampled_from(NAMES), max_size=2, unique=True).map(tuple)


class CoreAgainstModel(RuleBasedStateMachine):
    core_class = None

    @initialize(
        max_entries=st.sampled_from([1, 3, None]),
        max_weight=st.sampled_from([4, 9, None]),
        trust=st.sampled_from([None, 1]),
        walks=st.booleans(),
        walk_step=st.integers(1, 4),
        entries=st.lists(st.tuples(SOME_KEYS, VALUES, TTLS, GRACES), min_size=1, max_size=4),
    )
    def make(self, max_entries, max_weight, trust, walks, walk_step, entries):
        self.clock = Clock()
        self.trust = None if trust is None else array("Q", [trust])
        self.core = self.core_class(max_entries=max_entries, max_weight=max_weight, clock=self.clock, trust=self.trust)
        self.model = Model(max_entries, max_weight, self.trust, remembers=self.core_class is not PythonCore)
        self.has_weights = max_weight is not None
        self.removed = []
        self.watches = []
        self.completed = []
        self.seen = {}
        self.walks, self.walk_step, self.walk = walks, walk_step, None
        self.throughout = set()
        # Hypothesis leaves some rules out of an example: of those without ``set``, all look-ups would be misses.
        for keys, value, ttl, grace in entries:
            self.set(keys, value, ttl, grace, 1, ANY, ())

    def outcome(self, outcome):
        """Do the work that an outcome asks for. Return the outcome without the flags that the model does not have."""
        while self.core.completed:
            self.completed.append(self.core.completed.popleft())
        while outcome & MORE and self.core.evict(removed=self.removed):
            pass
        return outcome & ~(WAKE | MORE | COMPLETED)

    @rule(
        keys=SOME_KEYS,
        value=VALUES,
        ttl=TTLS,
        grace=GRACES,
        weight=WEIGHTS,
        mode=st.sampled_from([ANY, ANY, ABSENT]),
        tags=TAGS,
    )
    def set(self, keys, value, ttl, grace, weight, mode, tags):
        weight = weight if self.has_weights else 0
        given = {"weight": weight, "grace": grace} if mode == ANY else {"weight": weight}
        for key in keys:
            waiting = len(self.model.completed)
            outcome = getattr(self.core, mode)(key, value, ttl, **given, labels=labels(tags), removed=self.removed)
            assert self.outcome(outcome) == self.model.set(key, value, ttl, **given, mode=mode, tags=tags)
            assert bool(outcome & COMPLETED) == (len(self.model.completed) > waiting)
            # A key that this evicts may come back with the next one.
            self.throughout &= {each.key for each in self.model.entries}

    @rule(key=KEYS, value=VALUES, ttl=st.one_of(TTLS, st.just(KEEP_TTL)), right=st.booleans())
    def set_in_place_of_a_value(self, key, value, ttl, right):
        there = self.model.live(key)
        expected = there.value if there is not None and right else object()
        weight = 0 if there is None else there.weight
        given = {"expected": expected, "weight": weight}
        outcome = self.core.replace(key, value, ttl, **given, removed=self.removed)
        assert self.outcome(outcome) == self.model.set(key, value, ttl, **given, mode=SAME)

    @rule(key=KEYS)
    def miss(self, key):
        self.seen[key] = moment(), self.model.events
        self.model.events += 1

    @precondition(lambda self: self.seen)
    @rule(data=st.data(), value=VALUES, ttl=TTLS, tags=TAGS)
    def set_what_was_missed(self, data, value, ttl, tags):
        key = data.draw(st.sampled_from(sorted(self.seen)))
        since, events = self.seen[key]
        outcome = self.core.set(key, value, ttl, removed=self.removed, labels=labels(tags, since=since))
        assert self.outcome(outcome) == self.model.set(key, value, ttl, tags=tags, since=events)

    @rule(name=st.sampled_from(NAMES))
    def drop_a_tag(self, name):
        assert self.core.drop_tag(name) == self.model.drop_tag(name)

    @rule(budget=st.integers(1, 3))
    def drain(self, budget):
        while self.core.drain(budget, self.removed):
            pass
        for entry in [*filter(self.model.is_dropped, self.model.entries)]:
            self.model.remove(entry, RemovalCause.DELETED)

    @precondition(lambda self: self.trust is not None)
    @rule()
    def trust_begins_or_ends(self):
        self.trust[0] += 1

    @rule(key=KEYS, wants_value=st.booleans())
    def watch(self, key, wants_value):
        watch = self.core.watch(key, wants_value=wants_value)
        self.watches.append((watch, self.model.watch(key, wants_value)))

    @precondition(lambda self: self.watches)
    @rule(data=st.data(), value=VALUES, ttl=TTLS, tags=TAGS)
    def set_under_a_watch(self, data, value, ttl, tags):
        # Drawn by number: hypothesis keeps drawn objects, and a dropped watch must be freed.
        watch, theirs = self.watches[data.draw(st.integers(0, len(self.watches) - 1))]
        key = watch.key
        outcome = self.core.fill(key, value, ttl, watch, removed=self.removed, labels=labels(tags))
        expected = self.model.set(key, value, ttl, watch=theirs, tags=tags)
        assert self.outcome(outcome) == expected

    @precondition(lambda self: self.watches)
    @rule(data=st.data(), drop=st.booleans())
    def close_a_watch(self, data, drop):
        index = data.draw(st.integers(0, len(self.watches) - 1))
        watch, theirs = self.watches.pop(index)
        theirs.is_open = False
        if not drop:
            watch.close()

    @rule(keys=SOME_KEYS, seconds=st.integers(0, 5))
    def find(self, keys, seconds):
        self.time_passes(seconds)
        for key in keys:
            assert self.core.find(key, MISSING) == self.model.find(key, MISSING)

    @rule(keys=SOME_KEYS)
    def count(self, keys):
        for key in keys:
            if self.model.live(key) is not None:
                self.core.count_hit(key)
                self.model.hits += 1
            else:
                self.core.count_miss(key)
                self.model.missed[self.model.miss_cause(key)] += 1

    @rule(keys=SOME_KEYS, ttl=TTLS)
    def touch(self, keys, ttl):
        for key in keys:
            assert self.outcome(self.core.touch(key, ttl)) == self.model.touch(key, ttl)

    @rule(key=KEYS, only_dead=st.sampled_from([False, False, True]))
    def delete(self, key, only_dead):
        deleted = self.core.delete(key, MISSING, only_dead, self.removed)
        assert deleted == self.model.delete(key, MISSING, only_dead)

    @rule(keys=SOME_KEYS, value=VALUES)
    def find_a_value_and_remove_it(self, keys, value):
        for key in keys:
            found = self.core.find(key, MISSING)
            assert found == self.model.find(key, MISSING)
            if found is not MISSING:
                self.core.remove_value(key, value, self.removed, was_hit=True)
                self.model.hits -= 1
                self.model.remove_value(key, value)

    @rule(budget=st.integers(0, 3), size=st.one_of(st.none(), st.integers(0, 4)))
    def evict(self, budget, size):
        assert self.core.evict(budget, self.removed, size=size) == self.model.evict(budget, size)

    @rule(is_reported=st.booleans())
    def clear(self, is_reported):
        detached = [(each.key, each.value) for each in self.model.entries]
        assert self.core.clear() == self.model.clear()
        dropped = [] if is_reported else None
        assert not self.core.drain(removed=dropped)
        if is_reported:
            assert all(cause is RemovalCause.CLEARED for _, _, cause in dropped)
            assert sorted((key, value) for key, value, _ in dropped) == sorted(detached)

    @rule(seconds=st.one_of(st.integers(0, 5), st.floats(0, 5), st.floats(5, 20), st.floats(0, 2000)))
    def time_passes(self, seconds):
        self.clock.now += seconds
        self.model.now = self.clock.now

    @rule(budget=st.integers(1, 3))
    def advance(self, budget):
        self.drain(budget)
        before = len(self.removed)
        due = self.model.due()
        while self.core.next_due <= self.clock.now:
            looked = self.core.advance(budget, self.removed)
            assert looked <= budget
        # In order of tick, in any order within a tick.
        gone = self.removed[before:]
        ticks = [ceil(self.model.entry(key).expires_at) for key, _, _ in gone]
        assert ticks == sorted(ticks)
        assert {key for key, _, _ in gone} == due
        for key, _, _ in gone:
            self.model.remove(self.model.entry(key), RemovalCause.EXPIRED)

    @rule(count=st.integers(1, 3))
    def scan(self, count):
        records = []
        scan = self.core.scan()
        while some := scan.step(count):
            assert len(some) <= count
            records += some
        expected = sorted(self.model.entries, key=lambda each: each.key)
        found = sorted(records, key=lambda each: each.key)
        assert [self.told_of(record) for record in found] == [self.told_of(each) for each in expected]

    def told_of(self, entry):
        """An entry of the model, or a record, as a tuple."""
        times = entry.times[:2] if hasattr(entry, "times") else (entry.fresh_until, entry.expires_at)
        return (entry.key, entry.value, *times, entry.weight, sorted(entry.tags))

    @rule(key=KEYS, use=st.booleans())
    def peek(self, key, use):
        record, entry = self.core.peek(key, use=use), self.model.entry(key)
        entry = None if entry is None or self.model.is_dropped(entry) else entry
        assert (record is None) == (entry is None)
        if entry is not None:
            assert self.told_of(record) == self.told_of(entry)
            assert record.times.is_current == self.model.is_current(entry)
            assert self.core.times(key) == record.times
            if use:
                self.model.use(entry)
        else:
            assert self.core.times(key) is None

    @rule()
    def fork_into_the_child(self):
        """Call the hooks as in a child, without a fork."""
        self.core.before_fork()
        self.core.after_fork(in_child=True)
        self.model.hits = self.model.puts = self.model.evicted_weight = 0
        self.model.missed = dict.fromkeys(MissCause, 0)
        self.model.counts = dict.fromkeys(RemovalCause, 0)
        for watch, theirs in self.watches:
            assert watch.broken
            theirs.broken, theirs.is_open = True, False
        self.watches = []
        self.completed = []
        self.model.completed = []

    @invariant()
    def they_agree(self):
        core, model = self.core, self.model
        assert len(core) == len(model.entries) <= model.max_entries
        assert core.keys() == [each.key for each in model.entries if model.is_live(each)]
        assert core.weight == model.weight <= model.max_weight
        counts = core.counts()
        if any(map(model.is_dropped, model.entries)):
            assert core.next_due <= self.clock.now + SWEEP_INTERVAL
        missed = tuple(model.missed.values())
        assert counts == (model.hits, model.misses, model.counts, model.puts, model.evicted_weight, missed)
        for key in range(5):
            if model.live(key) is None:
                assert list(MissCause)[core.miss_cause(key)] is model.miss_cause(key)
        assert sorted(self.removed, key=repr) == sorted(model.left, key=repr)
        earliest = min((each.expires_at for each in model.entries), default=inf)
        assert core.next_due == -inf or core.next_due <= max(
            ceil(earliest) if earliest != inf else inf, floor(self.clock.now) + 1
        )
        for watch, theirs in self.watches:
            assert (watch.key, watch.trust, watch.value) == (theirs.key, theirs.trust, theirs.value)
            assert watch.broken == theirs.broken
        assert [watch.key for watch in self.completed] == [watch.key for watch in model.completed]

    @invariant()
    def a_walk_goes_on(self):
        """Take one step of the walk after each other step."""
        if not self.walks:
            return
        there = {each.key for each in self.model.entries}
        if self.walk is None:
            self.walk, self.throughout, self.came = self.core.scan(), there, set()
        self.throughout &= there
        records = self.walk.step(self.walk_step)
        assert len(records) <= self.walk_step
        for each in records:
            assert self.told_of(each) == self.told_of(self.model.entry(each.key))
        self.came |= {each.key for each in records}
        if not records:
            assert self.throughout <= self.came
            self.walk = None


@pytest.mark.hypothesis
@pytest.mark.timeout(600)
def test_a_core_does_what_the_model_does(core_class):
    machine = type("CoreMachine", (CoreAgainstModel,), {"core_class": core_class})
    run_state_machine_as_test(
        machine,
        # Of the profile's number of examples, few would meet a stale entry.
        settings=settings(max_examples=2 * settings.default.max_examples, suppress_health_check=list(HealthCheck)),
    )
