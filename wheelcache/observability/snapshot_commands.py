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

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from wheelcache.errors import SnapshotDamaged, SnapshotRefused
from wheelcache.observability.console import (
    CommandFailed,
    console_for,
    date_of,
    plain_table,
    size_in_words,
)
from wheelcache.observability.observed import ObservedCache
from wheelcache.persistence.autosave import SUFFIX, Autosave
from wheelcache.persistence.snapshot_file import ASIDE, open_snapshot
from wheelcache.persistence.snapshots import KIND
from wheelcache.runtime.clock import SystemClock

if TYPE_CHECKING:
    from rich.table import Table


@dataclass(frozen=True, slots=True)
class SnapshotCache:
    """A cache that has a directory for snapshots."""

    name: str
    keeper: Autosave


@dataclass(frozen=True, slots=True)
class SnapshotInfo:
    """A snapshot file, and the facts that can be read without loading it. See the keys above."""

    file: Path
    bytes: int
    set_aside: bool
    state: str
    reason: str | None = None
    saved_at: float | None = None
    entries: int | None = None
    signed: bool | None = None


def inspect(
    caches: Iterable[ObservedCache], option: str, out: TextIO, *, as_json: bool = False, styled: bool = True
) -> None:
    """Print the snapshots, and whether they are whole. This changes no file and unpickles nothing.

    Args:
        as_json: print the document described above instead of a table.
        styled: whether the table may use bold text.

    Raises:
        CommandFailed: if no cache has the option, or if a table is wanted and rich is not installed.
    """
    kept = _kept(caches, option)
    console = None if as_json else console_for(out, styled)
    files = [(each, path) for each in kept for path in _files(each)]
    found: dict[SnapshotCache, list[SnapshotInfo]] = {each: [] for each in kept}
    for each, path in files if as_json else _with_progress(files):
        if info := _info_of(each, path):
            found[each].append(info)
    if console is None:
        out.write(json.dumps(_document(found)) + "\n")
        return
    console.print(_table(found))


# Below: reading the files.


def _kept(caches: Iterable[ObservedCache], option: str) -> list[SnapshotCache]:
    """Return the caches that have snapshots. Caches with the same name and directory share them, so they count once."""
    found: dict[tuple[str, Path], SnapshotCache] = {}
    for cache in caches:
        if cache.keeper is not None:
            found.setdefault((cache.name, cache.keeper.directory), SnapshotCache(cache.name, cache.keeper))
    if not found:
        raise CommandFailed(f"No cache has snapshots: set the option {option} to a directory.")
    return list(found.values())


def _files(kept: SnapshotCache) -> list[Path]:
    """Return the snapshots of a cache, newest first, followed by the files that were set aside."""
    return [*kept.keeper.snapshots(), *kept.keeper.snapshots(f"{SUFFIX}{ASIDE}")]


def _info_of(kept: SnapshotCache, path: Path) -> SnapshotInfo | None:
    """Return the facts about a snapshot file; None if the file no longer exists."""
    aside = path.name.endswith(ASIDE)
    try:
        size = path.lstat().st_size
        with open_snapshot(path, KIND, kept.keeper.secret) as snapshot:
            saved_at = snapshot.number("saved_at")
            state, reason, records = "whole", None, 0
            try:
                for _ in snapshot:
                    records += 1
            except SnapshotDamaged as error:
                state, reason = "damaged", _reason(path, error)
            return SnapshotInfo(path, size, aside, state, reason, saved_at, records, kept.keeper.secret is not None)
    except FileNotFoundError:
        return None
    except SnapshotRefused as error:
        return SnapshotInfo(path, size, aside, "refused", _reason(path, error))


def _reason(path: Path, error: SnapshotRefused) -> str:
    return str(error).removeprefix(f"{path} ")


# Below: the output.


def _document(found: Mapping[SnapshotCache, Sequence[SnapshotInfo]]) -> dict[str, Any]:
    return {
        "at": SystemClock.time(),
        "caches": [
            {
                "name": kept.name,
                "directory": str(kept.keeper.directory),
                "snapshots": [{**asdict(each), "file": str(each.file)} for each in files],
            }
            for kept, files in found.items()
        ],
    }


def _table(found: Mapping[SnapshotCache, Sequence[SnapshotInfo]]) -> Table:
    from rich.text import Text

    shown = plain_table("cache and files")
    shown.add_column("saved at", no_wrap=True)
    for heading in ("age", "entries", "size"):
        shown.add_column(heading, justify="right", no_wrap=True)
    shown.add_column("signed", no_wrap=True)
    shown.add_column("state", overflow="fold")
    for kept, files in found.items():
        shown.add_row(Text(kept.name), style="bold")
        shown.add_row(Text(f"in {kept.keeper.directory}" + ("" if files else ": none")), style="dim")
        for each in files:
            shown.add_row(Text(f"  {each.file.name}"), *_cells(each), Text(_state(each)))
        shown.add_section()
    return shown


def _cells(found: SnapshotInfo) -> list[str]:
    return [
        "-" if found.saved_at is None else date_of(found.saved_at),
        "-" if found.saved_at is None else _age(found.saved_at),
        "-" if found.entries is None else f"{found.entries:,}",
        _weight(found.bytes),
        {None: "-", True: "yes", False: "no"}[found.signed],
    ]


def _state(found: SnapshotInfo) -> str:
    state = found.state if found.reason is None else f"{found.state}: it {found.reason}"
    return f"set aside, {state}" if found.set_aside else state


def _weight(size: int) -> str:
    return f"{size} B" if size < 1 << 10 else size_in_words(size, None)


def _age(at: float) -> str:
    seconds = max(0.0, SystemClock.time() - at)
    for unit, name in ((86_400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:,.0f} {name}"
    return f"{seconds:.0f} s"


def _with_progress(files: Sequence[tuple[SnapshotCache, Path]]) -> Iterable[tuple[SnapshotCache, Path]]:
    """Iterate over ``files`` with a progress bar on stderr, if that is a terminal."""
    from rich.console import Console
    from rich.progress import track

    return track(files, "Reading", console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty())
