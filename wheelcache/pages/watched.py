"""Watches reads of the parts of a request, so that the key of the page contains the parts that its code reads.

For frameworks whose pages depend on more than their ``Vary`` names. During a run that has ``PageNotes``, the cookies,
the environ and the scope of the framework's request are ``WatchedPart``s. A page is not stored if code reads all items
of one of them, or an item that is no header, such as the client's address.

A subclass of dict notices reads by its methods. Code in C calls none of them: ``orjson.dumps(request.COOKIES)`` and
``msgspec.convert(request.COOKIES, Prefs)`` read the dict itself. So each access of ``request.COOKIES`` returns another
``Copy``. If no method of a copy has been called by the end of the run, code in C may have read all of it, and the page
is not stored. Nothing notices that code in C reads a copy of which a method has been called, too, as in
``found = request.COOKIES; found.get("theme"); orjson.dumps(found)``: see ``bodies.shown_cookie``.
"""

from __future__ import annotations

import copyreg
import os
import sys
from collections.abc import Callable, Collection, Mapping
from functools import lru_cache, partial
from itertools import count
from types import CodeType, FrameType
from typing import Any, Final, SupportsIndex

from wheelcache.pages.accesses import asks_whether_it_exists, tests_an_attribute
from wheelcache.pages.notes import PageNotes, Uncalled
from wheelcache.pages.reads import Reads, read_at
from wheelcache.pages.reasons import refusal
from wheelcache.pages.request import BYPASSING, KEYED_HEADERS
from wheelcache.pages.rules import CONDITIONS
from wheelcache.pages.stored_pages import UNUSUAL_COOKIES
from wheelcache.pages.variants import cookies, environ_name

IN_THE_KEY: Final = frozenset(
    (
        *("REQUEST_METHOD", "wsgi.url_scheme", "SCRIPT_NAME", "PATH_INFO", "QUERY_STRING", "HTTP_HOST"),
        *("SERVER_SOFTWARE", "GATEWAY_INTERFACE", "werkzeug.request", "flask._preserve_context"),
        *map(environ_name, CONDITIONS),
        *map(environ_name, BYPASSING),
        *map(environ_name, KEYED_HEADERS),
    )
)
"""Entries of an environ that are in the key of every page, the same for all requests of a server, or answered by the
cache itself. The address of the server is not among them: a server may listen on an internal port, too."""

FROM_CLIENT: Final = ("HTTP_", "CONTENT_", "REMOTE_")

READS_ONE: Final = ("__getitem__", "__contains__", "get", "getlist")
CHANGES_ONE: Final = ("__delitem__", "pop", "setdefault")
READS_ALL: Final = (
    *("__iter__", "__reversed__", "__len__", "__eq__", "__ne__", "__hash__", "__or__", "__ror__"),
    *("__repr__", "__copy__", "__deepcopy__", "copy", "deepcopy", "items", "keys", "lists", "listvalues", "to_dict"),
    "values",
)
CHANGES_ALL: Final = ("popitem",)
WRITES: Final = ("__setitem__", "update", "__ior__", "clear")
"""The methods of ``dict`` and of Werkzeug's ``MultiDict`` that read one item or all items, those that change the object
after that, and those that change it without reading."""

ALL_HEADERS: Final = refusal("all headers", "reads all headers")
SOME_COOKIES: Final = "whether there are cookies"

_latin_1: Final = partial(str, encoding="latin-1")

NONE: Final[frozenset[str]] = frozenset()

MOST_UNCALLED: Final = 1000
BEYOND: Final = -1
"""The number of copies of a part that are distinguished, and the number of all others."""

CONTAINERS: Final = ("wheelcache.", "collections.abc", "werkzeug.datastructures.", "django.utils.datastructures")
"""The modules of containers, whose methods read on behalf of their callers."""

WRAPPERS: Final = ("__getattr__", "__getattribute__")
"""Functions that get an attribute on behalf of their caller, such as that of the request of Django REST framework."""


