"""What the tests need of Debian: installed where that is allowed, named in one sentence where it is not."""

import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("packages.sh")

APT_GET = """
echo "$DEBIAN_FRONTEND $*" >> "$(dirname "$0")/calls"
echo "Reading package lists"
"""
BROKEN_APT_GET = """
echo "There is no such mirror" >&2
exit 100
"""
# What sudo runs, as root.
SUDO = """
[ "$1" = -n ] && shift
[ "$1" = true ] || exec "$@"
"""
NO_SUDO = """
echo "sudo: a password is required" >&2
exit 1
"""


@pytest.fixture
def run(tmp_path):
    """Run the script on a machine that has no redis-server and no memcached: ``run({"id": "echo 0"})``.

    The machine has these programs, which are shell scripts, and lacks those that are None. The result is that of the
    script and the calls of apt-get.
    """

    def run_script(programs):
        for name in ("cat", "dirname", "env", "mkdir", "mktemp", "mv", "rm"):
            (tmp_path / name).symlink_to(shutil.which(name))
        for name, script in {"python3": "", "cc": "", "apt-get": APT_GET, "promtool": "", **programs}.items():
            if script is not None:
                program = tmp_path / name
                program.write_text(f"#!/bin/sh\n{script}\n")
                program.chmod(0o755)
        environment = {"PATH": str(tmp_path)}
        done = subprocess.run([SCRIPT], env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=60)
        calls = tmp_path / "calls"
        return done, calls.read_text().splitlines() if calls.exists() else []

    return run_script


@pytest.mark.parametrize("machine", [{"id": "echo 0"}, {"id": "echo 1000", "sudo": SUDO}], ids=["root", "sudo"])
def test_missing_packages_are_installed_without_a_question(run, machine):
    done, calls = run(machine)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "Installing the Debian packages redis-server memcached\n"
    update, install = calls
    assert update.startswith("noninteractive ")
    assert update.endswith(" update")
    assert install.startswith("noninteractive ")
    assert install.endswith(" install -y redis-server memcached")


@pytest.mark.parametrize(
    "machine", [{"id": "echo 1000"}, {"id": "echo 1000", "sudo": NO_SUDO}], ids=["no sudo", "sudo asks for a password"]
)
def test_missing_packages_are_named_where_they_cannot_be_installed(run, machine):
    done, calls = run(machine)
    assert done.returncode == 1
    assert done.stdout == ""
    (sentence,) = done.stderr.splitlines()
    assert sentence.endswith("apt-get install redis-server memcached")
    assert calls == []


def test_a_python_that_cannot_make_environments_misses_a_package(run):
    done, _ = run({"id": "echo 1000", "python3": "exit 1"})
    assert "apt-get install python3-venv python3-dev redis-server memcached" in done.stderr


def test_promtool_is_unpacked_even_without_root_and_its_package_is_not_installed(run, tmp_path):
    unpack = 'mkdir -p usr/bin && echo "$*" > usr/bin/promtool'
    installed = {"redis-server": "", "memcached": "", "promtool": None}
    download = APT_GET + '\n[ "$2" != download ] || echo > prometheus_1_all.deb'
    done, calls = run({**installed, "id": "echo 1000", "apt-get": download, "dpkg-deb": unpack})
    assert (done.returncode, done.stderr) == (0, "")
    assert calls == [" -qq download prometheus"]
    assert (tmp_path / ".fetched" / "promtool").read_text() == "-x prometheus_1_all.deb .\n"
    assert [each.name for each in (tmp_path / ".fetched").iterdir()] == ["promtool"]


def test_what_apt_get_says_is_shown_when_it_fails(run):
    done, _ = run({"id": "echo 0", "apt-get": BROKEN_APT_GET})
    assert done.returncode == 1
    assert done.stderr == "There is no such mirror\n"


def test_where_everything_is_installed_nothing_is_said_or_done(run):
    done, calls = run({"id": "echo 0", "redis-server": "", "memcached": ""})
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert calls == []
