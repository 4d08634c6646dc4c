"""Pools of a few threads: for refreshes, for loads with a timeout, and for the timers of each ``Timers``.

The threads are daemons. They start when there are jobs, and end after half a minute without jobs, before a fork, or at
the exit of their interpreter; the child of a fork starts its own. The queue is bounded. ``ThreadPoolExecutor`` is not
suitable: its queue has no bound, its idle threads are still alive at a fork, and a loader that hangs would keep the
interpreter from exiting.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context
from functools import partial
from typing import Any, Final

from wheelcache.runtime import lifecycle, threads
from wheelcache.runtime.clock import SystemClock
from wheelcache.runtime.shared_objects import Lazy, WeakRegistry
from wheelcache.runtime.threads import end_under_a_patch, own_context, wait_for_end

logger = logging.getLogger("wheelcache")

REFRESHES: Final = 4
TIMED_LOADS: Final = 32
"""Threads of the two pools. Loads with a timeout have more threads, since a caller waits for each load, and a separate
pool, since a load that hangs occupies its thread."""

QUEUE: Final = 128
"""Waiting jobs per pool; also the number of tasks that run on event loops."""

IDLE: Final = 30.0
"""Seconds without a job after which a thread ends."""

AT_EXIT: Final = 10.0
"""Seconds that the exit waits for the jobs of pools that finish their jobs."""

Job = Callable[[], object]

cleanups: Final[list[Job]] = []
"""Functions that every thread calls after every job, as frameworks do after every request."""


class _Crew:
    """The threads of a pool, and the jobs that wait for them.

    Attributes:
        lock: guards the other attributes. It is re-entrant: the collector may run a ``__del__`` that submits a job.
            Callers acquire it directly, because an asynchronous exception could interrupt the Python method that a
            ``with`` of ``free`` calls.
        free: notified when there is a job.
        jobs: the waiting jobs.
        room: notified when there is room for another job.
        starting: threads that are being started.
        workers: threads that have started.
        idle: the workers that wait for a job.
        busy: the workers that run a job.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.free = threading.Condition(self.lock)
        self.room = threading.Condition(self.lock)
        self.jobs: deque[tuple[Context, Job]] = deque()
        self.starting: set[threading.Thread] = set()
        self.workers: set[threading.Thread] = set()
        self.idle: set[threading.Thread] = set()
        self.busy: set[threading.Thread] = set()

    def is_done(self) -> bool:
        return not self.jobs and not self.busy


