"""The directory of figures: who lives, who is dead, what sums say meanwhile, and what else may lie there."""

import errno
import fcntl
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from functools import partial
from itertools import count, pairwise
from pathlib import Path
from unittest.mock import Mock

import pytest

from tests.scripts import FORKING
from tests.waiting import until
from wheelcache.errors import FileUnusable
from wheelcache.observability import figures_directory
from wheelcache.observability.figures_directory import (
    EXITED,
    FORGOTTEN,
    LOCK,
    NAMES,
    RESET,
    VERSION,
    FiguresDirectory,
    directory_of,
    remove_forgotten,
)
from wheelcache.observability.history import LENGTH, sample
from wheelcache.observability.worker_requests import CLEAR, REQUESTS, RequestBox
from wheelcache.observability.worker_stats import WorkerStats
from wheelcache.runtime import private_files
from wheelcache.stats import LOAD_BOUNDS, Stats

PRELUDE = """
import fcntl, os, signal, sys, time
from itertools import count
from pathlib import Path
from tests.observability.test_figures_directory import *

directory = FiguresDirectory(Path(sys.argv[1]))
"""


def figures(worker="1-a", name="pages", samples=0, **stats):
    now = Stats(**{"hits": 10, "size": 3, "weight": 30, **stats})
    return WorkerStats(
        name=name,
        worker=worker,
        pid=1,
        started=1.0,
        taken=100.0,
        thread="running",
        lag=0.0,
        interval=10.0,
        max_entries=100,
        max_weight=None,
        weighs_bytes=False,
        stats=now,
        now=5000.0,
        samples=tuple(sample(now, 10.0 * number, 0.0) for number in range(samples)),
    )


def start(script, *args):
    return subprocess.Popen(
        [sys.executable, *FORKING, "-c", PRELUDE + textwrap.dedent(script), *map(str, args)],
        cwd=Path(__file__).parents[2],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def run(script, *args):
    process = start(script, *args)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0, out
    return out.splitlines()


def dead(directory, worker="1-a", **what):
    """What a process that was killed leaves."""
    os.close(directory.publish(figures(worker, **what)))
    return directory.path / f"{worker}.worker"


def only(directory):
    (found,) = directory.read()
    return found


def exited_workers(directory):
    return {each.name: each.exited_workers.hits for each in directory.read()}


@pytest.fixture
def directory(tmp_path):
    return FiguresDirectory(tmp_path / "figures")


# Who may.


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077])
def test_the_directory_and_all_in_it_are_its_owners_only_whatever_the_umask(tmp_path, mask):
    before = os.umask(mask)
    try:
        directory = FiguresDirectory(tmp_path / "figures")
        dead(directory)
        directory.retire_the_dead()
        file = directory.publish(figures("2-b"))
        directory.reset(directory.read())
        RequestBox(directory.path).ask(CLEAR, "pages")
    finally:
        os.umask(before)
    os.close(file)
    assert stat.S_IMODE(directory.path.stat().st_mode) == 0o700
    found = {path.name: stat.S_IMODE(path.stat().st_mode) for path in directory.path.iterdir()}
    assert found == dict.fromkeys(("2-b.worker", EXITED, RESET, REQUESTS, LOCK), 0o600)


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o701])
def test_a_directory_that_others_may_use_is_refused(tmp_path, mode):
    tmp_path.chmod(mode)
    with pytest.raises(FileUnusable, match="for its owner only"):
        FiguresDirectory(tmp_path)


def test_a_link_to_a_directory_and_a_file_in_its_place_and_one_without_parent_are_refused(tmp_path, directory):
    link, file = tmp_path / "link", tmp_path / "file"
    link.symlink_to(directory.path)
    file.touch()
    for path in (link, file, tmp_path / "no" / "parent"):
        with pytest.raises(FileUnusable, match=str(path)):
            FiguresDirectory(path)


def test_a_directory_of_another_user_is_refused(directory, monkeypatch):
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with pytest.raises(FileUnusable, match="must belong to the user"):
        FiguresDirectory(directory.path)


