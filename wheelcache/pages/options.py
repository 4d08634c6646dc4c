"""The options of an HTTP cache: a row for each, with its type, its check and its default.

``HTTPCache``, Django's ``page_cache`` and Flask's ``HTTPCache`` accept them by keyword, and have these rows in their
signatures, so that editors and ``help`` show them. The options are checked once, and every part of the cache gets the
same object. A new option is a row here, its line below ``Args``, and its use. Facts that a framework knows by itself
are no options: see ``site``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from functools import cache
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, Concatenate, ParamSpec, TypeVar, cast, get_type_hints

from wheelcache.engine import options as checks
from wheelcache.pages.cache_status import CacheStatus
from wheelcache.pages.page_rules import PageRule, PageRules, listed
from wheelcache.pages.query import QueryRules, parameter_names
from wheelcache.pages.reads import IgnoredReads, dotted_paths
from wheelcache.pages.request import LostCookies, Sessions
from wheelcache.pages.variants import Normalization

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")
Given = TypeVar("Given", bound="Options")


def _names(option: str, given: Any) -> list[str]:
    return checks.names(option, given, "a list or another collection of ASCII strings")


def _cache_status(option: str, given: Any) -> bool | str:
    if given == "short" or isinstance(given, bool):
        return cast(bool | str, given)
    raise TypeError(f'{option} must be True, "short" or False, not {checks.shown(given)}')


@dataclass(frozen=True, slots=True)
class Options:
    """The options of an HTTP cache.

    Args:
        name: the name of the cache in log lines and figures.
        max_bytes: the maximum size of all pages together, in bytes.
        max_body: the maximum size of the body of one page, in bytes.
        grace: the seconds after the lifetime of a page during which visitors get it while it is renewed in the
            background; for pages that do not have ``stale-while-revalidate``.
        fail_safe: the seconds after its lifetime during which they get it if the application fails; for pages that do
            not have ``stale-if-error``.
        cookies: the cookies on which pages with ``Vary: Cookie`` depend; None for the whole header.
        session_cookies: a request with one of these cookies gets only pages that depend on it, or on all cookies.
        wait: the maximum seconds that a request waits while another request runs the application for the same page.
        serve_stale_after: the seconds after which a request gets a page that ``fail_safe`` allows, while the
            application takes longer to renew it; None to wait.
        ignore_query: the query parameters that neither the application nor the key of a page sees; ``TRACKING`` names
            those of analytics and advertising. A trailing ``*`` stands for any text.
        rules: the site's rules for its paths: see ``page_rules``.
        rehearse: the share, above 0 and up to 1, of the requests that would have been hits whose answers are compared
            with the stored page. No page is served: see ``rehearsal``. None to serve pages.
        ignore_reads_by: in Django and Flask, the dotted paths of middleware and functions whose reads of the request do
            not make a page depend on what they read.
        cache_status: whether responses have a Cache-Status (RFC 9211), which gives the reason if a response is not
            stored; "short" to leave out this ``detail``.
        shared_purges: whether a purge takes effect in all processes of this machine that have an HTTP cache of this
            name.
        figures_dir: the directory in which the processes of a site publish their figures, as for ``Cache``.

    Attributes:
        normalization: turns values of headers into parts of keys.
        page_rules: the rules; None without any.
        lost: the cookies that some pages lose; None if no page loses any.
        sessions: the cookies of sessions.
        query: normalizes queries; None if they stay as they are.
        ignored: the reads that do not count.
        status: writes the header Cache-Status.
    """

    name: Annotated[str, checks.text] = "pages"
    _: KW_ONLY
    max_bytes: Annotated[int, checks.count] = 64 << 20
    max_body: Annotated[int, checks.count] = 1 << 20
    grace: Annotated[float, checks.seconds_or_zero] = 0
    fail_safe: Annotated[float, checks.seconds_or_zero] = 0
    cookies: Annotated[Iterable[str] | None, checks.or_none(_names)] = None
    session_cookies: Annotated[Iterable[str], _names] = ()
    wait: Annotated[float, checks.seconds] = 10
    serve_stale_after: Annotated[float | None, checks.or_none(checks.seconds)] = None
    ignore_query: Annotated[Iterable[str], parameter_names] = ()
    rules: Annotated[Iterable[tuple[str, PageRule]], listed] = ()
    rehearse: Annotated[float | None, checks.or_none(checks.share)] = None
    ignore_reads_by: Annotated[Iterable[str], dotted_paths] = ()
    cache_status: Annotated[bool | str, _cache_status] = True
    shared_purges: Annotated[bool, checks.flag] = False
    figures_dir: Annotated[Path | None, checks.path_or_none] = None

    # Made of them.
    normalization: Normalization = field(init=False)
    page_rules: PageRules | None = field(init=False)
    lost: LostCookies | None = field(init=False)
    sessions: Sessions = field(init=False)
    query: QueryRules | None = field(init=False)
    ignored: IgnoredReads = field(init=False)
    status: CacheStatus = field(init=False)

    def __post_init__(self) -> None:
        for name, check in _checks(cast(Any, type(self))):
            object.__setattr__(self, name, check(name, getattr(self, name)))
        for name, made in self._made().items():
            object.__setattr__(self, name, made)

    def for_rehearsals(self) -> dict[str, Any]:
        """Return the rules as Python code, and the options that advice extends."""
        rules = [] if self.page_rules is None else [(pattern, rule.source) for pattern, rule in self.page_rules.given]
        return {
            "rules": rules,
            "ignore_query": [*self.ignore_query],
            "ignore_reads_by": [*self.ignored.paths],
            "max_body": self.max_body,
            "session_cookies": [*self.session_cookies],
        }

    def _made(self) -> dict[str, Any]:
        cookies, sessions = map(_encoded, (self.cookies, self.session_cookies))
        rules = PageRules(self.rules)
        lost = rules.lost_cookies()
        if kept := lost & (sessions or set()):
            raise ValueError(
                f"without_cookies() in rules must not name the cookie of a session: {checks.shown(min(kept).decode())}"
            )
        return {
            # A page that varies by cookie depends on the session, whichever of the cookies that is.
            "normalization": Normalization(None if cookies is None else cookies | (sessions or set())),
            "page_rules": rules if rules.rules else None,
            "lost": LostCookies(rules) if lost else None,
            "sessions": Sessions(sessions or frozenset()),
            "query": QueryRules(self.ignore_query) if self.ignore_query else None,
            "ignored": IgnoredReads(self.ignore_reads_by),
            "status": CacheStatus(self.cache_status),
        }


@cache
def _checks(kind: type) -> list[tuple[str, checks.Check]]:
    hints = get_type_hints(kind, include_extras=True)
    return [(name, hint.__metadata__[0]) for name, hint in hints.items() if hasattr(hint, "__metadata__")]


def _encoded(names: Iterable[str] | None) -> frozenset[bytes] | None:
    return None if names is None else frozenset(name.encode() for name in names)


def checked_options(kind: type[Given], name: str, given: Mapping[str, Any]) -> Given:
    """Return options of a class of options.

    Raises:
        TypeError: if an option is unknown; the message has the most similar one.
        TypeError, ValueError: if an option is invalid.
    """
    message = checks.unknown(given, signature(kind).parameters, f"the HTTP cache {checks.shown(name)}")
    if message is not None:
        raise TypeError(message)
    return kind(name, **given)


def options_of_init(
    options: Callable[P, Any],
) -> Callable[[Callable[Concatenate[S, ...], None]], Callable[Concatenate[S, P], None]]:
    """Decorate an ``__init__`` that accepts the rows of a class of options, so that its signature shows them."""
    return lambda function: _showing(options, function)


def options_of_function(options: Callable[P, Any]) -> Callable[[Callable[..., R]], Callable[P, R]]:
    """Decorate a function that accepts the rows of a class of options, so that its signature shows them."""
    return lambda function: _showing(options, function)


def _showing(options: Any, function: Any) -> Any:
    own, rows, types = signature(function).parameters, signature(options).parameters, get_type_hints(options)
    # The defaults of the function are shown.
    shown = [own.get(name, row).replace(annotation=types[name]) for name, row in rows.items()]
    others = [each for name, each in own.items() if name not in rows and each.kind is not Parameter.VAR_KEYWORD]
    function.__signature__ = Signature([*others, *shown])
    function.__doc__ = function.__doc__ or options.__doc__
    return function