class Watch:
    """Notes which parts of a request are read during one run.

    Args:
        ends: the code with which the framework calls a middleware or a view: see ``reads``.
        own: parts that the framework itself reads for every page, each with the globals of the module that does. These
            reads do not count: the framework's Vary reports whether the page depends on the part.
        passing: the modules of the framework that pass parts on without reading them.

    Attributes:
        harmless: parts and names of modules of the framework, whose reads of these parts do not count either.
        changed: the parts that middleware inside the cache has changed: see ``inside``.
    """

    harmless: frozenset[tuple[str, Any]] = frozenset()

    def __init__(
        self,
        notes: PageNotes,
        ends: Collection[CodeType],
        own: Mapping[str, Mapping[str, Any]],
        passing: Collection[str] = (),
    ) -> None:
        self.notes = notes
        self.own = own
        self.passing = passing
        self.noted: set[str] = set()
        self.changed: frozenset[str] = frozenset()
        self.ends = ends
        # The notes are complete now. Later reads are added, including reads by a streamed body.
        notes.is_keyed = True

    def counts(self, what: str) -> bool:
        """Return whether the read of a part is to be noted, and record which code reads it.

        Args:
            what: an entry of the environ, or another description, such as "cookie theme".
        """
        notes = self.notes
        if what in self.noted and notes.traces is None:
            return False
        reader = self.reader(what)
        if reader is None or notes.ignored.contain(reader, self.ends):
            return False
        self.noted.add(what)
        if notes.traces is not None:
            notes.traces.add(_shown(what), reader, self.ends)
        return True

    def reader(self, what: str) -> FrameType | None:
        """Return the frame of the code that reads a part; None if the framework reads it for every page."""
        frame = sys._getframe(1)
        # Each read passes four frames of a container.
        while (module := str(frame.f_globals.get("__name__"))).startswith(CONTAINERS) and frame.f_back is not None:
            frame = frame.f_back
        is_own = self.own.get(what) is frame.f_globals or (what, module) in self.harmless or self.is_exempt(frame)
        return None if is_own else frame

    def is_exempt(self, reader: FrameType) -> bool:
        """Return whether the framework reads the request for another purpose than the page."""
        return False

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


class Copy:
    """A copy of a watched part, whose class also inherits from the class of the framework's object.

    Its methods read and change the part itself. Code in C reads the part as it was when the attribute was accessed, or
    after the last change by this copy. Other objects of the class, which the application makes with
    ``type(request.COOKIES)``, are like the framework's.
    """

    _part: WatchedPart | None = None
    _number = 0
    _accessed: tuple[CodeType, int] | None = None
    """The code that accessed the attribute, and the place in it; None if a wrapper may have kept the copy."""

    def _called(self) -> WatchedPart | None:
        """Return the part, of which a method of this copy reads. Return None if the object is no copy."""
        part = self._part
        if part is not None:
            part.uncalled.places.pop(self._number, None)
        return part


class CookiesCopy(Copy):
    """A copy of the cookies."""

    def __bool__(self) -> bool:
        part = self._part
        if isinstance(part, WatchedCookies):
            # Django's ``cache_page`` asks this for every page that it stores.
            part.note_presence()
            if self._accessed is not None and tests_an_attribute(sys._getframe(1), self._accessed):
                self._called()
            return len(part.data) > 0
        return dict.__len__(self) > 0  # type: ignore[arg-type]


@lru_cache
def _copies_of(base: Any, kind: Any) -> Any:
    """Return the class of the copies of a part of the class ``base``."""
    methods: dict[str, Any] = {}
    for names, make in (
        (READS_ONE, _reads_one),
        (READS_ALL, _reads_all),
        (CHANGES_ONE, lambda method: _changes(_reads_one(method))),
        (CHANGES_ALL, lambda method: _changes(_reads_all(method))),
        (WRITES, lambda method: _changes(_writes(method))),
    ):
        # The hash of a dict is None.
        methods |= {name: make(method) for name in names if (method := getattr(base, name, None)) is not None}
    # Pickles are objects of the framework.
    methods["__reduce_ex__"] = _reads_all(partial(_reduced, base))
    watched = type(base.__name__, (base,), methods)
    return type(base.__name__, (kind, watched), {"__doc__": base.__doc__, "_base": base})


def _reduced(base: Any, data: Any, protocol: SupportsIndex) -> Any:
    """Return how to pickle a part as an object of the framework."""
    plain = base.__new__(base)
    dict.update(plain, dict(dict.items(data)))
    if hasattr(plain, "__dict__"):
        vars(plain).update({name: value for name, value in vars(data).items() if name not in vars(Copy)})
    make, *parts = plain.__reduce_ex__(protocol)
    # ``pickle`` accepts ``__newobj__`` only from objects of the class itself.
    return base.__new__ if make is copyreg.__newobj__ else make, *parts  # type: ignore[attr-defined]


