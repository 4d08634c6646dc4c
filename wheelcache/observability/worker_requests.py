"""Pass requests of operators to the workers of a site: to clear, save or load a cache, or to purge some of its pages.

The dashboard and the commands put a request into the database where the workers publish their figures. Each worker
finds it with its next publication, and runs it. Nothing else runs a request: neither a scrape, nor the dashboard, nor a
command that shows figures.

A request is an action, which may be followed by a space and an argument. Only the last of equal requests to a cache is
kept, and of a request with an argument only for some minutes.

A request is for the workers that live when it is made. When a worker reads requests for the first time, it ignores
requests that are older than its cache, or older than its process in the child of a fork.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from wheelcache.runtime.clock import SystemClock

if TYPE_CHECKING:
    import sqlite3

CLEAR: Final = "clear"
SAVE: Final = "save"
LOAD: Final = "load"
PURGE: Final = "purge"
"""The actions that can be requested."""

LONGEST: Final = 4096
"""Characters of a URL to purge."""

HOST: Final = re.compile(r"[^\s/?#@]+")
"""The form of a host, which may have a port."""

KEPT: Final = 300.0
"""Seconds after which a request with an argument is removed. Workers look for requests every few seconds."""

Requests = Mapping[bytes, Mapping[str, tuple[str, float]]]
"""The last requests by the encoded name of the cache and by action with argument: a token that distinguishes it from
all others, and its time in seconds since 1970."""


class NotPurgeable(ValueError):
    """The target of a purge is neither an absolute URL nor a host."""


def purge_request(target: str) -> str:
    """Return the request to purge the pages of a URL or of a host.

    Raises:
        NotPurgeable: if ``target`` is neither.
    """
    with suppress(ValueError):
        if len(target) <= LONGEST and (HOST.fullmatch(target) or urlsplit(target).netloc):
            return f"{PURGE} {target}"
    raise NotPurgeable(
        "purge takes an absolute URL, such as https://example.com/news/, or a host, such as example.com, "
        f"not {target[:200]!r}"
    )


def add_request(db: sqlite3.Connection, name: bytes, action: str) -> str:
    """Ask all living workers for ``action`` on the cache with the encoded ``name``, within a transaction.

    Returns:
        The token of the request.
    """
    # A count would start again in a new database, so tokens would repeat.
    token, now = secrets.token_hex(8), SystemClock.time()
    db.execute("DELETE FROM requests WHERE action LIKE '% %' AND at < ?", (now - KEPT,))
    db.execute("INSERT OR REPLACE INTO requests VALUES (?, ?, ?, ?)", (name, action, token, now))
    return token


def requests_in(db: sqlite3.Connection) -> Requests:
    found: dict[bytes, dict[str, tuple[str, float]]] = {}
    for name, action, token, at in db.execute("SELECT cache, action, token, at FROM requests"):
        found.setdefault(name, {})[action] = token, at
    return found


class WorkerRequests:
    """Runs the requests to one cache of this process.

    Args:
        name: the encoded name of the cache.
        actions: the functions that run requests, by action. Each receives the argument of a request, if there is one.
    """

    def __init__(self, name: bytes, actions: Mapping[str, Callable[..., object]]) -> None:
        self._actions = actions
        self._name = name
        self.start_over()

    def start_over(self) -> None:
        """Set the initial state, also in the child of a fork, which ignores the requests to its parent."""
        self._begun = False
        self._done: dict[str, str] = {}
        self._wanted: list[str] = []
        self._since: float | None = SystemClock.time()

    def begin(self) -> None:
        """Accept requests from now on, since the cache is used for the first time, or again after it was idle."""
        if self._begun:
            # Earlier requests do not apply to the new entries.
            self._since = SystemClock.time()
            self._wanted.clear()
        self._begun = True

    def note(self, requests: Requests) -> None:
        """Note which of ``requests`` are new, without running them."""
        since, self._since = self._since, None
        found = requests.get(self._name, {})
        for request, (token, at) in found.items():
            if request.split(" ", 1)[0] in self._actions and self._done.get(request) != token:
                self.note_done(request, token)
                if since is None or at >= since:
                    self._wanted.append(request)
        for forgotten in self._done.keys() - found.keys() - self._actions.keys():
            del self._done[forgotten]

    def note_done(self, request: str, token: str) -> None:
        """Note that the request with this ``token`` has already been run in this process."""
        self._done[request] = token

    def run(self) -> None:
        """Run the new requests."""
        while self._wanted:
            action, *argument = self._wanted.pop(0).split(" ", 1)
            self._actions[action](*argument)
