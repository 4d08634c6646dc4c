"""Watches reads of the parts of a request, so that the key of the page contains the parts that its code reads.

For frameworks whose pages depend on more than their ``Vary`` names. During a run that has ``PageNotes``, the request of
the framework has these objects in place of its own cookies and environ. A page is not stored if code reads all items of
one of them, or an item that is no header, such as the client's address.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from copy import deepcopy
from types import CodeType, FrameType
from typing import Any, Final

from wheelcache.http_cache.notes import PageNotes
from wheelcache.http_cache.reads import Reads, caller
from wheelcache.http_cache.request import BYPASSING, KEYED_HEADERS
from wheelcache.http_cache.rules import CONDITIONS
from wheelcache.http_cache.stored_pages import UNUSUAL_COOKIES
from wheelcache.http_cache.variants import cookies, environ_name

IN_THE_KEY: Final = frozenset(
    (
        *("REQUEST_METHOD", "SCRIPT_NAME", "PATH_INFO", "QUERY_STRING", "HTTP_HOST"),
        *("SERVER_SOFTWARE", "GATEWAY_INTERFACE", "werkzeug.request"),
        *map(environ_name, CONDITIONS),
        *map(environ_name, BYPASSING),
        *map(environ_name, KEYED_HEADERS),
    )
)
"""Entries of an environ that are in the key of every page, the same for all requests of a server, or answered by the
cache itself. The address of the server is not among them: a server may listen on an internal port, too."""

FROM_CLIENT: Final = ("HTTP_", "CONTENT_", "REMOTE_")

READS_ONE: Final = ("__getitem__", "__delitem__", "__contains__", "get", "getlist", "pop", "setdefault")
READS_ALL: Final = (
    *("__iter__", "__reversed__", "__len__", "__eq__", "__ne__", "__or__", "__ror__", "__repr__", "__reduce_ex__"),
    *("__copy__", "__deepcopy__", "copy", "deepcopy", "items", "keys", "lists", "listvalues", "popitem", "to_dict"),
    "values",
)
"""The methods of ``dict`` and of Werkzeug's ``MultiDict`` that read one item and all items."""

SOME_COOKIES: Final = "whether there are cookies"


def watched(base: type, plain: Callable[[Any], Any] | None = None) -> Callable[[type], type]:
    """Return a decorator for subclasses of ``base``, a kind of dict, whose reads call ``note`` and ``note_all``.

    Args:
        plain: makes the copies and pickles of an object, without the watch; None if ``base`` can.
    """

    def decorate(subclass: type) -> type:
        for names, make in ((READS_ONE, _reads_one), (READS_ALL, _reads_all)):
            for name in names:
                if hasattr(base, name):
                    setattr(subclass, name, make(getattr(base, name)))
        if plain is not None:
            for name, method in (
                ("__reduce_ex__", lambda self, protocol: (plain, (plain(self),))),
                ("__deepcopy__", lambda self, memo: deepcopy(plain(self), memo)),
            ):
                setattr(subclass, name, _reads_all(method))
        return subclass

    return decorate


def _reads_one(method: Callable[..., Any]) -> Callable[..., Any]:
    def read(self: Any, key: Any, *args: Any, **kwargs: Any) -> Any:
        # Another kind of key may be equal to a string, such as a lazy translation.
        self.note(str(key))
        return method(self, key, *args, **kwargs)

    return read


def _reads_all(method: Callable[..., Any]) -> Callable[..., Any]:
    def read(self: Any, *args: Any, **kwargs: Any) -> Any:
        self.note_all()
        return method(self, *args, **kwargs)

    return read


class Watch:
    """Notes which parts of a request are read during one run.

    Args:
        ends: the code with which the framework calls a middleware or a view: see ``reads``.
        own: parts that the framework itself reads for every page, each with the globals of the module that does. These
            reads do not count: the framework's Vary reports whether the page depends on the part.

    Attributes:
        changed: the parts that middleware inside the cache has changed: see ``inside``.
    """

    def __init__(self, notes: PageNotes, ends: Collection[CodeType], own: Mapping[str, Mapping[str, Any]]) -> None:
        self.notes = notes
        self.own = own
        self.noted: set[str] = set()
        self.changed: frozenset[str] = frozenset()
        self._ends = ends
        # This call makes the notes complete. Later reads are added, including reads by a streamed body.
        notes.vary_on()

    def counts(self, what: str) -> bool:
        """Return whether the read of a part is to be noted, and record which code reads it.

        Args:
            what: an entry of the environ, or another description, such as "cookie theme".
        """
        notes = self.notes
        if what in self.noted and notes.traces is None:
            return False
        reader = caller()
        if self.is_own(what, reader) or notes.ignored.contain(what, reader, self._ends):
            return False
        self.noted.add(what)
        if notes.traces is not None:
            notes.traces.add(_shown(what), reader, self._ends)
        return True

    def is_own(self, what: str, reader: FrameType) -> bool:
        """Return whether the framework reads a part that it reads for every page."""
        return self.own.get(what) is reader.f_globals

    def refuse(self, reason: str, what: str) -> None:
        """Keep the page from being stored because of a read, if the read counts."""
        if self.counts(what):
            self.notes.refuse(reason, f"reads {_shown(what)}")

    def refuse_changed(self, what: str) -> None:
        """Keep the page from being stored because it depends on a part that middleware has changed."""
        self.notes.refuse("changed inside", f"changed by a middleware inside the cache: {_shown(what)}")

    def has_changed(self, what: str) -> bool:
        """Return whether middleware has changed a part that is read. If the read counts, the page is not stored."""
        if what not in self.changed:
            return False
        if self.counts(what):
            self.refuse_changed(what)
        return True


