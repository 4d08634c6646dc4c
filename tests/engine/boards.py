"""Boards of tests, as this process and scripts see them."""

import os
import subprocess
import sys
import textwrap

from tests.engine.test_fork import PRELUDE as FORK_PRELUDE
from tests.scripts import FORKING
from wheelcache import Cache

NAME = "test"

BOARD_CHECK = 10.0
"""Seconds after which a cache looks whether its board is still there."""

FILL_WINDOW = 10.0
"""Seconds from a miss for which a set counts as a fill."""

QUIET = {"log_interval": None, "sample_interval": None}

PRELUDE = f"""
{FORK_PRELUDE}
from pathlib import Path
from wheelcache.coherence.shared_stamps import SharedStamps
"""


def start(script, *args, **environ):
    return subprocess.Popen(
        [sys.executable, *FORKING, "-c", PRELUDE + textwrap.dedent(script), *map(str, args)],
        env={**os.environ, **environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(script, *args, **environ):
    process = start(script, *args, **environ)
    out, error = process.communicate(timeout=60)
    assert process.returncode == 0, out + error
    assert error == ""
    return out.split()


def share(one, other):
    """Whether a write on either board ends the entry of a cache on the other. Each board is used once."""
    caches = [Cache(stamps=board, **QUIET) for board in (one, other)]
    for key, (writer, reader) in {"a": caches, "b": caches[::-1]}.items():
        reader.set(key, "old")
        assert reader.get(key) == "old"
        writer.set(key, "new")
        if reader.get(key) is not None:
            return False
    return True
