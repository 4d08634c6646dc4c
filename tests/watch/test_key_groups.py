"""The groups of keys: their counts over all workers, also over those that have exited."""

import pytest

from tests.watch.published import INTERVAL, only

pytestmark = pytest.mark.compiled


def groups(path):
    return only(path).stats.groups


def test_more_names_than_64_are_added_to_the_group_without_a_name(make, path, clock, another_worker):
    def look_up(cache, first):
        for number in range(first, first + 50):
            cache.get(f"{number}:key")

    cache = make()
    look_up(cache, 0)
    clock.advance(INTERVAL)
    another_worker("pages", 4242, use=lambda cache, _: look_up(cache, 40))
    found = groups(path)
    assert len(found) == 65
    assert found[""].misses == 90 - 64
    assert {found[f"{number}:key".partition(":")[0]].misses for number in range(40, 50)} == {2}
    look_up(cache, 0)
    clock.advance(INTERVAL)
    assert groups(path)["0"].misses == 2
    assert sum(each.misses for each in groups(path).values()) == 150
