"""Print the reports of commands in a terminal. ``manage.py wheelcache`` and ``flask wheelcache`` share this.

Each command returns a ``Report``: a document, which ``--json`` prints, and the same in sentences and tables. The
headings of a table are keys of the document, except ``HEADINGS``. Tables need rich.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TextIO

if TYPE_CHECKING:
    # Only tables need rich.
    from rich.console import Console, RenderableType

if sys.platform != "win32":
    import pwd

Row = Mapping[str, Any]
"""Values by their names, on which their format depends: see ``_cell``."""

UNLIMITED: Final = 10_000
"""The width of output that is not a terminal, in characters."""

UNITS: Final = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


HEADINGS: Final = {"requests": "look-ups", "requests_per_second": "look-ups per second"}
"""The headings that differ from the names of the figures."""


class CommandFailed(Exception):
    """An action was not carried out, or not by all workers, for the reason in the message."""


class Table(NamedTuple):
    """A table. A cell is "-" if its value is None, and empty if the row has no such value.

    Attributes:
        sections: the rows, with space between the sections.
        columns: the names of the columns.
        heads: the style of the first row of each section.
    """

    sections: Sequence[Sequence[Row]]
    columns: Sequence[str]
    heads: str = ""


class Report(NamedTuple):
    """The result of a command.

    Attributes:
        document: the document for ``--json``.
        view: the same in sentences and tables. Sentences are wrapped only if there is a table.
        failure: the reason why the command fails after the report was printed; None if it succeeds.
    """

    document: Any
    view: Sequence[str | Table]
    failure: str | None = None


def show(report: Report, out: TextIO, *, as_json: bool = False, styled: bool = True) -> None:
    """Print a report.

    Args:
        out: the output. If it is not a terminal, the width of a table is not limited.
        as_json: print the document instead of the view.
        styled: whether tables may have styles.

    Raises:
        CommandFailed: for the reason in the report; or if there is a table and rich is not installed.
    """
    if as_json:
        out.write(f"{json.dumps(report.document)}\n")
    elif any(isinstance(each, Table) for each in report.view):
        console = _console_for(out, styled)
        console.print(_rendered(report.view, console))
    else:
        out.writelines(f"{each}\n" for each in report.view)
    if report.failure is not None:
        raise CommandFailed(report.failure)


def watch(report: Callable[[], Report], out: TextIO, every: float, *, styled: bool = True) -> None:
    """Print a new report in the place of the last one every ``every`` seconds, until Ctrl-C. If it fails, the
    reason is its last sentence.

    Raises:
        CommandFailed: if ``out`` is not a terminal, or rich is not installed.
    """
    console = _console_for(out, styled)
    if not console.is_terminal:
        raise CommandFailed("--watch needs a terminal, and the output is not one: leave --watch out.")
    from rich.live import Live

    try:
        with Live(console=console, auto_refresh=False) as live:
            while True:
                found = report()
                view = [*found.view, *([] if found.failure is None else [found.failure])]
                live.update(_rendered(view, console), refresh=True)
                time.sleep(every)
    except KeyboardInterrupt:
        return


def _console_for(out: TextIO, styled: bool) -> Console:
    try:
        from rich.console import Console
    except ImportError:
        raise CommandFailed(
            "A table needs the package rich: run pip install rich, or pip install '.[cli]' in a checkout of "
            "wheelcache. --json does not need it."
        ) from None
    is_terminal = out.isatty()
    width = None if is_terminal or "COLUMNS" in os.environ else UNLIMITED
    # With markup and emoji, Rich would interpret brackets and colons in names.
    given: dict[str, Any] = {"color_system": "auto" if styled else None, "markup": False, "emoji": False}
    # With FORCE_COLOR, Rich would otherwise assume a terminal.
    return Console(file=out, force_terminal=is_terminal, width=width, highlight=False, **given)


def _rendered(view: Sequence[str | Table], console: Console) -> RenderableType:
    from rich.console import Group

    parts = ([each] if isinstance(each, str) else _tables(each, console) for each in view)
    return Group(*chain.from_iterable(parts))


def _tables(shown: Table, console: Console) -> Iterator[RenderableType]:
    """Yield the table. Columns that do not fit into the width are in further tables."""
    first, *others = shown.columns
    columns = [first]
    for name in others:
        wider = _table(shown, [*columns, name], console.width)
        needed = console.measure(wider, options=console.options.update(width=UNLIMITED)).maximum
        if len(columns) > 1 and needed > console.width:
            yield _table(shown, columns, console.width)
            columns = [first]
        columns.append(name)
    yield _table(shown, columns, console.width)


def _table(shown: Table, columns: Sequence[str], width: int) -> RenderableType:
    from rich import box, table

    first, *others = (HEADINGS.get(name, name.replace("_", " ")) for name in columns)
    # Otherwise, a long name would leave no room for the other columns.
    names = table.Column(first, overflow="fold", max_width=width // 2)
    found = table.Table(names, box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    for heading in others:
        # In two lines.
        found.add_column("\n".join(heading.rsplit(maxsplit=1)), justify="right", overflow="fold")
    for rows in shown.sections:
        for place, row in enumerate(rows):
            found.add_row(*(_cell(name, row) for name in columns), style="" if place else shown.heads)
        found.add_section()
    return found


def _cell(name: str, row: Row) -> str:
    value, words = row.get(name, ""), name.split("_")
    if isinstance(value, str):
        return printable(value)
    if value is None:
        return "-"
    if "bytes" in words:
        return size_in_words(value)
    if "ratio" in words or "share" in words:
        return f"{value:.1%}"
    return f"{value:,.1f}" if isinstance(value, float) else f"{value:,}"


def printable(text: str) -> str:
    """Return a text in which each character that could control a terminal is an escape sequence of Python."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def size_in_words(number: int) -> str:
    """Return a number of bytes with its unit."""
    unit, name = next((each for each in UNITS if number >= each[0]), (1, "B"))
    return f"{number / unit:,.1f} {name}" if unit > 1 else f"{number:,} B"


def count_of(number: int, one: str, many: str = "") -> str:
    """Return a number and its noun, whose plural is ``many``, or has an s."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def date_of(at: float) -> str:
    """Return a date and time of the terminal's time zone, with its name."""
    return time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(at))


def user_name() -> str:
    """Return the name of the user that runs the command, for the recent events."""
    uid = os.geteuid()
    try:
        return f"{pwd.getpwuid(uid).pw_name}, in a terminal"
    except KeyError:
        return f"user {uid}, in a terminal"
