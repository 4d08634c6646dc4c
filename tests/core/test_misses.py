"""Why look-ups missed. The reference core knows the causes that a look-up shows."""

from array import array

import pytest

from tests.core.cores import CORES, compiled, labels
from wheelcache.core.contract import MissCause
from wheelcache.core.python_core import PythonCore


def cause(core, key):
    return list(MissCause)[core.miss_cause(key)]


def counted(core):
    return {cause: count for cause, count in zip(MissCause, core.counts().causes, strict=True) if count}


def test_an_entry_that_is_there_shows_the_cause(make, clock):
    trust = array("Q", [1])
    core = make(trust=trust)
    core.set("written", 1, None)
    trust[0] = 3
    for key in ("expired", "tagged", "fresh"):
        core.set(key, 1, 1 if key == "expired" else None, labels=labels(("name",) if key == "tagged" else ()))
    core.drop_tag("name")
    clock.now = 1.0
    assert cause(core, "expired") is MissCause.EXPIRED
    assert cause(core, "tagged") is MissCause.TAG
    assert cause(core, "written") is MissCause.OTHER_PROCESS
    no_cause = MissCause.UNKNOWN if isinstance(core, PythonCore) else MissCause.NEW
    assert cause(core, "fresh") is cause(core, "new") is no_cause
    core.advance()
    known = cause(core, "expired"), cause(core, "tagged")
    assert known == ((no_cause,) * 2 if isinstance(core, PythonCore) else (MissCause.EXPIRED, MissCause.TAG))


@compiled
def test_the_cause_of_an_entry_that_has_left_is_known(make, clock):
    deleted, expired, heavy, replaced, late, new, evicted, cleared = range(8)
    core = make(max_entries=100, max_weight=10)
    core.set(deleted, 1, None)
    core.delete(deleted)
    core.set(expired, 1, 1)
    core.set(heavy, 1, None, weight=11)
    core.set(replaced, 1, 1)
    watch = core.watch(late)
    core.delete(late)
    core.fill(late, 1, None, watch)
    clock.now = 2.0
    core.set(replaced, 1, None, weight=11)
    core.advance()
    core.set(evicted, 1, None, weight=5)
    core.set(cleared, 1, None, weight=6)
    core.clear()
    core.drain()
    assert len(core) == 0
    assert {key: cause(core, key) for key in range(8)} == {
        deleted: MissCause.DELETED,
        expired: MissCause.EXPIRED,
        new: MissCause.NEW,
        **dict.fromkeys((heavy, replaced, late), MissCause.NOT_STORED),
        evicted: MissCause.EVICTED,
        cleared: MissCause.CLEARED,
    }
    core.set(late, 2, None)
    core.delete(late)
    assert cause(core, late) is MissCause.DELETED


def test_the_cause_when_the_look_up_began_counts_after_the_value_was_stored(make):
    core = make()
    core.set("key", 1, None, labels=labels(("name",)))
    core.drop_tag("name")
    began = core.miss_cause("key")
    core.set("key", 2, None)
    core.count_miss("key", began)
    assert counted(core) == {MissCause.TAG: 1}


@pytest.mark.compiled
@pytest.mark.parametrize("policy", ["lru", "adaptive"])
def test_the_sample_tells_evicted_keys_from_new_ones_long_after_they_left(policy):
    """Five times as many keys as places, in a loop, and as many new ones: half of the misses were evicted before."""
    size, new, counts = 2000, 10**9, []
    core = CORES["compiled"](max_entries=size, policy=policy, seed=5)
    for _ in range(4):
        before = core.counts().causes
        for number in range(5 * size):
            for key in (number, new + number):
                core.count_miss(key)
                core.set(key, 1, None)
        new += 5 * size
        counts.append([now - then for now, then in zip(core.counts().causes, before, strict=True)])
    evicted = counts[-1][list(MissCause).index(MissCause.EVICTED)] / sum(counts[-1])
    assert 0.4 < evicted < 0.6, "with the table of all keys alone, it is 0"
