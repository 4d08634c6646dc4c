"""Stale values, refreshes, fail-safe, timeouts and back-off, in threads and in tasks."""

import asyncio

import pytest

from tests.loading.harness import Held, coherent_sites, returns, unreached
from tests.waiting import PATIENCE, until
from wheelcache.errors import LoadTimeout
from wheelcache.runtime.worker_pool import WorkerPool

SHORT = 0.02
"""Seconds that a caller waits for a loader that is held."""


class InThreads:
    def __init__(self, site):
        self.site = site

    def take(self, *args, **policy):
        return self.site.take(*args, **policy)

    def held(self, value):
        return Held(value)

    def settle(self):
        assert until(lambda: self.site.loads.is_idle)

    def close(self):
        pass


class InTasks:
    """On a loop that goes on from call to call."""

    def __init__(self, site):
        self.site = site
        self.runner = asyncio.Runner()

    def take(self, *args, **policy):
        return self.runner.run(self.site.atake(*args, **policy))

    def held(self, value):
        return HeldInALoop(value, self)

    def settle(self):
        self.step_until(lambda: self.site.loads.is_idle)

    def step_until(self, condition):
        async def steps():
            for _ in range(1000):
                if condition():
                    return
                await asyncio.sleep(0)
            raise AssertionError("never")

        self.runner.run(steps())

    def close(self):
        self.runner.close()


class HeldInALoop:
    def __init__(self, value, twin):
        self.value = value
        self.twin = twin
        self.calls = 0
        self.go = asyncio.Event()

    async def __call__(self):
        self.calls += 1
        await self.go.wait()
        return returns(self.value)()

    def is_running(self):
        self.twin.step_until(lambda: self.calls)
        return True

    def release(self):
        self.go.set()


@pytest.fixture(params=[InThreads, InTasks], ids=["threads", "tasks"])
def twin(request, site):
    made = request.param(site)
    yield made
    made.settle()
    made.close()


def test_a_stale_value_is_served_while_one_refresh_runs(site, twin):
    twin.take("k", returns("old"), grace=5)
    site.advance(10)
    loader = twin.held("new")
    assert [twin.take("k", loader, grace=5) for _ in range(3)] == ["old"] * 3
    assert loader.is_running()
    loader.release()
    twin.settle()
    assert loader.calls == 1
    assert twin.take("k", unreached, grace=5) == "new"
    assert site.counts() == {"hits": 4, "misses": 1, "loads": 2, "stale_hits": 3, "refreshes": 1}


@pytest.mark.parametrize(("after", "grace"), [(15, 10), (12, 1), (12, 0.0)], ids=["entry's", "caller's", "none"])
def test_a_value_past_the_grace_of_its_entry_or_its_caller_is_not_served(site, twin, after, grace):
    twin.take("k", returns("old"), grace=5)
    site.now = after
    assert twin.take("k", returns("new"), grace=grace) == "new"
    assert site.counts() == {"misses": 2, "loads": 2}


def test_a_stale_value_that_another_process_wrote_over_is_not_served(twin):
    here, elsewhere = coherent_sites()
    here.take("k", returns("old"), grace=5)
    here.now = 11
    elsewhere.set("k", "written elsewhere")
    assert here.take("k", returns("new"), grace=5) == "new"


def test_a_stale_hit_moves_the_entry_to_the_young_end(site, twin):
    twin.take("a", returns("old"), ttl=10, grace=50)
    site.set("b", 1, ttl=100)
    site.advance(10)
    twin.take("a", returns("old"), ttl=10, grace=50)
    site.core.evict(size=1)
    assert site.core.peek("a") is not None
    assert site.core.peek("b") is None


def test_a_refresh_that_fails_drops_the_stale_value_and_the_next_caller_gets_the_error(site, twin, caplog):
    removed = []
    site.on_removal = lambda *removal: removed.append(removal[:2])
    twin.take("k", returns("old"), grace=50)
    site.advance(10)
    assert twin.take("k", returns(LookupError("first")), grace=50) == "old"
    twin.settle()
    assert removed == [("k", "old")]
    assert "Loading 'k' into the cache 'site' failed" in caplog.text
    with pytest.raises(LookupError, match="second"):
        twin.take("k", returns(LookupError("second")), grace=50)
    assert site.counts() == {
        "hits": 1,
        "misses": 2,
        "loads": 1,
        "load_failures": 2,
        "stale_hits": 1,
        "refreshes": 1,
    }


