"""Commits in progress: no computed value that may be from before one is stored."""

import pytest

from tests.fill_waits.callers import MISS, ThreadCaller
from tests.waiting import PATIENCE, until_waiting
from wheelcache import RemovalCause
from wheelcache.engine.write_watcher import WriteMoments
from wheelcache.host_cache import write_moments

COMMITS = {"key": (["key"], False), "tag": (["#tag"], False), "all": ([], True)}


@pytest.fixture(params=COMMITS.values(), ids=COMMITS)
def begin(request, view):
    """Begin a commit in one more process. Return the function that ends it."""
    names, covers_all = request.param
    return lambda: view().engine.watcher(WriteMoments, WriteMoments).begin_commit(names, covers_all=covers_all)


@pytest.fixture
def is_stored(view):
    """Load a value, and return whether it was stored."""
    cache = view()

    def run(meanwhile=bool):
        def loader():
            meanwhile()
            return "old"

        assert cache.get_or_load("key", loader, tags=["tag"]) == "old"
        return cache.get("key") == "old"

    return run


@pytest.mark.parametrize("is_cleared", [False, True], ids=["one file", "a new file"])
def test_the_end_of_a_commit_leaves_the_marks_of_another(begin, is_stored, view, is_cleared):
    end_first, end_second = begin(), begin()
    if is_cleared:
        view().clear()
    assert not is_stored()
    end_second()
    assert not is_stored()
    end_first()
    assert is_stored()


def test_a_value_from_before_the_end_of_the_marks_of_a_killed_process_is_not_stored(begin, is_stored, monkeypatch):
    monkeypatch.setattr(write_moments, "MARKED", 0)
    # The second commit forgets the marks of the first one.
    assert not is_stored(lambda: (begin(), begin()()))
    assert is_stored()


@pytest.mark.parametrize("names", [["key"], ["#tag"]])
def test_a_set_during_a_commit_counts_as_one_before_it(view, names):
    cache = view()
    cache.set("key", "old", tags=["tag"])
    # A commit that has deleted a pattern as well.
    end = view().engine.watcher(WriteMoments, WriteMoments).begin_commit(names, covers_all=True)
    assert not cache.set("key", "older", tags=["tag"])
    assert cache.set("other", 1, tags=["another"])
    end()
    assert cache.get("key") is None
    assert cache.get("other") == 1


def test_a_set_without_tags_during_a_commit_ends_the_lease_on_the_key(view):
    cache = view()
    cache.set("another", 1)
    holder, waiter = ThreadCaller(cache), ThreadCaller(cache)
    try:
        assert holder.gets("key") == MISS
        asked = waiter.asks("key")
        until_waiting()
        view().engine.watcher(WriteMoments, WriteMoments).begin_commit(["key"], covers_all=False)
        assert not holder.does(cache.set, "key", "older")
        assert asked.result(PATIENCE) == MISS
    finally:
        holder.ends()
        waiter.ends()


def test_a_listener_receives_the_value_that_a_set_during_a_commit_removes(view):
    removed = []
    cache = view()
    cache.on_removal = lambda *arguments: removed.append(arguments)
    cache.set("key", "old")
    view().engine.watcher(WriteMoments, WriteMoments).begin_commit(["key"], covers_all=False)
    assert not cache.set("key", "older")
    assert removed == [("key", "old", RemovalCause.DELETED)]
    assert cache.stats().removals["deleted"] == 1
