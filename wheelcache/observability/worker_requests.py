"""What operators ask of the workers of a site: to clear a cache, to save it, to load it.

The dashboard and the commands put a request into the database where the workers publish their figures. Each worker sees
it with its next publication, and runs it. Nothing else runs a request: neither a scrape nor the dashboard nor a command
that shows figures.

A request is for the workers that live when it is made. At its first look, a worker passes over the requests from before
its cache was made, or its process was forked.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from wheelcache.runtime.clock import SystemClock

if TYPE_CHECKING:
    import sqlite3

CLEAR: Final = "clear"
SAVE: Final = "save"
LOAD: Final = "load"
"""The actions that can be asked for."""

Requests = Mapping[bytes, Mapping[str, tuple[str, float]]]
"""By the encoded name of the cache and by action, the last request: a token that distinguishes it from all others, and
when it was made, in seconds since 1970."""


def add_request(db: sqlite3.Connection, name: bytes, action: str) -> str:
    """Ask all workers that live now for ``action`` on the cache of that encoded name, within a transaction.

    Returns:
        The token of the request.
    """
    # Not a count, which would start again with a new database, and repeat.
    token = secrets.token_hex(8)
    db.execute("INSERT OR REPLACE INTO requests VALUES (?, ?, ?, ?)", (name, action, token, SystemClock.time()))
    return token


def requests_in(db: sqlite3.Connection) -> Requests:
    found: dict[bytes, dict[str, tuple[str, float]]] = {}
    for name, action, token, at in db.execute("SELECT cache, action, token, at FROM requests"):
        found.setdefault(name, {})[action] = token, at
    return found


class WorkerRequests:
    """Runs the requests to one cache of this process.

    Args:
        name: of the cache, encoded.
        actions: the function that runs a request, by action.
    """

    __slots__ = ("_actions", "_begun", "_done", "_name", "_since", "_wanted")

    def __init__(self, name: bytes, actions: Mapping[str, Callable[[], object]]) -> None:
        self._actions = actions
        self._name = name
        self.start_over()

    def start_over(self) -> None:
        """At first, and in the child of a fork, for which requests to its parent are not."""
        self._begun = False
        self._done: dict[str, str] = {}
        self._wanted: list[str] = []
        self._since: float | None = SystemClock.time()

    def begin(self) -> None:
        """The cache is written to, for the first time or after it was empty and unused."""
        if self._begun:
            # A request in between is not for what the cache holds from now on.
            self._since = SystemClock.time()
            self._wanted.clear()
        self._begun = True

    def note(self, requests: Requests) -> None:
        """Find out which of ``requests`` are new. Runs none."""
        since, self._since = self._since, None
        for action, (token, at) in requests.get(self._name, {}).items():
            if action in self._actions and self._done.get(action) != token:
                self.note_done(action, token)
                if since is None or at >= since:
                    self._wanted.append(action)

    def note_done(self, action: str, token: str) -> None:
        """The request ``token`` was run here already."""
        self._done[action] = token

    def run(self) -> None:
        """Run what was found."""
        while self._wanted:
            self._actions[self._wanted.pop(0)]()
