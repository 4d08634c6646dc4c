"""The janitor, which removes rows that are over."""

import pytest

from tests.host_cache.test_operators import make
from tests.waiting import until
from wheelcache import ManualClock


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def cache(tmp_path, clock):
    cache = make(tmp_path, clock=clock, figures_dir=None, jitter=0.0)
    yield cache
    cache.close()


def rows(cache):
    """Return the keys of all rows, also of expired entries."""
    return {key for keys in cache.engine.key_batches() for key in keys}


@pytest.mark.parametrize("postpone", [lambda cache: cache.set("b", 1, ttl=100), lambda cache: cache.touch("b", 100)])
def test_an_entry_leaves_after_its_last_end_and_not_after_an_earlier_one(cache, clock, postpone):
    cache.set("a", 1, ttl=10)
    cache.set("b", 1, ttl=10)
    cache.set("c", 1, ttl=None)
    cache.set("c", 1, ttl=10)
    postpone(cache)
    clock.advance(15)
    assert until(lambda: rows(cache) == {"b"}, note=lambda: rows(cache))
    assert cache.get("b") == 1
    clock.advance(100)
    assert until(lambda: rows(cache) == set())


def test_an_earlier_end_counts(cache, clock):
    cache.set("a", 1, ttl=100)
    cache.set("a", 1, ttl=10)
    cache.set("b", 1, ttl=100)
    cache.touch("b", 10)
    clock.advance(15)
    assert until(lambda: rows(cache) == set(), note=lambda: rows(cache))


def test_more_rows_than_a_step_removes_leave_while_others_were_postponed(cache, clock):
    cache.set_many({f"over:{number}": 1 for number in range(450)}, ttl=10)
    cache.set_many({f"later:{number}": 1 for number in range(450)}, ttl=10)
    cache.set_many({f"later:{number}": 1 for number in range(450)}, ttl=100)
    clock.advance(15)
    assert until(lambda: cache.stats().size == 450, note=lambda: cache.stats().size)
    clock.advance(100)
    assert until(lambda: cache.stats().size == 0)


def test_after_the_janitor_has_closed_its_cache_another_process_takes_its_place(cache, clock, tmp_path):
    other = make(tmp_path, clock=clock, figures_dir=None, jitter=0.0)
    for each in (cache, other):
        each.set(f"{each is cache}", 1, ttl=10)
    clock.advance(15)
    janitor, successor = sorted((cache, other), key=lambda each: each.stats().removals["expired"], reverse=True)
    assert janitor.stats().removals["expired"] == 2
    janitor.close()
    successor.set("c", 1, ttl=10)
    clock.advance(30)
    assert until(lambda: rows(successor) == set(), note=lambda: rows(successor))
    other.close()
