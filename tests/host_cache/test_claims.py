"""One of the processes that miss a key computes its value, and the others wait, also if that process ends."""

import sys
import time

import pytest

from tests.memory import descriptors
from tests.scripts import start
from tests.waiting import PATIENCE, until
from wheelcache.host_cache import claims
from wheelcache.host_cache import statements as sql
from wheelcache.host_cache.claims import Claims
from wheelcache.host_cache.host_file import HostFile
from wheelcache.host_cache.place import Place

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has these locks")

HOLD = """
goes_on = threading.Event()
def load(value):
    assert goes_on.wait(50)
    return value
def hold(key, value):
    is_loading = threading.Event()
    begin(lambda: cache.get_or_load(key, lambda: (is_loading.set(), load(value))[1]))
    assert is_loading.wait(50)
"""


@pytest.fixture
def holder(worker):
    """A process whose thread computes the value 7 of "key", until ``goes_on`` is set."""
    started = worker()
    started(HOLD)
    started("hold('key', 7)")
    return started


def test_a_load_waits_for_that_of_another_process_and_returns_its_value(holder, worker):
    waiter = worker()
    waiter.begins("cache.get_or_load('key', lambda: 'computed twice')")
    holder("goes_on.set()")
    assert holder("result()") == waiter("result()") == 7
    # Nobody has the claim any longer.
    assert waiter("cache.delete('key')")
    assert waiter("cache.get_or_load('key', lambda: 8)") == 8


def test_of_the_loads_that_wait_for_a_killed_process_one_computes_soon_though_its_child_lives(holder, worker):
    others = [worker() for _ in range(2)]
    holder("in_child = os.fork() or (signal.alarm(50), os.kill(os.getpid(), signal.SIGSTOP))")
    child = holder("in_child")
    try:
        for number, each in enumerate(others):
            each.begins(f"cache.get_or_load('key', lambda: f'{number} {{time.monotonic()}}')")
        killed = time.monotonic()
        holder.kill()
        first, second = (each("result()") for each in others)
    finally:
        others[0](f"os.kill({child}, signal.SIGKILL)")
    assert first == second
    # 0.001 s on an idle machine.
    assert float(first.split()[1]) - killed < 1


def test_the_child_of_a_loader_takes_no_claim_from_its_parent_and_ends_like_any_other_process(worker):
    parent = worker()
    parent(
        """
        def loader():
            pid = os.fork()
            return "child" if pid == 0 else os.waitpid(pid, 0)[1]

        def load():
            found = cache.get_or_load("key", loader)
            if found == "child":
                try:
                    cache.set("of child", f"{cache.get('key')} {cache.get_or_load('other', lambda: 1)}")
                finally:
                    os._exit(0)
            return found
        """
    )
    assert parent("load()") == 0
    assert parent("cache.get('of child')") == "None 1"
    assert parent("cache.get('key')") == 0


def test_loads_of_two_processes_that_wait_for_each_other_through_other_threads_end(worker):
    """In each process, one load waits for a key that another thread of it waits for, since the other process has it."""
    workers = worker(), worker()
    for each, own, other in zip(workers, ["one", "other"], ["other", "one"], strict=True):
        each(HOLD)
        each("from wheelcache.engine import turns; turns.NESTED_WAIT = 0.1")
        each("load = lambda value: (goes_on.wait(50), cache.get_or_load(value, lambda: 2))[1]")
        each(f"hold({own!r}, {other!r})")
    for each, other in zip(workers, ["other", "one"], strict=True):
        each.begins(f"cache.get_or_load({other!r}, lambda: 3)", "waiter")
    for each in workers:
        each("goes_on.set()")
    for each in workers:
        assert each("result()") == 2
        assert each("result('waiter')") == 2


def test_a_load_with_a_time_limit_waits_no_longer_for_another_process_and_computes_nothing(holder, worker):
    waiter = worker()
    waiter(
        """
        from wheelcache import LoadTimeout
        loads = []
        try:
            cache.get_or_load("key", lambda: loads.append(1), timeout=0.05)
        except LoadTimeout:
            loads.append("too late")
        """
    )
    assert waiter("loads") == ["too late"]
    holder("goes_on.set()")
    assert holder("result()") == waiter("cache.get('key')") == 7


GREENLETS = """
from gevent import monkey
monkey.patch_all()
import sys
import gevent
from tests.host_cache.workers import make_cache

cache = make_cache(sys.argv[1])
waiter = gevent.spawn(cache.get_or_load, "key", lambda: "computed here")
for turn in range(10):
    # Another greenlet runs while the first one waits.
    gevent.sleep(0.01)
    assert cache.get("other") is None
assert not waiter.ready()
print("waiting", flush=True)
print(waiter.get(timeout=60), flush=True)
"""


def test_a_greenlet_that_waits_for_another_process_blocks_no_other_one(view, folder):
    pytest.importorskip("gevent")
    started = []

    def load_while_the_other_process_waits():
        started.append(start(GREENLETS, folder))
        assert started[0].stdout.readline() == "waiting\n"
        return "computed there"

    try:
        assert view().get_or_load("key", load_while_the_other_process_waits) == "computed there"
        assert started[0].communicate(timeout=PATIENCE) == ("computed there\n", "")
    finally:
        for each in started:
            each.kill()
            each.communicate()


# In one process.


@pytest.fixture
def two_processes(folder):
    return [Claims(HostFile(lambda: Place(folder), sql.schema(1 << 20, 10), "", bool)) for _ in range(2)]


def test_keys_have_claims_of_their_own_and_a_wait_leaves_no_descriptor(two_processes, folder):
    first, second = two_processes
    assert [first.on(key).take() for key in ("a", "b", ("a",))] == [True] * 3
    waiting = second.on("a")
    assert not waiting.take()
    assert second.on("c").take()

    def open_files():
        return len(descriptors(str(folder)))

    before = open_files()
    alarm = waiting.wait()
    assert until(lambda: open_files() == before + 1)
    # The wait ends when it is given up, also if nobody ever releases the claim.
    waiting.release()
    assert alarm.wait(PATIENCE)
    first.close()
    assert until(lambda: open_files() == before - 1)
    second.close()


def test_at_most_so_many_threads_wait_for_claims(two_processes, monkeypatch):
    monkeypatch.setattr(claims, "MOST_WAITING", 2)
    first, second = two_processes
    held = [first.on(number) for number in range(3)]
    assert all(each.take() for each in held)
    waiting = []
    for number in range(3):
        waiting.append(second.on(number).wait())
        assert until(lambda number=number: len(second.waiting) == min(number + 1, 2))
    assert waiting[2] is None
    for each in held:
        each.release()
    assert all(alarm.wait(PATIENCE) for alarm in waiting[:2])
