"""An exception that may come at any point of a save or a load leaves the cache and the file intact."""

from functools import partial

import pytest

from tests.persistence.caches import filled, kept
from tests.runtime.interruptions import Delivery, Worker, compiled_core, quiet
from wheelcache.persistence.autosave import Autosave, stem_of

pytestmark = [pytest.mark.deep, compiled_core]

VALUES = dict.fromkeys("abcd", 1)

worker = Worker()


def every_point(make, operation):
    """Interrupt ``operation(make())`` at every point in turn. Yield the result of ``make`` and the point."""
    target, interrupted = 0, True
    while interrupted:
        target += 1
        made = make()
        # Dropped: it refers to frames, and these to the objects of the interrupted call.
        where, interrupted = interrupt(target, partial(operation, made))
        yield made, where
    assert target > 100


def interrupt(target, operation):
    delivery = Delivery(target)
    with quiet():
        interrupted = delivery.run(operation)
    return delivery.where, interrupted


def test_a_save_leaves_the_entries_and_a_file_that_is_the_old_one_or_the_new_one(tmp_path):
    path = tmp_path / "a.snapshot"
    filled(VALUES).save(path)
    for cache, where in every_point(partial(filled, VALUES), lambda cache: cache.save(path)):
        other = kept()
        # An exception during pickling counts as an exception of the value.
        assert other.load(path) == len(other) >= 3, where
        assert worker.does(partial(cache.set, "a", 2)), where
        assert sorted(cache.keys()) == sorted(VALUES), where
        # Other saves are not refused, and remove the leftovers of this one.
        assert cache.save(path) == 4, where
        assert [each.name for each in tmp_path.iterdir()] == [path.name], where


@pytest.mark.parametrize("max_weight", [None, 20])
def test_a_load_leaves_what_it_has_loaded(tmp_path, max_weight):
    path = tmp_path / "a.snapshot"
    filled(VALUES).save(path)
    bound = {"max_weight": max_weight, "weigher": lambda key, value: 8} if max_weight else {}
    for cache, where in every_point(partial(kept, **bound), lambda cache: cache.load(path)):
        assert cache.get_many(cache.keys()).items() <= VALUES.items(), where
        assert worker.does(partial(cache.set, "e", 2)), where
        cache.load(path)
        found = set(cache.keys())
        assert found == {*VALUES, "e"} or (max_weight and len(found) == 2 and "e" in found), where


class Noted:
    """A cache that records the paths of its saves."""

    name = "mine"

    def __init__(self):
        self.paths = []

    def save(self, path, *, secret, seconds, dir_fd):
        self.paths.append(path)

    def is_in_use(self):
        return True


def test_an_autosave_can_save_again(tmp_path):
    def make():
        cache = Noted()
        return cache, Autosave(tmp_path / "kept", 60, None, cache)

    for (cache, autosave), where in every_point(make, lambda made: made[1].save()):
        assert worker.does(lambda autosave=autosave: autosave.save(1.0)), where
        # The number of the previous one was free.
        assert {path.name for path in cache.paths} == {f"{stem_of('mine')}.1.snapshot"}, where
        autosave.close()
