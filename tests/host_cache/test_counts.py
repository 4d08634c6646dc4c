"""Counts over processes: increments, locks and computations, of which none is lost or made twice."""

from collections import Counter

import pytest

pytestmark = pytest.mark.deep

PROCESSES = 8


@pytest.fixture
def workers(worker):
    return [worker() for _ in range(PROCESSES)]


def together(workers, code):
    """Run the code in all workers. Return their results."""
    for each in workers:
        each.send(code)
    return [each.answer() for each in workers]


def test_counters_are_exact(workers, at_length):
    count = at_length(20_000)
    workers[0]("cache.set('counter', 0, None)")
    together(workers, f"[cache.incr('counter') for _ in range({count})][-1]")
    assert workers[0]("cache.get('counter')") == PROCESSES * count
    assert together(workers, "events") == [[]] * PROCESSES


def test_one_process_wins_each_contest_for_a_lock(workers, at_length):
    count = at_length(10_000)
    won = together(workers, f"[number for number in range({count}) if cache.add(f'lock {{number}}', 1, None)]")
    winners = Counter(number for each in won for number in each)
    assert winners == Counter(range(count))


KEYS = 100

LOAD = f"""
import random
from concurrent.futures import ThreadPoolExecutor

computed = []

def load(number):
    def loader():
        computed.append(number)
        time.sleep(0.05)
        return number

    return cache.get_or_load(f"key {{number}}", loader, None)

def work(_):
    numbers = random.sample(range({KEYS}), {KEYS})
    return [load(number) for number in numbers] == numbers

def load_all():
    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(4)))
    return computed
"""


def test_each_missing_key_is_computed_once(workers):
    together(workers, LOAD)
    computed = together(workers, "load_all()")
    assert Counter(number for each in computed for number in each) == Counter(range(KEYS))


def test_others_compute_the_keys_of_killed_processes_once(workers):
    together(workers, LOAD)
    for each in workers:
        each.send("load_all()")
    for killed in workers[:3]:
        with pytest.raises(AssertionError, match="not answered"):
            workers[-1].answer(0.05)
        killed.kill()
    computed = Counter(number for each in workers[3:] for number in each.answer())
    assert set(computed.values()) == {1}
    assert workers[-1](f"[cache.get(f'key {{number}}') for number in range({KEYS})]") == list(range(KEYS))


def test_a_restart_of_all_processes_repeats_no_computation(worker, at_length):
    count = at_length(1000)
    code = f"""
    computed = []

    def load(number):
        return cache.get_or_load(f"key {{number}}", lambda: computed.append(number) or number, None)

    def load_all():
        found = [load(number) for number in range({count})]
        assert found == list(range({count}))
        return computed
    """
    first = [worker() for _ in range(4)]
    together(first, code)
    computed = Counter(number for each in together(first, "load_all()") for number in each)
    assert computed == Counter(range(count))
    for each in first:
        each.send("while True: load_all()")
    # Half of them end by themselves, and the others are killed. A later worker begins before the last one has ended.
    second = []
    for each in first:
        each.kill()
        second.append(worker())
    together(second, code)
    assert together(second, "load_all()") == [[]] * 4
    for each in second:
        each.end()
    third = worker()
    third(code)
    assert third("load_all()") == []
    assert third("events") == []
