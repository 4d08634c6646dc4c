"""Reports the writes of all clients of a Redis or Valkey server to this process: one connection, one daemon thread.

Redis's client-side caching in broadcast mode (https://redis.io/docs/latest/develop/reference/client-side-caching/):
After ``CLIENT TRACKING ON BCAST PREFIX ...`` the server sends the name of every key under the prefixes that is written,
deleted, evicted, or removed because it expired. The server needs version 6 and stores nothing per key for this.

The connection speaks RESP2, is the target of its own ``REDIRECT``, and subscribes to ``__redis__:invalidate``. RESP3,
which needs neither, was tried and rejected: the result of redis-py for a push message depends on its version and on
hiredis (from 5.2 on, the pure parser returns None, and the keys go to a handler that is not public). The messages of a
subscription are the same from 5.0 to 8.1, with hiredis and without. Also, the server buffers any amount of data for a
RESP3 client that does not read, whereas it drops a subscriber that is 32 MB behind, or 8 MB for a minute
(``client-output-buffer-limit pubsub``), and a dropped connection is no longer trusted. The price: a user with an ACL
needs the channel as well: ``+ping +subscribe +client|id +client|tracking &__redis__:invalidate``.

The age of a value that a read can return is bounded. Every ``interval``, the thread sends a PING, whose answer arrives
after all earlier messages of the server. While ``clock() < trusted_until``, the listener has therefore received every
write that was acknowledged more than ``interval + timeout`` ago (2 s by default). This holds even if the thread, or the
whole process, has not run in between. Usually the delay is the time of one message: 0.1 ms on one machine. A reader
that does not look at the clock, and relies on ``trust()`` alone, must add the time that the thread waits for the
interpreter.

The answer shows that the server works, not that it is still the one to which clients write. A ``Question`` asks others
about this, at the time of the PING: see ``sentinels``.

``SWAPDB`` is not reported, since no server sends anything for it. The expiry of a key is not reported until the server
removes the key, so a copy must have a TTL of its own. The following are reported needlessly: keys of the same name in
other databases, since a message has no database number; this process's own writes, since it writes through other
connections; and ``FLUSHDB`` of any database, which arrives as "everything".

A process that reads from replicas must track the replica that it reads from: the primary reports a write before the
replica has it. For Redis Cluster, where every node reports only its own keys, see ``cluster_tracking``.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Iterable
from contextlib import suppress
from math import inf
from random import SystemRandom
from typing import Any, Final, Protocol

import redis
from redis.exceptions import AuthenticationError, AuthorizationError, InvalidResponse, RedisError, ResponseError

from wheelcache.near_cache.repeating_thread import RepeatingThread
from wheelcache.runtime.clock import Clock, SystemClock
from wheelcache.runtime.shared_objects import lazy_lock

logger = logging.getLogger("wheelcache")

INTERVAL: Final = 1.0
TIMEOUT: Final = 1.0
"""Seconds between two PINGs, and until the answer, or any other operation of the socket, is overdue."""

FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 10.0
"""Seconds until a lost connection is tried again: 0.1, 0.2 ... 10, each times a random number from 0.5 to 1. If a
connection has lasted as long as the longest pause, the next pause is the first one again."""

PAUSE_IF_REFUSED: Final = 60.0
"""Seconds, times such a random number, after a wrong password or an unknown command, which an operator must correct."""

CHANNEL: Final = "__redis__:invalidate"


class Listener(Protocol):
    """Receives the writes, on the tracking thread, in the order of the server's messages, with no lock held.

    If a method raises, that is logged, and the connection is made again: the method may not have dropped all copies.
    """

    def invalidated(self, keys: list[bytes]) -> object:
        """Drop the copies of ``keys``, and do not keep values that were read before this call."""

    def flushed(self) -> object:
        """Drop every copy."""

    def trust(self, trusted: bool) -> object:
        """Use copies from now on, but none that were read before this call; with False, use none.

        The child of a fork calls this with False. It must acquire no lock: a thread of the parent may have held it.
        """

    def refused(self) -> object:
        """Record that the server refuses to report writes, until ``trust(True)``. Copies are not trusted already."""


class Question(Protocol):
    """Whether the server of a tracking connection is still the one to which clients write. It is asked with each PING.

    The tracking thread calls the methods, except for ``close_in_child``. Only ``connect`` may wait.
    """

    def connect(self, connection: Any, timeout: float) -> object:
        """Prepare to ask about the server of ``connection``, which is connected. Each wait takes at most ``timeout``
        seconds.

        Raises:
            RedisError, OSError: if there is nobody to ask.
        """

    def ask(self) -> object:
        """Send the question."""

    def sockets(self) -> Iterable[socket.socket]:
        """Return the sockets on which answers arrive."""

    def is_confirmed(self) -> bool:
        """Return whether the answer to the last question has arrived and is yes.

        Raises:
            RedisError, OSError: if the answer is no, or cannot arrive.
        """

    def disconnect(self) -> object:
        """Disconnect. A second call has no effect."""

    def close_in_child(self) -> object:
        """Close the inherited sockets in the child of a fork, and leave the parent's connections alone."""


