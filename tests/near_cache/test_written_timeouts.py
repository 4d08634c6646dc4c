"""The timeouts that a process gave to values in the store, and remembers."""

from math import inf

import pytest

from wheelcache.near_cache.written_timeouts import SLACK, NewTimeout, WrittenTimeouts


@pytest.fixture
def timeouts(clock):
    return WrittenTimeouts(clock)


def write(timeouts, key, seconds, *, is_certain=True):
    timeouts.end([key], timeouts.start(), NewTimeout(seconds), is_certain=is_certain)


def test_a_copy_may_live_until_its_value_ends_and_none_is_kept_while_the_store_may_still_return_it(timeouts, clock):
    began = timeouts.start()
    clock.advance(1)
    timeouts.end(["k", "l"], began, NewTimeout(10), is_certain=True)
    # The store may have begun to count when the write began.
    assert [timeouts.left(key) for key in "klm"] == [9, 9, inf]
    clock.advance(9)
    assert timeouts.left("k") == 0
    # Or when it ended; and it may count whole seconds.
    clock.advance(1 + 2 - 0.125)
    assert timeouts.left("k") == 0
    clock.advance(0.125)
    assert timeouts.left("k") == inf


def test_the_last_of_several_writes_counts(timeouts, clock):
    for seconds in (10, 50, 20):
        write(timeouts, "k", seconds)
        assert timeouts.left("k") == seconds
    clock.advance(5)
    write(timeouts, "k", 30)
    assert timeouts.left("k") == 30


@pytest.mark.parametrize("never", [None, 0, -1, inf, 1e10, 10**400], ids=str)
def test_a_value_without_an_end_limits_no_copy(timeouts, never):
    write(timeouts, "k", 9e9)
    assert timeouts.left("k") == 9e9
    write(timeouts, "k", never)
    assert timeouts.left("k") == inf


@pytest.mark.pairs
@pytest.mark.parametrize(("first", "second"), [(10, 50), (50, 10), (10, None), (None, 10)])
@pytest.mark.parametrize("nested", [False, True])
def test_of_overlapping_writes_the_earlier_end_counts_until_the_later_one(timeouts, clock, first, second, nested):
    one, other = timeouts.start(), timeouts.start()
    ends = [(one, first), (other, second)]
    for began, seconds in ends[::-1] if nested else ends:
        timeouts.end("k", began, NewTimeout(seconds), is_certain=True)
    assert timeouts.left("k") == 10
    clock.advance(10)
    assert timeouts.left("k") == 0
    clock.advance((40 if 50 in (first, second) else 0) + SLACK)
    assert timeouts.left("k") == inf


def test_after_a_write_that_may_have_failed_the_earlier_end_counts(timeouts):
    write(timeouts, "new", 10, is_certain=False)
    for key, old, new in (("longer", 10, 50), ("shorter", 50, 10), ("never", 10, None)):
        write(timeouts, key, old)
        write(timeouts, key, new, is_certain=False)
    assert [timeouts.left(key) for key in ("new", "longer", "shorter", "never")] == [10] * 4
    write(timeouts, "longer", 50)
    assert timeouts.left("longer") == 50


def test_a_value_that_is_over_says_nothing_about_the_next_one(timeouts, clock):
    write(timeouts, "k", 10)
    clock.advance(10 + SLACK)
    write(timeouts, "k", 50, is_certain=False)
    assert timeouts.left("k") == 50


def test_no_more_than_so_many_keys_are_remembered_the_latest_ones(timeouts):
    for number in range(20_000):
        write(timeouts, number, 10)
    remembered = [number for number in range(20_000) if timeouts.left(number) < inf]
    assert len(remembered) == 16_384
    assert remembered[-1] == 19_999
