"""Leases on a few keys against a plain model, with tasks as callers and steps of time."""

import asyncio
from collections import Counter
from contextvars import Context
from typing import NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.caches import is_leased
from tests.fill_waits.callers import aget_or_lease, get_or_lease
from wheelcache import Cache, ManualClock
from wheelcache.fill_waits.leased_reads import LeasedReads
from wheelcache.runtime.request_scope import end_request

CALLERS = 6
WHICH = st.integers(0, CALLERS - 1)
KEYS = st.sampled_from("ab")
WAITS = st.sampled_from([1, 3, 10])
SECONDS = st.integers(0, 48).map(lambda quarters: quarters / 4)
"""Sums of these are exact."""

GRACE = 2
MISS = "a miss"


class ManualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time is that of a clock, and which runs until nothing is left to do at that time."""

    def __init__(self, clock):
        super().__init__()
        self.clock = clock

    def time(self):
        return self.clock()

    def call_at(self, when, *arguments, **options):
        """Round to the steps of the clock: between the two looks at the system's clock that a wait takes, microseconds
        pass, so callers whose waits end together would wake up in a different order each time."""
        return super().call_at(round(when * 4) / 4, *arguments, **options)

    def settle(self):
        # A task needs six turns from its wake-up until it has called again.
        for _ in range(15):
            self.call_soon(self.stop)
            self.run_forever()


class Caller:
    """A task that does one call after the other, without end, and what became of its last one."""

    def __init__(self, loop):
        self.calls = asyncio.Queue()
        self.outcome = None
        self.task = loop.create_task(self.serve(), context=Context())

    async def serve(self):
        while (call := await self.calls.get()) is not None:
            self.outcome = None
            try:
                outcome = call()
                self.outcome = await outcome if asyncio.iscoroutine(outcome) else outcome
            except asyncio.CancelledError:
                self.outcome = "cancelled"


class Held(NamedTuple):
    """The model of a lease."""

    which: int
    until: float
    waiting: list


class Waiting(NamedTuple):
    """The model of a waiter."""

    which: int
    key: str
    wait: float
    deadline: float


class LeasesAgainstAModel(RuleBasedStateMachine):
    """The model: for each key the caller that has the lease, until when, which callers wait, in order, until when there
    is an old value, and how many leases in a row ended without a value."""

    def __init__(self):
        super().__init__()
        self.clock = ManualClock()
        self.loop = ManualLoop(self.clock)
        self.cache = Cache(clock=self.clock)
        self.callers = [Caller(self.loop) for _ in range(CALLERS)]
        self.held = {}
        self.waiting = {}
        self.old = {}
        self.unfilled = Counter()

    def teardown(self):
        for _ in range(2):
            for caller in self.callers:
                caller.task.cancel()
                caller.calls.put_nowait(None)
            self.loop.settle()
        self.loop.close()
        self.cache.close()

    def does(self, which, call):
        self.callers[which].calls.put_nowait(call)
        self.loop.settle()
        return self.callers[which].outcome

    # The operations of the model.

    def pass_on(self, key):
        waiting = self.held.pop(key).waiting
        self.unfilled[key] += 1
        while waiting and (key not in self.held or self.unfilled[key] > 1):
            waiter = waiting.pop(0)
            self.ends(waiter, MISS)
            if key not in self.held and waiter.deadline > self.clock():
                self.held[key] = Held(waiter.which, self.clock() + waiter.wait, waiting)

    def is_filled(self, key):
        """The lease of a holder whose time is over counts as filled, too, unless another call has ended it before."""
        if key in LeasedReads(self.cache.engine)._leases.open:
            del self.unfilled[key]

    def ends(self, waiter, outcome):
        """Check that the waiter is in the state of the model."""
        assert self.callers[waiter.which].outcome == outcome
        del self.waiting[waiter.which]

    def leases_of(self, which):
        return [key for key, lease in self.held.items() if lease.which == which]

    # The rules.

    @rule(which=WHICH, key=KEYS, wait=WAITS, may_wait=st.sampled_from([True, True, True, False]))
    def miss(self, which, key, wait, may_wait):
        if which in self.waiting:
            return
        is_holder = bool(self.leases_of(which))
        get = aget_or_lease if may_wait else get_or_lease
        found = self.does(which, lambda: get(self.cache, key, MISS, wait=wait, grace=GRACE))
        if key in self.held and self.held[key].which != which and self.old.get(key, 0) > self.clock():
            assert found == "old"
        elif key in self.held and self.unfilled[key] < 2 and may_wait and not is_holder:
            assert found is None
            self.waiting[which] = Waiting(which, key, wait, self.clock() + wait)
            self.held[key].waiting.append(self.waiting[which])
        else:
            assert found == MISS
            if key not in self.held:
                self.held[key] = Held(which, self.clock() + wait, [])

    @rule(which=WHICH, key=KEYS, value=st.integers())
    def set(self, which, key, value):
        """The key is deleted by a caller without leases, so that it is missing again."""
        if which in self.waiting:
            return
        self.is_filled(key)
        self.does(which, lambda: self.cache.set(key, value))
        Context().run(self.cache.delete, key)
        self.old.pop(key, None)
        if key in self.held:
            for waiter in self.held.pop(key).waiting:
                self.ends(waiter, value)

    @rule(key=KEYS)
    def a_value_expires(self, key):
        """The entry's grace may be longer than that of the callers."""
        if key in self.held:
            return
        self.is_filled(key)
        Context().run(self.cache.engine.set, key, "old", 0.25, grace=2 * GRACE, exact=True)
        self.time_passes(0.25)
        self.old[key] = self.clock() + GRACE

    @rule(which=WHICH, how=st.sampled_from(["delete a", "delete b", "clear", "the request ends", "the task ends"]))
    def gives_up(self, which, how):
        if which in self.waiting:
            return
        keys = self.leases_of(which)
        if how == "clear":
            self.old.clear()
        if how.startswith("delete"):
            key = how[-1]
            self.old.pop(key, None)
            self.does(which, lambda: self.cache.delete(key))
            keys = [each for each in keys if each == key]
        elif how == "clear":
            self.does(which, self.cache.clear)
        elif how == "the request ends":
            self.does(which, end_request)
        else:
            self.callers[which].calls.put_nowait(None)
            self.loop.settle()
            assert self.callers[which].task.done()
            self.callers[which] = Caller(self.loop)
        for key in keys:
            self.pass_on(key)

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def a_waiter_is_cancelled(self, data):
        which = data.draw(st.sampled_from(sorted(self.waiting)))
        waiter = self.waiting[which]
        self.callers[which].task.cancel()
        self.loop.settle()
        self.held[waiter.key].waiting.remove(waiter)
        self.ends(waiter, "cancelled")

    @rule(seconds=SECONDS)
    def time_passes(self, seconds):
        """The clock stops wherever a lease or a wait ends."""
        target = self.clock() + seconds
        while True:
            ends = [lease.until for lease in self.held.values()]
            ends += [waiter.deadline for waiter in self.waiting.values()]
            now = min([target, *(end for end in ends if end > self.clock())])
            self.clock.advance(now - self.clock())
            self.loop.settle()
            for key in list(self.held):
                self.time_is_over(key, now)
            self.they_agree()
            if now == target:
                break

    def time_is_over(self, key, now):
        lease = self.held[key]
        if lease.until > now:
            woken = [waiter for waiter in lease.waiting if waiter.deadline <= now]
        else:
            del self.held[key]
            self.unfilled[key] += 1
            woken = [waiter for waiter in lease.waiting if self.callers[waiter.which].outcome == MISS]
        for waiter in woken:
            lease.waiting.remove(waiter)
            self.ends(waiter, MISS)
        if key in self.held:
            return
        # All of them wake up at the same moment. The one that looks first gets the lease, also if its own time is over.
        leased = [waiter for waiter in woken if self.is_leased(waiter.which, key)]
        assert len(leased) == bool(woken)
        assert all(waiter in leased or waiter.deadline <= now or self.unfilled[key] > 1 for waiter in woken)
        assert all(woken and waiter.deadline > now and self.unfilled[key] < 2 for waiter in lease.waiting)
        for first in leased:
            self.held[key] = Held(first.which, now + first.wait, lease.waiting)

    def is_leased(self, which, key):
        return self.does(which, lambda: is_leased(self.cache, key))

    # Invariants.

    @invariant()
    def they_agree(self):
        """On the callers that wait, and the leases in force."""
        for which in range(CALLERS):
            if which in self.waiting:
                assert self.callers[which].outcome is None
                assert not self.leases_of(which)
            else:
                assert [key for key in "ab" if key in self.held and self.is_leased(which, key)] == sorted(
                    self.leases_of(which)
                )


LeasesAgainstAModel.TestCase.settings = settings(max_examples=60, stateful_step_count=50)
TestLeasesAgainstAModel = LeasesAgainstAModel.TestCase
