"""Run scripts that publish figures in separate processes. ``PRELUDE`` has the names that they can use."""

import textwrap
from contextlib import contextmanager

from tests import scripts

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


def run(script, *args):
    # A process that others keep from publishing writes this to stderr.
    with scripts.start(PRELUDE + textwrap.dedent(script), *args, stderr=None) as process:
        try:
            output, _ = process.communicate(timeout=250)
        finally:
            process.kill()
    assert process.returncode == 0, output
    return output.splitlines()


@contextmanager
def worker(path, hits=10, name="pages", **options):
    """Start a process that publishes a cache and then waits until it is killed or its input ends."""
    script = f"""
cache = make({name!r}, **{options!r})
use(cache, {hits})
print("published", flush=True)
sys.stdin.read()
"""
    process = scripts.start(PRELUDE + script, path, stderr=None)
    with process:
        try:
            assert process.stdout.readline() == "published\n"
            yield process
        finally:
            process.kill()
