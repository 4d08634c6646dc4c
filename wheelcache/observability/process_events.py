"""The start and the end of this process, and of those that were found dead, in the events of a site."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from wheelcache.errors import FileUnusable
from wheelcache.observability.event_log import EXITED, KILLED, STARTED, Event, EventsInFile, Process
from wheelcache.observability.worker_stats import WorkerStats
from wheelcache.runtime.clock import SystemClock
from wheelcache.runtime.process_start import this_process

FIRST_PATIENCE: Final = 0.5
"""Seconds to wait for other processes, of which forty may start at the same time."""

AGAIN: Final = 3.0
"""Seconds to the next try."""

LAST_PATIENCE: Final = 2.0
"""Seconds that the exit waits for other processes that exit at the same time. There is no next try."""

_started: Final[dict[Path, Process]] = {}
"""The directories in whose events this process, or its parent, has noted its start."""

_next_try: Final[dict[Path, float]] = {}


def note_start(directory: Path) -> None:
    """This process published figures. Its start is noted once, whatever number of caches it has."""
    process, now = this_process(), SystemClock.steady()
    if _started.get(directory) != process and now >= _next_try.get(directory, now):
        try:
            EventsInFile(directory).add([Event.of(STARTED, process[1], process)], FIRST_PATIENCE)
            _started[directory] = process
        except (OSError, FileUnusable):
            _next_try[directory] = now + AGAIN


def note_exit() -> None:
    """This process exits. One whose start was not noted is a command, not a worker."""
    process = this_process()
    for directory, started in tuple(_started.items()):
        if started == process:
            with suppress(OSError, FileUnusable):
                EventsInFile(directory).add([Event.of(EXITED, SystemClock.time(), process)], LAST_PATIENCE)


def note_dead(directory: Path, dead: Iterable[WorkerStats]) -> None:
    """These were found: the caches of processes that are gone. Those that exited have noted it themselves."""
    last_seen: dict[Process, float] = {}
    for each in dead:
        if not each.is_last:
            process = each.pid, each.started
            last_seen[process] = max(each.taken, last_seen.get(process, each.taken))
    if last_seen:
        with suppress(OSError, FileUnusable):
            events = [Event.of(KILLED, at, process) for process, at in last_seen.items()]
            EventsInFile(directory).add(events, FIRST_PATIENCE)
