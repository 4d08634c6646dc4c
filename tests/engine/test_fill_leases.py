"""get_or_lease and aget_or_lease: of many who miss a key one fills it, the others wait. Nobody waits in a circle."""

import asyncio
import contextvars
import gc
import subprocess
import sys
import textwrap
import threading
import time
import weakref
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet

import pytest

from tests.engine.test_fork import run as run_script
from tests.waiting import PATIENCE, THREADS, until
from wheelcache import Cache, CacheClosed, ManualClock
from wheelcache.leases import fill_leases
from wheelcache.leases.fill_leases import HELD_AT_MOST, FillLeases, Holder, current_holder, end_request, on_its_own

LONG = 100.0
"""Seconds of patience that no test sees the end of."""

SHORT = 0.05
"""Seconds that tests of a time out let pass."""

MISS = "a miss"


@pytest.fixture(autouse=True)
def nobody():
    """The main thread begins and ends every test without leases."""
    fill_leases._current.set(None)
    yield
    fill_leases._current.set(None)


@pytest.fixture
def cache():
    made = Cache(log_interval=None, sample_interval=None)
    yield made
    made.close()


class Person:
    """A thread that does what it is told, one thing after the other, and so a holder."""

    def __init__(self, cache):
        self.cache = cache
        self.pool = ThreadPoolExecutor(1)

    def does(self, function, *args, **kwargs):
        return self.pool.submit(function, *args, **kwargs).result(PATIENCE)

    def asks(self, key, wait=LONG, cache=None):
        """A get that may wait: a future."""
        return self.pool.submit((self.cache if cache is None else cache).get_or_lease, key, MISS, wait=wait)

    def gets(self, key, wait=LONG, cache=None):
        """A get that doesn't wait."""
        return self.asks(key, wait, cache).result(PATIENCE)

    def dies(self):
        self.pool.shutdown()


@pytest.fixture
def people(cache):
    made = [Person(cache) for _ in range(6)]
    yield made
    for person in made:
        # Whoever still waits goes on.
        cache.close()
        person.dies()


def waiting(cache, key="k"):
    lease = cache._leases.in_force.get(key)
    return 0 if lease is None else len(lease.waiters)


def wait_for_waiters(cache, count, key="k"):
    assert until(lambda: waiting(cache, key) == count), f"{waiting(cache, key)} wait for {key!r}, not {count}"


async def soon(condition):
    """The coroutine's ``until``: lets the others run."""
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0)


def in_a_context(function, *args, **kwargs):
    return contextvars.copy_context().run(function, *args, **kwargs)


# The leases themselves, with times as arguments.


class Owner:
    """Of a FillLeases, as a cache is, with the time as an attribute and without a lock."""

    def __init__(self):
        self.now = 0.0
        self.leases = FillLeases(self.give_up, self.give_up_soon)

    def give_up(self, lease):
        self.leases.pass_on(lease, self.now)
        self.leases.wake()

    def give_up_soon(self):
        self.leases.collect(self.now)
        self.leases.wake()

    def miss(self, holder, key="k", wait=10.0, *, may_wait=True):
        return self.leases.miss(key, holder, self.now, wait, may_wait=may_wait)

    def fill(self, key="k", value="value"):
        self.leases.filled(key, value)
        self.leases.wake()

    def delete(self, holder, key="k"):
        def act():
            fill_leases._current.set(holder)
            self.leases.deleted(key, self.now)

        in_a_context(act)
        self.leases.wake()

    def goes_on(self, waiter):
        over = self.leases.goes_on(waiter, self.now)
        self.leases.wake()
        return over

    def leave(self, waiter):
        self.leases.leave(waiter, self.now)
        self.leases.wake()

    def holder_of(self, key="k"):
        lease = self.leases.in_force.get(key)
        return lease and lease._holder()


@pytest.fixture
def owner():
    return Owner()


def holders(count):
    return [Holder() for _ in range(count)]


def test_the_first_who_misses_gets_the_lease_and_goes_on_and_the_second_waits(owner):
    first, second = holders(2)
    assert owner.miss(first) is None
    assert owner.holder_of() is first
    waiter = owner.miss(second)
    assert not waiter.told.is_set
    assert not owner.goes_on(waiter)


def test_who_has_the_lease_misses_the_key_again_and_goes_on(owner):
    (first,) = holders(1)
    assert owner.miss(first) is None
    assert owner.miss(first) is None
    assert list(first.leases) == [owner.leases.in_force["k"]]


def test_who_may_not_wait_goes_on_without_the_lease(owner):
    first, second = holders(2)
    owner.miss(first)
    assert owner.miss(second, may_wait=False) is None
    assert owner.holder_of() is first
    assert not second.leases


def test_who_may_not_wait_gets_a_lease_that_nobody_has(owner):
    (first,) = holders(1)
    assert owner.miss(first, may_wait=False) is None
    assert owner.holder_of() is first


def test_all_who_wait_are_told_the_value_that_was_set(owner):
    first, *others = holders(5)
    owner.miss(first)
    waiters = [owner.miss(other) for other in others]
    owner.fill(value="it")
    assert all(waiter.told.is_set and waiter.filled and waiter.value == "it" for waiter in waiters)
    assert all(owner.goes_on(waiter) for waiter in waiters)
    assert not owner.leases.in_force
    assert not first.leases


def test_nobody_is_told_before_wake_which_comes_when_the_lock_is_free(owner):
    first, second = holders(2)
    owner.miss(first)
    waiter = owner.miss(second)
    owner.leases.filled("k", 1)
    assert not waiter.told.is_set
    owner.leases.wake()
    assert waiter.told.is_set


def test_filling_one_key_tells_nobody_who_waits_for_another(owner):
    first, second = holders(2)
    owner.miss(first, "a")
    waiter = owner.miss(second, "a")
    owner.fill("b")
    assert not waiter.told.is_set
    assert owner.holder_of("a") is first


def test_a_holder_who_gives_up_is_followed_by_exactly_one_the_first_who_came(owner):
    first, second, third = holders(3)
    owner.miss(first)
    waiters = [owner.miss(second), owner.miss(third)]
    first.give_up()
    assert [waiter.handed for waiter in waiters] == [True, False]
    assert [waiter.told.is_set for waiter in waiters] == [True, False]
    assert owner.holder_of() is second
    second.give_up()
    assert owner.holder_of() is third
    third.give_up()
    assert not owner.leases.in_force


def test_the_holder_deletes_the_key_and_one_follows(owner):
    first, second, third = holders(3)
    owner.miss(first)
    waiters = [owner.miss(second), owner.miss(third)]
    owner.delete(first)
    assert [waiter.handed for waiter in waiters] == [True, False]


def test_somebody_else_deletes_the_key_and_nothing_changes(owner):
    first, second, third = holders(3)
    owner.miss(first)
    waiter = owner.miss(second)
    for stranger in (third, second, None):
        owner.delete(stranger)
    assert owner.holder_of() is first
    assert not waiter.told.is_set


def test_a_lease_times_out_and_passes_to_who_still_has_patience(owner):
    first, second, third = holders(3)
    owner.miss(first)
    owner.now = 4.0
    waiters = [owner.miss(second), owner.miss(third)]
    assert [owner.leases.next_look(waiter) for waiter in waiters] == [10.0, 10.0]
    owner.now = 10.0
    assert not owner.goes_on(waiters[1])
    assert waiters[0].handed
    assert owner.holder_of() is second
    # His lease is a whole one; the other's patience isn't.
    assert owner.leases.in_force["k"].until == 20.0
    assert owner.leases.next_look(waiters[1]) == 14.0