def test_the_default_directory_is_the_same_for_a_site_and_another_for_others():
    paths = [directory_of(site) for site in ("test one", "test one", "test two", "test \udcff\0\n/../" + "x" * 10_000)]
    assert paths[0] == paths[1]
    assert len(set(paths)) == 3
    for path in set(paths):
        assert path.parent == private_files.runtime_directory()
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
        path.rmdir()


def test_without_a_directory_for_this_user_alone_there_is_no_default_and_that_is_logged(runtime_parent, caplog):
    runtime_parent.mkdir(mode=0o755)
    assert directory_of("shop") is None
    assert "The figures of the caches are not published" in caplog.text


def test_without_any_temporary_directory_there_is_no_default_and_that_is_logged(monkeypatch, caplog):
    # As in a container whose file systems are all read-only.
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    monkeypatch.setattr(tempfile, "gettempdir", Mock(side_effect=FileNotFoundError("no usable one")))
    assert directory_of("shop") is None
    assert "no usable one" in caplog.text


# What is published is read.


def test_what_is_published_is_read_with_all_its_samples(directory):
    published = figures(samples=LENGTH)
    file = directory.publish(published)
    assert only(directory).workers == (published,)
    assert only(directory).exited_workers == Stats()
    os.close(file)


def test_an_hour_of_samples_is_less_than_100_kb(directory):
    big = dict.fromkeys(("hits", "misses", "loads", "evictions", "expirations", "replacements", "deletions"), 10**9)
    file = directory.publish(figures(samples=LENGTH, **big))
    assert 10_000 < (directory.path / "1-a.worker").stat().st_size < 60_000
    os.close(file)


@pytest.mark.parametrize("name", ["", "/etc/passwd", "../" * 50, "a\0b", "\udc80", "x" * 100_000, "\n\r\t", "*?[", "é"])
def test_whatever_a_cache_is_called_is_told_again_living_and_dead(directory, name):
    file = directory.publish(figures(name=name))
    assert only(directory).name == name
    RequestBox(directory.path).ask(CLEAR, name)
    assert CLEAR in RequestBox(directory.path).last(name)
    os.close(file)
    directory.retire_the_dead()
    assert exited_workers(directory) == {name: 10}
    assert {path.name for path in directory.path.iterdir()} == {EXITED, REQUESTS, LOCK}


def test_caches_and_their_workers_are_listed_in_order(directory):
    names = ["b", "a", "b"]
    files = [directory.publish(figures(f"{10 - number}-x", name)) for number, name in enumerate(names)]
    assert [(each.name, [w.worker for w in each.workers]) for each in directory.read()] == [
        ("a", ["9-x"]),
        ("b", ["10-x", "8-x"]),
    ]
    for file in files:
        os.close(file)


# Who lives.


def test_who_is_killed_is_dead_and_who_is_stopped_lives(directory):
    process = start(
        """
        file = directory.publish(figures(str(os.getpid()), hits=7))
        print("published", flush=True)
        time.sleep(60)
        """,
        directory.path,
    )
    assert process.stdout.readline() == "published\n"
    os.kill(process.pid, signal.SIGSTOP)
    assert [each.stats.hits for each in only(directory).workers] == [7]
    process.kill()
    process.communicate()
    assert only(directory).workers == ()
    assert only(directory).exited_workers == Stats(hits=7)
    directory.retire_the_dead()
    assert only(directory).exited_workers == Stats(hits=7)
    assert {path.name for path in directory.path.iterdir()} == {EXITED, LOCK}


def test_counts_of_exited_workers_add_up_by_cache_and_gauges_do_not(directory):
    buckets = tuple(range(len(LOAD_BOUNDS) + 1))
    for number in range(3):
        dead(directory, f"{number}-x", load_buckets=buckets, load_seconds=0.5)
    dead(directory, "9-x", name="other")
    for _ in range(2):
        by_name = {each.name: each for each in directory.read()}
        expected = Stats(hits=30, load_seconds=1.5, load_buckets=tuple(3 * each for each in buckets))
        assert by_name["pages"].exited_workers == expected
        assert by_name["other"].exited_workers == Stats(hits=10)


