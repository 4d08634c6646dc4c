"""Run scripts that publish figures in separate processes. ``PRELUDE`` has the names that they can use."""

import subprocess
import sys
import textwrap
from contextlib import contextmanager
from pathlib import Path

from tests.scripts import FORKING
from tests.waiting import PATIENCE

PRELUDE = """
import fcntl, gc, os, signal, sys, threading, time
from itertools import count
from pathlib import Path
from tests.watch.published import *
from wheelcache import Cache, ManualClock
from wheelcache.watch.inquiries import CLEAR

path = Path(sys.argv[1])
clock = ManualClock()

def make(name="pages", **options):
    return Cache(name, **{"figures_dir": path, "clock": clock, "jitter": 0, **options})

def use(cache, hits):
    cache.set("a", 1)
    for _ in range(hits):
        cache.get("a")
    clock.advance(3)

def forked(function):
    pid = os.fork()
    if pid == 0:
        function()
        sys.exit()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) in (0, -9)
    return pid
"""


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
    try:
        out, _ = process.communicate(timeout=6 * PATIENCE)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 0, out
    return out.splitlines()


@contextmanager
def worker(path, hits=10, name="pages", **options):
    """Start a process that publishes a cache and then waits until it is killed or its input ends."""
    process = start(
        f"""
        cache = make({name!r}, **{options!r})
        use(cache, {hits})
        print("published", flush=True)
        sys.stdin.read()
        """,
        path,
    )
    try:
        assert process.stdout.readline() == "published\n"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()
