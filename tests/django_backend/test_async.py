"""The async methods: they do their work where they are called, and a missing value is computed once."""

import asyncio
import inspect
import threading
from contextvars import copy_context
from typing import ClassVar

import pytest
from asgiref.sync import sync_to_async
from django.core.cache import caches
from django.core.cache.backends.base import BaseCache

from wheelcache import LoadDeadlock
from wheelcache.django_backend import WheelCache

TASKS = 100
PATIENCE = 10


class Boom(Exception):
    pass


class NotesItsThread:
    """Remembers in which threads it was pickled and unpickled."""

    threads: ClassVar[set[int]] = set()

    def __reduce__(self):
        self.threads.add(threading.get_ident())
        return _unpickled, ()


def _unpickled():
    NotesItsThread.threads.add(threading.get_ident())
    return NotesItsThread()


@pytest.fixture
def cache(make):
    return make()


def run(coroutine):
    async def in_time():
        async with asyncio.timeout(PATIENCE):
            return await coroutine

    return asyncio.run(in_time())


async def everybody_waits(cache, flights=1):
    """Let the other tasks go on until each has either led or joined a flight."""
    while len(cache._cache._flights.in_progress) < flights:
        await asyncio.sleep(0)
    for _ in range(5):
        await asyncio.sleep(0)


def test_every_async_method_does_what_the_sync_one_does(cache):
    async def use():
        assert await cache.aadd("a", 1)
        assert not await cache.aadd("a", 2)
        assert await cache.aget("a") == 1
        assert await cache.aget("missing", "default") == "default"
        await cache.aset("b", [2], timeout=60)
        assert await cache.aget("b") == [2]
        assert await cache.atouch("b", 10)
        assert not await cache.atouch("missing")
        assert await cache.aget_many(["a", "b", "c"]) == {"a": 1, "b": [2]}
        assert await cache.aset_many({"c": 3, "d": 4}) == []
        assert await cache.ahas_key("d")
        assert await cache.adelete("d")
        assert not await cache.adelete("d")
        assert await cache.aincr("a", 5) == 6
        assert await cache.adecr("a", 2) == 4
        assert await cache.aincr_version("a") == 2
        assert await cache.aget("a", version=2) == 4
        assert await cache.adecr_version("a", version=2) == 1
        await cache.adelete_many(["a", "b"])
        assert await cache.aget_many(["a", "b", "c"]) == {"c": 3}
        assert await cache.aget_or_set("e", lambda: 5) == 5
        assert await cache.aget_or_set("e", 6) == 5
        with pytest.raises(ValueError, match="Key 'missing' not found"):
            await cache.aincr("missing")
        with pytest.raises(ValueError, match="Key 'missing' not found"):
            await cache.aincr_version("missing")
        await cache.aclose()
        assert await cache.aget("e") == 5
        await cache.aclear()
        assert await cache.aget("e") is None

    run(use())


def test_no_async_method_of_basecache_is_left_to_hop_to_a_thread(make, monkeypatch):
    def hopped(*args, **kwargs):
        pytest.fail("hopped to a thread")

    monkeypatch.setattr("django.core.cache.backends.base.sync_to_async", hopped)
    monkeypatch.setattr(asyncio, "to_thread", hopped)
    monkeypatch.setattr(asyncio.BaseEventLoop, "run_in_executor", hopped)
    methods = {name for name, method in vars(BaseCache).items() if inspect.iscoroutinefunction(method)}
    arguments = {
        "aadd": ("new", 1),
        "aset": ("key", 1),
        "aget_or_set": ("new", dict),
        "aget_many": (["key"],),
        "aset_many": ({"key": 1},),
        "adelete_many": (["new"],),
        "aclear": (),
        "aclose": (),
    }

    async def use(name):
        cache = make()
        cache.set("key", 1, version=1)
        cache.set("key", 1, version=2)
        if name == "adecr_version":
            cache.version = 2
        await getattr(cache, name)(*arguments.get(name, ("key",)))

    assert len(methods) >= 16
    for name in sorted(methods):
        run(use(name))


def test_pickling_and_loading_run_in_the_thread_of_the_loop(cache):
    NotesItsThread.threads.clear()

    def default():
        NotesItsThread.threads.add(threading.get_ident())
        return NotesItsThread()

    async def async_default():
        return default()

    async def use():
        await cache.aset("set", NotesItsThread())
        await cache.aget("set")
        await cache.aadd("add", NotesItsThread())
        await cache.aget_many(["set", "add"])
        await cache.aset_many({"many": NotesItsThread()})
        await cache.aget_or_set("loaded", default)
        await cache.aget_or_set("awaited", async_default)
        return threading.get_ident()

    assert {run(use())} == NotesItsThread.threads


