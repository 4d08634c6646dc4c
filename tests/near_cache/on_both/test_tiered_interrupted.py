"""A time limit during a call of the cache behind a TieredCache: it is no outage, and reaches the caller."""

import gc
import signal
import threading
from contextlib import contextmanager

import pytest

from tests.near_cache.tiers import TIERS, WITH_ASYNC
from tests.waiting import PATIENCE, current_frames, happens, join, paused, start, until_waiting
from wheelcache.near_cache.store_state import FAILURES

pytestmark = pytest.mark.servers


class TimeLimit(Exception):
    """As Celery's SoftTimeLimitExceeded, an Exception."""


CALLS = {
    "get": lambda tier: tier.get("other"),
    "get_many": lambda tier: tier.get_many(["other", "another"]),
    "has": lambda tier: tier.has("other"),
    "set": lambda tier: tier.set("k", 2),
    "set_many": lambda tier: tier.set_many({"k": 2}),
    "add": lambda tier: tier.add("k", 2),
    "load": lambda tier: tier.load("other", lambda: 2),
    "count": lambda tier: tier.count("k"),
    "delete": lambda tier: tier.delete("k"),
    "delete_many": lambda tier: tier.delete_many(["k"]),
    "clear": lambda tier: tier.clear(),
}


@pytest.mark.parametrize("adapter", WITH_ASYNC.values(), ids=WITH_ASYNC)
@pytest.mark.parametrize("options", [{}, {"fail_safe": 300}], ids=["plain", "fail-safe"])
def test_an_exception_that_is_not_the_stores_reaches_the_caller_of_every_method_and_opens_no_breaker(
    over, adapter, options, caplog
):
    tier = over(adapter, **options)
    tier.set("k", 1)
    tier.noted.error = TimeLimit()
    for call in CALLS.values():
        for _ in range(FAILURES):
            with pytest.raises(TimeLimit):
                call(tier)
    store = tier.engine.stats().store
    assert (store.reads.errors, store.writes.errors, store.open_breakers) == (0, 0, 0)
    tier.noted.error = None
    assert (tier.get("k"), tier.get_many(["k"])) == (1, {"k": 1})
    assert not [record for record in caplog.records if record.name == "wheelcache"][1:]


@pytest.mark.parametrize("name", ["get", "get_many"])
@pytest.mark.parametrize("adapter", TIERS.values(), ids=TIERS)
def test_the_threads_that_wait_for_the_read_of_an_interrupted_one_read_for_themselves(over, adapter, in_thread, name):
    tier = over(adapter, fail_safe=300)
    tier.behind.set("other", 1)
    reading, interrupted = threading.Event(), threading.Event()
    read = getattr(tier.noted, name)

    def is_interrupted_once(self, *args, **kwargs):
        if not reading.is_set():
            reading.set()
            assert interrupted.wait(PATIENCE)
            raise TimeLimit
        return read(self, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(tier.noted, name, is_interrupted_once)
        leader = in_thread(CALLS[name], tier)
        assert reading.wait(PATIENCE)
        waiter = in_thread(tier.get, "other")
        until_waiting()
        interrupted.set()
        assert waiter.result(PATIENCE) == 1
        with pytest.raises(TimeLimit):
            leader.result(PATIENCE)


# Redis does not answer, and a signal arrives.


@contextmanager
def time_limit(package):
    """A signal whose handler raises TimeLimit, as soon as the main thread is inside ``package``.

    If a finalizer runs at that moment, Python only prints the exception, so the signal comes again.
    """
    main, over = threading.main_thread().ident, threading.Event()

    def raise_time_limit(_, frame):
        if is_inside(frame):
            raise TimeLimit

    def is_inside(frame):
        while frame is not None and not frame.f_globals.get("__name__", "").startswith(f"{package}."):
            frame = frame.f_back
        return frame is not None

    def send():
        while happens(lambda: over.is_set() or is_inside(current_frames()[main])) and not over.is_set():
            signal.pthread_kill(main, signal.SIGUSR1)
            over.wait(1)

    before = signal.signal(signal.SIGUSR1, raise_time_limit)
    sender = start(send)
    try:
        yield
    finally:
        over.set()
        join(sender)
        signal.signal(signal.SIGUSR1, before)


REDISES = [("django", "redis"), ("django", "django-redis"), ("flask", "redis")]


# redis-py leaves a socket open if it is interrupted while it connects.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("options", [{}, {"fail_safe": 300}], ids=["plain", "fail-safe"])
@pytest.mark.parametrize(("name", "kind"), REDISES, ids=[", ".join(each) for each in REDISES])
def test_a_signal_handler_that_raises_while_redis_does_not_answer_ends_the_call(over, own_redis, name, kind, options):
    tier = over(TIERS[name], kind, own_redis, **options)
    tier.set("k", 1)
    with paused(own_redis):
        for call in [*(CALLS[each] for each in ("get", "set", "get_many"))] * FAILURES:
            with pytest.raises(TimeLimit), time_limit("redis"):
                call(tier)
    assert tier.get("k") in (1, 2)
    store = tier.engine.stats().store
    assert (store.reads.errors, store.writes.errors, store.open_breakers) == (0, 0, 0)
    # Such sockets are warned of here, and not in a later test.
    gc.collect()
