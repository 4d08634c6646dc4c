"""Scripts that publish figures in processes of their own: see ``PRELUDE`` for what they can use."""

import subprocess
import sys
import textwrap
from pathlib import Path

from tests.scripts import FORKING

PRELUDE = """
import fcntl, os, signal, sys, threading, time
from itertools import count
from pathlib import Path
from tests.observability.published import *
from wheelcache import Cache, ManualClock
from wheelcache.observability.worker_requests import CLEAR, SAVE, RequestBox

path = Path(sys.argv[1])
directory = FiguresDirectory(path)
box = RequestBox(path)
clock = ManualClock()

def make(name="pages", **options):
    return Cache(name, figures_dir=path, clock=clock, jitter=0, **options)
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
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0, out
    return out.splitlines()