def test_retiring_the_dead_leaves_the_living(directory):
    file = directory.publish(figures("1-a"))
    dead(directory, "2-b")
    directory.retire_the_dead()
    assert {path.name for path in directory.path.iterdir()} == {"1-a.worker", EXITED, LOCK}
    os.close(file)


@pytest.mark.deep
def test_readers_never_see_a_torn_file_nor_a_living_worker_as_dead_nor_sums_that_go_down(directory):
    """Two publish as fast as they can, two more come and go, and three read."""
    publishers = [
        start(
            """
            old = -1
            for number in count(1):
                file = directory.publish(figures(sys.argv[2], hits=number, samples=number % 50))
                if old >= 0:
                    os.close(old)
                old = file
            """,
            directory.path,
            f"{number}-lives",
        )
        for number in range(2)
    ]
    publishers += [
        start(
            """
            for number in count():
                worker = f"{number}-{sys.argv[2]}"
                os.close(directory.publish(figures(worker, "others", hits=1)))
                directory.remove(worker)
            """,
            directory.path,
            f"comes-{number}",
        )
        for number in range(2)
    ]
    script = """
        seen, least, reads, deadline = {}, 0, 0, time.monotonic() + 5
        while time.monotonic() < deadline:
            by_name = {each.name: each for each in directory.read()}
            pages = by_name.get("pages")
            if pages is not None:
                assert pages.exited_workers == Stats(), pages.exited_workers
                now = {each.worker: each.stats.hits for each in pages.workers}
                assert seen.keys() <= now.keys(), (seen, now)
                assert all(now[worker] >= hits for worker, hits in seen.items())
                seen = now
            if "others" in by_name:
                others = by_name["others"]
                total = (others.stats + others.exited_workers).hits
                assert total >= least, (total, least)
                least = total
            reads += 1
        print(len(seen), reads > 20, least > 10)
    """
    readers = [start(script, directory.path) for _ in range(3)]
    try:
        for reader in readers:
            out, _ = reader.communicate(timeout=60)
            assert (reader.returncode, out) == (0, "2 True True\n")
    finally:
        for each in publishers:
            each.kill()
            each.communicate()
    by_name = {each.name: each for each in directory.read()}
    assert by_name["others"].workers == by_name["pages"].workers == ()
    directory.retire_the_dead()
    assert {path.name for path in directory.path.iterdir() if path.name[0] != "."} == {EXITED, LOCK}


def test_what_was_replaced_since_it_was_opened_is_looked_at_anew(directory, monkeypatch):
    """The old file's lock is free by the time it is asked for; the inode tells."""
    files = [directory.publish(figures(hits=1))]
    flock = fcntl.flock
    looked = []

    def late(file, how):
        if how == fcntl.LOCK_SH | fcntl.LOCK_NB and len(looked) < 3:
            looked.append(file)
            files.append(directory.publish(figures(hits=len(files) + 1)))
            os.close(files.pop(0))
        return flock(file, how)

    monkeypatch.setattr(fcntl, "flock", late)
    assert [each.stats.hits for each in only(directory).workers] == [2]
    assert len(looked) == 3
    os.close(files[0])


def test_who_is_counted_by_another_reader_between_two_steps_is_counted_once(directory, monkeypatch):
    """Found living, and among the exited workers a moment later: the reader looks again."""
    file = directory.publish(figures())
    load = figures_directory.load_document
    moments = []

    def load_exited(path):
        moments.append(path)
        if len(moments) == 2:
            # Before it is loaded for the second time, and after the look at all workers.
            os.close(file)
            directory.remove("1-a")
        return load(path)

    monkeypatch.setattr(figures_directory, "load_document", load_exited)
    found = only(directory)
    assert (found.stats + found.exited_workers).hits == 10


def test_many_who_read_and_retire_at_once_count_the_dead_once(directory, together):
    for number in range(100):
        dead(directory, f"{number}-x", hits=1)

    def look(number):
        if number % 4 == 0:
            directory.retire_the_dead()
        return [exited_workers(directory) for _ in range(3)]

    for found in together(look):
        assert found == [{"pages": 100}] * 3
    directory.retire_the_dead()
    assert {path.name for path in directory.path.iterdir()} == {EXITED, LOCK}