def test_no_async_method_lets_another_task_in_between(cache):
    # What never waits cannot be interleaved: each of these is one step of its coroutine.
    for coroutine in (
        cache.aset("key", 1),
        cache.aget("key"),
        cache.aincr("key"),
        cache.aget_many(["key"]),
        cache.aget_or_set("key", 1),
        cache.aget_or_set("other", lambda: 1),
        cache.aincr_version("key"),
    ):
        with pytest.raises(StopIteration):
            coroutine.send(None)


@pytest.mark.parametrize("kind", ["coroutine function", "function that returns a coroutine", "object to await"])
def test_a_hundred_tasks_that_miss_together_run_an_async_default_once(cache, kind):
    calls = []
    released = asyncio.Event()

    async def compute():
        calls.append(1)
        await released.wait()
        return ["value"]

    default = {
        "coroutine function": compute,
        "function that returns a coroutine": lambda: compute(),
        "object to await": lambda: asyncio.ensure_future(compute()),
    }[kind]

    async def use():
        tasks = [asyncio.create_task(cache.aget_or_set("key", default)) for _ in range(TASKS)]
        await everybody_waits(cache)
        released.set()
        return await asyncio.gather(*tasks)

    values = run(use())
    assert values == [["value"]] * TASKS
    assert len(calls) == 1
    # Nobody can change what another got.
    assert len(set(map(id, values))) == TASKS
    assert cache.get("key") == ["value"]


def test_a_plain_value_and_none_are_defaults_too(cache):
    async def use():
        assert await cache.aget_or_set("value", [1]) == [1]
        assert await cache.aget_or_set("none", None) is None
        assert await cache.aget_or_set("none", 5) is None
        assert await cache.aget_or_set("type", dict) == {}

    run(use())
    assert "none" in cache


def test_a_timeout_of_zero_runs_the_default_and_keeps_nothing(cache):
    async def default():
        return 1

    assert run(cache.aget_or_set("key", default, 0)) == 1
    assert "key" not in cache
    cache.set("key", 2)
    assert run(cache.aget_or_set("key", default, 0)) == 2


def test_the_exception_of_the_default_reaches_all_and_nothing_is_kept(cache):
    calls = []
    released = asyncio.Event()

    async def default():
        calls.append(1)
        await released.wait()
        raise Boom("no value")

    async def use():
        tasks = [asyncio.create_task(cache.aget_or_set("key", default)) for _ in range(TASKS)]
        await everybody_waits(cache)
        released.set()
        return await asyncio.gather(*tasks, return_exceptions=True)

    outcomes = run(use())
    assert [type(each) for each in outcomes] == [Boom] * TASKS
    assert len(calls) == 1
    assert "key" not in cache
    assert run(cache.aget_or_set("key", 1)) == 1


def test_what_cannot_be_pickled_raises_for_all_who_wait(cache):
    released = asyncio.Event()

    async def default():
        await released.wait()
        return threading.Lock()

    async def use():
        tasks = [asyncio.create_task(cache.aget_or_set("key", default)) for _ in range(3)]
        await everybody_waits(cache)
        released.set()
        return await asyncio.gather(*tasks, return_exceptions=True)

    assert [type(each) for each in run(use())] == [TypeError] * 3
    assert "key" not in cache


def test_if_the_leader_is_cancelled_one_of_the_waiters_takes_over(cache):
    calls = []
    released = asyncio.Event()

    async def default():
        calls.append(1)
        if len(calls) == 1:
            await asyncio.Event().wait()
        await released.wait()
        return "second"

    async def use():
        leader = asyncio.create_task(cache.aget_or_set("key", default))
        await everybody_waits(cache)
        waiters = [asyncio.create_task(cache.aget_or_set("key", default)) for _ in range(TASKS)]
        await everybody_waits(cache)
        leader.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leader
        await everybody_waits(cache)
        released.set()
        return await asyncio.gather(*waiters)

    assert run(use()) == ["second"] * TASKS
    assert len(calls) == 2


def test_a_waiter_that_is_cancelled_takes_nobody_with_it(cache):
    released = asyncio.Event()

    async def default():
        await released.wait()
        return "value"

    async def use():
        leader = asyncio.create_task(cache.aget_or_set("key", default))
        await everybody_waits(cache)
        impatient, patient = (asyncio.create_task(cache.aget_or_set("key", default)) for _ in range(2))
        await everybody_waits(cache)
        impatient.cancel()
        with pytest.raises(asyncio.CancelledError):
            await impatient
        released.set()
        return await asyncio.gather(leader, patient)

    assert run(use()) == ["value", "value"]


