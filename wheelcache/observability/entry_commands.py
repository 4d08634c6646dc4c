"""Look at the entries of a cache in all workers, or delete some: ``manage.py wheelcache keys|get|ttl|delete|tags`` and
``flask wheelcache ...`` share this.

Keys are shown and given as the cache stores them, in Django with KEY_PREFIX and VERSION: ``:1:user:7``. No value is
shown unless it is asked for. Keys may contain a stranger's text, such as the path of a page: see ``printable``.

``--json`` prints one document, to which keys may be added: ``cache``, its name; ``at``, in seconds since 1970; and
``workers``, a list with an object for each worker: ``pid``, and the keys of its answer, which ``inquiries`` describes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, TextIO

from wheelcache.observability import answer_tables
from wheelcache.observability.answer_tables import KEYS_HAVE_PREFIXES, AnswerTable
from wheelcache.observability.console import CommandFailed, nothing_found, printable, user_name
from wheelcache.observability.inquiries import Document, ask, note
from wheelcache.observability.observed import ObservedCache
from wheelcache.observability.site import Own, Site
from wheelcache.runtime.clock import SystemClock

ACTIONS: Final = {
    "keys": answer_tables.keys,
    "get": answer_tables.entry,
    "ttl": answer_tables.entry,
    "delete": answer_tables.deleted,
    "tags": answer_tables.tags,
}
"""The functions that make tables of the answers, by action."""

LIMIT: Final = 1000
"""The most keys or tags that each worker lists."""

TTL_COLUMNS: Final = 3
"""The columns of the table of an entry that ``ttl`` shows: the worker, whether it has the entry, and the time left."""

FORMATS: Final[Mapping[str, Callable[[Any], str]]] = {
    "Key": printable,
    "Tag": printable,
    "Worker": "process {}".format,
    "Time left": lambda left: left if isinstance(left, str) else f"{left:.1f} s left",
    "Size": "{:,} bytes".format,
    "Tags": "tags {!r}".format,
    "Value": "value {}".format,
    "Entries": "{:,}".format,
    "Deleted": lambda number: number if isinstance(number, str) else f"{number:,} entries",
}
"""The formats of cells, by their heading."""


def run(
    action: str, options: Mapping[str, Any], caches: Iterable[ObservedCache], name: str | None, out: TextIO
) -> None:
    """Run one of ``ACTIONS`` on the cache ``name``; None for the only cache of the site.

    Args:
        options: the parsed options of the command line.

    Raises:
        CommandFailed: if the command is incomplete, there is no such cache or entry, or a worker does not answer.
        OSError, FileUnusable: if the workers cannot be asked.
    """
    inquiry = _inquiry(action, options)
    site = Site(caches, Own.NONE)
    name = _only_name(site, name)
    note(site, name, inquiry, user_name())
    answers = ask(site, site.workers_to_ask(name), name, inquiry)
    table = ACTIONS[action](answers.good)
    if options["json"]:
        workers = [{"pid": pid, **answer} for pid, answer in (*answers.good, *answers.failed)]
        out.write(f"{json.dumps({'cache': name, 'at': SystemClock.time(), 'workers': workers})}\n")
    else:
        out.writelines(f"{line}\n" for line in _lines(action, table))
    if answers.failures:
        raise CommandFailed("\n".join(answers.failures))
    if table.is_empty:
        hint = "" if action == "tags" or "tag" in inquiry else f" {KEYS_HAVE_PREFIXES}"
        found = "an entry" if action in ("get", "ttl") else "entries"
        raise CommandFailed(f"No worker has such {found} in the cache {name!r}.{hint}")


def _inquiry(action: str, options: Mapping[str, Any]) -> Document:
    target = options["target"]
    if action in ("keys", "tags"):
        return {"kind": action, "pattern": target, "limit": LIMIT}
    if action == "delete":
        given = {"key": target, "pattern": options["pattern"], "tag": options["tag"]}
        given = {name: text for name, text in given.items() if text is not None}
        if len(given) != 1:
            raise CommandFailed("Give delete one key, or --pattern, or --tag.")
        return {"kind": action, **given}
    return {"kind": "get", "key": target, "show_value": options.get("show_value", False)}


def _only_name(site: Site, name: str | None) -> str:
    names = [each.name for each in site.caches if each.workers]
    if not names:
        raise CommandFailed(nothing_found(site.own))
    if name is None and len(names) == 1:
        return names[0]
    if name not in names:
        said = "Choose a cache with --cache" if name is None else f"No worker has a cache {name!r}"
        raise CommandFailed(f"{said}: there are {', '.join(map(repr, names))}.")
    return name


def _lines(action: str, table: AnswerTable) -> Iterator[str]:
    headings = table.headings[: TTL_COLUMNS if action == "ttl" else None]
    for row in table.rows:
        first, *cells = [
            FORMATS.get(heading, str)(cell) for heading, cell in zip(headings, row, strict=False) if cell != ""
        ]
        yield f"{first}: {', '.join(cells)}" if headings[0] == "Worker" else "\t".join([first, *cells])
    if action == "keys" and table.text:
        yield table.text
