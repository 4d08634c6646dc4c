"""The statistics of a cache, of the store behind a near cache, and of the pages of an HTTP cache.

The counts are exact, and cost a hit 20 ns.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from math import floor
from operator import add, attrgetter, sub
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

LOAD_BOUNDS: Final = (
    *(0.00001, 0.000025, 0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0),
)
"""The upper bounds of the histogram of load times, in seconds. A last bucket counts all longer loads. Calls of a store
behind a near cache are counted in the same buckets."""

PARTS: Final = 2**20
"""Parts of a second: see ``whole_parts``."""

Row = tuple[float, ...]
"""Numbers in the order of ``COUNTS``."""

Buckets = tuple[int, ...]

NO_BUCKETS: Final[Buckets] = (0,) * (len(LOAD_BOUNDS) + 1)

LOAD_COUNTS: Final = (
    "loads",
    "load_failures",
    "load_timeouts",
    "coalesced",
    "stale_hits",
    "refreshes",
    "refreshes_dropped",
)
"""The counters of ``Stats`` that loads raise by one."""


def counter(description: str = "", unit: str = "", name: str = "") -> Any:
    """Return a field of ``Stats``, or of its parts, for a number that only grows.

    Args:
        description: the description of the metric that has only this number; empty if there is no such metric.
        unit: the unit of this metric.
        name: the name of this metric, without the prefix and suffixes of a metrics system; by default the name of the
            field.
    """
    return field(default=0, metadata={"description": description, "unit": unit, "name": name})


class Meter:
    """Counts and times the loads of a cache, or the calls of a store. Any thread may count. This takes less than 1 us.

    Args:
        names: the names of the counts.
    """

    __slots__ = ("_buckets", "_counts", "_lock", "_names", "_seconds")

    def __init__(self, *names: str) -> None:
        self._names = names
        self.count_from_zero()

    def count_from_zero(self) -> None:
        """Reset the counts, also in the child of a fork, where a lost thread may hold the lock."""
        # Re-entrant, since the garbage collector may at any point run a finalizer that counts.
        self._lock = threading.RLock()
        self._counts = dict.fromkeys(self._names, 0)
        self._seconds = 0.0
        self._buckets = [0] * len(NO_BUCKETS)

    def add(self, name: str, number: int = 1) -> None:
        """Add ``number`` to the count ``name``."""
        with self._lock:
            self._counts[name] += number

    def ended(self, seconds: float, name: str | None = None) -> None:
        """Record a load or call that took ``seconds``. Add 1 to the count ``name`` if it is given."""
        # The time is negative if a test has moved the clock back.
        seconds = max(0.0, seconds)
        with self._lock:
            if name is not None:
                self._counts[name] += 1
            self._seconds += seconds
            self._buckets[bisect_left(LOAD_BOUNDS, seconds)] += 1

    def read(self) -> tuple[dict[str, int], float, Buckets]:
        """Return the counts by name, the sum of the seconds as rounded by ``whole_parts``, and the histogram."""
        with self._lock:
            return self._counts.copy(), whole_parts(self._seconds), tuple(self._buckets)


@dataclass(frozen=True, slots=True)
class CallStats:
    """The reads, or the writes, of a store behind a near cache.

    Attributes:
        errors: calls that failed because of the store. An error about the key or the value does not count.
        refused: calls that were not made, because the store had failed recently.
        seconds: the time spent in calls, in seconds.
        buckets: the histogram of the call times, as in ``Stats.load_buckets``. A call is counted when it ends with an
            answer, with an error, or by the cancellation of its task.
    """

    errors: int = counter()
    refused: int = counter()
    seconds: float = counter()
    buckets: Buckets = NO_BUCKETS

    @property
    def calls(self) -> int:
        """The number of calls that were made and have ended."""
        return sum(self.buckets)

    @property
    def uses(self) -> int:
        """The number of calls, including refused ones."""
        return self.calls + self.refused

    def counts(self) -> Row:
        """Return the numbers, all of which only grow."""
        return (*_call_counters(self), *self.buckets)

    @classmethod
    def of(cls, counts: Sequence[Any]) -> CallStats:
        """Return the statistics that have these ``counts()``."""
        counters = dict(zip(_CALL_COUNTERS, counts, strict=False))
        return cls(**counters, buckets=tuple(counts[len(counters) :]))


@dataclass(frozen=True, slots=True)
class StoreStats:
    """The statistics of the store behind a near cache, since the near cache was made, or since the fork.

    Attributes:
        hits, misses: look-ups without a copy for which the store had a value, or had none. Callers that share a read
            are counted individually.
        reads, writes: the calls of the store.
        breakers: processes with a circuit breaker for the store: 0 or 1 for one process.
        open_breakers: processes whose circuit breaker is open now.
        trackers: processes that read from the store, if it can notify them of writes; otherwise 0.
        trusted: processes that it notifies now.
        refused_trackers: processes that it refuses to notify.
    """

    hits: int = counter()
    misses: int = counter()
    reads: CallStats = CallStats()
    writes: CallStats = CallStats()
    breakers: int = 0
    open_breakers: int = 0
    trackers: int = 0
    trusted: int = 0
    refused_trackers: int = 0

    @property
    def uses(self) -> int:
        """The number of calls, including refused ones."""
        return self.reads.uses + self.writes.uses

    @property
    def lost_trackers(self) -> int:
        """The number of processes that it does not notify now, although it does not refuse to."""
        return self.trackers - self.trusted - self.refused_trackers

    def counts(self) -> Row:
        """Return the numbers that only grow."""
        return (*_store_counters(self), *self.reads.counts(), *self.writes.counts())

    def gauges(self) -> Row:
        """Return the numbers that go up and down, in the order of ``STORE_GAUGES``."""
        return _store_gauges(self)

    @classmethod
    def of(cls, counts: Sequence[Any], gauges: Sequence[Any]) -> StoreStats:
        """Return the statistics that have these ``counts()`` and gauges."""
        counters = dict(zip(_STORE_COUNTERS, counts, strict=False))
        half = (len(counters) + len(counts)) // 2
        reads, writes = CallStats.of(counts[len(counters) : half]), CallStats.of(counts[half:])
        return cls(**counters, reads=reads, writes=writes, **dict(zip(STORE_GAUGES, gauges, strict=True)))


class Reason(NamedTuple):
    """Why pages are not stored: for the figures, the command ``why`` and the documentation.

    Attributes:
        cause, advice: sentences that explain it, and that say what to change.
        details: the texts that Cache-Status shows, or an example if they are made of the response; empty for the reason
            itself.
    """

    cause: str
    advice: str
    details: tuple[str, ...]

    def advice_for(self, path: str) -> str:
        """Return the advice with the path of a page in the rules that it names."""
        # Rules compare decoded paths.
        return self.advice.replace("[(path, ", f"[({unquote(path)!r}, ")


def _reason(cause: str, advice: str, *details: str) -> Reason:
    return Reason(cause, advice, details)


_READ_LESS: Final = (
    "The command why names the code. Let it read single cookies or headers; if it is a log: ignore_reads_by=[its path]."
)
_SEND_WHOLE: Final = "Return the body as a whole, or leave such responses to the server in front of the site."
_FOR_ALL: Final = (
    "Nothing if the page is for one visitor. If it is the same for all, and only browsers must not keep it, add "
    "CDN-Cache-Control: max-age=60."
)
_ONLY_GET: Final = "Nothing: only the complete response to a GET is stored."

REASONS: Final[Mapping[str, Reason]] = {
    "status": _reason(
        "Responses with this status are never stored.",
        "Nothing: responses with this status must not be stored.",
        "status 206",
    ),
    "error": _reason(
        "The application failed, or answered with a server error.",
        "Look at the log of the site, and correct the exception.",
        "the application failed",
        "error",
        "status 503",
    ),
    "no lifetime": _reason(
        "The response names no lifetime, such as Cache-Control: max-age=60.",
        "Let the view set Cache-Control: max-age=60, or add a rule: rules=[(path, ttl(60))]. A rule is for the "
        "statuses 200, 203, 204, 300, 301, 308, 404 and 410.",
    ),
    "no-store": _reason("The response has Cache-Control: no-store.", _FOR_ALL),
    "private": _reason("The response has Cache-Control: private.", _FOR_ALL),
    "set-cookie": _reason(
        "The response sets a cookie.",
        "The command why names the code that sets it, or writes to the session: let it do so only if something "
        "changes, or let a script or another URL do it. If visitors can do without the cookie on this page, and it is "
        "not that of the session: rules=[(path, without_cookies(name))].",
        "sets cookie theme",
    ),
    "authorization": _reason(
        "The request had an Authorization header, and the response does not say that it is public.",
        "Set Cache-Control: public if all users may see the page.",
    ),
    "vary": _reason(
        "The response has Vary: *, or varies on a header that only caches need, such as If-None-Match.",
        "Let Vary name the headers on which the page depends.",
        "Vary: *",
    ),
    "cors": _reason(
        "The response allows one origin, but does not have Vary: Origin.",
        "Add Origin to Vary, or allow all origins with *.",
        "Access-Control-Allow-Origin without Vary: Origin",
    ),
    "max_body": _reason("The body is larger than max_body.", "Raise the option max_body.", "longer than max_body"),
    "max_bytes": _reason(
        "The page does not fit into max_bytes.", "Raise the option max_bytes, which limits all pages together."
    ),
    "session": _reason(
        "The visitor had a session, and nothing shows that the page does not depend on it.",
        "Set Vary: Cookie if the page depends on the session; otherwise, it is only for visitors without one.",
    ),
    "visitor": _reason(
        "The page depends on a cookie that the visitor has, and only a rule of the site gives it a lifetime.",
        "Nothing if the page shows the visitor's state. If the cookie is a mere value: ttl(60, cookies=[name]).",
        "depends on the cookie basket, which this visitor has; only a rule gives it a lifetime",
    ),
    "companion": _reason(
        "The application did not report on what the page depends: its middleware or extension is missing, or cannot "
        "read the response.",
        "Put PageMiddleware first in MIDDLEWARE (Django), or call PageNotes.vary_on. If the response cannot be read, "
        "the log of the site names the cause.",
        "the application reported no dependencies",
        "a response that cannot be read",
    ),
    "client address": _reason(
        "The application read the address of the visitor.",
        "The command why names the code. If it does not change the page, such as that of a log: "
        "ignore_reads_by=[its path]. If it does, leave the page out: rules=[(path, bypass())].",
        "reads REMOTE_ADDR",
    ),
    "all cookies": _reason(
        "The application read all cookies together, or passed them to code that the cache cannot watch, or frameworks "
        "may read the Cookie header differently.",
        f"{_READ_LESS} If the header is unusual, nothing: few browsers send such headers.",
        "reads all cookies",
        "unusual Cookie header",
    ),
    "cookie": _reason(
        "The page contains the value of a cookie, of 8 characters or more, and its key does not contain the cookie, so "
        "the page may be for one visitor.",
        "Let the view read this cookie with request.COOKIES[name] (Django) or request.cookies[name] (Flask), or set "
        "Vary: Cookie. If the page contains the text by chance, nothing: a page that is made for a visitor without the "
        "cookie is stored.",
        "shows the value of the cookie name, on which it does not depend",
        "more than 64 cookies on which it does not depend",
    ),
    "all headers": _reason(
        "The application read all request headers together, or passed them to code that the cache cannot watch.",
        _READ_LESS,
        "reads all headers",
    ),
    "messages": _reason(
        "The page shows messages to the visitor, or adds some.",
        "Nothing: the next page without messages is stored.",
        "shows messages",
        "adds messages",
    ),
    "cache_page": _reason(
        "cache_page answered, perhaps with the CSRF token of another visitor.",
        "Replace cache_page on this view with cache_control(max_age=60).",
        "a page of cache_page with Vary: Cookie",
    ),
    "streaming": _reason(
        "The body is a stream that may still read the session.",
        "Return an HttpResponse instead of a StreamingHttpResponse, or set Vary: Cookie.",
        "streamed, and may use the session",
    ),
    "purged": _reason(
        "The page was purged while the application made it.", "Nothing: it was purged while the application made it."
    ),
    "clear-site-data": _reason(
        "The response has Clear-Site-Data, which is meant for one visitor.",
        "Nothing: such a response ends the visit, for example at a log-out.",
    ),
    "csrf": _reason(
        "The page has a CSRF token that the cache cannot replace with that of another visitor.",
        "Let {% csrf_token %} write each token into the page, and keep no form in another cache. If the token is in "
        "the session, let a script fetch it from a URL of its own. Inside the cache, compress with gzip only.",
        "a CSRF token that is not in the body as it is",
        "the CSRF secret, or another token of it, in the body",
        "the CSRF secret, or a token, in a header",
        "a CSRF token of another run in the body",
        "CSRF token in a streamed body",
        "a piece or another form of a CSRF token in the body",
        "an encoding in which CSRF tokens are not found",
        "a content coding in which CSRF tokens are not found",
        "too many CSRF tokens",
        "CSRF token in a body that is changed inside the cache",
        "CSRF token in a page that depends on the whole Cookie header",
        "a new CSRF secret, or a token that was made out of sight",
        "the CSRF secret changed",
        "the cookie of the CSRF token is not as Django sends it",
        "unusual cookie of the CSRF token",
        "CSRF token from outside of CsrfViewMiddleware",
        "contains a CSRF token",
        "CSRF token in the session (CSRF_USE_SESSIONS)",
        "CSRF token of Flask-WTF in the session",
        "reads CSRF_COOKIE",
        "reads cookie csrftoken",
    ),
    "unsafe request": _reason(
        "A request header is too long, has an unusual name or control characters, or is an unusual Accept-Encoding.",
        "Nothing for the site: the client sends this header.",
        "unsafe header in the request",
    ),
    "request": _reason(
        "The request had Cache-Control: no-store, or Authorization and a condition.",
        "Nothing for the site: the client sends this header.",
        "no-store in the request",
        "condition in the request",
    ),
    "overdue": _reason(
        "The application took too long for an earlier request, so later ones do not wait for each other.",
        "Make the page faster, or raise the option wait.",
        "the application took too long",
    ),
    "language": _reason(
        "The language did not come from the request, or an earlier request left it behind.",
        "Deactivate the language at the end of each request, or use LocaleMiddleware.",
        "language of an earlier request",
    ),
    "time zone": _reason(
        "The time zone did not come from the request, or an earlier request left it behind.",
        "Deactivate the time zone at the end of each request.",
        "time zone of an earlier request",
    ),
    "script name": _reason(
        "Apache's mod_rewrite has changed the URL.",
        "Set FORCE_SCRIPT_NAME instead of rewriting URLs in the server.",
        "script name from a rewritten URL",
    ),
    "environ": _reason(
        "The application read the whole environ or scope, or an unusual part of it.",
        f"{_READ_LESS} If it is the same for all visitors, such as the port: ignore_reads=['SERVER_PORT'].",
        "reads SERVER_PROTOCOL",
        "reads the whole scope",
    ),
    "changed inside": _reason(
        "The page depends on a part of the request that a middleware between the cache and the framework has changed.",
        "Put the cache directly around the framework's own application, and this middleware around the cache.",
        "changed by a middleware inside the cache: X-Country",
    ),
    "encoding": _reason(
        "The response has a content coding that the visitor does not accept, or frameworks may read the visitor's "
        "Accept-Encoding differently.",
        "Compress only with a coding that Accept-Encoding of the request names.",
        "Content-Encoding that the request does not accept",
        "unusual Accept-Encoding",
    ),
    "tags": _reason(
        "The page has too many tags, or invalid ones, which a log line names.",
        "Give the page at most 64 tags, none of them empty.",
        "more than 64 tags, or an invalid one",
    ),
    "content-length": _reason(
        "The body has another length than the response announced, or the announcement is invalid.",
        "Set one correct Content-Length, or none.",
        "content-length",
        "the body is shorter or longer than its Content-Length",
    ),
    "incomplete": _reason("The response ended too early.", "Send the response to its end.", "incomplete response"),
    "no response": _reason("The application did not start a response.", "Send a response."),
    "body": _reason("The request has a body.", _ONLY_GET, "request with a body"),
    "file": _reason("The server sends the body from a file.", _SEND_WHOLE, "sent with wsgi.file_wrapper"),
    "write": _reason(
        "The application sends the body with write().", _SEND_WHOLE, "sent with the write function of WSGI"
    ),
    "extension": _reason(
        "The application uses an extension of its server to send the response.",
        _SEND_WHOLE,
        "sent with an extension of ASGI",
    ),
    "trailers": _reason("The response has trailers.", _SEND_WHOLE, "has trailers"),
    "other": _reason(
        "The application gave another reason.",
        "Change the code of the application that calls PageNotes.refuse.",
        "a reason of the application",
    ),
}
"""The reasons why pages are not stored, as the figures of a site distinguish them."""

BYPASSING: Final[Mapping[str, Reason]] = {
    "method": _reason("The request is neither a GET nor a HEAD.", _ONLY_GET),
    "HEAD": _reason("The request is a HEAD, and no page is stored.", _ONLY_GET),
    "range": _reason("The request is for a part of a page that is not stored.", _ONLY_GET),
    "switched off": _reason(
        "An operator has switched the cache off.", "To switch it on, in all workers: wheelcache pages on."
    ),
    "rehearsal": _reason(
        "The cache rehearses: it stores pages and compares them with the answers, but serves none.",
        "Read the results of the rehearsal, then serve the pages: wheelcache pages on.",
        "rehearsal: a hit otherwise",
    ),
    "bypass": _reason(
        "The request bypasses the cache because of a rule of the site, its headers, its method or its URL.",
        "Nothing if the visitor's request is unusual. For a rule of the site, change the option rules.",
        "rule of the site",
        "long URL",
        "keeps the cookies that a rule removes",
        "no valid Host",
        "method in lower case",
        "request with a body",
        "upgrade",
        "expect",
        "if-match",
        "if-unmodified-since",
    ),
}
"""The reasons of requests that bypass the cache, which are not counted."""

MOST_REASONS: Final = 64
"""The number of reasons, including those that applications make up, that one process distinguishes."""


@dataclass(frozen=True, slots=True)
class PageStats:
    """The statistics of the pages of an HTTP cache, since it was made, or since the fork in a child process.

    Attributes:
        fresh: responses from a fresh page, including validated and collapsed ones.
        stale: responses from a stale page, while it was renewed or because the application failed.
        revalidated: pages that the application confirmed with a 304, also in the background.
        collapsed: requests that waited for the run of another request and got its page.
        bytes_sent: the bytes of the bodies of all responses from pages.
        stored: pages that were stored.
        variants_removed: variants that were removed because their page had too many.
        not_stored: responses that were not stored, by reason. The figures of a site have only ``REASONS``; "other"
            includes the reasons that applications make up.
        not_stored_paths: the paths with most of these responses, by reason, each with a number: the path has at least
            so many. ``cache.stats()``, and the figures of a single worker, have none.
        full_variants: by header, or ``"cookie <name>"``, the paths that have the most variants removed because of it,
            each with a number as above.
    """

    fresh: int = counter()
    stale: int = counter()
    revalidated: int = counter("Pages that the application confirmed with a 304.", "page", "pages_revalidated")
    collapsed: int = counter(
        "Requests that waited for the run of another request and got its page.", "request", "page_requests_collapsed"
    )
    bytes_sent: int = counter("Bytes of the bodies that were sent from stored pages.", "bytes", "pages_sent")
    stored: int = counter("Pages that were stored.", "page", "pages_stored")
    variants_removed: int = counter(
        "Variants that were removed because their page had too many.", "variant", "page_variants_removed"
    )
    not_stored: Mapping[str, int] = field(default_factory=dict)
    not_stored_paths: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    full_variants: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    @property
    def uses(self) -> int:
        """The number of responses."""
        return self.fresh + self.stale + self.stored + sum(self.not_stored.values())

    def counts(self) -> Row:
        """Return the numbers, all of which only grow."""
        by_reason = dict.fromkeys(REASONS, 0)
        for reason, number in self.not_stored.items():
            by_reason[reason if reason in by_reason else "other"] += number
        return (*_page_counters(self), *by_reason.values())

    @classmethod
    def of(cls, counts: Sequence[Any]) -> PageStats:
        """Return the statistics of pages that have these ``counts()``."""
        counters = dict(zip(_PAGE_COUNTERS, counts, strict=False))
        reasons = zip(REASONS, counts[len(counters) :], strict=True)
        return cls(**counters, not_stored={reason: number for reason, number in reasons if number})


MOST_GROUPS: Final = 64
"""The number of groups of keys with a name."""

GROUP_COUNTS: Final = ("hits", "stale_hits", "puts", "loads", "load_seconds", "refused")
"""The counts of a group of keys, before its misses by cause. ``loads`` includes those that failed."""

NO_GROUP: Final[Row] = (0,) * (len(GROUP_COUNTS) + 9)


@dataclass(frozen=True, slots=True)
class GroupStats:
    """The statistics of keys of one kind: the pages of one view, the fragments of one name, the sessions, a memoized
    function, or the keys with the same text up to the first colon. A cache distinguishes 64 groups; all other keys are
    in the group with an empty name. The core in Python distinguishes none. The sums over all groups are the counts of
    the cache.

    Attributes:
        hits, stale_hits, puts: the look-ups that found a fresh value, and a stale one, and the values that were stored.
        loads, load_seconds: the computations of values, also of those that failed, and the time spent in them, in
            seconds.
        refused: the responses that an HTTP cache did not store.
        misses_by_cause: the misses, by the value of their ``MissCause``.
    """

    hits: int
    stale_hits: int
    puts: int
    loads: int
    load_seconds: float
    refused: int
    misses_by_cause: Mapping[str, int]

    @property
    def misses(self) -> int:
        return sum(self.misses_by_cause.values())

    @property
    def requests(self) -> int:
        """The number of look-ups: hits, stale hits and misses."""
        return self.hits + self.stale_hits + self.misses

    @property
    def hit_ratio(self) -> float:
        """The share of look-ups that were hits, 0.0 to 1.0; 0.0 without look-ups."""
        return self.hits / self.requests if self.requests else 0.0

    @property
    def miss_ratio(self) -> float:
        """The share of look-ups that missed, 0.0 to 1.0; 0.0 without look-ups."""
        return self.misses / self.requests if self.requests else 0.0

    @classmethod
    def of(cls, counts: Row) -> GroupStats:
        """Return the statistics that have these counts: ``GROUP_COUNTS``, and the misses in the order of ``MISSES``."""
        first: Any = dict(zip(GROUP_COUNTS, counts, strict=False))
        # In a database, the sum of no seconds is an int.
        first["load_seconds"] = float(first["load_seconds"])
        return cls(**first, misses_by_cause=dict(zip(MISSES, map(int, counts[len(GROUP_COUNTS) :]), strict=True)))


@dataclass(frozen=True, slots=True)
class Stats:
    """The statistics of a cache since it was made, or since the fork in a child process.

    This class defines all counters: to add one, add a field here and the line of code that counts. The parts use the
    field names for their counts. The database of the site has a column for each number. The numbers of several
    processes are added, and earlier ones are subtracted, as rows in the order of ``COUNTS``. The terminal's document,
    the dashboard and the metrics have an entry for each counter.

    Attributes:
        hits, misses: look-ups by ``get``, ``get_many``, ``get_or_load`` and ``aget_or_load`` that
            found a value within its TTL, or found none.
        stale_hits: look-ups that returned a value past its TTL, within its grace. They are neither hits nor misses.
        puts: values that were stored, including loaded ones.
        loads, load_failures: computations of values that returned, and that raised, each of which counts once: calls of
            a loader, and the time between a miss of a backend's ``get`` or ``get_many`` and the first ``set``, ``add``
            or ``set_many`` of the key that follows within 60 seconds in the same thread, task or request. Reads of the
            store behind count in ``store`` only, and a value that is given instead of a loader counts as no load.
        load_seconds: the time spent in loads, including failed ones, in seconds.
        load_timeouts: callers that did not wait for the end of a load.
        coalesced: callers that received a value that another caller was computing: stampedes prevented.
        refreshes: background loads that were started.
        refreshes_dropped: background loads, and loads with a timeout, that were not started because the pool was busy.
        evictions: entries that left because the cache was full.
        evicted_weight: the sum of their weights; 0 without a weigher.
        misses_expired, misses_evicted, misses_deleted, misses_cleared, misses_tag: misses of keys whose entry had
            expired, was evicted, deleted, removed by ``clear``, or outdated by the drop of a tag.
        misses_not_stored: misses of keys whose value was refused: it was too heavy, or outdated when it came.
        misses_other_process: misses of keys that another process may have written, since the connection on which the
            store behind reports writes was lost.
        misses_new: misses of keys that were never stored, or left long ago. For keys that left long ago, the causes are
            estimated from a sample.
        misses_unknown: in the core in Python, all misses of keys that have no entry. The sum of the nine counts is
            ``misses``.
        expirations: entries that expired.
        replacements, deletions, clearings: entries that were replaced by a new value, deleted individually, or removed
            by ``clear``.
        size: entries in memory now.
        weight: the sum of their weights; 0 without a weigher.
        load_buckets: the histogram of the times of loads and failures: the number for each of ``LOAD_BOUNDS``, and the
            number of longer ones.
        groups: the statistics of groups of keys, by name: see ``GroupStats``.
        store: the statistics of the store behind a near cache; None for any other cache.
        pages: the statistics of the pages of an HTTP cache; None for any other cache.
    """

    hits: int = counter()
    misses: int = counter()
    puts: int = counter("Values that were stored, also by loads.", "entry")
    loads: int = counter()
    load_failures: int = counter("Loads that raised an exception, except failed reads of the store behind.", "load")
    load_seconds: float = counter()
    load_timeouts: int = counter("Callers that did not wait for the end of a load.", "request")
    coalesced: int = counter(
        "Callers that received a value which another caller was computing.", "request", "stampedes_prevented"
    )
    stale_hits: int = counter()
    refreshes: int = counter("Loads that were started in the background.", "load")
    refreshes_dropped: int = counter(
        "Loads in the background that were not started, because too many were under way.", "load"
    )
    evictions: int = counter()
    evicted_weight: int = counter()
    misses_expired: int = counter()
    misses_evicted: int = counter()
    misses_not_stored: int = counter()
    misses_deleted: int = counter()
    misses_cleared: int = counter()
    misses_tag: int = counter()
    misses_other_process: int = counter()
    misses_new: int = counter()
    misses_unknown: int = counter()
    expirations: int = counter()
    replacements: int = counter()
    deletions: int = counter()
    clearings: int = counter()
    size: int = 0
    weight: int = 0
    load_buckets: Buckets = NO_BUCKETS
    groups: Mapping[str, GroupStats] = field(default_factory=dict)
    store: StoreStats | None = None
    pages: PageStats | None = None

    @property
    def requests(self) -> int:
        """The number of look-ups: hits, stale hits and misses."""
        return self.hits + self.stale_hits + self.misses

    @property
    def uses(self) -> int:
        """The number of requests, calls of the store behind, and pages. It grows whenever the cache is used."""
        return self.requests + sum(each.uses for each in (self.store, self.pages) if each is not None)

    @property
    def hit_ratio(self) -> float:
        """The share of look-ups that were hits, 0.0 to 1.0; 0.0 without look-ups."""
        return self.hits / self.requests if self.requests else 0.0

    @property
    def answered_ratio(self) -> float | None:
        """The share of look-ups that the cache or the store behind it answered; None without a store or look-ups."""
        return None if self.store is None or not self.requests else (self.hits + self.store.hits) / self.requests

    @property
    def stale_ratio(self) -> float:
        """The share of look-ups that were stale hits, 0.0 to 1.0; 0.0 without look-ups."""
        return self.stale_hits / self.requests if self.requests else 0.0

    @property
    def removals(self) -> dict[str, int]:
        """The numbers of removed entries, by the value of their ``RemovalCause``."""
        return {cause: getattr(self, name) for cause, name in REMOVALS.items()}

    @property
    def misses_by_cause(self) -> dict[str, int]:
        """The numbers of misses, by the value of their ``MissCause``."""
        return {cause: getattr(self, name) for cause, name in MISSES.items()}

    def counts(self) -> Row:
        """Return all numbers that only grow, in the order of ``COUNTS``."""
        of_store = NO_STORE if self.store is None else self.store.counts()
        of_pages = NO_PAGES if self.pages is None else self.pages.counts()
        return (*_counters(self), *self.load_buckets, *of_store, *of_pages)

    def gauges(self) -> Row:
        """Return the numbers that go up and down, in the order of ``GAUGES``."""
        of_store = NO_STORE_GAUGES if self.store is None else self.store.gauges()
        return (self.size, self.weight, *of_store)

    @classmethod
    def of(
        cls, counts: Sequence[Any], gauges: Sequence[Any] = (), *, has_store: bool = True, has_pages: bool = True
    ) -> Stats:
        """Return the statistics that have these ``counts()`` and ``gauges()``.

        Args:
            gauges: zeros unless given.
            has_store: whether there is a store behind.
            has_pages: whether the cache belongs to an HTTP cache.
        """
        size, weight, *of_store = gauges or (0,) * len(GAUGES)
        first, pages_at = len(COUNTERS) + len(NO_BUCKETS), -len(NO_PAGES)
        store = StoreStats.of(counts[first:pages_at], of_store) if has_store else None
        pages = PageStats.of(counts[pages_at:]) if has_pages else None
        counters = dict(zip(COUNTERS, counts, strict=False))
        buckets = tuple(counts[len(COUNTERS) : first])
        return cls(**counters, size=size, weight=weight, load_buckets=buckets, store=store, pages=pages)

    def __sub__(self, earlier: Stats) -> Stats:
        """Return the difference of the counts, with the current gauges."""
        counts = subtracted(self.counts(), earlier.counts())
        has_store, has_pages = self.store is not None, self.pages is not None
        return Stats.of(counts, self.gauges(), has_store=has_store, has_pages=has_pages)


def _counters_of(kind: type) -> tuple[str, ...]:
    return tuple(each.name for each in fields(kind) if each.metadata)


COUNTERS: Final = _counters_of(Stats)
"""The fields of ``Stats`` that are single numbers and only grow."""

REMOVALS: Final = {
    "expired": "expirations",
    "evicted": "evictions",
    "replaced": "replacements",
    "deleted": "deletions",
    "cleared": "clearings",
}
"""The counters of removed entries, by the value of their ``RemovalCause``."""

MISSES: Final = {
    "expired": "misses_expired",
    "evicted": "misses_evicted",
    "not stored": "misses_not_stored",
    "deleted": "misses_deleted",
    "cleared": "misses_cleared",
    "tag": "misses_tag",
    "another process": "misses_other_process",
    "new or long gone": "misses_new",
    "unknown": "misses_unknown",
}
"""The counters of misses, by the value of their ``MissCause``."""

STORE_GAUGES: Final = ("breakers", "open_breakers", "trackers", "trusted", "refused_trackers")

GAUGES: Final = ("size", "weight", *STORE_GAUGES)
"""The names of the numbers that go up and down."""

_STORE_COUNTERS: Final = _counters_of(StoreStats)
_CALL_COUNTERS: Final = _counters_of(CallStats)
_PAGE_COUNTERS: Final = _counters_of(PageStats)
_PLACES: Final = tuple(map(str, range(len(NO_BUCKETS))))

COUNTS: Final = (
    *COUNTERS,
    *(f"load_{place}" for place in _PLACES),
    *(f"store_{name}" for name in _STORE_COUNTERS),
    *(f"{kind}_{name}" for kind in ("read", "write") for name in (*_CALL_COUNTERS, *_PLACES)),
    *(f"pages_{name}" for name in _PAGE_COUNTERS),
    *(f"not_stored_{reason}".replace(" ", "_").replace("-", "_") for reason in REASONS),
)
"""The names of the numbers in a row: all counts."""

NOTHING: Final[Row] = (0,) * len(COUNTS)

_counters: Final = attrgetter(*COUNTERS)
_call_counters: Final = attrgetter(*_CALL_COUNTERS)
_page_counters: Final = attrgetter(*_PAGE_COUNTERS)
_store_counters: Final = attrgetter(*_STORE_COUNTERS)
_store_gauges: Final = attrgetter(*STORE_GAUGES)

NO_PAGES: Final = NOTHING[: len(_PAGE_COUNTERS) + len(REASONS)]
NO_STORE: Final = NOTHING[len(COUNTERS) + len(NO_BUCKETS) + len(NO_PAGES) :]
NO_STORE_GAUGES: Final = (0,) * len(STORE_GAUGES)


def added(one: Row, other: Row) -> Row:
    """Return the sums of two rows of ``COUNTS``."""
    return tuple(map(add, one, other))


def subtracted(later: Row, earlier: Row) -> Row:
    """Return the differences of two rows of ``COUNTS``."""
    return tuple(map(sub, later, earlier))


_OF_GROUPS: Final = {
    COUNTS.index(name): place
    for place, name in enumerate((*GROUP_COUNTS, *MISSES.values()))
    if name in COUNTS and name != "loads"
}
"""The positions of the counts that are sums over the groups of keys, and their positions in the row of a group. Failed
loads are loads of a group."""

_MISSES: Final = COUNTS.index("misses")


def with_groups(counts: Row, groups: Iterable[Row]) -> Row:
    """Return ``counts`` with the sums over the groups of keys, so that the sums of the groups are always exact."""
    sums = tuple(map(sum, zip(NO_GROUP, *groups, strict=True)))
    found = list(counts)
    for place, of_group in _OF_GROUPS.items():
        found[place] = sums[of_group]
    found[_MISSES] = sum(sums[len(GROUP_COUNTS) :])
    return tuple(found)


def percentile(buckets: Buckets, share: float) -> float | None:
    """Return the seconds within which a share of the calls of a histogram ended, 0.0 to 1.0; None without calls.

    As with Prometheus' ``histogram_quantile``, calls are assumed to be spread evenly within a bucket, and those in the
    last one took as long as its lower bound.
    """
    left = sum(buckets) * share
    for low, high, number in zip((0.0, *LOAD_BOUNDS), LOAD_BOUNDS, buckets, strict=False):
        if number and left <= number:
            return low + (high - low) * left / number
        left -= number
    return LOAD_BOUNDS[-1] if any(buckets) else None


def hit_ratio(hits: int, misses: int) -> float:
    """Return the hits per request, 0.0 to 1.0; 0.0 without requests."""
    return hits / (hits + misses) if hits or misses else 0.0


def whole_parts(seconds: float) -> float:
    """Round ``seconds`` down to a multiple of 2**-20, about a microsecond.

    Sums of such numbers are exact in any order, so the sum over several processes never decreases by a rounding error.
    """
    return floor(seconds * PARTS) / PARTS