def test_who_comes_when_the_lease_has_timed_out_gets_it_if_nobody_waits(owner):
    first, second = holders(2)
    owner.miss(first)
    owner.now = 10.0
    assert owner.miss(second) is None
    assert owner.holder_of() is second
    assert not first.leases


def test_who_comes_when_the_lease_has_timed_out_waits_for_who_waited_before(owner):
    first, second, third = holders(3)
    owner.miss(first)
    owner.now = 5.0
    waiter = owner.miss(second)
    owner.now = 12.0
    assert owner.miss(third) is not None
    assert waiter.handed


def test_who_is_past_his_deadline_goes_on_without_a_lease_that_somebody_has(owner):
    first, second, third = holders(3)
    owner.miss(first, wait=30.0)
    waiter = owner.miss(second, wait=5.0)
    owner.now = 5.0
    assert owner.goes_on(waiter)
    assert not waiter.handed
    assert not waiter.filled
    assert not second.leases
    assert owner.holder_of() is first
    assert owner.miss(third) is not None


def test_of_those_whose_deadlines_pass_with_the_lease_the_first_gets_it(owner):
    first, second, third = holders(3)
    owner.miss(first)
    waiters = [owner.miss(second), owner.miss(third)]
    owner.now = 10.0
    assert [owner.goes_on(waiter) for waiter in waiters] == [True, True]
    assert owner.holder_of() is second
    assert not third.leases


def test_who_is_past_his_deadline_is_handed_nothing(owner):
    first, second, third = holders(3)
    owner.miss(first)
    impatient, patient = owner.miss(second, wait=1.0), owner.miss(third, wait=9.0)
    owner.now = 2.0
    first.give_up()
    assert not impatient.handed
    assert patient.handed
    assert owner.goes_on(impatient)


def test_who_leaves_is_told_nothing_and_handed_nothing(owner):
    first, second, third = holders(3)
    owner.miss(first)
    leaver, stayer = owner.miss(second), owner.miss(third)
    owner.leave(leaver)
    first.give_up()
    assert not leaver.told.is_set
    assert stayer.handed


def test_who_leaves_after_he_was_handed_the_lease_passes_it_on(owner):
    first, second, third = holders(3)
    owner.miss(first)
    leaver, stayer = owner.miss(second), owner.miss(third)
    first.give_up()
    assert leaver.handed
    owner.leave(leaver)
    assert stayer.handed
    assert owner.holder_of() is third
    assert not second.leases


def test_who_leaves_after_the_key_was_set_disturbs_no_later_lease(owner):
    first, second, third = holders(3)
    owner.miss(first)
    leaver = owner.miss(second)
    owner.fill()
    owner.miss(third)
    owner.leave(leaver)
    assert owner.holder_of() is third


def test_who_has_a_lease_on_any_key_of_any_cache_never_waits(owner):
    other_cache = Owner()
    first, second = holders(2)
    other_cache.miss(second, "something else")
    owner.miss(first)
    assert owner.miss(second) is None
    assert not second.leases.keys() & set(owner.leases.in_force.values())
    other_cache.fill("something else")
    assert owner.miss(second) is not None


def test_who_has_a_lease_that_timed_out_waits_again(owner):
    first, second = holders(2)
    owner.miss(second, "nobody asks for this again", wait=1.0)
    owner.now = 1.0
    owner.miss(first)
    assert owner.miss(second) is not None


def test_a_child_acts_for_its_parents(owner):
    grandparent, stranger = holders(2)
    child = Holder(parent=Holder(parent=grandparent))
    owner.miss(grandparent)
    assert owner.miss(child) is None, "its own family's lease"
    owner.miss(stranger, "other")
    assert owner.miss(child, "other") is None, "somebody may be waiting for its parent"
    assert owner.leases.is_of("k", child)
    assert not owner.leases.is_of("k", stranger)
    owner.delete(child)
    assert "k" not in owner.leases.in_force


def test_a_parent_does_not_act_for_its_child(owner):
    parent = Holder()
    child = Holder(parent=parent)
    owner.miss(child)
    assert not owner.leases.is_of("k", parent)
    assert owner.miss(parent) is not None


def test_a_holder_who_is_no_more_passes_on(owner):
    first, second = holders(2)
    owner.miss(first)
    waiter = owner.miss(second)
    del first
    assert waiter.handed
    assert owner.holder_of() is second


def test_a_holder_has_so_many_leases_and_no_more_until_the_first_times_out(owner):
    greedy, other = holders(2)
    for key in range(HELD_AT_MOST):
        owner.miss(greedy, key)
    assert owner.miss(greedy, "one more") is None
    assert "one more" not in owner.leases.in_force
    assert len(greedy.leases) == len(owner.leases.in_force) == HELD_AT_MOST
    assert owner.miss(other, "one more") is None
    assert owner.holder_of("one more") is other
    owner.now = 10.0
    assert owner.miss(greedy, "another") is None
    assert owner.holder_of("another") is greedy
    assert len(greedy.leases) <= HELD_AT_MOST


@pytest.mark.deep
def test_a_million_keys_that_are_not_there_leave_a_bounded_number_of_leases(owner):
    (greedy,) = holders(1)
    for key in range(1_000_000):
        owner.now += 0.001
        owner.miss(greedy, key)
        assert len(owner.leases.in_force) <= HELD_AT_MOST
    assert set(greedy.leases) == set(owner.leases.in_force.values())
    owner.now += 10.0
    for key in range(HELD_AT_MOST):
        owner.miss(greedy, key, may_wait=False)
        owner.fill(key)
    assert not owner.leases.in_force
    assert not greedy.leases


def test_requests_that_never_say_they_ended_leave_nothing(owner):
    for key in range(10_000):
        owner.miss(Holder(), key)
    assert not owner.leases.in_force
    assert not owner.leases.abandoned


def test_after_end_all_everybody_goes_on(owner):
    first, *others = holders(4)
    owner.miss(first)
    waiters = [owner.miss(other) for other in others]
    owner.leases.end_all(owner.now)
    owner.leases.wake()
    assert all(waiter.told.is_set and owner.goes_on(waiter) for waiter in waiters)
    assert not owner.leases.in_force
    assert not any(holder.leases for holder in (first, *others))


def test_after_forget_all_holders_have_nothing(owner):
    first, second = holders(2)
    owner.miss(first)
    waiter = owner.miss(second)
    owner.leases.forget_all()
    owner.leases.wake()
    assert not first.leases
    assert not waiter.told.is_set
    assert owner.miss(second) is None


# Threads.


def test_a_waiter_gets_the_value_that_was_set(cache, people):
    holder, *others = people
    assert holder.gets("k") == MISS
    asked = [other.asks("k") for other in others]
    wait_for_waiters(cache, 5)
    value = [1]
    holder.does(cache.set, "k", value)
    assert all(each.result(PATIENCE) is value for each in asked)
    assert not cache._leases.in_force


@pytest.mark.parametrize(
    "fill",
    [
        lambda cache: cache.set("k", "it"),
        lambda cache: cache.set("k", "it", None),
        lambda cache: cache.add("k", "it"),
        lambda cache: cache.set_many({"j": 0, "k": "it"}),
        lambda cache: cache.take("k", lambda: "it"),
        lambda cache: cache.take("k", lambda: "it", 5, grace=5),
        lambda cache: asyncio.run(cache.atake("k", lambda: "it")),
        lambda cache: cache.memoize(key=lambda: 1)(lambda: cache.set("k", "it"))(),
    ],
    ids=["set", "set_for_ever", "add", "set_many", "take", "take_with_grace", "atake", "in_a_loader"],
)
@pytest.mark.parametrize("by", ["holder", "somebody else"])
def test_whatever_stores_a_value_and_whoever_does_wakes_all_who_wait(cache, people, fill, by):
    holder, first, second, stranger, *_ = people
    holder.gets("k")
    asked = [first.asks("k"), second.asks("k")]
    wait_for_waiters(cache, 2)
    (holder if by == "holder" else stranger).does(fill, cache)
    assert [each.result(PATIENCE) for each in asked] == ["it", "it"]
    assert "k" not in cache._leases.in_force


