"""The groups of keys: their counts over all workers, also over those that have exited."""

import pytest

from tests.watch.published import INTERVAL, only
from wheelcache.watch.key_groups import changes
from wheelcache.watch.rows import NO_GROUP

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


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        ({"a": 2}, {"a": 5, "b": 1}, {"a": 3, "b": 1}),
        ({"a": 2}, {"a": 2}, {}),
        # Their counts are in the group without a name now, and were published under their own.
        ({"a": 2, "b": 3}, {"": 6, "b": 3}, {"": 4}),
        ({"": 1, "a": 5}, {"": 7, "a": 2}, {"": 1, "a": 2}),
    ],
)
def test_the_counts_of_a_group_that_has_lost_its_place_are_published_once(before, now, expected):
    groups = (before, now, expected)
    rows = [{name: (number, *NO_GROUP[1:]) for name, number in each.items()} for each in groups]
    assert changes(rows[1], rows[0]) == rows[2]
