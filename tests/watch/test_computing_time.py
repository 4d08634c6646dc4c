"""The time spent computing in the last hour, by key and by group of keys."""

import gc
import random
import threading
from weakref import ref

import pytest

from tests.waiting import THREADS
from wheelcache import Cache, ManualClock
from wheelcache.core import CoreClass
from wheelcache.core.contract import GroupRule
from wheelcache.engine.keys import KeyProxies
from wheelcache.watch.busiest import PLACES
from wheelcache.watch.computing_time import PERIOD, ComputingTime


@pytest.fixture
def core(clock):
    core = CoreClass(clock=clock)
    core.group_by([GroupRule("", "", ":")])
    return core


@pytest.fixture
def computing(core):
    return ComputingTime(core)


@pytest.fixture
def load(computing):
    return computing.add


def test_the_times_of_the_last_hour_are_added(load, computing, clock):
    load("user:1", 100.0)
    for _ in range(12):
        clock.advance(PERIOD / 2)
        load("user:1", 0.5)
        load("city:1", 0.25)
    assert computing.by_key() == pytest.approx({"user:1": 106.0, "city:1": 3.0}, abs=0.002)
    clock.advance(PERIOD)
    assert computing.by_key()["user:1"] == pytest.approx(6.0, abs=0.5)
    clock.advance(7 * PERIOD)
    assert computing.by_key() == {}


def test_of_many_short_loads_a_few_stand_for_all(load, computing):
    chance = random.Random(4)
    for _ in range(200_000):
        load(chance.choice(["often:1", "often:1", "often:1", "rare:1"]), 0.00002 * chance.random())
    found = computing.by_key()
    assert found["often:1"] == pytest.approx(1.5, rel=0.1)
    assert found["rare:1"] == pytest.approx(0.5, rel=0.2)


def test_the_most_expensive_keys_are_found_among_any_number_of_others(load, computing):
    for number in range(10_000):
        load(f"stranger:{number}", 0.01)
        load("expensive", 0.01)
    found = computing.by_key()
    assert len(found) <= PLACES
    assert 90 < found["expensive"] <= 100.001


@pytest.mark.parametrize("key", ["x" * 100_000, b"x" * 100_000, ("f", "x" * 100_000)])
def test_a_long_key_is_cut(load, computing, key):
    load(key, 1.0)
    (text,) = computing.by_key()
    assert len(text) < 2000


def test_the_objects_in_a_key_are_not_kept(load, computing):
    class Usual:
        pass

    class Unusual(Usual):
        def __hash__(self):
            return 1

    usual, unusual = Usual(), Unusual()
    load(("f", usual), 1.0)
    load(KeyProxies().adapt(unusual), 1.0)
    gone = [ref(usual), ref(unusual)]
    del usual, unusual
    gc.collect()
    assert [each() for each in gone] == [None, None]
    assert computing.by_key() == {}


@pytest.mark.parametrize("key", [10**5000, ("f", 10**5000)], ids=["int", "in a tuple"])
def test_a_value_is_loaded_even_if_python_refuses_to_write_the_int_in_its_key(key, load, computing):
    load(key, 1.0)
    assert computing.by_key() == {}
    assert Cache(log_interval=None).get_or_load(key, lambda: "value") == "value"


def test_threads_record_at_the_same_time(load, computing, together):
    together(lambda number: [load(f"key:{number}", 0.01) for _ in range(200)])
    # The update of a thread may be lost, but not many.
    assert THREADS < sum(computing.by_key().values()) <= 2.001 * THREADS


def test_nobody_waits_for_a_thread_that_the_system_stopped_while_it_recorded(core):
    stopped, go_on = threading.Event(), threading.Event()

    class Stopping(ManualClock):
        def __call__(self):
            if threading.current_thread().name == "stopped":
                stopped.set()
                go_on.wait(10)
            return super().__call__()

    core.use_clock(Stopping())
    computing = ComputingTime(core)
    thread = threading.Thread(target=computing.add, args=["slow", 1.0], name="stopped")
    thread.start()
    assert stopped.wait(10)
    computing.add("other", 1.0)
    go_on.set()
    thread.join()
    computing.add("other", 1.0)
    assert computing.by_key() == pytest.approx({"slow": 1.0, "other": 2.0}, abs=0.002)
