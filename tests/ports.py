"""Ports for the servers that tests start."""

import socket
import subprocess
from contextlib import contextmanager, suppress
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


def start_on_free_port(server):
    """Set ``server.port`` and start the server, which raises RuntimeError if it cannot start on that port."""
    for _ in range(5):
        (server.port,) = free_ports(1)
        try:
            server.start()
        except RuntimeError as cannot:
            # Another process may have got the port in between.
            error = cannot
        else:
            return
    raise error


@contextmanager
def serving(command, **given):
    """Start a server, end it with the block, and yield its port when it accepts connections.

    Args:
        command: of the server, with {port} in place of the port.
        given: as to ``subprocess.Popen``.
    """
    server = _Server(command, given)
    start_on_free_port(server)
    try:
        yield server.port
    finally:
        server.stop()


class _Server:
    def __init__(self, command, given):
        self._command = command
        self._given = given

    def start(self):
        command = [str(part).format(port=self.port) for part in self._command]
        self._process = subprocess.Popen(command, **self._given)
        ended = happens(lambda: self._process.poll() is not None or is_listening(self.port))
        if not ended or self._process.poll() is not None:
            self.stop()
            raise RuntimeError(f"{command} does not start")

    def stop(self):
        self._process.kill()
        self._process.wait(PATIENCE)


def is_listening(port):
    with socket.socket() as connection:
        return connection.connect_ex(("127.0.0.1", port)) == 0
