"""Watches reads of the cookies and the environ of a request, so that the key of the page contains the items read.

For frameworks whose pages depend on more than their ``Vary`` names. During a run that has ``PageNotes``, the request of
the framework has these objects in place of its own cookies and environ. A page is not stored if code reads all items of
one of them, or an item that is no header, such as the client's address.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from typing import Any, Final

from wheelcache.http_cache.notes import PageNotes
from wheelcache.http_cache.request import BYPASSING
from wheelcache.http_cache.rules import CONDITIONS
from wheelcache.http_cache.variants import environ_name

IN_THE_KEY: Final = frozenset(
    (
        *("REQUEST_METHOD", "SCRIPT_NAME", "PATH_INFO", "QUERY_STRING", "HTTP_HOST", "CONTENT_LENGTH"),
        *("SERVER_NAME", "SERVER_PORT", "SERVER_PROTOCOL", "SERVER_SOFTWARE", "GATEWAY_INTERFACE"),
        *map(environ_name, CONDITIONS),
        *map(environ_name, BYPASSING),
        "HTTP_CONNECTION",
    )
)
"""Entries of an environ that are in the key of every page, the same for all requests of a server, or answered by the
cache itself. ``Connection`` is about the connection to the server, and Werkzeug reads it for every request."""

OF_ONE: Final = ("__getitem__", "__contains__", "get", "getlist", "pop", "setdefault")
OF_ALL: Final = (
    *("__iter__", "__reversed__", "__len__", "__eq__", "__ne__", "__or__", "__ror__", "__repr__", "__reduce_ex__"),
    *("__copy__", "__deepcopy__", "copy", "deepcopy", "items", "keys", "lists", "listvalues", "popitem", "to_dict"),
    "values",
)
"""The methods of ``dict`` and of Werkzeug's ``MultiDict`` that read one item and all items."""


def watched(base: type) -> Callable[[type], type]:
    """Return a decorator for subclasses of ``base``, a kind of dict, whose reads call ``note`` and ``note_all``."""

    def decorate(subclass: type) -> type:
        for names, make in ((OF_ONE, _reads_one), (OF_ALL, _reads_all)):
            for name in names:
                if hasattr(base, name):
                    setattr(subclass, name, make(getattr(base, name)))
        return subclass

    return decorate


def _reads_one(method: Callable[..., Any]) -> Callable[..., Any]:
    def read(self: Any, key: Any, *args: Any, **kwargs: Any) -> Any:
        self.note(key)
        return method(self, key, *args, **kwargs)

    return read


def _reads_all(method: Callable[..., Any]) -> Callable[..., Any]:
    def read(self: Any, *args: Any, **kwargs: Any) -> Any:
        self.note_all()
        return method(self, *args, **kwargs)

    return read


class WatchedCookies(dict[str, str]):
    """The cookies of a request. A subclass also inherits from the framework's kind of dict, and has ``watched``.

    Args:
        cookies: the cookies as the framework has parsed them.
        exempt: the names of cookies that are read for every page. A page depends on them only if its Vary says so.
    """

    def __init__(self, cookies: Any, notes: PageNotes, exempt: Collection[str]) -> None:
        self._notes = notes
        self._noted = {*exempt}
        super().__init__(cookies)

    def note(self, name: Any) -> None:
        if name not in self._noted:
            self._noted.add(name)
            self._notes.vary_on(cookies=[name])

    def note_all(self) -> None:
        self._notes.refuse("all cookies")

    def __bool__(self) -> bool:
        # Django's ``cache_page`` asks this for every page that it stores.
        self._notes.vary_on_presence_of_cookies()
        return dict.__len__(self) > 0


@watched(dict)
class WatchedEnviron(dict[str, Any]):
    """The environ of a request. Items that are set in it are also set in the server's own environ."""

    def __init__(self, environ: dict[str, Any], notes: PageNotes) -> None:
        self.notes = notes
        self._environ = environ
        self._noted = set(IN_THE_KEY)
        super().__init__(environ)

    def note(self, name: Any) -> None:
        if name in self._noted or type(name) is not str:
            return
        self._noted.add(name)
        if name.startswith("HTTP_"):
            self.notes.vary_on(headers=[name[5:].replace("_", "-")])
        elif name == "CONTENT_TYPE":
            self.notes.vary_on(headers=["content-type"])
        elif name.startswith("REMOTE_"):
            self.notes.refuse("client address")
        elif not name.startswith(("wsgi.", "werkzeug.", "CSRF_")) and not self._is_of_the_process(name):
            self.notes.refuse("environ")

    def note_all(self) -> None:
        self.notes.refuse("all headers")

    def _is_of_the_process(self, name: str) -> bool:
        """Return whether an item is from the environment variables, which some servers add."""
        return name in os.environ and self._environ.get(name) == os.environ[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self._noted.add(name)
        self._environ[name] = value
        super().__setitem__(name, value)
