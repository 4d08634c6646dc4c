"""Manage snapshots from a terminal. ``manage.py wheelcache save|load|inspect`` and ``flask wheelcache ...`` share this.

The commands ask the workers to save or load. The process of the command never uses a cache, so it loads no snapshot and
saves none at its exit. It unpickles no record either, since unpickling could run code from the file.

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
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO

from wheelcache.errors import SnapshotDamaged, SnapshotRefused
from wheelcache.observability.console import (
    Undone,
    console_for,
    date_of,
    nothing_found,
    size_in_words,
    user_name,
    width_of,
)
from wheelcache.observability.figures import WorkerFigures
from wheelcache.observability.observed import ObservedCache
from wheelcache.observability.publisher import INTERVAL
from wheelcache.observability.site import Own, Site
from wheelcache.observability.worker_requests import LOAD, SAVE
from wheelcache.persistence.autosave import SUFFIX, Autosave, stem_of
from wheelcache.persistence.snapshot_file import ASIDE, open_snapshot
from wheelcache.persistence.snapshots import KIND
from wheelcache.runtime.clock import SystemClock

if TYPE_CHECKING:
    from rich.table import Table

PATIENCE: Final = 60.0
"""Seconds that ``save`` waits for the workers."""

POLL_INTERVAL: Final = 0.2
"""Seconds between two looks for new snapshots."""

CLOCK_SKEW: Final = 2.0
"""Seconds by which the clock of a file system may be behind that of the reader."""

STEP: Final = 1000
"""Records between two updates of a progress bar."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A cache that has a directory for snapshots."""

    name: str
    keeper: Autosave
    is_published: bool


@dataclass(frozen=True, slots=True)
class Found:
    """A snapshot file, and the facts that can be read without loading it. See the keys above."""

    file: Path
    bytes: int
    set_aside: bool
    state: str
    reason: str | None = None
    saved_at: float | None = None
    entries: int | None = None
    signed: bool | None = None


def save(caches: Iterable[ObservedCache], option: str, out: TextIO, *, patience: float = PATIENCE) -> None:
    """Ask all workers to save, wait until they have, and print the new snapshots.

    Args:
        caches: the caches of the site.
        option: the name of the option that sets the directory of snapshots, as the user writes it.
        out: the output.
        patience: seconds to wait.

    Raises:
        Undone: if there is no worker to ask, or if a worker does not save in time.
    """
    caches = list(caches)
    kept = _kept(caches, option)
    asked_at = SystemClock.time()
    asked = _ask(SAVE, kept, caches, out)
    expected = {each: {worker.worker for worker in workers} for each, workers in asked.items()}
    _wait(caches, expected, asked_at, patience)
    missing = []
    for each, workers in expected.items():
        files = _saved_since(each, asked_at)
        for path in files:
            found = _found(each, path)
            if found is not None:
                out.write(f"{_in_words(each, found)}\n")
        if len(files) < len(workers):
            pids = _listed(worker.pid for worker in asked[each] if worker.worker in workers)
            missing.append(
                f"Only {len(files)} of the {len(workers)} workers of the cache {each.name!r} ({pids}) saved it within "
                f"{patience:g} seconds. The log of the others may say why."
            )
    if missing:
        raise Undone("\n".join(missing))


def load(caches: Iterable[ObservedCache], option: str, out: TextIO) -> None:
    """Ask all workers to load the newest snapshot, and print which worker will load which file.

    The workers begin within seconds. This does not wait for them.

    Raises:
        Undone: if there is no worker to ask, or no snapshot to load.
    """
    caches = list(caches)
    kept = _kept(caches, option)
    newest = {each: found for each in kept if (found := _newest(each))}
    if not newest:
        places = " and ".join(dict.fromkeys(str(each.keeper.directory) for each in kept))
        raise Undone(f"There is no snapshot to load in {places}. Run inspect to list the files.")
    for each, workers in _ask(LOAD, list(newest), caches, out).items():
        path, saved_at = newest[each]
        pids = _listed(worker.pid for worker in workers)
        if pids:
            out.write(
                f"The cache {each.name!r}: {pids} will begin to load {path} within {INTERVAL:g} seconds. It was saved "
                f"{_age(saved_at)} ago. Present entries are kept.\n"
            )