class WorkerPool:
    """Runs jobs, each in a copy of the context that submitted it, on at most ``workers`` threads.

    Args:
        queue_size: the maximum number of waiting jobs; inf for no bound.
        name: the name of the threads.
        finishes: whether the exit waits for submitted jobs, for at most ten seconds.

    Attributes:
        is_stopped: whether the pool refuses further jobs.
    """

    def __init__(
        self, workers: int, queue_size: float, *, name: str = "wheelcache-refresh", finishes: bool = False
    ) -> None:
        self._most_workers = workers
        self._queue_size = queue_size
        self._name = name
        self._finishes = finishes
        self.is_stopped = False
        # Conditions created before gevent patches threading would let an idle greenlet block all others.
        self._crews: Lazy[_Crew] = Lazy(_Crew)
        self._tasks: set[asyncio.Task[None]] = set()
        _pools.add(self)
        lifecycle.POOLS.add_weakly(self)

    def submit(self, job: Job, *, context: Context | None = None, patience: float = 0.0) -> bool:
        """Queue ``job``. Return False if the queue was full for ``patience`` seconds.

        Args:
            context: the context that the job runs in; a copy of the caller's if not given.

        Raises:
            RuntimeError: if the pool was stopped, for example because the interpreter exits, or if it has no thread and
                cannot start one.
        """
        if self.is_stopped:
            raise RuntimeError("this pool was stopped, as at the exit of the interpreter")
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
        """Run ``work`` as a task of the running event loop. Return None if there are too many, or the pool is stopped.

        Args:
            bounded: whether the number of tasks is limited. Pass False if another task waits for each of them.
        """
        for task in list(self._tasks):
            if not task.get_loop().is_running():
                # The loop was closed or abandoned with this task. A loop that runs again holds its own tasks.
                self._tasks.discard(task)
        if self.is_stopped or (bounded and len(self._tasks) >= self._queue_size):
            work.close()
            return None
        task = asyncio.get_running_loop().create_task(work, context=own_context() if context is None else context)
        # The loop itself holds only weak references to tasks.
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    @property
    def threads(self) -> frozenset[threading.Thread]:
        return frozenset(self._crews.get().workers)

    @property
    def pending(self) -> int:
        """The number of waiting and running jobs."""
        crew = self._crews.get()
        with crew.lock:
            return len(crew.jobs) + len(crew.busy)

    def runs_here(self) -> bool:
        """Return whether the caller is a thread of the pool."""
        return threading.current_thread() in self._crews.get().workers

    def stop(self) -> None:
        """Refuse further jobs. Submitted jobs still run."""
        self.is_stopped = True

    def finish(self, seconds: float) -> None:
        """Wait for all jobs for at most ``seconds``, if this pool finishes its jobs at the exit."""
        if self._finishes:
            for crew in self._crews.all():
                with crew.lock:
                    crew.room.wait_for(crew.is_done, seconds)

    def end(self) -> None:
        """End the threads of this stopped pool, except those that run a job.

        An interpreter must not end before its threads; a subinterpreter that does aborts the process.
        """
        for crew in self._crews.all():
            with crew.lock:
                ending = crew.workers - crew.busy
                crew.free.notify_all()
            for worker in ending:
                wait_for_end(worker, partial(crew.busy.__contains__, worker))

    def pause(self) -> None:
        """End the threads that wait for a job, before a fork."""
        for crew in self._crews.all():
            with crew.lock:
                # If jobs wait, threads were notified of them, and only look idle.
                ending = [] if crew.jobs else list(crew.idle)
                crew.workers.difference_update(ending)
                crew.free.notify_all()
            for worker in ending:
                wait_for_end(worker)

    def resume(self) -> None:
        """Do nothing: the next job starts a thread."""

    def _needs_worker(self, crew: _Crew) -> bool:
        wanted = min(len(crew.jobs) + len(crew.busy), self._most_workers)
        return len(crew.workers) + len(crew.starting) < wanted

    def _start_worker(self, crew: _Crew) -> None:
        if not self._needs_worker(crew):
            return
        # Without the lock: the collector may run here, and a __del__ that submits a job starts a thread itself.
        worker = threads.make(self._name, self._work, crew)
        try:
            with crew.lock:
                if not self._needs_worker(crew):
                    return
                crew.starting.add(worker)
            # Without the lock: under gevent, start() runs the new greenlet, which acquires it.
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
                # The objects that the job holds must not live until the next job.
                del context, job, item
                with crew.lock:
                    crew.busy.discard(me)
                    if self._finishes:
                        crew.room.notify_all()
        end_under_a_patch()

    def _next(self, crew: _Crew, me: threading.Thread) -> tuple[Context, Job] | None:
        """Wait for the next job and return it; return None if this thread must end."""
        with crew.lock:
            crew.idle.add(me)
            try:
                crew.free.wait_for(lambda: crew.jobs or me not in crew.workers or self.is_stopped, IDLE)
            finally:
                crew.idle.discard(me)
            if not crew.jobs or me not in crew.workers:
                crew.workers.discard(me)
                return None
            crew.busy.add(me)
            crew.room.notify()
            return crew.jobs.popleft()

    def _run(self, job: Job) -> None:
        for each in (job, *cleanups):
            try:
                each()
            except BaseException:
                # Including SystemExit: neither a job nor a log handler that raises may end the thread.
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
    for pool in _pools:
        pool.end()


lifecycle.STOP_POOLS.add(_stop_all)
refresh_pool: Final = WorkerPool(REFRESHES, QUEUE)
timed_load_pool: Final = WorkerPool(TIMED_LOADS, QUEUE)