@pytest.mark.parametrize("write", ["set", "delete"])
def test_what_is_written_while_a_refresh_runs_wins(site, twin, write):
    twin.take("k", returns("old"), grace=5)
    site.advance(10)
    loader = twin.held("refreshed")
    assert twin.take("k", loader, grace=5) == "old"
    assert loader.is_running()
    if write == "set":
        site.set("k", "written")
    else:
        site.delete("k")
    loader.release()
    twin.settle()
    assert site.get("k") == ("written" if write == "set" else None)


@pytest.mark.parametrize("write", ["set", "delete"])
def test_a_refresh_that_finds_its_entry_written_or_deleted_when_it_begins_loads_nothing(site, write):
    site.take("k", returns("old"), grace=5)
    site.advance(10)
    site.before_watch = lambda: site.set("k", "newer") if write == "set" else site.delete("k")
    assert site.take("k", unreached, grace=5) == "old"
    assert until(lambda: site.loads.is_idle)
    assert site.counts() == {"hits": 1, "misses": 1, "loads": 1, "stale_hits": 1, "refreshes": 1}
    assert site.get("k") == ("newer" if write == "set" else None)


def test_the_first_hit_past_the_fraction_starts_one_refresh(site, twin):
    twin.take("k", returns("old"), refresh_ahead=0.8)
    site.advance(8)
    assert twin.take("k", unreached, refresh_ahead=0.8) == "old"
    site.advance(0.125)
    loader = twin.held("new")
    assert [twin.take("k", loader, refresh_ahead=0.8) for _ in range(3)] == ["old"] * 3
    assert loader.is_running()
    loader.release()
    twin.settle()
    assert loader.calls == 1
    assert site.get("k") == "new"
    assert site.core.times("k").fresh_until == 18.125


def test_a_none_is_refreshed_ahead_by_its_own_ttl(site, twin):
    twin.take("k", returns(None), negative_ttl=2, refresh_ahead=0.5)
    assert site.core.times("k").expires_at == 2
    site.advance(1.5)
    assert twin.take("k", returns("there"), negative_ttl=2, refresh_ahead=0.5) is None
    twin.settle()
    assert site.get("k") == "there"


def test_fail_safe_serves_the_stale_value_with_growing_pauses_between_tries(site, twin, steady):
    twin.take("k", returns("old"), grace=1000, fail_safe=True)
    site.advance(10)
    tries = []

    def loader():
        tries.append(site.now)
        raise LookupError

    for _ in range(40):
        assert twin.take("k", loader, grace=1000, fail_safe=True) == "old"
        twin.settle()
        site.advance(0.5)
    assert tries == [10, 11, 13, 17, 25]


def test_fail_safe_with_a_timeout_serves_the_stale_value_if_the_load_fails_in_time(site, twin, steady):
    twin.take("k", returns("old"), grace=50, fail_safe=True)
    site.advance(10)
    for _ in range(3):
        assert twin.take("k", returns(LookupError()), grace=50, fail_safe=True, timeout=PATIENCE) == "old"
    twin.settle()
    assert site.counts() == {"hits": 3, "misses": 1, "loads": 1, "load_failures": 1, "stale_hits": 3}


def test_fail_safe_without_a_stale_value_raises(site, twin):
    with pytest.raises(LookupError):
        twin.take("k", returns(LookupError()), grace=5, fail_safe=True)


def test_a_caller_whose_timeout_passes_gets_an_error_and_the_value_is_stored_later(site, twin):
    loader = twin.held("late")
    with pytest.raises(LoadTimeout, match=r"the loader of 'k' takes longer than 0\.02 s"):
        twin.take("k", loader, timeout=SHORT)
    assert loader.is_running()
    with pytest.raises(LoadTimeout):
        twin.take("k", unreached, timeout=SHORT)
    loader.release()
    twin.settle()
    assert site.get("k") == "late"
    assert site.counts() == {"hits": 1, "misses": 2, "loads": 1, "load_timeouts": 2}


def test_with_a_timeout_the_stale_value_comes_after_it(site, twin):
    twin.take("k", returns("old"), grace=50)
    site.advance(10)
    loader = twin.held("late")
    assert twin.take("k", loader, grace=50, timeout=SHORT) == "old"
    loader.release()
    twin.settle()
    assert site.get("k") == "late"