# What goes wrong.


def test_whoever_is_killed_at_any_step_of_a_publication_leaves_whole_figures_and_the_next_cleans_up(directory):
    steps = run(
        """
        def until_killed(at):
            left = at
            def counted(function):
                def call(*args, **options):
                    nonlocal left
                    left -= 1
                    if left < 0:
                        os.kill(os.getpid(), signal.SIGKILL)
                    return function(*args, **options)
                return call
            for name in ("open", "write", "replace", "unlink", "close", "stat", "fstat"):
                setattr(os, name, counted(getattr(os, name)))
            fcntl.flock = counted(fcntl.flock)

        for at in count():
            worker = f"{at}-x"
            pid = os.fork()
            if pid == 0:
                file = directory.publish(figures(worker, hits=1))
                until_killed(at)
                new = directory.publish(figures(worker, hits=2))
                os.close(file)
                os.close(new)
                directory.remove(worker)
                os._exit(0)
            end = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            print(end, exited_workers(directory)["pages"])
            for path in directory.path.glob(".*"):
                os.utime(path, (1, 1))
            if end == 0:
                break
        dead(directory, "last", hits=0)
        directory.retire_the_dead()
        print(sorted(os.listdir(directory.path)))
        """,
        directory.path,
    )
    *killed, (end, total) = [tuple(map(int, line.split())) for line in steps[:-1]]
    assert end == 0
    assert all(each == -9 for each, _ in killed)
    totals = [0, *(each for _, each in killed), total]
    added = [after - before for before, after in pairwise(totals)]
    # First what was published before, from the moment of the replacement on the new: each once.
    assert set(added) == {1, 2}
    assert added == sorted(added)
    assert len(killed) > 10
    assert steps[-1] == str(sorted([EXITED, LOCK]))


def test_whoever_is_killed_at_any_step_of_counting_the_dead_never_has_them_counted_twice(directory):
    steps = run(
        """
        def until_killed(at):
            left = at
            def counted(function):
                def call(*args, **options):
                    nonlocal left
                    left -= 1
                    if left < 0:
                        os.kill(os.getpid(), signal.SIGKILL)
                    return function(*args, **options)
                return call
            for name in ("open", "write", "replace", "unlink", "close", "stat", "fstat", "lstat"):
                setattr(os, name, counted(getattr(os, name)))
            fcntl.flock = counted(fcntl.flock)

        for at in count():
            for number in range(3):
                dead(directory, f"{at}-{number}", hits=1)
            pid = os.fork()
            if pid == 0:
                until_killed(at)
                directory.retire_the_dead()
                os._exit(0)
            end = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            total = exited_workers(directory)["pages"]
            directory.retire_the_dead()
            assert exited_workers(directory)["pages"] == total
            print(end, total, len(list(directory.path.glob("*.worker"))))
            if end == 0:
                break
        """,
        directory.path,
    )
    found = [tuple(map(int, line.split())) for line in steps]
    assert [total for _, total, _ in found] == [3 * number for number in range(1, len(found) + 1)]
    assert {left for *_, left in found} == {0}
    assert [end for end, *_ in found] == [-9] * (len(found) - 1) + [0]
    assert len(found) > 20


@pytest.mark.parametrize("hindrance", ["a full disk", "a process that was stopped while it had the lock"])
def test_if_the_dead_cannot_be_counted_for_good_they_are_by_each_reader(directory, monkeypatch, hindrance):
    file = directory.publish(figures("2-b", hits=1))
    left = dead(directory)

    def fail(*args):
        raise OSError(errno.ENOSPC, "full")

    if hindrance == "a full disk":
        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", fail)
            directory.retire_the_dead()
    else:
        with private_files.locked_file(directory.path / LOCK):
            before = time.monotonic()
            directory.retire_the_dead()
            assert time.monotonic() - before < 1
    assert left.exists()
    assert [(each.stats.hits, each.exited_workers.hits) for each in directory.read()] == [(1, 10)]
    directory.retire_the_dead()
    assert not left.exists()
    assert exited_workers(directory) == {"pages": 10}
    os.close(file)


