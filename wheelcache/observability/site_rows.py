"""The statements by which a publication changes the database, and the rows that they take."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from wheelcache.observability.recorder import Recorder
from wheelcache.observability.site_file import GAUGES, LEVELS, encoded
from wheelcache.stats import COUNTS, STORE_GAUGES, Row

if TYPE_CHECKING:
    import sqlite3

WORKER: Final = (
    *("worker", "process", "cache", "published", *GAUGES),
    *("memory", "lag", "max_entries", "max_weight", "weighs_bytes", "has_store", "minute", "counts"),
)


def _upsert(table: str, key: Iterable[str], columns: Iterable[str], *, adds: bool = False) -> str:
    key, columns = list(key), list(columns)
    change = ", ".join(f"{name} = {f'{name} + ' if adds else ''}excluded.{name}" for name in columns)
    names = [*key, *columns]
    return (
        f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"
        f" ON CONFLICT ({', '.join(key)}) DO UPDATE SET {change}"
    )


ADD_TO_TOTALS: Final = _upsert("totals", ["cache"], ["since", *COUNTS], adds=True).replace(
    "since = since + excluded.since", "since = min(since, excluded.since)"
)
ADD_TO_STEPS: Final = _upsert("steps", ["seconds", "cache", "start"], [*LEVELS, *COUNTS], adds=True)
PUT_WORKER: Final = _upsert("workers", ["worker"], WORKER[1:])
PUT_PROCESS: Final = _upsert("processes", ["process"], ["pid", "started", "published", "seq", "thread", "core"])
_PUT_CACHE: Final = _upsert("caches", ["name"], ["settings", "published"])


def ids_of(db: sqlite3.Connection, recorders: Iterable[Recorder]) -> Mapping[str, int]:
    """The numbers of the caches, with their settings put into the database."""
    rows = {}
    for each in recorders:
        gauges = each.gauges()
        settings = {
            "max_entries": gauges.max_entries,
            "max_weight": gauges.max_weight,
            "weighs_bytes": gauges.weighs_bytes,
            "has_store": each.stats.store is not None,
        }
        rows[each.name] = (encoded(each.name), json.dumps(settings), each.time())
    db.executemany(_PUT_CACHE, rows.values())
    found = dict(db.execute("SELECT name, id FROM caches"))
    return {name: found[encoded(name)] for name in rows}


def storable(numbers: Row) -> Row:
    """``numbers``, with integers that are too great for SQLite as floats. Only sums of weights are."""
    return numbers if max(numbers) < _MOST else tuple(each if each < _MOST else float(each) for each in numbers)


_MOST: Final = 1 << 62


def worker_row(worker: str, process: str, cache: int, recorder: Recorder) -> tuple[Any, ...]:
    """The row of a cache in ``workers``, in the order of ``WORKER``."""
    stats, gauges = recorder.stats, recorder.gauges()
    store = stats.store
    return (
        *(worker, process, cache, recorder.time(), stats.size, *storable((stats.weight,))),
        *((0,) * len(STORE_GAUGES) if store is None else (getattr(store, name) for name in STORE_GAUGES)),
        *gauges,
        *(store is not None, json.dumps(recorder.minute()), json.dumps(recorder.row)),
    )