def _shown(what: str) -> str:
    """Return the name of a header, if ``what`` is the entry of one, otherwise ``what``."""
    return what[5:].replace("_", "-").title() if what.startswith("HTTP_") else what


class WatchedCookies(dict[str, str]):
    """The cookies of a request. A subclass also inherits from the framework's kind of dict, and has ``watched``.

    Args:
        cookies: the cookies as the framework has parsed them.
        header: the header. If the cache parses it differently, the page is not stored.
    """

    def __init__(self, found: Any, header: bytes, watch: Watch) -> None:
        self._watch = watch
        sent = cookies(header)
        if sent is None or {name.decode("latin-1") for name in sent} != set(dict.keys(found)):
            watch.notes.refuse(UNUSUAL_COOKIES.reason, UNUSUAL_COOKIES.detail)
        super().__init__(found)

    def note(self, name: str) -> None:
        what = f"cookie {name}"
        if not self._watch.has_changed(what) and self._watch.counts(what):
            self._watch.notes.vary_on(cookies=[name])

    def note_all(self) -> None:
        self._watch.refuse("all cookies", "all cookies")

    def __bool__(self) -> bool:
        # Django's ``cache_page`` asks this for every page that it stores.
        if not self._watch.has_changed(SOME_COOKIES) and self._watch.counts(SOME_COOKIES):
            self._watch.notes.vary_on_presence_of_cookies()
        return dict.__len__(self) > 0


@watched(dict, dict)
class WatchedEnviron(dict[str, Any]):
    """The environ of a request. Items that are set in it are also set in the server's own environ."""

    def __init__(self, environ: dict[str, Any], watch: Watch) -> None:
        self.watch = watch
        self._environ = environ
        super().__init__(environ)

    def note(self, name: str) -> None:
        watch = self.watch
        if name.startswith("REMOTE_"):
            watch.refuse("client address", name)
        elif name in watch.changed and name not in watch.noted and watch.has_changed(name):
            return
        elif name in IN_THE_KEY:
            if name == "QUERY_STRING" and watch.notes.traces is not None and not watch.is_own(name, caller()):
                watch.notes.traces.unread.clear()
        elif name.startswith("HTTP_") or name in ("CONTENT_TYPE", "CONTENT_LENGTH"):
            if watch.counts(name):
                watch.notes.vary_on(headers=[name.removeprefix("HTTP_").replace("_", "-")])
        elif not (name in watch.noted or name.startswith(("wsgi.", "wheelcache.")) or self._is_of_the_process(name)):
            watch.refuse("environ", name)

    def note_all(self) -> None:
        self.watch.refuse("all headers", "all headers")

    def _is_of_the_process(self, name: str) -> bool:
        """Return whether an item is from the environment variables, which some servers add."""
        return name in os.environ and self._environ.get(name) == os.environ[name]

    def __setitem__(self, name: str, value: Any) -> None:
        if not name.startswith(FROM_CLIENT) and name not in self.watch.own:
            # The application knows its own items. Middleware may derive the others from reads that do not count.
            self.watch.noted.add(name)
        self._environ[name] = value
        super().__setitem__(name, value)

    def update(self, *args: Any, **kwargs: Any) -> None:
        for name, value in dict(*args, **kwargs).items():
            self[name] = value


class WatchedParameters(dict[str, Any]):
    """The parameters of a query, in a run whose reads are recorded. A subclass is like one of ``WatchedCookies``."""

    _traces: Reads | None = None

    def begin(self, traces: Reads) -> None:
        """Begin to watch the parameters, once they are complete."""
        traces.unread.update(dict.keys(self))
        self._traces = traces

    def note(self, name: str) -> None:
        if self._traces is not None:
            self._traces.unread.discard(name)

    def note_all(self) -> None:
        if self._traces is not None:
            self._traces.unread.clear()
