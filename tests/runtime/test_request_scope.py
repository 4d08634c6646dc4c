"""Scopes of threads and tasks: which code's misses a write answers. Leases are tested with ``fill_waits``."""

import asyncio
import gc
from collections import deque

import pytest

from tests.waiting import PATIENCE, join, start
from wheelcache.runtime import request_scope
from wheelcache.runtime.request_scope import MAX_MISSES, NotedMisses, current_scope, end_request, forget_misses


@pytest.fixture
def noted():
    yield NotedMisses()
    end_request()


def test_a_note_is_that_of_the_thread_that_missed(noted, in_thread):
    noted.add("key", 5)
    noted.add(None, 5)
    assert in_thread(noted.pop, "key").result(PATIENCE) == 0
    assert (noted.get("key"), noted.pop("key"), noted.pop("key")) == (5, 5, 0)
    assert noted.scopes == set(), "no caller has missed a key"


def test_a_task_acts_for_the_code_that_has_started_it_and_not_for_its_child(noted):
    async def child():
        noted.add("of the child", 7)
        return noted.pop("of the parent")

    async def main():
        noted.add("of the parent", 5)
        return await asyncio.create_task(child()), noted.pop("of the child")

    assert asyncio.run(main()) == (5, 0)


def test_a_task_and_a_finished_one_whose_context_is_left_have_scopes_of_their_own(noted):
    async def main():
        return current_scope()

    mine, loop = current_scope(), asyncio.new_event_loop()
    of_tasks = [loop.run_until_complete(main()) for _ in range(2)]
    loop.close()
    assert len({mine, *of_tasks, current_scope()}) == 3
    assert all(each.is_over() for each in of_tasks)
    assert current_scope() is mine


@pytest.mark.parametrize("end", [end_request, forget_misses])
def test_the_end_of_a_request_forgets_its_misses_and_reports_their_keys(noted, end):
    noted.missed_keys = deque()
    noted.add("key", 5)
    end()
    assert (noted.pop("key"), noted.scopes, [*noted.missed_keys]) == (0, set(), ["key"])


def test_more_misses_than_a_scope_notes_are_forgotten(noted):
    for key in range(MAX_MISSES):
        noted.add(key, 5)
    assert noted.get(0) == 5
    noted.add("one more", 5)
    assert (noted.get(0), noted.get("one more")) == (0, 5)


def test_the_notes_of_a_thread_end_with_it(noted):
    join(start(noted.add, "key", 5))
    gc.collect()
    assert noted.scopes == set()


def test_code_on_its_own_answers_no_miss_of_its_caller(noted):
    noted.add("key", 5)
    request_scope.on_its_own()
    assert noted.pop("key") == 0


def test_the_notes_of_a_task_end_with_it(noted):
    async def main():
        noted.add("key", 5)
        return current_scope()

    noted.missed_keys = deque()
    scope = asyncio.run(main())
    assert (scope.misses, noted.scopes, [*noted.missed_keys]) == ({}, set(), ["key"])
