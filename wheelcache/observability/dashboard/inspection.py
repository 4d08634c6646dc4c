"""Inspect the entries of a cache for the page: find a key, count keys or tags, sample entries, or delete some.

Workers answer within seconds, so the page first asks and then requests the answers again and again. In between, no
request waits: a site with one thread goes on. Values are never shown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from heapq import nlargest
from operator import itemgetter
from typing import Any, Final, NamedTuple

from wheelcache.glob_pattern import escaped
from wheelcache.observability.dashboard.refusals import BadTarget
from wheelcache.observability.entry_commands import workers_to_ask
from wheelcache.observability.inquiries import LISTED, PATIENCE, Document, answers_to, begin, end, note
from wheelcache.observability.site import Site
from wheelcache.runtime.clock import SystemClock

LONGEST: Final = 16_384
"""Characters of a key, pattern or tag."""

KINDS: Final = ("key", "pattern", "tag")

Answers = list[tuple[int, Document]]
"""The answers of workers, with their pids."""

Table = tuple[str, list[str], list[list[Any]]]
"""A sentence, the headings, and the rows: texts and numbers, which the page formats by the heading."""


class Target(NamedTuple):
    """The form.

    Attributes:
        action: "find", "delete" or "sample".
        kind: one of ``KINDS``.
        text: a key, pattern or tag. Keys are those that the cache stores.
    """

    action: str
    kind: str
    text: str

    @classmethod
    def of(cls, form: Mapping[str, str]) -> Target:
        return cls(form.get("action", ""), form.get("kind", ""), form.get("text", ""))

    @property
    def verb(self) -> str:
        """The action in words, for the log."""
        return "deleted entries of" if self.action == "delete" else "inspected"

    def inquiry(self) -> Document:
        """Return the inquiry for the workers.

        Raises:
            BadTarget: if the form is invalid.
        """
        if self.action == "sample":
            return {"kind": "sample"}
        if self.action not in ("find", "delete") or self.kind not in KINDS:
            raise BadTarget(f"Give an action (find, delete or sample) and a kind ({', '.join(KINDS)})")
        if not self.text:
            raise BadTarget(f"Give a {self.kind}")
        if len(self.text) > LONGEST:
            raise BadTarget(f"A {self.kind} must have at most {LONGEST:,} characters, not {len(self.text):,}")
        if self.action == "delete":
            return {"kind": "delete", self.kind: self.text}
        if self.kind == "key":
            return {"kind": "get", "key": self.text}
        if self.kind == "pattern":
            return {"kind": "keys", "pattern": self.text, "limit": 0}
        return {"kind": "tags", "pattern": escaped(self.text), "limit": 1}


def ask(site: Site, name: str, target: Target, by: str) -> str:
    """Ask the workers of the cache ``name``, and return the token of the inquiry.

    Raises:
        BadTarget: if ``target`` is invalid.
        FileUnusable, OSError: if the workers cannot be asked.
    """
    inquiry = target.inquiry()
    note(site, name, inquiry, by)
    return begin(site, workers_to_ask(site, name), name, inquiry)


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
    silent = [str(pids[worker]) for worker, several in given.items() if not several]
    is_over = not silent or SystemClock.time() > at + PATIENCE
    if is_over:
        end(site, token)
    found = [(pids[worker], answer) for worker, several in given.items() for answer in several]
    good = [(pid, answer) for pid, answer in found if "error" not in answer]
    failures = [f"Worker {pid} could not answer: {answer['error']}" for pid, answer in found if "error" in answer]
    if is_over and silent:
        failures.append(f"No answer from worker {', '.join(silent)}")
    text, heads, rows = _TABLES[inquiry["kind"]](good)
    if not pids:
        text = "No worker uses this cache"
    elif not is_over:
        text = f"{len(pids) - len(silent)} of {len(pids)} workers have answered …"
    latest = Counter(key for _, answer in good for key in answer.get("recent", ()))
    table = {"heads": heads, "rows": rows}
    return {"is_over": is_over, "text": text, "failures": failures, **table, "workers": len(good), "latest": latest}


def _entries(answers: Answers) -> Table:
    rows: list[list[Any]] = []
    for pid, each in answers:
        if each["found"]:
            left = "never expires" if each["seconds_left"] is None else each["seconds_left"]
            rows.append([str(pid), "present", left, each["bytes"], each["type"], ", ".join(each["tags"])])
        else:
            rows.append([str(pid), "no entry", "", "", "", ""])
    text = f"Present in {sum(each['found'] for _, each in answers)} of {len(answers)} workers"
    return text, ["Worker", "Entry", "Time left", "Size", "Type", "Tags"], rows


def _keys(answers: Answers) -> Table:
    rows = [[str(pid), each["count"]] for pid, each in answers]
    return f"{sum(count for _, count in rows):,} keys match, in all workers together", ["Worker", "Keys"], rows


def _tags(answers: Answers) -> Table:
    rows = [[str(pid), sum(each["tags"].values())] for pid, each in answers]
    text = f"{sum(count for _, count in rows):,} entries have this tag, in all workers together"
    return text, ["Worker", "Entries"], rows


def _deleted(answers: Answers) -> Table:
    rows = [
        [str(pid), "the entries of the tag" if each["deleted"] is None else each["deleted"]] for pid, each in answers
    ]
    return "Deleted in the workers below", ["Worker", "Deleted"], rows


def _largest(answers: Answers) -> Table:
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
    return text, ["Key", "Size", "Time left", "Workers"], rows


_TABLES: Final[dict[str, Callable[[Answers], Table]]] = {
    "get": _entries,
    "keys": _keys,
    "tags": _tags,
    "delete": _deleted,
    "sample": _largest,
}
