"""Tags of the values in a store: no order of a read, a drop by another process and its report leaves an old copy."""

from functools import partial
from itertools import combinations_with_replacement
from random import choice

import pytest

from tests.near_cache.stores import near_cache
from wheelcache.core.contract import MISSING
from wheelcache.near_cache import tokens
from wheelcache.near_cache.store_tags import StoreTags, TaggedWrite, token_key
from wheelcache.runtime.clock import SystemClock, moment
from wheelcache.runtime.steps import drive


class Store(dict):
    """A store.

    Attributes:
        after: called after each read of a value or of tokens, with its number.
        reads: the number of reads.
    """

    after = staticmethod(lambda number: None)
    reads = 0

    def read(self, answer):
        self.reads += 1
        self.after(self.reads)
        return answer

    def get(self, key):
        return self.read(dict.get(self, key, MISSING))

    def get_tokens(self, keys):
        return self.read({key: self[key] for key in keys if key in self})

    def add_token(self, key, token):
        return self.setdefault(key, token) == token

    set_tokens = dict.update


class Process:
    """A process with a near cache in front of the store."""

    def __init__(self, clock, store):
        self.store = store
        self.near = near_cache(clock, tracked=True)
        self.near.trust(True)
        # As with a prefix of the keys: ``names`` are the keys of the store.
        self.tags = StoreTags(self.near, "{}".format)

    def set(self, key, value, *tags, since=0):
        begun = TaggedWrite(self.tags, tags, since)
        drive(begun.write(self.store, lambda sealed: self.store.update({key: sealed(value)})))

    def drop(self, *tags):
        """Drop tags as another process does, without a report to this one."""
        self.tags.drop(self.store, list(tags))

    def report(self, *tags):
        self.near.invalidated([token_key(tag).encode() for tag in tags])

    def get(self, key):
        return drive(self.near.get(key, lambda: self.tags.opened_one(self.store, self.store.get(key), encode=list)))

    def get_many(self, key):
        read = partial(self.tags.opened, self.store, encode=list)
        return drive(self.near.get_many([key], lambda keys: read(self.store.get_tokens(keys)))).get(key, MISSING)


@pytest.fixture
def store():
    return Store()


@pytest.fixture
def process(clock, store):
    return Process(clock, store)


READS = {"get": Process.get, "get_many": Process.get_many}
reads = pytest.mark.parametrize("read", READS.values(), ids=READS)

# The moments: before the read, after the value, after the tokens (before the copy is kept), after the read.
ORDERS = list(combinations_with_replacement(range(4), 2))


@reads
@pytest.mark.parametrize(("dropped", "reported"), ORDERS)
def test_no_copy_outlives_the_report_of_a_drop(process, store, read, dropped, reported):
    process.set("k", [1], "a", "b")

    def pass_moment(number):
        if number == dropped:
            process.drop("b")
        if number == reported:
            process.report("b")

    pass_moment(0)
    store.reads = 0
    store.after = pass_moment
    found = read(process, "k")
    store.after = Store.after
    assert found == (MISSING if dropped < 2 else [1])
    pass_moment(3)
    assert read(process, "k") is MISSING
    process.set("k", [2], "a", "b")
    assert read(process, "k") == [2]


@reads
def test_a_copy_is_read_without_the_store_until_a_report(process, store, read):
    process.set("k", [1], "a")
    assert [read(process, "k") for _ in range(3)] == [[1]] * 3
    assert store.reads == 3  # one by ``set``
    process.report("other")
    assert read(process, "k") == [1]
    assert store.reads == 3


def test_a_store_that_loses_a_token_causes_misses_and_brings_no_value_back(process, store):
    process.set("old", [1], "a")
    process.drop("a")
    process.set("k", [2], "a", "b")
    assert process.get("k") == [2]
    del store[token_key("a")]
    process.near.invalidated([token_key("a").encode()])
    assert [process.get("k"), process.get("old")] == [MISSING, MISSING]
    process.set("other", [3], "a")
    assert [process.get("k"), process.get("old"), process.get("other")] == [MISSING, MISSING, [3]]


def test_two_processes_that_make_a_token_together_use_the_same_one(clock, process, store):
    other = Process(clock, store)

    def set_another(number):
        store.after = Store.after
        other.set("their", [1], "a")

    store.after = set_another
    process.set("our", [2], "a")
    assert [process.get("our"), process.get("their")] == [[2], [1]]


