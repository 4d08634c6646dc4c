"""The first use of a cache loads the snapshot, once. The cache can be used even if this fails."""

import os
import threading
from contextlib import suppress

import pytest

from tests.runtime.interruptions import Delivery, Worker, compiled_core
from tests.waiting import PATIENCE, THREADS, join, start
from wheelcache.core import CoreClass
from wheelcache.core.contract import RESTORE
from wheelcache.errors import CacheClosed, Unloaded
from wheelcache.persistence import gate
from wheelcache.persistence.gate import Gate


class Lazy:
    """A core that its first use loads. The load stores "a", unless ``load(cache)`` is given."""

    def __init__(self, load=None):
        self.now = 0.0
        self.loads = 0
        self.core = CoreClass(clock=lambda: self.now)
        self.gate = Gate("lazy", self.core)
        self.gate.load_first(self._loading)
        self._load = load or (lambda cache: cache.restore("a", 1))

    def _loading(self):
        self.loads += 1
        self._load(self)

    @property
    def is_pending(self):
        return not self.gate.is_in_use() and not self.gate.is_closed

    def call(self, name, *args):
        """Call a method of the core, after the load."""
        try:
            return getattr(self.core, name)(*args)
        except Unloaded:
            self.gate.open()
            return getattr(self.core, name)(*args)

    def get(self, key, default=None):
        return self.call("find", key, default)

    def set(self, key, value):
        return self.call("set", key, value, None)

    def restore(self, key, value, ttl=None, grace=0.0):
        self.core.set(key, value, ttl, grace, exact=True, mode=RESTORE)

    def close(self):
        self.gate.close()
        self.core.clear()


class Slow:
    """A load in progress in another thread."""

    def __init__(self):
        self.go_on = threading.Event()
        begun = threading.Event()

        def load(cache):
            cache.restore("a", 1)
            begun.set()
            assert self.go_on.wait(PATIENCE)
            cache.restore("b", 2)

        self.cache = Lazy(load)
        self._errors = []
        self._thread = start(self._use)
        assert begun.wait(PATIENCE)

    def _use(self):
        try:
            self.cache.get("a")
        except Exception as error:
            self._errors.append(error)

    def end(self):
        """The exception of the loading thread."""
        self.go_on.set()
        join(self._thread)
        return self._errors


def test_the_first_use_loads_and_no_other():
    cache = Lazy()
    with pytest.raises(Unloaded):
        cache.core.find("a")
    assert (cache.is_pending, len(cache.core), cache.loads) == (True, 0, 0)
    assert cache.get("a") == 1
    assert not cache.is_pending
    assert cache.core.find("b") is None
    assert cache.get("b") is None
    cache.gate.open()
    assert cache.loads == 1
    # The refused call does not count as a hit.
    assert cache.core.counts()[:2] == (1, 0)


def test_threads_that_use_it_first_together_load_it_once_and_all_get_it(together):
    begun = threading.Event()
    cache = Lazy(lambda cache: (begun.wait(0.05), cache.restore("a", 1)))
    assert together(lambda number: cache.get("a")) == [1] * THREADS
    assert cache.loads == 1


def test_what_is_loaded_may_use_the_cache():
    def load(cache):
        cache.set("b", 2)
        assert cache.get("b") == 2
        cache.gate.skip_load()
        cache.gate.open()
        cache.core.clear()
        assert cache.is_pending
        cache.restore("a", 1)

    cache = Lazy(load)
    assert cache.get("a") == 1
    assert cache.core.keys() == ["a"]
    assert cache.loads == 1


def test_a_clear_waits_for_the_load_that_was_begun():
    slow = Slow()
    clearing = start(lambda: (slow.cache.gate.skip_load(), slow.cache.core.clear()))
    clearing.join(0.05)
    assert clearing.is_alive()
    assert slow.cache.is_pending
    assert slow.end() == []
    join(clearing)
    assert len(slow.cache.core) == 0


def test_what_expired_while_it_was_loaded_is_not_returned_to_a_caller_that_waited():
    def load(cache):
        cache.restore("short", 1, 10)
        cache.restore("graced", 1, 10, 100.0)
        cache.restore("long", 1, 100)
        cache.now += 20

    cache = Lazy(load)
    assert [cache.get(key) for key in ("short", "graced", "long")] == [None, None, 1]


def test_hits_of_what_is_loaded_already_do_not_wait():
    slow = Slow()
    assert slow.cache.get("a") == 1
    with pytest.raises(Unloaded):
        slow.cache.core.find("b")
    assert slow.end() == []
    assert slow.cache.get("b") == 2


def test_a_thread_waits_for_another_only_so_long_and_then_the_cache_can_be_used(monkeypatch):
    """The loading thread may be waiting for this one."""
    monkeypatch.setattr(gate, "PATIENCE", 0.05)
    slow = Slow()
    assert slow.cache.get("b", "not there yet") == "not there yet"
    # No thread waits, and the load continues.
    monkeypatch.setattr(gate, "PATIENCE", PATIENCE)
    assert slow.cache.get("c") is None
    assert slow.cache.is_pending
    assert slow.end() == []
    assert slow.cache.get("b") == 2
    assert not slow.cache.is_pending
    assert slow.cache.loads == 1


