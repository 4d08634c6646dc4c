"""Reports the writes of all clients of a Redis Cluster: one thread, and two connections to each master.

A master reports the writes of its own keys only, and slots can move to a node that nobody listens to. In a test without
the questions below, reads returned overwritten values until ``L1_TIMEOUT``.

``Masters`` gives ``Tracking`` one connection for all: it sends each command to every master, and reads the messages of
all. A PING counts as answered when every master has answered it. With each PING, ``Topology`` asks every master for its
view of the cluster: its state, the current epoch, and the masters that serve slots. Trust is extended only if all views
are the same, the epoch is that of the first answer, and the masters are those that report. Otherwise the tracking is
lost, and begins again with the present masters.

The epoch shows every change that the masters themselves could hide. A replica takes over after most masters have voted
for it, and a vote raises the voter's epoch: no write to the new master is acknowledged before most views differ. The
first slot that a node receives raises its epoch as well, which it sends to all nodes immediately. Slots that move
between two tracked masters change nothing else: both report.

Two connections, because a connection that has subscribed may send PING only. Threads and connections per master were
rejected: with 30 masters, each process would have 31 threads.

A user with an ACL needs ``+cluster|info +cluster|myid +cluster|slots`` in addition to the rights in
``redis_tracking``.
"""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Final, NamedTuple

import redis
from redis.exceptions import ClusterError, RedisClusterException

from wheelcache.near_cache.redis_tracking import Connect, connect_like

Client = Callable[[], redis.RedisCluster]
"""Returns the client of a cluster. The first call may connect."""


def cluster_of(cache: Any) -> Client | None:
    """Return the client of a cache over a cluster: wheelcache's for Django, or Flask-Caching's. Otherwise None."""
    client = getattr(cache, "_write_client", None)
    if isinstance(client, redis.RedisCluster):
        return lambda: client
    return getattr(getattr(cache, "_cache", None), "get_cluster", None)


FROM_REPLICAS: Final = ("read_from_replicas", "load_balancing_strategy")
"""The options of redis-py's client, and its attributes, by which it reads from replicas."""


def reads_from_replicas(cache: Any) -> bool:
    """Return whether a cache over a cluster reads from replicas, which may still have the old value after the master
    has reported the write."""
    client = getattr(cache, "_write_client", None)
    given = cache._cache.options if client is None else vars(client)
    return any(given.get(name) for name in FROM_REPLICAS)


class View(NamedTuple):
    """The answer of one master about the cluster.

    Attributes:
        state: "ok" if it serves all slots.
        epoch: the number of the last change that it knows.
        masters: the identifiers of the masters with slots.
    """

    state: str
    epoch: int
    masters: frozenset[bytes]


class _Master:
    """Two connections to a master.

    Attributes:
        messages: receives the reports of writes.
        answers: receives the answers to questions.
        identity: the identifier of the node.
        view: the answer to the last question; None if it has not arrived.
    """

    __slots__ = ("answers", "identity", "messages", "view")

    def __init__(self, connect: Connect, timeout: float) -> None:
        self.messages = connect(timeout)
        self.answers = connect(timeout)
        self.identity = b""
        self.view: View | None = None

    def connect(self) -> None:
        self.messages.connect()
        self.answers.connect()
        self.answers.send_command("CLUSTER", "MYID")
        self.identity = self.answers.read_response()

    def ask(self) -> None:
        self.view = None
        self.answers.send_command("CLUSTER", "INFO")
        self.answers.send_command("CLUSTER", "SLOTS")

    def read_view(self) -> None:
        if self.answers.can_read(0):
            info = dict(line.split(":") for line in self.answers.read_response().decode().split())
            slots = self.answers.read_response()
            masters = frozenset(master[2] for _, _, master, *_ in slots)
            self.view = View(info["cluster_state"], int(info["cluster_current_epoch"]), masters)


