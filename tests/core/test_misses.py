"""Why look-ups missed, and the groups of keys. The reference core knows the causes that a look-up shows."""

import random
import re
from array import array
from collections import Counter
from itertools import islice
from typing import NamedTuple

import pytest

from benchmarks.policy_streams import STREAMS
from tests.core.conftest import Clock
from tests.core.implementations import COMPILED, CORES
from tests.core.labels import labels
from wheelcache.core.contract import GroupCounts, GroupRule, MissCause
from wheelcache.core.python_core import PythonCore

COMPILED_ONLY = pytest.mark.parametrize("core_class", [COMPILED], indirect=True)

RULES = (
    GroupRule(":1:template.cache.", "fragment ", "."),
    GroupRule(":1:sessions", "sessions", ""),
    GroupRule(":1:", "", ":"),
)


class Named(NamedTuple):
    name: str
    number: int

    def __len__(self):
        raise AssertionError("the core ran the code of a key")


def cause(core, key):
    return list(MissCause)[core.miss_cause(key)]


def misses(core):
    """Return the misses by group, without causes."""
    return {group.name: sum(group.misses) for group in core.groups()}


def counted(core):
    return {cause: count for cause, count in zip(MissCause, core.counts().causes, strict=True) if count}


@pytest.mark.parametrize("core_class", ["python"], indirect=True)
def test_the_reference_core_knows_the_causes_that_an_entry_shows(make, clock):
    trust = array("Q", [1])
    core = make(trust=trust)
    core.set("written", 1, None)
    trust[0] = 3
    core.set("expired", 1, 1)
    core.set("tagged", 1, None, labels=labels(("name",)))
    core.drop_tag("name")
    core.set("deleted", 1, None)
    core.delete("deleted")
    clock.now = 2.0
    keys = "expired", "tagged", "written", "deleted", "new"
    assert [cause(core, key) for key in keys] == [
        *(MissCause.EXPIRED, MissCause.TAG, MissCause.OTHER_PROCESS, MissCause.UNKNOWN, MissCause.UNKNOWN)
    ]
    core.advance()
    assert cause(core, "expired") is MissCause.UNKNOWN


@COMPILED_ONLY
def test_each_cause_is_known_while_the_entry_is_there_and_afterwards(make, clock):
    deleted, expired, tagged, heavy, replaced, new, evicted, cleared = range(8)
    core = make(max_entries=100, max_weight=10)
    core.set(deleted, 1, None)
    core.delete(deleted)
    core.set(expired, 1, 1)
    core.set(tagged, 1, None, labels=labels(("name",)))
    core.drop_tag("name")
    core.set(heavy, 1, None, weight=11)
    core.set(replaced, 1, None)
    core.set(replaced, 1, None, weight=11)
    clock.now = 2.0
    expected = {
        deleted: MissCause.DELETED,
        expired: MissCause.EXPIRED,
        tagged: MissCause.TAG,
        heavy: MissCause.NOT_STORED,
        replaced: MissCause.NOT_STORED,
        new: MissCause.NEW,
    }
    assert {key: cause(core, key) for key in expected} == expected
    core.advance()
    assert len(core) == 0
    assert {key: cause(core, key) for key in expected} == expected
    core.set(evicted, 1, None, weight=5)
    core.set(cleared, 1, None, weight=6)
    assert cause(core, evicted) is MissCause.EVICTED
    core.clear()
    core.drain()
    assert cause(core, cleared) is MissCause.CLEARED


@COMPILED_ONLY
@pytest.mark.parametrize("is_swept", [False, True])
def test_a_refused_value_is_the_cause_whether_or_not_the_wheel_has_removed_the_expired_entry(make, clock, is_swept):
    core = make(max_entries=100, max_weight=10)
    core.set("key", 1, None)
    core.touch("key", 1)
    clock.now = 2.0
    if is_swept:
        core.advance()
    core.set("key", 2, None, weight=11)
    assert cause(core, "key") is MissCause.NOT_STORED


@COMPILED_ONLY
def test_a_value_that_came_too_late_was_not_stored(make):
    core = make(max_entries=100)
    watch = core.watch("key")
    core.delete("key")
    core.fill("key", 1, None, watch)
    assert cause(core, "key") is MissCause.NOT_STORED
    core.set("key", 2, None)
    core.delete("key")
    assert cause(core, "key") is MissCause.DELETED


def test_the_causes_add_up_to_the_misses(make):
    core = make(max_entries=8)
    chance = random.Random(3)
    for number in range(3000):
        key = chance.randrange(40)
        if core.find(key) is None:
            core.count_miss(key)
            core.set(key, number, None)
    counts = core.counts()
    assert sum(counts.causes) == counts.misses > 0
    known = {MissCause.UNKNOWN} if isinstance(core, PythonCore) else {MissCause.EVICTED, MissCause.NEW}
    assert set(counted(core)) == known


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
    size = 2000
    core = CORES["compiled"](max_entries=size, policy=policy, seed=5)
    new = 10**9
    counts = []
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


def shares_of_misses(stream, size):
    """Return the shares of the causes of misses: as they are, and as a core counts them."""
    clock = Clock()
    core = CORES["compiled"](max_entries=size, clock=clock, seed=3)
    left, true, removed = {}, Counter(), []
    for time, key, lifetime in islice(stream, 100 * size):
        clock.now = time
        core.advance(removed=removed)
        if core.find(key) is None:
            left.update((gone, cause.value) for gone, _, cause in removed)
            true["expired" if core.times(key) else left.get(key, "new or long gone")] += 1
            removed.clear()
            core.count_miss(key)
            core.set(key, 1, lifetime, removed=removed)
    counts = core.counts()
    counted = {each.value: count / counts.misses for each, count in zip(MissCause, counts.causes, strict=True)}
    return {cause: count / counts.misses for cause, count in true.items()}, counted


