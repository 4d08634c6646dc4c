"""The directory of figures: which workers live, which are gone, and what sums say meanwhile."""

import errno
import fcntl
import os
import signal
import time
from dataclasses import replace
from itertools import pairwise

import pytest

from tests.full_disk import room_for
from tests.observability.processes import run, start
from tests.observability.published import EXITED, LOCK, Stats, dead, exited_workers, figures, only
from wheelcache.observability import figures_directory
from wheelcache.observability.worker_requests import CLEAR, REQUESTS, RequestBox
from wheelcache.runtime import private_files
from wheelcache.stats import LOAD_BOUNDS, StoreStats


def test_what_is_published_is_read_with_its_last_minute(directory):
    published = figures(samples=7)
    file = directory.publish(published)
    assert only(directory).workers == (replace(published, samples=published.samples[:1]),)
    assert only(directory).last_minute() == published.last_minute()
    assert only(directory).exited_workers == Stats()
    os.close(file)


@pytest.mark.parametrize("name", ["", "/etc/passwd", "../" * 50, "a\0b", "\udc80", "x" * 100_000, "\n\r\t", "*?[", "é"])
def test_whatever_a_cache_is_called_is_told_again_living_and_dead(directory, name):
    file = directory.publish(figures(cache=name))
    assert only(directory).name == name
    RequestBox(directory.path).ask(CLEAR, name)
    assert CLEAR in RequestBox(directory.path).last(name)
    os.close(file)
    directory.retire_the_dead()
    assert exited_workers(directory) == {name: 10}
    assert {path.name for path in directory.path.iterdir()} == {EXITED, REQUESTS, LOCK}


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
    dead(directory, "9-x", cache="other")
    for _ in range(2):
        by_name = {each.name: each for each in directory.read()}
        expected = Stats(hits=30, load_seconds=1.5, load_buckets=tuple(3 * each for each in buckets))
        assert by_name["pages"].exited_workers == expected
        assert by_name["other"].exited_workers == Stats(hits=10)
        assert by_name["other"].exited_since == by_name["other"].counted_since == 1_000_000.0
        directory.retire_the_dead()


def test_the_calls_of_a_store_that_a_killed_worker_made_stay_and_its_open_breaker_does_not(directory):
    process = start(
        """
        from tests.observability.behind import use_store
        cache = make()
        use_store(cache, clock)
        cache.publisher.run()
        print("published", flush=True)
        time.sleep(60)
        """,
        directory.path,
    )
    assert process.stdout.readline() == "published\n"
    alive = only(directory).total.store
    assert (alive.writes.errors, alive.open_breakers, alive.trackers) == (3, 1, 1)
    process.kill()
    process.communicate()
    for _ in range(2):
        found = only(directory)
        assert found.total.store == found.exited_workers.store == StoreStats(alive.reads, alive.writes)
        directory.retire_the_dead()


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
        seen, least, reads, deadline = {}, 0, 0, time.monotonic() + 2
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
        print(len(seen), reads > 5, least > 0)
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


def test_whoever_is_killed_at_any_step_of_a_publication_leaves_whole_figures_and_the_next_cleans_up(directory):
    steps = run(
        """
        for at in count():
            worker = f"{at}-x"
            pid = os.fork()
            if pid == 0:
                file = directory.publish(figures(worker, hits=1))
                kill_after(at)
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
        for at in count():
            for number in range(3):
                dead(directory, f"{at}-{number}", hits=1)
            pid = os.fork()
            if pid == 0:
                kill_after(at)
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
    file = directory.publish(figures())
    before = len(os.listdir("/proc/self/fd"))
    with room_for(100), pytest.raises(OSError, match=os.strerror(errno.EFBIG)):
        directory.publish(figures(hits=99))
    assert only(directory).stats.hits == 10
    assert os.listdir(directory.path) == ["1-a.worker"]
    assert len(os.listdir("/proc/self/fd")) <= before
    os.close(file)


def test_hundreds_of_dead_workers_are_counted_in_seconds_and_leave_one_small_file(directory):
    path = dead(directory, "first", samples=20, hits=1)
    for number in range(600):
        (directory.path / f"{number}-x.worker").write_bytes(path.read_bytes())
    path.unlink()
    before = time.monotonic()
    directory.retire_the_dead()
    assert exited_workers(directory) == {"pages": 600}
    assert time.monotonic() - before < 5
    dead(directory, "last", hits=1)
    directory.retire_the_dead()
    assert {path.name for path in directory.path.iterdir()} == {EXITED, LOCK}
    assert (directory.path / EXITED).stat().st_size < 1000


def test_names_do_not_pile_up(directory, monkeypatch):
    monkeypatch.setattr(figures_directory, "NAMES", NAMES := 20)
    path = dead(directory, "first")
    text = path.read_text()
    path.unlink()
    for number in range(NAMES + 10):
        (directory.path / f"{number:05}.worker").write_text(text.replace('"pages"', f'"name {number}"'))
    directory.retire_the_dead()
    names = exited_workers(directory)
    assert len(names) == NAMES
    assert "name 9" not in names
    assert f"name {NAMES + 9}" in names


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
    assert len(os.listdir("/proc/self/fd")) <= before
    assert not private_files.not_for_children
    os.close(file)


def test_a_reset_has_its_time_and_what_was_counted_before(directory):
    file = directory.publish(figures())
    dead(directory, "2-b", hits=5)
    assert directory.resets().at is None
    before = time.time()
    directory.reset(directory.read())
    resets = directory.resets()
    reset = resets.caches["pages"]
    assert before <= reset.at == resets.at <= time.time()
    assert reset.workers == {"1-a": figures().stats}
    assert reset.total == figures(hits=15).stats
    assert only(directory).since(reset).total == Stats(size=3, weight=30)
    os.close(file)
