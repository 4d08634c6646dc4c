"""No computed value is stored after a newer write, even if nothing of that write is left in the file."""

from threading import Event

import pytest

from tests.host_cache.workers import damage
from tests.waiting import PATIENCE, join, start
from wheelcache.engine.write_watcher import WriteMoments
from wheelcache.host_cache import host_core, host_file, write_moments
from wheelcache.runtime.private_files import locked_file


@pytest.fixture
def is_stored(view):
    """Load a key with a slow loader, during which another process calls ``meanwhile``. Return whether the value was
    stored."""

    def run(meanwhile=bool, **options):
        cache = view(max_entries=3)

        def loader():
            meanwhile()
            return "old"

        assert cache.get_or_load("key", loader, **options) == "old"
        return cache.get("key") == "old"

    return run


def evict(other):
    for number in range(3):
        other.set(f"other {number}", 0)
    assert other.get("key") is None


NEWER = {
    "set": lambda other: other.set("key", "new"),
    "delete": lambda other: other.delete("key"),
    "clear": lambda other: other.clear(),
    "set, which was evicted": lambda other: (other.set("key", "new"), evict(other)),
    "delete, and many evictions": lambda other: (other.delete("key"), evict(other), evict(other)),
}


@pytest.mark.parametrize("newer", NEWER.values(), ids=NEWER)
def test_a_value_whose_key_was_written_by_another_process_meanwhile_is_not_stored(is_stored, view, newer):
    other = view(max_entries=3)
    assert not is_stored(lambda: newer(other))


def test_a_value_is_not_stored_though_the_newer_one_has_expired_and_was_removed(is_stored, view, clock):
    other = view(max_entries=3)

    def set_and_let_expire():
        other.set("key", "new", 1)
        clock.advance(60)
        assert len(other) == 0

    assert not is_stored(set_and_let_expire)
    assert is_stored()


def test_a_value_whose_tag_was_dropped_meanwhile_is_not_stored_though_the_drop_is_forgotten(
    is_stored, view, clock, monkeypatch
):
    other = view(max_entries=3)
    monkeypatch.setattr(host_core, "DROPS_KEPT", 0)

    def drop(is_forgotten):
        other.set("other", 1, tags=["tag"])
        other.delete_tags("tag")
        if is_forgotten:
            clock.advance(60)

    for is_forgotten in (False, True):
        assert not is_stored(lambda is_forgotten=is_forgotten: drop(is_forgotten), tags=["tag"])
    assert is_stored(lambda: other.delete_tags("another"), tags=["tag"])


def test_a_drop_is_remembered_for_a_minute_so_values_with_other_tags_are_stored(is_stored, view, clock):
    other = view(max_entries=3)

    def drop():
        other.set("other", 1, tags=["tag"])
        other.delete_tags("tag")
        clock.advance(30)
        assert len(other) == 0

    assert is_stored(drop, tags=["another"])


def test_a_set_and_an_add_of_a_value_whose_tag_was_dropped_since_its_miss_store_nothing(view):
    cache, other = view(), view()
    for store in (cache.engine.set, cache.engine.add):
        since = write_moments.moment()
        other.delete_tags("tag")
        store("key", "old", None, tags=("tag",), since=since)
        assert cache.get("key") is None


def test_an_evicted_entry_of_before_does_not_refuse_a_value(is_stored, view):
    other = view(max_entries=3)
    other.set("key", "older")
    evict(other)
    assert is_stored()


# Commits in progress.

COMMITS = {"key": (["key"], False), "tag": (["#tag"], False), "all": ([], True)}


@pytest.fixture
def begin(view):
    """Begin a commit in one more process. Return the function that ends it."""
    return lambda names, covers_all=False: (
        view().engine.watcher(WriteMoments, WriteMoments).begin_commit(names, covers_all=covers_all)
    )


