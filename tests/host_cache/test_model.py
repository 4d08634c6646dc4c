"""Two processes with one cache against a model, in random steps."""

import tempfile
from math import inf

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.host_cache.workers import make_cache
from wheelcache import ManualClock

KEYS = st.sampled_from(["a", "b", "c", "d", "é", "a" * 300])
VALUES = st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1), st.text(max_size=20))
TTLS = st.one_of(st.none(), st.integers(1, 40), st.floats(0.01, 100))
TAGS = st.lists(st.sampled_from(["red", "blue"]), unique=True)
PROCESSES = st.integers(0, 1)


class TwoProcessesAgainstModel(RuleBasedStateMachine):
    """The model is a dict from keys to values, ends and tags."""

    def __init__(self):
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.clock = ManualClock()
        self.caches = [self.start(), self.start()]
        self.model = {}

    def start(self):
        return make_cache(f"{self.folder.name}/host", clock=self.clock)

    def store(self, key, value, ttl, tags=()):
        self.model[key] = value, inf if ttl is None else self.clock() + ttl, tags

    def live(self, key):
        found = self.model.get(key)
        return found if found is not None and found[1] > self.clock() else None

    @rule(process=PROCESSES, values=st.dictionaries(KEYS, VALUES, min_size=1), ttl=TTLS, tags=TAGS)
    def set(self, process, values, ttl, tags):
        cache = self.caches[process]
        if len(values) == 1:
            assert cache.set(*values.copy().popitem(), ttl, tags=tags)
        else:
            assert cache.set_many(values, ttl, tags=tags) == []
        for key, value in values.items():
            self.store(key, value, ttl, tags)

    @rule(process=PROCESSES, key=KEYS, value=VALUES, ttl=TTLS)
    def add(self, process, key, value, ttl):
        is_missing = self.live(key) is None
        assert self.caches[process].add(key, value, ttl) == is_missing
        if is_missing:
            self.store(key, value, ttl)

    @rule(process=PROCESSES, key=KEYS, value=VALUES, ttl=TTLS, tags=TAGS)
    def get_or_load(self, process, key, value, ttl, tags):
        live = self.live(key)
        found = self.caches[process].get_or_load(key, lambda: value, ttl, tags=tags)
        assert found == (value if live is None else live[0])
        if live is None:
            self.store(key, value, ttl, tags)

    @rule(process=PROCESSES, key=KEYS, value=VALUES, write=st.sampled_from(["set", "delete", "clear", "delete_tags"]))
    def a_load_is_overtaken(self, process, key, value, write):
        if self.live(key) is not None:
            return
        writes = {
            "set": lambda: self.set(1 - process, {key: "newer"}, None, ()),
            "delete": lambda: self.delete(1 - process, key),
            "clear": lambda: self.clear(1 - process),
            "delete_tags": lambda: self.delete_tags(1 - process, "red"),
        }
        loaded = self.caches[process].get_or_load(key, lambda: (writes[write](), value)[1], None, tags=["red"])
        assert loaded == value

    @rule(process=PROCESSES, key=KEYS, ttl=TTLS)
    def touch(self, process, key, ttl):
        live = self.live(key)
        assert self.caches[process].touch(key, ttl) == (live is not None)
        if live is not None:
            self.store(key, live[0], ttl, live[2])

    @rule(process=PROCESSES, key=KEYS, delta=st.integers(-5, 5))
    def incr(self, process, key, delta):
        live = self.live(key)
        if live is None:
            with pytest.raises(KeyError):
                self.caches[process].incr(key, delta)
        elif type(live[0]) is int and abs(live[0]) < 2**62:
            assert self.caches[process].incr(key, delta) == live[0] + delta
            self.model[key] = live[0] + delta, *live[1:]

    @rule(process=PROCESSES, key=KEYS)
    def delete(self, process, key):
        assert self.caches[process].delete(key) == (self.live(key) is not None)
        self.model.pop(key, None)

    @rule(process=PROCESSES, tag=st.sampled_from(["red", "blue"]))
    def delete_tags(self, process, tag):
        self.caches[process].delete_tags(tag)
        self.model = {key: found for key, found in self.model.items() if tag not in found[2]}

    @rule(process=PROCESSES)
    def delete_where(self, process):
        self.caches[process].delete_where(lambda key: key.startswith("a"))
        self.model = {key: found for key, found in self.model.items() if not key.startswith("a")}

    @rule(process=PROCESSES)
    def clear(self, process):
        self.caches[process].clear()
        self.model.clear()

    @rule(process=PROCESSES)
    def restart(self, process):
        self.caches[process].close()
        self.caches[process] = self.start()

    @rule(seconds=st.one_of(st.integers(0, 5), st.floats(0, 20)))
    def time_passes(self, seconds):
        self.clock.advance(seconds)

    @invariant()
    def both_see_what_the_model_has(self):
        expected = {key: found[0] for key, found in self.model.items() if self.live(key) is not None}
        keys = [*self.model, "missing", "a", "b", "c", "d", "é"]
        for cache in self.caches:
            assert cache.get_many(keys) == expected
            assert sorted(cache.keys()) == sorted(expected)
            for key in expected:
                left = self.model[key][1] - self.clock()
                assert cache.expires_in(key) == (None if left == inf else pytest.approx(left))

    def teardown(self):
        for cache in self.caches:
            cache.close()
        self.folder.cleanup()


TwoProcessesAgainstModel.TestCase.settings = settings(max_examples=40, stateful_step_count=40)
TestTwoProcessesAgainstModel = TwoProcessesAgainstModel.TestCase
