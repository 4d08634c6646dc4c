"""What a cache publishes, when, and what is left of it: files, descriptors, counts."""

import gc
import os
import signal
import subprocess
import tempfile
import time
import weakref
from contextlib import suppress
from unittest.mock import Mock

import pytest

from tests.observability.processes import run, start
from tests.waiting import PATIENCE, until
from wheelcache import Cache
from wheelcache.errors import FileUnusable
from wheelcache.observability.event_log import EVENTS
from wheelcache.observability.figures_directory import EXITED, LOCK, FiguresDirectory, directory_of
from wheelcache.observability.publisher import INTERVAL, RETIRE_EVERY
from wheelcache.observability.worker_requests import CLEAR, RequestBox
from wheelcache.runtime.clock import SystemClock
from wheelcache.runtime.private_files import locked_file


def descriptors(path):
    """How many are open below ``path``: caches of other tests may come and go, with theirs."""
    gc.collect()
    found = 0
    for each in os.listdir("/proc/self/fd"):
        # That of the listing is gone by now.
        with suppress(FileNotFoundError):
            found += os.readlink(f"/proc/self/fd/{each}").startswith(str(path))
    return found


@pytest.fixture
def cache(make):
    return make()


def workers(path):
    return sorted(each.name for each in path.glob("*.worker"))


def published(path):
    return {each.name: each for each in FiguresDirectory(path).read()}


# When.


def test_nothing_is_published_before_the_first_write_and_for_three_seconds_after_it(cache, path, clock):
    clock.advance(60)
    cache.get("a")
    assert list(path.iterdir()) == []
    cache.set("a", 1)
    clock.advance(INTERVAL - 1)
    assert list(path.iterdir()) == []
    clock.advance(1)
    assert len(workers(path)) == 1


def test_it_is_published_every_three_seconds(cache, path, clock):
    cache.set("a", 1)
    for number in range(1, 10):
        clock.advance(INTERVAL)
        assert published(path)["pages"].stats.hits == number - 1
        assert cache.get("a") == 1
    assert len(workers(path)) == 1


def test_what_is_published_is_what_the_cache_says_of_itself(cache, path, clock):
    cache.set("a", 1)
    cache.get("a")
    clock.advance(600)
    (worker,) = published(path)["pages"].workers
    own = cache.figures()
    assert worker.worker == own.worker == cache.publisher.worker
    assert worker.pid == os.getpid()
    assert len(own.samples) == 7
    assert worker.samples == own.samples[:1]
    assert worker.last_minute() == own.last_minute()
    assert worker.stats == own.stats


def test_there_are_no_keys_and_no_values_in_what_is_published(make, path, clock):
    def fail():
        raise ValueError("What an exception says is in the events.")

    cache = make(weigher=lambda key, value: 1, max_weight=100)
    cache.set("sesame", "sesame")
    cache.set(("sesame", 1), b"sesame", ttl=1)
    cache.memoize()(lambda sesame: "sesame")("sesame")
    with pytest.raises(ValueError, match="events"):
        cache.take("sesame too", fail)
    clock.advance(600)
    FiguresDirectory(path).reset(FiguresDirectory(path).read())
    RequestBox(path).ask(CLEAR, "pages")
    cache.close()
    assert "What an exception says" in (path / EVENTS).read_text()
    for file in path.iterdir():
        assert b"sesame" not in file.read_bytes()


def test_an_idle_and_empty_cache_publishes_no_more_and_lives_on(make, path, clock):
    cache = make(ttl=5)
    cache.set("a", 1)
    clock.advance(600)
    (file,) = path.glob("*.worker")
    before = file.stat().st_mtime_ns
    clock.advance(600)
    assert file.stat().st_mtime_ns == before
    assert published(path)["pages"].stats.size == 0
    cache.set("a", 1, ttl=1000)
    clock.advance(INTERVAL)
    assert published(path)["pages"].stats.size == 1


