"""Ask the workers of a site about the entries of a cache, or to delete some, and collect their answers; or request an
action of them, without an answer.

A command or the dashboard puts an inquiry or a request into the database where the workers publish their figures. Each
worker finds it with its next publication, within seconds, and adds its answer. Nothing else answers: neither a scrape,
nor the dashboard, nor a command that shows figures. Both are JSON documents. Inquiries and their answers are removed
when they have been read.

Both are for the workers that live when they are made. When a worker reads them for the first time, it ignores those
that are older than its cache, or older than its process in the child of a fork.

A request has the key ``kind``, CLEAR or PURGE; a purge also has ``target``. Only the last of
equal requests to a cache is kept, and purges only for some minutes.

An inquiry has the key ``kind``, and others that depend on it; ``asked`` has the pids of the workers by their numbers.
Keys are texts: a key that is not a string is shown as its ``repr``, and is found only by a pattern. The answers have
these keys:

- "get" (``key``, ``show_value``): ``found``, and if it is true ``seconds_left`` (null for no expiry), ``bytes``,
  ``type``, ``group``, its name, ``tags`` and, if wanted, ``value``.
- "keys" (``pattern``, ``limit``): ``keys``, at most ``limit`` of them, and ``count``, the number of all.
- "tags" (``pattern``, ``limit``): ``tags``, an object with the number of entries by tag, at most ``limit`` of them, and
  ``count``.
- "group" (``group``, its name, and ``limit``): ``keys``, lists of the key, bytes and seconds left of at most ``limit``
  entries of the group, and ``count``, the number of all. A part of the key of a session is hidden.
- "delete" (``key``, ``pattern`` or ``tag``): ``deleted``, the number of entries; null for a tag, whose entries are not
  counted.
- "purge" (``target``, of an HTTP cache): ``purged``, the number of pages.
- "sample": ``entries``, their number; ``sampled``, the number of entries in a sample; ``largest``, lists of the key,
  bytes and seconds left of the largest in the sample; and ``recent``, the keys that were used last.

If ``hides_sessions`` is true, a ``pattern`` is compared with the part of a key that ends with the word "session". So no
number of matches shows a part of the key of a session, which is as good as a login.

An answer with the key ``error`` has no others.

The processes of a machine may share the entries of a cache. Then the process that asks answers itself, alone.
"""

from __future__ import annotations

import json
import os
import pickle
import re
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from heapq import nlargest
from itertools import chain, islice
from math import inf
from operator import itemgetter
from random import SystemRandom
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from wheelcache.core.access import Serialized
from wheelcache.core.contract import BATCH, Record
from wheelcache.engine.glob_pattern import matcher
from wheelcache.engine.keys import callers_tags, matching, text_of, unwrap
from wheelcache.engine.observed import ObservedCache
from wheelcache.errors import FileUnusable
from wheelcache.runtime.clock import SystemClock
from wheelcache.watch.event_log import DELETED, INSPECTED
from wheelcache.watch.site_file import SiteFile, lives
from wheelcache.watch.tables import encoded

if TYPE_CHECKING:
    import sqlite3

KEPT: Final = 60.0
"""Seconds after which inquiries and answers are removed."""

PURGES_KEPT: Final = 300.0
"""Seconds after which requests to purge are removed. Workers look for them every few seconds."""

CLEAR: Final = "clear"
PURGE: Final = "purge"
"""The actions that operators can request of the workers."""

PATIENCE: Final = 15.0
"""Seconds to wait for the answers. A worker that is busy publishes late."""

POLL_INTERVAL: Final = 0.1

LONGEST_TEXT: Final = 1000
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
"""The keys of sessions identify users that are logged in: the part after this word is hidden."""

HERE: Final = -1
"""The number of a process that answers an inquiry of its own."""

KEYS_HAVE_PREFIXES: Final = (
    "Keys are those that the cache stores: in Django with prefix and version, such as :1:user:7, in Flask with the key "
    "prefix. Look for *user:7, for instance, with a * in front."
)
"""Advice if a key is not found, or a pattern matches none."""

Document = dict[str, Any]
Rows = list[tuple[str, bytes, str, float, float]]
"""The inquiries and requests in the database: token, encoded name of the cache, document, its time, and the time at
which it is removed, in seconds since 1970."""


# A worker.


def inquiries_in(db: sqlite3.Connection) -> Rows:
    return db.execute("SELECT token, cache, document, at, until FROM inquiries").fetchall()


