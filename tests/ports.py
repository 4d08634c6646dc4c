"""Servers that tests start, each a process with a port of its own."""

import socket
import subprocess
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from random import SystemRandom

from tests.waiting import PATIENCE, happens


def free_ports(number):
    """Return ports on which nothing listens.

    They are below those that the system gives to connections: another process could get such a port for a connection
    before the server listens on it.
    """
    found = set()
    while len(found) < number:
        port = SystemRandom().randrange(10_000, 32_768)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            found.add(port)
    return list(found)


def is_listening(port):
    with socket.socket() as connection:
        return connection.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def serving(command, **given):
    """Start a server, end it with the block, and yield its port when it accepts connections: see ``OwnServer``."""
    with OwnServer(command, **given) as server:
        yield server.port


class OwnServer:
    """A server that can be killed and started again on its port. It ends with the block, and so do its clients.

    Args:
        command: of the server, with {port} and {folder} in place of the port and of an empty folder.
        given: as to ``subprocess.Popen``.

    Raises:
        RuntimeError: if the server does not start; the message contains its output.
    """

    host = "127.0.0.1"

    def __init__(self, command, **given):
        self._directory = tempfile.TemporaryDirectory(prefix="wheelcache-server-")
        self._folder = Path(self._directory.name)
        self._command = command
        self._given = {"stderr": subprocess.STDOUT, **given}
        self._process = None
        self._clients = []

    def __enter__(self):
        try:
            for tries_left in reversed(range(5)):
                (self.port,) = free_ports(1)
                try:
                    self.start()
                    break
                except RuntimeError:
                    # Another process may have got the port in between.
                    if not tries_left:
                        raise
        except BaseException:
            # Also Ctrl-C: no server stays.
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for client in self._clients:
            client.close()
        if self._process is not None and self._process.poll() is None:
            self.stop()
        self._directory.cleanup()

    def start(self):
        """Start, or start again on the same port. Return when the server accepts connections."""
        command = [str(part).format(port=self.port, folder=self._folder) for part in self._command]
        log = self._folder / "log"
        with log.open("wb") as output:
            self._process = subprocess.Popen(command, **{"stdout": output, **self._given})
        if not happens(lambda: self._process.poll() is not None or self._accepts()) or self._process.poll() is not None:
            self.kill()
            raise RuntimeError(f"{command} does not start:\n{log.read_text()}")

    def _accepts(self):
        return is_listening(self.port)

    def _closed(self, client):
        """Return a client, which is closed with the server."""
        self._clients.append(client)
        return client

    def stop(self):
        self.kill()

    def kill(self):
        """Kill the server with SIGKILL."""
        self._process.kill()
        self._process.wait(PATIENCE)