def test_a_leader_whose_loop_is_gone_leaves_the_key_to_others(cache):
    """As when a server shuts its loop down hard: the coroutine is closed, by whoever happens to collect it."""

    class Suspended:
        def __await__(self):
            yield

    async def default():
        await Suspended()

    leader = cache.aget_or_set("key", default)
    copy_context().run(leader.send, None)
    assert len(cache._cache._flights.in_progress) == 1
    leader.close()
    assert not cache._cache._flights.in_progress
    assert cache.get_or_set("key", 1) == 1


def test_the_default_runs_once_for_several_loops_and_plain_threads(cache):
    calls = []
    released = threading.Event()
    barrier = threading.Barrier(9)
    values = []

    def default():
        calls.append(1)
        assert released.wait(PATIENCE)
        return ["value"]

    def in_a_loop():
        barrier.wait(PATIENCE)
        values.append(run(cache.aget_or_set("key", default)))

    def in_a_thread():
        barrier.wait(PATIENCE)
        values.append(cache.get_or_set("key", default))

    threads = [threading.Thread(target=target) for target in (in_a_loop, in_a_thread) * 4]
    for thread in threads:
        thread.start()
    barrier.wait(PATIENCE)
    released.set()
    for thread in threads:
        thread.join(PATIENCE)
    assert values == [["value"]] * 8
    assert len(calls) == 1


@pytest.mark.parametrize("error", [Boom, StopIteration, TimeoutError, RuntimeError])
def test_the_exception_of_a_thread_reaches_the_tasks_that_wait_for_it(cache, error):
    leading, released = threading.Event(), threading.Event()

    def default():
        leading.set()
        assert released.wait(PATIENCE)
        raise error("no value")

    def lead():
        with pytest.raises(error):
            cache.get_or_set("key", default)

    thread = threading.Thread(target=lead)
    thread.start()
    assert leading.wait(PATIENCE)

    async def use():
        waiter = asyncio.create_task(cache.aget_or_set("key", default))
        await everybody_waits(cache)
        released.set()
        done, _ = await asyncio.wait([waiter], timeout=2)
        waiter.cancel()
        return [type(each.exception()) for each in done]

    outcome = run(use())
    thread.join(PATIENCE)
    # A StopIteration cannot leave a coroutine: PEP 479 makes it a RuntimeError.
    assert outcome == [RuntimeError if error is StopIteration else error]


def test_a_sync_call_in_the_loop_of_the_leader_computes_for_itself_instead_of_hanging(cache):
    released = asyncio.Event()

    async def default():
        await released.wait()
        return "leader's"

    async def use():
        leader = asyncio.create_task(cache.aget_or_set("key", default))
        await everybody_waits(cache)
        own = cache.get_or_set("key", lambda: "own")
        released.set()
        return own, await leader

    own, leaders = run(use())
    assert own == "own"
    assert leaders in ("own", "leader's")


def test_a_default_that_asks_for_its_own_key_is_told_so(cache):
    async def default():
        return await cache.aget_or_set("key", default)

    async def use():
        with pytest.raises(LoadDeadlock, match="':1:key'"):
            await cache.aget_or_set("key", default)

    run(use())
    assert run(cache.aget_or_set("key", 1)) == 1


def test_a_default_may_ask_for_other_keys_and_hop_to_threads(cache):
    async def inner():
        return await sync_to_async(lambda: cache.get_or_set("innermost", lambda: 1))() + 1

    async def outer():
        return await cache.aget_or_set("inner", inner) + 1

    assert run(cache.aget_or_set("outer", outer)) == 3
    assert cache.get_many(["innermost", "inner", "outer"]) == {"innermost": 1, "inner": 2, "outer": 3}


def test_what_is_set_while_the_default_runs_wins(cache):
    released = asyncio.Event()

    async def default():
        await released.wait()
        return "loaded"

    async def use():
        leader = asyncio.create_task(cache.aget_or_set("key", default))
        await everybody_waits(cache)
        await cache.aset("key", "set")
        released.set()
        await leader

    run(use())
    assert cache.get("key") == "set"


def test_every_async_context_has_a_backend_of_its_own_on_the_same_entries(make):
    async def one_task(number):
        await caches["default"].aset(f"key{number}", number)
        await asyncio.sleep(0)
        return caches["default"], await caches["default"].aget_many([f"key{each}" for each in range(10)])

    async def use():
        return await asyncio.gather(*(one_task(number) for number in range(10)))

    outcomes = run(use())
    assert all(isinstance(backend, WheelCache) for backend, _ in outcomes)
    assert all(found == {f"key{each}": each for each in range(10)} for _, found in outcomes)
    assert len({id(backend.store) for backend, _ in outcomes}) == 1
