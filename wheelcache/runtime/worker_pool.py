"""Pools of a few threads: for refreshes, for loads with a timeout, and for what each ``Timers`` executes.

The threads start when there is something to do, are daemons, and end after half a minute without, or before a fork; a
child of fork starts its own. The queue before them is bounded. ``ThreadPoolExecutor`` is no choice: its queue has no
bound, its idle threads survive to a fork, and the interpreter would not exit before a loader that hangs.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context
from typing import Any, Final

from wheelcache.runtime import lifecycle, threads
from wheelcache.runtime.clock import SystemClock
from wheelcache.runtime.contexts import own_context
from wheelcache.runtime.lazy import Lazy, end_under_a_patch
from wheelcache.runtime.threads import wait_for_end
from wheelcache.runtime.weak_registry import WeakRegistry

logger = logging.getLogger("wheelcache")

REFRESHES: Final = 4
TIMED_LOADS: Final = 32
"""Threads. Loads with a timeout have more, since a caller waits for each; and their own, since those that hang stay."""

QUEUE: Final = 128
"""Jobs that wait, and, beside them, tasks that run on event loops."""

IDLE: Final = 30.0
"""Seconds without a job after which a thread ends."""

AT_EXIT: Final = 10.0
"""Seconds that the exit waits for the jobs of pools that finish theirs."""

Job = Callable[[], object]

cleanups: Final[list[Job]] = []
"""What every thread calls after every job, as frameworks do after every request."""


class PoolStopped(RuntimeError):
    """A job was submitted to a pool that takes no more."""


class _Crew:
    """The threads of a pool, and the jobs that wait for them.

    Attributes:
        lock: guards the others. It is re-entrant: the collector may run a ``__del__`` that submits a job. It is taken
            itself, and not by a ``with`` of ``free``, whose method in Python an exception from outside could interrupt.
        free: notified when there is a job.
        jobs: those that wait.
        room: notified when there is room for another job.
        running: jobs that run.
        starting: threads that are being started.
        workers: threads that run.
        idle: those of them that wait for a job.
    """

    __slots__ = ("free", "idle", "jobs", "lock", "room", "running", "starting", "workers")

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.free = threading.Condition(self.lock)
        self.room = threading.Condition(self.lock)
        self.jobs: deque[tuple[Context, Job]] = deque()
        self.running = 0
        self.starting: set[threading.Thread] = set()
        self.workers: set[threading.Thread] = set()
        self.idle: set[threading.Thread] = set()

    def is_done(self) -> bool:
        return not self.jobs and not self.running


class WorkerPool:
    """Runs jobs, each in a copy of the context that submitted it, on at most ``workers`` threads.

    Args:
        queue_size: how many jobs wait at most; inf for no bound.
        name: of the threads.
        finishes: at the exit, jobs that were submitted are waited for, for ten seconds.
    """

    def __init__(
        self, workers: int, queue_size: float, *, name: str = "wheelcache-refresh", finishes: bool = False
    ) -> None:
        self._most_workers = workers
        self._queue_size = queue_size
        self._name = name
        self._finishes = finishes
        self._stopped = False
        # Conditions made before gevent patches would have an idle greenlet stop all others.
        self._crews: Lazy[_Crew] = Lazy(_Crew)
        self._tasks: set[asyncio.Task[None]] = set()
        _pools.add(self)
        lifecycle.POOLS.add_weakly(self)

    def submit(self, job: Job, *, context: Context | None = None, patience: float = 0.0) -> bool:
        """Have ``job`` run. False if the queue was full for ``patience`` seconds.

        Args:
            context: what it runs in; a copy of the caller's, on its own, if not given.

        Raises:
            PoolStopped: (a RuntimeError) the pool was stopped, perhaps since the interpreter exits.
            RuntimeError: there is no thread, and none can be started.
        """
        if self._stopped:
            raise PoolStopped("this pool was stopped, as at the exit of the interpreter")
        item = (own_context() if context is None else context, job)
        crew = self._crews.get()
        with crew.lock:
            if not crew.room.wait_for(lambda: len(crew.jobs) < self._queue_size, patience):
                return False
            crew.jobs.append(item)
            crew.free.notify()
        try:
            self._start_worker(crew)
        except RuntimeError:
            with crew.lock:
                if not crew.workers and item in crew.jobs:
                    crew.jobs.remove(item)
                    raise
        return True

    def spawn(
        self, work: Coroutine[Any, Any, None], context: Context | None = None, *, bounded: bool = True
    ) -> asyncio.Task[None] | None:
        """Have ``work`` run as a task of the running event loop. None if there are too many, or the interpreter exits.

        Args:
            bounded: whether there can be too many. Not if each has a task that waits for it.
        """
        for task in list(self._tasks):
            if not task.get_loop().is_running():
                # Closed or left, with this in it. If it is run again, it holds what it has to do.
                self._tasks.discard(task)
        if self._stopped or (bounded and len(self._tasks) >= self._queue_size):
            work.close()
            return None
        task = asyncio.get_running_loop().create_task(work, context=own_context() if context is None else context)
        # The loop itself holds tasks weakly.
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    @property
    def threads(self) -> frozenset[threading.Thread]:
        return frozenset(self._crews.get().workers)

    @property
    def pending(self) -> int:
        """Jobs that wait or run."""
        crew = self._crews.get()
        with crew.lock:
            return len(crew.jobs) + crew.running

    def runs_here(self) -> bool:
        """Whether this is a thread of the pool."""
        return threading.current_thread() in self._crews.get().workers

    def stop(self) -> None:
        """No more jobs are taken. Those that were submitted run on."""
        self._stopped = True

    def finish(self, seconds: float) -> None:
        """Wait until no job waits or runs, for so long; for the exit, if this pool finishes its jobs."""
        if self._finishes:
            for crew in self._crews.all():
                with crew.lock:
                    crew.room.wait_for(crew.is_done, seconds)

    def pause(self) -> None:
        """End the threads that wait for a job: before a fork."""
        for crew in self._crews.all():
            with crew.lock:
                # If jobs wait, threads were told of them, and only look idle.
                ending = [] if crew.jobs else list(crew.idle)
                crew.workers.difference_update(ending)
                crew.free.notify_all()
            for worker in ending:
                wait_for_end(worker)

    def resume(self) -> None:
        """The next job starts a thread."""

    def _needs_worker(self, crew: _Crew) -> bool:
        wanted = min(len(crew.jobs) + crew.running, self._most_workers)
        return len(crew.workers) + len(crew.starting) < wanted

    def _start_worker(self, crew: _Crew) -> None:
        if not self._needs_worker(crew):
            return
        # Made without the lock: the collector may run here, and a __del__ that submits a job starts this thread itself.
        worker = threading.Thread(target=self._work, args=(crew,), name=self._name, daemon=True)
        try:
            with crew.lock:
                if not self._needs_worker(crew):
                    return
                crew.starting.add(worker)
            # Without the lock: under gevent, start() lets the new greenlet run, which takes it.
            threads.start(worker)
        except BaseException:
            with crew.lock:
                crew.starting.discard(worker)
            raise

    def _work(self, crew: _Crew) -> None:
        me = threading.current_thread()
        with crew.lock:
            crew.starting.discard(me)
            crew.workers.add(me)
        while (item := self._next(crew, me)) is not None:
            context, job = item
            try:
                context.run(self._run, job)
            finally:
                # What it holds is not to live until the next one comes.
                del context, job, item
                with crew.lock:
                    crew.running -= 1
                    if self._finishes:
                        crew.room.notify_all()
        end_under_a_patch()

    def _next(self, crew: _Crew, me: threading.Thread) -> tuple[Context, Job] | None:
        """The next job, when there is one; None if this thread is to end."""
        with crew.lock:
            crew.idle.add(me)
            try:
                crew.free.wait_for(lambda: crew.jobs or me not in crew.workers, IDLE)
            finally:
                crew.idle.discard(me)
            if not crew.jobs or me not in crew.workers:
                crew.workers.discard(me)
                return None
            crew.running += 1
            crew.room.notify()
            return crew.jobs.popleft()

    def _run(self, job: Job) -> None:
        for each in (job, *cleanups):
            try:
                each()
            except BaseException:
                # SystemExit too: the thread is not the job's. Nor is it that of a log handler that raises.
                with suppress(BaseException):
                    logger.exception("%r raised.", each)

    def after_fork_in_child(self) -> None:
        for crew in self._crews.all():
            # If a job forked, this thread ends when the job returns.
            crew.workers.clear()
        self._crews.forget()
        self._tasks = set()


_pools: Final[WeakRegistry[WorkerPool]] = WeakRegistry()


def _stop_all() -> None:
    until = SystemClock.steady() + AT_EXIT
    for pool in _pools:
        pool.stop()
    for pool in _pools:
        pool.finish(max(0.0, until - SystemClock.steady()))


lifecycle.STOP_POOLS.add(_stop_all)
refresh_pool: Final = WorkerPool(REFRESHES, QUEUE)
timed_load_pool: Final = WorkerPool(TIMED_LOADS, QUEUE)
