"""Counts over processes: increments, locks and computations, of which none is lost or made twice."""

from collections import Counter

import pytest

pytestmark = pytest.mark.deep

PROCESSES = 8
KEYS = 100


@pytest.fixture
def workers(worker):
    return [worker() for _ in range(PROCESSES)]


def together(workers, code):
    """Run the code in all workers. Return their results."""
    for each in workers:
        each.send(code)
    return [each.answer() for each in workers]


def test_counters_are_exact_and_one_process_wins_each_contest_for_a_lock(workers, at_length):
    count = at_length(20_000)
    workers[0]("cache.set('counter', 0, None)")
    together(workers, f"[cache.incr('counter') for _ in range({count})][-1]")
    assert workers[0]("cache.get('counter')") == PROCESSES * count
    won = together(workers, f"[number for number in range({count}) if cache.add(f'lock {{number}}', 1, None)]")
    assert Counter(number for each in won for number in each) == Counter(range(count))
    assert together(workers, "events") == [[]] * PROCESSES


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


def test_each_missing_key_is_computed_once_and_no_more_after_a_restart_of_all_processes(workers, worker):
    together(workers, LOAD)
    computed = together(workers, "load_all()")
    assert Counter(number for each in computed for number in each) == Counter(range(KEYS))
    # Half of them end by themselves, and the others are killed. A later worker begins before the last one has ended.
    later = []
    for number, each in enumerate(workers):
        (each.end if number % 2 else each.kill)()
        later.append(worker())
    together(later, LOAD)
    assert together(later, "load_all()") == [[]] * PROCESSES