def test_what_was_set_over_a_stale_value_wakes_too(people):
    clock = ManualClock()
    graced = Cache(clock=clock, jitter=0, log_interval=None, sample_interval=None)
    holder, other, *_ = people
    graced.take("k", lambda: "old", 5, grace=100)
    clock.advance(6)
    assert holder.gets("k", cache=graced) == MISS
    asked = other.asks("k", cache=graced)
    wait_for_waiters(graced, 1)
    holder.does(graced.set, "k", "new")
    assert asked.result(PATIENCE) == "new"


def test_waiters_get_a_value_that_is_evicted_at_once(people):
    tiny = Cache(max_entries=1, log_interval=None, sample_interval=None)
    holder, other, *_ = people
    holder.gets("k", cache=tiny)
    asked = other.asks("k", cache=tiny)
    wait_for_waiters(tiny, 1)
    holder.does(tiny.set_many, {"k": "it", "j": 0})
    assert asked.result(PATIENCE) == "it"
    assert "k" not in tiny


def test_waiters_get_a_value_that_expires_at_once(people):
    now = [0.0]
    brief = Cache(clock=lambda: now[0], log_interval=None, sample_interval=None)
    holder, other, *_ = people
    holder.gets("k", cache=brief)
    asked = other.asks("k", cache=brief)
    wait_for_waiters(brief, 1)

    def set_and_let_time_pass():
        # Nobody who waits looks before the lock is free.
        with brief._lock:
            brief.set("k", "it", ttl=1)
            now[0] += 5

    holder.does(set_and_let_time_pass)
    assert asked.result(PATIENCE) == "it"
    assert "k" not in brief


def test_waiters_get_a_value_that_is_deleted_at_once(cache, people):
    holder, other, *_ = people
    holder.gets("k")
    asked = other.asks("k")
    wait_for_waiters(cache, 1)

    def set_and_delete():
        with cache._lock:
            cache.set("k", "it")
            cache.delete("k")

    holder.does(set_and_delete)
    assert asked.result(PATIENCE) == "it"


def test_waiters_get_a_value_that_is_too_heavy_to_be_stored(people):
    light = Cache(max_weight=1, weigher=lambda key, value: value, log_interval=None, sample_interval=None)
    holder, other, *_ = people
    holder.gets("k", cache=light)
    asked = other.asks("k", cache=light)
    wait_for_waiters(light, 1)
    assert holder.does(light.set, "k", 7) is False
    assert asked.result(PATIENCE) == 7
    assert not light._leases.in_force


def test_waiters_get_none_and_other_falsy_values_as_they_were_set(cache, people):
    holder, other, *_ = people
    for value in (None, 0, "", False):
        cache.delete("k")
        holder.gets("k")
        asked = other.asks("k")
        wait_for_waiters(cache, 1)
        holder.does(cache.set, "k", value)
        assert asked.result(PATIENCE) is value


@pytest.mark.parametrize("remove", ["delete", "delete_many", "pop"])
def test_the_holder_deletes_and_exactly_one_waiter_becomes_the_next_holder(cache, people, remove):
    holder, *others = people
    holder.gets("k")
    asked = [other.asks("k") for other in others]
    wait_for_waiters(cache, 5)
    holder.does({"delete": cache.delete, "pop": lambda k: cache.pop(k, None), "delete_many": list}[remove], "k")
    if remove == "delete_many":
        holder.does(cache.delete_many, ["k"])
    assert until(lambda: any(each.done() for each in asked))
    assert [each.result() for each in asked if each.done()] == [MISS]
    wait_for_waiters(cache, 4)
    next_holder = others[[each.done() for each in asked].index(True)]
    assert next_holder.does(cache.is_leased, "k")
    next_holder.does(cache.set, "k", "it")
    assert Counter(each.result(PATIENCE) for each in asked) == {MISS: 1, "it": 4}


def test_somebody_elses_delete_changes_nothing(cache, people):
    holder, other, stranger, *_ = people
    holder.gets("k")
    asked = other.asks("k")
    wait_for_waiters(cache, 1)
    stranger.does(cache.delete, "k")
    stranger.does(cache.delete_many, ["k"])
    stranger.does(cache.clear)
    cache.delete("k")
    assert waiting(cache) == 1
    assert holder.does(cache.is_leased, "k")
    holder.does(cache.set, "k", "it")
    assert asked.result(PATIENCE) == "it"


def test_the_end_of_the_holders_request_passes_on_every_lease_of_his(cache, people):
    holder, *others = people
    keys = list(range(5))
    for key in keys:
        holder.gets(key)
    asked = [other.asks(key) for other, key in zip(others, keys, strict=True)]
    for key in keys:
        wait_for_waiters(cache, 1, key)
    holder.does(end_request)
    assert [each.result(PATIENCE) for each in asked] == [MISS] * 5
    assert [other.does(cache.is_leased, key) for other, key in zip(others, keys, strict=True)] == [True] * 5


def test_the_end_of_a_request_without_leases_changes_nothing(cache, people):
    holder, other, *_ = people
    holder.gets("k")
    other.does(end_request)
    threading.Thread(target=end_request).start()
    end_request()
    assert holder.does(cache.is_leased, "k")


def test_a_holder_who_gave_up_waits_like_anybody(cache, people):
    holder, other, *_ = people
    holder.gets("k")
    holder.does(end_request)
    other.gets("k")
    asked = holder.asks("k")
    wait_for_waiters(cache, 1)
    other.does(cache.set, "k", "it")
    assert asked.result(PATIENCE) == "it"


def test_a_holder_whose_thread_ends_without_a_word_passes_on(cache, people):
    holder, other, *_ = people
    holder.gets("k")
    asked = other.asks("k")
    wait_for_waiters(cache, 1)
    holder.dies()
    assert asked.result(PATIENCE) == MISS
    assert other.does(cache.is_leased, "k")


def test_a_holder_whose_thread_ends_while_the_lock_is_taken_passes_on_when_it_is_free(cache, people):
    holder, other, busy, *_ = people
    holder.gets("k")
    asked = other.asks("k")
    wait_for_waiters(cache, 1)
    taken, free = threading.Event(), threading.Event()

    def be_busy():
        with cache._lock:
            taken.set()
            assert free.wait(PATIENCE)
        cache.set("anything", 1)

    work = busy.pool.submit(be_busy)
    assert taken.wait(PATIENCE)
    holder.dies()
    free.set()
    work.result(PATIENCE)
    assert asked.result(PATIENCE) == MISS


def test_a_holder_in_a_circle_of_garbage_passes_on_when_it_is_collected(cache, people):
    other = people[0]
    gc.collect()

    class Circle:
        def __init__(self):
            self.me = self
            self.context = contextvars.Context()

    circle = Circle()
    circle.context.run(cache.get_or_lease, "k", wait=LONG)
    asked = other.asks("k")
    wait_for_waiters(cache, 1)
    del circle
    gc.collect()
    assert asked.result(PATIENCE) == MISS