def _reads_one(method: Callable[..., Any]) -> Callable[..., Any]:
    def read(self: Any, key: Any, *args: Any, **kwargs: Any) -> Any:
        part = self._part
        if part is None:
            return method(self, key, *args, **kwargs)
        # As in ``_called``: a page reads some items twenty times.
        part.uncalled.places.pop(self._number, None)
        if key not in part.unnoted:
            # Another kind of key may be equal to a string, such as a lazy translation.
            part.note(str(key))
        return method(part.data, key, *args, **kwargs)

    return read


def _reads_all(method: Callable[..., Any]) -> Callable[..., Any]:
    def read(self: Any, *args: Any, **kwargs: Any) -> Any:
        part = self._called()
        if part is None:
            return method(self, *args, **kwargs)
        part.note_all()
        return method(part.data, *args, **kwargs)

    return read


def _writes(method: Callable[..., Any]) -> Callable[..., Any]:
    def write(self: Any, *args: Any, **kwargs: Any) -> Any:
        part = self._called()
        if part is None:
            return method(self, *args, **kwargs)
        if method.__name__ == "__setitem__":
            written = dict([args])
        else:
            # An iterator can be read once.
            written = dict(*args, **kwargs)
            args = (written,) if args or kwargs else ()
        found = method(part.data, *args)
        part.note_written(written)
        return self if found is part.data else found

    return write


def _changes(method: Callable[..., Any]) -> Callable[..., Any]:
    def change(self: Any, *args: Any, **kwargs: Any) -> Any:
        found = method(self, *args, **kwargs)
        if self._part is not None:
            self._part.fill(self)
        return found

    return change


class WatchedPart:
    """A part of a request that is a dict. A subclass notes its reads.

    Args:
        data: the dict of the framework.
        watch: decides which reads count.

    Attributes:
        kind: the class of its copies, without the framework's.
        whole, reason: the name of all items together, and the reason for which a page that reads them is not stored.
        data, watch: as given.
        harmless: the items on which no page depends.
        unnoted: the items whose reads need no note in this run.
        uncalled: the copies of which no method has been called. The notes of the page have it, too.
    """

    kind: Any = Copy
    whole: str
    reason: str
    harmless: frozenset[str] = frozenset()

    def __init__(self, data: Any, watch: Watch) -> None:
        self.unnoted = self.harmless if watch.notes.traces is None and not watch.changed else NONE
        self.data = data
        self.watch = watch
        self.uncalled = Uncalled(self.whole, self.reason, {})
        # An application inside the site may get the environ of a request that is watched.
        base: Any = getattr(data, "_base", type(data))
        self._class = _copies_of(base, self.kind)
        # The items as code in C reads them. ``dict.update`` may call methods of other classes than dict.
        self._items = data if type(data) is dict else dict(dict.items(data))
        self._numbers = count(1)
        watch.notes.uncalled.append(self.uncalled)

    def note(self, name: str) -> None:
        """Note a read of one item, which may be missing."""
        raise NotImplementedError

    def note_all(self) -> None:
        """Note a read of all items."""
        self.watch.refuse(self.reason, self.whole)

    def note_written(self, items: Mapping[Any, Any]) -> None:
        """Note that the application has set items."""

    def accessed(self, value: Any, name: str, frame: FrameType) -> Any:
        """Return the value of an attribute for the code that accesses it.

        Args:
            value: the copy that the attribute keeps.
            name: the name of the attribute.
            frame: the frame that accesses it.
        """
        accesses = frame
        while frame.f_code.co_name in WRAPPERS and frame.f_back is not None:
            frame = frame.f_back
        if name in frame.f_code.co_consts and asks_whether_it_exists(frame, name):
            return value
        copy, notes, places = self.copy(), self.watch.notes, self.uncalled.places
        if not (frame.f_globals.get("__name__") in self.watch.passing or notes.ignored.contain(frame, self.watch.ends)):
            # A frame that passes the part on, or whose reads do not count, needs no note.
            if len(places) < MOST_UNCALLED:
                copy._number = next(self._numbers)
                copy._accessed = (frame.f_code, frame.f_lasti) if frame is accesses else None
            place = None if notes.traces is None else read_at(self.whole, frame, self.watch.ends)
            places[copy._number or BEYOND] = place
        return copy

    def fill(self, copy: Any) -> None:
        """Bring the dict that code in C reads up to date after a change by a copy."""
        if self._items is not self.data:
            self._items = dict(dict.items(self.data))
        dict.clear(copy)
        dict.update(copy, self._items)

    def copy(self) -> Any:
        """Return a copy that a ``WatchedAttribute`` can keep."""
        copy = self._class.__new__(self._class)
        copy._part = self
        dict.update(copy, self._items)
        return copy


