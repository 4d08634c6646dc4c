"""Pass requests of operators to the workers of a site: to clear, save or load a cache.

The dashboard and the commands put a request into the database where the workers publish their figures. Each worker
finds it with its next publication, and runs it. Nothing else runs a request: neither a scrape, nor the dashboard, nor a
command that shows figures.

A request is for the workers that live when it is made. When a worker reads requests for the first time, it ignores
requests that are older than its cache, or older than its process in the child of a fork.
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
"""The actions that can be requested."""

Requests = Mapping[bytes, Mapping[str, tuple[str, float]]]
"""The last request by the encoded name of the cache and by action: a token that distinguishes it from all others, and
its time in seconds since 1970."""


def add_request(db: sqlite3.Connection, name: bytes, action: str) -> str:
    """Ask all living workers for ``action`` on the cache with the encoded ``name``, within a transaction.

    Returns:
        The token of the request.
    """
    # A count would start again in a new database, so tokens would repeat.
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
        name: the encoded name of the cache.
        actions: the function that runs a request, by action.
    """

    __slots__ = ("_actions", "_begun", "_done", "_name", "_since", "_wanted")

    def __init__(self, name: bytes, actions: Mapping[str, Callable[[], object]]) -> None:
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
        for action, (token, at) in requests.get(self._name, {}).items():
            if action in self._actions and self._done.get(action) != token:
                self.note_done(action, token)
                if since is None or at >= since:
                    self._wanted.append(action)

    def note_done(self, action: str, token: str) -> None:
        """Note that the request ``token`` has already been run in this process."""
        self._done[action] = token

    def run(self) -> None:
        """Run the new requests."""
        while self._wanted:
            self._actions[self._wanted.pop(0)]()
