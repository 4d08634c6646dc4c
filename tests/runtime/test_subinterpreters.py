"""Subinterpreters: mod_wsgi and uWSGI run each application in one, and isolated ones allow no daemon threads."""

import os
import sys

import pytest

from tests.scripts import run

IN_INTERPRETERS = """
import sys
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters

kind, *scripts = sys.argv[1:]
made = []
for script in scripts:
    if hasattr(interpreters, "new_config"):
        made.append(interpreters.create(kind))
    else:
        made.append(interpreters.create(isolated=kind == "isolated"))
    execute = getattr(interpreters, "exec", None) or interpreters.run_string
    error = execute(made[-1], script)
    if error is not None:
        sys.exit(error.formatted)
for interpreter in made:
    interpreters.destroy(interpreter)
print("destroyed")
"""

USE = """
import atexit, logging, sys, threading
logging.basicConfig(stream=sys.stdout, format="%(message)s", level=logging.WARNING)
from wheelcache import Cache

cache = Cache(max_entries=3)
for number in range(10):
    cache.set(number, number, 5)
print(len(cache), cache.get(9), cache.engine.observed.thread_state)
print(cache.get_or_load("loaded", lambda: "value", 5, timeout=60))
# As the end of an interpreter does. Python 3.11 refuses to destroy one that has more than one thread.
atexit._run_exitfuncs()
print(*sorted(thread.name for thread in threading.enumerate()))
"""

CHOICE = """
import logging, sys
logging.basicConfig(stream=sys.stdout, format="%(message)s")
from wheelcache.core import IMPLEMENTATION
print(IMPLEMENTATION)
"""


def in_interpreters(kind, *scripts):
    """Run each script in an interpreter of its own, all in one process, and return the lines that they printed."""
    env = {name: value for name, value in os.environ.items() if name != "WHEELCACHE_CORE"} | {"PYTHONPATH": "."}
    return run(IN_INTERPRETERS, kind, *scripts, env=env).splitlines()


def test_all_threads_end_with_their_interpreter():
    """An interpreter that ends before its threads aborts the process."""
    assert in_interpreters("legacy", USE) == ["3 9 running", "value", "MainThread", "destroyed"]


@pytest.mark.skipif(
    sys.version_info[:2] == (3, 12), reason="modules of Python 3.12 itself do not work in isolated interpreters"
)
def test_where_no_daemon_thread_is_allowed_writes_do_the_work():
    *said, end = [line for line in in_interpreters("isolated", USE) if not line.startswith("The compiled core")]
    assert said[0].startswith("The wheel thread cannot start (")
    assert said[0].endswith("); writes advance the wheels instead.")
    assert said[1:] == ["3 9 refused", "value", "MainThread"]
    assert end == "destroyed"


NEEDS_3_13 = pytest.mark.skipif(sys.version_info < (3, 13), reason="3.11 can load it, 3.12 is broken")


@pytest.mark.compiled
@pytest.mark.parametrize(
    ("kind", "before"),
    [("legacy", [CHOICE]), pytest.param("isolated", [], marks=NEEDS_3_13)],
    ids=["second", "isolated"],
)
def test_an_interpreter_that_cannot_load_the_compiled_core_runs_the_one_in_python_and_says_why(kind, before):
    """The extension loads in one interpreter of a process. Python >= 3.12 refuses it in every isolated one."""
    *first, warning, core, end = in_interpreters(kind, *before, CHOICE)
    assert first == ["compiled"] * len(before)
    assert warning.startswith("The compiled core cannot be used (")
    assert warning.endswith("); the Python core is used instead.")
    assert (core, end) == ("python", "destroyed")
