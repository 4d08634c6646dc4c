"""Random calls in nested blocks, compared with a model: a stack of dicts over the shared one."""

import pytest
from django.core.cache import caches
from django.db import transaction
from django.test import override_settings
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from tests.transactions.conftest import SETTINGS

KEYS = st.sampled_from(["a", "b", "c"])
TAGS = st.sampled_from(["x", "y"])
TAG_OR_NONE = st.sampled_from([None, "x", "y"])


class Blocks(RuleBasedStateMachine):
    """One thread, so no value is outdated, and the committed state is that of the model.

    Calls that act immediately are tested one by one.
    """

    def __init__(self):
        super().__init__()
        self.cache = caches["default"]
        self.cache.clear()
        self.blocks = []
        # The numbers and tags that the running code sees, outside and in each block.
        self.states = [{}]
        self.number = 0

    def teardown(self):
        while self.blocks:
            self.roll_back()

    def write(self, key, tag):
        self.number += 1
        self.states[-1][key] = self.number, tag
        return self.number

    @precondition(lambda self: len(self.blocks) < 4)
    @rule()
    def begin(self):
        self.blocks.append(transaction.atomic())
        self.blocks[-1].__enter__()
        self.states.append(dict(self.states[-1]))

    @precondition(lambda self: self.blocks)
    @rule()
    def commit(self):
        self.blocks.pop().__exit__(None, None, None)
        self.states.pop(-2)

    @precondition(lambda self: self.blocks)
    @rule()
    def roll_back(self):
        self.blocks.pop().__exit__(ValueError, ValueError(), None)
        self.states.pop()

    @rule(key=KEYS, tag=TAG_OR_NONE)
    def set(self, key, tag):
        self.cache.set(key, self.write(key, tag), tags=[tag] if tag else [])

    @rule(key=KEYS)
    def set_many(self, key):
        self.cache.set_many({key: self.write(key, None)})

    @rule(key=KEYS)
    def set_existing(self, key):
        old = self.states[-1].get(key)
        assert self.cache.set(key, self.number + 1, xx=True) is (old is not None)
        if old is not None:
            self.write(key, old[1])

    @rule(key=KEYS, tag=TAGS)
    def get_or_set(self, key, tag):
        known = self.states[-1].get(key)
        found = self.cache.get_or_set(key, lambda: self.write(key, tag), tags=[tag])
        assert found == (self.number if known is None else known[0])

    @rule(key=KEYS)
    def delete(self, key):
        assert self.cache.delete(key) is (self.states[-1].pop(key, None) is not None)

    @rule(tag=TAGS)
    def delete_tags(self, tag):
        self.cache.delete_tags(tag)
        self.states[-1] = {key: value for key, value in self.states[-1].items() if value[1] != tag}

    @rule()
    def clear(self):
        self.cache.clear()
        self.states[-1] = {}

    @rule(key=KEYS)
    def delete_pattern(self, key):
        self.cache.delete_pattern(f"{key}*")
        self.states[-1].pop(key, None)

    @invariant()
    def the_cache_shows_the_state(self):
        expected = {key: number for key, (number, _) in self.states[-1].items()}
        assert self.cache.get_many(["a", "b", "c"]) == expected
        assert {key: value for key in "abc" if (value := self.cache.get(key)) is not None} == expected
        for shown in (self.cache.keys("?"), [key for key in "abc" if self.cache.ttl(key)]):
            assert set(shown) == set(expected)
        assert [key in self.cache for key in "abc"] == [key in expected for key in "abc"]


@pytest.mark.hypothesis
@pytest.mark.django_db(transaction=True)
def test_random_calls_in_blocks_agree_with_the_model():
    with override_settings(CACHES={"default": SETTINGS["wheel"]}):
        run_state_machine_as_test(
            Blocks,
            settings=settings(
                max_examples=40, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
            ),
        )
