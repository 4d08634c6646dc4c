"""A cache whose entries are good for one epoch."""

import pytest

from tests.engine.test_fork import run
from wheelcache.cache import Cache
from wheelcache.loading.policy import LoadPolicy
from wheelcache.near_cache.trust_epoch import TrustEpoch


@pytest.fixture
def epoch():
    return TrustEpoch()


@pytest.fixture
def cache(clock, epoch):
    return Cache(stamps=epoch, clock=clock, jitter=0, log_interval=None, sample_interval=None)


def test_entries_are_good_as_long_as_the_epoch_they_were_filled_in(cache, epoch):
    cache.set("old", 1)
    epoch.write_all()
    cache.set("new", 2)
    assert (cache.get("old"), cache.get("new")) == (None, 2)


def test_writing_a_key_is_no_matter_of_the_others(cache):
    cache.set_many({"a": 1, "b": 2})
    cache.set("a", 3)
    cache.delete("a")
    assert cache.get("b") == 2


def test_what_was_read_before_the_end_of_an_epoch_is_no_hit_after_it(cache, epoch):
    assert cache.load_missing("k", epoch_ends(epoch), None, LoadPolicy()) == 1
    assert cache.get("k") is None
    assert cache.load_missing("k", lambda: 2, None, LoadPolicy()) == 2
    assert cache.get("k") == 2


def epoch_ends(epoch):
    def load():
        epoch.write_all()
        return 1

    return load


def test_a_suspect_entry_stays_for_who_has_no_other(cache, epoch, clock):
    cache.load_missing("k", lambda: 1, 10, LoadPolicy(keep=20))
    epoch.write_all()
    assert cache.get_stale("k") == 1
    clock.advance(29)
    assert cache.get_stale("k") == 1
    clock.advance(1)
    assert cache.get_stale("k", "default") == "default"


def test_a_read_that_finds_a_suspect_entry_leaves_it_until_a_fresh_one_takes_its_place(cache, epoch):
    cache.set("k", 1)
    epoch.write_all()
    assert cache.get("k") is None
    assert cache.get_stale("k") == 1
    cache.set("k", 2)
    assert (cache.get("k"), len(cache)) == (2, 1)


def test_what_is_filled_while_nothing_is_told_is_suspect_also_when_it_is_told_again(cache, epoch):
    epoch.is_told = False
    assert cache.load_missing("k", lambda: 1, None, LoadPolicy()) == 1
    assert (cache.get("k"), cache.get_stale("k")) == (None, 1)
    epoch.is_told = True
    assert (cache.get("k"), cache.get_stale("k")) == (None, 1)


def test_clearing_ends_the_epoch_for_those_who_are_reading(cache):
    assert cache.load_missing("k", clears(cache), None, LoadPolicy()) == 1
    assert cache.get("k") is None


def clears(cache):
    def load():
        cache.clear()
        return 1

    return load


def test_it_is_never_gone():
    assert not TrustEpoch().is_gone()


def test_what_the_child_of_a_fork_inherits_is_suspect_there_and_good_in_the_parent():
    assert run(
        """
        from wheelcache import Cache
        from wheelcache.near_cache.trust_epoch import TrustEpoch

        cache = Cache(stamps=TrustEpoch(), log_interval=None, sample_interval=None)
        cache.set("k", 1)

        def child():
            assert cache.get_stale("k") == 1
            assert cache.get("k") is None

        print(in_child(child), cache.get("k"))
        """
    ) == ["0", "1"]
