"""The groups of keys of one cache: their counts, and the counts of the minutes of an hour."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping
from typing import Final

from wheelcache.watch.rows import NO_GROUP, Row, added, subtracted
from wheelcache.watch.tables import COUNTS_OF_GROUP

Groups = Mapping[str, Row]
"""The counts of groups by name, each in the order of ``COUNTS_OF_GROUP``."""

GroupSteps = dict[int, dict[str, Row]]
"""The counts of groups by the start of their step, in seconds since 1970."""

SECONDS: Final = COUNTS_OF_GROUP.index("load_seconds")
"""The position of the computing time in the counts of a group."""

PARTS: Final = 2**20
"""Parts of a second: those of ``engine.stats.whole_parts``."""


def changes(now: Groups, before: Groups) -> dict[str, Row]:
    """Return the counts of the groups since ``before``.

    A group that has lost its place counts in the group without a name from then on, with all its counts. They are left
    out here, because they were counted under the old name.
    """
    found = {
        name: subtracted(row, before.get(name, NO_GROUP))
        for name, row in now.items()
        if row != before.get(name, NO_GROUP)
    }
    for name, row in before.items():
        if name not in now or (name and min(found.get(name, NO_GROUP)) < 0):
            found[""] = subtracted(found.get("", NO_GROUP), row)
            if name in now:
                found[name] = now[name]
    return found


def merged(one: Groups, other: Groups) -> dict[str, Row]:
    """Return the sums of two sets of groups."""
    names = dict.fromkeys((*one, *other))
    return {name: added(one.get(name, NO_GROUP), other.get(name, NO_GROUP)) for name in names}


def sum_of_steps(steps: GroupSteps) -> dict[str, Row]:
    """Return the sums of the counts of all steps."""
    found: dict[str, Row] = {}
    for groups in steps.values():
        found = merged(found, groups)
    return found


# The minutes of an hour.


def packed(minutes: Mapping[int, Row]) -> bytes:
    """Return the counts of minutes, by their starts, as a compressed JSON document. Seconds are in parts of 2**-20."""
    rows = [[start, *row[:SECONDS], round(row[SECONDS] * PARTS), *row[SECONDS + 1 :]] for start, row in minutes.items()]
    return zlib.compress(json.dumps(rows, separators=(",", ":")).encode())


def unpacked(document: bytes) -> dict[int, Row]:
    """Return the counts that ``packed`` encoded.

    Raises:
        ValueError: if the document is damaged.
    """
    try:
        rows = json.loads(zlib.decompress(document))
    except zlib.error as error:
        raise ValueError(str(error)) from error
    return {start: (*row[:SECONDS], row[SECONDS] / PARTS, *row[SECONDS + 1 :]) for start, *row in rows}


def merged_minutes(one: Mapping[int, Row], other: Mapping[int, Row]) -> dict[int, Row]:
    """Return the sums of the counts of minutes, in the order of time."""
    return {start: added(one.get(start, NO_GROUP), other.get(start, NO_GROUP)) for start in sorted({*one, *other})}


def sum_of(rows: Iterable[Row]) -> Row:
    return tuple(map(sum, zip(NO_GROUP, *rows, strict=True)))
