"""Each rule of turns has a test that fails without it."""

import pytest

from tests.engine.loading import test_load_steps as steps
from wheelcache.core.contract import MISSING
from wheelcache.engine.entry_writer import EntryWriter
from wheelcache.engine.loading.loads import Loads
from wheelcache.engine.turns import Is, Turn, Turns


def never_late(patch):
    patch(Turn, "is_late_to_join", lambda turn: False)


def watched_since_the_store(patch):
    store = EntryWriter.store

    def store_under_a_fresh_watch(writer, key, value, ttl, grace, watch, *rest):
        return store(writer, key, value, ttl, grace, writer._core.watch(key), *rest)

    patch(EntryWriter, "store", store_under_a_fresh_watch)


def claimed_by_all(patch):
    def open_in_any_case(turns, turn):
        turn.watch = turns.new_watch(turn.watched)
        turn.state = Is.LEADS
        turns.open[turn.key] = turn
        return True

    patch(Turns, "claim", open_in_any_case)


def without_another_look(patch):
    patch(Loads, "look_again", lambda loads, request: MISSING)


MUTANTS = {
    never_late: steps.test_a_caller_that_joins_after_a_delete_between_store_and_end_does_not_get_the_old_value,
    watched_since_the_store: steps.test_a_value_whose_key_was_deleted_during_its_load_is_not_stored,
    claimed_by_all: steps.test_of_two_callers_that_find_no_load_in_progress_one_loads,
    without_another_look: steps.test_a_value_whose_load_ended_between_the_miss_and_the_claim_is_not_loaded_again,
}


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_test_fails_without_the_rule(monkeypatch, request, mutant):
    test = MUTANTS[mutant]
    names = test.__code__.co_varnames[: test.__code__.co_argcount]
    fixtures = {name: request.getfixturevalue(name) for name in names}
    mutant(monkeypatch.setattr)
    with pytest.raises(AssertionError):
        test(**fixtures)
