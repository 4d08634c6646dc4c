"""Scripts that tests run in a process of their own."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).parents[1]

FORKING = (
    # A fork copies the unflushed output of print, and os._exit drops it.
    "-u",
    # Python 3.12 and newer warn of the threads that a script has of its own. This comes after any "-W error".
    *("-W", "ignore:This process:DeprecationWarning"),
)
"""Options of Python for a script that forks."""


def start(script, *args, options=FORKING, command=(), **given):
    """Start a script with these arguments.

    Args:
        options: the options of Python.
        command: runs Python.
    """
    return subprocess.Popen(
        [*command, sys.executable, *options, "-c", textwrap.dedent(script), *map(str, args)],
        **{"cwd": ROOT, "stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **given},
        text=True,
    )


def run(script, *args, status=0, timeout=250, **given):
    """Run a script, which ends with ``status`` and may write nothing to stderr, and return its output."""
    with start(script, *args, **given) as process:
        try:
            output, errors = process.communicate(timeout=timeout)
        finally:
            process.kill()
    assert (process.returncode, errors) == (status, ""), output + errors
    return output


def run_python(*arguments, env=(), cwd=ROOT, stderr=subprocess.PIPE, timeout=250, check=False):
    """Run Python with ``arguments``, and ``env`` in addition to the environment. Return its outcome, in text."""
    command, env = [sys.executable, *arguments], {**os.environ, **dict(env)}
    output = {"stdout": subprocess.PIPE, "stderr": stderr, "text": True}
    return subprocess.run(command, env=env, cwd=cwd, timeout=timeout, check=check, **output)
