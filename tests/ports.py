"""Ports for the servers that tests start."""

import socket
from contextlib import suppress
from random import SystemRandom


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
