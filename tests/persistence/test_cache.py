"""A cache that is saved and loaded explicitly, or kept in a directory."""

import asyncio
import operator
import os
import threading
from functools import partial
from pathlib import Path

import pytest

from tests.leases.callers import get_or_lease
from tests.persistence import calling
from tests.persistence.calling import Calling
from tests.scripts import run
from tests.waiting import until
from wheelcache import Cache, ManualClock, Timers
from wheelcache.coherence.shared_stamps import SharedStamps
from wheelcache.runtime.worker_pool import refresh_pool

ROOT = Path(__file__).parents[2]


class Point:
    """A key whose class has its own code."""

    def __init__(self, x):
        self.x = x

    def __eq__(self, other):
        return isinstance(other, Point) and self.x == other.x

    def __hash__(self):
        return hash(self.x)


@pytest.fixture
def make(closed):
    def one(name="mine", **options):
        defaults = {"clock": ManualClock(), "log_interval": None, "sample_interval": None}
        return closed(Cache(name, **{**defaults, **options}))

    return one


# Explicit calls.


def test_keys_of_every_kind_are_loaded_in_order_of_use_with_the_time_that_is_left(make, path, wall):
    cache = make(ttl=100, jitter=0.5)
    values = {Point(1): "point", ("a", Point(2)): "tuple", "text": b"bytes", 5: 1.5, None: [1, 2], frozenset({3}): {}}
    cache.set_many(values)
    cache.set("for ever", 1, None)
    cache.get(Point(1))
    left = {key: cache.expires_in(key) for key in cache.keys()}
    assert cache.save(path, secret="a secret") == 7
    # Jitter shortens a time only once.
    other = make(jitter=0.5)
    assert other.load(str(path), secret="a secret") == 7
    assert other.keys() == [*left] == [("a", Point(2)), "text", 5, None, frozenset({3}), "for ever", Point(1)]
    assert other.get_many(values) == values
    assert {key: other.expires_in(key) for key in left} == pytest.approx(left, abs=0.1)


def test_a_child_of_a_fork_amid_a_save_has_everything_in_its_place(make, path, tmp_path):
    cache = make(max_entries=1000)
    for key in range(1000):
        cache.set(key, Calling() if key == 500 else key)
    statuses = []

    def fork():
        cache.get(4)
        pid = os.fork()
        if pid == 0:
            calling.quiet()
            cache.set("new", 1)
            order = [1, 2, 3, *range(5, 1000), 4, "new"]
            good = cache.keys() == order and cache.save(tmp_path / "child.snapshot") == 1000
            os._exit(not good)
        statuses.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))

    Calling.saving = staticmethod(fork)
    cache.save(path)
    assert statuses == [0]
    assert cache.keys() == [0, 1, 2, 3, *range(5, 1000), 4]


def test_saving_does_not_rebuild_the_table_of_the_map(path):
    """Rebuilding the table of a million entries would stop all threads for 300 ms."""
    peak = run(
        """
        import sys, tracemalloc
        from pathlib import Path
        from wheelcache import Cache, ManualClock
        from wheelcache.persistence import snapshot_file

        snapshot_file.BUFFER_BYTES = 1000
        cache = Cache(clock=ManualClock(), log_interval=None, sample_interval=None)
        cache.set_many({str(key): key for key in range(20_000)})
        tracemalloc.start()
        cache.save(Path(sys.argv[1]))
        print(tracemalloc.get_traced_memory()[1])
        """,
        path,
    )
    # 0.2 MB, and 3 MB if the table is rebuilt.
    assert int(peak) < 1_000_000


def test_a_coherent_cache_of_another_process_loads_only_what_was_not_written_since(make, tmp_path, path):
    cache = make(stamps=SharedStamps("saved", tmp_path))
    cache.set_many({"a": 1, "b": 1})
    cache.save(path)
    script = """
        import sys
        from pathlib import Path
        from wheelcache import Cache
        from wheelcache.coherence.shared_stamps import SharedStamps
        folder = Path(sys.argv[1])
        elsewhere = Cache(stamps=SharedStamps("saved", folder))
        elsewhere.set("b", 2)
        cache = Cache(stamps=SharedStamps("saved", folder))
        print(cache.load(folder / "a.snapshot"), cache.get_many("ab"))
        """
    assert run(script, tmp_path) == "1 {'a': 1}\n"
    # No entry counts as current after the stamps were created again.
    for stamps in tmp_path.glob("*.stamps"):
        stamps.unlink()
    assert make(stamps=SharedStamps("saved", tmp_path)).load(path) == 0


# In a directory.


@pytest.fixture
def kept(make, folder):
    return partial(make, snapshot_dir=folder)


@pytest.fixture
def saved(kept):
    """Save the entries a to e, as an earlier process."""

    def save(use=lambda cache: cache.set_many(dict.fromkeys("abcde", 1), None)):
        cache = kept()
        use(cache)
        assert cache.keeper.save()
        cache.close()

    return save


