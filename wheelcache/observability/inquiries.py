"""Ask the workers of a site about the entries of a cache, or to delete some, and collect their answers.

A command puts an inquiry into the database where the workers publish their figures. Each worker finds it with its next
publication, within seconds, and adds its answer. Inquiries and answers are JSON documents, which are removed when the
command has read them. As with ``worker_requests``, only workers answer, and only inquiries since their cache was made.

An inquiry has the key ``kind``, and others that depend on it. Keys are texts: a key that is not a string is shown as
its ``repr``, and is found only by a pattern. The answers have these keys:

- "get" (``key``, ``show_value``): ``found``, and if it is true ``seconds_left`` (null for no expiry), ``bytes``,
  ``type``, ``tags`` and, if wanted, ``value``.
- "keys" (``pattern``, ``limit``): ``keys``, at most ``limit`` of them, and ``count``, the number of all.
- "tags" (``pattern``, ``limit``): ``tags``, an object with the number of entries by tag, at most ``limit`` of them, and
  ``count``.
- "delete" (``key``, ``pattern`` or ``tag``): ``deleted``, the number of entries; null for a tag, whose entries are not
  counted.

An answer with the key ``error`` has no others.
"""

from __future__ import annotations

import json
import pickle
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from itertools import islice
from math import inf
from typing import TYPE_CHECKING, Any, Final

from wheelcache.codec import size_of
from wheelcache.core.access import Serialized
from wheelcache.core.contract import BATCH, Core, Record
from wheelcache.errors import FileUnusable
from wheelcache.glob_pattern import matcher
from wheelcache.keys import callers_tags, matching, text_of, unwrap
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
"""Characters after which a value is cut."""

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
            answers = {"get": self._get, "keys": self._keys, "tags": self._tags, "delete": self._delete}
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
        times, value = record.times, record.value
        left = None if times.fresh_until == inf else times.fresh_until - self._core.now()
        kind = "serialized" if isinstance(value, Serialized) else type(value).__qualname__
        found = {
            "found": True,
            "seconds_left": left,
            "bytes": size_of(unwrap(record.key), value, entry_bytes=self._core.entry_bytes),
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

    def _batches(self) -> Iterator[list[Record]]:
        scan = self._core.scan()
        while records := scan.step(BATCH):
            yield [*filter(self._is_there, records)]

    def _is_there(self, record: Record) -> bool:
        return record.times.is_current and record.times.fresh_until > self._core.now()


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
        new = [row for row in rows if row[1] == self._name and row[0] not in self._known and row[3] >= self._since]
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
    site: Site, workers: Iterable[int], name: str, inquiry: Document, patience: float = PATIENCE
) -> dict[int, list[Document]]:
    """Ask the workers of the cache ``name``, and wait for the answers of ``workers``, by their numbers.

    Returns:
        The answers of each worker, one for each of its caches of that name. The list is empty if it has not answered
        within ``patience`` seconds.

    Raises:
        OSError, FileUnusable: if the workers cannot be asked.
    """
    token, document = secrets.token_hex(8), json.dumps(inquiry)
    workers = list(workers)
    for file in site.files:
        file.write(lambda db: _add_inquiry(db, token, name, document))
    until = SystemClock.steady() + patience
    try:
        while True:
            found: dict[int, list[Document]] = {}
            for file in site.files:
                for process, answer in file.read(lambda db: _answers(db, token), list[tuple[int, str]]):
                    found.setdefault(process, []).append(json.loads(answer))
            answers = {worker: found.get(worker, []) for worker in workers}
            if all(answers.values()) or SystemClock.steady() > until:
                return answers
            time.sleep(POLL_INTERVAL)
    finally:
        # No worker answers later, and no value stays in the database.
        for file in site.files:
            with suppress(FileUnusable, OSError):
                file.write(lambda db: _remove(db, "token = ?", token))


def _add_inquiry(db: sqlite3.Connection, token: str, name: str, document: str) -> None:
    now = SystemClock.time()
    # Of processes that were killed while they waited.
    _remove(db, "at < ?", now - KEPT)
    db.execute("INSERT INTO inquiries VALUES (?, ?, ?, ?)", (token, encoded(name), document, now))


def _remove(db: sqlite3.Connection, where: str, value: Any) -> None:
    for table in ("inquiries", "answers"):
        db.execute(f"DELETE FROM {table} WHERE {where}", (value,))


def _answers(db: sqlite3.Connection, token: str) -> list[tuple[int, str]]:
    return db.execute("SELECT process, document FROM answers WHERE token = ?", (token,)).fetchall()
