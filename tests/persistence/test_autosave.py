"""The files of a directory: the choice of the file to load, the file that a process writes, and failures."""

import gc
import os
import stat
import struct
import threading
import time

import pytest

from tests.persistence.caches import kept
from tests.persistence.calling import Calling
from tests.waiting import PATIENCE, until
from wheelcache.errors import CacheClosed
from wheelcache.persistence.autosave import stem_of
from wheelcache.persistence.snapshot_file import MAGIC, SnapshotWriter
from wheelcache.persistence.snapshots import Snapshots
from wheelcache.runtime.exit_save import ExitSave
from wheelcache.runtime.worker_pool import refresh_pool


@pytest.fixture
def keep(folder, closed):
    """Make a cache that is saved in ``folder``, and its keeper."""

    def one(**options):
        cache = closed(kept(snapshot_dir=folder, **options))
        return cache, cache.keeper

    return one


@pytest.fixture
def saved(keep, folder):
    """Save caches at the same time, so that each has its own file. The first has the number 1, and is the oldest."""

    def save(*contents, **options):
        for age, values in zip(range(len(contents), 0, -1), contents, strict=True):
            cache, autosave = keep(**options)
            # Without loading the previous one.
            cache.clear()
            cache.set_many(values)
            assert autosave.save()
            (newest, *_) = autosave.snapshots()
            date(newest, -age)
        return autosave.snapshots()

    return save


def date(path, seconds):
    when = time.time_ns() + int(seconds * 1e9)
    os.utime(path, ns=(when, when))


def of_another_version(path):
    data = bytearray(path.read_bytes())
    data[len(MAGIC) : len(MAGIC) + 2] = struct.pack("<H", 1)
    path.write_bytes(data)


def files(folder, suffix=".snapshot"):
    return sorted(path.name for path in folder.iterdir() if path.name.endswith(suffix))


# The choice of the file.


def test_the_newest_is_loaded(keep, saved):
    saved({"a": 1}, {"a": 2}, {"a": 3})
    cache, _ = keep()
    assert cache.get("a") == 3


def test_one_of_a_time_to_come_is_not_the_newest(keep, saved):
    newest, *_ = saved({"a": 1}, {"a": 2}, {"a": 3})
    date(newest, 1000)
    cache, _ = keep()
    assert cache.get("a") == 2


def test_of_those_that_are_refused_the_next_is_loaded_and_they_are_renamed(keep, saved, folder, warnings):
    newest, second, _ = saved({"a": 1}, {"a": 2}, {"a": 3})
    newest.write_bytes(b"no snapshot")
    second.chmod(0o666)
    date(newest, -1)
    cache, _ = keep()
    assert cache.get("a") == 1
    assert len(warnings()) == 2
    assert files(folder, ".refused") == sorted(f"{path.name}.refused" for path in (newest, second))


def test_of_a_damaged_one_what_is_good_is_loaded_and_then_the_next(keep, saved, warnings):
    newest, _ = saved({"a": 1, "b": 1}, {"a": 2, "b": 2})
    newest.write_bytes(newest.read_bytes()[:-30])
    date(newest, -1)
    cache, _ = keep()
    assert cache.get("a") == 2
    assert cache.get("b") == 1
    assert len(warnings()) == 1


def test_those_of_another_version_are_one_line_of_log_and_stay_where_they_are(keep, saved, folder, warnings):
    paths = saved({"a": 1}, {"a": 2}, {"a": 3})
    before = files(folder)
    for path in paths[:2]:
        of_another_version(path)
        date(path, -1)
    cache, _ = keep()
    assert cache.get("a") == 1
    (line,) = warnings()
    assert line.startswith("The cache 'mine' ignores snapshots of another version: ")
    assert files(folder) == before
    assert files(folder, ".refused") == []


def test_a_process_replaces_its_own_file_whatever_version_wrote_it(keep, saved, folder):
    of_another_version(saved({"a": 1})[0])
    cache, autosave = keep()
    cache.set_many({"a": 2})
    assert autosave.save()
    assert len(files(folder)) == 2
    assert keep()[0].get("a") == 2


def test_of_another_secret_nothing_is_loaded_and_its_own_is_saved(keep, saved, warnings):
    saved({"a": 1}, snapshot_key=b"one")
    cache, autosave = keep(snapshot_key=b"another")
    assert cache.get("a") is None
    cache.set_many({"a": 2})
    assert autosave.save()
    assert keep(snapshot_key=b"another")[0].get("a") == 2
    assert len(warnings()) == 1


def test_an_error_of_a_load_is_logged_and_the_next_file_is_loaded(keep, saved, warnings, monkeypatch):
    newest, _ = saved({"a": 1}, {"a": 2})
    load_from = Snapshots.load_from

    def failing(snapshots, path, *args):
        return 1 / 0 if path == newest else load_from(snapshots, path, *args)

    monkeypatch.setattr(Snapshots, "load_from", failing)
    cache, _ = keep()
    assert cache.get("a") == 1
    assert warnings() == [f"The cache 'mine' cannot be loaded from {newest}."]


def test_where_there_is_nothing_nothing_is_loaded_or_logged(keep, folder, warnings):
    cache, autosave = keep()
    assert cache.get("a") is None
    folder.rmdir()
    autosave.load()
    assert warnings() == []


def test_a_cache_that_is_closed_while_it_is_loaded_loads_no_other_file(keep, saved, warnings):
    saved({"a": 1}, {"a": Calling(), "b": 1})
    cache, _ = keep()
    Calling.loading = staticmethod(cache.close)
    with pytest.raises(CacheClosed):
        cache.get("a")
    assert len(cache) == 0
    assert warnings() == []


