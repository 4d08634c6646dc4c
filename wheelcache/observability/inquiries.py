"""Ask the workers of a site about the entries of a cache, or to delete some, and collect their answers.

A command or the dashboard puts an inquiry into the database where the workers publish their figures. Each worker finds
it with its next publication, within seconds, and adds its answer. Inquiries and answers are JSON documents, which are
removed when they have been read. As with ``worker_requests``, only workers answer, and only inquiries since their cache
was made.

An inquiry has the key ``kind``, and others that depend on it; ``asked`` has the pids of the workers by their numbers.
Keys are texts: a key that is not a string is shown as its ``repr``, and is found only by a pattern. The answers have
these keys:

- "get" (``key``, ``show_value``): ``found``, and if it is true ``seconds_left`` (null for no expiry), ``bytes``,
  ``type``, ``tags`` and, if wanted, ``value``.
- "keys" (``pattern``, ``limit``): ``keys``, at most ``limit`` of them, and ``count``, the number of all.
- "tags" (``pattern``, ``limit``): ``tags``, an object with the number of entries by tag, at most ``limit`` of them, and
  ``count``.
- "delete" (``key``, ``pattern`` or ``tag``): ``deleted``, the number of entries; null for a tag, whose entries are not
  counted.
- "sample": ``entries``, their number; ``sampled``, the number of entries in a sample; ``largest``, lists of the key,
  bytes and seconds left of the largest in the sample; and ``recent``, the keys that were used last.

An answer with the key ``error`` has no others.
"""

from __future__ import annotations

import json
import pickle
import re
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from heapq import nlargest
from itertools import islice
from math import inf
from operator import itemgetter
from random import SystemRandom
from typing import TYPE_CHECKING, Any, Final

from wheelcache.codec import size_of
from wheelcache.core.access import Serialized
from wheelcache.core.contract import BATCH, Core, Record
from wheelcache.errors import FileUnusable
from wheelcache.glob_pattern import matcher
from wheelcache.keys import callers_tags, matching, text_of, unwrap
from wheelcache.observability.event_log import DELETED, INSPECTED
from wheelcache.observability.site_file import SiteFile
from wheelcache.observability.tables import encoded
from wheelcache.runtime.clock import SystemClock

if TYPE_CHECKING:
    import sqlite3

    from wheelcache.observability.site import Site

KEPT: Final = 60.0
"""Seconds after which inquiries and answers are removed."""

PATIENCE: Final = 15.0
"""Seconds to wait for the answers. A worker that is busy publishes late."""

POLL_INTERVAL: Final = 0.1

LONGEST: Final = 1000
"""Characters after which a value is cut, or a key in a sample."""

SPOTS: Final = 4
"""The places in a large cache from which a sample is taken: neighbors in memory were often stored together."""

SAMPLED: Final = 256
"""Number of entries in a sample from each of the ``SPOTS``."""

MAX_SECONDS: Final = 0.02
"""The CPU time for weighing a sample, in seconds. The sample is smaller if many values are tuples of thousands of
items."""

LISTED: Final = 20
"""Number of largest entries in an answer."""

LATEST: Final = 64
"""Number of entries that were used last in an answer."""

SECRET: Final = re.compile("session", re.IGNORECASE)
"""The keys of sessions identify users that are logged in: a sample hides the part after this word."""

Document = dict[str, Any]
Rows = list[tuple[str, bytes, str, float]]
"""The inquiries in the database: token, encoded name of the cache, document, and time in seconds since 1970."""


# A worker.


def inquiries_in(db: sqlite3.Connection) -> Rows:
    return db.execute("SELECT token, cache, document, at FROM inquiries").fetchall()


