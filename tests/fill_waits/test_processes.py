"""Leases at signals, forks and exits, and under gevent."""

import signal
import threading

import pytest

from tests import scripts
from tests.caches import is_leased
from tests.fill_waits.callers import LONG, MISS, get_or_lease
from tests.runtime.forks import fork
from tests.waiting import PATIENCE, start, until_waiting
from wheelcache.runtime.request_scope import end_request

pytestmark = pytest.mark.deep


class Interrupted(BaseException):
    pass


def test_a_waiter_that_is_interrupted_by_a_signal_leaves_and_is_handed_no_lease(cache, thread_callers):
    holder, helper, other, *_ = thread_callers
    holder.gets("k")

    def handler(*_):
        raise Interrupted

    def interrupt():
        until_waiting()
        signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        interrupting = helper.submit(interrupt)
        with pytest.raises(Interrupted):
            get_or_lease(cache, "k", wait=LONG)
        interrupting.result(PATIENCE)
    finally:
        signal.signal(signal.SIGUSR1, before)
    asked = other.asks("k")
    until_waiting()
    holder.does(end_request)
    assert asked.result(PATIENCE) == MISS
    assert not is_leased(cache, "k")


def test_a_child_of_a_fork_has_no_lease_and_no_waiter_of_its_parent(cache, thread_callers):
    holder, waiter, *_ = thread_callers
    holder.gets("theirs")
    asked = waiter.asks("theirs")
    until_waiting()
    get_or_lease(cache, "mine", wait=LONG)

    def child():
        assert not is_leased(cache, "mine")
        assert get_or_lease(cache, "theirs", MISS, wait=LONG) == MISS
        assert is_leased(cache, "theirs")
        got = []
        waiting = start(lambda: got.append(get_or_lease(cache, "theirs", wait=LONG)))
        until_waiting()
        cache.set("theirs", 1)
        waiting.join()
        assert got == [1]

    assert fork(child)
    assert is_leased(cache, "mine")
    assert not asked.done()


def test_children_forked_while_leases_come_and_go_find_the_cache_usable(cache, thread_callers):
    stop = threading.Event()

    def work(number):
        while not stop.is_set():
            for key in range(20):
                if get_or_lease(cache, key, wait=5) is None:
                    cache.set(key, 1)
                cache.delete((key * 7 + number) % 20)
            end_request()

    def child():
        for _ in range(2):
            for key in range(20):
                if get_or_lease(cache, key, wait=LONG) is None:
                    assert is_leased(cache, key)
                    cache.set(key, 1)
                cache.delete(key)
            end_request()

    working = [caller.submit(work, number) for number, caller in enumerate(thread_callers[:4])]
    try:
        assert all(fork(child) for _ in range(12))
    finally:
        stop.set()
    for each in working:
        each.result(PATIENCE)


def run(script):
    return scripts.run(script, options=("-W", "ignore")).split()


def test_an_interpreter_exits_without_a_word_while_leases_are_held_and_waited_for():
    assert (
        run("""
        import asyncio, threading
        from tests.waiting import until_waiting
        from tests.fill_waits.callers import aget_or_lease, get_or_lease
        from wheelcache import Cache
        cache = Cache()
        get_or_lease(cache, "main", wait=50)
        held = threading.Event()
        def hold():
            get_or_lease(cache, "k", wait=50)
            held.set()
            threading.Event().wait()
        threading.Thread(target=hold, daemon=True).start()
        held.wait()
        threading.Thread(target=get_or_lease, args=[cache, "k"], kwargs={"wait": 50}, daemon=True).start()
        until_waiting(1)
        loop = asyncio.new_event_loop()
        loop.run_until_complete(loop.create_task(aget_or_lease(cache, "loop", wait=50)))
        """)
        == []
    )


def test_greenlets_are_callers_of_their_own_and_wait_without_stopping_the_others():
    pytest.importorskip("gevent")
    assert run("""
        from gevent import monkey
        monkey.patch_all()
        import gevent
        from tests.fill_waits.callers import get_or_lease
        from wheelcache import Cache

        cache = Cache()
        get_or_lease(cache, "before", wait=50)
        computed = []

        def request():
            if get_or_lease(cache, "k", wait=50) is None:
                computed.append(1)
                gevent.idle()
                cache.set("k", "it")

        with gevent.Timeout(20):
            gevent.joinall([gevent.spawn(request) for _ in range(10)], raise_error=True)

            dead = gevent.spawn(get_or_lease, cache, "j", wait=50)
            dead.join()
            del dead
            # Its lease is over with it, and so the next greenlet doesn't wait.
            gevent.spawn(get_or_lease, cache, "j", wait=50).get()

            def ask(name):
                # A greenlet runs on until it waits.
                asked.append(name)
                return get_or_lease(cache, "i", wait=50)

            asked = []
            holder = gevent.spawn(lambda: (ask("holder"), gevent.sleep(50)))
            waiters = [gevent.spawn(ask, "first"), gevent.spawn(ask, "second")]
            while len(asked) < 3:
                gevent.idle()
            waiters[0].kill()
            holder.kill()
            del holder
            print(waiters[1].get())
        print(len(computed))
        """) == ["None", "1"]
