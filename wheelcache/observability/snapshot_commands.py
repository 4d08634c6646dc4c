"""List the snapshots in a terminal. ``manage.py wheelcache inspect`` and ``flask wheelcache inspect`` share this.

The process of the command never uses a cache, so it loads no snapshot and saves none at its exit. It unpickles no
record either, since unpickling could run code from the file.

``inspect --json`` prints one document. Times are in seconds since 1970. More keys may be added.

- ``at``: when the document was made.
- ``caches``: a list with an object for each cache: ``name``, ``directory`` and ``snapshots``, newest first. A snapshot
  has these keys:

  - ``file``: its path.
  - ``bytes``: the size of the file.
  - ``set_aside``: whether a worker refused the file and renamed it.
  - ``state``: "whole", "damaged" or "refused"; and ``reason``, or null.
  - ``saved_at``, ``entries`` (the number of good records) and ``signed``. They are null if the file is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from wheelcache.errors import SnapshotDamaged, SnapshotRefused
from wheelcache.observability.console import CommandFailed, Report, Row, Table, date_of
from wheelcache.observability.observed import ObservedCache
from wheelcache.observability.progress import progress
from wheelcache.persistence.autosave import SUFFIX, Autosave
from wheelcache.persistence.snapshot_file import ASIDE, open_snapshot
from wheelcache.persistence.snapshots import KIND
from wheelcache.runtime.clock import SystemClock

COLUMNS: Final = ("cache_and_files", "saved_at", "age", "entries", "bytes", "signed", "state")

Place = tuple[str, Path]
"""The name of a cache, and its directory. Caches with the same ones share the snapshots."""


def inspect(caches: Iterable[ObservedCache], option: str) -> Report:
    """Return the snapshots, and whether they are whole. This changes no file and unpickles nothing.

    Raises:
        CommandFailed: if no cache has snapshots. The message names the ``option``.
    """
    keepers = {(each.name, each.keeper.directory): each.keeper for each in caches if each.keeper is not None}
    if not keepers:
        raise CommandFailed(f"No cache has snapshots: set the option {option} to a directory.")
    found: dict[Place, list[dict[str, Any]]] = {place: [] for place in keepers}
    paths = [(place, path) for place, each in keepers.items() for path in _files(each)]
    for place, path in progress(paths, "Reading", len(paths)):
        if info := _info_of(keepers[place], path):
            found[place].append(info)
    listed = [
        {"name": name, "directory": str(directory), "snapshots": snapshots}
        for (name, directory), snapshots in found.items()
    ]
    table = Table([_section(*place, snapshots) for place, snapshots in found.items()], COLUMNS, "bold")
    return Report({"at": SystemClock.time(), "caches": listed}, [table])


def _files(keeper: Autosave) -> list[Path]:
    """Return the snapshots of a cache, newest first, followed by the files that were set aside."""
    return [*keeper.snapshots(), *keeper.snapshots(f"{SUFFIX}{ASIDE}")]


def _info_of(keeper: Autosave, path: Path) -> dict[str, Any] | None:
    """Return the facts about a snapshot file, with the keys above; None if the file no longer exists."""
    found = {"file": str(path), "set_aside": path.name.endswith(ASIDE)}
    unknown = dict.fromkeys(("saved_at", "entries", "signed"))
    try:
        found["bytes"] = path.lstat().st_size
        with open_snapshot(path, KIND, keeper.secret) as snapshot:
            saved_at, signed = snapshot.number("saved_at"), keeper.secret is not None
            state, reason, records = "whole", None, 0
            try:
                for _ in snapshot:
                    records += 1
            except SnapshotDamaged as error:
                state, reason = "damaged", _reason(path, error)
            return {
                **found,
                "state": state,
                "reason": reason,
                "saved_at": saved_at,
                "entries": records,
                "signed": signed,
            }
    except FileNotFoundError:
        return None
    except SnapshotRefused as error:
        return {**found, "state": "refused", "reason": _reason(path, error), **unknown}


def _reason(path: Path, error: SnapshotRefused) -> str:
    return str(error).removeprefix(f"{path} ")


def _section(name: str, directory: Path, snapshots: Sequence[Row]) -> list[Row]:
    """Return the rows of the table about one cache."""
    rows = [
        {
            **each,
            COLUMNS[0]: f"  {Path(each['file']).name}",
            "saved_at": each["saved_at"] and date_of(each["saved_at"]),
            "age": each["saved_at"] and _age(each["saved_at"]),
            "signed": {None: None, True: "yes", False: "no"}[each["signed"]],
            "state": _state(each),
        }
        for each in snapshots
    ]
    return [{COLUMNS[0]: f"{name} in {directory}" + ("" if rows else ": none")}, *rows]


def _state(found: Row) -> str:
    state = found["state"] if found["reason"] is None else f"{found['state']}: it {found['reason']}"
    return f"set aside, {state}" if found["set_aside"] else state


def _age(at: float) -> str:
    seconds = max(0.0, SystemClock.time() - at)
    for unit, name in ((86_400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:,.0f} {name}"
    return f"{seconds:.0f} s"
