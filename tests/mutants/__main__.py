"""Print the mutants of ``table`` that no test detects: ``make mutants``.

Each mutant is a copy of the package with one small change of meaning. The tests that the table names for it run until
the first one fails. First, all of them must pass without a change.
"""

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rich.console import Console
from rich.progress import track

from tests.mutants.table import MUTANTS, Mutant

ROOT = Path(__file__).parents[2]
COPIES = ROOT / ".fetched" / "mutants"
PARTS = ("wheelcache", "tests", "example_project", "benchmarks", "docs", "pyproject.toml", "setup.py", "README.md")
PYTEST = [sys.executable, "-m", "pytest", "--exitfirst", "-p", "no:cacheprovider", "--numprocesses", "0"]
CHOSEN = ["-m", "not deep and not alone"]

HANGS = 900.0
"""Seconds after which a run counts as failed: a mutant may let a caller wait forever."""

console = Console()


def copied(name: str) -> Path:
    copy = COPIES / name
    shutil.rmtree(copy, ignore_errors=True)
    copy.mkdir(parents=True)
    for part in PARTS:
        source = ROOT / part
        if source.is_dir():
            shutil.copytree(source, copy / part, ignore=shutil.ignore_patterns("__pycache__", "mutants"))
        else:
            shutil.copy(source, copy)
    return copy


def change(copy: Path, mutant: Mutant) -> None:
    """Apply a mutant to a copy.

    Raises:
        ValueError: if the file does not contain the old text exactly once.
    """
    file = copy / "wheelcache" / mutant.file
    text = file.read_text()
    if (number := text.count(mutant.old)) != 1:
        raise ValueError(f"wheelcache/{mutant.file} must contain this once, not {number} times:\n{mutant.old}")
    file.write_text(text.replace(mutant.old, mutant.new))
    if file.suffix != ".py":
        command = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
        subprocess.run(command, cwd=copy, check=True, capture_output=True)


def failure(copy: Path, tests: list[str]) -> str | None:
    """Run tests in a copy. Return the first failure, or None if all pass."""
    command = [*PYTEST, *CHOSEN, *tests]
    try:
        done = subprocess.run(command, cwd=copy, capture_output=True, text=True, check=False, timeout=HANGS)
    except subprocess.TimeoutExpired:
        return "no end"
    if done.returncode == 0:
        return None
    failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    # A run that did not reach its tests detects nothing.
    if done.returncode != 1 or not failed:
        raise RuntimeError(f"pytest {' '.join(tests)}: {done.returncode}\n{done.stdout[-3000:]}{done.stderr[-1000:]}")
    return failed[0]


def detection(number: int) -> str | None:
    mutant = MUTANTS[number]
    copy = copied(f"{number + 1}")
    change(copy, mutant)
    found = failure(copy, list(mutant.tests))
    shutil.rmtree(copy)
    return found


def main() -> int:
    chosen = [int(each) - 1 for each in sys.argv[1:]] or [*range(len(MUTANTS))]
    every_test = sorted({test for number in chosen for test in MUTANTS[number].tests})
    console.print("The tests without a change ...")
    if (found := failure(copied("unchanged"), every_test)) is not None:
        console.print(f"They fail: {found}")
        return 1
    undetected = 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found_by = pool.map(detection, chosen)
        for number, found in zip(track(chosen, "Mutants", console=console), found_by, strict=True):
            mutant = MUTANTS[number]
            if found is None:
                undetected += 1
                console.print(f"{number + 1}. NOT DETECTED: {mutant.promise}\n   {mutant.file}: {mutant.old.strip()}")
            else:
                console.print(f"{number + 1}. {mutant.promise}: {found}")
    console.print(f"{len(chosen) - undetected} of {len(chosen)} mutants were detected.")
    return min(undetected, 1)


if __name__ == "__main__":
    sys.exit(main())