def inspect(
    caches: Iterable[ObservedCache], option: str, out: TextIO, *, as_json: bool = False, styled: bool = True
) -> None:
    """Print the snapshots, and whether they are whole. This changes no file and unpickles nothing.

    Args:
        as_json: print the document described above instead of a table.
        styled: whether the table may use bold text.

    Raises:
        Undone: if no cache has the option, or if a table is wanted and rich is not installed.
    """
    kept = _kept(caches, option)
    console = None if as_json else console_for(out, styled)
    files = {each: _files(each) for each in kept}
    total = sum(_bytes_of(path) for paths in files.values() for path in paths)
    before = 0
    found: dict[Kept, list[Found]] = {}
    with _bar("bytes", total) as show:
        for each, paths in files.items():
            found[each] = []
            for path in paths:
                one = _found(each, path, lambda done, before=before: show(before + done))  # type: ignore[misc]
                before += _bytes_of(path)
                if one is not None:
                    found[each].append(one)
    if console is None:
        out.write(json.dumps(_document(found)) + "\n")
        return
    shown = _table(found)
    if not console.is_terminal:
        console.width = width_of(shown)
    console.print(shown)


# Below: asking workers, and waiting for them.


def _kept(caches: Iterable[ObservedCache], option: str) -> list[Kept]:
    """Return the caches that have snapshots. Caches with the same name and directory share them, so they count once."""
    found: dict[tuple[str, Path], Kept] = {}
    for cache in caches:
        if cache.keeper is not None:
            is_published = cache.observer.publication is not None
            found.setdefault((cache.name, cache.keeper.directory), Kept(cache.name, cache.keeper, is_published))
    if not found:
        raise Undone(f"No cache has snapshots: set the option {option} to a directory.")
    return list(found.values())


def _ask(
    action: str, kept: Sequence[Kept], caches: Sequence[ObservedCache], out: TextIO
) -> dict[Kept, list[WorkerFigures]]:
    """Ask the workers for ``action``, and return the workers that will carry it out. Report the idle workers."""
    silent = [each for each in kept if not each.is_published]
    if silent:
        names = " and ".join(repr(each.name) for each in silent)
        raise Undone(f"The workers of {names} cannot be asked, because they do not publish figures.")
    site = Site(caches, Own.NONE)
    asked = {each: workers for each in kept if (workers := site.workers(each.name))}
    if not asked:
        raise Undone(nothing_found(caches))
    for each, workers in asked.items():
        site.ask(action, each.name)
        site.note(action, user_name(), each.name)
        idle = _listed(worker.pid for worker in workers if is_idle(worker))
        if idle:
            out.write(f"The cache {each.name!r} is empty and not in use in {idle}, which will {action} nothing.\n")
    return {each: [worker for worker in workers if not is_idle(worker)] for each, workers in asked.items()}


def is_idle(worker: WorkerFigures) -> bool:
    """Return whether the cache is empty and unused in a worker. Such a worker does not look for requests either."""
    return worker.stats.size == 0 and worker.published < SystemClock.time() - 3 * INTERVAL


def _wait(caches: Sequence[ObservedCache], expected: Mapping[Kept, set[int]], since: float, patience: float) -> None:
    """Wait until every worker that was asked and still lives has saved, at most ``patience`` seconds."""
    deadline = SystemClock.steady() + patience
    with _bar("snapshots", sum(map(len, expected.values()))) as show:
        while True:
            done = {each: len(_saved_since(each, since)) for each in expected}
            show(sum(done.values()))
            if all(done[each] >= len(workers) for each, workers in expected.items()):
                return
            for each, workers in expected.items():
                # Do not wait for workers that have exited.
                workers &= {worker.worker for worker in Site(caches, Own.NONE).workers(each.name)}
            if SystemClock.steady() > deadline:
                return
            time.sleep(POLL_INTERVAL)


def _saved_since(kept: Kept, since: float) -> list[Path]:
    """Return the snapshots saved after ``since``. They are complete: a worker renames a file after writing it."""
    found = []
    for path in kept.keeper.snapshots():
        if _changed(path) < since - CLOCK_SKEW:
            break
        saved_at = _saved_at(kept, path)
        if saved_at is not None and saved_at >= since:
            found.append(path)
    return found


def _newest(kept: Kept) -> tuple[Path, float] | None:
    for path in kept.keeper.snapshots():
        saved_at = _saved_at(kept, path)
        if saved_at is not None:
            return path, saved_at
    return None


