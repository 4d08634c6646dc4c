"""Reports the measurements, as rich tables for people and as JSON for programs."""

import json
import platform
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import groupby
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console
from rich.table import Table

from wheelcache.core import IMPLEMENTATION

T = TypeVar("T")

PEERS = (
    "Django",
    "Flask-Caching",
    "cachelib",
    "cachetools",
    "cachebox",
    "diskcache",
    "dogpile.cache",
    "granian",
    "gunicorn",
    "hishel",
    "moka-py",
    "theine",
    "uvicorn",
    "wheelcache",
)
"""The distributions whose versions belong to the figures."""


@dataclass(frozen=True, slots=True)
class Target:
    """The target of a row."""

    bound: float
    at_least: bool

    def is_reached(self, measured: float) -> bool:
        return measured >= self.bound if self.at_least else measured <= self.bound


@dataclass(frozen=True, slots=True)
class Row:
    """A comparison of wheelcache with one peer.

    Attributes:
        ours, theirs: figures in ``unit``; None if the peer has no figure.
        peer: the name of the peer, or of another figure to compare with.
        measured: the figure that the target limits, in ``measured_unit``.
    """

    operation: str
    ours: float
    peer: str
    theirs: float | None
    unit: str
    measured: float | None = None
    measured_unit: str = ""
    target: Target | None = None

    @property
    def reached(self) -> bool | None:
        if self.target is None or self.measured is None:
            return None
        return self.target.is_reached(self.measured)


@dataclass(frozen=True, slots=True)
class Section:
    """The rows on one subject, the method of measurement, and all figures that the rows summarize."""

    title: str
    method: str
    rows: list[Row]
    figures: Mapping[str, Any]


def by_core(*, compiled: T, python: T | None = None) -> T | None:
    """Return the target for the core that runs."""
    return compiled if IMPLEMENTATION == "compiled" else python


def faster(
    operation: str, ours: float, peer: str, theirs: float, at_least: float | None = None, unit: str = "ns"
) -> Row:
    """Return a row with the ratio of ``theirs`` to ``ours``, which must be at least ``at_least``."""
    target = None if at_least is None else Target(at_least, at_least=True)
    return Row(operation, ours, peer, theirs, unit, theirs / ours, "x", target)


def costlier(
    operation: str, ours: float, peer: str, theirs: float, at_most: float | None = None, unit: str = "ns"
) -> Row:
    """Return a row with the ratio of ``ours`` to ``theirs``, which must be at most ``at_most``."""
    target = None if at_most is None else Target(at_most, at_least=False)
    return Row(operation, ours, peer, theirs, unit, ours / theirs, "x its cost", target)


def bounded(operation: str, ours: float, peer: str, theirs: float | None, unit: str, at_most: float | None) -> Row:
    """Return a row in which our own figure must be at most ``at_most``."""
    target = None if at_most is None else Target(at_most, at_least=False)
    return Row(operation, ours, peer, theirs, unit, ours, unit, target)


def print_sections(console: Console, sections: Iterable[Section]) -> None:
    """Print a table for each section, and the number of reached targets."""
    reached = []
    for section in sections:
        table = Table(
            title=section.title,
            title_justify="left",
            title_style="bold",
            caption=section.method,
            caption_justify="left",
        )
        table.add_column("operation", max_width=44)
        table.add_column("wheelcache", justify="right", no_wrap=True)
        table.add_column("compared with", max_width=30)
        table.add_column("its figure", justify="right", no_wrap=True)
        table.add_column("ratio", justify="right", no_wrap=True)
        table.add_column("target", justify="right", no_wrap=True)
        table.add_column("reached")
        for operation, rows in groupby(section.rows, key=lambda row: row.operation):
            for number, row in enumerate(rows):
                table.add_row(
                    "" if number else operation,
                    _figure(row.ours, row.unit),
                    row.peer,
                    _figure(row.theirs, row.unit),
                    _figure(row.measured, row.measured_unit),
                    _bound(row),
                    {True: "[green]yes[/]", False: "[red]no[/]", None: ""}[row.reached],
                )
                if row.reached is not None:
                    reached.append(row.reached)
            table.add_section()
        console.print(table)
        console.print()
    console.print(f"{sum(reached)} of {len(reached)} targets reached.", style="bold")


def write_json(path: Path, sections: Iterable[Section]) -> None:
    """Write the rows, the figures that they summarize, and the versions and the machine to one file."""
    document = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": sys.version,
        "implementation": platform.python_implementation(),
        "core": IMPLEMENTATION,
        "platform": platform.platform(),
        "cpu": _cpu_model(),
        "peers": {name: version(name) for name in PEERS},
        "sections": _as_json(sections),
    }
    path.write_text(json.dumps(document, indent=2) + "\n")


def replace_sections(path: Path, sections: Iterable[Section]) -> None:
    """Replace the sections with the same titles in a file that ``write_json`` has written, and add new ones."""
    document = json.loads(path.read_text())
    by_title = {section["title"]: section for section in (*document["sections"], *_as_json(sections))}
    path.write_text(json.dumps(document | {"sections": [*by_title.values()]}, indent=2) + "\n")


def _as_json(sections: Iterable[Section]) -> list[dict[str, Any]]:
    return [
        asdict(section) | {"rows": [asdict(row) | {"reached": row.reached} for row in section.rows]}
        for section in sections
    ]


def _figure(value: float | None, unit: str) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f} {unit}" if value >= 100 else f"{value:,.2f} {unit}"


def _bound(row: Row) -> str:
    if row.target is None:
        return ""
    sign = "≥" if row.target.at_least else "≤"
    return f"{sign} {row.target.bound:g} {row.measured_unit.removesuffix(' its cost')}"


def _cpu_model() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()
