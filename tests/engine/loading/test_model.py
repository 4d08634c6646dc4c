"""Loading under random orders of events: never two concurrent loaders of a key, and no endless wait."""

import asyncio
import itertools
from collections import Counter
from types import SimpleNamespace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.engine import invariants
from wheelcache import Cache, ManualClock

KEYS = st.integers(0, 1)
TTLS = st.sampled_from([1, 4])
GRACES = st.sampled_from([None, 2, 8])


WHICH = st.integers(0, 5)

TURNS = 50
"""Turns of an event loop: more than the longest chain of wake-ups takes."""


class LoadFailed(Exception):
    pass


async def turns():
    for _ in range(TURNS):
        await asyncio.sleep(0)


def pick(things, which):
    return things[which % len(things)]


class Loading(RuleBasedStateMachine):
    """Every start of a loader, every set and every deletion is an event with a number; numbers are the values.

    Every rule runs the event loop until nothing is left to do but to wait for a loader.
    """

    @initialize(max_entries=st.sampled_from([1, None]), is_timed=st.booleans())
    def make(self, max_entries, is_timed):
        self.clock = ManualClock()
        self.cache = Cache(clock=self.clock, max_entries=max_entries, jitter=0)
        # A timeout that never comes: loads that are tasks of their own.
        self.timeout = 3600 if is_timed else None
        self.loop = asyncio.new_event_loop()
        self.numbers = itertools.count(1)
        self.running = []
        self.callers = []
        self.last_write = Counter()
        self.good_until = {}
        self.calls = self.cancelled = self.returned = self.raised = 0

    def settle(self):
        """Run the loop until it would wait. Then check the results of the callers."""
        self.loop.run_until_complete(turns())
        for caller in [each for each in self.callers if each.task.done()]:
            self.callers.remove(caller)
            if not caller.task.cancelled():
                self.check_outcome(caller)

    def check_outcome(self, caller):
        error = caller.task.exception()
        if error is not None:
            assert isinstance(error, LoadFailed), error
            return
        number = caller.task.result()
        assert number >= caller.oldest, "older than what was written before the call"
        due, grace = self.good_until[number]
        assert self.clock() < due + min(grace, caller.grace), "served when its time and its grace were over"

    @rule(key=KEYS, ttl=TTLS, grace=GRACES, fail_safe=GRACES, refresh_ahead=st.sampled_from([None, 0.5]), n=KEYS)
    def get_or_load(self, key, ttl, grace, fail_safe, refresh_ahead, n):
        kept = max(grace or 0, fail_safe or 0)

        async def loader():
            assert not any(held.key == key for held in self.running), "two loaders of one key at once"
            held = SimpleNamespace(key=key, number=next(self.numbers), future=self.loop.create_future())
            self.running.append(held)
            try:
                await held.future
            except BaseException:
                self.raised += 1
                raise
            finally:
                self.running.remove(held)
            self.returned += 1
            self.good_until[held.number] = (self.clock() + ttl, kept)
            return held.number

        for _ in range(n + 1):
            task = self.loop.create_task(
                self.cache.aget_or_load(
                    key,
                    loader,
                    ttl,
                    grace=grace,
                    refresh_ahead=refresh_ahead,
                    fail_safe=fail_safe,
                    timeout=self.timeout,
                )
            )
            self.callers.append(SimpleNamespace(key=key, grace=kept, oldest=self.last_write[key], task=task))
            self.calls += 1
        self.settle()

    @rule(which=WHICH, how=st.sampled_from(["returns", "raises", "is cancelled"]))
    def a_loader_ends(self, which, how):
        """Cancel the loader, as at the end of a loop, or if its awaited task is cancelled."""
        if self.running:
            future = pick(self.running, which).future
            if how == "returns":
                future.set_result(None)
            elif how == "raises":
                future.set_exception(LoadFailed())
            else:
                future.cancel()
        self.settle()

    @rule(which=WHICH)
    def a_caller_is_cancelled(self, which):
        if self.callers:
            pick(self.callers, which).task.cancel()
            self.cancelled += 1
        self.settle()

    @rule(which=WHICH)
    def a_background_task_is_cancelled(self, which):
        background = self.background_tasks()
        if background:
            # Oldest first: sets have no order that could be played again.
            pick(sorted(background, key=lambda task: int(task.get_name().removeprefix("Task-"))), which).cancel()
        self.settle()

    def background_tasks(self):
        return asyncio.all_tasks(self.loop) - {caller.task for caller in self.callers}

    @rule(key=KEYS, ttl=TTLS)
    def set(self, key, ttl):
        number = next(self.numbers)
        self.cache.set(key, number, ttl)
        self.good_until[number] = (self.clock() + ttl, 0)
        self.last_write[key] = number
        self.settle()

    @rule(key=KEYS)
    def delete(self, key):
        self.cache.delete(key)
        self.last_write[key] = next(self.numbers)
        self.settle()

    @rule()
    def clear(self):
        self.cache.clear()
        for key in range(2):
            self.last_write[key] = next(self.numbers)
        self.settle()

    @rule(key=KEYS)
    def get(self, key):
        number = self.cache.get(key)
        self.calls += 1
        if number is not None:
            assert number >= self.last_write[key]
            assert self.clock() < self.good_until[number][0]

    @rule(seconds=st.floats(0, 6))
    def time_passes(self, seconds):
        self.clock.advance(seconds)
        self.settle()

    @invariant()
    def no_caller_waits_for_nothing(self):
        loading = {held.key for held in self.running}
        assert {caller.key for caller in self.callers} <= loading
        assert len(self.background_tasks()) <= len(self.running)
        invariants.check(self.cache)
        stats = self.cache.stats()
        # A look-up may be counted when it begins or when it ends, and one that was cancelled need not be counted.
        assert self.calls - len(self.callers) - self.cancelled <= stats.requests <= self.calls
        assert (stats.loads, stats.load_failures) == (self.returned, self.raised)
        assert (stats.load_timeouts, stats.refreshes_dropped) == (0, 0)

    def teardown(self):
        if not hasattr(self, "loop"):
            return
        try:
            while self.running:
                self.running[0].future.set_result(None)
                self.settle()
            assert self.callers == []
            # Nothing is left of the loads that would keep a key from being loaded.
            self.clear()
            for key in range(2):
                self.get_or_load(key, 1, None, None, None, 0)
            assert {held.key for held in self.running} == {0, 1}
            while self.running:
                self.a_loader_ends(0, "returns")
            assert self.callers == []
            invariants.check_timers(self.cache, self.clock)
        finally:
            for task in asyncio.all_tasks(self.loop):
                task.cancel()
            self.loop.run_until_complete(asyncio.sleep(0))
            self.loop.close()


@pytest.fixture(autouse=True)
def nothing_is_logged(caplog):
    """Failures in the background are, by the hundred."""
    caplog.set_level("CRITICAL", logger="wheelcache")


Loading.TestCase.settings = settings(max_examples=100, stateful_step_count=40)
TestLoading = pytest.mark.usefixtures("nothing_is_logged")(Loading.TestCase)
