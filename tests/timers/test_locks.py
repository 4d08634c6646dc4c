"""Locks of a process and of a machine, which keep the same promises."""

import asyncio
import gc
import signal
import threading
import tracemalloc
from math import inf, nan

import pytest

from tests import scripts
from tests.memory import descriptors, traced
from tests.runtime.forks import fork
from tests.waiting import PATIENCE, until
from wheelcache import ManualClock
from wheelcache.errors import FileUnusable, LockError, LockNotOwned
from wheelcache.runtime.clock import SystemClock
from wheelcache.timers.locks import Lock, MachineLocks, ProcessLocks

pytestmark = pytest.mark.usefixtures("own_runtime_directory")


@pytest.fixture
def clock():
    return ManualClock(1000.0)


@pytest.fixture(params=["process", "machine"])
def table(request, clock):
    return ProcessLocks(clock) if request.param == "process" else MachineLocks("test", clock)


@pytest.fixture
def lock(table):
    """``lock(name="a", **options)``"""
    return lambda name="a", **options: Lock(table, name, **options)


@pytest.fixture
def open_files(tmp_path):
    """Return the open files of the locks of this test."""
    return lambda: [path for path in descriptors(f"{tmp_path}/").values() if ".locks/" in path]


@pytest.fixture
def files(tmp_path):
    """Return the names of the files of the table, without those of steps."""
    return lambda: {path.name for path in tmp_path.glob("*.locks/*")} - {"step"}


class TestHolding:
    def test_a_lock_excludes_all_others_of_its_name_until_it_is_released(self, lock, table):
        first, second, other = lock(), lock(), lock("b")
        assert first.acquire(blocking=False) is True
        assert second.acquire(blocking=False) is first.acquire(blocking=False) is False
        assert other.acquire(blocking=False)
        assert (first.owned(), second.owned(), second.locked()) == (True, False, True)
        first.release()
        assert not second.locked()
        assert second.acquire(blocking=False)
        assert (first.owned(), second.owned(), first.scope) == (False, True, table.scope)

    def test_only_the_owner_releases_a_lock(self, lock, in_thread):
        first, second = lock(), lock()
        first.acquire()
        with pytest.raises(LockError, match="'a' is not held by this thread"):
            second.release()
        with pytest.raises(LockError, match="not held by this thread"):
            in_thread(first.release).result()
        assert second.locked()
        first.release()
        with pytest.raises(LockError, match="not held by this thread"):
            first.release()

    def test_a_lock_without_thread_local_is_released_by_any_thread(self, lock, in_thread):
        shared = lock(thread_local=False)
        shared.acquire()
        in_thread(shared.release).result()
        assert not shared.locked()

    def test_a_lock_ends_after_its_timeout_and_its_old_owner_does_not_release_the_next_one(self, lock, clock):
        first, second = lock(timeout=10), lock(timeout=10)
        assert first.acquire(blocking=False)
        clock.advance(9.999)
        assert not second.acquire(blocking=False)
        clock.advance(0.001)
        assert not first.owned()
        assert second.acquire(blocking=False)
        with pytest.raises(LockNotOwned, match="'a': it has ended"):
            first.release()
        assert second.owned()
        clock.advance(10)
        with pytest.raises(LockNotOwned):
            second.release()
        with pytest.raises(LockError, match="not held"):
            second.release()

    @pytest.mark.parametrize("timeout", [None, 0])
    def test_a_lock_without_a_timeout_does_not_end_and_is_not_extended(self, lock, clock, timeout):
        held = lock(timeout=timeout)
        for call in (lambda: held.extend(1), held.reacquire):
            with pytest.raises(LockError, match="not held"):
                call()
        held.acquire()
        clock.advance(1e9)
        assert not lock().acquire(blocking=False)
        for call in (lambda: held.extend(1), held.reacquire):
            with pytest.raises(LockError, match="no timeout"):
                call()

    def test_the_end_of_a_held_lock_can_be_moved(self, lock, clock):
        held = lock(timeout=10)
        held.acquire()
        assert held.extend(5) is True
        clock.advance(14)
        assert held.owned()
        assert held.extend(3, replace_ttl=True)
        clock.advance(2)
        assert held.reacquire()
        clock.advance(9)
        assert held.owned()
        clock.advance(1)
        for late in (lambda: held.extend(1), held.reacquire):
            with pytest.raises(LockNotOwned):
                late()

    def test_a_lock_whose_block_has_no_end_is_released_with_its_last_reference(self, lock):
        held = lock()
        held.__enter__()
        assert lock().locked()
        del held
        gc.collect()
        assert not lock().locked()
        assert lock().acquire(blocking=False)

    @pytest.mark.alone
    def test_locks_that_end_by_themselves_leave_nothing_behind(self, lock, clock, open_files, files):
        """Such as those of a job that runs at most once a minute for each of many objects."""
        tracemalloc.start()
        try:
            for number in range(2000):
                assert lock(f"job {number % 1000}", timeout=60).acquire(blocking=False)
                clock.advance(60)
            assert traced("*/timers/locks.py", __file__) < 50_000
        finally:
            tracemalloc.stop()
        assert len(open_files()) <= 100
        assert len(files()) <= 100

    @pytest.mark.pairs(full="table", of="table")
    @pytest.mark.parametrize("name", ["../x", "a\0b", "\udcff", "x" * 5000, ""])
    def test_any_string_is_a_name(self, lock, name):
        with lock(name):
            assert not lock(name).acquire(blocking=False)