class Inspector:
    """Answers inquiries about the entries of one cache.

    Args:
        delete_many: deletes keys, and returns the number of existing ones.
        deletions: deletes the keys that a function selects from lists of the callers' keys: see ``CacheParts``.
        delete_tags: deletes the entries of tags.
    """

    def __init__(
        self,
        core: Core,
        delete_many: Callable[[Iterable[Any]], int],
        deletions: Callable[[Callable[[list[Any]], Iterable[Any]]], Iterator[int]],
        delete_tags: Callable[[Iterable[str]], object],
    ) -> None:
        self._core = core
        self._delete_many = delete_many
        self._deletions = deletions
        self._delete_tags = delete_tags

    def answer(self, inquiry: Document) -> Document:
        try:
            answers = {"get": self._get, "keys": self._keys, "tags": self._tags}
            answers |= {"delete": self._delete, "sample": self._sample}
            return answers[inquiry["kind"]](inquiry)
        except Exception as error:
            return {"error": repr(error)[:LONGEST]}

    def _get(self, inquiry: Document) -> Document:
        text = inquiry["key"]
        # Django's backend keeps keys of which Django may warn in tuples.
        for key in (text, (text,)):
            record = self._core.peek(key)
            if record is not None and self._is_there(record):
                return self._described(record, show_value=inquiry.get("show_value", False))
        return {"found": False}

    def _described(self, record: Record, *, show_value: bool) -> Document:
        value = record.value
        kind = "serialized" if isinstance(value, Serialized) else type(value).__qualname__
        found = {
            "found": True,
            "seconds_left": self._seconds_left(record),
            "bytes": self._size(record),
            "type": kind,
            "tags": sorted(callers_tags(record.tags)),
        }
        return {**found, "value": repr(_readable(value))[:LONGEST]} if show_value else found

    def _keys(self, inquiry: Document) -> Document:
        matches = matcher(inquiry["pattern"])
        batches = ([unwrap(record.key) for record in records] for records in self._batches())
        found = (text_of(key) for keys in batches for key in matching(matches, keys))
        shown = [*islice(found, inquiry["limit"])]
        return {"keys": shown, "count": len(shown) + sum(1 for _ in found)}

    def _tags(self, inquiry: Document) -> Document:
        matches = matcher(inquiry["pattern"])
        tags = (tag for records in self._batches() for record in records for tag in callers_tags(record.tags))
        found = Counter(filter(matches, tags))
        return {"tags": dict(found.most_common(inquiry["limit"])), "count": len(found)}

    def _delete(self, inquiry: Document) -> Document:
        if "tag" in inquiry:
            self._delete_tags([inquiry["tag"]])
            return {"deleted": None}
        if "pattern" in inquiry:
            return {"deleted": sum(self._deletions(partial(matching, matcher(inquiry["pattern"]))))}
        return {"deleted": self._delete_many([inquiry["key"], (inquiry["key"],)])}

    def _sample(self, inquiry: Document) -> Document:
        found, count, seconds = {}, 0, 0.0
        for record in self._sampled():
            count += 1
            began = time.thread_time()
            if self._is_there(record):
                key = _listed(record.key)
                found[key] = (key, self._size(record), self._seconds_left(record))
            seconds += time.thread_time() - began
            if seconds > MAX_SECONDS:
                break
        return {
            "entries": len(self._core),
            "sampled": count,
            "largest": nlargest(LISTED, found.values(), key=itemgetter(1)),
            "recent": [*dict.fromkeys(map(_listed, reversed(self._core.keys(LATEST))))],
        }

    def _sampled(self) -> Iterator[Record]:
        """Return the entries of a sample, perhaps some of them twice: all of them in a small cache."""
        entries = len(self._core)
        if entries <= SPOTS * SAMPLED:
            return iter(self._core.scan().step(SPOTS * SAMPLED))
        # The range begins below 0.0, so that the first entries are sampled as often as the others.
        starts = (max(0.0, SystemRandom().uniform(-SAMPLED / entries, 1.0)) for _ in range(SPOTS))
        return (record for start in starts for record in self._core.scan(start=start).step(SAMPLED))

    def _size(self, record: Record) -> int:
        return size_of(unwrap(record.key), record.value, entry_bytes=self._core.entry_bytes)

    def _seconds_left(self, record: Record) -> float | None:
        fresh_until = record.times.fresh_until
        return None if fresh_until == inf else fresh_until - self._core.now()

    def _batches(self) -> Iterator[list[Record]]:
        scan = self._core.scan()
        while records := scan.step(BATCH):
            yield [*filter(self._is_there, records)]

    def _is_there(self, record: Record) -> bool:
        return record.times.is_current and record.times.fresh_until > self._core.now()


def _listed(key: Any) -> str:
    """Return a key of the core as a text for a sample. A key that is cut, or hidden in part, ends in "…"."""
    text = text_of(unwrap(key))
    secret = SECRET.search(text)
    end = min(LONGEST, len(text) if secret is None else secret.end())
    return text if len(text) <= end else f"{text[:end]}…"


def _readable(value: Any) -> Any:
    """Return a value as the site's code receives it, unless the site has a serializer of its own."""
    with suppress(Exception):
        return pickle.loads(value) if isinstance(value, Serialized) else value
    return value