def test_after_a_hung_holder_s_time_one_waiter_computes_and_the_rest_wait_for_him(cache, people):
    holder, *others = people
    assert holder.gets("k", wait=SHORT) == MISS
    asked = [other.asks("k", wait=LONG) for other in others]
    assert until(lambda: any(each.done() for each in asked))
    wait_for_waiters(cache, 4)
    assert [each.result() for each in asked if each.done()] == [MISS]
    next_holder = others[[each.done() for each in asked].index(True)]
    assert next_holder.does(cache.is_leased, "k")
    assert not holder.does(cache.is_leased, "k")
    next_holder.does(cache.set, "k", "it")
    assert Counter(each.result(PATIENCE) for each in asked) == {MISS: 1, "it": 4}


def test_nobody_waits_for_longer_than_his_own_wait(cache, people):
    holder, *others = people
    holder.gets("k", wait=LONG)
    asked = [other.asks("k", wait=SHORT) for other in others]
    assert [each.result(PATIENCE) for each in asked] == [MISS] * 5
    assert holder.does(cache.is_leased, "k")
    assert waiting(cache) == 0


def test_all_who_wait_as_long_as_a_hung_holder_s_lease_lasts_go_on(cache, people):
    holder, *others = people
    holder.gets("k", wait=SHORT)
    asked = [other.asks("k", wait=SHORT) for other in others]
    assert [each.result(PATIENCE) for each in asked] == [MISS] * 5
    assert waiting(cache) == 0


def test_a_late_set_by_a_holder_whose_lease_timed_out_wakes_those_who_wait_for_the_next(cache, people):
    late, other, third, *_ = people
    late.gets("k", wait=SHORT)
    assert other.asks("k").result(PATIENCE) == MISS
    asked = third.asks("k")
    wait_for_waiters(cache, 1)
    late.does(cache.delete, "k")
    assert waiting(cache) == 1
    late.does(cache.set, "k", "late")
    assert asked.result(PATIENCE) == "late"


def test_a_holder_never_waits_for_another_key_or_in_another_cache(cache, people):
    first, second, *_ = people
    elsewhere = Cache(log_interval=None, sample_interval=None)
    first.gets("a")
    second.gets("b")
    assert second.gets("a") == MISS
    assert second.gets("b") == MISS
    elsewhere.get_or_lease("k", wait=LONG)
    assert first.gets("k", cache=elsewhere) == MISS
    assert not first.does(elsewhere.is_leased, "k")


def test_two_threads_that_take_two_keys_in_opposite_order_do_not_wait_for_each_other(cache):
    both = threading.Barrier(2)

    def request(first, second):
        assert cache.get_or_lease(first, wait=LONG) is None
        both.wait(PATIENCE)
        assert cache.get_or_lease(second, wait=LONG) is None
        both.wait(PATIENCE)
        cache.set(first, threading.get_ident())
        cache.set(second, threading.get_ident())
        end_request()

    with ThreadPoolExecutor(2) as pool:
        for request_ in [pool.submit(request, "a", "b"), pool.submit(request, "b", "a")]:
            request_.result(PATIENCE)
    assert not cache._leases.in_force


def test_two_threads_that_take_two_keys_in_opposite_order_in_two_caches_do_not_wait_for_each_other(cache):
    elsewhere = Cache(log_interval=None, sample_interval=None)
    both = threading.Barrier(2)

    def request(first, second):
        assert first.get_or_lease("k", wait=LONG) is None
        both.wait(PATIENCE)
        assert second.get_or_lease("k", wait=LONG) is None
        both.wait(PATIENCE)
        end_request()

    with ThreadPoolExecutor(2) as pool:
        for request_ in [pool.submit(request, cache, elsewhere), pool.submit(request, elsewhere, cache)]:
            request_.result(PATIENCE)


def test_a_ring_of_threads_each_with_a_key_the_next_one_wants_does_not_stand_still(cache, together):
    all_hold = threading.Barrier(THREADS)

    def request(number):
        cache.get_or_lease(number, wait=LONG)
        all_hold.wait(PATIENCE)
        for step in range(1, THREADS):
            cache.get_or_lease((number + step) % THREADS, wait=LONG)
        cache.set(number, number)
        end_request()

    assert together(request) == [None] * THREADS
    assert not cache._leases.in_force


def test_whoever_was_handed_a_lease_while_he_waited_is_a_holder_like_any(cache, people):
    first, second, third, *_ = people
    first.gets("a")
    third.gets("b")
    asked = second.asks("a")
    wait_for_waiters(cache, 1, "a")
    first.does(cache.delete, "a")
    assert asked.result(PATIENCE) == MISS
    assert second.gets("b") == MISS


@pytest.mark.parametrize("take", ["take", "take_with_a_timeout", "memoize", "refresh"])
def test_code_inside_a_loader_never_waits(cache, people, take):
    holder, loading, *_ = people
    holder.gets("k")

    def loader():
        return cache.get_or_lease("k", MISS, wait=LONG)

    if take == "memoize":
        assert loading.does(cache.memoize()(loader)) == MISS
    elif take == "take_with_a_timeout":
        assert loading.does(cache.take, "loaded", loader, timeout=LONG) == MISS
    elif take == "take":
        assert loading.does(cache.take, "loaded", loader) == MISS
    else:
        assert loading.does(cache.take, "loaded", lambda: cache.take("inner", loader)) == MISS
    assert waiting(cache) == 0


def test_after_its_loader_a_thread_waits_again(cache, people):
    holder, loading, *_ = people
    loading.does(cache.take, "loaded", lambda: 1)
    holder.gets("k")
    asked = loading.asks("k")
    wait_for_waiters(cache, 1)
    holder.does(cache.set, "k", "it")
    assert asked.result(PATIENCE) == "it"


def test_looking_without_the_means_to_fill_takes_no_lease_and_waits_for_none(cache, people):
    looker, holder, *_ = people

    def look():
        assert "k" not in cache
        assert cache.get("k", MISS) == MISS
        assert cache.get_many(["k", "j"]) == {}
        assert cache.touch("k") is False
        assert cache.pop("k", MISS) == MISS
        for method in (cache.expires_in, cache.incr):
            with pytest.raises(KeyError):
                method("k")

    looker.does(look)
    assert not cache._leases.in_force
    holder.gets("k")
    looker.does(look)
    assert holder.does(cache.is_leased, "k")


def test_a_hit_takes_no_lease(cache):
    cache.set("k", 1)
    assert cache.get_or_lease("k", wait=LONG) == 1
    assert not cache._leases.in_force
    assert not cache.is_leased("k")


def test_an_expired_value_is_a_miss_like_any_other(people):
    clock = ManualClock()
    cache = Cache(clock=clock, jitter=0, log_interval=None, sample_interval=None)
    holder, other, *_ = people
    cache.set("k", "old", 5)
    clock._now = 6.0
    assert holder.gets("k", cache=cache) == MISS
    asked = other.asks("k", cache=cache)
    wait_for_waiters(cache, 1)
    holder.does(cache.set, "k", "new", 5)
    assert asked.result(PATIENCE) == "new"


def test_a_lease_lasts_as_long_as_a_manual_clock_says(people):
    clock = ManualClock()
    cache = Cache(clock=clock, log_interval=None, sample_interval=None)
    holder, other, third, *_ = people
    holder.gets("k", cache=cache, wait=SHORT)
    asked = other.asks("k", cache=cache, wait=SHORT)
    wait_for_waiters(cache, 1)
    time.sleep(3 * SHORT)  # by any other clock the lease is over
    assert not asked.done()
    clock.advance(SHORT)
    assert asked.result(PATIENCE) == MISS
    assert not holder.does(cache.is_leased, "k")
    clock.advance(SHORT)
    assert third.gets("k", cache=cache) == MISS