Connect = Callable[[float], Any]
"""Makes a connection of redis-py, not yet connected, that speaks RESP2 and waits at most the given seconds."""


def client_of(cache: Any) -> redis.Redis:
    """Return the client that writes for ``cache``: Django's RedisCache, django-redis's, cachelib's or Flask-Caching's.

    Raises:
        TypeError: if ``cache`` is none of these, or its client is not a plain, synchronous ``redis.Redis``.
    """
    if hasattr(cache, "_write_client"):
        client = cache._write_client
    elif hasattr(getattr(cache, "client", None), "get_client"):
        client = cache.client.get_client(write=True)
    elif hasattr(getattr(cache, "_cache", None), "get_client"):
        client = cache._cache.get_client(write=True)
    else:
        client = cache
    if not isinstance(client, redis.Redis):
        raise TypeError(f"Tracking takes redis.Redis or a cache with such a client, not {client!r}")
    return client


def connect_like(client: redis.Redis) -> Connect:
    """Return a function that connects as ``client`` does, with its credentials, TLS or Sentinel, outside its pool."""
    pool = client.connection_pool

    def connect(timeout: float) -> Any:
        options = {name: value for name, value in pool.connection_kwargs.items() if not name.startswith(LEFT_OUT)}
        options |= {
            "protocol": 2,
            "decode_responses": False,
            "socket_timeout": timeout,
            "socket_connect_timeout": timeout,
            "health_check_interval": 0,
        }
        return pool.connection_class(**options)

    return connect


LEFT_OUT: Final = ("retry", "parser_class", "maint", "orig_")
"""The prefixes of pool options that concern redis-py's own retries and RESP3."""


class Silent(Exception):
    """The server did not answer in time."""


class ListenerRaised(Exception):
    """The listener raised an exception, which was logged."""


EXPECTED: Final = (RedisError, OSError, Silent, ListenerRaised)
REFUSED: Final = (ResponseError, AuthenticationError, AuthorizationError)


class _Link:
    """A connection that delivers. At a fork, one tracking thread hands it over to the next.

    Attributes:
        number: the number of the last PING.
        asked: the time of the last PING.
        waiting: whether its answer, or that to the question that was asked with it, is outstanding.
        answered: whether the server has answered it.
        behind: whether the server's answer was overdue once already.
        due: the time at which the next PING, or the answer, is due.
    """

    __slots__ = ("answered", "asked", "behind", "connection", "due", "number", "waiting")

    def __init__(self, connection: Any, due: float) -> None:
        self.connection = connection
        self.asked = self.due = due
        self.number = 0
        self.waiting = self.answered = self.behind = False


