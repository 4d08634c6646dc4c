"""``make packages`` changes the system only if its user agrees. A stub stands for apt-get, and root calls it."""

import os
import pty
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("packages.sh")
SIZE = "After this operation, 787 MB of additional disk space will be used."
APT_GET = f'case "$*" in *--assume-no*) echo "{SIZE}";; *) echo "$@" >> "$CALLS";; esac'
STUBS = {"apt-get": APT_GET, "id": "echo 0", "promtool": "", "cc": "", "node": "", "npm": ""}


@pytest.fixture
def machine(tmp_path):
    """The environment of root on a machine without redis-server and PostgreSQL, whose test needs ls."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("cat", "env", "grep", "mktemp", "rm"):
        (programs / name).symlink_to(shutil.which(name))
    for name, code in STUBS.items():
        (programs / name).write_text(f"#!/bin/sh\n{code}\n")
        (programs / name).chmod(0o755)
    return {"PATH": str(programs), "CALLS": str(tmp_path / "calls")}


def packages(environment, **given):
    done = subprocess.run(
        ["/bin/sh", SCRIPT], env=environment, stderr=subprocess.PIPE, text=True, check=False, timeout=60, **given
    )
    calls = Path(environment["CALLS"])
    return done, calls.read_text() if calls.exists() else ""


def answered(environment, answer):
    ours, its = pty.openpty()
    shown = b""
    try:
        os.write(ours, answer)
        script = f"exec /bin/sh '{SCRIPT}' 2>&0"
        try:
            done = subprocess.run(["/bin/sh", "-c", script], env=environment, stdin=its, check=False, timeout=250)
        finally:
            os.close(its)
        # The terminal hands the output over in pieces. At its end, Linux raises an error, others return nothing.
        with suppress(OSError):
            while piece := os.read(ours, 10_000):
                shown += piece
    finally:
        os.close(ours)
    return done.returncode, shown.decode(), Path(environment["CALLS"]).exists()


def test_without_a_terminal_the_packages_and_the_command_are_named(machine):
    done, calls = packages(machine, stdin=subprocess.DEVNULL)
    assert (done.returncode, calls) == (1, "")
    assert "apt-get install python3-venv" in done.stderr
    assert " redis-server postgresql " in done.stderr
    assert "INSTALL_PACKAGES=1" in done.stderr


def test_with_the_variable_they_are_installed_without_a_question(machine):
    done, calls = packages({**machine, "INSTALL_PACKAGES": "1"}, stdin=subprocess.DEVNULL)
    assert (done.returncode, done.stderr) == (0, "")
    assert "update" in calls.splitlines()[0]
    assert "install -y --no-install-recommends python3-venv" in calls.splitlines()[1]
    assert " redis-server postgresql " in calls.splitlines()[1]


def test_a_user_at_a_terminal_is_asked(machine):
    status, shown, installed = answered(machine, b"\n")
    assert SIZE in shown
    assert "Install them? [y/N]" in shown
    assert (status, installed) == (1, False)
    assert answered(machine, b"y\n")[::2] == (0, True)