@dataclass(eq=False)
class Inspector:
    """Answers inquiries about the entries of one cache."""

    _cache: ObservedCache

    def __post_init__(self) -> None:
        self._core = self._cache.core

    def act(self, request: Document) -> None:
        """Run the request of an operator, unless this cache does not support its action."""
        action, *arguments = request.values()
        if action in self._cache.actions:
            self._cache.actions[action](*arguments)

    def answer(self, inquiry: Document) -> Document:
        """Return the answer to an inquiry."""
        try:
            self._cache.open()
            answers = {"get": self._get, "keys": self._keys, "tags": self._tags, "group": self._of_group}
            answers |= {"delete": self._delete, "sample": self._sample, PURGE: self._purge}
            return answers[inquiry["kind"]](inquiry)
        except Exception as error:
            return {"error": repr(error)[:LONGEST_TEXT]}

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
            "bytes": self._cache.bytes_of(record),
            "type": kind,
            "group": record.group,
            "tags": sorted(callers_tags(record.tags)),
        }
        return {**found, "value": repr(_readable(value))[:LONGEST_TEXT]} if show_value else found

    def _keys(self, inquiry: Document) -> Document:
        matches = _matcher(inquiry)
        batches = ([unwrap(record.key) for record in records] for records in self._batches())
        found = (text_of(key) for keys in batches for key in matching(matches, keys))
        shown = [*islice(found, inquiry["limit"])]
        return {"keys": shown, "count": len(shown) + sum(1 for _ in found)}

    def _of_group(self, inquiry: Document) -> Document:
        name, limit = inquiry["group"], inquiry["limit"]
        found = (record for records in self._batches() for record in records if record.group == name)
        keys = [
            (_listed(each.key), self._cache.bytes_of(each), self._seconds_left(each)) for each in islice(found, limit)
        ]
        return {"keys": keys, "count": len(keys) + sum(1 for _ in found)}

    def _tags(self, inquiry: Document) -> Document:
        matches = matcher(inquiry["pattern"])
        tags = (tag for records in self._batches() for record in records for tag in callers_tags(record.tags))
        found = Counter(filter(matches, tags))
        return {"tags": dict(found.most_common(inquiry["limit"])), "count": len(found)}

    def _delete(self, inquiry: Document) -> Document:
        if "tag" in inquiry:
            self._cache.delete_tags([inquiry["tag"]])
            return {"deleted": None}
        if "pattern" in inquiry:
            return {"deleted": sum(self._cache.deletions(partial(matching, _matcher(inquiry))))}
        return {"deleted": self._cache.delete_many([inquiry["key"], (inquiry["key"],)])}

    def _purge(self, inquiry: Document) -> Document:
        return {"purged": self._cache.actions[PURGE](inquiry["target"])}

    def _sample(self, inquiry: Document) -> Document:
        found, count, seconds = {}, 0, 0.0
        for record in self._sampled():
            count += 1
            began = time.thread_time()
            if self._is_there(record):
                key = _listed(record.key)
                found[key] = (key, self._cache.bytes_of(record), self._seconds_left(record))
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
        # The range begins below 0.0, so that the first entries are chosen as often as the others.
        starts = (max(0.0, SystemRandom().uniform(-SAMPLED / entries, 1.0)) for _ in range(SPOTS))
        return chain.from_iterable(self._core.scan(start=start).step(SAMPLED) for start in starts)

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
    shown = _without_secret(text)[:LONGEST_TEXT]
    return text if len(text) == len(shown) else f"{shown}…"


def _without_secret(text: str) -> str:
    secret = SECRET.search(text)
    return text if secret is None else text[: secret.end()]


def _matcher(inquiry: Document) -> Callable[[str], object]:
    matches = matcher(inquiry["pattern"])
    return (lambda text: matches(_without_secret(text))) if inquiry.get("hides_sessions") else matches


def _readable(value: Any) -> Any:
    """Return a value as the site's code receives it, unless the site has a serializer of its own."""
    with suppress(Exception):
        return pickle.loads(value) if isinstance(value, Serialized) else value
    return value


