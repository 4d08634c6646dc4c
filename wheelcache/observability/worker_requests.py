"""What operators ask of the workers of a site: to clear a cache, to save it, to load it.

The dashboard and the commands leave a request in the directory where the workers publish their figures. Each worker
looks there every few seconds and runs what was asked since its last look. Nothing else runs a request: neither a scrape
nor the dashboard nor a command that shows figures.

A request is for the workers that live when it is made. A worker notes the last request of each action when its cache is
made, and again when its process is forked; those requests are not for it.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from wheelcache.observability.figures_directory import LOCK, NAMES
from wheelcache.observability.publisher import INTERVAL
from wheelcache.runtime.json_files import load_document, replace_document
from wheelcache.runtime.private_files import locked_file

CLEAR: Final = "clear"
SAVE: Final = "save"
LOAD: Final = "load"
"""The actions that can be asked for."""

REQUESTS: Final = "requests.json"
"""By the name of the cache and by action, a token that tells the last request from all others."""


class RequestBox:
    """The requests to the workers of a site.

    Args:
        path: the directory where the workers publish their figures.
    """

    __slots__ = ("_path",)

    def __init__(self, path: Path) -> None:
        self._path = path

    def ask(self, action: str, name: str) -> str:
        """Ask all workers that live now for ``action`` on the cache ``name``.

        Returns:
            A token that tells this request from all others.

        Raises:
            OSError, FileUnusable: nothing was asked.
        """
        # Not a count, which would start again when the file is removed, and repeat.
        token = secrets.token_hex(8)
        with locked_file(self._path / LOCK):
            document = load_document(self._path / REQUESTS)
            before = document.pop(name, None)
            document[name] = {**(before if isinstance(before, dict) else {}), action: token}
            replace_document(self._path / REQUESTS, dict(list(document.items())[-NAMES:]))
        return token

    def last(self, name: str) -> Mapping[str, str]:
        """The token of the last request of each action on the cache ``name``. Takes 6 us without requests, else 25."""
        found = load_document(self._path / REQUESTS).get(name)
        if not isinstance(found, dict):
            return {}
        return {action: token for action, token in found.items() if isinstance(token, str)}


class WorkerRequests:
    """Runs the requests to one cache of this process. A job of ``periodic_jobs``.

    Args:
        box: the requests.
        name: of the cache.
        actions: what runs a request, by action.
    """

    __slots__ = ("_actions", "_box", "_done", "_has_begun", "_name")

    period: Final = INTERVAL
    matters: Final = 1

    def __init__(self, box: RequestBox, name: str, actions: Mapping[str, Callable[[], object]]) -> None:
        self._box = box
        self._name = name
        self._actions = actions
        self._has_begun = False
        self._done = dict(box.last(name))

    def begin(self) -> None:
        if self._has_begun:
            # The cache was empty and unused: what was asked meanwhile is not for what it holds from now on.
            self._done = dict(self._box.last(self._name))
        self._has_begun = True

    def run(self) -> None:
        """Run what was asked since the last look."""
        for action, token in self._box.last(self._name).items():
            if action in self._actions and self._done.get(action) != token:
                self.note_done(action, token)
                self._actions[action]()

    def note_done(self, action: str, token: str) -> None:
        """The request ``token`` was run here already."""
        self._done[action] = token

    def start_over(self) -> None:
        """In the child of a fork, for which requests to its parent are not."""
        self._has_begun = False
        self._done = dict(self._box.last(self._name))

    def close(self) -> None:
        """Nothing is kept open."""
