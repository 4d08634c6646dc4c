"""Saving a cache and loading it again: the same entries, for as long, in the same order, and never a wrong value."""

import logging
import os
import random
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import tracemalloc
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine import invariants
from tests.runtime.background import is_idle
from tests.waiting import THREADS, until
from wheelcache import Cache, CacheClosed, ManualClock, RemovalCause
from wheelcache.coherence.shared_stamps import SharedStamps
from wheelcache.errors import SnapshotDamaged
from wheelcache.persistence.snapshot_file import SnapshotWriter, open_snapshot

EXPIRED, EVICTED, REPLACED, DELETED, CLEARED = RemovalCause
SECRETS = pytest.mark.parametrize("secret", [None, "a secret"], ids=["unsigned", "signed"])


class Point:
    """A key with code of its own."""

    def __init__(self, x):
        self.x = x

    def __eq__(self, other):
        return isinstance(other, Point) and self.x == other.x

    def __hash__(self):
        return hash(self.x)

    def __repr__(self):
        return f"Point({self.x})"


class Calling:
    """A value that calls a function when it is pickled, and another when it is unpickled."""

    saving = loading = staticmethod(lambda: None)

    def __reduce__(self):
        type(self).saving()
        return Calling._made, ()

    @staticmethod
    def _made():
        Calling.loading()
        return Calling()


@pytest.fixture(autouse=True)
def quiet_values():
    yield
    Calling.saving = Calling.loading = staticmethod(lambda: None)


class Watch:
    """Stands in for ``time.time``."""

    def __init__(self, monkeypatch):
        self.now = 1_000_000.0
        monkeypatch.setattr(time, "time", lambda: self.now)


@pytest.fixture
def wall(monkeypatch):
    return Watch(monkeypatch)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a.snapshot"


def make(**options):
    defaults = {"clock": ManualClock(), "jitter": 0, "log_interval": None, "sample_interval": None}
    return Cache(**{**defaults, **options})


def warnings(caplog):
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


PLAIN = st.one_of(
    st.text(max_size=5), st.integers(), st.binary(max_size=5), st.booleans(), st.floats(allow_nan=False), st.none()
)
KEYS = st.one_of(PLAIN, st.tuples(PLAIN, PLAIN), st.frozensets(st.integers(0, 3)), st.integers(0, 9).map(Point))
VALUES = st.one_of(PLAIN, st.tuples(PLAIN), st.lists(st.integers()), st.integers().map(Point))
TTLS = st.one_of(st.none(), st.integers(1, 1000), st.floats(1, 1e9))


@SECRETS
@settings(max_examples=100, deadline=None)
@given(
    entries=st.lists(st.tuples(KEYS, VALUES, TTLS), max_size=30),
    used=st.lists(st.integers(0, 29), max_size=10),
    away=st.sampled_from([0.0, 0.5, 100.0]),
)
def test_what_is_saved_is_loaded_with_the_time_that_is_left_in_order_of_use(secret, entries, used, away):
    real = time.time
    try:
        cache = make()
        for key, value, ttl in entries:
            cache.set(key, value, ttl)
        for index in used:
            if index < len(entries):
                cache.get(entries[index][0])
        # From the oldest to the youngest, so the order stays.
        expected = [(key, cache.get(key), cache.expires_in(key)) for key in cache.keys()]
        other = make(clock=ManualClock(12345.0))
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "a.snapshot"
            time.time = lambda: 5e5
            assert cache.save(path, secret=secret) == len(cache)
            assert cache.keys() == [key for key, _, _ in expected]
            time.time = lambda: 5e5 + away
            alive = [each for each in expected if each[2] is None or each[2] > away]
            assert other.load(path, secret=secret) == len(alive)
    finally:
        time.time = real
    assert other.keys() == [key for key, _, _ in alive]
    for key, value, left in alive:
        found = other.get(key)
        assert (type(found), found) == (type(value), value)
        assert other.expires_in(key) == (None if left is None else pytest.approx(left - away, abs=1e-4))
    invariants.check(other)