class TestWaiting:
    def test_a_lock_is_a_context_manager_that_raises_if_it_is_not_acquired_in_time(self, lock):
        with lock() as held:
            assert held.owned()
            with pytest.raises(LockError, match="not acquired within"), lock(blocking_timeout=0.01, sleep=3600):
                pytest.fail("not reached")
        assert not held.locked()

    def test_the_arguments_of_acquire_replace_those_of_the_lock(self, lock):
        lock().acquire()
        assert lock(blocking=False).acquire() is lock(blocking_timeout=0).acquire() is False
        assert lock(blocking_timeout=3600).acquire(blocking=False) is False
        assert lock(blocking_timeout=3600, sleep=3600).acquire(blocking_timeout=0.01) is False
        assert lock(blocking=False, blocking_timeout=0.01).acquire(blocking=True) is False

    def test_an_attempt_without_a_wait_is_the_only_one_though_the_clock_stands_still(self, monkeypatch):
        table = ProcessLocks(ManualClock())
        Lock(table, "a").acquire()
        monkeypatch.setattr(SystemClock, "steady", iter([1.0, 1.0]).__next__)
        assert Lock(table, "a").acquire(blocking=False) is False

    def test_tasks_use_a_lock_in_the_same_way_and_block_no_event_loop(self, lock):
        async def use():
            async with lock() as held:
                assert held.owned()
                with pytest.raises(LockError):
                    async with lock(blocking_timeout=0.01, sleep=0.001):
                        pytest.fail("not reached")
                waiting = asyncio.ensure_future(lock(sleep=0.001).aacquire())
                await asyncio.sleep(0)
                assert not waiting.done()
            assert await asyncio.wait_for(waiting, PATIENCE)

        asyncio.run(use())

    @pytest.mark.parametrize("wrong", [-1, -0.001, nan, inf, "1", True])
    def test_a_wrong_time_is_an_error_that_names_it(self, wrong):
        table = ProcessLocks(ManualClock())
        held = Lock(table, "a", timeout=1)
        with held:
            for call, name in (
                (Lock, "timeout"),
                *((Lock, "sleep"), (held.acquire, "sleep")),
                *((Lock, "blocking_timeout"), (held.acquire, "blocking_timeout")),
                (held.extend, "additional_time"),
            ):
                message = f"^{name} must be a number of seconds >= 0, not"
                with pytest.raises((TypeError, ValueError), match=message):
                    call(*((table, "b") if call is Lock else ()), **{name: wrong})


