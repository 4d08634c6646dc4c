"""Files that are removed, replaced, damaged or too large: all processes go on with a new file, with one event."""

import os
import sqlite3
import subprocess
from contextlib import suppress
from shutil import rmtree

import pytest

from tests.host_cache.workers import damage, database, make_cache
from tests.waiting import join, start, until
from wheelcache.django_backend import HostCache
from wheelcache.host_cache import host_core, host_file, place
from wheelcache.runtime.private_files import locked_file

TICK = 1
MIB = 1 << 20


def events(caplog):
    return [record.getMessage() for record in caplog.records if record.name == "wheelcache"]


def test_a_removed_folder_is_noticed_within_a_tick_with_at_most_one_event_a_minute(
    view, folder, clock, caplog, monkeypatch
):
    writer, reader = view(), view()
    now = [1000.0]
    monkeypatch.setattr(host_file.SystemClock, "steady", lambda: now[0])
    removed = "The folder of the host cache 'default' was removed; it begins empty in a new one."
    for now[0], logged in ((1000.0, 2), (1059.9, 2), (1060.0, 4)):
        writer.set("key", "old")
        assert reader.get("key") == "old"
        rmtree(folder)
        started_later = view()
        started_later.set("key", "new")
        # One of the others only reads.
        clock.advance(TICK)
        assert reader.get("key") == writer.get("key") == "new"
        assert events(caplog) == [removed] * logged
        started_later.close()


def test_a_damaged_file_is_replaced_with_one_event(view, folder, caplog):
    caches = [view() for _ in range(3)]
    for cache in caches:
        cache.set("key", "old")
    before = database(folder)
    damage(folder)
    newcomer = view()
    assert newcomer.get("key") is None
    newcomer.set("key", "new")
    assert [cache.get("key") for cache in caches] == ["new"] * 3
    assert database(folder) != before
    (event,) = events(caplog)
    assert event.startswith("The host cache 'default' begins with a new file, without entries: ")


def test_an_error_that_a_new_file_does_not_end_reaches_the_caller(view, folder, monkeypatch):
    cache = view()
    monkeypatch.setattr(host_core.sql, "FIND", "SELECT unknown FROM entries")
    with pytest.raises(sqlite3.OperationalError, match="no such column"):
        cache.get("key")
    assert len([*folder.glob("*.sqlite3")]) == 1


def test_after_a_restart_of_the_machine_or_with_other_tables_the_cache_begins_empty(view, folder, monkeypatch):
    view().set("key", "old")
    boot = folder.with_name("boot")
    boot.write_text("fca4d577-6a5c-4e5f-9d2e-0d6a40a1b3c5\n")
    for name, value in (("BOOT_ID", boot), ("FORMAT", 7)):
        monkeypatch.setattr(place, name, value)
        before = database(folder)
        assert view().get("key") is None
        assert database(folder) != before
        view().set("key", "new")
        assert view().get("key") == "new"


def test_a_clear_leaves_no_file_behind(view, folder):
    cache, other = view(), view()
    for number in range(3):
        cache.set_many({"key": number, "other": 1})
        other.clear()
        assert other.stats().removals["cleared"] == 2 * (number + 1)
        assert cache.get("key") is None
        other.get("key")
        assert len([*folder.glob("*.sqlite3")]) == 1


@pytest.fixture
def small_disk(tmp_path):
    """Return a file system of 8 MiB."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a file system")
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", tmp_path], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.decode()}")
    yield tmp_path
    subprocess.run(["umount", "--lazy", tmp_path], check=True)


def test_entries_are_evicted_before_the_file_system_is_full_and_in_a_full_one_there_are_none(
    small_disk, clock, closed, caplog
):
    cache, other = (closed(make_cache(small_disk / "host", max_bytes=128 * MIB, clock=clock)) for _ in range(2))
    for number in range(4_000):
        assert cache.set(f"key {number}", "x" * 1000)
        assert other.set(f"other {number}", "x" * 1000)
        if number % 50 == 0:
            clock.advance(TICK)
    assert 4 * MIB < cache.stats().weight <= 6 * MIB
    assert cache.get("other 3999") is not None
    assert events(caplog) == []
    other_file = small_disk / "other file"
    with suppress(OSError), other_file.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    for number in range(100):
        cache.set(f"key {number}", "x" * 100_000)
    # Deletes never fail.
    cache.set("key", "new")
    other.delete("key")
    assert cache.get("key") is None
    assert other.get_or_load("key", lambda: "computed") == "computed"
    assert 1 <= len(events(caplog)) <= 4
    other_file.unlink()
    until(lambda: cache.set("key", "again") and other.get("key") == "again")


EXHAUSTED = """
import resource, socket
_, most = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (100, most))
taken = []
try:
    while True:
        taken.append(os.open(os.devnull, os.O_RDONLY))
except OSError:
    pass
"""


def test_a_process_that_cannot_open_the_file_leaves_no_outdated_entry_to_the_others(worker):
    poor, other = worker(), worker()
    poor("cache.set('k', 1)")
    # A fork closes the connections.
    poor("if os.fork() == 0: os._exit(0)")
    poor(EXHAUSTED)
    poor.send("(cache.get('k'), cache.delete('k'))")
    assert poor.answer(20) == (None, False)
    assert other("cache.get('k')") is None
    poor("[os.close(file) for file in taken]")
    assert until(lambda: poor("cache.set('k', 2), cache.get('k')")[1] == 2)
    assert other("cache.get('k')") == 2


def test_a_counter_without_a_file_begins_again_with_each_call(tmp_path):
    cache = HostCache(str(tmp_path / "host"), {"OPTIONS": {"FIGURES_DIR": None}})
    assert cache.incr("key", ignore_key_check=True) == 1
    (words,) = tmp_path.glob("host*/words")
    with locked_file(words):
        cache.clear()
        totals = []
        join(start(lambda: totals.extend(cache.incr("key", ignore_key_check=True) for _ in range(2))))
    assert totals == [1, 1]
