"""Reads the notices of all machines: one process of each machine does, for all processes that map its stamps.

The reader is chosen by a lock on a file next to the stamps, which the kernel releases when its holder dies. The others
try the lock five times a second. Ten times a second, the reader asks a source for the notices since its position and
writes them into the stamps. Only then does it vouch for the stamps, until ``TRUST`` seconds after it *began to ask*. So
an entry is returned only if every notice that was there ``TRUST`` seconds ago is in the stamps. This needs no
cooperation of the reader: if it is stopped or killed, or waits for a source that does not answer, that moment passes,
and the entries of all processes are misses until a reader catches up.

The position is saved in the locked file after each turn, so the next reader goes on where the last one was killed. It
reads the notices of that turn again, which is harmless. Without a position that it can use, it outdates everything.
"""

from __future__ import annotations

import json
import logging
import os
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from wheelcache.coherence.notices import Notice
from wheelcache.coherence.shared_stamps import SharedStamps, stamps_path
from wheelcache.machine_clock import moment
from wheelcache.runtime.private_files import FileLocked, locked_file
from wheelcache.runtime.repeating_thread import RepeatingThread

logger = logging.getLogger("wheelcache")

INTERVAL: Final = 0.1
"""Seconds between two questions to the source."""

TRUST: Final = 1.9
"""Seconds after the beginning of a question for which the entries may be used. Together with the lag of the clock that
a hit reads, this is below 2 s."""

ELECTION_INTERVAL: Final = 0.2
"""Seconds between two attempts to become the reader."""

LONGEST_PAUSE: Final = 2.0
"""Seconds until a source that failed is asked again: 0.1, 0.2 ... 2."""

PAUSE_IF_REFUSED: Final = 60.0
"""Seconds until a source that cannot be used is asked again. This reader stays the reader, so that no other process
trusts the source in the meantime."""

CHECK_INTERVAL: Final = 1.0
"""Seconds between two checks that the file of the stamps still exists. A check takes 10 us."""

POSITION_BYTES: Final = 4096
"""The size of the locked file. A longer position, with hundreds of open transactions, is not saved."""


class SourceRefused(Exception):
    """The source must not be used as it is configured."""


class News(NamedTuple):
    """The answer of a source.

    Attributes:
        notice: all notices since the last position, as one.
        position: the new position, which JSON can represent.
    """

    notice: Notice
    position: Any


class Source(Protocol):
    """Where notices are read, by one thread at a time."""

    def read(self, position: Any) -> News:
        """Return the notices since ``position``, or ``EVERYTHING`` if some of them may be lost.

        Args:
            position: that of an earlier answer, also to another process; None if there is none.

        Raises:
            SourceRefused: if the source must not be used.
            Exception: if the source failed.
        """

    def close(self) -> object:
        """Disconnect. The next ``read`` connects again."""

    def forget(self) -> object:
        """Forget the connection of the parent, in the child of a fork, without ending it."""


class _Seat:
    """The right to read for this machine, which its lock expresses.

    Attributes:
        stamps: the stamps, opened for this reader alone, so that no other thread opens them again during a turn.
        position: the position in the source; None without one.
        checked: the moment of the last check of the file of the stamps.
    """

    def __init__(self, name: str) -> None:
        """Raise FileLocked if another process reads."""
        with ExitStack() as opened:
            # The lock first: every process tries this five times a second.
            self._file = opened.enter_context(locked_file(Path(f"{stamps_path(name)}.reader-1"), 0.0))
            self.stamps = SharedStamps(name)
            self.position = self._saved()
            self._opened = opened.pop_all()
        self.checked = moment()

    def _saved(self) -> Any:
        """Return the position that the last reader saved for these stamps."""
        try:
            identity, position = json.loads(os.pread(self._file, POSITION_BYTES, 0))
        except (TypeError, ValueError):
            return None
        return position if identity == list(self.stamps.identity) else None

    def save(self) -> None:
        """Save the position, in one write of a fixed length: a process that is killed leaves the old or the new one."""
        saved = json.dumps([self.stamps.identity, self.position]).encode()
        os.pwrite(self._file, (saved if len(saved) <= POSITION_BYTES else b"").ljust(POSITION_BYTES), 0)

    def is_gone(self) -> bool:
        """Return whether the stamps were removed or replaced. They are checked once in ``CHECK_INTERVAL``."""
        if moment() - self.checked < CHECK_INTERVAL * 1e9:
            return False
        self.checked = moment()
        return self.stamps.is_gone()

    def leave(self) -> None:
        self._opened.close()


class Reader:
    """A thread that reads the notices for one table of stamps, or waits until the process that does so ends.

    Args:
        name: the name of the stamps.
        source: see ``Source``.
        cache: the cache in words, for log lines.
    """

    def __init__(self, name: str, source: Source, cache: str) -> None:
        self._name = name
        self._cache = cache
        self._source = source
        self._start_over()
        self._thread = RepeatingThread(
            "wheelcache-reader", self, f"another process must read the notices of {cache}, or no cached values are used"
        )
        self.start = self._thread.start

    def _start_over(self) -> None:
        self._seat: _Seat | None = None
        self._pause = INTERVAL
        # The kind of the failure that was logged, until the source answers again.
        self._logged: str | None = None

    def stop(self) -> None:
        self._thread.stop()
        self._thread.join(1.0)

    def turn(self) -> float:
        """Ask the source once, if this is the reader. Return the seconds until the next turn. Raise nothing."""
        self._thread.is_busy = True
        began = moment()
        try:
            if self._seat is not None and self._seat.is_gone():
                self.leave()
            if self._seat is None:
                self._seat = _Seat(self._name)
            self._read(self._seat, began)
        except FileLocked:
            return ELECTION_INTERVAL
        except SourceRefused as error:
            self._disconnect()
            if self._seat is not None:
                self._seat.stamps.vouch(0)
            self._lost("refused", error)
            return PAUSE_IF_REFUSED
        except BaseException as error:
            # Including the exceptions of a driver: they must not end this thread. Another process may read: the cause
            # may be in this one.
            self.leave()
            self._lost("lost", error)
            self._pause = min(2 * self._pause, LONGEST_PAUSE)
            return self._pause
        finally:
            self._thread.is_busy = False
        return max(0.0, INTERVAL - (moment() - began) / 1e9)

    def _read(self, seat: _Seat, began: int) -> None:
        news = self._source.read(seat.position)
        # The order is the guarantee: the notices, the position, the trust.
        if news.notice.everything or news.notice:
            seat.stamps.outdate(news.notice)
        seat.position = news.position
        seat.save()
        seat.stamps.vouch(began + int(TRUST * 1e9))
        self._pause = INTERVAL
        if self._logged is not None:
            self._logged = None
            logger.warning("Reading the notices of %s again.", self)

    def _lost(self, how: str, error: BaseException) -> None:
        if self._logged == how or self._thread.is_stopped:
            return
        self._logged = how
        logger.warning(
            "The notices of %s cannot be read (%s: %s); no cached values are used until they can.",
            self,
            type(error).__name__,
            str(error).strip(),
        )

    def leave(self) -> None:
        """Disconnect, and let another process read."""
        seat, self._seat = self._seat, None
        self._disconnect()
        if seat is not None:
            seat.leave()

    def _disconnect(self) -> None:
        with suppress(Exception):
            self._source.close()

    def after_fork_in_child(self) -> None:
        # The parent has the seat. Its descriptor was closed with ``not_for_children``.
        self._start_over()
        self._source.forget()

    def __str__(self) -> str:
        return self._cache
