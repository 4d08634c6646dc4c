"""The groups of keys: their counts over all workers, also over those that have exited."""

import pytest

from tests.watch.processes import run
from tests.watch.published import INTERVAL, look, only

pytestmark = pytest.mark.compiled

NEW = "new or long gone"


def groups(path):
    return only(path).stats.groups


def only_pages(path):
    (found,) = (each for each in look(path).caches if each.name == "pages")
    return found


def test_the_groups_of_all_workers_are_added_also_of_those_that_have_exited(make, path, clock):
    cache = make()
    for number in range(60):
        cache.set(f"user:{number}", 1)
    for _ in range(60):
        cache.get("user:1")
    cache.get("user:unknown")
    cache.get("city:unknown")
    clock.advance(INTERVAL)
    run(
        """
        cache = make()
        cache.get("user:unknown")
        clock.advance(3)
        cache.get_or_load("user:loaded", lambda: clock.advance(0.5))
        cache.get("page:unknown")
        """,
        path,
    )
    found = groups(path)
    assert {name: each.misses_by_cause[NEW] for name, each in found.items()} == {"user": 3, "city": 1, "page": 1}
    user = found["user"]
    assert (user.hits, user.puts, user.loads, user.load_seconds) == (60, 61, 1, 0.5)
    assert sum(each.misses for each in found.values()) == only(path).stats.misses


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
