"""Look at the entries of a cache in all workers, or delete some: ``manage.py wheelcache keys|get|delete|tags`` and
``flask wheelcache ...`` share this.

Keys are shown and given as the cache stores them, in Django with KEY_PREFIX and VERSION: ``:1:user:7``. No value is
shown unless it is asked for. Keys may contain a stranger's text, such as the path of a page: see ``printable``.

``--json`` prints one document, to which keys may be added: ``cache``, its name; ``at``, in seconds since 1970; and
``workers``, a list with an object for each worker: ``pid``, and the keys of its answer, which ``inquiries`` describes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from wheelcache.cache import Cache
from wheelcache.runtime.clock import SystemClock
from wheelcache.watch.console import CommandFailed, Report, count_of, printable, user_name
from wheelcache.watch.inquiries import KEYS_HAVE_PREFIXES, Document, ask, note
from wheelcache.watch.site import Own, Site

ACTIONS: Final = ("keys", "get", "delete", "tags")

LIMIT: Final = 1000
"""The most keys or tags that each worker lists."""


def run(action: str, options: Mapping[str, Any], caches: Iterable[Cache], name: str | None) -> Report:
    """Run one of ``ACTIONS`` on the cache ``name``; None for the only cache of the site.

    The command fails if there is no such entry, or if a worker does not answer.

    Args:
        options: the parsed options of the command line.

    Raises:
        CommandFailed: if the command is incomplete, or there is no such cache.
        OSError, FileUnusable: if the workers cannot be asked.
    """
    inquiry = _inquiry(action, options)
    site = Site(caches, Own.NONE)
    name = _only_name(site, name)
    note(site, name, inquiry, user_name())
    answers = ask(site, site.workers_to_ask(name), name, inquiry)
    workers = [{"pid": pid, **answer} for pid, answer in (*answers.good, *answers.failed)]
    document = {"cache": name, "at": SystemClock.time(), "workers": workers}
    good = [answer for _, answer in answers.good]
    if action in ("keys", "tags"):
        view = _keys(good) if action == "keys" else _tags(good)
    else:
        is_shared = site.shared(name) is not None
        words = [(pid, _in_words(action, answer)) for pid, answer in answers.good]
        view = [each if is_shared else f"worker {pid}: {each}" for pid, each in words]
    failure = "\n".join(answers.failures)
    if not failure and not any(map(_has_found, good)):
        hint = "" if action == "tags" or "tag" in inquiry else f" {KEYS_HAVE_PREFIXES}"
        found = "an entry" if action == "get" else "entries"
        failure = f"No worker has such {found} in the cache {name!r}.{hint}"
    return Report(document, view, failure or None)


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
    names = site.reachable
    if not names:
        raise CommandFailed(site.nothing_found)
    if name is None and len(names) == 1:
        return names[0]
    if name not in names:
        said = "Choose a cache with --cache" if name is None else f"No worker has a cache {name!r}"
        raise CommandFailed(f"{said}: there are {', '.join(map(repr, names))}.")
    return name


def _has_found(answer: Document) -> bool:
    # The deleted entries of a tag are not counted.
    return bool(answer.get("found") or answer.get("count") or answer.get("deleted", 0) != 0)


def _keys(answers: Sequence[Document]) -> list[str]:
    keys = sorted({key for each in answers for key in each["keys"]})
    more = max((each["count"] - len(each["keys"]) for each in answers), default=0)
    return [*map(printable, keys), *([f"... and {more:,} more in one worker; use a narrower pattern"] if more else [])]


def _tags(answers: Sequence[Document]) -> list[str]:
    entries: Counter[str] = Counter()
    for each in answers:
        entries.update(each["tags"])
    return [f"{number:,}\t{printable(tag)}" for tag, number in entries.most_common()]


def _in_words(action: str, answer: Document) -> str:
    """Return the answer of a worker to ``get`` or ``delete``."""
    if action == "delete":
        return (
            "entries of the tag deleted"
            if answer["deleted"] is None
            else f"{count_of(answer['deleted'], 'entry', 'entries')} deleted"
        )
    if not answer["found"]:
        return "no entry"
    left = answer["seconds_left"]
    words = ["present", "never expires" if left is None else f"{left:.1f} s left"]
    words += [f"{answer['bytes']:,} bytes", answer["type"]]
    words += [f"tags {', '.join(answer['tags'])!r}"] if answer["tags"] else []
    words += [f"value {answer['value']}"] if "value" in answer else []
    return ", ".join(words)