def test_a_jump_of_ten_years_publishes_a_few_times(cache, path, clock, monkeypatch):
    runs = []
    publish = FiguresDirectory.publish
    monkeypatch.setattr(FiguresDirectory, "publish", lambda self, *args: runs.append(self.path) or publish(self, *args))
    cache.set("a", 1)
    clock.advance(315_360_000.0)
    cache.get("a")
    # Caches of other tests publish elsewhere.
    assert 0 < runs.count(path) < 5
    assert published(path)["pages"].workers[0].now > 315_360_000 - 2 * INTERVAL


def test_all_that_was_counted_is_published_at_the_exit_of_the_interpreter(path):
    run(
        """
        cache = make()
        cache.set("a", 1)
        clock.advance(3)
        for _ in range(100):
            cache.get("a")
        """,
        path,
    )
    (found,) = FiguresDirectory(path).read()
    assert (found.workers, found.exited_workers.hits) == ((), 100)


def test_who_exits_before_the_first_publication_is_counted_too_if_there_is_anything_to_count(path):
    run(
        """
        caches = [make(name) for name in ("hit", "unused", "closed", "parent's")]
        for cache in caches[::2]:
            cache.set("a", 1)
            cache.get("a")
        caches[2].close()
        caches[3].set("a", 1)
        if (pid := os.fork()) == 0:
            # As a worker that only reads what was loaded before it was forked.
            caches[3].get("a")
            sys.exit()
        os.waitpid(pid, 0)
        """,
        path,
    )
    assert {each.name: each.exited_workers.hits for each in FiguresDirectory(path).read()} == {"hit": 1, "parent's": 1}


# What is left of it.


def test_a_closed_cache_is_among_the_exited_workers_with_all_it_counted_at_once(cache, path, clock):
    before = descriptors(path)
    cache.set("a", 1)
    clock.advance(INTERVAL)
    for _ in range(7):
        cache.get("a")
    cache.close()
    cache.close()
    assert descriptors(path) == before
    assert published(path)["pages"].workers == ()
    assert published(path)["pages"].exited_workers.hits == 7
    clock.advance(60)
    assert workers(path) == []


def test_a_cache_that_is_dropped_without_being_closed_leaves_no_file_and_no_descriptor(make, path, clock):
    before = descriptors(path)
    cache = make()
    cache.set("a", 1)
    cache.get("a")
    clock.advance(INTERVAL)
    gone = weakref.ref(cache)
    assert len(workers(path)) == 1
    del cache
    gc.collect()
    assert gone() is None
    assert workers(path) == []
    assert descriptors(path) == before
    assert published(path)["pages"].exited_workers.hits == 1


def test_a_cache_that_is_dropped_while_its_own_thread_counts_the_dead_waits_for_nobody(make, path, clock):
    """The garbage collector may come in the middle of a hold of the directory's lock."""
    cache = make()
    cache.set("a", 1)
    clock.advance(INTERVAL)
    del cache
    before = time.monotonic()
    with locked_file(path / LOCK):
        gc.collect()
    assert time.monotonic() - before < PATIENCE
    assert published(path)["pages"].workers == ()
    # The next publication removes the file.
    make().publisher.run()
    # It may be one of another cache, in another thread.
    assert until(lambda: len(workers(path)) == 1)


def test_a_hundred_caches_leave_nothing_open(make, path, clock):
    before = descriptors(path)
    for number in range(100):
        cache = make(f"name {number % 10}", sample_interval=None)
        cache.set("a", 1)
        cache.publisher.run()
        if number % 2:
            cache.close()
    del cache
    gc.collect()
    # What the garbage collector came upon while another thread had the lock waits for the next publication.
    cache = make()
    cache.publisher.run()
    cache.close()
    assert descriptors(path) == before
    assert workers(path) == []
    assert sum(each.exited_workers.hits for each in FiguresDirectory(path).read()) == 0
    assert {each.name for each in path.iterdir()} == {EVENTS, EXITED, LOCK}


def test_many_caches_of_a_process_look_for_the_dead_once(make, path, clock, monkeypatch):
    looks = []
    retire = FiguresDirectory.retire_the_dead
    monkeypatch.setattr(FiguresDirectory, "retire_the_dead", lambda self: looks.append(1) or retire(self))
    caches = [make(f"name {number}") for number in range(20)]
    for cache in caches:
        cache.set("a", 1)
    clock.advance(INTERVAL)
    assert len(workers(path)) == 20
    assert looks == [1]