def test_a_value_that_was_computed_before_a_drop_is_not_stored_as_current_before_the_drop_is_reported(process):
    process.set("made", [1], "a")
    since = moment()
    process.drop("a")
    process.set("k", [1], "a", since=since)
    assert process.get("k") is MISSING
    process.set("k", [2], "a", since=moment())
    assert process.get("k") == [2]


def test_a_drop_before_the_first_token_of_its_tag_is_made_is_seen(process, store):
    since = moment()

    def drop(number):
        store.after = Store.after
        process.drop("a")

    store.after = drop
    process.set("k", [1], "a", since=since)
    assert process.get("k") is MISSING


def test_the_first_token_of_a_tag_drops_no_value(process):
    since = moment()
    process.set("k", [1], "a", since=moment())
    process.set("other", [1], "a", since=since)
    assert process.get("other") == [1]


def test_a_drop_whose_token_the_store_has_lost_is_known_by_its_report(process, store):
    since = moment()
    process.drop("a")
    process.report("a")
    del store[token_key("a")]
    process.set("k", [1], "a", since=since)
    assert process.get("k") is MISSING


# Another machine, whose moments mean nothing here.

SECONDS = 10**9


@pytest.fixture
def drop_elsewhere(monkeypatch, process):
    """Drop the tag "a" on another machine, ``seconds`` ago by its clock."""

    def drop(seconds=0.0):
        now = SystemClock.time() - seconds
        with monkeypatch.context() as patched:
            patched.setattr(tokens, "MACHINE", "elsewhere")
            patched.setattr(tokens, "moment", lambda: moment() + choice((-1, 1)) * 10**6 * SECONDS)
            patched.setattr(SystemClock, "time", lambda: now)
            process.drop("a")

    return drop


@pytest.mark.parametrize("seconds", [-4.9, 0, 4.9])
def test_a_value_that_was_computed_around_a_drop_on_another_machine_is_not_kept(process, drop_elsewhere, seconds):
    since = moment()
    drop_elsewhere(seconds)
    process.set("k", [1], "a", since=since)
    assert process.get("k") is MISSING
    process.set("k", [2], "a", since=moment())
    assert process.get("k") == [2]


def test_a_value_that_was_computed_long_after_a_drop_on_another_machine_is_kept_immediately(process, drop_elsewhere):
    drop_elsewhere(5.1)
    process.set("k", [1], "a", since=moment())
    assert process.get("k") == [1]
    drop_elsewhere(5.1)
    process.set("other", [1], "a", since=moment() - 2 * SECONDS)
    assert process.get("other") is MISSING


@reads
def test_a_value_computed_after_a_drop_on_another_machine_was_read_is_kept(process, drop_elsewhere, read):
    process.set("k", [1], "a")
    drop_elsewhere()
    assert read(process, "k") is MISSING
    process.set("k", [2], "a", since=moment())
    assert read(process, "k") == [2]


@reads
def test_a_value_whose_computation_began_before_a_drop_elsewhere_was_read_is_not_kept(process, drop_elsewhere, read):
    process.set("k", [1], "a")
    since = moment()
    drop_elsewhere()
    assert read(process, "k") is MISSING
    process.set("k", [2], "a", since=since)
    assert read(process, "k") is MISSING


def test_the_tokens_of_other_machines_that_are_remembered_are_bounded(process, drop_elsewhere, monkeypatch):
    monkeypatch.setattr(tokens, "MOST", 2)
    drop_elsewhere()
    token = process.store[token_key("a")]
    for key in "abcd":
        process.near.tokens.note({key: token})
        assert len(process.near.tokens._read) <= 2


@pytest.mark.parametrize("value", [{"wheelcache.tags": 7, "value": 1}, {"wheelcache.tags": {"a": ""}, "value": 1}])
def test_a_value_that_looks_like_an_envelope_is_stored_as_it_is(process, value):
    process.set("k", value)
    assert process.get("k") == list(value)


def test_each_tag_has_a_key_of_its_own_that_every_store_accepts():
    tags = ["a", "#a", "ö", "\n", "x" * 100, "x" * 101, token_key("ö").removeprefix(tokens.MARK)]
    keys = [token_key(tag) for tag in tags]
    assert len(set(keys)) == len(tags)
    assert all(key.isascii() and key.isprintable() and len(key) <= 120 for key in keys)
    assert (keys[0], keys[4]) == ("wheelcache.tag.a", "wheelcache.tag." + "x" * 100)