def test_a_full_disk_is_an_error_that_leaves_what_was_published_and_nothing_else_and_no_descriptor(directory):
    import resource

    file = directory.publish(figures())
    before = len(os.listdir("/proc/self/fd"))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        with pytest.raises(OSError, match=os.strerror(errno.EFBIG)):
            directory.publish(figures(hits=99))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert only(directory).stats.hits == 10
    assert os.listdir(directory.path) == ["1-a.worker"]
    assert len(os.listdir("/proc/self/fd")) == before
    os.close(file)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff\xfe\0",
        b"null",
        b"[]",
        b"7",
        b'{"version": 1}',
        b'{"version": 2, "stats": {}}',
        b'{"version": 1, "stats": {"hits": "x", "load_buckets": []}, "samples": []}',
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b"NaN",
        b"1" * 5000,
    ],
    ids=lambda content: str(content[:20]),
)
@pytest.mark.parametrize("lives", [True, False])
def test_what_cannot_be_read_hinders_nobody(directory, content, lives):
    good = directory.publish(figures())
    foreign = directory.path / "x.worker"
    foreign.write_bytes(content)
    for name in (EXITED, RESET, REQUESTS):
        (directory.path / name).write_bytes(content)
    dead(directory, "2-b", hits=1)
    with open(foreign) as file:
        if lives:
            fcntl.flock(file, fcntl.LOCK_EX)
        assert (only(directory).stats.hits, only(directory).exited_workers.hits) == (10, 1)
        assert directory.since_reset() == (None, {})
        assert RequestBox(directory.path).last("pages") == {}
        directory.retire_the_dead()
        assert (only(directory).stats.hits, only(directory).exited_workers.hits) == (10, 1)
        assert foreign.exists() == lives
    RequestBox(directory.path).ask(CLEAR, "pages")
    assert CLEAR in RequestBox(directory.path).last("pages")
    directory.reset(directory.read())
    assert directory.since_reset()[1]["1-a"].hits == 10
    os.close(good)


WRONG = {
    "name": [None, 1, ["a"]],
    "worker": [None, {}],
    "pid": ["1", None, 1.5],
    "started": ["now", None],
    "interval": ["10"],
    "max_entries": ["1", 0.5],
    "samples": [None, [[1]], [["x"] * 14], [[None] * 14], 7],
    "stats": [None, [], {}, {"load_buckets": [1]}, {"load_buckets": ["x"] * 14}, {"colour": 1, "load_buckets": []}],
}


@pytest.mark.parametrize(("field", "value"), [(field, each) for field, values in WRONG.items() for each in values])
def test_figures_of_another_make_are_left_out_rather_than_break_the_sums(directory, field, value):
    document = {"version": VERSION, **json.loads(json.dumps(figures().as_json()))}
    if field == "stats" and isinstance(value, dict):
        value = {**document["stats"], **value} if value else {}
    path = directory.path / "x.worker"
    path.write_text(json.dumps({**document, field: value}))
    good = directory.publish(figures("2-b"))
    with open(path) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        found = only(directory)
        assert (found.stats.hits, found.last_minute().hits, found.time_series().at) == (10, 0, ())
    directory.retire_the_dead()
    assert only(directory).exited_workers.hits == 0
    assert not path.exists()
    os.close(good)


def test_counts_of_exited_workers_by_a_newer_version_are_left_out_and_stop_nobody(directory):
    (directory.path / EXITED).write_text(
        json.dumps({"caches": {"new": {"colour": 1, "load_buckets": []}, "bad": None, "pages": {"hits": 1}}})
    )
    dead(directory)
    assert exited_workers(directory) == {"pages": 10}


