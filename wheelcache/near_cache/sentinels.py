"""Asks the Sentinels of a Redis, with each PING of the tracking connection, whether its server is still the master.

After a failover, the old master may go on answering without being demoted: the network has split, or the Sentinels
cannot log in to it. Clients that connect from then on write to the new master, and a tracking connection to the old one
receives nothing of these writes. Without this question, the copies stay in use until the connection ends.

The answer is yes if **more than half of the configured Sentinels have named this server since the PING, and none has
named another**.

- One Sentinel of three may be down, hang, or not know the service.
- A single Sentinel that names another server decides, since it may be the one that has led the failover, and clients
  that ask it already write to the other server. A majority vote would wait until the others have heard of it.
- The answer of any one Sentinel, by which redis-py chooses its server, is not enough: a Sentinel that is cut off from
  the others names the old master until the split is over.
- If no majority answers, the copies are not used, and every read asks the server: a process that reaches only the
  minority cannot know whether the majority has chosen another master.

The connections stay open, and the question is sent to all of them at the same time, so neither an invalidation nor the
answer to the PING waits for a Sentinel. A Sentinel that owes an answer is not asked again until it answers. A lost
connection is made again together with the tracking connection, which happens immediately if no majority is left:
connecting to a machine that is switched off waits until the timeout, and invalidations would have to wait as well.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, Final

import redis
from redis.exceptions import RedisError
from redis.sentinel import SentinelConnectionPool

from wheelcache.near_cache.redis_tracking import Connect, connect_like

FAILED: Final = (RedisError, OSError)


class NotConfirmed(RedisError):
    """The Sentinels do not confirm that the server is the master."""


class _Sentinel:
    """A connection to a Sentinel.

    Attributes:
        asked: the number of the question that it has not answered yet; 0 if there is none.
    """

    __slots__ = ("asked", "connection")

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self.asked = 0


class Sentinels:
    """The ``Question`` of a tracking connection to the master of a service.

    Args:
        connects: the functions that connect to the Sentinels, one each.
        service: the name of the service, such as "mymaster".
        fixed_host: the host by which clients reach any master; None if it is the one that the Sentinels name.
    """

    def __init__(self, connects: Sequence[Connect], service: str, fixed_host: str | None) -> None:
        self._connects = connects
        self._service = service
        self._fixed_host = fixed_host
        self._server = ""
        self._sentinels: list[_Sentinel] = []
        self._number = 0
        self._confirmations = 0
        self._last_error: BaseException | None = None

    def connect(self, connection: Any, timeout: float) -> None:
        self._server = f"{connection.host}:{connection.port}"
        for connect in self._connects:
            sentinel = _Sentinel(connect(timeout))
            self._sentinels.append(sentinel)
            try:
                sentinel.connection.connect()
            except FAILED as error:
                self._drop(sentinel, error)

    def ask(self) -> None:
        self._number += 1
        self._confirmations = 0
        for sentinel in list(self._sentinels):
            if not sentinel.asked:
                try:
                    sentinel.connection.send_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._service)
                except FAILED as error:
                    self._drop(sentinel, error)
                sentinel.asked = self._number

    def sockets(self) -> list[socket.socket]:
        return [each.connection._sock for each in self._sentinels if each.asked]

    def is_confirmed(self) -> bool:
        for named in self._new_answers():
            if named != self._server:
                raise NotConfirmed(f"a Sentinel names {named} as the master, not {self._server}")
            self._confirmations += 1
        count, majority = len(self._connects), len(self._connects) // 2 + 1
        if len(self._sentinels) < majority:
            raise NotConfirmed(f"only {len(self._sentinels)} of {count} Sentinels can be asked ({self._last_error})")
        return self._confirmations >= majority

    def _new_answers(self) -> Iterator[str]:
        """Return the servers that have been named in answer to the last question."""
        for sentinel in [each for each in self._sentinels if each.asked]:
            try:
                if not sentinel.connection.can_read(0):
                    continue
                answer = sentinel.connection.read_response()
            except FAILED as error:
                self._drop(sentinel, error)
                continue
            number, sentinel.asked = sentinel.asked, 0
            # None if the Sentinel does not know the service.
            if number == self._number and answer is not None:
                host, port = (each.decode() for each in answer)
                yield f"{self._fixed_host or host}:{port}"

    def _drop(self, sentinel: _Sentinel, error: BaseException) -> None:
        self._last_error = error
        self._sentinels.remove(sentinel)
        sentinel.connection.disconnect()

    def disconnect(self) -> None:
        while self._sentinels:
            self._sentinels.pop().connection.disconnect()

    def close_in_child(self) -> None:
        for sentinel in self._sentinels:
            with suppress(OSError):
                sentinel.connection._sock.close()
        self._sentinels = []


def sentinels_of(client: redis.Redis) -> Sentinels | None:
    """Return the Sentinels through which ``client`` finds its server; None if it finds it in another way."""
    pool = client.connection_pool
    if not isinstance(pool, SentinelConnectionPool):
        return None
    manager = pool.sentinel_manager
    return Sentinels(
        [connect_like(each) for each in manager.sentinels],
        pool.service_name,
        getattr(manager, "_force_master_ip", None),
    )