def test_keys_of_every_kind_can_be_leased(cache, people):
    class Odd:
        def __hash__(self):
            return 1

        def __eq__(self, other):
            return type(other) is Odd

    holder, other, *_ = people
    for key, same in ((("a", 1), ("a", 1)), (Odd(), Odd()), (1.5, 1.5), (None, None)):
        holder.gets(key)
        assert holder.does(cache.is_leased, same)
        asked = other.asks(same)
        assert until(lambda: sum(len(lease.waiters) for lease in cache._leases.in_force.values()) == 1)
        holder.does(cache.set, same, "it")
        assert asked.result(PATIENCE) == "it"
    assert not cache._leases.in_force


def test_hits_misses_and_coalesced_are_exact(cache, people):
    holder, other, third, fourth, *_ = people
    holder.gets("k")
    asked = [other.asks("k"), third.asks("k")]
    wait_for_waiters(cache, 2)
    holder.gets("k")
    stats = cache.stats()
    assert (stats.hits, stats.misses, stats.coalesced) == (0, 2, 0)
    holder.does(cache.set, "k", 1)
    assert [each.result(PATIENCE) for each in asked] == [1, 1]
    assert fourth.gets("k") == 1
    stats = cache.stats()
    assert (stats.hits, stats.misses, stats.coalesced) == (3, 2, 2)
    holder.gets("j")
    asked = [other.asks("j"), third.asks("j", wait=SHORT)]
    assert asked[1].result(PATIENCE) == MISS
    holder.does(end_request)
    assert asked[0].result(PATIENCE) == MISS
    stats = cache.stats()
    assert (stats.hits, stats.misses, stats.coalesced) == (3, 5, 2)


def test_of_all_who_miss_at_once_one_computes_and_every_call_counts_once(cache, together):
    computed = []

    def request(number):
        for key in range(50):
            value = cache.get_or_lease(key, wait=LONG)
            if value is None:
                computed.append(key)
                cache.set(key, key * 2)
                value = key * 2
            assert value == key * 2
        end_request()

    assert together(request) == [None] * THREADS
    assert sorted(computed) == list(range(50))
    stats = cache.stats()
    assert (stats.misses, stats.hits) == (50, 50 * THREADS - 50)
    assert stats.coalesced <= stats.hits
    assert not cache._leases.in_force
    assert not cache._leases._to_wake


def test_nothing_is_left_and_nobody_is_lost_after_a_storm_of_everything(cache, together):
    def request(number):
        for step in range(150):
            key = (number * 7 + step * 3) % 6
            outcome = (number + step * 5) % 11
            if cache.get_or_lease(key, wait=LONG) is None and outcome < 4:
                cache.set(key, step)
            if outcome == 5:
                cache.delete(key)
            elif outcome == 6:
                cache.set_many({key: 1, key + 1: 2})
            elif outcome == 7:
                cache.take(key, lambda: 3)
            elif outcome == 8:
                in_a_context(cache.get_or_lease, key, wait=LONG)
            elif outcome == 9:
                gc.collect(0)
            end_request()
        cache.delete_many(range(8))

    began = time.monotonic()
    assert together(request) == [None] * THREADS
    assert time.monotonic() - began < LONG, "somebody waited for nothing"
    assert not cache._leases.in_force
    assert not cache._leases._to_wake
    assert not cache._leases.abandoned


