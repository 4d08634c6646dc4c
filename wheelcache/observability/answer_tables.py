"""Make tables of the answers to inquiries, for the dashboard's page and for the terminal.

A cell is a text or a number, which the page and the terminal format by its heading.
"""

from __future__ import annotations

from collections import Counter
from heapq import nlargest
from operator import itemgetter
from typing import Any, Final, NamedTuple

from wheelcache.observability.inquiries import LISTED, Document

KEYS_HAVE_PREFIXES: Final = (
    "Keys are those that the cache stores: in Django with prefix and version, such as :1:user:7, in Flask with the key "
    "prefix. Look for *user:7, for instance, with a * in front."
)
"""Advice if a key is not found, or a pattern matches none."""

Given = list[tuple[int, Document]]
"""The answers of workers, with their pids."""


class AnswerTable(NamedTuple):
    """The answers of all workers.

    Attributes:
        text: a sentence.
        headings, rows: the table.
        is_empty: whether no worker has found an entry.
    """

    text: str
    headings: list[str]
    rows: list[list[Any]]
    is_empty: bool


def entry(answers: Given) -> AnswerTable:
    """Return the entry of a key in each worker. There is a column for the value if it was asked for."""
    rows: list[list[Any]] = []
    for pid, each in answers:
        if each["found"]:
            left = "never expires" if each["seconds_left"] is None else each["seconds_left"]
            row = ["present", left, each["bytes"], each["type"], ", ".join(each["tags"]), each.get("value", "")]
        else:
            row = ["no entry", "", "", "", "", ""]
        rows.append([str(pid), *row])
    number = sum(each["found"] for _, each in answers)
    text = f"Present in {number} of {len(answers)} workers" + ("" if number else f". {KEYS_HAVE_PREFIXES}")
    headings = ["Worker", "Entry", "Time left", "Size", "Type", "Tags", "Value"]
    if not any("value" in each for _, each in answers):
        headings, rows = headings[:-1], [row[:-1] for row in rows]
    return AnswerTable(text, headings, rows, not number)


def deleted(answers: Given) -> AnswerTable:
    """Return the number of entries that each worker has deleted."""
    rows = [
        [str(pid), "the entries of the tag" if each["deleted"] is None else each["deleted"]] for pid, each in answers
    ]
    is_empty = not any(number for _, number in rows)
    return AnswerTable("Deleted in the workers below", ["Worker", "Deleted"], rows, is_empty)


def numbers_of_keys(answers: Given) -> AnswerTable:
    """Return the number of keys that match a pattern in each worker."""
    found = _by_worker("Keys", [(pid, each["count"]) for pid, each in answers], "keys match")
    return found._replace(text=f"{found.text}. {KEYS_HAVE_PREFIXES}") if found.is_empty else found


def keys(answers: Given) -> AnswerTable:
    """Return the keys that match a pattern."""
    rows = [[key] for key in sorted({key for _, each in answers for key in each["keys"]})]
    more = max((each["count"] - len(each["keys"]) for _, each in answers), default=0)
    text = f"... and {more:,} more in one worker; use a narrower pattern" if more else ""
    return AnswerTable(text, ["Key"], rows, not rows)


def entries_of_tag(answers: Given) -> AnswerTable:
    """Return the number of entries that have a tag in each worker."""
    return _by_worker("Entries", [(pid, sum(each["tags"].values())) for pid, each in answers], "entries have this tag")


def _by_worker(heading: str, counts: list[tuple[int, int]], text: str) -> AnswerTable:
    number = sum(count for _, count in counts)
    rows = [[str(pid), count] for pid, count in counts]
    return AnswerTable(f"{number:,} {text}, in all workers together", ["Worker", heading], rows, not number)


def tags(answers: Given) -> AnswerTable:
    """Return the tags that match a pattern, with the number of their entries."""
    entries: Counter[str] = Counter()
    for _, each in answers:
        entries.update(each["tags"])
    rows = [[number, tag] for tag, number in entries.most_common()]
    return AnswerTable("", ["Entries", "Tag"], rows, not rows)


def most_expensive(answers: Given) -> list[list[Any]]:
    """Return the keys in the samples of all workers that took most time to compute, with the seconds."""
    found: Counter[str] = Counter()
    for _, each in answers:
        found.update(each.get("computed", {}))
    return [[key, seconds] for key, seconds in found.most_common(LISTED)]


def largest(answers: Given) -> AnswerTable:
    """Return the largest entries in the samples of all workers."""
    found: dict[str, list[Any]] = {}
    for _, each in answers:
        for key, size, left in each["largest"]:
            row = found.setdefault(key, [key, 0, "", 0])
            row[3] += 1
            if size > row[1]:
                row[1:3] = size, "never expires" if left is None else left
    rows = nlargest(LISTED, found.values(), key=itemgetter(1))
    entries, sampled = (sum(each[name] for _, each in answers) for name in ("entries", "sampled"))
    text = f"The largest of {sampled:,} sampled entries, of {entries:,} in all workers together"
    return AnswerTable(text, ["Key", "Size", "Time left", "Workers"], rows, not rows)