def test_names_that_are_alike_are_told_apart(keep, saved):
    names = ["mine", "mine ", "Mine", "m/ne", "m?ne", "*", "é", "\udc80", "x" * 300, "x" * 301]
    for name in names:
        saved({"name": name}, name=name)
    for name in names:
        assert keep(name=name)[0].get("name") == name


# Saves.


def test_a_cache_that_was_not_used_or_was_closed_has_nothing_to_save(keep, folder):
    cache, autosave = keep()
    assert not autosave.save()
    assert list(folder.iterdir()) == []
    cache.get("a")
    cache.close()
    assert not autosave.save()
    assert list(folder.iterdir()) == []


def test_a_cache_whose_load_is_in_progress_keeps_its_file(keep, saved, folder):
    saved({"a": Calling()})
    before = files(folder)
    cache, autosave = keep()
    outcomes = []
    Calling.loading = staticmethod(lambda: outcomes.append(autosave.save()))
    assert cache.get("a") == "called"
    assert (outcomes, files(folder)) == ([None], before)
    assert autosave.save()


def test_files_are_their_owners_alone(saved, folder):
    (path,) = saved({"a": 1})
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.parametrize("end", ["closed", "collected", "closed while it saves", "forked"])
def test_who_is_gone_gives_its_number_back(keep, folder, end):
    cache = kept(snapshot_dir=folder)
    autosave = cache.keeper
    cache.set_many({"a": 1, "b": Calling()})
    assert autosave.save()
    if end == "closed":
        cache.close()
    elif end == "collected":
        del autosave, cache
        gc.collect()
    elif end == "forked":
        autosave.start_over()
    else:
        Calling.saving = staticmethod(cache.close)
        assert not autosave.save()
    other, its_own = keep()
    other.set_many({"a": 2})
    assert its_own.save()
    assert files(folder) == [f"{stem_of('mine')}.1.snapshot"]


def test_what_hinders_it_is_one_warning_and_once_it_is_gone_it_saves_again(keep, folder, warnings):
    cache, autosave = keep()
    cache.set_many({"a": 1})
    assert autosave.save()

    def remove():
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()

    remove()
    folder.write_text("in the way")
    assert [autosave.save() for _ in range(3)] == [None] * 3
    assert len(warnings()) == 1
    folder.unlink()
    assert autosave.save()
    assert len(files(folder)) == len(files(folder, ".lock")) == 1
    # Removed, and created again by another process, which now has the number.
    remove()
    other, its_own = keep()
    other.set_many({"a": 2})
    assert its_own.save()
    assert autosave.save()
    assert files(folder) == [f"{stem_of('mine')}.{number}.snapshot" for number in (1, 2)]
    assert len(warnings()) == 1


def test_a_full_disk_is_one_warning_and_the_old_file_stays(keep, saved, warnings, monkeypatch):
    cache, autosave = keep()
    cache.set_many({"a": 1})
    assert autosave.save()
    cache.set_many({"a": 2})

    def full(self, payload):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(SnapshotWriter, "write", full)
        assert [autosave.save() for _ in range(3)] == [None] * 3
    assert warnings() == ["The cache 'mine' cannot be saved: [Errno 28] No space left on device"]
    assert keep()[0].get("a") == 1
    assert autosave.save()
    assert keep()[0].get("a") == 2


# The periodic job.


class Saving:
    """A cache that the pool is saving, until ``go_on``."""

    def __init__(self, cache, autosave):
        self.begun, self.go_on = threading.Event(), threading.Event()
        self.threads = []
        cache.set_many({"a": Calling()})
        Calling.saving = staticmethod(self._pickled)
        autosave.run()
        assert self.begun.wait(PATIENCE)

    def _pickled(self):
        self.threads.append(threading.current_thread().name)
        self.begun.set()
        assert self.go_on.wait(PATIENCE)


def test_the_pool_saves_and_while_it_does_not_once_more(keep, folder):
    cache, autosave = keep()
    saving = Saving(cache, autosave)
    for _ in range(5):
        autosave.run()
    assert not autosave.save(0.01)
    saving.go_on.set()
    assert until(lambda: files(folder))
    assert saving.threads == ["wheelcache-refresh"]
    # After the one that was in progress.
    assert autosave.save()
    autosave.run()
    assert until(lambda: len(saving.threads) == 3)


@pytest.mark.parametrize("refusal", ["false", "error"])
def test_where_there_is_no_thread_for_it_that_is_one_warning(keep, warnings, monkeypatch, refusal):
    def refuse(job):
        if refusal == "error":
            raise RuntimeError("can't start new thread")
        return False

    cache, autosave = keep()
    cache.set_many({"a": 1})
    monkeypatch.setattr(refresh_pool, "submit", refuse)
    autosave.run()
    autosave.run()
    assert warnings() == ["The cache 'mine' is not saved: there is no thread for it."]


# At the exit.


class Noting:
    def __init__(self, save):
        self.save = save


def test_at_the_exit_each_is_saved_in_a_thread_of_its_own_in_what_time_is_left():
    exit_save, calls = ExitSave(5.0), []
    kept = [Noting(lambda seconds: calls.append((threading.current_thread().name, 0 < seconds <= 5))) for _ in range(2)]
    for each in kept:
        exit_save.add(each)
    exit_save.start()
    exit_save.run()
    assert calls == [("wheelcache-save", True)] * 2
    exit_save.run()
    assert len(calls) == 2


def test_where_no_thread_could_be_started_the_one_that_exits_saves(monkeypatch):
    def refuse(thread):
        raise RuntimeError("can't start new thread")

    exit_save, calls = ExitSave(5.0), []
    kept = Noting(lambda seconds: calls.append(threading.current_thread()))
    exit_save.add(kept)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        exit_save.start()
    exit_save.run()
    assert calls == [threading.current_thread()]