FIRST_USES = {
    "get": lambda cache: cache.get("a") == 1,
    "a miss": lambda cache: cache.get("none") is None,
    "set": lambda cache: cache.set("new", 1),
    "set_many": lambda cache: cache.set_many({"new": 1}) == [],
    "add": lambda cache: not cache.add("a", 2),
    "touch": lambda cache: cache.touch("a"),
    "expires_in": lambda cache: cache.expires_in("a") is None,
    "incr": lambda cache: cache.incr("a") == 2,
    "pop": lambda cache: cache.pop("e") == 1,
    "delete": lambda cache: cache.delete("e"),
    "delete_many": lambda cache: cache.delete_many("e") == 1,
    "delete_group": lambda cache: cache.engine.add_group("none").delete() == 0,
    "get_many": lambda cache: cache.get_many("ab") == {"a": 1, "b": 1},
    "keys": lambda cache: cache.keys() == list("abcde"),
    "in": lambda cache: "a" in cache,
    "stats": lambda cache: cache.stats().size == 5,
    "get_or_load": lambda cache: cache.get_or_load("a", lambda: 1 / 0) == 1,
    "aget_or_load": lambda cache: asyncio.run(cache.aget_or_load("a", lambda: 1 / 0)) == 1,
    "get_or_lease": lambda cache: get_or_lease(cache, "a", wait=1) == 1,
    "save": lambda cache: cache.save(cache.keeper.directory / "by hand") == 5,
}


@pytest.mark.parametrize("use", FIRST_USES)
def test_the_first_use_loads_whatever_it_is(kept, saved, use):
    saved()
    cache = kept()
    assert len(cache) == 0
    assert not cache.keeper.save()
    assert FIRST_USES[use](cache)
    assert cache.keeper.save()
    assert cache.get("b") == 1


NO_USES = {
    "len": len,
    "repr": repr,
    "decorating": lambda cache: cache.memoize()(lambda: 1),
    "lag": lambda cache: cache.observer.state().lag,
    "a listener": lambda cache: setattr(cache, "on_removal", print),
    "saving": lambda cache: cache.keeper.save(),
}


@pytest.mark.parametrize("use", NO_USES)
def test_nothing_is_loaded_by_what_asks_for_no_entry(kept, saved, use):
    saved()
    clock = ManualClock()
    cache = kept(clock=clock)
    NO_USES[use](cache)
    clock.advance(1000)
    assert not cache.keeper.save()
    assert len(cache) == 0
    assert cache.get("a") == 1


def test_a_clear_loads_nothing_and_neither_does_a_use_after_it(kept, saved):
    saved()
    cache = kept()
    cache.clear()
    assert cache.get("a") is None
    assert cache.set("a", 2)
    assert cache.keys() == ["a"]


def double(x):
    return 2 * x


def times(factor):
    return lambda x: factor * x


def test_what_is_memoized_is_loaded_by_the_first_call(kept, saved):
    saved(lambda cache: cache.memoize()(double)(1))
    again = kept().memoize()(double)
    assert again(1) == 2
    assert again.cache_stats().calls == 0


@pytest.mark.parametrize(
    "make_function", [times, lambda factor: partial(operator.mul, factor)], ids=["inner", "partial"]
)
def test_functions_of_one_name_do_not_get_what_others_returned_in_an_earlier_process(kept, saved, make_function):
    saved(lambda cache: [cache.memoize()(make_function(factor))(1) for factor in (2, 3)])
    other = kept()
    assert [other.memoize()(make_function(factor))(1) for factor in (3, 2)] == [3, 2]


def test_nor_do_two_that_have_one_name_by_now(kept, saved):
    saved(lambda cache: cache.memoize()(double)(1))
    other = kept()
    for _ in range(2):
        memoized = other.memoize()(double)
    assert memoized(1) == 2
    assert len(other) == 1
    assert memoized.cache_stats().calls == 1


def test_it_is_saved_every_interval_by_the_pool(kept):
    clock = ManualClock()
    cache = kept(snapshot_interval=60, clock=clock)
    cache.set("a", Calling())
    threads = []
    Calling.saving = staticmethod(lambda: threads.append(threading.current_thread().name))
    for seconds, saves in ((59, 0), (1, 1), (60, 2)):
        clock.advance(seconds)
        assert until(lambda: refresh_pool.pending == 0)
        assert len(threads) == saves
    assert set(threads) == {"wheelcache-refresh"}
    calling.quiet()
    assert kept().get("a") == "called"


@pytest.mark.parametrize("make", [Cache, lambda: Timers(1, print, clock=ManualClock())], ids=["cache", "timers"])
def test_a_path_that_no_file_can_have_is_named_and_one_of_any_bytes_is_used(make, tmp_path):
    owner = make()
    for call in (owner.save, owner.load):
        with pytest.raises(ValueError, match=r"^path must be a path that the file system can encode, not '.*\\ud800'"):
            call(f"{tmp_path}/a\ud800")
    owner.save(f"{tmp_path}/a\udcff")
    assert os.listdir(os.fsencode(tmp_path)) == [b"a\xff"]
    assert owner.load(f"{tmp_path}/a\udcff") == 0
