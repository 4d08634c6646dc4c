"""Figures as a worker publishes them, and what readers find of them."""

import fcntl
import os
import signal

from wheelcache.observability.figures_directory import EXITED, LOCK, FiguresDirectory
from wheelcache.observability.history import Sample
from wheelcache.observability.worker_stats import WorkerStats
from wheelcache.stats import Stats

__all__ = [
    "EXITED",
    "LOCK",
    "FiguresDirectory",
    "Stats",
    "dead",
    "exited_workers",
    "figures",
    "kill_after",
    "only",
    "worker",
]


def worker(samples=(), now=None, stats=None, epoch=1_000_000.0, number=1, **what):
    """What a worker says of itself, whose clock showed 0 at ``epoch``."""
    samples = tuple(samples)
    now = (samples[-1].at if samples else 0.0) if now is None else now
    return WorkerStats(
        **{
            "name": "pages",
            "worker": f"{number}-x",
            "pid": number,
            "started": epoch,
            "taken": epoch + now,
            "thread": "running",
            "lag": 0.0,
            "interval": 10.0,
            "reached": None,
            "max_entries": None,
            "max_weight": None,
            "weighs_bytes": False,
            "memory": None,
            "stats": Stats() if stats is None else stats,
            "now": now,
            "samples": samples,
            **what,
        }
    )


def figures(name="1-a", cache="pages", samples=0, **stats):
    """Those of the worker ``name``, with 10 hits unless told otherwise."""
    now = Stats(**{"hits": 10, "size": 3, "weight": 30, **stats})
    taken = [Sample(10.0 * number, now.hits, now.misses) for number in range(samples)]
    return worker(taken, stats=now, worker=name, name=cache, max_entries=100)


def dead(directory, name="1-a", **what):
    """What a process that was killed leaves."""
    os.close(directory.publish(figures(name, **what)))
    return directory.path / f"{name}.worker"


def only(directory):
    (found,) = directory.read()
    return found


def exited_workers(directory):
    return {each.name: each.exited_workers.hits for each in directory.read()}


def kill_after(calls):
    """Have this process killed at the call after so many that reach the file system."""
    left = calls

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
