"""Random calls in nested blocks, compared with a model: a stack of dicts over the shared one."""

from typing import NamedTuple

import pytest
from django.core.cache import caches
from django.db import transaction
from django.test import override_settings
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from tests.transactions.conftest import FOLLOWS, SETTINGS, TIERED, WHEEL

KEYS = st.sampled_from(["a", "b", "c"])
TAGS = st.sampled_from(["x", "y"])
TAG_OR_NONE = st.sampled_from([None, "x", "y"])


class Value(NamedTuple):
    """
    Attributes:
        is_own: whether an open block has set it, so that nobody else sees it.
    """

    number: int
    tag: str | None
    is_own: bool


class Blocks(RuleBasedStateMachine):
    """One thread, so no value is outdated, and the committed state is that of the model."""

    cache = None
    has_store = False

    def __init__(self):
        super().__init__()
        self.cache.clear()
        self.blocks = []
        # The values that the running code sees, outside and in each block. The tags that each block has dropped since
        # it last cleared the cache, and whether it has.
        self.states = [{}]
        self.dropped = [set()]
        self.are_cleared = [False]
        # By key, the values that calls have made for all at once; None if there is none. The end of a block may remove
        # them, and does not share a value that the block has set before or after such a call.
        self.made = {}
        # The keys of values that a store has, although their tags were dropped.
        self.ghosts = set()
        self.number = 0

    def teardown(self):
        while self.blocks:
            self.roll_back()

    def next_number(self):
        self.number += 1
        return self.number

    def write(self, key, tag):
        number = self.next_number()
        self.states[-1][key] = Value(number, tag, bool(self.blocks))
        return number

    def acts_at_once(self, key):
        if self.blocks:
            self.made.setdefault(key, None)

    def change_for_all(self, key, new):
        self.made[key] = new
        for state in self.states:
            state[key] = new

    @precondition(lambda self: len(self.blocks) < 4)
    @rule()
    def begin(self):
        block = transaction.atomic()
        block.__enter__()
        self.blocks.append(block)
        self.states.append(dict(self.states[-1]))
        self.dropped.append(set())
        self.are_cleared.append(False)

    @precondition(lambda self: self.blocks)
    @rule()
    def commit(self):
        self.blocks.pop().__exit__(None, None, None)
        below = self.states.pop(-2)
        dropped, is_cleared = self.dropped.pop(), self.are_cleared.pop()
        self.dropped[-1] = dropped if is_cleared else self.dropped[-1] | dropped
        self.are_cleared[-1] |= is_cleared
        if not self.blocks:
            if self.has_store:
                self.ghosts.update(below, self.states[0])
                # The store has no token for them that others do not have.
                shared = {key: value for key, value in self.states[0].items() if value.tag not in self.dropped[0]}
                self.states[0] = shared
            self.states[0] = {key: value._replace(is_own=False) for key, value in self.states[0].items()}
            self.dropped, self.are_cleared = [set()], [False]
        self.see_what_was_made()

    @precondition(lambda self: self.blocks)
    @rule()
    def roll_back(self):
        error = ValueError()
        self.blocks.pop().__exit__(ValueError, error, None)
        self.states.pop()
        self.dropped.pop()
        self.are_cleared.pop()
        self.see_what_was_made()

    def see_what_was_made(self):
        for key, made in self.made.items():
            state, found = self.states[-1], self.cache.get(key)
            if found is None:
                state.pop(key, None)
            elif made is not None and found == made.number:
                state[key] = made
        if not self.blocks:
            self.made.clear()

    @rule(key=KEYS, tag=TAG_OR_NONE)
    def set(self, key, tag):
        self.cache.set(key, self.write(key, tag), tags=[tag] if tag else [])

    @rule(key=KEYS)
    def set_many(self, key):
        self.cache.set_many({key: self.write(key, None)})

    @rule(key=KEYS)
    def set_existing(self, key):
        old = self.states[-1].get(key)
        tag = None if old is None or (self.has_store and not old.is_own) else old.tag
        assert self.cache.set(key, self.number + 1, xx=True) is (old is not None)
        if old is not None:
            self.write(key, tag)

    @rule(key=KEYS, tag=TAGS)
    def get_or_set(self, key, tag):
        known = self.states[-1].get(key)
        found = self.cache.get_or_set(key, lambda: self.write(key, tag), tags=[tag])
        assert found == (self.number if known is None else known.number)

    @rule(key=KEYS, tag=TAG_OR_NONE)
    def add(self, key, tag):
        old = self.states[-1].get(key)
        number = self.next_number()
        if old is None or not old.is_own:
            self.acts_at_once(key)
        assert self.cache.add(key, number, tags=[tag] if tag else []) is (old is None)
        if old is None and any(tag in dropped for dropped in self.dropped):
            self.states[-1][key] = Value(number, tag, is_own=True)
        elif old is None:
            self.change_for_all(key, Value(number, tag, is_own=False))

    @rule(key=KEYS)
    def incr(self, key):
        old = self.states[-1].get(key)
        number = self.next_number()
        if old is None:
            self.acts_at_once(key)
            with pytest.raises(ValueError, match=key):
                self.cache.incr(key)
        elif old.tag and not old.is_own and self.has_store:
            self.acts_at_once(key)
            with pytest.raises(NotImplementedError):
                self.cache.incr(key)
        else:
            assert self.cache.incr(key, number - old.number) == number
            new = old._replace(number=number)
            if old.is_own:
                self.states[-1][key] = new
            else:
                self.change_for_all(key, new)

    @rule(key=KEYS)
    def touch(self, key):
        old = self.states[-1].get(key)
        found = self.cache.touch(key, 1000)
        assert found is (old is not None) or (old is None and key in self.ghosts)
        if old is None or not old.is_own:
            self.acts_at_once(key)

    @rule(key=KEYS)
    def delete(self, key):
        old = self.states[-1].pop(key, None)
        assert self.cache.delete(key) is (old is not None) or (old is None and key in self.ghosts)

    @rule(tag=TAGS)
    def delete_tags(self, tag):
        self.cache.delete_tags(tag)
        before, self.states[-1] = self.states[-1], {k: v for k, v in self.states[-1].items() if v.tag != tag}
        if self.blocks:
            self.dropped[-1].add(tag)
        elif self.has_store:
            self.ghosts.update(before.keys() - self.states[-1].keys())

    @rule()
    def clear(self):
        self.cache.clear()
        self.states[-1] = {}
        if self.blocks:
            self.dropped[-1], self.are_cleared[-1] = set(), True

    @rule(key=KEYS)
    def delete_pattern(self, key):
        self.cache.delete_pattern(f"{key}*")
        self.states[-1].pop(key, None)

    @invariant()
    def the_cache_shows_the_state(self):
        expected = {key: value.number for key, value in self.states[-1].items()}
        assert self.cache.get_many(["a", "b", "c"]) == expected
        assert {key: value for key in "abc" if (value := self.cache.get(key)) is not None} == expected
        assert {key for key in "abc" if key in self.cache} == set(expected)
        for shown in (set(self.cache.keys("?")), {key for key in "abc" if self.cache.ttl(key)}):
            assert set(expected) <= shown <= set(expected) | self.ghosts


@pytest.mark.hypothesis
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("alias", ["wheel", "tiered"])
def test_random_calls_in_blocks_agree_with_the_model(alias):
    behind = {"BACKEND": WHEEL, "LOCATION": "behind"}
    tiered = {"BACKEND": TIERED, "OPTIONS": {"L2": "store", **FOLLOWS}}
    with override_settings(CACHES={"default": {"wheel": SETTINGS["wheel"], "tiered": tiered}[alias], "store": behind}):
        Blocks.cache, Blocks.has_store = caches["default"], alias == "tiered"
        run_state_machine_as_test(
            Blocks,
            settings=settings(
                max_examples=40,
                stateful_step_count=25,
                deadline=None,
                suppress_health_check=list(HealthCheck),
            ),
        )