@SECRETS
def test_thousands_are_loaded_in_order_of_use(path, secret):
    cache = make(max_entries=5000)
    cache.set_many({key: str(key) for key in range(5000)})
    for key in random.Random(1).sample(range(5000), 2000):
        cache.get(key)
    before = cache.keys()
    assert cache.save(path, secret=secret) == 5000
    assert cache.keys() == before
    other, small = make(), make(max_entries=1000)
    assert (other.load(path, secret=secret), small.load(path, secret=secret)) == (5000, 1000)
    assert other.keys() == before
    assert small.keys() == before[4000:]


def test_time_spent_switched_off_counts_and_no_clock_makes_anything_live_longer(path, wall):
    cache = make()
    cache.set("a", 1, 100)
    cache.set("b", 1, 50)
    cache.save(path)
    for passed, expected in [(60, {"a": 40}), (-3600, {"a": 100, "b": 50}), (1e9, {}), (0, {"a": 100, "b": 50})]:
        wall.now = 1_000_000.0 + passed
        other = make()
        assert other.load(path) == len(expected)
        assert {key: other.expires_in(key) for key in other.keys()} == expected


def test_a_stale_value_keeps_the_rest_of_its_grace(path, wall):
    clock = ManualClock()
    cache = make(clock=clock)
    cache.take("a", lambda: "old", 10, grace=100)
    clock.advance(30)
    assert cache.get("a") is None
    assert cache.save(path) == 1
    wall.now += 40
    clocks = [ManualClock(), ManualClock()]
    served, gone = (make(clock=each) for each in clocks)
    for other in (served, gone):
        assert other.load(path) == 1
        assert other.get("a") is None
    clocks[0].advance(39)
    assert served.take("a", lambda: "new", 10, grace=100) == "old"
    clocks[1].advance(41)
    assert len(gone) == 0
    assert gone.take("a", lambda: "new", 10, grace=100) == "new"
    wall.now += 100
    assert make().load(path) == 0
    assert until(is_idle)


def test_what_is_past_its_time_and_still_in_memory_is_not_saved(path):
    clock = ManualClock()
    cache = make(clock=clock)
    cache.set("a", 1, 0.25)
    cache.set("b", 1)
    clock.advance(0.5)
    assert len(cache) == 2
    assert cache.save(path) == 1


@pytest.mark.parametrize("saved", [3, 10, 11, 50])
@pytest.mark.parametrize("here", [0, 4, 10])
def test_the_loader_holds_its_own_bound_and_keeps_what_it_has_and_then_the_youngest(path, saved, here):
    cache = make(max_entries=50)
    for key in range(saved):
        cache.set(key, key)
    cache.save(path)
    other = make(max_entries=10)
    for key in range(here):
        other.set(("here", key), key)
    fits = min(saved, 10 - here)
    assert other.load(path) == fits
    assert other.keys() == [*(("here", key) for key in range(here)), *range(saved - fits, saved)]
    assert other.stats().evictions == 0
    invariants.check(other)


def test_more_records_than_there_were_entries_when_it_began_keep_the_bound(path):
    cache = make(max_entries=1000)
    for key in range(1000):
        cache.set(key, Calling() if key == 1 else key)
    # While it is saved: each takes the place of one that is in the file by then, or would be.
    Calling.saving = staticmethod(lambda: cache.set_many({("new", key): key for key in range(400)}))
    assert cache.save(path) > 1000
    other = make(max_entries=1000)
    other.set("here", 1)
    assert other.load(path) == 999
    assert other.keys() == ["here", *range(401, 1000), *(("new", key) for key in range(400))]


