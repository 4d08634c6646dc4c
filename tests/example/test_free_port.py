"""A port that the example cannot be served at."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def busy_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def make(target, port):
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    command = ["make", target, f"PORT={port}", f"PYTHON={sys.executable}"]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=250)


@pytest.mark.parametrize("target", ["run", "run-flask"])
def test_a_busy_port_is_reported_before_anything_else_is_done(busy_port, target):
    done = make(target, busy_port)
    assert done.returncode != 0
    assert done.stdout == ""
    assert f"Port {busy_port} is in use. Choose another one with PORT=" in done.stderr


@pytest.mark.parametrize("port", ["no-number", "0", "65536", "-1", "'8000 8001'"])
def test_what_is_no_port_is_reported(port):
    done = make("free-port", port)
    assert done.returncode != 0
    assert "PORT must be a number from 1 to 65535" in done.stderr