class Inquiries:
    """Finds the inquiries and requests to one cache of this process, answers or runs them.

    Args:
        name: the encoded name of the cache.
        inspector: answers inquiries and runs requests.

    Attributes:
        inspector: as given.
    """

    def __init__(self, name: bytes, inspector: Inspector) -> None:
        self._name = name
        self.inspector = inspector
        self.start_over()

    def start_over(self) -> None:
        """Set the initial state, also in the child of a fork, which ignores the inquiries to its parent."""
        self._begun = False
        self._since = SystemClock.time()
        self._known: set[str] = set()
        self._wanted: list[tuple[str, str]] = []

    def begin(self) -> None:
        """Accept requests from now on, since the cache is used for the first time, or again after it was idle."""
        if self._begun:
            # Earlier requests do not apply to the new entries.
            self._since = SystemClock.time()
            self._wanted.clear()
        self._begun = True

    def note(self, rows: Rows) -> None:
        """Note which inquiries and requests are new, without answering them."""
        # Only the first time: the clock of the system may be set back.
        since, self._since = self._since, -inf
        now = SystemClock.time()
        for token, name, document, at, until in rows:
            # Nobody waits for an answer after ``until``.
            if name == self._name and token not in self._known and at >= since and until >= now:
                self._wanted.append((token, document))
        self._known = {token for token, *_ in rows}

    def note_done(self, token: str) -> None:
        """Note that the request with this ``token`` has already been run in this process."""
        self._known.add(token)

    def run(self, file: SiteFile, process: int) -> None:
        """Answer the new inquiries, and run the new requests.

        Args:
            process: the number of this process in the database.
        """
        while self._wanted:
            token, document = self._wanted.pop(0)
            inquiry = json.loads(document)
            if "asked" not in inquiry:
                self.inspector.act(inquiry)
                continue
            answer = json.dumps(self.inspector.answer(inquiry))
            with suppress(FileUnusable, OSError):
                file.write(partial(_add_answer, token=token, process=process, answer=answer))


def _add_answer(db: sqlite3.Connection, token: str, process: int, answer: str) -> None:
    # Unless the process that asked has given up.
    db.execute(
        "INSERT INTO answers SELECT token, ?, ?, ? FROM inquiries WHERE token = ?",
        (process, answer, SystemClock.time() + KEPT, token),
    )


# The process that asks.


class AskedSite(Protocol):
    """The site whose workers are asked: see ``site.Site``."""

    files: list[SiteFile]

    def note(self, kind: str, by: str, name: str | None = None) -> None: ...
    def inspector(self, name: str) -> Inspector | None: ...


class Answers(NamedTuple):
    """The answers to an inquiry.

    Attributes:
        good: the answers with the pid of their worker, one for each of its caches of that name.
        failed: the same for the answers that are errors.
        silent: the pids of the workers that have not answered.
    """

    good: list[tuple[int, Document]]
    failed: list[tuple[int, Document]]
    silent: list[int]

    @property
    def failures(self) -> list[str]:
        """Sentences about the errors and the workers without an answer."""
        found = [f"Worker {pid} could not answer: {answer['error']}" for pid, answer in self.failed]
        return [*found, f"No answer from worker {', '.join(map(str, self.silent))}"] if self.silent else found


def ask(site: AskedSite, workers: Mapping[int, int], name: str, inquiry: Document) -> Answers:
    """Ask the workers of the cache ``name``, and wait for their answers, at most ``PATIENCE`` seconds. If processes
    share its entries, this one answers alone.

    Args:
        workers: the pids of the workers by their numbers.

    Raises:
        OSError, FileUnusable: if the workers cannot be asked.
    """
    inspector = site.inspector(name)
    if inspector is not None:
        return _answers_of({HERE: os.getpid()}, [(HERE, inspector.answer(inquiry))])
    token, until = begin(site, workers, name, inquiry), SystemClock.steady() + PATIENCE
    try:
        while True:
            answers = answers_to(site, workers, token)
            awaited = [worker for worker, pid in workers.items() if pid in answers.silent]
            # Nobody waits for workers that have exited.
            is_over = not any(lives(file.alive(worker)) for worker in awaited for file in site.files)
            if is_over or SystemClock.steady() > until:
                return answers
            time.sleep(POLL_INTERVAL)
    finally:
        end(site, token)