def test_what_is_no_file_hinders_nobody(directory, tmp_path):
    """Links lead nowhere, and nobody waits for the other end of a pipe."""
    (tmp_path / "elsewhere").write_text("not to be touched")
    (directory.path / "1-link.worker").symlink_to(tmp_path / "elsewhere")
    (directory.path / "2-dangling.worker").symlink_to(tmp_path / "nowhere")
    (directory.path / "3-directory.worker").mkdir()
    os.mkfifo(directory.path / "4-pipe.worker")
    with socket.socket(socket.AF_UNIX) as there:
        there.bind(str(directory.path / "5-socket.worker"))
    (directory.path / ".directory").mkdir()
    os.utime(directory.path / ".directory", (1, 1))
    before = set(os.listdir(directory.path))
    dead(directory, "9-x")
    for _ in range(2):
        assert exited_workers(directory) == {"pages": 10}
        directory.retire_the_dead()
    assert set(os.listdir(directory.path)) == before | {EXITED, LOCK}
    assert (tmp_path / "elsewhere").read_text() == "not to be touched"
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("name", [LOCK, f".1-a.worker.{os.getpid()}"], ids=["the lock", "what is being written"])
def test_nothing_is_written_through_a_link(directory, tmp_path, name):
    (tmp_path / "elsewhere").write_text("not to be touched")
    (directory.path / name).symlink_to(tmp_path / "elsewhere")
    step = (
        partial(RequestBox(directory.path).ask, CLEAR, "pages")
        if name == LOCK
        else partial(directory.publish, figures())
    )
    with pytest.raises((OSError, FileUnusable)):
        step()
    assert (tmp_path / "elsewhere").read_text() == "not to be touched"


@pytest.mark.parametrize("name", ["1-a.worker", EXITED])
def test_a_link_in_the_place_of_a_file_is_replaced(directory, tmp_path, name):
    (tmp_path / "elsewhere").write_text("not to be touched")
    (directory.path / name).symlink_to(tmp_path / "elsewhere")
    dead(directory)
    for _ in range(2):
        assert exited_workers(directory) == {"pages": 10}
        directory.retire_the_dead()
    assert (tmp_path / "elsewhere").read_text() == "not to be touched"
    assert not (directory.path / EXITED).is_symlink()


def test_leftovers_go_when_they_are_a_minute_old(directory):
    old, young = (directory.path / f".{name}.worker.1" for name in ("old", "young"))
    for path in (old, young):
        path.touch()
    os.utime(old, (time.time() - 61,) * 2)
    dead(directory)
    directory.retire_the_dead()
    assert {path.name for path in directory.path.iterdir()} == {young.name, EXITED, LOCK}


def test_a_directory_that_is_gone_is_empty_for_who_reads_and_an_error_for_who_publishes(directory):
    directory.path.rmdir()
    assert directory.read() == []
    with pytest.raises(FileNotFoundError):
        directory.publish(figures())
    directory.make_again()
    os.close(directory.publish(figures()))


