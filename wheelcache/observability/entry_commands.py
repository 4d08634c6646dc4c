"""Look at the entries of a cache in all workers, or delete some: ``manage.py wheelcache keys|get|ttl|delete|tags`` and
``flask wheelcache ...`` share this.

Keys are shown and given as the cache stores them, in Django with KEY_PREFIX and VERSION: ``:1:user:7``. No value is
shown unless it is asked for.

``--json`` prints one document, to which keys may be added: ``cache``, its name; ``at``, in seconds since 1970; and
``workers``, a list with an object for each worker: ``pid``, and the keys of its answer, which ``inquiries`` describes.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from typing import Any, Final, NamedTuple, TextIO

from wheelcache.observability.console import Undone, nothing_found, user_name
from wheelcache.observability.inquiries import PATIENCE, Document, ask, note
from wheelcache.observability.observed import ObservedCache
from wheelcache.observability.site import Own, Site
from wheelcache.observability.snapshot_commands import is_idle
from wheelcache.runtime.clock import SystemClock

ACTIONS: Final = {
    "keys": "List the keys that match a pattern (default: *), in all workers.",
    "get": "Show one entry in each worker: the time left, its size, type and tags.",
    "ttl": "Show the seconds that are left to one entry in each worker.",
    "delete": "Delete one key, or the keys of --pattern or --tag, in all workers.",
    "tags": "List the tags that match a pattern (default: *), with the number of their entries.",
}
"""The actions and their help texts."""

LIMIT: Final = 1000
"""The most keys or tags that each worker lists."""


class Target(NamedTuple):
    """The entries that a command is about.

    Attributes:
        text: a key; for "keys" and "tags", a pattern.
        pattern, tag: the entries to delete.
        show_value: whether "get" shows the value.
    """

    text: str | None = None
    pattern: str | None = None
    tag: str | None = None
    show_value: bool = False


def run(
    action: str,
    caches: Iterable[ObservedCache],
    name: str | None,
    target: Target,
    out: TextIO,
    *,
    as_json: bool,
    patience: float = PATIENCE,
) -> None:
    """Run one of ``ACTIONS`` on the cache ``name``; None for the only cache of the site.

    Raises:
        Undone: if the command is incomplete, there is no such cache or entry, or a worker does not answer in time.
        OSError, FileUnusable: if the workers cannot be asked.
    """
    inquiry = _inquiry(action, target)
    site = Site(caches, Own.NONE)
    name = _only_name(site, name)
    workers = workers_to_ask(site, name)
    note(site, name, inquiry, user_name())
    answers = ask(site, workers, name, inquiry, patience)
    lists = [{"pid": workers[worker], **answer} for worker, given in answers.items() for answer in given]
    if as_json:
        out.write(f"{json.dumps({'cache': name, 'at': SystemClock.time(), 'workers': lists})}\n")
    else:
        out.writelines(f"{line}\n" for line in _lines(action, lists))
    _check(action, name, lists, [workers[worker] for worker, given in answers.items() if not given])


def workers_to_ask(site: Site, name: str) -> dict[int, int]:
    """Return the pids of the workers of a cache by their numbers, without the idle ones, which have no entries and do
    not look for inquiries."""
    return {worker.worker: worker.pid for worker in site.workers(name) if not is_idle(worker)}


def _inquiry(action: str, target: Target) -> Document:
    if action in ("keys", "tags"):
        return {"kind": action, "pattern": "*" if target.text is None else target.text, "limit": LIMIT}
    if action == "delete":
        given = {"key": target.text, "pattern": target.pattern, "tag": target.tag}
        given = {name: text for name, text in given.items() if text is not None}
        if len(given) != 1:
            raise Undone("Give delete one key, or --pattern, or --tag.")
        return {"kind": action, **given}
    if target.text is None:
        raise Undone(f"Give {action} a key.")
    return {"kind": "get", "key": target.text, "show_value": target.show_value}


def _only_name(site: Site, name: str | None) -> str:
    names = [each.name for each in site.caches if each.workers]
    if not names:
        raise Undone(nothing_found(site.own))
    if name is None and len(names) == 1:
        return names[0]
    if name not in names:
        said = "Choose a cache with --cache" if name is None else f"No worker has a cache {name!r}"
        raise Undone(f"{said}: there are {', '.join(map(repr, names))}.")
    return name


def _check(action: str, name: str, lists: list[dict[str, Any]], silent: list[int]) -> None:
    failed = [each for each in lists if "error" in each]
    if failed:
        raise Undone("\n".join(f"The worker {each['pid']} could not answer: {each['error']}" for each in failed))
    if silent:
        raise Undone(f"No answer from {', '.join(map(str, silent))}, of {len(silent) + len(lists)} workers.")
    found = {"keys": "count", "tags": "count", "delete": "deleted"}.get(action, "found")
    if not any(each[found] or each[found] is None for each in lists):
        raise Undone(f"No worker has such {'an entry' if found == 'found' else 'entries'} in the cache {name!r}.")


def _lines(action: str, lists: list[dict[str, Any]]) -> list[str]:
    lists = [each for each in lists if "error" not in each]
    if action == "keys":
        count = Counter(key for each in lists for key in each["keys"])
        more = max((each["count"] - len(each["keys"]) for each in lists), default=0)
        return [*sorted(count), *([f"... and {more:,} more in one worker; use a narrower pattern"] if more else [])]
    if action == "tags":
        entries: Counter[str] = Counter()
        for each in lists:
            entries.update(each["tags"])
        return [f"{number:,}\t{tag}" for tag, number in entries.most_common()]
    if action == "delete":
        return [f"process {each['pid']}: {_deleted(each['deleted'])}" for each in lists]
    return [f"process {each['pid']}: {_described(action, each)}" for each in lists]


def _deleted(number: int | None) -> str:
    return "the entries of the tag" if number is None else f"{number:,} entries"


def _described(action: str, found: dict[str, Any]) -> str:
    if not found["found"]:
        return "no entry"
    left = "never expires" if found["seconds_left"] is None else f"{found['seconds_left']:.1f} s left"
    if action == "ttl":
        return left
    tags = f", tags {', '.join(map(repr, found['tags']))}" if found["tags"] else ""
    value = f"\n  {found['value']}" if "value" in found else ""
    return f"{left}, {found['bytes']:,} bytes, {found['type']}{tags}{value}"
