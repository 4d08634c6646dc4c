"""Loaders that are held, loading by threads and by tasks in the same words, and the moments of a load."""

import asyncio
import threading
from contextvars import copy_context

from tests.runtime.background import is_idle, until_tasks_end
from tests.waiting import PATIENCE, until
from wheelcache.engine.entry_writer import EntryWriter
from wheelcache.engine.turns import Turns


class Held:
    """A loader that returns ``value``, or raises it, when it is released."""

    def __init__(self, value=None):
        self.value = value
        self.calls = 0
        self.began = threading.Event()
        self.go = threading.Event()

    def __call__(self, *args):
        self.calls += 1
        self.began.set()
        assert self.go.wait(PATIENCE)
        return outcome(self.value)

    def is_running(self):
        return self.began.wait(PATIENCE)

    def release(self):
        self.go.set()


class HeldInTasks:
    """A ``Held`` for a twin ``InTasks``, or, without a twin, for the tasks of a loop."""

    def __init__(self, value=None, twin=None):
        self.value = value
        self.twin = twin
        self.calls = 0
        self.began = asyncio.Event()
        self.go = asyncio.Event()

    async def __call__(self):
        self.calls += 1
        self.began.set()
        await self.go.wait()
        return outcome(self.value)

    def is_running(self):
        self.twin.runner.run(asyncio.wait_for(self.began.wait(), PATIENCE))
        return True

    def release(self):
        self.go.set()


def outcome(value):
    if isinstance(value, BaseException):
        raise value
    return value


def returns(value):
    return lambda *args: outcome(value)


def unreached(*args):
    raise AssertionError("this loader is not to run")


class InThreads:
    """Runs ``get_or_load``, whose background work runs in threads."""

    held = Held

    def __init__(self, cache):
        self.cache = cache

    def get_or_load(self, *args, **policy):
        return self.cache.get_or_load(*args, **policy)

    def settle(self):
        """Wait until no value is being loaded or refreshed."""
        assert until(is_idle)

    def close(self):
        pass


class InTasks:
    """Runs ``aget_or_load`` on a loop that continues from call to call."""

    def __init__(self, cache):
        self.cache = cache
        self.runner = asyncio.Runner()

    def get_or_load(self, *args, **policy):
        return self.runner.run(self.cache.aget_or_load(*args, **policy), context=copy_context())

    def held(self, value=None):
        return HeldInTasks(value, self)

    def settle(self):
        self.runner.run(until_tasks_end())

    def close(self):
        self.runner.close()


def assert_counts(cache, **expected):
    """Assert that these are the figures of requests and loads, and that all others are 0."""
    names = (
        *("hits", "misses", "stale_hits", "loads", "load_failures", "load_timeouts", "coalesced"),
        *("refreshes", "refreshes_dropped", "evictions", "expirations"),
    )
    stats = cache.stats()
    assert {name: getattr(stats, name) for name in names if getattr(stats, name)} == expected


class Moments:
    """Functions that are called at moments of a load, in the leader's thread."""

    def __init__(self):
        self.before_watch = self.after_claim = self.after_set = lambda: None

    def patch(self, monkeypatch):
        """For caches that are made from now on."""
        make, lead, store = Turns.__init__, Turns.lead, EntryWriter.store

        def make_noted(turns, core, watch, *args):
            def noted_watch(*args):
                self.before_watch()
                return watch(*args)

            make(turns, core, noted_watch, *args)

        def noted_lead(*args):
            leads = lead(*args)
            if leads:
                self.after_claim()
            return leads

        def noted_store(*args):
            outcome = store(*args)
            self.after_set()
            return outcome

        monkeypatch.setattr(Turns, "__init__", make_noted)
        monkeypatch.setattr(Turns, "lead", noted_lead)
        monkeypatch.setattr(EntryWriter, "store", noted_store)
