"""A redis-server of a test's own, on a free port, nothing on disk, that can be killed, stopped and brought back."""

import os
import shutil
import signal
import socket
import subprocess
import tempfile

import redis

from tests.ports import start_on_free_port
from tests.waiting import PATIENCE, happens


class RedisServer:
    """``with RedisServer("--maxmemory", "2mb") as server: server.client().set("key", 1)``

    Args:
        options: of its command line.
        is_sentinel: whether it is a Sentinel.

    Raises:
        RuntimeError: if redis-server is not installed or does not start; the message contains its output.
    """

    host = "127.0.0.1"

    def __init__(self, *options, is_sentinel=False):
        self._program = shutil.which("redis-server")
        if self._program is None:
            raise RuntimeError("these tests need redis-server in the PATH: make packages")
        self._options = options
        self._is_sentinel = is_sentinel
        self._directory = tempfile.TemporaryDirectory(prefix="wheelcache-redis-")
        self.port = None
        self._process = None
        self._clients = []

    @property
    def url(self):
        return f"redis://{self.host}:{self.port}/0"

    def __enter__(self):
        try:
            start_on_free_port(self)
        except BaseException:
            # Also Ctrl-C: no server stays.
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.stop()
        self._directory.cleanup()

    def start(self):
        """Start, or start again on the same port; returns when it answers."""
        log = f"{self._directory.name}/log"
        fixed = ["--port", self.port, "--bind", self.host, "--dir", self._directory.name, "--logfile", log]
        fixed += ["--save", "", "--appendonly", "no", "--daemonize", "no"]
        first = []
        if self._is_sentinel:
            # It keeps its state in a file.
            state = f"{self._directory.name}/sentinel.conf"
            open(state, "a").close()
            first = [state, "--sentinel"]
        self._process = subprocess.Popen([self._program, *first, *map(str, fixed), *self._options])
        if not happens(lambda: self._process.poll() is not None or self._accepts()) or self._process.poll() is not None:
            self.stop()
            with open(log) as written:
                raise RuntimeError(f"redis-server does not start on port {self.port}:\n{written.read()}")

    def stop(self):
        """End the server, even if it was paused, and remove its files."""
        for client in self._clients:
            client.close()
        self._clients.clear()
        if self._process is not None:
            self.kill()

    def kill(self):
        """Kill the server with SIGKILL."""
        self._process.kill()
        self._process.wait(PATIENCE)

    def pause(self):
        """Stop the server with SIGSTOP: connections stay, but no request is answered after this returns."""
        self._process.send_signal(signal.SIGSTOP)
        os.waitpid(self._process.pid, os.WUNTRACED)

    def resume(self):
        self._process.send_signal(signal.SIGCONT)

    def client(self, **options):
        """A client of it, closed with the server."""
        client = redis.Redis(self.host, self.port, **options)
        self._clients.append(client)
        return client

    def _accepts(self):
        # Any answer will do: some tests' servers want a password.
        try:
            with socket.create_connection((self.host, self.port), timeout=1) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(1) != b""
        except OSError:
            return False
