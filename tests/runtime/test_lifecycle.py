"""The hooks of forks and of the exit: their order, and members that raise."""

import textwrap
from pathlib import Path

import pytest

import wheelcache
from tests.scripts import start

PACKAGE = Path(wheelcache.__file__).parent


def test_no_other_module_registers_a_hook():
    registering = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if any(name in path.read_text() for name in ("register_at_fork", "import atexit", "from atexit"))
    }
    assert registering == {"runtime/lifecycle.py"}


PRELUDE = """
import os, sys, threading
from wheelcache.runtime import lifecycle
from wheelcache.runtime.lifecycle import HELD, POOLS, RENEWED, TRACKING, WHEEL

notes = []

class Noting:
    def __init__(self, name, fails=""):
        self.name = name
        self.fails = fails

    def note(self, what):
        notes.append(f"{what}-{self.name}")
        if what == self.fails:
            raise LookupError(what)

    def pause(self):
        assert lifecycle.is_forking()
        self.note("pause")

    def resume(self):
        assert not lifecycle.is_forking()
        self.note("resume")

    def after_fork_in_child(self):
        self.note("forget")

    def before_fork(self):
        self.note("hold")

    def after_fork(self, *, in_child):
        self.note("renew" if in_child else "release")

def fork():
    pid = os.fork()
    if pid == 0:
        print(*notes, flush=True)
        os._exit(0)
    os.waitpid(pid, 0)
"""


def printed(script, error=""):
    """Run a script after the prelude. Return the lines that it printed, split into words. Errors are on stderr."""
    with start(PRELUDE + textwrap.dedent(script)) as process:
        output, errors = process.communicate(timeout=250)
    assert process.returncode == 0, output + errors
    assert error in errors
    assert error or not errors
    return [line.split() for line in output.splitlines()]


def test_members_are_called_in_order_of_their_stages_whatever_the_order_of_registration():
    child, parent = printed("""
        # Referenced, since they would be freed immediately otherwise.
        weak = [Noting("cache"), Noting("timers"), Noting("tracking")]
        for stage, name in ((POOLS, "pool"), (WHEEL, "wheel")):
            stage.add(Noting(name))
        HELD.add_weakly(weak[0])
        HELD.add_weakly(weak[1])
        TRACKING.add_weakly(weak[2])
        RENEWED.add(lambda: notes.append("renewed"))
        fork()
        print(*notes)
        """)
    before = ["pause-tracking", "pause-wheel", "pause-pool", "hold-cache", "hold-timers"]
    assert child == [
        *before,
        "renewed",
        *("forget-wheel", "forget-pool", "renew-cache", "renew-timers", "forget-tracking"),
    ]
    assert parent == [
        *before,
        *("release-timers", "release-cache", "resume-pool", "resume-wheel", "resume-tracking"),
    ]


@pytest.mark.parametrize("what", ["pause", "resume", "forget", "hold", "release", "renew"])
def test_a_member_that_raises_keeps_no_other_from_its_call_and_all_are_called_again(what):
    child, parent = printed(
        f"""
        for name, fails in (("first", ""), ("failing", {what!r}), ("last", "")):
            (HELD if {what!r} in ("hold", "release", "renew") else POOLS).add(Noting(name, fails))
        fork()
        print(*notes)
        """,
        f"LookupError: {what}",
    )
    calls = [note for note in (child if what in ("forget", "renew") else parent) if note.startswith(what)]
    expected = [f"{what}-{name}" for name in ("first", "failing", "last")]
    once = expected[::-1] if what == "release" else expected
    assert calls == once * 2


@pytest.mark.parametrize("counts_late", [False, True])
def test_locks_are_released_once_since_another_thread_may_hold_them_again(counts_late):
    """Some releases of Python count their threads after the hooks, so the fork is not forgotten before the second."""
    _, parent = printed(f"""
        lifecycle.COUNTS_LATE = {counts_late}
        HELD.add(Noting("cache"))
        fork()
        print(*notes)
        """)
    assert parent == ["hold-cache", "release-cache"]


def test_stages_of_the_exit_run_in_order_and_what_raises_keeps_no_other_from_running():
    (order,) = printed(
        """
        for stage in reversed(lifecycle.EXIT):
            name = next(name for name, value in vars(lifecycle).items() if value is stage)
            stage.add(lambda name=name: print(name, end=" ", flush=True))
            stage.add(lambda: 1 / 0)
            stage.add(sys.exit if name == "STOP_WHEEL" else lambda: print("too", end=" ", flush=True))
        """,
        "ZeroDivisionError",
    )
    assert order == [
        *("PUBLISH", "too", "STOP_WHEEL", "STOP_POOLS", "too", "STOP_TRACKING", "too"),
    ]
