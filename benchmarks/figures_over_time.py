"""The costs of figures by group and over time: the database of a day, a publication, and the document of the page.

The rows of 24 hours are written as workers would write them, in steps of ten seconds, by the code that publishes and
tidies. One of 25 caches has 64 groups of keys that are used in every step. ``python -m benchmarks.figures_over_time``
takes two minutes.
"""

import random
import sqlite3
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.progress import track
from rich.table import Table

from wheelcache import Cache, ManualClock
from wheelcache.watch.dashboard.dashboard import Dashboard
from wheelcache.watch.dashboard.one_cache import Wanted
from wheelcache.watch.group_tables import add_groups, shorten_groups
from wheelcache.watch.publisher import INTERVAL
from wheelcache.watch.rows import COUNTS, Row, with_groups
from wheelcache.watch.site_file import SiteFile
from wheelcache.watch.tables import DAY, HOUR, LONG_STEP, NUMBERS, STEP, add_rows, encoded, put
from wheelcache.watch.tidying import shorten_steps

GROUPS, CACHES = 64, 25
SPANS = {"10 minutes": 600, "an hour": HOUR, "6 hours": 6 * HOUR, "24 hours": DAY}
ROUNDS = 15


def group_row(choose: random.Random) -> Row:
    """Return the counts of a busy group in one step."""
    hits, misses = int(choose.expovariate(1 / 200)), int(choose.expovariate(1 / 20))
    seconds = round(misses * 0.0123 * 2**20) / 2**20
    return (hits, 0, misses, misses, seconds, 0, misses // 4, 0, 0, 0, 0, 0, 0, misses - misses // 4, 0)


def add_minute(db: sqlite3.Connection, start: int, groups: int, caches: int, choose: random.Random) -> None:
    """Add the steps of a minute, and tidy as a worker does."""
    plain: Row = tuple(7.0 if place < 40 else 0.0 for place in range(len(COUNTS)))
    for at in range(start, start + LONG_STEP, STEP):
        rows = {f"shop:view-{number}": group_row(choose) for number in range(groups)}
        add_groups(db, 1, {at: rows})
        counts = [with_groups(plain, rows.values() if cache == 0 else [group_row(choose)]) for cache in range(caches)]
        places = [(STEP, at, cache + 1, 5_000, 10**7, 0, 0, *row) for cache, row in enumerate(counts)]
        add_rows(db, "counts", ("kind", "place", "cache"), NUMBERS, places)
    shorten_steps(db, start + LONG_STEP)
    shorten_groups(db, start + LONG_STEP)


def fill(file: SiteFile, groups: int, caches: int, now: int) -> None:
    """Write the figures of the last 24 hours."""
    begin, choose = (now - DAY) // LONG_STEP * LONG_STEP, random.Random(1)
    known = [(each + 1, encoded(f"cache{each}"), begin, 5_000, None, 0, 0, 0, 0, now) for each in range(caches)]
    file.write(lambda db: put(db, "caches", known))
    for start in track(range(begin, now - LONG_STEP, LONG_STEP), description=f"{caches} caches, {groups} groups"):
        file.write(partial(add_minute, start=start, groups=groups, caches=caches, choose=choose))


def milliseconds(call: Callable[[], object]) -> float:
    times = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return 1000 * median(times)


def documents(folder: Path, caches: int) -> list[str]:
    """Return the times in which the document of the page is made, for each span."""
    here = [Cache(f"cache{number}", figures_dir=folder) for number in range(caches)]
    page = Dashboard("benchmark", lambda: here, lambda name: [])
    return [f"{milliseconds(partial(page.figures, ['cache0'], Wanted(each))):.0f}" for each in SPANS.values()]


def publication(groups: int) -> float:
    """Return the time of a publication of one cache whose groups were all used, in milliseconds."""
    with TemporaryDirectory() as folder:
        clock = ManualClock()
        cache = Cache(figures_dir=Path(folder) / "figures", clock=clock)
        cache.set("first", 1)

        def publish() -> float:
            for number in range(groups):
                cache.get_or_load(f"group{number}:{clock()}", lambda: 1)
            clock._now += INTERVAL
            began = time.perf_counter()
            assert cache.engine.observed.observer.publication is not None
            cache.engine.observed.observer.publication.run_now()
            return time.perf_counter() - began

        return 1000 * median(publish() for _ in range(200))


def main() -> None:
    table = Table("site", "database, MB", *(f"document of {span}, ms" for span in SPANS))
    for caches, groups in ((1, GROUPS), (CACHES, GROUPS // 4)):
        with TemporaryDirectory() as folder:
            file = SiteFile(Path(folder) / "figures")
            fill(file, groups, caches, int(time.time()))
            size = f"{file.path.stat().st_size / 1e6:.1f}"
            table.add_row(f"{caches} caches, {groups} groups", size, *documents(file.directory, caches))
    console = Console()
    console.print(table)
    for groups in (0, 8, GROUPS):
        console.print(f"A publication with {groups} groups takes {publication(groups):.2f} ms.")


if __name__ == "__main__":
    main()
