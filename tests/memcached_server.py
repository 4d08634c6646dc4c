"""A memcached of a test's own, on a free port."""

import os
import shutil
import socket
import subprocess
from contextlib import contextmanager

from tests.ports import free_ports
from tests.waiting import PATIENCE, until


@contextmanager
def memcached_server():
    """Run the server, and yield its address.

    Raises:
        RuntimeError: memcached is not installed.
    """
    program = shutil.which("memcached")
    if program is None:
        raise RuntimeError("these tests need memcached in the PATH: make packages")
    address = ("127.0.0.1", *free_ports(1))
    user = ["-u", "root"] if os.geteuid() == 0 else []
    process = subprocess.Popen([program, "-l", address[0], "-p", str(address[1]), *user])

    def accepts():
        with socket.socket() as client:
            return client.connect_ex(address) == 0

    try:
        assert until(accepts)
        yield f"{address[0]}:{address[1]}"
    finally:
        process.kill()
        process.wait(PATIENCE)