def test_what_a_load_raises_is_raised_once_and_opens_the_cache():
    cache = Lazy(lambda cache: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        cache.get("a")
    assert cache.get("a") is None
    assert cache.loads == 1


class TestClosed:
    @pytest.mark.parametrize("then", ["open", "skip_load", "after_fork_in_child"])
    def test_before_the_load_it_stays_shut(self, then):
        cache = Lazy()
        cache.close()
        for _ in range(2):
            with pytest.raises(CacheClosed):
                cache.get("a")
            with suppress(CacheClosed):
                getattr(cache.gate, then)()
        assert (cache.loads, cache.is_pending) == (0, False)

    def test_while_another_thread_loads_the_load_ends_and_it_stays_shut(self):
        slow = Slow()
        slow.cache.close()
        with pytest.raises(CacheClosed):
            slow.cache.get("a")
        assert [type(error) for error in slow.end()] == [CacheClosed]
        with pytest.raises(CacheClosed):
            slow.cache.get("a")
        assert len(slow.cache.core) == 0

    def test_by_what_is_loaded_the_load_ends_and_it_stays_shut(self):
        cache = Lazy(lambda cache: (cache.close(), cache.restore("a", 1)))
        for _ in range(2):
            with pytest.raises(CacheClosed):
                cache.get("a")
        assert len(cache.core) == 0

    def test_a_thread_that_waits_for_the_load_is_told(self):
        slow = Slow()
        errors = []

        def use():
            try:
                slow.cache.get("b")
            except CacheClosed as error:
                errors.append(error)

        waiting = start(use)
        slow.cache.close()
        slow.end()
        join(waiting)
        assert len(errors) == 1


class TestForks:
    """The tests call ``after_fork_in_child`` as a child with only this thread does."""

    def test_the_child_of_a_used_one_has_what_was_loaded(self):
        cache = Lazy()
        cache.get("a")
        cache.gate.after_fork_in_child()
        assert cache.core.find("a") == 1
        assert cache.core.find("b") is None
        assert cache.loads == 1

    @pytest.mark.parametrize("patience", [PATIENCE, 0.01])
    def test_a_child_forked_while_another_thread_loads_waits_for_no_thread_it_has_not(self, monkeypatch, patience):
        slow = Slow()
        monkeypatch.setattr(gate, "PATIENCE", patience)
        if patience < 1:
            # The gate is open, and the child has the entries that were loaded before.
            slow.cache.get("b")
        child = os.fork()
        if child == 0:
            slow.go_on.set()
            slow.cache.core.after_fork(in_child=True)
            slow.cache.gate.after_fork_in_child()
            found = slow.cache.get("a"), slow.cache.get("b", 2), slow.cache.is_pending
            os._exit(0 if found == (1, 2, False) else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert slow.end() == []

    def test_a_load_that_forks_goes_on_in_the_child(self):
        children = []

        def load(cache):
            children.append(os.fork())
            if children[0] == 0:
                cache.core.after_fork(in_child=True)
                cache.gate.after_fork_in_child()
            cache.restore("a", 1)

        cache = Lazy(load)
        found = cache.get("a"), cache.loads, cache.is_pending
        if children[0] == 0:
            os._exit(0 if found == (1, 1, False) else 1)
        assert os.waitpid(children[0], 0)[1] == 0
        assert found == (1, 1, False)


worker = Worker()

OPERATIONS = {
    "get": lambda cache: cache.get("a"),
    "skip": lambda cache: cache.gate.skip_load(),
    "after the load": lambda cache: (cache.get("a"), cache.gate.open()),
}


@compiled_core
@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_exception_at_any_point_does_not_shut_the_cache_for_ever(operation):
    target = 0
    interrupted = True
    while interrupted:
        target += 1
        cache = Lazy()
        delivery = Delivery(target)
        interrupted = delivery.run(lambda cache=cache: OPERATIONS[operation](cache))
        # By another thread, for which the gate is shut during the load, and by the loading thread.
        assert worker.does(lambda cache=cache: cache.set("b", 2)), delivery.where
        assert cache.get("b") == 2, delivery.where
        assert not cache.is_pending, delivery.where
        assert cache.loads <= 1
    assert target > 10


@compiled_core
@pytest.mark.parametrize("moment", ["pending", "loading", "loaded"])
def test_an_exception_at_any_point_of_a_close_leaves_what_can_be_closed(moment):
    target = 0
    interrupted = True
    while interrupted:
        target += 1
        delivery = Delivery(target)

        def close(cache, delivery=delivery):
            cache.was_interrupted = delivery.run(lambda: cache.gate.close())

        cache = Lazy(close if moment == "loading" else None)
        if moment != "pending":
            with suppress(CacheClosed):
                cache.get("a")
        if moment != "loading":
            close(cache)
        interrupted = cache.was_interrupted
        # It can be used, or is closed, and waits for no load.
        assert worker.does(lambda cache=cache: _use_if_open(cache)), delivery.where
        cache.close()
        with pytest.raises(CacheClosed):
            cache.get("b")
    assert target > 2


def _use_if_open(cache):
    with suppress(CacheClosed):
        cache.get("b")
