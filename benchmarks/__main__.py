"""``python -m benchmarks`` measures everything in one run, prints tables, and writes results.json next to this file."""

import argparse
from collections.abc import Callable
from concurrent.futures import Executor, ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from benchmarks import (
    django_rows,
    engine_rows,
    flask_rows,
    host_rows,
    memoize_rows,
    memory_rows,
    million_rows,
    page_rows,
    pause_rows,
    policy_rows,
    site_rows,
    stampede_rows,
    tags_rows,
    tiers_rows,
    wheel_rows,
)
from benchmarks.report import Section, print_sections, replace_sections, write_json
from benchmarks.timing import Step
from wheelcache.core import IMPLEMENTATION

RESULTS = Path(__file__).with_name("results.json")

Measurement = Callable[[Step], Section]


def measurements(executor: Executor) -> dict[str, tuple[int, Measurement]]:
    """Return, for each subject, its number of steps and the function that measures it."""
    return {
        "django": (django_rows.STEPS, django_rows.measure),
        "flask": (flask_rows.STEPS, flask_rows.measure),
        "host": (host_rows.STEPS, host_rows.measure),
        "sites": (site_rows.STEPS, site_rows.measure),
        "engine": (engine_rows.STEPS, engine_rows.measure),
        "policies": (policy_rows.STEPS, policy_rows.measure),
        "memoize": (memoize_rows.STEPS, memoize_rows.measure),
        "pages": (page_rows.STEPS, page_rows.measure),
        "stampede": (stampede_rows.STEPS, stampede_rows.measure),
        "tiers": (tiers_rows.STEPS, tiers_rows.measure),
        "wheel": (wheel_rows.STEPS, wheel_rows.measure),
        "memory": (memory_rows.STEPS, partial(memory_rows.measure, executor)),
        "tags": (tags_rows.STEPS, partial(tags_rows.measure, executor)),
        "million": (million_rows.STEPS, partial(million_rows.measure, executor)),
        "pause": (pause_rows.STEPS, partial(pause_rows.measure, executor)),
    }


def main() -> None:
    # Measurements that the memory or the threads of other measurements could affect run in processes of their own.
    with ProcessPoolExecutor(1, mp_context=get_context("spawn"), max_tasks_per_child=1) as executor:
        subjects = measurements(executor)
        if IMPLEMENTATION == "python":
            # Both policies are LRU.
            del subjects["policies"]
        parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Compare wheelcache with its peers.")
        parser.add_argument("--only", nargs="+", choices=subjects, help="measure only these, and write no results.json")
        parser.add_argument("--into", type=Path, metavar="FILE", help="replace the measured tables in this file")
        given = parser.parse_args()
        chosen = given.only
        console = Console()
        if not console.is_terminal:
            # The output is a file or a log, for which rich would assume 80 columns.
            console.width = 120
        sections = []
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=console) as progress:
            tasks = {
                name: progress.add_task(name, total=steps, start=False)
                for name, (steps, _) in subjects.items()
                if chosen is None or name in chosen
            }
            for name, task in tasks.items():
                progress.start_task(task)
                sections.append(subjects[name][1](partial(progress.advance, task)))
    print_sections(console, sections)
    if chosen is None:
        write_json(RESULTS, sections)
        console.print(f"All figures: {RESULTS}")
    if given.into is not None:
        replace_sections(given.into, sections)


if __name__ == "__main__":
    main()
