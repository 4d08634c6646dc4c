"""Inspect the entries of a cache for the page: find a key, count keys or tags, sample entries, or delete some.

Workers answer within seconds, so the page first asks and then requests the answers again and again. In between, no
request waits: a site with one thread goes on. Values are never shown.
"""

from __future__ import annotations

from collections import Counter
from heapq import nlargest
from operator import itemgetter
from typing import Any, Final, NamedTuple

from wheelcache.engine.glob_pattern import escaped
from wheelcache.runtime.clock import SystemClock
from wheelcache.watch.dashboard.permissions import Permission, Permissions
from wheelcache.watch.dashboard.refusals import Refused
from wheelcache.watch.inquiries import (
    KEYS_HAVE_PREFIXES,
    LISTED,
    PATIENCE,
    SECRET,
    Document,
    answers_to,
    begin,
    end,
    note,
)
from wheelcache.watch.site import Site

LONGEST_TARGET: Final = 16_384
"""Characters of a key, pattern or tag."""

KINDS: Final = ("key", "pattern", "tag")

GROUP: Final = "group"
"""The kind of a search for the entries of a group of keys, which are not deleted together."""

SHOWN_KEYS: Final = 50
"""Entries of a group that each worker lists."""

Given = list[tuple[int, Document]]
"""The answers of workers, with their pids."""


class Target(NamedTuple):
    """The form.

    Attributes:
        action: "find", "delete" or "sample".
        kind: one of ``KINDS``, or to find something also GROUP.
        text: a key, pattern or tag, or the name of a group, which may be empty. Keys are those that the cache stores.
    """

    action: str
    kind: str
    text: str

    @property
    def needed(self) -> Permissions:
        """The permissions that the user needs."""
        return frozenset((Permission.INSPECT, *((Permission.OPERATE,) if self.action == "delete" else ())))

    @property
    def verb(self) -> str:
        """The action in words, for the log."""
        return "deleted entries of" if self.action == "delete" else "inspected"

    def inquiry(self) -> Document:
        """Return the inquiry for the workers.

        Raises:
            Refused: if the form is invalid.
        """
        if self.action == "sample":
            return {"kind": "sample"}
        if (self.action, self.kind) == ("find", GROUP):
            return {"kind": GROUP, "group": self.text[:LONGEST_TARGET], "limit": SHOWN_KEYS}
        if self.action not in ("find", "delete") or self.kind not in KINDS:
            raise Refused(f"Give an action (find, delete or sample) and a kind ({', '.join(KINDS)})", 400)
        if not self.text:
            raise Refused(f"Give a {self.kind}", 400)
        if len(self.text) > LONGEST_TARGET:
            raise Refused(f"A {self.kind} must have at most {LONGEST_TARGET:,} characters, not {len(self.text):,}", 400)
        secret = SECRET.search(self.text)
        if self.kind == "pattern" and secret is not None and self.text[secret.end() :] not in ("", "*"):
            raise Refused(
                "In a pattern, only * may follow the word session, since the numbers of matches would show the keys of "
                "sessions: *session* finds them all",
                400,
            )
        if self.action == "delete":
            return {"kind": "delete", self.kind: self.text, "hides_sessions": True}
        if self.kind == "key":
            return {"kind": "get", "key": self.text}
        if self.kind == "pattern":
            return {"kind": "keys", "pattern": self.text, "limit": 0, "hides_sessions": True}
        return {"kind": "tags", "pattern": escaped(self.text), "limit": 1}


def ask(site: Site, name: str, target: Target, by: str) -> str:
    """Ask the workers of the cache ``name``, and return the token of the inquiry.

    Raises:
        Refused: if ``target`` is invalid.
        FileUnusable, OSError: if the workers cannot be asked.
    """
    inquiry = target.inquiry()
    note(site, name, inquiry, by)
    return begin(site, site.workers_to_ask(name), name, inquiry)