def test_a_load_that_fails_when_its_caller_no_longer_waits_is_logged(site, twin, caplog):
    loader = twin.held(LookupError("late"))
    with pytest.raises(LoadTimeout):
        twin.take("k", loader, timeout=SHORT)
    loader.release()
    twin.settle()
    assert until(lambda: "LookupError: late" in caplog.text)


def test_closing_while_a_refresh_runs_is_quiet(site, twin, caplog):
    twin.take("k", returns("old"), grace=50)
    site.advance(10)
    loader = twin.held("new")
    assert twin.take("k", loader, grace=50) == "old"
    assert loader.is_running()
    site.close()
    loader.release()
    twin.settle()
    assert caplog.text == ""


def test_a_full_queue_drops_refreshes_and_counts_them(site, twin, monkeypatch):
    for key in "abc":
        twin.take(key, returns("old"), grace=50)
    site.advance(10)
    monkeypatch.setattr("wheelcache.loading.background.refresh_pool", WorkerPool(1, 1))
    loader = twin.held("new")
    twin.take("a", loader, grace=50)
    assert loader.is_running()
    queued = isinstance(twin, InThreads)
    if queued:
        twin.take("b", returns("new"), grace=50)
    assert twin.take("c", unreached, grace=50) == "old"
    loader.release()
    twin.settle()
    counts = site.counts()
    assert (counts["refreshes"], counts["refreshes_dropped"]) == (1 + queued, 1)
    # A dropped refresh is tried again.
    twin.take("c", returns("new"), grace=50)
    twin.settle()
    assert site.get("c") == "new"


def test_without_threads_refreshes_are_dropped_and_timed_loads_run_in_the_callers(site, monkeypatch):
    def refuse(thread):
        raise RuntimeError("can't start new thread")

    site.take("k", returns("old"), grace=50)
    site.advance(10)
    monkeypatch.setattr("wheelcache.loading.background.refresh_pool", WorkerPool(1, 1))
    monkeypatch.setattr("wheelcache.loading.background.timed_load_pool", WorkerPool(1, 1))
    monkeypatch.setattr("threading.Thread.start", refuse)
    assert site.take("k", unreached, grace=50) == "old"
    assert site.take("other", returns("new"), timeout=PATIENCE) == "new"
    assert site.counts()["refreshes_dropped"] == 1


def test_a_timed_load_without_room_gets_the_stale_value_and_its_waiters_load(site, pool, waiters, monkeypatch):
    site.take("k", returns("old"), grace=50)
    site.advance(10)
    busy = WorkerPool(1, 1)
    blocker = Held(None)
    monkeypatch.setattr("wheelcache.loading.background.timed_load_pool", busy)
    assert busy.submit(blocker)
    assert busy.submit(lambda: None, patience=PATIENCE)
    timed = pool.submit(site.take, "k", unreached, grace=50, timeout=0.3)
    assert until(lambda: not site.loads.is_idle)
    assert site.take("k", returns("mine")) == "mine"
    assert timed.result(PATIENCE) in ("old", "mine")
    blocker.release()
    assert site.counts()["load_timeouts"] == site.counts()["refreshes_dropped"] == 1


def test_a_refresh_whose_loop_ended_lets_the_next_caller_refresh(site):
    site.take("k", returns("old"), grace=5)
    site.advance(10)
    assert asyncio.run(site.atake("k", asyncio.Event().wait, grace=5)) == "old"
    assert site.loads.is_idle
    assert site.take("k", returns("new"), grace=5) == "old"
    assert until(lambda: site.loads.is_idle)
    assert site.get("k") == "new"


def test_a_refresh_that_was_left_with_its_loop_keeps_no_caller_waiting(site):
    site.take("k", returns("old"), grace=5)
    site.advance(10)
    loop = asyncio.new_event_loop()

    async def begin():
        await site.atake("k", asyncio.Event().wait, grace=5)
        await asyncio.sleep(0)

    loop.run_until_complete(begin())
    assert site.take("k", returns("new")) == "new"
    for task in asyncio.all_tasks(loop):
        task.cancel()
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    assert site.get("k") == "new"
    assert site.loads.is_idle


def test_a_child_of_fork_refreshes_what_its_parent_was_refreshing(site):
    site.take("k", returns("old"), grace=50)
    site.advance(10)
    loader = Held("of the parent")
    site.take("k", loader, grace=50)
    assert loader.is_running()
    site.loads.after_fork_in_child()
    assert site.take("k", returns("of the child"), grace=50) == "old"
    assert until(lambda: site.get("k") == "of the child")
    loader.release()
