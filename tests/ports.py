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
