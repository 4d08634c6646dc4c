"""Random steps of processes with shared stamps: none returns a value that another process has overwritten."""

import tempfile
from collections import Counter
from contextvars import Context
from itertools import count
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.coherence.processes import NAME, QUIET
from wheelcache import Cache, ManualClock
from wheelcache.coherence.misses import FILL_WINDOW
from wheelcache.coherence.shared_stamps import SharedStamps
from wheelcache.runtime.request_scope import end_request

KEYS = st.sampled_from(["a", "a", "a", ("b",)])
CACHES = st.integers(0, 2)
THREADS_EACH = 2


class NoCacheReturnsWhatIsOlderThanTheLastWrite(RuleBasedStateMachine):
    """Three caches with few slots in common, each used by two threads that do one request at a time, over a database.

    Threads are contexts, so one runs until its next step and then another. ``floor`` is the version when the last
    write of the key that has returned began: no get may return an older one.
    """

    @initialize(slots=st.sampled_from([1, 3, 64]), max_entries=st.sampled_from([None, 1, 2]))
    def make(self, slots, max_entries):
        self.directory = tempfile.TemporaryDirectory()
        self.clock = ManualClock()
        folder, options = Path(self.directory.name), {"max_entries": max_entries, "jitter": 0, **QUIET}
        self.caches = [Cache(stamps=SharedStamps(NAME, folder, slots), clock=self.clock, **options) for _ in range(3)]
        self.threads = [[Context() for _ in range(THREADS_EACH)] for _ in range(3)]
        self.fills = {}
        self.truth = Counter()
        self.floor = Counter()
        self.versions = count(1)

    def teardown(self):
        if hasattr(self, "directory"):
            self.directory.cleanup()

    def idle(self, number):
        """Return a thread of this cache without a request; None if there is none."""
        for which, context in enumerate(self.threads[number]):
            if (number, which) not in self.fills:
                return context
        return None

    def check(self, key, found, floor):
        assert found is None or found >= floor

    @rule(number=CACHES, key=KEYS, how=st.sampled_from(["set", "set_many", "delete", "delete_many"]))
    def write(self, number, key, how):
        context = self.idle(number)
        if context is None:
            return
        cache, version = self.caches[number], next(self.versions)
        self.truth[key] = version
        match how:
            case "set":
                context.run(cache.set, key, version, 10)
            case "set_many":
                context.run(cache.set_many, {key: version}, 10)
            case "delete":
                context.run(cache.delete, key)
            case "delete_many":
                context.run(cache.delete_many, [key])
        self.floor[key] = version

    @rule(number=CACHES)
    def clear(self, number):
        for key in list(self.truth):
            self.truth[key] = next(self.versions)
        context = self.idle(number) or Context()
        context.run(self.caches[number].clear)
        self.floor.update(self.truth - self.floor)

    @rule(number=CACHES, key=KEYS, ttl=st.integers(1, 30))
    def touch(self, number, key, ttl):
        self.caches[number].touch(key, ttl)

    @rule(number=CACHES, which=st.integers(0, THREADS_EACH - 1), key=KEYS, many=st.booleans())
    def begin_a_fill(self, number, which, key, many):
        if (number, which) in self.fills:
            return
        cache, context = self.caches[number], self.threads[number][which]
        found = context.run(cache.get_many, [key]).get(key) if many else context.run(cache.get, key)
        self.check(key, found, self.floor[key])
        if found is None:
            self.fills[number, which] = (key, self.truth[key], self.clock())

    @precondition(lambda self: self.fills)
    @rule(data=st.data(), how=st.sampled_from(["set", "add", "set_many", "give up"]))
    def end_a_fill(self, data, how):
        number, which = data.draw(st.sampled_from(sorted(self.fills)))
        key, value, missed_at = self.fills.pop((number, which))
        is_news = self.clock() - missed_at > FILL_WINDOW
        if is_news:
            # After the window, a set is news, so its value must be current: caches do not guard slower fills.
            value = self.truth[key] = next(self.versions)
        cache, context = self.caches[number], self.threads[number][which]
        stored = False
        if how == "set":
            stored = context.run(cache.set, key, value, 10)
        elif how == "add":
            stored = context.run(cache.add, key, value, 10)
        elif how == "set_many":
            stored = not context.run(cache.set_many, {key: value}, 10)
        context.run(end_request)
        if is_news and stored:
            self.floor[key] = value

    @rule(number=CACHES, key=KEYS, elsewhere=st.none() | CACHES)
    def get_or_load(self, number, key, elsewhere):
        """Let another process delete the key in the meantime, perhaps."""
        context, floor = self.idle(number), self.floor[key]
        if context is None:
            return

        def loader():
            value = self.truth[key]
            if elsewhere is not None:
                self.truth[key] = next(self.versions)
                Context().run(self.caches[elsewhere].delete, key)
                self.floor[key] = self.truth[key]
            return value

        self.check(key, context.run(self.caches[number].get_or_load, key, loader, 10), floor)

    @rule(number=CACHES, key=KEYS)
    def read(self, number, key):
        self.check(key, Context().run(self.caches[number].get, key), self.floor[key])

    @rule(seconds=st.integers(1, 12))
    def time_passes(self, seconds):
        self.clock.advance(seconds)

    @invariant()
    def no_read_would_get_what_is_older(self):
        for cache in getattr(self, "caches", ()):
            assert cache.stats().size == len(cache) >= len(cache.keys())
            for key in cache.keys():
                # A hit changes only the order.
                self.check(key, cache.get(key), self.floor[key])


NoCacheReturnsWhatIsOlderThanTheLastWrite.TestCase.settings = settings(max_examples=100, stateful_step_count=40)
TestNoCacheReturnsWhatIsOlderThanTheLastWrite = NoCacheReturnsWhatIsOlderThanTheLastWrite.TestCase