def test_weights_are_those_of_the_loaders_weigher_and_its_bound_holds(path):
    cache = make()
    for key in range(20):
        cache.set(key, "x" * key)
    cache.save(path)
    removed = []
    other = make(
        max_weight=100,
        weigher=lambda key, value: len(value) if type(key) is int else 10,
        on_removal=lambda *removal: removed.append(removal),
    )
    other.set("here", 1)
    assert other.load(path) == 5
    assert other.keys() == ["here", 15, 16, 17, 18, 19]
    assert other.stats().weight == 95
    assert {cause for _, _, cause in removed} == {EVICTED}
    assert "here" not in {key for key, _, _ in removed}
    invariants.check(other)
    # Of those that are not too heavy for it alone.
    small = make(max_weight=5, weigher=lambda key, value: len(value))
    assert small.load(path) == 1
    assert small.keys() == [5]


def test_what_is_here_already_stays_and_so_does_its_time(path):
    cache = make()
    cache.set_many({"a": "old", "b": "old", "c": "old"}, None)
    cache.save(path)
    removed = []
    clock = ManualClock()
    other = make(clock=clock, on_removal=lambda *removal: removed.append(removal))
    other.set("b", "new", 10)
    other.set("c", "expired", 0.25)
    clock.advance(0.5)
    assert other.load(path) == 2
    assert other.get_many("abc") == {"a": "old", "b": "new", "c": "old"}
    assert other.expires_in("b") == 9.5
    # Nobody asked for anything, and only what had expired left.
    stats = other.stats()
    assert (stats.misses, stats.evictions, stats.expirations, stats.loads) == (0, 0, 1, 0)
    assert removed == [("c", "expired", EXPIRED)]


def test_what_is_being_loaded_meanwhile_is_newer(path):
    cache = make()
    cache.set_many({"a": "old", "b": "old"}, None)
    cache.save(path)
    other = make()

    def loader():
        assert other.load(path) == 1
        return "new"

    assert other.take("a", loader) == "new"
    assert other.get_many("ab") == {"a": "new", "b": "old"}


def test_values_that_cannot_be_pickled_are_left_out_with_one_warning(path, caplog):
    cache = make(name="mine")
    for key in range(600):
        cache.set(key, threading.Lock() if key % 2 else key)
    assert cache.save(path) == 300
    assert len(warnings(caplog)) == 1
    assert "300 entries of the cache 'mine' cannot be pickled" in warnings(caplog)[0]
    other = make()
    assert other.load(path) == 300
    assert other.keys() == list(range(0, 600, 2))


def test_unpickling_may_use_the_very_cache(path):
    cache = make()
    cache.set_many({"a": Calling(), "b": 1})
    cache.save(path)
    other = make()

    def use():
        other.set("b", "set by a")
        other.get("a")
        other.stats()
        other.delete("nothing")

    Calling.loading = staticmethod(use)
    assert other.load(path) == 1
    assert other.get("b") == "set by a"
    assert isinstance(other.get("a"), Calling)


def test_pickling_may_use_the_very_cache_but_not_save_it(path, tmp_path, caplog):
    cache = make()
    cache.set_many({"a": Calling(), "b": 1})

    def use():
        cache.get("b")
        cache.set("c", 1)
        cache.save(tmp_path / "other.snapshot")

    Calling.saving = staticmethod(use)
    # "b" was used, so it comes after "a"; "a" cannot be pickled, since this raises.
    assert cache.save(path) >= 2
    assert "1 entries" in warnings(caplog)[0]
    assert list(tmp_path.iterdir()) == [path]
    Calling.saving = staticmethod(lambda: None)
    assert cache.save(path) == 3


def test_a_second_save_at_once_is_an_error_and_leaves_the_first_alone(tmp_path, together):
    cache = make()
    for key in range(3000):
        cache.set(key, key)
    outcomes = together(lambda number: cache.save(tmp_path / f"{number}.snapshot"))
    assert all(each == 3000 or isinstance(each, RuntimeError) for each in outcomes)
    assert 3000 in outcomes
    assert cache.keys() == list(range(3000))


@pytest.mark.parametrize("more", [0, 1000])
def test_a_cache_that_is_closed_meanwhile_leaves_no_part_of_itself_as_the_whole(path, more):
    cache = make()
    cache.set_many({key: key for key in range(9)})
    cache.save(path)
    cache.set("closing", Calling())
    cache.set_many({("more", key): key for key in range(more)})
    Calling.saving = staticmethod(cache.close)
    with pytest.raises(CacheClosed):
        cache.save(path)
    assert make().load(path) == 9
    with pytest.raises(CacheClosed):
        cache.save(path)
    with pytest.raises(CacheClosed):
        cache.load(path)