class Masters:
    """Connections to all masters, which ``Tracking`` uses like one connection to one server.

    Attributes:
        each: the masters, from ``connect`` on.
    """

    def __init__(self, client: Client, timeout: float) -> None:
        self._client = client
        self._timeout = timeout
        self._messages: deque[Any] = deque()
        self._pongs: list[Any] = []
        self.each: list[_Master] = []

    def connect(self) -> None:
        """Find the masters and connect to them.

        Raises:
            RedisError, OSError: if that is impossible.
        """
        try:
            client = self._client()
            # From now on the application reads from these masters as well, not from one that was stopped, has been
            # replaced, and continues: its first answers would be outdated.
            client.nodes_manager.initialize()
        except RedisClusterException as error:
            # It is not a RedisError.
            raise ClusterError(str(error)) from error
        for node in client.get_primaries():  # type: ignore[no-untyped-call]
            self.each.append(_Master(connect_like(client.get_redis_connection(node)), self._timeout))
            self.each[-1].connect()
        if not self.each:
            raise ClusterError("no master has slots")

    def send_command(self, *words: Any) -> None:
        """Send a command to every master. A list among its words has one word for each."""
        for number, master in enumerate(self.each):
            master.messages.send_command(*(word[number] if isinstance(word, list) else word for word in words))

    def can_read(self, seconds: float) -> bool:
        """Return whether there is a message. If none is left, read those that have arrived. This does not wait."""
        for master in () if self._messages else self.each:
            while master.messages.can_read(0) and not self._receive(master.messages.read_response()):
                """Another message may follow an answer to PING."""
        return bool(self._messages)

    def _receive(self, message: Any) -> bool:
        """Return whether ``message`` is for ``Tracking``, as the last answer to a PING is."""
        if message[0] == b"pong":
            self._pongs.append(message)
            if self._pongs.count(message) < len(self.each):
                return False
            self._pongs.clear()
        self._messages.append(message)
        return True

    def read_response(self) -> Any:
        """Return the next message. Without one, wait for an answer of every master, and return the list of them."""
        if self._messages:
            return self._messages.popleft()
        return [master.messages.read_response() for master in self.each]

    def disconnect(self) -> None:
        for master in self.each:
            master.messages.disconnect()
            master.answers.disconnect()

    @property
    def _sock(self) -> socket.socket | None:
        """One of the sockets. ``Topology.sockets`` returns the others."""
        return next(iter(self.sockets()), None)

    def sockets(self) -> list[socket.socket]:
        """Return the sockets that are connected."""
        connections = (each for master in self.each for each in (master.messages, master.answers))
        return [sock for each in connections if (sock := each._sock) is not None]


class Topology:
    """The question whether the masters that report are still those that serve all slots.

    Args:
        client: returns the client of the cluster.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._masters: Masters | None = None
        self._epoch: int | None = None

    def masters(self, timeout: float) -> Masters:
        """Return connections to all masters, not yet connected: the ``connect`` of a ``Tracking``."""
        self._masters = Masters(self._client, timeout)
        return self._masters

    def connect(self, connection: Any, timeout: float) -> None:
        self._epoch = None

    def ask(self) -> None:
        for master in self._each():
            master.ask()

    def sockets(self) -> Iterable[socket.socket]:
        return () if self._masters is None else self._masters.sockets()[1:]

    def is_confirmed(self) -> bool:
        for master in self._each():
            master.read_view()
        views = {master.view for master in self._each() if master.view is not None}
        if any(master.view is None for master in self._each()):
            return False
        reporting = frozenset(master.identity for master in self._each())
        for view in views:
            if view.state != "ok":
                raise ClusterError(f"the cluster's state is {view.state!r}")
            if view.masters != reporting:
                raise ClusterError("the cluster has other masters")
            if self._epoch is None:
                self._epoch = view.epoch
            if view.epoch != self._epoch:
                raise ClusterError("the cluster has changed")
        return True

    def _each(self) -> list[_Master]:
        return [] if self._masters is None else self._masters.each

    def disconnect(self) -> None:
        """Do nothing: ``Tracking`` disconnects the masters."""

    def close_in_child(self) -> None:
        masters, self._masters = self._masters, None
        for sock in [] if masters is None else masters.sockets():
            with suppress(OSError):
                sock.close()
