"""Explains whether a page is stored and why not, and rehearses one page. The commands of both frameworks share this.

The commands make requests to the site's application in their own process, which has a cache of its own. They change
nothing in the workers, and do not count in their figures.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import unquote, urljoin, urlsplit

from wheelcache.pages.figures import Figures
from wheelcache.pages.local_requests import Answer, parts_of
from wheelcache.pages.mode import REHEARSE
from wheelcache.pages.page import Page
from wheelcache.pages.query import TRACKING, QueryRules
from wheelcache.pages.reads import Read
from wheelcache.pages.reasons import BYPASSING, REASONS
from wheelcache.pages.variants import COOKIE, SOME_COOKIE
from wheelcache.watch.console import CommandFailed, Report, printable
from wheelcache.watch.page_commands import lines_of
from wheelcache.watch.publisher import publish_nothing
from wheelcache.watch.rehearsal_results import KINDS, result_of
from wheelcache.watch.rehearsals import Outcome

Ask = Callable[[str, Mapping[str, str]], Answer]

SAME: Final = {
    "equal": "The stored page equals the answer to this visitor.",
    "noise": "The stored page equals the answer to this visitor, but for lines that differ in any two answers.",
}


def run(
    target: str,
    header_lines: Iterable[str],
    base: str,
    applications: Iterable[Callable[[], Ask]],
    how_to_wrap: str,
    connect: Callable[[Callable[..., None]], object],
    *,
    rehearses: bool = False,
) -> Report:
    """Run the command. It fails if the application raises an exception. The document has ``url``, ``status``,
    ``is_stored`` and ``explanation``, a list of sentences; it is null if there is no response.

    A rehearsal stores the page for a visitor without the headers, and compares it with the answer to one with them. Its
    document also has ``differences``: see ``rehearsal_results``.

    Args:
        target: a path, or a URL with a host of the site.
        header_lines: headers of the request, such as "Cookie: theme=dark".
        base: the URL of the site, for a path.
        applications: load the applications of the site. The first one behind an HTTP cache is asked.
        how_to_wrap: the lines that put the site behind an HTTP cache.
        connect: connects a receiver to the framework's signal for exceptions.

    Raises:
        CommandFailed: if the request is malformed, or no application is behind an HTTP cache.
    """
    publish_nothing()
    headers = headers_of(header_lines)
    try:
        url = urljoin(base, target)
        parts_of(url)
    except ValueError as error:
        raise CommandFailed(str(error)) from None
    raised: list[str] = []
    document, lines = None, list[str]()
    differences: list[dict[str, Any]] | None = [] if rehearses else None

    def note(*_: Any, **__: Any) -> None:
        raised.append("".join(traceback.format_exception(sys.exception())))

    connect(note)
    try:
        for load in applications:
            ask = load()
            first = ask(url, {} if rehearses else headers)
            if first.reads.outcome is not None or "wheelcache" in first.headers.get("cache-status", ""):
                break
        else:
            raise CommandFailed(
                f"The application of this site is not behind an HTTP cache. Add these lines:\n\n{how_to_wrap}"
            )
        if rehearses and first.reads.figures is not None and first.is_stored:
            second, lines, differences = _rehearsed(url, headers, ask, first.reads.figures)
        else:
            second = ask(url, headers)
            lines = list(map(printable, explained(url, first, second)))
        outcome = second.reads.outcome or first.reads.outcome
        document = {"url": url, "status": second.status, "is_stored": isinstance(outcome, Page), "explanation": lines}
        if differences is not None:
            document["differences"] = differences
    except CommandFailed:
        raise
    except Exception:
        # A streamed body may raise, which the framework does not catch.
        note()
    return Report(document, lines, f"The application raised an exception.\n\n{raised[0]}" if raised else None)


def headers_of(lines: Iterable[str]) -> dict[str, str]:
    """Return the headers of the option ``--header``.

    Raises:
        CommandFailed: if a line is not a header.
    """
    found = {}
    for line in lines:
        name, _, value = map(str.strip, line.partition(":"))
        if not (name and value and line.isascii()):
            raise CommandFailed(f"--header must be like 'Accept-Language: de', not {line!r}.")
        found[name] = value
    return found


def _rehearsed(
    url: str, headers: Mapping[str, str], ask: Ask, figures: Figures
) -> tuple[Answer, list[str], list[dict[str, Any]]]:
    """Return the answer to a visitor, whether the page would have been right, and the differences."""
    figures.change_mode(REHEARSE)
    answer = ask(url, headers)
    if not _compared(figures):
        # The page depends on the headers, and was stored for them.
        answer = ask(url, headers)
    compared = _compared(figures)
    if not compared:
        return answer, list(map(printable, explained(url, answer, answer))), []
    outcomes = {key: Outcome(number, 0.0, example) for key, (number, example) in figures.rehearsed().items()}
    result = result_of("", outcomes, None)
    lines = [*lines_of(result), *(SAME[kind] for kind in compared & SAME.keys())]
    return answer, lines, [each for view in result["views"] for each in view["differences"]]


def _compared(figures: Figures) -> set[str]:
    return {kind for _, kind in figures.rehearsed() if kind in KINDS}


def explained(url: str, first: Answer, second: Answer) -> Iterator[str]:
    """Explain, in sentences, what became of the answers to two equal requests."""
    location = second.headers.get("location")
    yield f"GET {url}: {second.status}" + ("." if location is None else f", to {location}.")
    outcome = second.reads.outcome or first.reads.outcome
    if outcome is None:
        yield f"The cache answered without running the application: {first.headers['cache-status']}."
    elif isinstance(outcome, Page):
        yield "The page is stored."
        yield _lifetime(outcome)
        yield _dependencies(outcome, first.reads.sessions)
        from_cache = "was answered from the cache"
        yield f"A second request {from_cache if second.reads.outcome is None else 'ran the application again'}."
    else:
        reason = {**REASONS, **BYPASSING}.get(outcome.reason, REASONS["other"])
        yield f"The page is not stored: {outcome.detail}. {reason.cause}"
        path = unquote(urlsplit(url).path)
        yield f"What to change: {reason.advice_for(path, outcome.detail, first.reads.session_names)}"
    written = dict.fromkeys(first.reads.written + second.reads.written)
    if written:
        yield "The application wrote these keys of the session and these cookies:"
        yield from map(_place, written)
    found = dict.fromkeys(first.reads.found + second.reads.found)
    if found:
        yield "The application read these parts of the request (ignore_reads_by exempts some):"
        yield from map(_place, found)
    if first.reads.unread:
        yield _unread(sorted(first.reads.unread))


def _place(read: Read) -> str:
    where = os.path.relpath(read.file) if read.file.startswith(os.getcwd()) else read.file
    return f"  {read.what}: {where}, line {read.line}" + (f", in {read.function}" if read.function else "")


def _lifetime(page: Page) -> str:
    freshness = page.freshness
    if freshness.always_validate:
        return "The application validates it before every use (no-cache)."
    fresh = max(0.0, (freshness.lifetime or 0.0) - freshness.age)
    return (
        f"It is fresh for {fresh:.0f} s. After that, visitors get it for {freshness.grace:.0f} s while it "
        f"is renewed (grace), and for {freshness.fail_safe:.0f} s if the application fails (fail_safe)."
    )


def _dependencies(page: Page, sessions: frozenset[bytes]) -> str:
    if not page.fields:
        return "It is the same for all visitors without a session."
    names = sorted(_described(field) + " (the session)" * (field in sessions) for field in page.fields)
    return f"It depends on {', '.join(names)}, and is stored once for each combination of their values."


def _described(field: bytes) -> str:
    names = {COOKIE: "all cookies", SOME_COOKIE: "whether there are cookies"}
    name = field.decode("latin-1")
    return names.get(field) or (f"the {name}" if " " in name else f"the header {name.title()}")


def _unread(names: list[str]) -> str:
    others = [name for name in names if QueryRules(TRACKING).normalized(name)]
    option = [*map(repr, others), *["*TRACKING"][: len(names) - len(others)]]
    return (
        f"The application did not read the query parameters {', '.join(names)}. If they never change the page, set "
        f"ignore_query=[{', '.join(option)}]."
    )
