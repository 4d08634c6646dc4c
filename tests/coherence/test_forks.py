"""After the file of stamps was removed, or the process has forked, no earlier entry counts as current."""

import logging
import threading
from itertools import count

import pytest

from tests.coherence.processes import QUIET, STAMPS_CHECK, fill
from tests.runtime.forks import fork
from tests.runtime.interruptions import Delivery, compiled_core, quiet
from tests.waiting import join, start
from wheelcache import Cache
from wheelcache.runtime.request_scope import end_request

# The file is removed.


def test_stamps_that_were_removed_are_made_anew_and_the_cache_emptied(pair, stamps_file, clock, caplog):
    one, other = pair
    fill(one, other)
    stamps_file.unlink()
    clock.advance(STAMPS_CHECK)
    assert one.get("missing") is None
    assert "stamps of the cache 'default' were removed; it has new ones" in caplog.text
    assert len(one) == 0
    assert other.get("missing") is None
    fill(one, other)
    one.set("k", "new")
    assert other.get("k") is None


def test_a_process_that_only_writes_finds_out_too_that_the_stamps_were_removed(process, stamps_file, clock):
    one = process()
    fill(one)
    stamps_file.unlink()
    started_later = process()
    fill(started_later)
    clock.advance(STAMPS_CHECK)
    one.set("j", 1)
    one.delete("k")
    assert started_later.get("k") is None


def test_a_value_that_was_computed_while_the_stamps_were_replaced_is_kept(process, stamps_file, clock):
    one = process()
    one.get("other")
    clock.advance(STAMPS_CHECK / 2)
    assert one.get("k") is None
    stamps_file.unlink()
    clock.advance(STAMPS_CHECK / 2)
    one.get("other")
    assert one.set("k", "computed")
    assert one.get("k") == "computed"


def test_stamps_that_cannot_be_made_anew_are_logged_and_no_caller_gets_the_error(process, stamps_file, clock, caplog):
    one = process()
    fill(one)
    stamps_file.unlink()
    stamps_file.mkdir()
    clock.advance(STAMPS_CHECK)
    assert one.get("other") is None
    assert one.get("k") == "old"
    assert "cannot be created again" in caplog.text


@pytest.mark.deep
@compiled_core
def test_an_exception_while_stamps_are_made_anew_leaves_no_cache_on_the_old_ones(process, tmp_path, clock):
    with quiet():
        for target in count(1):
            one = process(slots=64)
            one.set("k", "old")
            (file,) = tmp_path.iterdir()
            file.unlink()
            clock.advance(STAMPS_CHECK)
            delivery = Delivery(target)
            interrupted = delivery.run(lambda one=one: one.get("missing"))
            # Otherwise, the next check finds out.
            one.get("missing")
            clock.advance(STAMPS_CHECK)
            one.get("missing")
            other = process(slots=64)
            end_request()
            assert one.set("k", "newer"), delivery.where
            fill(other, key="j")
            assert one.get("k") == "newer", delivery.where
            assert other.set("k", "newest")
            assert one.get("k") is None, delivery.where
            one.close()
            other.close()
            if not interrupted:
                break
    assert target > 20


# The process forks.


def test_a_child_is_a_process_of_its_own(process):
    cache = process()
    cache.set_many({"k": "old", "l": "old", "m": "old"})

    def child():
        assert cache.get("k") == "old"
        cache.set("k", "new")
        assert cache.get("k") == "new"

    assert fork(child)
    assert (cache.get("k"), cache.get("l")) == (None, "old")
    cache.delete("l")

    def another_child():
        assert cache.get_many(["l", "m"]) == {"m": "old"}

    assert fork(another_child)


@pytest.mark.deep
def test_children_forked_in_the_middle_of_writes_never_get_an_old_value(map_stamps):
    cache = Cache(stamps=map_stamps(), interval=0.01, **QUIET)
    stop = threading.Event()

    def work(number):
        while not stop.is_set():
            for turn in range(50):
                cache.set(f"{number} {turn}", turn, ttl=5)
                cache.delete(f"{number} {turn}")
                cache.get(f"{number} {turn}")

    def child():
        cache.set("k", "child's")
        assert cache.get("k") == "child's"
        join(start(cache.set, "k", "its thread's"))
        assert cache.get("k") == "its thread's"

    threads = [start(work, number) for number in range(3)]
    try:
        for turn in range(10):
            cache.set("k", turn)
            assert fork(child)
            assert cache.get("k") is None
    finally:
        stop.set()
        join(*threads)
        cache.close()


@pytest.mark.deep
def test_a_child_forked_after_the_stamps_were_removed_returns_no_entry_of_before(process, stamps_file):
    cache, other = process(), process()
    # Filled under the stamps of the new file.
    fill(cache)
    other.delete("k")
    stamps_file.unlink()

    def child():
        assert cache.get("k") is None

    assert fork(child)


@pytest.mark.parametrize("can_open", [True, False])
def test_no_stamp_of_a_child_is_one_of_its_parents_and_no_cache_has_its_locks_taken(map_stamps, tmp_path, can_open):
    stamps = map_stamps()
    caches = [Cache(**QUIET), Cache(stamps=stamps, **QUIET), Cache(**QUIET)]
    slot, before = stamps.slot("k"), stamps.first
    parents = range(before, before + 2**40)
    caches[1].set("k", 1)
    assert stamps.table[slot] in parents

    def child():
        logging.disable()
        join(*[start(cache.set, "k", 2) for cache in caches])
        assert [cache.get("k") for cache in caches] == [2, 2, 2]
        written = [stamps.table[slot]]
        caches[1].clear()
        written.append(stamps.table[slot])
        assert [each for each in written if each in parents] == []

    folder = tmp_path if can_open else tmp_path.rename(tmp_path.with_name("elsewhere"))
    assert fork(child)
    folder.rename(tmp_path)
    # The child overwrote it, in the file that both have mapped.
    assert caches[1].get("k") is None