def test_a_long_lived_process_counts_the_dead_once_a_minute(make, path, clock, monkeypatch):
    now = [SystemClock.steady()]
    monkeypatch.setattr(SystemClock, "steady", staticmethod(lambda: now[0]))
    cache = make()
    cache.set("a", 1)
    clock.advance(INTERVAL)
    file = path / "1-a.worker"
    file.write_bytes(next(path.glob("*.worker")).read_bytes())
    clock.advance(INTERVAL)
    assert file in path.iterdir()
    now[0] += RETIRE_EVERY
    clock.advance(INTERVAL)
    assert len(workers(path)) == 1
    assert file not in path.iterdir()


def test_who_publishes_in_a_default_directory_removes_those_that_were_forgotten(runtime_parent, tmp_path, clock):
    forgotten = directory_of("forgotten")
    os.utime(forgotten, (0, 0))
    for path in (tmp_path / "figures", directory_of("shop")):
        assert forgotten.exists()
        cache = Cache("pages", clock=clock, figures_dir=path)
        cache.set("a", 1)
        clock.advance(INTERVAL)
    assert not forgotten.exists()


def test_a_directory_of_ones_own_is_published_in_though_there_is_no_temporary_one(cache, path, clock, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    monkeypatch.setattr(tempfile, "gettempdir", Mock(side_effect=FileNotFoundError("none")))
    cache.set("a", 1)
    clock.advance(INTERVAL)
    assert len(workers(path)) == 1


def test_a_publication_that_comes_too_late_for_a_close_leaves_no_file(cache, path, clock):
    cache.set("a", 1)
    clock.advance(INTERVAL)
    cache.publisher.close()
    cache.publisher.run()
    assert workers(path) == []


def test_the_descriptor_of_what_was_published_is_not_for_programs_that_are_started(cache, path, clock):
    cache.set("a", 1)
    clock.advance(INTERVAL)
    out = subprocess.run(["ls", "-l", "/proc/self/fd"], capture_output=True, text=True, close_fds=False, check=True)
    assert "worker" not in out.stdout


# Forks.


def test_the_child_of_a_fork_has_a_file_of_its_own_and_counts_from_zero_and_keeps_no_lock_of_its_parent(path):
    process = start(
        """
        cache = make()
        cache.set("a", 1)
        for _ in range(5):
            cache.get("a")
        clock.advance(3)
        pid = os.fork()
        if pid == 0:
            cache.get("a")
            cache.set("b", 1)
            clock.advance(3)
            os.write(1, b"%d\\n" % os.getpid())
        time.sleep(60)
        """,
        path,
    )
    child = int(process.stdout.readline())
    try:
        by_pid = {each.pid: each for each in published(path)["pages"].workers}
        assert {pid: each.stats.hits for pid, each in by_pid.items()} == {process.pid: 5, child: 1}
        process.kill()
        process.wait()
        found = published(path)["pages"]
        assert [each.pid for each in found.workers] == [child]
        assert found.exited_workers.hits == 5
    finally:
        os.kill(child, signal.SIGKILL)
        process.communicate()


def test_a_child_that_closes_or_drops_the_cache_leaves_its_parents_file_alone(path):
    assert (
        run(
            """
        import gc
        cache = make()
        cache.set("a", 1)
        clock.advance(3)
        for how in ("close", "drop", "exit"):
            pid = os.fork()
            if pid == 0:
                if how == "close":
                    cache.close()
                if how == "drop":
                    del cache
                    gc.collect()
                if how != "exit":
                    os._exit(0)
                sys.exit()
            assert os.waitpid(pid, 0)[1] == 0
            (found,) = FiguresDirectory(path).read()
            print(len(found.workers), found.stats.size, found.exited_workers.hits)
        """,
            path,
        )
        == ["1 1 0"] * 3
    )


def test_workers_forked_from_one_parent_all_count_once_after_they_exit(path):
    assert run(
        """
        cache = make()
        cache.set("a", 1)
        cache.get("a")
        clock.advance(3)
        for number in range(5):
            if os.fork() == 0:
                cache.set("b", 1)
                clock.advance(3)
                for _ in range(100):
                    cache.get("a")
                sys.exit()
        for _ in range(5):
            os.wait()
        (found,) = FiguresDirectory(path).read()
        print(len(found.workers), found.stats.hits, found.exited_workers.hits)
        """,
        path,
    ) == ["1 1 500"]


# What goes wrong.


def test_what_cannot_be_published_is_logged_once_until_it_can_be_again(cache, path, clock, caplog, monkeypatch):
    def fail(*args, **options):
        raise OSError(28, "No space left on device")

    cache.set("a", 1)
    for _ in range(2):
        with monkeypatch.context() as patch:
            patch.setattr(FiguresDirectory, "publish", fail)
            for _ in range(5):
                clock.advance(INTERVAL)
        clock.advance(INTERVAL)
        assert len(workers(path)) == 1
    # Caches of other tests may fail to publish as well.
    messages = [record.getMessage() for record in caplog.records if "'pages'" in record.getMessage()]
    assert messages == ["The figures of the cache 'pages' cannot be published: [Errno 28] No space left on device"] * 2


def test_a_directory_that_is_removed_is_made_again(cache, path, clock, caplog):
    import shutil

    cache.set("a", 1)
    clock.advance(INTERVAL)
    shutil.rmtree(path)
    clock.advance(INTERVAL)
    assert len(workers(path)) == 1
    assert path.stat().st_mode & 0o777 == 0o700
    assert caplog.records == []
    assert cache.get("a") == 1


def test_a_directory_that_others_may_use_by_now_is_not_published_in(cache, path, clock, caplog):
    cache.set("a", 1)
    path.chmod(0o755)
    clock.advance(INTERVAL)
    assert workers(path) == []
    assert "for its owner only" in caplog.text
    path.chmod(0o700)
    clock.advance(INTERVAL)
    assert len(workers(path)) == 1


@pytest.mark.parametrize(
    ("wrong", "error"),
    [(b"/tmp/x", TypeError), (1, TypeError), ("", ValueError), ("figures", ValueError), ("/tmp/a\0b", ValueError)],
)
def test_a_wrong_figures_dir_is_an_error_that_names_it_and_what_it_takes_and_got(wrong, error):
    with pytest.raises(error, match="figures_dir must be an absolute path, or None, not ") as refused:
        Cache(figures_dir=wrong)
    assert repr(wrong) in str(refused.value)


@pytest.mark.parametrize("name", ["no/parent", "a file", "x" * 300, "for all"])
def test_a_figures_dir_that_cannot_be_used_is_an_error_that_names_it(tmp_path, name):
    (tmp_path / "a file").touch()
    (tmp_path / "for all").mkdir(mode=0o755)
    with pytest.raises(FileUnusable, match="figures_dir must be a directory for this user alone") as refused:
        Cache(figures_dir=tmp_path / name)
    assert str(tmp_path / name) in str(refused.value)


# Threads.


def test_who_closes_and_who_publishes_at_the_same_time_do_not_wait_for_each_other_for_ever(make, path, clock, together):
    cache = make()
    cache.set("a", 1)
    together(lambda number: cache.close() if number == 16 else cache.publisher.run())
    assert workers(path) == []


def test_many_threads_that_publish_leave_one_file_and_one_descriptor(make, path, clock, together):
    cache = make()
    cache.set("a", 1)
    before = descriptors(path)
    assert together(lambda _: [cache.publisher.run() for _ in range(20)]) == [[None] * 20] * 32
    assert len(workers(path)) == 1
    assert descriptors(path) == before + 1


def test_a_worker_that_crashes_at_once_again_and_again_leaves_as_much_as_one(path):
    run(
        """
        for number in range(20):
            pid = os.fork()
            if pid == 0:
                cache = make()
                cache.set("a", 1)
                cache.get("a")
                clock.advance(3)
                os.kill(os.getpid(), 9)
            os.waitpid(pid, 0)
        """,
        path,
    )
    # Each counts the one before, so that no reader has to look.
    assert len(workers(path)) == 1
    assert published(path)["pages"].exited_workers.hits == 20