def note(site: AskedSite, name: str, inquiry: Document, by: str) -> None:
    """Record an inquiry of the operator ``by`` as an event, which contains neither keys nor tags, but the name of the
    group of keys. That of one key is known if processes share the entries."""
    kind = inquiry["kind"]
    what = {"tags": "tags", "sample": "a sample"}.get(kind)
    if what is None:
        what = next(f"a {field}" for field in ("key", "pattern", "tag", "group") if field in inquiry)
    group = _group_of(site.inspector(name), inquiry)
    if group:
        what = f"{'keys' if kind == 'group' else 'a key'} of {group}"
    value = " and its value" if inquiry.get("show_value") else ""
    site.note(DELETED if kind == "delete" else INSPECTED, f"{by}: {what}{value}", name)


def _group_of(inspector: Inspector | None, inquiry: Document) -> str:
    """Return the group of an inquiry about a group or a key; empty if it has none, or if it is not known."""
    if "key" not in inquiry or inspector is None:
        return str(inquiry.get("group", ""))
    return str(inspector.answer({"kind": "get", "key": inquiry["key"]}).get("group", ""))


def begin(site: AskedSite, workers: Mapping[int, int], name: str, inquiry: Document) -> str:
    """Ask the workers of the cache ``name``, and return the token of the inquiry. The arguments are those of ``ask``.

    Raises:
        OSError, FileUnusable: if the workers cannot be asked.
    """
    inspector = site.inspector(name)
    answer = "" if inspector is None else json.dumps(inspector.answer(inquiry))
    asked = {HERE: os.getpid()} if answer else workers
    token, document = secrets.token_hex(16), json.dumps({**inquiry, "asked": asked})

    def add(db: sqlite3.Connection) -> None:
        _add_inquiry(db, token, name, document)
        if answer:
            _add_answer(db, token, HERE, answer)

    for file in site.files:
        file.write(add)
    return token


def answers_to(site: AskedSite, workers: Mapping[int, int], token: str) -> Answers:
    """Return the present answers of ``workers``, the pids by the numbers of the workers."""
    rows = [row for file in site.files for row in file.read(lambda db: _answers(db, token), list[tuple[int, str]])]
    return _answers_of(workers, [(worker, json.loads(answer)) for worker, answer in rows])


def _answers_of(workers: Mapping[int, int], rows: Sequence[tuple[int, Document]]) -> Answers:
    answered = {worker for worker, _ in rows}
    found = [(pid, answer) for worker, pid in workers.items() for answering, answer in rows if answering == worker]
    return Answers(
        [each for each in found if "error" not in each[1]],
        [each for each in found if "error" in each[1]],
        [pid for worker, pid in workers.items() if worker not in answered],
    )


def inquiry_of(site: AskedSite, token: str) -> tuple[str, Document, float] | None:
    """Return the name of the cache, the inquiry and its time in seconds since 1970; None if there is none."""
    for file in site.files:
        for known, name, document, at, _ in file.read(inquiries_in, Rows):
            if known == token:
                return bytes(name).decode(errors="surrogatepass"), json.loads(document), at
    return None


def end(site: AskedSite, token: str) -> None:
    """Remove the inquiry and its answers: no worker answers later, and no value stays in the database."""
    for file in site.files:
        with suppress(FileUnusable, OSError):
            file.write(lambda db: _remove(db, "token = ?", token))


def add_request(db: sqlite3.Connection, token: str, name: str, request: Document) -> None:
    """Request an action of all living workers of the cache ``name``, within a transaction."""
    document = json.dumps(request)
    remove_old(db)
    db.execute("DELETE FROM inquiries WHERE cache = ? AND document = ?", (encoded(name), document))
    _add_inquiry(db, token, name, document, PURGES_KEPT if request["kind"] == PURGE else inf)


def _add_inquiry(db: sqlite3.Connection, token: str, name: str, document: str, kept: float = KEPT) -> None:
    now = SystemClock.time()
    db.execute("INSERT INTO inquiries VALUES (?, ?, ?, ?, ?)", (token, encoded(name), document, now, now + kept))


def remove_old(db: sqlite3.Connection) -> None:
    """Remove the inquiries and answers of processes that no longer wait, and old purges, within a transaction."""
    _remove(db, "until < ?", SystemClock.time())


def _remove(db: sqlite3.Connection, where: str, value: Any) -> None:
    for table in ("inquiries", "answers"):
        db.execute(f"DELETE FROM {table} WHERE {where}", (value,))


def _answers(db: sqlite3.Connection, token: str) -> list[tuple[int, str]]:
    return db.execute("SELECT process, document FROM answers WHERE token = ?", (token,)).fetchall()