@pytest.mark.compiled
@pytest.mark.deep
def test_the_causes_are_right_within_5_points_on_nearly_all_streams():
    off = {}
    for name, stream in STREAMS.items():
        true, counted = shares_of_misses(stream(random.Random(1), 1000), 1000)
        off[name] = max(abs(true.get(cause, 0.0) - share) for cause, share in counted.items())
    assert sum(each < 0.05 for each in off.values()) >= 12, off
    assert max(off.values()) < 0.08, off


@pytest.mark.parametrize("core_class", ["python"], indirect=True)
def test_the_reference_core_counts_exactly_in_one_group(make):
    core = make()
    core.group_by(RULES)
    assert core.groups() == []
    core.set(":1:user:1", 1, None)
    core.find(":1:user:1")
    core.count_hit("other")
    core.count_stale_hit("other")
    core.count_load("other", 0.5)
    core.count_miss("other")
    core.set(":1:user:1", 2, None, labels=labels(group="view"))
    core.count_miss("other", group="view")
    core.count_load("other", 0.5, group="view", has_failed=True)
    assert core.groups() == [GroupCounts("", 2, 1, 2, 2, 1, 1.0, core.counts().causes)]
    assert core.counts().misses == 2
    assert core.peek(":1:user:1").group == ""


@COMPILED_ONLY
def test_misses_and_loads_are_counted_for_the_group_of_the_key(make):
    core = make()
    core.group_by(RULES)
    keys = [
        *(":1:template.cache.side.0123", ":1:template.cache.side.4567", ":1:template.cache.head.89"),
        *(
            ":1:sessions:abc",
            ":1:user:5",
            (":1:user:6",),
            "user:7",
            ":1:plain",
            (":1:function", 1, 2),
            ("é", 1),
            ("other", 1),
            Named(":1:function", 1),
        ),
        *(":1:city:Zürich", ":1:Zürich:1", 5, "", (), b"bytes"),
    ]
    for key in keys:
        core.count_miss(key)
    named = {"fragment side": 2, "fragment head": 1, "sessions": 1, "user": 2, "function": 2, "city": 1}
    assert misses(core) == {**named, "": len(keys) - sum(named.values())}
    assert core.count_load(":1:user:9", 0.5) == "user"
    assert core.count_load(":1:user:9", 0.25, has_failed=True) == "user"
    assert core.count_load(":1:user:9", 0.0, group="view") == "view"
    assert core.count_load(":1:plain", 0.0) == ""
    (user,) = [group for group in core.groups() if group.name == "user"]
    assert (user.loads, user.load_failures, user.load_seconds) == (2, 1, 0.75)


@COMPILED_ONLY
def test_there_are_no_more_than_64_groups_of_bounded_names(make):
    core = make()
    core.group_by([GroupRule("", "", ":")])
    for number in range(100):
        core.count_miss(f"{number}:key")
    core.count_miss("x" * 97 + ":key")
    core.count_miss("x" * 200)
    core.count_miss("99:key")
    found = misses(core)
    assert len(found) == 65
    assert found[""] == 100 - 64 + 3
    assert found["63"] == 1


@COMPILED_ONLY
def test_every_stale_hit_is_counted_for_the_group_of_its_entry_only(make):
    core = make()
    core.group_by([GroupRule("", "", ":")])
    core.set("user:1", 1, None, labels=labels(group="view"))
    for key in ("user:1", "user:2", "user:2"):
        core.count_stale_hit(key)
    assert {group.name: (group.hits, group.stale_hits) for group in core.groups()} == {
        "": (0, 0),
        "view": (0, 1),
        "user": (0, 2),
    }
    assert core.counts().hits == 0


@COMPILED_ONLY
def test_other_rules_are_for_later_counts(make):
    core = make()
    core.group_by([GroupRule("", "", ":")])
    core.count_miss("a:1")
    core.group_by([GroupRule("a", "all of a", "")])
    core.count_miss("a:1")
    assert misses(core) == {"": 0, "a": 1, "all of a": 1}


def name_of(key):
    """Return the name of the group of a key by RULES, said once more."""
    text, *others = key if isinstance(key, tuple) else (key,)
    ascii_part = re.match("[\0-\x7f]*", text[:128])[0]
    is_whole = bool(others) and ascii_part == text[:128]
    for prefix, name, stop, _ in RULES:
        if ascii_part.startswith(prefix):
            part, found, _ = ascii_part.removeprefix(prefix).partition(stop) if stop else ("", "all", "")
            if found or is_whole:
                return name + part if len(name + part) <= 96 else ""
    return ""


@COMPILED_ONLY
def test_the_groups_are_those_of_the_rules(make):
    core, chance = make(seed=1), random.Random(8)
    core.group_by(RULES)
    for _ in range(3000):
        text = "".join(chance.choices(":.1ab", k=chance.randrange(70))) + chance.choice(["", "é", "x" * 70, "\x7f:"])
        key = chance.choice([text, (text,), (text, 1), (":1:" + text, 1), ":1:" + text, ":1:template.cache." + text])
        alone = make(seed=1)
        alone.group_by(RULES)
        for each in (core, alone):
            each.count_miss(key)
        assert {name for name, number in misses(alone).items() if number} == {name_of(key)}
    assert len(misses(core)) == 65
    assert sum(misses(core).values()) == 3000
