"""A memcached of a test's own, on a free port."""

import os
import shutil
from contextlib import contextmanager

from tests.ports import serving


@contextmanager
def memcached_server():
    """Run the server, and yield its address.

    Raises:
        RuntimeError: memcached is not installed.
    """
    program = shutil.which("memcached")
    if program is None:
        raise RuntimeError("these tests need memcached in the PATH: make packages")
    user = ["-u", "root"] if os.geteuid() == 0 else []
    with serving([program, "-l", "127.0.0.1", "-p", "{port}", *user]) as port:
        yield f"127.0.0.1:{port}"