REFUSED = {
    "empty": lambda path: path.write_bytes(b""),
    "text": lambda path: path.write_text("something else"),
    "cut in the header": lambda path: path.write_bytes(path.read_bytes()[:40]),
    "header": lambda path: path.write_bytes(path.read_bytes().replace(b"entries", b"Entries")),
    "others may write": lambda path: path.chmod(0o666),
    "other kind": lambda path: (
        SnapshotWriter(path, {"kind": "timers", "saved_at": 0.0}, None).__enter__().__exit__(None, None, None)
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_refused_is_one_warning_that_says_why_and_is_kept_aside(path, caplog, what):
    cache = make(name="mine")
    cache.set("a", 1)
    cache.save(path)
    REFUSED[what](path)
    other = make(name="mine")
    other.set("b", 1)
    assert other.load(path) == 0
    assert other.keys() == ["b"]
    assert len(warnings(caplog)) == 1
    aside = path.with_name("a.snapshot.refused")
    assert all(each in warnings(caplog)[0] for each in (str(path), "'mine'", str(aside)))
    assert aside.exists()
    assert not path.exists()
    assert other.load(path) == 0
    assert len(warnings(caplog)) == 1


@pytest.mark.parametrize(("saved", "loaded"), [("one", "other"), ("one", None), (None, "one")])
def test_a_file_of_another_secret_is_refused(path, caplog, saved, loaded):
    cache = make()
    cache.set("a", 1)
    cache.save(path, secret=saved)
    assert make().load(path, secret=loaded) == 0
    assert len(warnings(caplog)) == 1
    assert not path.exists()


@SECRETS
def test_a_damaged_tail_costs_the_tail_only(path, caplog, secret):
    cache = make()
    for key in range(600):
        cache.set(key, str(key))
    cache.save(path, secret=secret)
    path.write_bytes(path.read_bytes()[:-100])
    with suppress(SnapshotDamaged), open_snapshot(path, "cache", secret and secret.encode()) as snapshot:
        loaded = 0
        for _ in snapshot:
            loaded += 1
    assert 590 < loaded < 600
    other = make()
    assert other.load(path, secret=secret) == loaded
    assert other.keys() == list(range(loaded))
    assert len(warnings(caplog)) == 1
    assert path.with_name("a.snapshot.refused").exists()
    # With less room: the youngest of what is good.
    os.rename(path.with_name("a.snapshot.refused"), path)
    small = make(max_entries=10)
    assert small.load(path, secret=secret) == 10
    assert small.keys() == list(range(loaded - 10, loaded))


@pytest.mark.deep
@SECRETS
@settings(max_examples=150, deadline=None)
@given(
    changes=st.lists(
        st.tuples(
            st.sampled_from(["flip", "cut", "insert", "zeros", "swap"]), st.integers(0, 1 << 16), st.binary(min_size=1)
        ),
        min_size=1,
        max_size=3,
    )
)
def test_whatever_is_corrupted_what_is_loaded_was_saved(secret, changes):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.snapshot"
        cache = make()
        saved = {f"key {number}": ("value", number) for number in range(20)}
        cache.set_many(saved, 1000)
        cache.save(path, secret=secret)
        content = bytearray(path.read_bytes())
        for kind, at, some in changes:
            at %= len(content) + 1
            if kind == "flip":
                content[at : at + 1] = bytes(each ^ (some[0] or 1) for each in content[at : at + 1])
            elif kind == "cut":
                del content[at:]
            elif kind == "insert":
                content[at:at] = some
            elif kind == "zeros":
                content[at : at + 16] = bytes(len(content[at : at + 16]))
            else:
                content[at : at + 80] = content[at + 40 : at + 80] + content[at : at + 40]
        path.write_bytes(content)
        path.chmod(0o600)
        other = make()
        loaded = other.load(path, secret=secret)
        found = other.get_many(other.keys())
        assert loaded == len(found)
        assert found.items() <= saved.items()
        assert all(other.expires_in(key) <= 1000 for key in found)


def test_none_is_no_error(path, tmp_path, caplog):
    assert make().load(path) == 0
    assert make().load(str(tmp_path / "no such" / "a")) == 0
    assert warnings(caplog) == []


# Saving while others use the cache.


def saved_while(use, path, **options):
    """A cache of 1,000 entries, in whose middle ``use(cache)`` is called while it is saved to ``path``."""
    cache = make(**options)
    for key in range(1000):
        cache.set(key, Calling() if key == 500 else key)
    Calling.saving = staticmethod(lambda: use(cache))
    cache.save(path)
    return cache


def test_eviction_and_order_of_use_are_exact_while_it_is_saved_and_after_it(path):
    orders = []

    def use(cache):
        for key in (1, 999, 600):
            assert cache.get(key) == key
        for key in range(6):
            cache.set(("new", key), key)
        orders.append(cache.keys())

    cache = saved_while(use, path, max_entries=1000)
    used = [1, 999, 600, *(("new", key) for key in range(6))]
    assert orders == [[key for key in range(7, 999) if key != 600] + used]
    assert cache.keys() == orders[0]
    # Each that was there from start to end is in the file.
    other = make()
    other.load(path)
    assert set(other.keys()) >= set(range(7, 1000))
    assert cache.save(path) == 1000


@pytest.mark.parametrize("empty", [Cache.clear, lambda cache: cache.evict_to(0), lambda c: c.delete_many(range(1000))])
def test_what_is_emptied_while_it_is_saved_tells_of_its_entries_and_of_nothing_else(path, empty):
    removed = []

    def use(cache):
        empty(cache)
        cache.set("new", 1)

    cache = saved_while(use, path, on_removal=lambda key, value, cause: removed.append(key))
    assert sorted(removed) == list(range(1000))
    assert cache.keys() == ["new"]
    assert cache.save(path) == 1


def test_a_child_of_a_fork_amid_a_save_has_everything_in_its_place(path, tmp_path):
    statuses = []

    def fork(cache):
        cache.get(4)
        pid = os.fork()
        if pid == 0:
            Calling.saving = staticmethod(lambda: None)
            cache.set("new", 1)
            order = [1, 2, 3, *range(5, 1000), 4, "new"]
            good = cache.keys() == order and cache.save(tmp_path / "child.snapshot") == 1000
            os._exit(not good)
        statuses.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))

    cache = saved_while(fork, path, max_entries=1000)
    assert statuses == [0]
    assert cache.keys() == [0, 1, 2, 3, *range(5, 1000), 4]


