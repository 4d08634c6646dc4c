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


def test_counters_are_exact_and_one_process_wins_each_contest_for_a_lock(workers, at_length):
    count = at_length(20_000)
    workers[0]("cache.set('counter', 0, None)")
    together(workers, f"[cache.incr('counter') for _ in range({count})][-1]")
    assert workers[0]("cache.get('counter')") == PROCESSES * count
    won = together(workers, f"[number for number in range({count}) if cache.add(f'lock {{number}}', 1, None)]")
    assert Counter(number for each in won for number in each) == Counter(range(count))
    assert together(workers, "events") == [[]] * PROCESSES
