"""Waits for a socket, and ends that wait from another thread."""

from __future__ import annotations

import select
import socket
from collections.abc import Iterable
from contextlib import suppress


class Waker:
    """Lets other threads wake the one thread that waits.

    The waiting thread creates it. It keeps the functions of ``select`` from that time, because functions that gevent
    patches later would create a hub in a thread that has none.
    """

    def __init__(self) -> None:
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)
        self._poll = getattr(select, "poll", None)
        self._select = select.select

    def wake(self) -> None:
        """End the current wait, or the next one."""
        with suppress(OSError):
            self._writer.send(b"\0")

    def wait(self, sockets: Iterable[socket.socket], seconds: float) -> None:
        """Wait until one of ``sockets`` is readable, for at most ``seconds``."""
        files = [self._reader.fileno(), *(each.fileno() for each in sockets)]
        if self._poll is None:
            self._select(files, [], [], seconds)
        else:
            # select() refuses descriptors from 1024 on.
            poll = self._poll()
            for file in files:
                poll.register(file, select.POLLIN)
            poll.poll(1000 * seconds)
        with suppress(OSError):
            self._reader.recv(4096)

    def close(self) -> None:
        """Close the sockets."""
        self._reader.close()
        self._writer.close()