def test_saving_does_not_rebuild_the_table_of_the_map(path):
    """Of a million entries that is a pause of 300 ms in which no other thread runs."""
    cache = make()
    cache.set_many({str(key): key for key in range(100_000)})
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        cache.save(path)
        # 1.9 MB, and 16.6 where the table is rebuilt.
        assert tracemalloc.get_traced_memory()[1] - before < 5_000_000
    finally:
        tracemalloc.stop()


def test_among_threads_that_use_it_nothing_is_lost_and_nothing_is_one_too_many(together, path):
    cache = Cache(max_entries=1000, log_interval=None, sample_interval=None)
    for key in range(600):
        cache.set(key, key)
    over = threading.Event()
    loaded = []

    def work(number):
        if number == 0:
            try:
                for _ in range(20):
                    cache.save(path)
                    other = make()
                    other.load(path)
                    loaded.append(set(other.keys()))
            finally:
                over.set()
            return
        turn = 0
        # Of 32 that do nothing but compute, each would wait a sixth of a second for its turn.
        while not over.is_set() and number < 6:
            turn += 1
            for key in range(number, 600, 17):
                # These stay, and may be anywhere in the order.
                assert cache.get(key) == key
            for key in range(5):
                mine = ("of", number, turn % 4, key)
                cache.set(mine, turn)
                if key % 2:
                    cache.delete(mine)
            assert len(cache) <= 1000
            assert turn % 50 or set(range(600)) <= set(cache.keys())

    assert together(work) == [None] * THREADS
    assert len(loaded) == 20
    assert all(set(range(600)) <= each for each in loaded)
    invariants.check(cache)


