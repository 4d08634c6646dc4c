"""The few threads of the process that load values while nobody waits, or while somebody waits only so long.

They start when there is something to do, are daemons, and end after half a minute without; a child of fork starts its
own. The queue before them is bounded. ``ThreadPoolExecutor`` is no choice: its queue has no bound, and the interpreter
would not exit before a loader that hangs.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import queue
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context, copy_context
from typing import Any, Final

from wheelcache import fill_leases, single_flight

logger = logging.getLogger("wheelcache")

REFRESHES: Final = 4
TIMED_LOADS: Final = 32
"""Threads. Loads with a timeout have more, since somebody waits for each; and their own, since those that hang stay."""

QUEUE: Final = 128
"""Jobs that wait, and, beside them, tasks that run on event loops."""

IDLE: Final = 30.0
"""Seconds without a job after which a thread ends."""

Job = Callable[[], object]

cleanups: Final[list[Job]] = []
"""What every thread calls after every job, as frameworks do after every request."""


class RefreshPool:
    """Runs jobs, each in a copy of the context that submitted it, on at most ``workers`` threads."""

    def __init__(self, workers: int, queue_size: int) -> None:
        self._most_workers = workers
        self._queue_size = queue_size
        self._exiting = False
        self._reset()

    def _reset(self) -> None:
        self._queue: queue.Queue[tuple[Context, Job]] = queue.Queue(self._queue_size)
        self._workers: set[threading.Thread] = set()
        # Jobs that wait or run.
        self._pending = 0
        # Re-entrant: making a thread may start the collector, and with it a __del__ that takes a stale value.
        self._lock = threading.RLock()
        self._tasks: set[asyncio.Task[None]] = set()

    def submit(self, job: Job, *, context: Context | None = None, patience: float = 0.0) -> bool:
        """Have ``job`` run. False if the queue was full for ``patience`` seconds.

        Args:
            context: what it runs in; a copy of the caller's, on its own, if not given.

        Raises:
            RuntimeError: there is no thread, and none can be started; or the interpreter exits.
        """
        if self._exiting:
            raise RuntimeError("the interpreter exits")
        if context is None:
            context = _own_context()
        with self._lock:
            self._pending += 1
        try:
            self._start_worker()
            self._queue.put((context, job), block=patience > 0, timeout=patience or None)
        except BaseException as error:
            with self._lock:
                self._pending -= 1
            if isinstance(error, queue.Full):
                return False
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
        if self._exiting or (bounded and len(self._tasks) >= self._queue_size):
            work.close()
            return None
        task = asyncio.get_running_loop().create_task(work, context=_own_context() if context is None else context)
        # The loop itself holds tasks weakly.
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def runs_here(self) -> bool:
        """Whether this is a thread of the pool."""
        return threading.current_thread() in self._workers

    def stop(self) -> None:
        """No more jobs; for the exit of the interpreter."""
        self._exiting = True

    def _start_worker(self) -> None:
        with self._lock:
            if len(self._workers) >= min(self._pending, self._most_workers):
                return
            worker = threading.Thread(target=self._work, name="wheelcache-refresh", daemon=True)
            self._workers.add(worker)
            try:
                worker.start()
            except RuntimeError:
                self._workers.discard(worker)
                if not self._workers:
                    raise

    def _work(self) -> None:
        while True:
            try:
                context, job = self._queue.get(timeout=IDLE)
            except queue.Empty:
                with self._lock:
                    if self._pending < len(self._workers):
                        self._workers.discard(threading.current_thread())
                        return
                continue
            try:
                context.run(self._run, job)
            finally:
                # What it holds is not to live until the next one comes.
                del context, job
                with self._lock:
                    self._pending -= 1

    def _run(self, job: Job) -> None:
        for each in (job, *cleanups):
            try:
                each()
            except BaseException:
                # SystemExit too: the thread is not the job's. Nor is it that of a log handler that raises.
                with suppress(BaseException):
                    logger.exception("%r raised.", each)

    def after_fork_in_child(self) -> None:
        self._reset()


def _own_context() -> Context:
    context = copy_context()
    context.run(single_flight.on_its_own)
    context.run(fill_leases.on_its_own)
    return context


refresh_pool: Final = RefreshPool(REFRESHES, QUEUE)
timed_load_pool: Final = RefreshPool(TIMED_LOADS, QUEUE)
for _pool in (refresh_pool, timed_load_pool):
    atexit.register(_pool.stop)
    os.register_at_fork(after_in_child=_pool.after_fork_in_child)
