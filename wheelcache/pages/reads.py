"""Which code has read a part of a request: to ignore reads that do not change the page, and to show where others are.

The stack shows it. The frames of a middleware are also below those of the views, so a walk up the stack ends where the
framework calls the next layer: another middleware or the view.

For developers who ask why a page is not stored, writes of the session and of cookies are recorded, too. Frameworks keep
no record of this, and a response shows only the names of its cookies. So the methods of the classes of sessions and
responses are wrapped at the first request whose reads are recorded; other requests only check a context variable.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from contextvars import ContextVar
from functools import lru_cache, partial, wraps
from importlib import import_module
from inspect import CO_ASYNC_GENERATOR, CO_GENERATOR
from types import CodeType, FrameType
from typing import Any, Final, NamedTuple

from wheelcache.engine.options import names as checked_names
from wheelcache.engine.options import shown

WHY: Final = "wheelcache.why"
"""The key of a ``Reads`` in the environ and in the scope, which makes the run record its reads."""

LIBRARIES: Final = sys.stdlib_module_names | {"asgiref", "django", "flask", "jinja2", "werkzeug", "wheelcache"}

WRITES: Final = (
    *("__setitem__", "__delitem__", "pop", "popitem", "setdefault", "update", "clear", "set_expiry", "cycle_key"),
    *("flush", "aset", "apop", "asetdefault", "aupdate", "aset_expiry", "acycle_key", "aflush"),
)
"""The methods that change a session."""

OF_THE_SERVER: Final = frozenset(["SERVER_NAME", "SERVER_PORT"])
"""Entries of the environ that are the same for all visitors of most servers."""

GENERATOR: Final = CO_GENERATOR | CO_ASYNC_GENERATOR
KEEPERS: Final = ("cached_property.__get__", "SimpleLazyObject._setup")
"""Functions that keep a result for later code, which then does not read."""


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__"))


def _layer(reader: FrameType, ends: Collection[CodeType]) -> Iterator[FrameType]:
    """Iterate over the frames from ``reader`` to the one in which the framework has called the layer.

    Functions of asgiref end it, too: under ``async_to_sync``, a view may run on top of a middleware of its thread.
    """
    frame: FrameType | None = reader
    while frame is not None and frame.f_code not in ends and _module(frame) != "asgiref.sync":
        yield frame
        frame = frame.f_back


class IgnoredReads:
    """Reads that do not make a page depend on what was read.

    Args:
        by: the dotted paths of middleware and functions that read for other purposes than the page, such as logging.
            ``load`` imports them. A value that such code keeps on the request must not be used for the page.

    Attributes:
        paths: the dotted paths.
        is_loaded: whether ``load`` has nothing left to import.
    """

    def __init__(self, by: Iterable[str] = ()) -> None:
        self.paths = list(by)
        self._code: frozenset[CodeType] = frozenset()
        self.is_loaded = not self.paths

    def load(self) -> None:
        """Import the code whose reads are ignored.

        Raises:
            ValueError: if a path cannot be imported, or is not a class or a function in Python.
        """
        if not self.is_loaded:
            self._code = frozenset(code for path in self.paths for code in _code_at(path))
            self.is_loaded = True

    def contain(self, reader: FrameType, ends: Collection[CodeType]) -> bool:
        """Return whether a read is ignored.

        Args:
            reader: the frame that reads.
            ends: the code that calls the next layer.
        """
        if not self._code:
            return False
        for frame in _layer(reader, ends):
            if frame.f_code in self._code:
                return True
            if frame.f_code.co_flags & GENERATOR or frame.f_code.co_qualname in KEEPERS:
                # The generator may be the body of a response, which a middleware only passes on.
                return False
        return False


def dotted_paths(option: str, given: Any) -> list[str]:
    """Check an option that is a collection of dotted paths of middleware and functions."""
    accepted = "a list of dotted paths of middleware and functions, such as 'site.middleware.AccessLog'"
    return checked_names(option, given, accepted, _is_path)


def _is_path(path: str) -> bool:
    return "." in path and all(part.isidentifier() for part in path.split("."))


def _code_at(path: str) -> set[CodeType]:
    module, _, name = path.rpartition(".")
    try:
        found = getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"ignore_reads_by contains {shown(path)}, which cannot be imported: {error}") from error
    # A class has bases. The methods of those of a framework also run for other middleware.
    bases = [each for each in getattr(found, "__mro__", ()) if each is found or _root(each.__module__) not in LIBRARIES]
    functions = [each for base in bases for each in vars(base).values()] or [found]
    code = {code for function in functions for code in _with_nested(_code_of(function))}
    if not code:
        raise ValueError(f"ignore_reads_by contains {shown(path)}, which is not a class or a function in Python")
    return code


def _root(module: str) -> str:
    return module.partition(".")[0]


def _code_of(function: Any) -> CodeType | None:
    """Return the code of a function or a method, without its decorators, or of a property."""
    for name in ("fget", "func"):
        function = getattr(function, name, function)
    return getattr(inspect.unwrap(function), "__code__", None)


def _with_nested(code: CodeType | None) -> Iterator[CodeType]:
    if code is not None:
        yield code
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                yield from _with_nested(constant)


NOTHING_IGNORED: Final = IgnoredReads()


class Read(NamedTuple):
    """A read of a part of a request.

    Attributes:
        what: a cookie, a header or an entry of the environ, such as "cookie theme", "User-Agent" and "REMOTE_ADDR".
        file, line: the code of the site; if it did not read, that of the framework.
        function: its qualified name; None for a template.
        by: the dotted path of the code with which ``ignore_reads_by`` exempts the read; "" if there is none.
        is_outside: whether this code surely is none that a view calls, or reads an entry that is the same for all
            visitors of a server.
    """

    what: str
    file: str
    line: int
    function: str | None
    by: str = ""
    is_outside: bool = False

    @property
    def place(self) -> str:
        """The file, relative to the directory from which it was imported, and the line."""
        return f"{relative(self.file)}:{self.line}"


class Reads:
    """The reads of one run that count, for developers who ask why a page is not stored.

    Attributes:
        found: the reads in their order, each once.
        written: the writes of the session and of cookies, as far as the companion records them.
        unread: the parameters of the query that the application has not read.
        outcome: the ``Page``, if the response was stored, or the ``Refusal`` if it was not. None if the application has
            not run, or raised an exception.
        sessions: the fields of pages that depend on the session.
        figures: the ``Figures`` of the cache that received the request.
        is_comparing: whether the response is still to be compared with a stored page: see ``rehearsal``.
    """

    def __init__(self) -> None:
        self.figures: Any = None
        self.is_comparing = False
        self.outcome: Any = None
        self.sessions: frozenset[bytes] = frozenset()
        self.found: list[Read] = []
        self.written: list[Read] = []
        self.unread: set[str] = set()

    @property
    def session_names(self) -> list[str]:
        """The names of the cookies of sessions."""
        return [field.decode("latin-1").partition(" ")[2] for field in self.sessions]

    def add(self, what: str, reader: FrameType, ends: Collection[CodeType]) -> None:
        """Record a read: see ``IgnoredReads.contain``."""
        self.add_all([read_at(what, reader, ends)])

    def add_all(self, reads: Iterable[Read]) -> None:
        self.found += [read for read in dict.fromkeys(reads) if read not in self.found]

    def add_write(self, what: str, writer: FrameType, ends: Collection[CodeType]) -> None:
        """Record a write, such as "session name" for the key of a session, or "cookie theme"."""
        write = read_at(what, writer, ends)
        if write not in self.written:
            self.written.append(write)


def read_at(what: str, reader: FrameType, ends: Collection[CodeType]) -> Read:
    """Return the read of a part by a frame: see ``IgnoredReads.contain``."""
    return Read(what, *_place(reader, ends), *_exempting(what, reader, ends))


def _exempting(what: str, reader: FrameType, ends: Collection[CodeType]) -> tuple[str, bool]:
    """Return the path of the code that exempts a read, and whether no view calls it: see ``Read``."""
    found: list[tuple[str, bool]] = []
    is_of_view, is_sure = False, True
    for frame in _layer(reader, ends):
        module, code = _module(frame), frame.f_code
        if code.co_flags & GENERATOR or code.co_qualname in KEEPERS:
            # Reads of code further out count: see ``IgnoredReads.contain``.
            is_of_view = True
            break
        if _root(module) not in LIBRARIES and (path := _path_of(module, code)) is not None:
            found.append((path, "<locals>" not in code.co_qualname))
        is_of_view = is_of_view or _calls_a_view(frame) or (frame.f_back is not None and _calls_a_view(frame.f_back))
        is_sure = frame.f_back is None or _module(frame.f_back) != "asgiref.sync"
    if not found:
        return "", False
    if not is_of_view:
        path, is_importable = found[-1]
        return path, is_importable and is_sure
    # The innermost code, unless it is the view itself.
    return found[0] if what in OF_THE_SERVER and found[0][0] != found[-1][0] else ("", False)


def _calls_a_view(frame: FrameType) -> bool:
    """Return whether a frame is that of the framework that calls the view, and no other layer."""
    module, name = _module(frame), frame.f_code.co_name
    return (module == "django.core.handlers.base" and "wrapped_callback" in frame.f_locals) or (
        module == "flask.app" and name == "dispatch_request"
    )


@lru_cache(1024)
def _path_of(module: str, code: CodeType) -> str | None:
    """Return the dotted path of the function or the class that contains the code; None if it cannot be imported."""
    path = f"{module}.{code.co_qualname.partition('.')[0]}"
    try:
        return path if module != "__main__" and _is_path(path) and code in _code_at(path) else None
    except (TypeError, ValueError):
        return None


@lru_cache(1024)
def relative(file: str) -> str:
    """Return the name of a file, relative to the directory from which Python has imported it."""
    roots = [each for each in map(os.path.abspath, sys.path) if file.startswith(each + os.sep)]
    return os.path.relpath(file, max(roots, key=len)) if roots else file


def _place(reader: FrameType, ends: Collection[CodeType]) -> tuple[str, int, str | None]:
    """Return the template or the code of the site that reads, otherwise the middleware or code of the framework."""
    chosen = reader
    for frame in _layer(reader, ends):
        module, code = _module(frame), frame.f_code
        if (template := frame.f_globals.get("__jinja_template__")) is not None:
            line = template.get_corresponding_lineno(frame.f_lineno)
            return template.filename or template.name or "a template", line, None
        if module == "django.template.base" and code.co_name == "render_annotated":
            node = frame.f_locals["self"]
            return str(node.origin), node.token.lineno, None
        if _root(module) not in LIBRARIES:
            chosen = frame
            break
        if ".middleware" in module:
            chosen = frame
    return chosen.f_code.co_filename, chosen.f_lineno, chosen.f_code.co_qualname


_traces: Final[ContextVar[Reads | None]] = ContextVar("traces", default=None)
_recorded: Final[set[type]] = set()

stop_recording: Final[Callable[[], object]] = partial(_traces.set, None)


def record_writes(traces: Reads, session_class: type | None, response_class: type, ends: Collection[CodeType]) -> None:
    """Record the writes of this request from now on.

    Args:
        session_class: the class of its session; None if it is unknown.
        ends: the code that calls the next layer.
    """
    for each, names, what in ((session_class, WRITES, "session"), (response_class, ("set_cookie",), "cookie")):
        if each is not None and each not in _recorded:
            _recorded.add(each)
            for name in names:
                if hasattr(each, name):
                    setattr(each, name, _recording(getattr(each, name), what, ends))
    _traces.set(traces)


def _recording(method: Callable[..., Any], what: str, ends: Collection[CodeType]) -> Callable[..., Any]:
    @wraps(method)
    def recording(self: Any, *args: Any, **kwargs: Any) -> Any:
        traces = _traces.get()
        if traces is not None:
            # The key; none of a method that changes the whole session.
            key = next((each for each in (*args, kwargs.get("key")) if isinstance(each, str)), None)
            traces.add_write(what if key is None else f"{what} {key}", sys._getframe(1), ends)
        return method(self, *args, **kwargs)

    return recording
