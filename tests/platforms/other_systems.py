"""Hide from a script what Windows and macOS lack, so that wheelcache takes this machine for one of them."""

import sys

from tests.scripts import run_python

HIDE = """
import sys
# These decide by the system when they are imported, and must find the real one.
import asyncio, concurrent.futures, ctypes, logging.handlers, multiprocessing.pool, subprocess, tempfile, uuid
import sqlite3
import django.core.cache, django.core.checks, django.core.handlers.wsgi, django.db, django.http, django.template
import django.test, django.views.decorators.cache
try:
    import redis
except ImportError:
    pass
import os, signal, time

LINUX_ONLY = ("/proc", "/dev/shm")

def hide_files(event, arguments):
    if event.startswith(("open", "os.")) and arguments and str(arguments[0]).startswith(LINUX_ONLY):
        raise FileNotFoundError(2, "No such file or directory", arguments[0])

def access(path, mode, real=os.access):
    return not str(path).startswith(LINUX_ONLY) and real(path, mode)

def stat(path, *args, real=os.stat, **kwargs):
    if str(path).startswith(LINUX_ONLY):
        raise FileNotFoundError(2, "No such file or directory", path)
    return real(path, *args, **kwargs)

sys.addaudithook(hide_files)
os.access, os.stat = access, stat
"""

AS_MACOS = """
sys.platform = "darwin"
for name in ("CLOCK_MONOTONIC_COARSE", "CLOCK_BOOTTIME"):
    vars(time).pop(name, None)
"""

AS_WINDOWS = """
sys.platform = "win32"
for name in ("fcntl", "grp", "pwd", "resource", "termios", "pty"):
    sys.modules[name] = None
for name in ("fork", "forkpty", "register_at_fork", "getuid", "geteuid", "getgid", "getegid", "fchmod", "fchown",
             "chown", "pread", "pwrite", "sysconf", "sched_getaffinity", "O_NOFOLLOW", "O_DIRECTORY", "O_CLOEXEC",
             "O_NONBLOCK"):
    vars(os).pop(name, None)
for name in ("pthread_sigmask", "SIGUSR1", "SIGALRM", "setitimer", "SIG_BLOCK", "pthread_kill"):
    vars(signal).pop(name, None)
for name in ("clock_gettime", "CLOCK_MONOTONIC", "CLOCK_MONOTONIC_COARSE", "CLOCK_BOOTTIME"):
    vars(time).pop(name, None)
"""

SYSTEMS = {"windows": AS_WINDOWS, "macos": AS_MACOS}


def run_on(system, script, folder):
    """Return the finished process of ``script``, which runs as on ``system``, with its temporary files in ``folder``.

    On another system than Linux, nothing is hidden: the script runs as it is.
    """
    hide = HIDE + SYSTEMS[system] if sys.platform == "linux" else ""
    return run_python("-c", hide + script, env={"TMPDIR": str(folder)})
