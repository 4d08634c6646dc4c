"""The figures of one cache in a span of time."""

from __future__ import annotations

from collections import defaultdict, namedtuple
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from wheelcache.engine.stats import Stats
from wheelcache.watch.figures import CacheFigures
from wheelcache.watch.group_tables import groups_between, seconds_between
from wheelcache.watch.key_groups import SECONDS, Groups, GroupSteps, merged
from wheelcache.watch.recorder import Steps
from wheelcache.watch.rows import NOTHING, Row, added, reading_of, stats_of
from wheelcache.watch.tables import HOUR, LEVELS, LONG_STEP, NUMBERS, OF_NAME, STEP

if TYPE_CHECKING:
    import sqlite3

LENGTHS: Final = (STEP, LONG_STEP, 300, 900, 1800, HOUR)
"""The lengths of the steps in a chart, in seconds. Each is a multiple of those before it."""

Step = namedtuple("Step", NUMBERS)  # type: ignore[misc]  # the names are the columns of a table
"""The counts of all workers in a step, and the entries and bytes at its end."""


class Span(NamedTuple):
    """Steps of the same length, in seconds since 1970; the last one may be shorter."""

    since: int
    until: int
    step: int

    def has(self, at: float) -> bool:
        return self.since <= at < self.until

    @property
    def number(self) -> int:
        """The number of steps."""
        return len(range(*self))

    def start_of(self, at: int) -> int:
        """Return the start of the step that a time belongs to."""
        return at - (at - self.since) % self.step

    def end_of(self, start: int) -> int:
        return min(start + self.step, self.until)

    def with_at_most(self, most: int) -> Span:
        """Return the same span in at most ``most`` steps."""
        fits = (each for each in LENGTHS if each >= self.step and (self.until - self.since) / each <= most)
        return self._replace(step=next(fits, LENGTHS[-1]))


class Within:
    """The figures of a cache in a span.

    Attributes:
        groups: the counts of the groups of keys.
        computing: the seconds that the groups that took most took to compute, by name and by the start of the step.
    """

    def __init__(self, figures: CacheFigures) -> None:
        self.groups: Groups = {}
        self.computing: dict[str, dict[int, float]] = {}
        self._figures = figures
        self._rows: dict[int, Row] = {}

    def read(self, cache: bytes, span: Span, until: int, charted: int, db: sqlite3.Connection) -> None:
        """Add the figures of a database.

        Args:
            cache: the encoded name of the cache.
            until, charted: see ``Site.within``.
        """
        # Adding up single steps would take three times as long.
        columns, group_by = (_COLUMNS, "") if span.step == STEP else (_SUMS, "GROUP BY 1")
        for number, *row in db.execute(
            # The counts after the span are no part of its last step.
            f"SELECT CASE WHEN place < ? THEN (place - ?) / ? ELSE ? END, {columns} FROM counts"
            f" WHERE kind IN ({STEP}, {LONG_STEP}) AND place >= ? AND place < ?"
            f" AND {OF_NAME} {group_by}",
            (span.until, span.since, span.step, span.number, span.since, until, cache),
        ):
            self._add(span.since + number * span.step, tuple(row))
        groups = groups_between(db, cache, span.since, until)
        self.groups = merged(self.groups, groups)
        wanted = _most_computed(groups, charted)
        self._add_computing(span, seconds_between(db, cache, span.since, span.until, wanted))

    def add_own(self, span: Span, until: int, charted: int, steps: Steps, groups: GroupSteps) -> None:
        """Add the figures of a cache of this process that does not publish: see ``Recorder``."""
        for (_, start), row in steps.items():
            if span.since <= start < until:
                self._add(span.start_of(start) if span.has(start) else span.since + span.number * span.step, row)
        sums = dict(self.groups)
        for start, of_step in groups.items():
            for name, row in of_step.items() if span.since <= start < until else ():
                sums[name] = added(sums[name], row) if name in sums else row
        self.groups = sums
        for name in _most_computed(sums, charted):
            seconds = ((name, at, of_step[name][SECONDS]) for at, of_step in groups.items() if name in of_step)
            self._add_computing(span, seconds)

    def _add(self, start: int, row: Row) -> None:
        self._rows[start] = added(self._rows[start], row) if start in self._rows else row

    def _add_computing(self, span: Span, seconds: Iterable[tuple[str, int, float]]) -> None:
        for name, start, number in seconds:
            if span.has(start):
                by_start = self.computing.setdefault(name, defaultdict(float))
                by_start[span.start_of(start)] += number

    def total(self) -> Stats:
        """Return the sums of the counts, also by groups of keys, with the present gauges."""
        stats, rows = self._figures.stats, self._rows.values()
        counts = tuple(map(sum, zip(*rows, strict=True)))[len(LEVELS) :] if rows else NOTHING
        return stats_of(counts, reading_of(stats).gauges, stats.by_guest.keys(), self.groups)

    def steps(self, span: Span) -> dict[int, Any]:
        """Return the ``Step`` by start, oldest first, of the span that was read."""
        return {start: _step(self._rows[start], span, start) for start in sorted(self._rows) if span.has(start)}


_COLUMNS: Final = ", ".join(NUMBERS)
_SUMS: Final = ", ".join(f"sum({each})" for each in NUMBERS)


def _most_computed(groups: Groups, number: int) -> list[str]:
    return sorted((name for name in groups if groups[name][SECONDS]), key=lambda name: -groups[name][SECONDS])[:number]


def _step(row: Row, span: Span, start: int) -> Any:
    entries, memory, *rest = row
    seconds = span.end_of(start) - start
    return Step._make((entries / seconds, memory / seconds, *rest))