@pytest.mark.parametrize("commit", COMMITS.values(), ids=COMMITS)
@pytest.mark.parametrize("is_cleared", [False, True], ids=["one file", "a new file"])
def test_no_value_is_stored_during_a_commit_and_the_end_of_one_leaves_the_marks_of_another(
    begin, is_stored, view, is_cleared, commit
):
    end_first, end_second = begin(*commit), begin(*commit)
    if is_cleared:
        view().clear()
    assert not is_stored(tags=["tag"])
    end_second()
    assert not is_stored(tags=["tag"])
    end_first()
    assert is_stored(tags=["tag"])


def test_no_value_is_stored_during_a_commit_whose_marks_were_in_a_file_that_is_damaged(begin, is_stored, view, folder):
    end = begin(["key"])
    damage(folder)
    assert view().get("key") is None
    assert not is_stored()
    end()
    assert is_stored()


def test_marks_that_are_forgotten_let_no_value_be_stored_that_was_outdated_after_them(
    begin, is_stored, view, monkeypatch
):
    monkeypatch.setattr(write_moments, "MARKED", 0)
    begin(["of a killed process"])
    assert not is_stored(lambda: (view().engine.core().outdate_fills(), begin(["another"])()))


def test_a_value_whose_computation_began_during_a_commit_of_all_keys_is_not_stored_after_it(begin, is_stored):
    assert not is_stored(begin([], covers_all=True))
    assert is_stored()


@pytest.mark.parametrize("commit", COMMITS.values(), ids=COMMITS)
def test_a_value_from_before_the_end_of_the_marks_of_a_killed_process_is_not_stored(
    begin, is_stored, monkeypatch, commit
):
    monkeypatch.setattr(write_moments, "MARKED", 0)
    # The second commit forgets the marks of the first one.
    assert not is_stored(lambda: (begin(*commit), begin(*commit)()), tags=["tag"])
    assert is_stored(tags=["tag"])


@pytest.mark.parametrize(("names", "tags"), [(["key"], []), (["key"], ["tag"]), (["#tag"], ["tag"])])
def test_a_set_during_a_commit_counts_as_one_before_it(view, begin, names, tags):
    cache = view()
    cache.set("key", "old", tags=tags)
    # A commit that has deleted a pattern as well.
    end = begin(names, covers_all=True)
    assert not cache.set("key", "older", tags=tags)
    assert cache.set("other", 1, tags=["another"])
    end()
    assert cache.get("key") is None
    assert cache.get("other") == 1


CHANGES = {
    "set": lambda other: other.set("key", 1),
    "delete": lambda other: other.delete("key"),
    "clear": lambda other: other.clear(),
    "drop of the tag": lambda other: other.delete_tags("tag"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_transaction_sees_the_moment_of_each_write_of_its_keys_and_tags_by_others_and_of_no_other_key(view, change):
    moments, other = view().engine.watcher(WriteMoments, WriteMoments), view()
    before = [*moments.last_writes(["key", "#tag"])]
    other.set("another", 1)
    other.delete_tags("another")
    assert [*moments.last_writes(["key", "#tag"])] == before
    change(other)
    assert [*moments.last_writes(["key", "#tag"])] != before


# New files.


def test_a_value_that_was_outdated_without_a_file_is_not_stored_in_the_one_that_another_process_was_creating(
    view, folder, monkeypatch
):
    creating, loading, deleting, connect = view(), view(), view(), host_file.connect
    is_loading, is_created, loads = Event(), Event(), []
    creating.set("key", "older")
    assert loading.get("key") == deleting.get("key") == "older"
    with locked_file(folder / "words"):
        # For a second, these processes do not wait for a file again.
        loading.clear()
        assert deleting.get("key") is None

    def load():
        is_loading.set()
        assert is_created.wait(PATIENCE)
        return "old"

    def connect_after_others(path):
        monkeypatch.setattr(host_file, "connect", connect)
        loads.append(start(loading.get_or_load, "key", load))
        assert is_loading.wait(PATIENCE)
        deleting.delete("key")
        return connect(path)

    monkeypatch.setattr(host_file, "connect", connect_after_others)
    assert creating.get("key") is None
    is_created.set()
    join(*loads)
    assert creating.get("key") is None