class Tracking:
    """Reports every write under ``prefix`` to ``listener``, and whether tracking works.

    Args:
        connect: see ``connect_like``.
        prefix: the prefix of the keys on the server; ``b""`` is every key.
        question: is asked with each PING; None if the server's answer is enough.
        interval, timeout: seconds; the module's docstring says how they bound the staleness.

    Attributes:
        trusted_until: the time, by ``clock``, until which the copies may be used; -inf if they may not.
    """

    def __init__(
        self,
        connect: Connect,
        prefix: bytes,
        listener: Listener,
        *,
        question: Question | None = None,
        interval: float = INTERVAL,
        timeout: float = TIMEOUT,
        clock: Clock = SystemClock.steady,
    ) -> None:
        self._connect = connect
        self._prefix = prefix
        self._listener = listener
        self._question = question
        self._interval = interval
        self._timeout = timeout
        self._clock = clock
        self._reset()
        self._thread = RepeatingThread("wheelcache-tracking", self, "no local copies are used")

    def _reset(self) -> None:
        self.trusted_until = -inf
        self._reported_trust = False
        # The state that was logged last, "lost" or "refused", until the connection is back, and its beginning.
        self._logged: str | None = None
        self._lost_at = 0.0
        self._connection: Any = None
        self._link: _Link | None = None
        self._pause = FIRST_PAUSE
        self._lock = lazy_lock()

    def start(self) -> None:
        """Start the thread that connects. Do nothing if it is running, or after ``stop()``."""
        self._thread.start()

    def stop(self) -> None:
        """Disconnect for good. The listener receives ``trust(False)`` and is no longer called when this returns, unless
        the listener itself takes longer than ``timeout``, or is the caller.
        """
        self._thread.stop()
        with self._lock.get():
            self.trusted_until = -inf
        # This wakes the thread. If the socket were closed here, the thread might read from another one with its number.
        sock = getattr(self._connection, "_sock", None)
        if sock is not None:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        self._thread.join(self._timeout)

    def turn(self) -> float:
        began = self._clock()
        try:
            self._track()
        except REFUSED as error:
            self._lost("refused", error)
            seconds = PAUSE_IF_REFUSED
        except BaseException as error:
            # Including exceptions of credential providers and SystemExit: they must not end this thread.
            self._lost("lost", error)
            seconds = FIRST_PAUSE if self._clock() - began >= LONGEST_PAUSE else self._pause
            self._pause = min(2 * seconds, LONGEST_PAUSE)
        else:
            return 0.0
        return seconds * (0.5 + SystemRandom().random() / 2)

    def leave(self) -> None:
        self._disconnect()
        self._distrust()

    def _track(self) -> None:
        """Connect and deliver until stopped or until a fork. Any error is raised."""
        try:
            if self._link is None:
                self._link = self._connected()
            self._deliver(self._link)
        except BaseException:
            self._disconnect()
            raise

    def _disconnect(self) -> None:
        connection, self._connection, self._link = self._connection, None, None
        if connection is not None:
            connection.disconnect()
        if self._question is not None:
            self._question.disconnect()

    def _connected(self) -> _Link:
        self._thread.is_busy = True
        try:
            self._connection = connection = self._connect(self._timeout)
            connection.connect()
            self._subscribe(connection)
            if self._question is not None:
                self._question.connect(connection, self._timeout)
        finally:
            self._thread.is_busy = False
        return _Link(connection, self._clock())

    def _subscribe(self, connection: Any) -> None:
        """Turn tracking on."""
        connection.send_command("CLIENT", "ID")
        identity = connection.read_response()
        connection.send_command("CLIENT", "TRACKING", "ON", "REDIRECT", identity, "BCAST", "PREFIX", self._prefix)
        connection.read_response()
        connection.send_command("SUBSCRIBE", CHANNEL)
        connection.read_response()

    def _deliver(self, link: _Link) -> None:
        if link.waiting:
            # The server may have answered while there was no thread.
            link.due = max(link.due, self._clock() + self._timeout)
        while not self._thread.must_end():
            now = self._clock()
            if now >= link.due and not link.waiting:
                self._ask(link, now)
            if self._can_read(link):
                if not link.answered and self._is_overdue(link):
                    self._fall_behind(link)
                self._read(link)
            elif not link.answered and self._is_overdue(link):
                raise Silent(f"no answer within {self._timeout} s")
            # Also without an answer of the server: the wait above would not wait while these sockets have data.
            if (self._question is None or self._question.is_confirmed()) and link.answered:
                self._confirmed(link)
            elif link.answered and self._is_overdue(link):
                raise Silent(f"not confirmed within {self._timeout} s")

    def _is_overdue(self, link: _Link) -> bool:
        return link.waiting and self._clock() >= link.due

    def _fall_behind(self, link: _Link) -> None:
        """Wait for the answer once more. This thread did not run or the listener took long, so other messages may
        precede the answer. ``trusted_until`` has passed by now."""
        if link.behind:
            raise Silent(f"more than {self._timeout} s behind")
        link.behind, link.due = True, self._clock() + self._timeout

    def _ask(self, link: _Link, now: float) -> None:
        link.number += 1
        link.connection.send_command("PING", str(link.number))
        if self._question is not None:
            self._question.ask()
        link.asked, link.due = now, now + self._timeout
        link.waiting, link.answered, link.behind = True, False, False

    def _read(self, link: _Link) -> None:
        message = link.connection.read_response()
        match message:
            case [b"message", _, None]:
                self._notify(self._listener.flushed)
            case [b"message", _, list()]:
                self._notify(self._listener.invalidated, message[2])
            case [b"pong", answer]:
                link.answered = answer == str(link.number).encode()
            case _:
                raise InvalidResponse(f"{message!r:.100} among messages")

    def _can_read(self, link: _Link) -> bool:
        """Return whether there is a message. Wait for one until something else is due, or this thread is woken."""
        # A poll of the socket would not find data that the connection has already read.
        seconds, sock = max(link.due - self._clock(), 0.0), getattr(link.connection, "_sock", None)
        if not link.connection.can_read(0) and sock is not None:
            asked = () if self._question is None else self._question.sockets()
            self._thread.wait((sock, *asked), seconds)
            seconds = 0.0
        return bool(link.connection.can_read(seconds))

    def _confirmed(self, link: _Link) -> None:
        """Record that all writes before the last PING were reported."""
        link.waiting = link.answered = False
        link.due = link.asked + self._interval
        if not self._reported_trust:
            self._reported_trust = True
            self._notify(self._listener.trust, True)
        with self._lock.get():
            if not self._thread.is_stopped:
                self.trusted_until = link.asked + self._interval + self._timeout
        if self._logged is not None:
            self._logged = None
            # A warning, like the one about the loss: the operator learns that it is over.
            logger.warning("Receiving invalidations for %s again, after %.1f s.", self, self._clock() - self._lost_at)

    def _lost(self, how: str, error: BaseException) -> None:
        with self._lock.get():
            self.trusted_until = -inf
        self._distrust()
        if self._logged == how or self._thread.is_stopped:
            return
        if how == "refused":
            with suppress(ListenerRaised):
                self._notify(self._listener.refused)
        if self._logged is None:
            self._lost_at = self._clock()
        self._logged = how
        logger.warning(
            "Not receiving invalidations for %s (%s: %s); no local copies are used until they arrive. %s",
            self,
            type(error).__name__,
            error,
            "This needs Redis 6, and rights to CLIENT TRACKING and its channel." if how == "refused" else "Retrying.",
            exc_info=None if isinstance(error, EXPECTED) else error,
        )

    def _distrust(self) -> None:
        if self._reported_trust:
            self._reported_trust = False
            with suppress(ListenerRaised):
                self._notify(self._listener.trust, False)

    def _notify(self, method: Callable[..., object], *arguments: object) -> None:
        self._thread.is_busy = True
        try:
            method(*arguments)
        except BaseException as error:
            logger.exception("%r raised.", method)
            raise ListenerRaised(f"the listener raised {type(error).__name__}") from error
        finally:
            self._thread.is_busy = False

    def after_fork_in_child(self) -> None:
        connection, reported_trust = self._connection, self._reported_trust
        self._reset()
        # Close the socket, or the server would continue to send to this copy after the parent's death. Do not shut it
        # down, which would end the parent's connection. disconnect() might acquire locks of telemetry code.
        sock = getattr(connection, "_sock", None)
        if sock is not None:
            with suppress(OSError):
                sock.close()
        if self._question is not None:
            self._question.close_in_child()
        self._reported_trust = reported_trust
        self._distrust()

    def __str__(self) -> str:
        return f"Redis keys {self._prefix.decode(errors='replace')}*"