def _saved_at(kept: Kept, path: Path) -> float | None:
    """Return when a snapshot was saved, in seconds since 1970; None if the file is missing or refused."""
    with suppress(FileNotFoundError, SnapshotRefused), open_snapshot(path, KIND, kept.keeper.secret) as snapshot:
        return _time_in(snapshot.header)
    return None


# Below: reading the files.


def _files(kept: Kept) -> list[Path]:
    """Return the snapshots of a cache, newest first, followed by the files that were set aside."""
    aside = kept.keeper.directory.glob(f"{stem_of(kept.name)}.*{SUFFIX}{ASIDE}")
    return [*kept.keeper.snapshots(), *sorted(aside, key=_changed, reverse=True)]


def _found(kept: Kept, path: Path, show: Callable[[float], object] = lambda done: None) -> Found | None:
    """Return the facts about a snapshot file; None if the file no longer exists.

    Args:
        show: called with the number of bytes read so far.
    """
    size, aside = _bytes_of(path), path.name.endswith(ASIDE)
    try:
        with open_snapshot(path, KIND, kept.keeper.secret) as snapshot:
            saved_at = _time_in(snapshot.header)
            if saved_at is None:
                return Found(path, size, aside, "refused", "does not say when it was saved")
            state, reason, records, read = "whole", None, 0, 0
            try:
                for payload in snapshot:
                    records += 1
                    read += len(payload)
                    if records % STEP == 0:
                        show(read)
            except SnapshotDamaged as error:
                state, reason = "damaged", _reason(path, error)
            return Found(path, size, aside, state, reason, saved_at, records, kept.keeper.secret is not None)
    except FileNotFoundError:
        return None
    except SnapshotRefused as error:
        return Found(path, size, aside, "refused", _reason(path, error))


def _time_in(header: Mapping[str, Any]) -> float | None:
    try:
        return float(header["saved_at"])
    except (KeyError, TypeError, ValueError):
        return None


def _reason(path: Path, error: SnapshotRefused) -> str:
    return str(error).removeprefix(f"{path} ")


def _bytes_of(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return 0


def _changed(path: Path) -> float:
    try:
        return path.lstat().st_mtime
    except OSError:
        return 0.0


# Below: the output.


def _document(found: Mapping[Kept, Sequence[Found]]) -> dict[str, Any]:
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


def _table(found: Mapping[Kept, Sequence[Found]]) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    shown = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 2, 0, 0))
    shown.add_column("cache and files", overflow="fold")
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


def _cells(found: Found) -> list[str]:
    return [
        "-" if found.saved_at is None else date_of(found.saved_at),
        "-" if found.saved_at is None else _age(found.saved_at),
        "-" if found.entries is None else f"{found.entries:,}",
        _weight(found.bytes),
        {None: "-", True: "yes", False: "no"}[found.signed],
    ]


def _state(found: Found) -> str:
    state = found.state if found.reason is None else f"{found.state}: it {found.reason}"
    return f"set aside, {state}" if found.set_aside else state


def _in_words(kept: Kept, found: Found) -> str:
    if found.entries is None or found.state != "whole":
        return f"The cache {kept.name!r}: {found.file}, {_state(found)}."
    return f"The cache {kept.name!r}: {found.entries:,} entries in {found.file}, {_weight(found.bytes)}."


def _weight(size: int) -> str:
    return f"{size} B" if size < 1 << 10 else size_in_words(size, None)


def _age(at: float) -> str:
    seconds = max(0.0, SystemClock.time() - at)
    for unit, name in ((86_400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:,.0f} {name}"
    return f"{seconds:.0f} s"


def _listed(pids: Iterable[int]) -> str:
    """Return the numbers of the processes in their order, each once: a process may have several caches of a name."""
    unique = list(dict.fromkeys(pids))
    return f"process{'es' if len(unique) > 1 else ''} {', '.join(map(str, unique))}" if unique else ""


@contextmanager
def _bar(what: str, total: float) -> Iterator[Callable[[float], object]]:
    """Show a progress bar on stderr if that is a terminal and rich is installed.

    Yields:
        A function that receives the amount that is done.
    """
    try:
        from rich.console import Console
        from rich.progress import Progress
    except ImportError:
        yield lambda done: None
        return
    with Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task(what, total=total)
        yield lambda done: progress.update(task, completed=min(done, total))
