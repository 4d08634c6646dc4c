"""The paths of pages in the database of a site: those with most responses that were not stored, by reason, and those
with most variants that were removed, by header or cookie.

A row has the paths of one reason or header, as a JSON object of counts, errors and times of the last occurrence.
Workers add their new occurrences with each publication, so the paths include workers that have exited. Both the workers
and the database keep ``busiest.PLACES`` paths of each.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from math import inf
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from wheelcache.pages.busiest import FULL, NOT_STORED, NamedPaths, Occurrences, SpaceSaving, readable
from wheelcache.pages.reasons import REASONS
from wheelcache.watch.tables import encoded, put

if TYPE_CHECKING:
    import sqlite3

MOST_NAMES: Final = {NOT_STORED: len(REASONS), FULL: 32}
"""The number of reasons, and of headers and cookies."""


class FullPage(NamedTuple):
    """A page that had too many variants.

    Attributes:
        path: its path, readable.
        field: the header, or "cookie <name>", that causes it.
        number: the number of variants that were removed because of it.
        at: when the last one was removed, in seconds since 1970.
    """

    path: str
    field: str
    number: int
    at: float


def add_paths(db: sqlite3.Connection, cache: int, occurrences: Iterable[Occurrences], time: float) -> None:
    """Add occurrences to the paths of a cache."""
    streams: dict[tuple[str, str], list[Occurrences]] = defaultdict(list)
    for each in occurrences:
        streams[each.kind, _site_name(each.kind, each.name)].append(each)
    for (kind, name), new in streams.items():
        key = (cache, kind, encoded(name))
        found = db.execute("SELECT document FROM paths WHERE cache = ? AND kind = ? AND name = ?", key).fetchone()
        if found is None:
            (known,) = db.execute("SELECT count(*) FROM paths WHERE cache = ? AND kind = ?", key[:2]).fetchone()
            if known >= MOST_NAMES[kind]:
                continue
        busiest = SpaceSaving()
        with suppress(TypeError, ValueError):
            busiest = _busiest("{}" if found is None else found[0])
        for each in new:
            busiest.add(each.path, each.number, time)
        put(db, "paths", [(*key, json.dumps(busiest.places))])


def paths_in(db: sqlite3.Connection) -> dict[int, NamedPaths]:
    """Return the paths of each cache, by its number."""
    found: dict[int, NamedPaths] = defaultdict(no_paths)
    for cache, kind, name, document in db.execute("SELECT cache, kind, name, document FROM paths"):
        found[cache].found[kind, bytes(name).decode(errors="surrogatepass")] = _busiest(document)
    return found


def no_paths() -> NamedPaths:
    return NamedPaths(MOST_NAMES)


def of_site(own: NamedPaths) -> NamedPaths:
    """Return the paths of this process under the names that the figures of a site have, as if they occurred now."""
    found = no_paths()
    for (kind, name), busiest in own.found.items():
        for path, number in busiest.numbers().items():
            found.add(kind, _site_name(kind, name), path, number, inf)
    return found


def full_pages(paths: NamedPaths) -> tuple[FullPage, ...]:
    """Return the pages that had too many variants, those with most of them first."""
    found = [
        FullPage(readable(path), name if name.isprintable() else repr(name), count - error, at)
        for (kind, name), busiest in paths.found.items()
        if kind == FULL
        for path, (count, error, at) in busiest.places.items()
    ]
    return tuple(sorted(found, key=attrgetter("number"), reverse=True))


def _site_name(kind: str, name: str) -> str:
    return "other" if kind == NOT_STORED and name not in REASONS else name


def _busiest(document: str) -> SpaceSaving:
    """Return the paths of a row.

    Raises:
        TypeError, ValueError: if ``document`` is malformed.
    """
    busiest = SpaceSaving()
    places = dict(json.loads(document))
    busiest.places = {str(path): (int(count), int(error), float(at)) for path, (count, error, at) in places.items()}
    return busiest
