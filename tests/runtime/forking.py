"""Scripts that fork, each in its own process."""

import textwrap

from tests import scripts

PRELUDE = """
import logging, os, signal, sys, threading, time, warnings
from tests.caches import ticking
from tests.waiting import PATIENCE, until
from wheelcache import Cache

def in_child(work):
    pid = os.fork()
    if pid == 0:
        signal.alarm(200)
        try:
            work()
        except BaseException as error:
            print(f"child: {error!r}", flush=True)
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

def threads():
    return sorted(thread.name for thread in threading.enumerate() if thread.name.startswith("wheelcache"))

def os_threads():
    return len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else threading.active_count()

seen_by_forks = []
"""

# On a busy machine, a wheel may be late.
MAY_BE_LATE = """
import logging
logging.getLogger("wheelcache").addFilter(lambda record: "behind" not in record.msg)
"""

# Registered before wheelcache's own hooks, so Python calls it after them: it sees the state that the fork copies.
NOTE_THREADS = """
import os
in_hook = []

def note():
    seen_by_forks.append(os_threads())
    for hook in in_hook:
        hook()

os.register_at_fork(before=note)
"""


def run(script, *, options=scripts.FORKING, before=""):
    """Run a script, which must write nothing to stderr. Return the words that it printed."""
    return scripts.run(before + PRELUDE + textwrap.dedent(script), options=options).split()


def run_warned(script, *, before=""):
    """Do the same as ``run``, with every warning shown.

    Not with ``-W error``: CPython 3.13 drops the error that it makes of the warning of a fork.
    """
    return run(script, options=["-W", "always"], before=before + MAY_BE_LATE)


def run_noting(script):
    """Do the same as ``run_warned``, with the number of threads at each fork in ``seen_by_forks``."""
    return run_warned(script, before=NOTE_THREADS)