class Inquiries:
    """Finds the inquiries to one cache of this process, and adds the answers.

    Args:
        name: the encoded name of the cache.
        answer: returns the answer to an inquiry.
    """

    def __init__(self, name: bytes, answer: Callable[[Document], Document]) -> None:
        self._name = name
        self._answer = answer
        self.start_over()

    def start_over(self) -> None:
        """Set the initial state, also in the child of a fork, which ignores the inquiries to its parent."""
        self._since = SystemClock.time()
        self._known: set[str] = set()
        self._wanted: list[tuple[str, str]] = []

    def note(self, rows: Rows) -> None:
        """Note which inquiries are new, without answering them."""
        # The process that asked a longer time ago does not wait any longer.
        since = max(self._since, SystemClock.time() - KEPT)
        new = [row for row in rows if row[1] == self._name and row[0] not in self._known and row[3] >= since]
        self._wanted += [(token, document) for token, _, document, _ in new]
        self._known = {token for token, *_ in rows}

    def run(self, file: SiteFile, process: int) -> None:
        """Answer the new inquiries.

        Args:
            process: the number of this process in the database.
        """
        while self._wanted:
            token, document = self._wanted.pop(0)
            answer = json.dumps(self._answer(json.loads(document)))
            with suppress(FileUnusable, OSError):
                file.write(partial(_add_answer, token=token, process=process, answer=answer))


def _add_answer(db: sqlite3.Connection, token: str, process: int, answer: str) -> None:
    # Unless the process that asked has given up.
    db.execute(
        "INSERT INTO answers SELECT token, ?, ?, ? FROM inquiries WHERE token = ?",
        (process, answer, SystemClock.time(), token),
    )


# The process that asks.


def ask(
    site: Site, workers: Mapping[int, int], name: str, inquiry: Document, patience: float = PATIENCE
) -> dict[int, list[Document]]:
    """Ask the workers of the cache ``name``, and wait for the answers of ``workers``.

    Args:
        workers: the pids of the workers by their numbers.

    Returns:
        The answers of each worker, one for each of its caches of that name. The list is empty if it has not answered
        within ``patience`` seconds.

    Raises:
        OSError, FileUnusable: if the workers cannot be asked.
    """
    token = begin(site, workers, name, inquiry)
    until = SystemClock.steady() + patience
    try:
        while True:
            answers = answers_to(site, workers, token)
            if all(answers.values()) or SystemClock.steady() > until:
                return answers
            time.sleep(POLL_INTERVAL)
    finally:
        end(site, token)


def note(site: Site, name: str, inquiry: Document, by: str) -> None:
    """Record an inquiry of the operator ``by`` as an event, which contains neither keys nor tags."""
    kind = inquiry["kind"]
    what = {"tags": "tags", "sample": "a sample"}.get(kind)
    if what is None:
        what = next(f"a {field}" for field in ("key", "pattern", "tag") if field in inquiry)
    value = " and its value" if inquiry.get("show_value") else ""
    site.note(DELETED if kind == "delete" else INSPECTED, f"{by}: {what}{value}", name)


def begin(site: Site, workers: Mapping[int, int], name: str, inquiry: Document) -> str:
    """Ask the workers of the cache ``name``, and return the token of the inquiry. The arguments are those of ``ask``.

    Raises:
        OSError, FileUnusable: if the workers cannot be asked.
    """
    token, document = secrets.token_hex(16), json.dumps({**inquiry, "asked": workers})
    for file in site.files:
        file.write(lambda db: _add_inquiry(db, token, name, document))
    return token


def answers_to(site: Site, workers: Iterable[int], token: str) -> dict[int, list[Document]]:
    """Return the present answers of each worker."""
    found: dict[int, list[Document]] = {worker: [] for worker in workers}
    for file in site.files:
        for process, answer in file.read(lambda db: _answers(db, token), list[tuple[int, str]]):
            found.setdefault(process, []).append(json.loads(answer))
    return {worker: found[worker] for worker in workers}


def inquiry_of(site: Site, token: str) -> tuple[str, Document, float] | None:
    """Return the name of the cache, the inquiry and its time in seconds since 1970; None if there is none."""
    for file in site.files:
        for known, name, document, at in file.read(inquiries_in, Rows):
            if known == token:
                return bytes(name).decode(errors="surrogatepass"), json.loads(document), at
    return None


def end(site: Site, token: str) -> None:
    """Remove the inquiry and its answers: no worker answers later, and no value stays in the database."""
    for file in site.files:
        with suppress(FileUnusable, OSError):
            file.write(lambda db: _remove(db, "token = ?", token))


def _add_inquiry(db: sqlite3.Connection, token: str, name: str, document: str) -> None:
    db.execute("INSERT INTO inquiries VALUES (?, ?, ?, ?)", (token, encoded(name), document, SystemClock.time()))


def remove_old(db: sqlite3.Connection) -> None:
    """Remove the inquiries and answers of processes that no longer wait, within a transaction."""
    _remove(db, "at < ?", SystemClock.time() - KEPT)


def _remove(db: sqlite3.Connection, where: str, value: Any) -> None:
    for table in ("inquiries", "answers"):
        db.execute(f"DELETE FROM {table} WHERE {where}", (value,))


def _answers(db: sqlite3.Connection, token: str) -> list[tuple[int, str]]:
    return db.execute("SELECT process, document FROM answers WHERE token = ?", (token,)).fetchall()
