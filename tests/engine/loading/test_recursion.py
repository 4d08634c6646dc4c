"""Loaders that load other values, and so on: each level may take at most four frames of Python."""

import pytest

from tests.recursion import DEPTH, result_at_depth


def by_get_or_load(cache):
    def count(depth):
        return 0 if depth == 0 else cache.get_or_load(depth, lambda: count(depth - 1)) + 1

    return count


def by_memoize(cache):
    @cache.memoize()
    def count(depth):
        return 0 if depth == 0 else count(depth - 1) + 1

    return count


@pytest.mark.parametrize("counting_by", [by_get_or_load, by_memoize])
def test_values_that_need_each_other_are_loaded_to_a_fourth_of_the_recursion_limit(cache, counting_by):
    assert result_at_depth(counting_by(cache)) == DEPTH
    assert cache.stats().loads >= DEPTH