def test_a_default_directory_is_made_again_with_its_parent(runtime_parent):
    directory = FiguresDirectory(directory_of("shop"))
    directory.path.rmdir()
    directory.path.parent.rmdir()
    directory.make_again()
    assert stat.S_IMODE(directory.path.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(directory.path.stat().st_mode) == 0o700


def test_default_directories_that_nobody_used_for_long_go_unless_somebody_lives_there(runtime_parent, tmp_path):
    names = ["left", "stopped", "resting", "recent", "strange"]
    directories = {name: FiguresDirectory(directory_of(name)) for name in names}
    os.close(directories["stopped"].publish(figures()))
    directories["stopped"].retire_the_dead()
    os.close(directories["stopped"].publish(figures("2-b")))
    living = directories["resting"].publish(figures())
    (directories["strange"].path / "folder").mkdir()
    (elsewhere := tmp_path / "figures-of-mine").mkdir()
    for path in (*(each.path for each in directories.values()), elsewhere):
        if path != directories["recent"].path:
            os.utime(path, (0, time.time() - FORGOTTEN - 1))
    remove_forgotten()
    found = set(runtime_parent.iterdir())
    os.close(living)
    assert found == {directories[name].path for name in ("resting", "recent", "strange")}
    assert len(list(directories["resting"].path.glob("*.worker"))) == 1
    assert elsewhere.is_dir()


@pytest.mark.deep
def test_thousands_of_dead_workers_are_counted_in_seconds_and_leave_one_small_file(directory):
    path = dead(directory, "first", samples=20, hits=1)
    for number in range(3000):
        (directory.path / f"{number}-x.worker").write_bytes(path.read_bytes())
    path.unlink()
    before = time.monotonic()
    directory.retire_the_dead()
    assert exited_workers(directory) == {"pages": 3000}
    assert time.monotonic() - before < 20
    dead(directory, "last", hits=1)
    directory.retire_the_dead()
    assert {path.name for path in directory.path.iterdir()} == {EXITED, LOCK}
    assert (directory.path / EXITED).stat().st_size < 1000


@pytest.mark.deep
def test_names_do_not_pile_up(directory):
    path = dead(directory, "first")
    text = path.read_text()
    path.unlink()
    for number in range(NAMES + 10):
        (directory.path / f"{number:05}.worker").write_text(text.replace('"pages"', f'"name {number}"'))
        if number % 100 == 0:
            RequestBox(directory.path).ask(CLEAR, f"name {number}")
    directory.retire_the_dead()
    names = exited_workers(directory)
    assert len(names) == NAMES
    assert "name 9" not in names
    assert f"name {NAMES + 9}" in names


# Forks.


@pytest.mark.parametrize("step", ["publish", "retire"])
def test_the_child_of_a_fork_in_the_middle_of_a_step_holds_no_lock(directory, step):
    """Of a fork by another thread while this one publishes or counts; the parent is killed, its child lives on."""
    process = start(
        """
        import threading
        real = os.replace
        def in_the_middle(*args):
            real(*args)
            done = threading.Event()
            def fork():
                pid = os.fork()
                if pid == 0:
                    print("child", os.getpid(), flush=True)
                    time.sleep(60)
                    os._exit(0)
                done.set()
            threading.Thread(target=fork).start()
            done.wait()
            os.kill(os.getpid(), signal.SIGKILL)
        os.close(directory.publish(figures("dead")))
        os.replace = in_the_middle
        if sys.argv[2] == "publish":
            directory.publish(figures("parent"))
        else:
            directory.retire_the_dead()
        """,
        directory.path,
        step,
    )
    child = int(process.stdout.readline().split()[1])
    process.wait()
    try:
        assert only(directory).workers == ()
        assert exited_workers(directory) == {"pages": 20 if step == "publish" else 10}
        with private_files.locked_file(directory.path / LOCK, patience=0.0):
            pass
    finally:
        os.kill(child, signal.SIGKILL)
        process.communicate()


def test_no_descriptor_stays_open_in_the_child_of_a_fork_or_after_reading(directory):
    file = directory.publish(figures())
    dead(directory, "2-b")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(10):
        directory.read()
        RequestBox(directory.path).ask(CLEAR, "pages")
        directory.reset([])
    assert len(os.listdir("/proc/self/fd")) == before
    assert not private_files.not_for_children
    os.close(file)


# A reset.


def test_since_a_reset_is_told_what_was_counted_before(directory):
    file = directory.publish(figures())
    assert directory.since_reset() == (None, {})
    before = time.time()
    directory.reset(directory.read())
    at, counted = directory.since_reset()
    assert before <= at <= time.time()
    assert counted == {"1-a": figures().stats}
    assert only(directory).since(counted).stats == Stats(size=3, weight=30)
    os.close(file)


def test_two_threads_publish_and_read_at_the_same_time(directory):
    done = threading.Event()
    errors = []

    def publish(worker):
        file = -1
        try:
            for number in count(1):
                new = directory.publish(figures(worker, hits=number))
                if file >= 0:
                    os.close(file)
                file = new
                if done.is_set():
                    break
        except Exception as error:
            errors.append(error)
        os.close(file)

    threads = [threading.Thread(target=publish, args=(f"{number}-x",)) for number in range(2)]
    for thread in threads:
        thread.start()
    assert until(lambda: len(list(directory.path.glob("*.worker"))) == 2)
    try:
        for _ in range(200):
            assert len(only(directory).workers) == 2
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert errors == []
    assert only(directory).workers == ()