class WatchedAttribute:
    """An attribute of a request whose value is a watched part. Each access returns another copy."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._owner = owner
        self._name = name

    def __get__(self, request: Any, owner: type | None = None) -> Any:
        if request is None:
            return self
        try:
            found = request.__dict__[self._name]
        except KeyError:
            # A cached property of the framework, which keeps its result there.
            return getattr(super(self._owner, request), self._name)
        part = found._part if isinstance(found, Copy) else None
        return found if part is None else part.accessed(found, self._name, sys._getframe(1))

    def __set__(self, request: Any, value: Any) -> None:
        request.__dict__[self._name] = value

    def __delete__(self, request: Any) -> None:
        try:
            del request.__dict__[self._name]
        except KeyError:
            raise AttributeError(self._name) from None


class WatchedCookies(WatchedPart):
    """The cookies of a request.

    Args:
        data: the cookies as the framework has parsed them.
        header: the header. If the cache parses it differently, the page is not stored.
    """

    kind = CookiesCopy
    whole = reason = "all cookies"

    def __init__(self, data: Any, header: bytes, watch: Watch) -> None:
        super().__init__(data, watch)
        sent = cookies(header) if header else {}
        if sent is None or {*map(_latin_1, sent)} != {*dict.keys(data)}:
            watch.notes.refuse(UNUSUAL_COOKIES.reason, UNUSUAL_COOKIES.detail)

    def note(self, name: str) -> None:
        what = f"cookie {name}"
        if not self.watch.has_changed(what) and self.watch.counts(what):
            self.watch.notes.vary_on(cookies=[name])

    def note_presence(self) -> None:
        """Note that the application has asked whether there are cookies."""
        if not self.watch.has_changed(SOME_COOKIES) and self.watch.counts(SOME_COOKIES):
            self.watch.notes.vary_on_presence_of_cookies()


class WatchedEnviron(WatchedPart):
    """The environ of a request, or the one that a framework makes of the scope."""

    whole, reason = "all headers", ALL_HEADERS.reason
    harmless = IN_THE_KEY

    def note(self, name: str) -> None:
        watch = self.watch
        if name.startswith("REMOTE_"):
            watch.refuse("client address", name)
        elif name in watch.changed and name not in watch.noted and watch.has_changed(name):
            return
        elif name in IN_THE_KEY:
            if name == "QUERY_STRING" and watch.notes.traces is not None and watch.reader(name) is not None:
                watch.notes.traces.unread.clear()
        elif name.startswith("HTTP_") or name in ("CONTENT_TYPE", "CONTENT_LENGTH"):
            if watch.counts(name):
                watch.notes.vary_on(headers=[name.removeprefix("HTTP_").replace("_", "-")])
        elif not (
            name in watch.noted
            or name.startswith(("wsgi.", "wheelcache."))
            # Some servers add the environment variables of the process.
            or (name in os.environ and self.data.get(name) == os.environ[name])
        ) and watch.counts(name):
            watch.notes.refuse("environ", f"reads {_shown(name)}")

    def note_written(self, items: Mapping[Any, Any]) -> None:
        for name in items:
            if not name.startswith(FROM_CLIENT) and name not in self.watch.own:
                # The application knows its own items. Middleware may derive the others from reads that do not count.
                self.watch.noted.add(name)


class WatchedParameters(WatchedPart):
    """The parameters of a query, in a run whose reads are recorded. Each access returns the same object, since views
    make it mutable."""

    whole, reason = "all parameters", ""

    def __init__(self, data: Any, traces: Reads, watch: Watch) -> None:
        super().__init__(data, watch)
        self._traces = traces
        traces.unread.update(self._items)
        self.data = self.copy()
        vars(self.data).update(vars(data))

    def note(self, name: str) -> None:
        self._traces.unread.discard(name)

    def note_all(self) -> None:
        self._traces.unread.clear()

    def accessed(self, value: Any, name: str, frame: FrameType) -> Any:
        if not (name in frame.f_code.co_consts and asks_whether_it_exists(frame, name)):
            if self.uncalled.places:
                self.note_all()
            self.uncalled.places[value._number] = None
        return value

    def fill(self, copy: Any) -> None:
        """Do nothing: it is the framework's object itself."""