@pytest.mark.deep
def test_evictions_in_threads_while_it_is_saved_keep_what_is_used(together, path):
    """Each thread uses its hot key before each key that it adds, so no hot key can be the oldest."""
    cache = Cache(max_entries=2000, log_interval=None, sample_interval=None)
    for key in range(2000):
        cache.set(key, key)
    over = threading.Event()

    def work(number):
        if number == 0:
            try:
                for _ in range(40):
                    cache.save(path)
            finally:
                over.set()
            return 0
        lost, turn = 0, 0
        mine = ("hot", number)
        cache.set(mine, 1)
        while not over.is_set() and number < 6:
            turn += 1
            lost += cache.get(mine) is None
            # Few enough that each thread had its turn before as many were added as there is room for.
            if turn % 200 == 0:
                cache.set((number, turn), 1)
        return lost

    assert together(work) == [0] * THREADS
    assert len(cache) == 2000
    invariants.check(cache)


def test_what_is_saved_among_threads_that_write_was_there_at_some_time(together, tmp_path):
    """A value says how long it may live at most: none is found under the time of another."""
    cache = Cache(jitter=0, log_interval=None, sample_interval=None)
    for key in range(500):
        cache.set(key, (key, 10_000), 10_000)
    over = threading.Event()
    paths = []

    def work(number):
        if number == 0:
            try:
                for each in range(20):
                    paths.append(tmp_path / f"{each}.snapshot")
                    cache.save(paths[-1])
            finally:
                over.set()
            return
        while not over.is_set():
            for key in range(number, 500, 31):
                ttl = (100, 10_000, 1_000_000)[(key + number) % 3]
                cache.set(key, (key, ttl), ttl)
                if key % 7 == 0:
                    cache.delete(key)

    assert together(work) == [None] * 32
    for path in paths:
        other = make()
        assert other.load(path) > 300
        for key in other.keys():
            found, ttl = other.get(key)
            assert found == key
            assert ttl / 2 < other.expires_in(key) <= ttl


def boarded(tmp_path, **options):
    return make(stamps=SharedStamps("saved", tmp_path), **options)


def test_a_coherent_cache_takes_only_what_nobody_has_written_since(tmp_path, path):
    cache, elsewhere = boarded(tmp_path), boarded(tmp_path)
    cache.set_many({"a": 1, "b": 1, "c": 1, "d": 1})
    cache.touch("d", 50)
    assert cache.save(path) == 4
    elsewhere.set("b", 2)
    elsewhere.delete("c")
    other = boarded(tmp_path)
    assert other.load(path) == 2
    assert other.get_many("abcd") == {"a": 1, "d": 1}
    elsewhere.delete("a")
    assert other.get("a") is None


def test_a_coherent_cache_in_another_process_does_so_too(tmp_path, path):
    cache = boarded(tmp_path)
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
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=Path(__file__).parents[2],
    )
    assert done.stdout == "1 {'a': 1}\n", done.stderr


def test_a_coherent_cache_takes_nothing_of_one_that_was_not_and_the_other_way_round_all(tmp_path, path):
    cache = make()
    cache.set("a", 1)
    cache.save(path)
    assert boarded(tmp_path).load(path) == 0
    coherent = boarded(tmp_path)
    coherent.set("a", 1)
    coherent.save(path)
    assert make().load(path) == 1


def test_after_the_board_was_made_anew_nothing_passes_for_current(tmp_path, path):
    cache = boarded(tmp_path)
    cache.set("a", 1)
    cache.save(path)
    for board in tmp_path.glob("*.stamps"):
        board.unlink()
    assert boarded(tmp_path).load(path) == 0
