"""The recent events of a site: caches that were cleared, loads and stores that failed, workers that started and ended.

They are stored in the database where the workers publish their figures. The process that observes an event adds it with
its next publication. Equal events within a minute are joined into one event with a count, so a storm of failures, or a
deployment of forty workers, takes one line. An event contains the names of caches, of groups of keys, operators and
exceptions, and the first 200 characters of an exception's text. It contains no keys or values of a cache, except as
part of that text.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import sqlite3

CLEARED: Final = "cleared"
DELETED: Final = "deleted"
INSPECTED: Final = "inspected"
LOAD_FAILED: Final = "load failed"
STORE_FAILED: Final = "store failed"
STARTED: Final = "started"
EXITED: Final = "exited"
KILLED: Final = "killed"
"""Kinds of events, in addition to the actions in ``inquiries``. A killed worker ended without an orderly exit,
perhaps by a crash."""

OF_PROCESSES: Final = (STARTED, EXITED, KILLED)

MAX_EVENTS: Final = 100
"""Number of events that are kept; the oldest are dropped first."""

JOIN_SECONDS: Final = 60.0
"""Seconds within which equal events are joined into one."""

MAX_LENGTH: Final = 200
"""Characters after which a text is cut."""

MAX_PROCESSES: Final = 50
"""Number of processes that an event keeps, to list them and to count each once. With 100 such events, reading takes
1.5 ms."""

MAX_LISTED: Final = 4
"""The most processes of an event whose numbers are listed, and the most groups of keys whose names are."""

MAX_GROUPS: Final = MAX_LISTED + 1
"""Number of groups of keys that an event keeps."""

Process = tuple[int, float]
"""The number of a process, and its start time, since the system reuses numbers."""


@dataclass(frozen=True, slots=True)
class Event:
    """An event, or several equal events joined into one.

    Attributes:
        kind: one of the constants above, or an action of ``inquiries``.
        at, since: the times of the last and the first occurrence, in seconds since 1970.
        cache: the name of the cache; None for all caches, or for a process.
        subject: the operator, perhaps with the target; the type of the exception; or the release of workers that
            started. Empty if the code of the site cleared the cache, and for an outage of a store, which is one event
            whatever its exceptions are.
        text: the message of the exception; for an outage, the last exception.
        processes: the processes in which it occurred.
        count: the number of occurrences.
        groups: of failed loads, the names of the groups of their keys, at most ``MAX_GROUPS``.
    """

    kind: str
    at: float
    since: float
    cache: str | None = None
    subject: str = ""
    text: str = ""
    processes: tuple[Process, ...] = ()
    count: int = 1
    groups: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        kind: str,
        at: float,
        *processes: Process,
        since: float | None = None,
        cache: str | None = None,
        subject: str = "",
        text: str = "",
        count: int = 1,
        groups: Iterable[str] = (),
    ) -> Event:
        """Return an event with long texts cut."""
        cache = None if cache is None else cache[:MAX_LENGTH]
        since = at if since is None else since
        return cls(kind, at, since, cache, subject[:MAX_LENGTH], text[:MAX_LENGTH], processes, count, tuple(groups))

    def goes_on_with(self, later: Event) -> bool:
        """Return whether ``later`` is an occurrence of the same event."""
        return (
            (self.kind, self.cache, self.subject) == (later.kind, later.cache, later.subject)
            and later.since <= self.at + JOIN_SECONDS
            and self.since <= later.at + JOIN_SECONDS
        )

    def joined_with(self, later: Event) -> Event:
        """Return both as one event. The start or end of a process counts once, even if it was reported repeatedly."""
        new = [each for each in later.processes if each not in self.processes]
        return replace(
            self,
            at=max(self.at, later.at),
            since=min(self.since, later.since),
            text=later.text or self.text,
            processes=(*self.processes, *new)[-MAX_PROCESSES:],
            count=self.count + (len(new) if self.kind in OF_PROCESSES else later.count),
            groups=tuple(dict.fromkeys((*self.groups, *later.groups)))[:MAX_GROUPS],
        )

    def sentence(self) -> str:
        """Return the details of the event, without its kind, cache and times."""
        many = f" ({self.count:,} times)" if self.count > 1 else ""
        if self.kind in OF_PROCESSES:
            workers = self._workers() if self.count <= MAX_LISTED else f"{self.count:,} workers"
            release = f" with release {self.subject}" if self.subject else ""
            return f"{workers}: killed, crashed, or left by os._exit" if self.kind == KILLED else workers + release
        if self.kind in (LOAD_FAILED, STORE_FAILED):
            return ": ".join(filter(None, (self._named_groups(), self.subject, self.text))) + many
        by = self.subject or f"the code of {self._workers('process', 'processes')}"
        return f"by {by}{many}"

    def as_json(self) -> str:
        """Return the text from which ``from_json`` makes an equal event."""
        return json.dumps([getattr(self, name) for name in self.__slots__])

    @classmethod
    def from_json(cls, document: str) -> Event:
        """Return the event that ``as_json`` encoded.

        Raises:
            TypeError, KeyError, ValueError: if ``document`` is not an event.
        """
        kind, at, since, cache, subject, text, processes, count, groups = json.loads(document)
        of_processes = tuple((pid, started) for pid, started in processes)
        return cls(kind, at, since, cache, subject, text, of_processes, count, tuple(groups))

    def _named_groups(self) -> str:
        """Return the names of the groups; empty without one."""
        names = ", ".join(self.groups[:MAX_LISTED])
        return f"{names} and others" if len(self.groups) > MAX_LISTED else names

    def _workers(self, one: str = "worker", many: str = "workers") -> str:
        pids = [str(pid) for pid in sorted(pid for pid, _ in self.processes)]
        if len(pids) > MAX_LISTED:
            return f"{len(pids)} {many}"
        listed = " and ".join(filter(None, (", ".join(pids[:-1]), *pids[-1:])))
        return f"{one if len(pids) == 1 else many} {listed}"


def merged(events: Iterable[Event], new: Iterable[Event]) -> list[Event]:
    """Return the newest events of both, oldest first, with equal events joined."""
    found = list(events)
    for event in new:
        for place in reversed(range(len(found))):
            if found[place].goes_on_with(event):
                found[place] = found[place].joined_with(event)
                break
        else:
            found.append(event)
    return sorted(found, key=lambda each: each.at)[-MAX_EVENTS:]


def add_events(db: sqlite3.Connection, new: Iterable[Event]) -> None:
    """Add ``new`` to the events of the site, within a transaction."""
    new = list(new)
    if new:
        found = merged(events_in(db), new)
        db.execute("DELETE FROM events")
        db.executemany("INSERT INTO events VALUES (?, ?)", ((each.at, each.as_json()) for each in found))


def events_in(db: sqlite3.Connection, most: int = MAX_EVENTS) -> list[Event]:
    """Return the newest events of the site, oldest first."""
    found = []
    for (document,) in db.execute("SELECT document FROM events ORDER BY at DESC LIMIT ?", (most,)):
        with suppress(TypeError, KeyError, ValueError):
            found.append(Event.from_json(document))
    return found[::-1]
