"""Requests of operators: which workers run a request, when, and that readers never run it."""

import json

import pytest

from tests.watch.processes import run
from tests.watch.published import INTERVAL, look
from wheelcache.pages.figures import Figures
from wheelcache.runtime.clock import SystemClock
from wheelcache.watch.inquiries import CLEAR, PURGE, PURGES_KEPT, inquiries_in


@pytest.fixture
def cache(make):
    return make()


def ask(path, action=CLEAR, **arguments):
    return look(path).ask(action, "pages", **arguments)


def test_an_action_that_a_worker_does_not_know_is_passed_over(cache, path, clock):
    cache.set("a", 1)
    ask(path, "paint it black")
    ask(path, "save")
    clock.advance(INTERVAL)
    assert cache.get("a") == 1


# The workers.


def test_a_request_takes_effect_once_in_each_worker_that_lives_and_in_none_that_comes_later(path, make, clock):
    first, second, other = make(), make(), make("other")
    for cache in (first, second, other):
        cache.set("a", 1)
    clock.advance(INTERVAL)
    ask(path)
    late = make()
    late.set("a", 1)
    clock.advance(10 * INTERVAL)
    assert [cache.stats().clearings for cache in (first, second, other, late)] == [1, 1, 0, 0]


def test_the_child_of_a_fork_ignores_what_was_asked_of_its_parent_and_runs_what_is_asked_of_it(path):
    """The parent never reads requests, like a master process that only preloads the application."""
    assert run(
        """
        cache = make()
        look(path).ask(CLEAR, "pages")
        pid = os.fork()
        if pid == 0:
            cache.set("a", 1)
            clock.advance(3)
            print(cache.get("a"))
            look(path).ask(CLEAR, "pages")
            clock.advance(3)
            print(cache.get("a"), flush=True)
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        """,
        path,
    ) == ["1", "None"]


# Requests with an argument.


@pytest.fixture
def purged(cache, clock):
    """The targets that the worker has purged."""
    found = []
    cache.engine.keep_pages(Figures(), clock, purge=found.append, before_clear=list)
    cache.set("a", 1)
    return found


def test_purges_of_different_targets_are_different_requests(cache, purged, path, clock):
    targets = ["https://example.com/a b", "https://example.com/", "example.com:8000", "example.com"]
    for target in [*targets, "https://example.com/"]:
        ask(path, PURGE, target=target)
    clock.advance(INTERVAL)
    assert sorted(purged) == sorted(targets)
    clock.advance(600)
    assert len(purged) == len(targets)
    ask(path, PURGE, target="example.com:8000")
    clock.advance(INTERVAL)
    assert purged[-1] == "example.com:8000"
    assert cache.get("a") == 1


def test_old_purges_are_removed(purged, path, clock, monkeypatch):
    ask(path, CLEAR)
    for number in range(50):
        ask(path, PURGE, target=f"https://example.com/{number}")
    clock.advance(INTERVAL)
    now = SystemClock.time()
    monkeypatch.setattr(SystemClock, "time", lambda: now + PURGES_KEPT + 1)
    ask(path, PURGE, target="https://example.com/again")
    kept = [json.loads(document) for file in look(path).files for _, _, document, *_ in file.read(inquiries_in, list)]
    assert kept == [{"kind": CLEAR}, {"kind": PURGE, "target": "https://example.com/again"}]
    clock.advance(INTERVAL)
    assert purged[-1] == "https://example.com/again"
    assert len(purged) == 51
