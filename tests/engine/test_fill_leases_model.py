"""Leases on a few keys against a plain model, with random callers and steps of time."""

from contextvars import copy_context

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from wheelcache.leases import fill_leases
from wheelcache.leases.fill_leases import FillLeases, Holder

HOLDERS = 6
WHO = st.integers(0, HOLDERS - 1)
KEYS = st.sampled_from("ab")
WAITS = st.sampled_from([1, 3, 10])
SECONDS = st.one_of(st.integers(0, 4), st.floats(0, 12))


class Held:
    """The model of a lease."""

    def __init__(self, who, until, waiting):
        self.who = who
        self.until = until
        self.waiting = waiting


class Waiting:
    """The model of a waiter."""

    def __init__(self, who, key, now, wait):
        self.who = who
        self.key = key
        self.wait = wait
        self.deadline = now + wait
        self.real = None
        self.outcome = None


class LeasesAgainstAModel(RuleBasedStateMachine):
    """The model: key -> who holds it, until when, and who waits in what order. Who waits does nothing else."""

    @initialize()
    def make(self):
        self.now = 0.0
        self.leases = FillLeases(self.give_up, self.give_up_soon)
        self.holders = [Holder() for _ in range(HOLDERS)]
        self.held = {}
        self.waiting = {}

    # What the owner of the leases does.

    def give_up(self, lease):
        self.leases.pass_on(lease, self.now)
        self.leases.wake()

    def give_up_soon(self):
        self.leases.collect(self.now)
        self.leases.wake()

    # What the model does.

    def pass_on(self, key):
        lease = self.held.pop(key)
        while lease.waiting:
            waiter = lease.waiting.pop(0)
            if waiter.deadline > self.now:
                waiter.outcome = "handed"
                self.held[key] = Held(waiter.who, self.now + waiter.wait, lease.waiting)
                break

    def time_out(self, key):
        if key in self.held and self.held[key].until <= self.now:
            self.pass_on(key)

    def time_out_the_oldest(self):
        for _ in range(2):
            oldest = next(iter(self.held), None)
            if oldest is not None and self.held[oldest].until <= self.now:
                self.pass_on(oldest)
            else:
                break

    def leases_of(self, who):
        """Oldest first, as he gives them up."""
        return [key for key, lease in self.held.items() if lease.who == who]

    def is_waited_for(self, who):
        return any(self.held[key].until > self.now for key in self.leases_of(who))

    def fill_model(self, key, value):
        if key in self.held:
            for waiter in self.held.pop(key).waiting:
                waiter.outcome = ("filled", value)

    def free(self, who):
        return who not in self.waiting

    # The rules.

    @rule(who=WHO, key=KEYS, wait=WAITS, may_wait=st.sampled_from([True, True, True, False]))
    def miss(self, who, key, wait, may_wait):
        if not self.free(who):
            return
        waiter = self.leases.miss(key, self.holders[who], self.now, wait, may_wait=may_wait)
        self.leases.wake()
        self.time_out_the_oldest()
        self.time_out(key)
        if key not in self.held:
            assert waiter is None
            self.held[key] = Held(who, self.now + wait, [])
        elif not may_wait or self.is_waited_for(who):
            assert waiter is None
        else:
            assert waiter is not None
            model = Waiting(who, key, self.now, wait)
            model.real = waiter
            self.held[key].waiting.append(model)
            self.waiting[who] = model

    @rule(key=KEYS, value=st.integers())
    def somebody_sets(self, key, value):
        self.leases.filled(key, value)
        self.leases.wake()
        self.fill_model(key, value)

    @rule(who=WHO, key=KEYS)
    def delete(self, who, key):
        if not self.free(who):
            return

        def act():
            fill_leases._current.set(self.holders[who])
            self.leases.deleted(key, self.now)

        copy_context().run(act)
        self.leases.wake()
        if key in self.leases_of(who):
            self.pass_on(key)

    @rule(who=WHO)
    def end_of_request(self, who):
        if self.free(who):
            self.holders[who].give_up()
            for key in self.leases_of(who):
                self.pass_on(key)

    @rule(who=WHO)
    def thread_ends_without_a_word(self, who):
        if self.free(who):
            self.holders[who] = Holder()
            for key in self.leases_of(who):
                self.pass_on(key)
            # What collects his leases also collects what timed out, one pair of keys at a time.
            self.leases.collect(self.now)
            self.leases.wake()
            self.time_out_the_oldest()

    @rule(seconds=SECONDS)
    def time_passes(self, seconds):
        self.now += seconds

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def a_waiter_looks(self, data):
        who = data.draw(st.sampled_from(sorted(self.waiting)))
        self.look(who)

    def look(self, who):
        model = self.waiting[who]
        over = self.leases.goes_on(model.real, self.now)
        self.leases.wake()
        self.time_out(model.key)
        if model.outcome is None and model.deadline <= self.now:
            model.outcome = "late"
            if model.key not in self.held:
                self.held[model.key] = Held(who, self.now + model.wait, [])
            elif model in self.held[model.key].waiting:
                self.held[model.key].waiting.remove(model)
        assert over == (model.outcome is not None)
        if over:
            assert model.real.handed == (model.outcome == "handed")
            assert model.real.filled == isinstance(model.outcome, tuple)
            if model.real.filled:
                assert model.real.value == model.outcome[1]
            del self.waiting[who]

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def a_waiter_is_cancelled(self, data):
        who = data.draw(st.sampled_from(sorted(self.waiting)))
        model = self.waiting.pop(who)
        self.leases.leave(model.real, self.now)
        self.leases.wake()
        lease = self.held.get(model.key)
        if lease is not None and model.outcome is None and model in lease.waiting:
            lease.waiting.remove(model)
        elif lease is not None and model.outcome == "handed" and lease.who == who:
            self.pass_on(model.key)

    @rule()
    def all_who_wait_look_when_they_said_they_would_and_nobody_is_lost(self):
        """Time goes from one ``next_look`` to the next: each is told something, or goes on at his deadline."""
        last = max([self.now, *(model.deadline for model in self.waiting.values())])
        looks = 0
        while self.waiting:
            due = min(self.leases.next_look(model.real) for model in self.waiting.values())
            self.now = max(self.now, due)
            for who in sorted(self.waiting):
                self.look(who)
            looks += 1
            assert looks < 100
        assert self.now <= last

    # What always holds.

    @invariant()
    def they_agree(self):
        in_force = self.leases.in_force
        assert {key: lease._holder() for key, lease in in_force.items()} == {
            key: self.holders[lease.who] for key, lease in self.held.items()
        }
        assert list(in_force) == list(self.held)
        for key, lease in in_force.items():
            assert lease.until == self.held[key].until
            assert list(lease.waiters) == [model.real for model in self.held[key].waiting]

    @invariant()
    def a_holder_has_what_is_in_force_and_nothing_else(self):
        for who, holder in enumerate(self.holders):
            assert [lease.key for lease in holder.leases] == self.leases_of(who)
            assert all(self.leases.in_force[lease.key] is lease for lease in holder.leases)

    @invariant()
    def nobody_who_holds_a_lease_waits(self):
        for who, model in self.waiting.items():
            if model.outcome is None:
                assert not self.is_waited_for(who)

    @invariant()
    def whoever_waits_is_on_one_list_or_was_told_or_is_past_his_deadline(self):
        for model in self.waiting.values():
            lists = sum(model.real in lease.waiters for lease in self.leases.in_force.values())
            told = model.real.filled or model.real.handed
            assert model.real.told.is_set == told
            assert not (model.real.filled and model.real.handed)
            assert lists == 0 if told else lists == 1 or model.deadline <= self.now

    @invariant()
    def nothing_is_left_to_do(self):
        assert not self.leases._to_wake
        assert not self.leases.abandoned


LeasesAgainstAModel.TestCase.settings = settings(max_examples=200, stateful_step_count=50, deadline=None)
TestLeasesAgainstAModel = LeasesAgainstAModel.TestCase