class TestForks:
    def test_the_child_of_a_fork_does_not_hold_the_locks_of_its_parent(self, lock, table):
        held = lock()
        held.acquire()

        def child():
            try:
                held.release()
                raise AssertionError
            except LockNotOwned:
                assert lock().acquire(blocking=False) is (table.scope == "process")

        assert fork(child)
        assert held.owned()
        held.release()

    def test_no_step_begins_during_a_fork_whose_child_would_have_its_file_open(self, in_thread):
        table = MachineLocks("test")
        table.before_fork()
        acquiring = in_thread(Lock(table, "a").acquire)
        with pytest.raises(TimeoutError):
            acquiring.result(0.05)
        table.after_fork(in_child=False)
        assert acquiring.result(PATIENCE)


HOLDER = """
import sys
from pathlib import Path
from tests.shared_files import keep_in
from wheelcache.timers.locks import Lock, MachineLocks

keep_in(Path(sys.argv[1]))
table = MachineLocks("test")
held = Lock(table, "a", timeout=float(sys.argv[2]) or None)
assert held.acquire()
print("held", flush=True)
sys.stdin.readline()
held.release()
"""


@pytest.fixture
def holder(tmp_path):
    """Start a process that holds the lock "a"."""
    started = []

    def start(timeout=0):
        process = scripts.start(HOLDER, tmp_path, timeout)
        started.append(process)
        assert process.stdout.readline() == "held\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def machine_lock(**options):
    return Lock(MachineLocks("test"), "a", **options)


class TestProcesses:
    def test_the_lock_of_a_killed_process_is_free_and_the_next_process_removes_its_file(self, holder, files, tmp_path):
        process, lock = holder(), machine_lock()
        assert not lock.acquire(blocking=False)
        process.kill()
        process.wait(PATIENCE)
        assert not lock.locked()
        before, (step,) = files(), tmp_path.glob("*.locks/step")
        number = step.stat().st_ino
        assert Lock(MachineLocks("test"), "b").acquire()
        assert step.stat().st_ino == number, "otherwise two processes would take steps at the same time"
        assert len(before) == len(files() - before) == len(files()) == 1
        assert lock.acquire(blocking=False)

    def test_the_lock_of_a_suspended_process_ends_and_is_not_released_by_it(self, holder):
        process, lock = holder(timeout=0.2), machine_lock(sleep=0.01)
        process.send_signal(signal.SIGSTOP)
        assert lock.acquire(blocking_timeout=PATIENCE)
        process.send_signal(signal.SIGCONT)
        assert "LockNotOwned" in process.communicate("\n")[1]
        assert lock.owned()

    def test_a_killed_holder_never_leaves_two_owners(self, holder, in_thread):
        process, over, owners = holder(), threading.Event(), []

        def wait():
            while not over.is_set():
                if (mine := machine_lock()).acquire(blocking_timeout=0.2):
                    owners.append(mine)

        waiting = [in_thread(wait) for _ in range(4)]
        process.kill()
        process.wait(PATIENCE)
        assert until(lambda: owners)
        # Each of the others tries once more.
        over.set()
        for each in waiting:
            each.result(PATIENCE)
        assert len(owners) == 1
        assert machine_lock().locked()

    @pytest.mark.alone
    def test_a_lock_of_the_machine_leaves_no_file_and_no_descriptor(self, open_files, files):
        for _ in range(10):
            with machine_lock():
                assert len(open_files()) == len(files()) == 1
        assert (open_files(), files()) == ([], set())

    def test_locks_in_a_folder_or_a_file_that_others_can_read_are_refused(self, tmp_path):
        machine_lock().acquire()
        (folder,) = tmp_path.glob("*.locks")
        for path in (*folder.iterdir(), folder):
            mode = path.stat().st_mode
            path.chmod(0o755)
            with pytest.raises(FileUnusable, match="accessible to its owner only"):
                machine_lock().acquire(blocking=False)
            path.chmod(mode)