def answers(site: Site, token: str, inquiry: Document, at: float) -> dict[str, Any]:
    """Return the present answers to an inquiry, which is removed when they are complete or late.

    Args:
        at: the time of the inquiry, in seconds since 1970.

    Returns:
        ``is_over``: whether no more answers are expected. ``text``: the progress, or the answers, in a sentence.
        ``failures``: sentences about workers without an answer. ``heads`` and ``rows``: a table. ``workers``: the
        number of workers that answered. ``latest``: in a sample, the number of workers by key that used it last.
    """
    pids = {int(number): pid for number, pid in inquiry["asked"].items()}
    given = answers_to(site, pids, token)
    is_over = not given.silent or SystemClock.time() > at + PATIENCE
    if is_over:
        end(site, token)
    table = TABLES[inquiry["kind"]](given.good)
    text = table.text
    if not pids:
        text = "No worker uses this cache"
    elif not is_over:
        text = f"{len(pids) - len(given.silent)} of {len(pids)} workers have answered …"
    return {
        "is_over": is_over,
        "text": text,
        "failures": given.failures if is_over else given._replace(silent=[]).failures,
        "heads": table.headings,
        "rows": table.rows,
        "workers": len(given.good),
        "latest": Counter(key for _, answer in given.good for key in answer.get("recent", ())),
    }


# The tables. A cell is a text or a number, which the page formats by its heading.


OF_KEY: Final = ("Key", "Size", "Time left")


class AnswerTable(NamedTuple):
    """The answers of all workers: a sentence, and a table."""

    text: str
    headings: list[str]
    rows: list[list[Any]]


def _entry(answers: Given) -> AnswerTable:
    """Return the entry of a key in each worker."""
    rows: list[list[Any]] = []
    for pid, each in answers:
        row = ["no entry", "", "", "", ""]
        if each["found"]:
            left = "never expires" if each["seconds_left"] is None else each["seconds_left"]
            row = ["present", left, each["bytes"], each["type"], ", ".join(each["tags"])]
        rows.append([str(pid), *row])
    number = sum(each["found"] for _, each in answers)
    text = f"Present in {number} of {len(answers)} workers" + ("" if number else f". {KEYS_HAVE_PREFIXES}")
    return AnswerTable(text, ["Worker", "Entry", "Time left", "Size", "Type", "Tags"], rows)


def _deleted(answers: Given) -> AnswerTable:
    """Return the number of entries that each worker has deleted."""
    rows = [
        [str(pid), "the entries of the tag" if each["deleted"] is None else each["deleted"]] for pid, each in answers
    ]
    return AnswerTable("Deleted in the workers below", ["Worker", "Deleted"], rows)


def _numbers_of_keys(answers: Given) -> AnswerTable:
    """Return the number of keys that match a pattern in each worker."""
    rows = [[str(pid), each["count"]] for pid, each in answers]
    number = sum(count for _, count in rows)
    text = f"{number:,} keys match, in all workers together" + ("" if number else f". {KEYS_HAVE_PREFIXES}")
    return AnswerTable(text, ["Worker", "Keys"], rows)


def _keys_of_group(answers: Given) -> AnswerTable:
    """Return some entries of a group of keys."""
    rows = _with_workers(answers, "keys")
    number = sum(each["count"] for _, each in answers)
    text = f"{len(rows):,} of {number:,} keys" if number > len(rows) else f"{number:,} keys"
    return AnswerTable(text if number else "No keys now", [*OF_KEY, "Workers"], rows)


def _entries_of_tag(answers: Given) -> AnswerTable:
    """Return the number of entries that have a tag in each worker."""
    rows = [[str(pid), sum(each["tags"].values())] for pid, each in answers]
    number = sum(count for _, count in rows)
    return AnswerTable(f"{number:,} entries have this tag, in all workers together", ["Worker", "Entries"], rows)


def _largest(answers: Given) -> AnswerTable:
    """Return the largest entries in the samples of all workers."""
    rows = nlargest(LISTED, _with_workers(answers, "largest"), key=itemgetter(1))
    entries, sampled = (sum(each[name] for _, each in answers) for name in ("entries", "sampled"))
    text = f"The largest of {sampled:,} sampled entries, of {entries:,} in all workers together"
    return AnswerTable(text, [*OF_KEY, "Workers"], rows)


def _with_workers(answers: Given, name: str) -> list[list[Any]]:
    """Return the entries that the answers list: the key, the greatest size and the time left in a worker with that, and
    the number of workers."""
    found: dict[str, list[Any]] = {}
    for _, each in answers:
        for key, size, left in each[name]:
            row = found.setdefault(key, [key, -1, "", 0])
            row[3] += 1
            if size > row[1]:
                row[1:3] = size, "never expires" if left is None else left
    return list(found.values())


TABLES: Final = {
    "get": _entry,
    "keys": _numbers_of_keys,
    GROUP: _keys_of_group,
    "tags": _entries_of_tag,
    "delete": _deleted,
    "sample": _largest,
}
"""The functions that make tables of answers, by the kind of the inquiry."""
