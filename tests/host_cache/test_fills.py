"""No computed value is stored after a newer write, even if nothing of that write is left in the file."""

from threading import Event

import pytest

from tests.host_cache.workers import damage
from tests.waiting import PATIENCE, join, start
from wheelcache.engine.write_watcher import WriteMoments
from wheelcache.host_cache import host_file, place
from wheelcache.host_cache.place import EPOCH, Place
from wheelcache.runtime.private_files import FileLocked, locked_file

TICK = 60
"""Seconds after which the janitor has removed all expired rows."""


@pytest.fixture
def fill(view):
    """Load a key with a slow loader, during which another process calls ``meanwhile``. Return whether the value was
    stored."""

    def run(meanwhile, **options):
        cache = view(**options)

        def loader():
            meanwhile()
            return "old"

        assert cache.get_or_load("key", loader) == "old"
        return cache.get("key") == "old"

    return run


def test_a_fill_is_stored(fill):
    assert fill(lambda: None)


def test_a_fill_is_refused_after_a_write_by_another_process(fill, view):
    assert not fill(lambda: view().set("key", "new"))


def test_a_fill_is_refused_after_a_delete_by_another_process(fill, view):
    assert not fill(lambda: view().delete("key"))


def test_a_fill_is_refused_if_the_newer_write_has_expired_and_was_removed(fill, view, clock):
    def meanwhile():
        other = view()
        other.set("key", "new", 1)
        clock.advance(TICK)
        assert len(other) == 0

    assert not fill(meanwhile)


def test_a_fill_is_refused_if_the_newer_write_was_evicted(fill, view):
    def meanwhile():
        other = view(max_entries=3)
        other.set("key", "new")
        for number in range(3):
            other.set(f"other {number}", 0)
        assert other.get("key") is None

    assert not fill(meanwhile, max_entries=3)


def test_a_fill_is_refused_if_many_writes_and_evictions_came_after_the_delete(fill, view):
    def meanwhile():
        other = view(max_entries=3)
        other.set("key", "new")
        other.delete("key")
        for number in range(30):
            other.set(f"other {number}", 0)
        other.delete_many([f"other {number}" for number in range(30)])

    assert not fill(meanwhile, max_entries=3)


def test_a_fill_is_refused_after_a_clear(fill, view):
    assert not fill(lambda: view().clear())


def test_a_fill_is_refused_after_a_write_and_a_clear(fill, view):
    def meanwhile():
        other = view()
        other.set("key", "new")
        other.clear()

    assert not fill(meanwhile)


def test_a_fill_is_refused_if_the_file_was_damaged_and_replaced(fill, view, folder):
    def meanwhile():
        view().set("key", "new")
        damage(folder)
        # Other processes still have the pages in memory.
        assert view().get("key") is None

    assert not fill(meanwhile)


def test_a_fill_is_refused_if_its_tag_was_dropped_and_its_entries_are_gone(view, clock):
    cache, other = view(), view()

    def loader():
        other.set("other", 1, tags=["tag"])
        other.delete_tags("tag")
        clock.advance(TICK)
        return "old"

    cache.get_or_load("key", loader, tags=["tag"])
    assert cache.get("key") is None


def test_an_evicted_entry_of_before_does_not_refuse_a_fill(view):
    cache, other = view(max_entries=3), view(max_entries=3)
    other.set("key", "older")
    for number in range(3):
        other.set(f"other {number}", 0)
    assert cache.get_or_load("key", lambda: "computed") == "computed"
    assert cache.get("key") == "computed"


def leave_no_file(folder):
    """Leave the folder as a process that is killed while it makes a new file."""
    Place(folder).words[EPOCH] = 0


def leave_nothing(folder):
    """Do the same, but after the old file was removed."""
    leave_no_file(folder)
    for path in folder.glob("*.sqlite3*"):
        path.unlink()


@pytest.mark.parametrize("meanwhile", [lambda folder: None, leave_no_file, leave_nothing, damage])
def test_a_fill_is_refused_during_a_commit_that_deletes_its_key_also_in_a_new_file(view, folder, meanwhile):
    committing = view()
    committing.set("key", "old")
    end = committing.engine.watcher(WriteMoments, WriteMoments).begin_commit(["key"], covers_all=False)
    committing.delete("key")
    meanwhile(folder)
    other = view()
    # Notices a damaged file.
    other.set("another", 1)
    assert other.get_or_load("key", lambda: "old") == "old"
    assert other.get("key") is None
    end()
    assert other.get_or_load("key", lambda: "new") == other.get("key") == "new"


def test_a_clear_during_which_another_process_creates_a_file_leaves_no_time_without_one(view, folder, monkeypatch):
    cache, locked_file = view(), place.locked_file
    cache.set("key", "old")

    def begin_to_create(*args):
        monkeypatch.setattr(place, "locked_file", locked_file)
        leave_no_file(folder)
        raise FileLocked("by another process")

    monkeypatch.setattr(place, "locked_file", begin_to_create)
    cache.clear()
    # A delete that found no file would leave no trace in that of the other process.
    cache.set("key", "new")
    assert cache.get("key") == "new"


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
