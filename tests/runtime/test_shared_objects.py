"""Objects that threads share: alarms, locks that a fork waits for, objects that are made at first use."""

import asyncio
import gc
import threading
from contextvars import ContextVar

import pytest

from tests.waiting import PATIENCE, join, start
from wheelcache.runtime import threads
from wheelcache.runtime.alarm import Alarm
from wheelcache.runtime.clock import SystemClock
from wheelcache.runtime.shared_objects import HeldLock, Lazy, WeakRegistry, acquiring
from wheelcache.runtime.steps import seconds_until
from wheelcache.runtime.threads import wait_for_end


async def wait_async(alarm, seconds):
    return await alarm.wait_async(seconds)


WAITS = {"thread": Alarm.wait, "task": lambda alarm, seconds: asyncio.run(wait_async(alarm, seconds))}


@pytest.mark.parametrize("wait", WAITS.values(), ids=WAITS)
def test_an_alarm_wakes_its_waiters_and_stays_set(wait, in_thread):
    alarm = Alarm()
    assert wait(alarm, 0.01) is False
    waiting = [in_thread(wait, alarm, seconds) for seconds in (None, PATIENCE)]
    alarm.set()
    alarm.set()
    assert [each.result(PATIENCE) for each in waiting] == [True, True]
    assert wait(alarm, 0) is True
    assert alarm._wake_ups == [], "nothing is kept of those that waited"


@pytest.mark.parametrize("wait", WAITS.values(), ids=WAITS)
def test_an_alarm_that_is_set_before_its_waiter_is_in_the_list_wakes_it(wait):
    class Late(list):
        def append(self, wake):
            alarm.set()
            super().append(wake)

    alarm = Alarm()
    alarm._wake_ups = Late()
    assert wait(alarm, None)


def test_the_wait_for_the_end_of_a_thread_does_not_wait_for_itself_or_long_for_a_busy_one():
    go = threading.Event()
    busy = start(go.wait)
    wait_for_end(threading.current_thread())
    wait_for_end(threading.Thread())
    wait_for_end(busy, lambda: True)
    assert busy.is_alive()
    go.set()
    wait_for_end(busy)
    assert not busy.is_alive()


@pytest.mark.parametrize("left_out", [[], [set]])
def test_a_copied_context_leaves_out_values_that_only_their_thread_may_use(monkeypatch, left_out):
    monkeypatch.setattr(threads, "not_copied", left_out)
    one, other = ContextVar("one"), ContextVar("other")
    one.set("text"), other.set({"of a thread"})
    copied = threads.copied_context()
    assert (copied.get(one), copied.get(other)) == ("text", None if left_out else {"of a thread"})


@pytest.mark.parametrize(("left", "seconds"), [(None, None), (-5, 0.0), (5, 5), (1e300, threading.TIMEOUT_MAX)])
def test_the_seconds_until_a_deadline_are_those_that_a_lock_can_wait(left, seconds):
    found = seconds_until(None if left is None else SystemClock.steady() + left)
    assert found == (seconds if seconds is None else pytest.approx(seconds, abs=0.5))


def test_a_held_lock_keeps_a_fork_waiting_until_it_is_free(in_thread):
    held = HeldLock()
    assert held.is_free()
    with held.lock:
        assert not held.is_free()
        assert in_thread(held.is_free).result(PATIENCE) is False
        # A signal handler may fork.
        held.before_fork()
        held.after_fork(in_child=False)
        forking = in_thread(held.before_fork)
    forking.result(PATIENCE)
    assert not held.is_free()


@pytest.mark.parametrize("in_child", [False, True])
def test_a_held_lock_is_free_after_a_fork(in_child):
    held = HeldLock()
    for _ in range(2):
        held.before_fork()
    for _ in range(2):
        held.after_fork(in_child=in_child)
    assert held.is_free()
    with held.lock:
        assert not held.is_free()


def test_a_lock_is_acquired_for_a_time():
    lock = threading.Lock()
    assert [*acquiring(lock), *acquiring(lock, 0.01)] == [True, False]


def test_a_lazy_object_is_made_once_and_again_when_threading_was_patched(monkeypatch):
    lazy = Lazy(object)
    first = lazy.get()
    assert lazy.get() is first
    monkeypatch.setattr(threading, "Lock", lambda: None)
    assert lazy.get() is not first
    assert [*map(id, lazy.all())] == [id(first), id(lazy.get())]
    lazy.forget()
    assert lazy.all() == []


def test_a_registry_keeps_nothing_alive_and_can_be_changed_while_it_is_iterated():
    registry = WeakRegistry()
    events = [threading.Event() for _ in range(3)]
    for each in events:
        registry.add(each)
    for each in registry:
        registry.add(each)
        if each is events[0]:
            del events[1]
            gc.collect()
    assert [*registry] == events
    join(start(lambda: [registry.add(threading.Event()) for _ in range(9)]))
    gc.collect()
    assert [*registry] == events