@pytest.mark.deep
def test_two_threads_that_act_for_one_holder_at_his_bound_use_two_caches_at_once(cache):
    elsewhere = Cache(log_interval=None, sample_interval=None)
    stop = threading.Event()

    def miss():
        key = HELD_AT_MOST
        while not stop.is_set():
            key += 1
            cache.get_or_lease(key, wait=LONG)

    def come_and_go():
        for _ in range(100):
            for key in range(HELD_AT_MOST // 2):
                elsewhere.delete(key)
                elsewhere.get_or_lease(key, wait=LONG)
        stop.set()

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for key in range(HELD_AT_MOST):
            (cache, elsewhere)[key % 2].get_or_lease(key // 2, wait=LONG)
        with ThreadPoolExecutor(2) as pool:
            work = [pool.submit(contextvars.copy_context().run, each) for each in (come_and_go, miss)]
            try:
                for each in work:
                    each.result(6 * PATIENCE)
            finally:
                stop.set()
    finally:
        sys.setswitchinterval(interval)
        end_request()


@pytest.mark.deep
def test_a_million_probes_for_what_is_not_there_leave_a_bounded_number_of_leases(cache):
    for key in range(100_000):
        cache.get_or_lease(key, wait=LONG)
    assert len(cache._leases.in_force) == HELD_AT_MOST
    end_request()
    assert not cache._leases.in_force
    assert not current_holder().leases


def test_whoever_waits_when_the_cache_is_closed_learns_of_it(cache, people):
    holder, *others = people
    holder.gets("k")
    asked = [other.asks("k") for other in others]
    wait_for_waiters(cache, 5)
    cache.close()
    assert all(isinstance(each.exception(PATIENCE), CacheClosed) for each in asked)
    holder.does(end_request)
    holder.dies()
    assert not cache._leases.in_force


def test_a_closed_cache_and_its_values_are_kept_alive_by_no_holder():
    cache = Cache(log_interval=None, sample_interval=None)
    cache.get_or_lease("k", wait=LONG)
    cache.close()
    gone = weakref.ref(cache)
    del cache
    gc.collect()
    assert gone() is None


def test_a_value_lives_no_longer_than_its_entry_and_those_who_got_it(cache, people):
    class Value:
        pass

    holder, other, *_ = people
    holder.gets("k")
    asked = other.asks("k")
    wait_for_waiters(cache, 1)
    value = Value()
    gone = weakref.ref(value)
    holder.does(cache.set, "k", value)
    assert asked.result(PATIENCE) is value
    del value, asked
    holder.does(cache.delete, "k")
    for person in (holder, other):
        person.does(gc.collect)
    assert until(lambda: gone() is None)


def test_an_exception_that_a_signal_raises_in_a_waiter_takes_him_off_the_list():
    assert run_script("""
        cache = Cache()
        threading.Thread(target=lambda: (cache.get_or_lease("k", wait=50), time.sleep(50)), daemon=True).start()
        until(lambda: cache._leases.in_force)

        class Interrupted(BaseException):
            pass

        def interrupt(*_):
            raise Interrupted

        signal.signal(signal.SIGALRM, interrupt)
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        try:
            cache.get_or_lease("k", wait=50)
        except Interrupted:
            print(len(cache._leases.in_force["k"].waiters))
        """) == ["0"]


def test_a_child_of_fork_knows_of_no_lease_and_nobody_who_waits():
    assert run_script("""
        from wheelcache.leases.fill_leases import current_holder
        cache = Cache()
        ready, go = threading.Event(), threading.Event()

        def hold():
            cache.get_or_lease("theirs", wait=50)
            ready.set()
            go.wait()

        threading.Thread(target=hold, daemon=True).start()
        ready.wait()
        threading.Thread(target=cache.get_or_lease, args=["theirs"], kwargs={"wait": 50}, daemon=True).start()
        until(lambda: len(cache._leases.in_force["theirs"].waiters) == 1)
        cache.get_or_lease("mine", wait=50)

        def child():
            assert not cache._leases.in_force
            assert not current_holder().leases
            began = time.monotonic()
            assert cache.get_or_lease("theirs", wait=50) is None
            assert cache.is_leased("theirs")
            got = []
            waiter = threading.Thread(target=lambda: got.append(cache.get_or_lease("theirs", wait=50)))
            waiter.start()
            until(lambda: len(cache._leases.in_force["theirs"].waiters) == 1)
            cache.set("theirs", 1)
            waiter.join()
            assert got == [1]
            assert time.monotonic() - began < 40

        print(in_child(child))
        assert cache.is_leased("mine")
        assert set(cache._leases.in_force) == {"mine", "theirs"}
        """) == ["0"]


def test_children_forked_while_leases_come_and_go_find_the_cache_usable():
    assert run_script("""
        from wheelcache.leases.fill_leases import end_request
        cache = Cache()
        stop = threading.Event()

        def work(number):
            while not stop.is_set():
                for key in range(20):
                    if cache.get_or_lease(key, wait=5) is None:
                        cache.set(key, 1)
                    cache.delete((key * 7 + number) % 20)
                end_request()

        threads = [threading.Thread(target=work, args=[number]) for number in range(4)]
        for thread in threads:
            thread.start()

        def child():
            assert not cache._leases.in_force
            for key in range(20):
                if cache.get_or_lease(key, wait=5) is None:
                    cache.set(key, 1)
            end_request()
            assert not cache._leases.in_force

        print(sum(in_child(child) for _ in range(30)))
        stop.set()
        for thread in threads:
            thread.join()
        """) == ["0"]


def test_an_interpreter_exits_without_a_word_whoever_has_leases():
    script = """
        import asyncio, threading
        from wheelcache import Cache
        cache = Cache()
        cache.get_or_lease("main", wait=50)
        held = threading.Event()
        def hold():
            cache.get_or_lease("k", wait=50)
            held.set()
            threading.Event().wait()
        threading.Thread(target=hold, daemon=True).start()
        held.wait()
        threading.Thread(target=cache.get_or_lease, args=["k"], kwargs={"wait": 50}, daemon=True).start()
        loop = asyncio.new_event_loop()
        task = loop.create_task(cache.aget_or_lease("loop", wait=50))
        loop.run_until_complete(task)
        """
    outcome = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=60
    )
    assert (outcome.returncode, outcome.stderr) == (0, "")


# Tasks.


def test_tasks_wait_without_blocking_their_loop_and_get_the_value_that_was_set(cache):
    async def request(go):
        value = await cache.aget_or_lease("k", MISS, wait=LONG)
        if value == MISS:
            await go.wait()
            cache.set("k", "it")
        return value

    async def main():
        go = asyncio.Event()
        tasks = [asyncio.create_task(request(go)) for _ in range(10)]
        await soon(lambda: waiting(cache) == 9)
        go.set()
        return await asyncio.gather(*tasks)

    assert Counter(asyncio.run(main())) == {MISS: 1, "it": 9}
    assert not cache._leases.in_force
    stats = cache.stats()
    assert (stats.hits, stats.misses, stats.coalesced) == (9, 1, 9)


def test_sibling_tasks_are_holders_of_their_own_though_their_parent_holds_nothing_now(cache):
    async def main():
        await cache.aget_or_lease("parent's", wait=LONG)
        cache.set("parent's", 1)
        done = asyncio.Event()

        async def first():
            await cache.aget_or_lease("k", wait=LONG)
            await done.wait()

        holder = asyncio.create_task(first())
        await soon(lambda: "k" in cache._leases.in_force)
        other = asyncio.create_task(cache.aget_or_lease("k", MISS, wait=LONG))
        await soon(lambda: waiting(cache) == 1)
        assert not cache.is_leased("k")
        done.set()
        assert await other == MISS
        await holder

    asyncio.run(main())


def test_a_child_task_acts_for_the_task_that_started_it(cache):
    async def main():
        await cache.aget_or_lease("k", wait=LONG)

        async def child():
            assert cache.is_leased("k")
            assert await cache.aget_or_lease("k", MISS, wait=LONG) == MISS
            assert await cache.aget_or_lease("theirs", MISS, wait=LONG) == MISS
            assert not cache.is_leased("theirs")
            await asyncio.create_task(grandchild())

        async def grandchild():
            assert await cache.aget_or_lease("theirs", MISS, wait=LONG) == MISS
            assert cache.delete("k") is False

        threading.Thread(target=in_another_thread).start()
        assert await asyncio.to_thread(held.wait, PATIENCE)
        async with asyncio.timeout(PATIENCE):
            await asyncio.create_task(child())
        assert not cache.is_leased("k")
        done.set()

    held, done = threading.Event(), threading.Event()

    def in_another_thread():
        cache.get_or_lease("theirs", wait=LONG)
        held.set()
        done.wait(PATIENCE)

    asyncio.run(main())


def test_a_child_task_may_set_what_its_parent_has_a_lease_on(cache, people):
    other = people[0]

    async def main():
        await cache.aget_or_lease("k", wait=LONG)
        asked = other.asks("k")
        await soon(lambda: waiting(cache) == 1)

        async def child():
            cache.set("k", "it")

        await asyncio.create_task(child())
        return asked

    assert asyncio.run(main()).result(PATIENCE) == "it"


def test_a_child_task_that_survives_its_parent_is_on_its_own(cache):
    async def main():
        go = asyncio.Event()

        async def parent():
            await cache.aget_or_lease("parent's", wait=LONG)
            return asyncio.create_task(child())

        async def child():
            await go.wait()
            return await cache.aget_or_lease("k", MISS, wait=LONG)

        orphan = await asyncio.create_task(parent())
        await soon(lambda: "parent's" not in cache._leases.in_force)
        assert await cache.aget_or_lease("k", MISS, wait=LONG) == MISS
        go.set()
        await soon(lambda: waiting(cache) == 1)
        cache.set("k", "it")
        assert await orphan == "it"

    asyncio.run(main())


def test_tasks_that_start_one_another_for_ever_do_not_hold_each_other_for_ever(cache):
    async def main():
        alive = []
        done = asyncio.get_running_loop().create_future()

        async def generation(number, born):
            await cache.aget_or_lease(number, wait=LONG)
            alive.append(weakref.ref(current_holder()))
            born.set()
            if number == 200:
                gc.collect()
                done.set_result(sum(holder() is not None for holder in alive))
            else:
                child_is_born = asyncio.Event()
                tasks.append(asyncio.create_task(generation(number + 1, child_is_born)))
                await child_is_born.wait()
            tasks.pop(0)

        tasks = [asyncio.create_task(generation(0, asyncio.Event()))]
        return await done

    assert asyncio.run(main()) < 5
    assert not cache._leases.in_force


def test_the_end_of_a_task_is_the_end_of_its_leases(cache):
    async def main():
        go = asyncio.Event()

        async def holds(outcome):
            await cache.aget_or_lease("k", wait=LONG)
            await go.wait()
            if outcome is not None:
                raise outcome

        for outcome in (None, LookupError()):
            go.clear()
            holder = asyncio.create_task(holds(outcome))
            await soon(lambda: "k" in cache._leases.in_force)
            other = asyncio.create_task(cache.aget_or_lease("k", MISS, wait=LONG))
            await soon(lambda: waiting(cache) == 1)
            go.set()
            await asyncio.gather(holder, return_exceptions=True)
            assert await other == MISS
            await soon(lambda: not cache._leases.in_force)

    asyncio.run(main())


def test_a_holder_task_that_is_cancelled_passes_on_to_exactly_one(cache):
    async def main():
        async def hang():
            await cache.aget_or_lease("k", wait=LONG)
            await asyncio.Event().wait()

        async def request():
            value = await cache.aget_or_lease("k", MISS, wait=LONG)
            if value == MISS:
                cache.set("k", "it")
            return value

        holder = asyncio.create_task(hang())
        await soon(lambda: "k" in cache._leases.in_force)
        others = [asyncio.create_task(request()) for _ in range(5)]
        await soon(lambda: waiting(cache) == 5)
        holder.cancel()
        return await asyncio.gather(*others)

    assert Counter(asyncio.run(main())) == {MISS: 1, "it": 4}


def test_a_task_that_is_cancelled_while_it_waits_leaves(cache):
    async def main():
        await cache.aget_or_lease("k", wait=LONG)
        waiters = [asyncio.create_task(cache.aget_or_lease("k", MISS, wait=LONG)) for _ in range(3)]
        # Separate requests: started by no holder.
        await asyncio.gather(*waiters)

    async def holder_and_waiters():
        go = asyncio.Event()

        async def hold():
            await cache.aget_or_lease("k", wait=LONG)
            await go.wait()

        holder = asyncio.create_task(hold())
        await soon(lambda: "k" in cache._leases.in_force)
        waiters = [asyncio.create_task(cache.aget_or_lease("k", MISS, wait=LONG)) for _ in range(3)]
        await soon(lambda: waiting(cache) == 3)
        waiters[0].cancel()
        await asyncio.gather(waiters[0], return_exceptions=True)
        assert waiters[0].cancelled()
        assert waiting(cache) == 2
        go.set()
        await holder
        # Each is handed the lease, and ends.
        assert await asyncio.gather(*waiters[1:]) == [MISS, MISS]

    asyncio.run(main())
    assert not cache._leases.in_force
    asyncio.run(holder_and_waiters())
    assert not cache._leases.in_force


def test_a_task_that_is_cancelled_just_after_it_was_handed_the_lease_passes_it_on(cache, people):
    holder, *_ = people
    holder.gets("k")

    async def main():
        first = asyncio.create_task(cache.aget_or_lease("k", MISS, wait=LONG))
        await soon(lambda: waiting(cache) == 1)
        second = asyncio.create_task(cache.aget_or_lease("k", MISS, wait=LONG))
        await soon(lambda: waiting(cache) == 2)
        # The loop is held up here, so the first has been handed the lease and hasn't run since.
        holder.does(end_request)
        assert waiting(cache) == 1
        first.cancel()
        assert await second == MISS
        assert first.cancelled()

    asyncio.run(main())
    assert not cache._leases.in_force


def test_a_task_that_is_cancelled_before_it_was_told_of_the_value_loses_nobody_elses(cache, people):
    holder, *_ = people
    holder.gets("k")

    async def main():
        tasks = [asyncio.create_task(cache.aget_or_lease("k", MISS, wait=LONG)) for _ in range(3)]
        await soon(lambda: waiting(cache) == 3)
        holder.does(cache.set, "k", "it")
        tasks[0].cancel()
        return await asyncio.gather(*tasks, return_exceptions=True)

    cancelled, *others = asyncio.run(main())
    assert isinstance(cancelled, asyncio.CancelledError)
    assert others == ["it", "it"]


def test_tasks_go_on_after_their_wait_and_after_a_hung_holder(cache):
    async def main():
        async def hang():
            await cache.aget_or_lease("k", wait=LONG)
            await asyncio.Event().wait()

        holder = asyncio.create_task(hang())
        await soon(lambda: "k" in cache._leases.in_force)
        async with asyncio.timeout(PATIENCE):
            requests = [asyncio.create_task(cache.aget_or_lease("k", MISS, wait=SHORT)) for _ in range(4)]
            assert await asyncio.gather(*requests) == [MISS] * 4
        assert waiting(cache) == 0
        holder.cancel()

    asyncio.run(main())


def test_two_tasks_that_take_two_keys_in_opposite_order_do_not_wait_for_each_other(cache):
    async def request(first, second, both):
        assert await cache.aget_or_lease(first, wait=LONG) is None
        await both.wait()
        assert await cache.aget_or_lease(second, wait=LONG) is None
        await both.wait()
        cache.set(first, 1)
        cache.set(second, 1)

    async def main():
        both = asyncio.Barrier(2)
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(request("a", "b", both), request("b", "a", both))

    asyncio.run(main())
    assert not cache._leases.in_force


def test_two_tasks_whose_children_take_the_second_key_in_opposite_order_do_not_wait_for_each_other(cache):
    async def request(first, second, both):
        assert await cache.aget_or_lease(first, wait=LONG) is None
        await both.wait()
        child = asyncio.create_task(cache.aget_or_lease(second, wait=LONG))
        in_a_thread = asyncio.to_thread(cache.get_or_lease, second, wait=LONG)
        assert await asyncio.gather(child, in_a_thread) == [None, None]

    async def main():
        both = asyncio.Barrier(2)
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(request("a", "b", both), request("b", "a", both))

    asyncio.run(main())
    assert not cache._leases.in_force


def test_a_sync_get_while_an_event_loop_runs_in_its_thread_never_waits(cache, people):
    holder, *_ = people
    holder.gets("k")

    async def main():
        assert cache.get_or_lease("k", MISS, wait=LONG) == MISS
        called = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(lambda: called.set_result(cache.get_or_lease("k", MISS, wait=LONG)))
        assert await called == MISS

    asyncio.run(main())


def test_a_sync_get_in_a_task_takes_the_lease_for_the_task(cache):
    async def main():
        async def request():
            assert cache.get_or_lease("k", MISS, wait=LONG) == MISS
            assert cache.is_leased("k")

        await asyncio.create_task(request())
        await soon(lambda: not cache._leases.in_force)

    asyncio.run(main())


def test_what_a_task_hands_to_a_thread_acts_for_the_task(cache, people):
    other, *_ = people

    async def main():
        await cache.aget_or_lease("k", wait=LONG)
        assert await asyncio.to_thread(cache.is_leased, "k")
        assert await asyncio.to_thread(cache.get_or_lease, "k", MISS, wait=LONG) == MISS
        other.gets("theirs")
        assert await asyncio.to_thread(cache.get_or_lease, "theirs", MISS, wait=LONG) == MISS
        assert await asyncio.to_thread(cache.get_or_lease, "taken there", MISS, wait=LONG) == MISS
        assert cache.is_leased("taken there")
        asked = other.pool.submit(lambda: (end_request(), cache.get_or_lease("k", wait=LONG))[1])
        await soon(lambda: waiting(cache) == 1)
        await asyncio.to_thread(cache.set, "k", "it")
        return asked

    assert asyncio.run(main()).result(PATIENCE) == "it"


def test_sync_code_that_a_task_without_leases_hands_to_a_thread_waits(cache, people):
    holder, *_ = people
    holder.gets("k")

    async def main():
        asked = asyncio.create_task(asyncio.to_thread(cache.get_or_lease, "k", MISS, wait=LONG))
        await soon(lambda: waiting(cache) == 1)
        holder.does(cache.set, "k", "it")
        return await asked

    assert asyncio.run(main()) == "it"


def test_a_thread_whose_task_was_cancelled_holds_on_its_own(cache, people):
    other, *_ = people
    cancelled, held, done = threading.Event(), threading.Event(), threading.Event()

    def sync_code():
        assert cancelled.wait(PATIENCE)
        cache.get_or_lease("k", wait=LONG)
        held.set()
        assert done.wait(PATIENCE)

    async def main():
        async def request():
            await cache.aget_or_lease("task's", wait=LONG)
            await asyncio.to_thread(sync_code)

        task = asyncio.create_task(request())
        await soon(lambda: "task's" in cache._leases.in_force)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        cancelled.set()
        assert await asyncio.to_thread(held.wait, PATIENCE)
        asked = other.asks("k")
        await soon(lambda: waiting(cache) == 1)
        done.set()
        del task
        # With what the thread ran, its holder goes.
        await soon(lambda: gc.collect() >= 0 and asked.done())
        assert asked.result() == MISS

    asyncio.run(main())


def test_a_thread_that_got_its_context_back_from_a_task_that_is_over_never_waits_for_itself(cache, people):
    """As after asgiref's async_to_sync, which copies the context variables of the coroutine to its caller."""

    def view():
        holder = asyncio.run(request())
        fill_leases._current.set(holder)
        assert cache.get_or_lease("k", MISS, wait=LONG) == MISS
        return asyncio.run(cache.aget_or_lease("k", MISS, wait=LONG))

    async def request():
        await cache.aget_or_lease("first", wait=LONG)
        return current_holder()

    assert people[0].does(view) == MISS
    assert people[0].does(cache.is_leased, "k")


def test_loops_in_many_threads_share_a_cache_and_one_task_of_all_computes(cache, together):
    computed = []

    async def request(key):
        value = await cache.aget_or_lease(key, wait=LONG)
        if value is None:
            computed.append(key)
            await asyncio.sleep(0)
            cache.set(key, key + 1)
            value = key + 1
        assert value == key + 1

    async def main():
        for key in range(20):
            await asyncio.gather(*[request(key) for _ in range(5)])

    assert together(lambda number: asyncio.run(main())) == [None] * THREADS
    assert sorted(computed) == list(range(20))
    assert not cache._leases.in_force


def test_nothing_is_left_after_tasks_were_cancelled_at_any_moment(cache, together):
    async def request(number, step):
        key = (number + step) % 3
        if await cache.aget_or_lease(key, wait=LONG) is None:
            await asyncio.sleep(0)
            if step % 3 == 0:
                cache.set(key, 1)
        if step % 4 == 0:
            cache.delete(key)

    async def main(number):
        for step in range(60):
            tasks = [asyncio.create_task(request(number, step + i)) for i in range(4)]
            for turn, task in enumerate(tasks):
                for _ in range((number + step + turn) % 5):
                    await asyncio.sleep(0)
                if (step + turn) % 2:
                    task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    began = time.monotonic()
    assert together(lambda number: asyncio.run(main(number))) == [None] * THREADS
    assert time.monotonic() - began < LONG, "somebody waited for nothing"
    assert not cache._leases.in_force
    assert not cache._leases.abandoned


def test_a_loop_that_is_closed_with_waiters_and_holders_passes_on(cache, people):
    other, *_ = people
    loop = asyncio.new_event_loop()

    async def hang():
        await cache.aget_or_lease("k", wait=LONG)
        await asyncio.Event().wait()

    task = loop.create_task(hang())
    loop.run_until_complete(asyncio.sleep(0))
    assert "k" in cache._leases.in_force
    asked = other.asks("k")
    wait_for_waiters(cache, 1)
    loop.close()
    task._log_destroy_pending = False
    del task
    gc.collect()
    assert asked.result(PATIENCE) == MISS


def test_an_async_loader_never_waits(cache, people):
    holder, *_ = people
    holder.gets("k")

    async def main():
        async with asyncio.timeout(PATIENCE):
            return await cache.atake("loaded", lambda: cache.aget_or_lease("k", MISS, wait=LONG))

    assert asyncio.run(main()) == MISS


def test_tasks_that_wait_when_the_cache_is_closed_learn_of_it(cache, people):
    holder, *_ = people
    holder.gets("k")

    async def main():
        tasks = [asyncio.create_task(cache.aget_or_lease("k", wait=LONG)) for _ in range(3)]
        await soon(lambda: waiting(cache) == 3)
        cache.close()
        return await asyncio.gather(*tasks, return_exceptions=True)

    assert [type(error) for error in asyncio.run(main())] == [CacheClosed] * 3


def test_threads_and_tasks_wait_for_each_other(cache, people):
    thread, *_ = people

    async def main():
        await cache.aget_or_lease("task's", wait=LONG)
        asked = thread.asks("task's")
        await soon(lambda: waiting(cache, "task's") == 1)
        cache.set("task's", 1)
        assert await asyncio.wrap_future(asked) == 1
        await asyncio.wrap_future(thread.asks("thread's"))
        asked = asyncio.create_task(cache.aget_or_lease("thread's", wait=LONG))
        await soon(lambda: waiting(cache, "thread's") == 1)
        thread.does(cache.set, "thread's", 2)
        assert await asked == 2

    asyncio.run(main())


def test_what_is_on_its_own_acts_for_nobody(cache):
    cache.get_or_lease("k", wait=LONG)

    def background():
        on_its_own()
        return cache.is_leased("k")

    assert in_a_context(background) is False
    assert cache.is_leased("k")


def test_a_lease_that_lasts_for_ever_can_be_waited_for(cache, people):
    holder, other, *_ = people
    holder.gets("k", wait=1e300)
    asked = other.asks("k", wait=1e300)
    with pytest.raises(NotYet):
        asked.result(SHORT)
    holder.does(cache.set, "k", "it")
    assert asked.result(PATIENCE) == "it"


def test_who_reads_while_his_thread_has_the_cache_s_lock_never_waits(cache, people):
    """As a ``__del__`` does that the garbage collector runs in the middle of a write."""
    holder, other, *_ = people
    holder.gets("k")

    def read():
        with cache._lock:
            return cache.get_or_lease("k", MISS, wait=2)

    began = time.monotonic()
    assert other.does(read) == MISS
    assert time.monotonic() - began < 2


def test_greenlets_are_holders_of_their_own_and_wait_without_stopping_the_others():
    pytest.importorskip("gevent")
    script = """
        from gevent import monkey
        monkey.patch_all()
        import gevent
        from wheelcache import Cache

        cache = Cache(log_interval=None, sample_interval=None)
        cache.get_or_lease("before", wait=50)
        computed = []

        def request():
            if cache.get_or_lease("k", wait=50) is None:
                computed.append(1)
                gevent.idle()
                cache.set("k", "it")

        with gevent.Timeout(20):
            gevent.joinall([gevent.spawn(request) for _ in range(10)], raise_error=True)

            dead = gevent.spawn(cache.get_or_lease, "j", wait=50)
            dead.join()
            del dead
            # Its lease is over with it, and so the next greenlet doesn't wait.
            gevent.spawn(cache.get_or_lease, "j", wait=50).get()

            holder = gevent.spawn(lambda: (cache.get_or_lease("i", wait=50), gevent.sleep(50)))
            while "i" not in cache._leases.in_force:
                gevent.idle()
            waiter = gevent.spawn(cache.get_or_lease, "i", wait=50)
            while not cache._leases.in_force["i"].waiters:
                gevent.idle()
            waiter.kill()
            assert not cache._leases.in_force["i"].waiters
            holder.kill()
        print(len(computed))
        """
    outcome = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=60
    )
    assert (outcome.stdout, outcome.stderr, outcome.returncode) == ("1\n", "", 0)


def test_who_clears_the_cache_gives_up_what_he_holds_in_it_and_no_more(cache, people):
    holder, other, third, *_ = people
    elsewhere = Cache(log_interval=None, sample_interval=None)
    holder.gets("k")
    holder.does(elsewhere.get_or_lease, "k", wait=PATIENCE)
    third.gets("of the third")
    holder.does(cache.clear)
    assert list(cache._leases.in_force) == ["of the third"]
    assert list(elsewhere._leases.in_force) == ["k"]
    assert other.gets("k") == "a miss"


@pytest.mark.parametrize("wait", [0, -1, float("nan"), float("inf"), None, "1", True])
def test_a_wrong_wait_is_named(cache, wait):
    with pytest.raises((TypeError, ValueError), match="wait must be a number of seconds > 0, not"):
        cache.get_or_lease("k", wait=wait)
    with pytest.raises((TypeError, ValueError), match="wait must be a number of seconds > 0, not"):
        asyncio.run(cache.aget_or_lease("k", wait=wait))
