"""Print the mutants that no test detects: ``make mutants``.

A mutant is a copy of the package with one small change of meaning, which breaks a rule. The tables ``mutants.toml``
stand beside the tests. Each of their rows has

    rule    the rule that no longer holds after the change; the name of the test says the same
    file    a file of ``wheelcache/``
    old     text that occurs once in the file
    new     the text in its place
    test    the test that fails then, as pytest names it

Names of folders (``core pages/on_both``) or texts of rules choose rows.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory
from typing import NamedTuple

from rich.console import Console
from rich.progress import track

ROOT = Path(__file__).parents[1]
PARTS = ("wheelcache", "tests", "example_project", "benchmarks", "docs", "pyproject.toml", "setup.py", "README.md")
PYTEST = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--hypothesis-profile", "quick"]
SLOW_CODE = os.environ | {"CFLAGS": "-O0"}
"""A core that is compiled once for each of its mutants need not be fast."""

HANGS = 900.0
"""Seconds after which a run counts as failed: a mutant may let a caller wait forever."""

console = Console()


class Mutant(NamedTuple):
    rule: str
    file: str
    old: str
    new: str
    test: str


def tables() -> dict[str, list[Mutant]]:
    """Return the mutants of each folder below ``tests``.

    Raises:
        TypeError: if a row lacks a column or has another one.
    """
    files = sorted(ROOT.glob("tests/**/mutants.toml"))
    return {
        str(file.parent.relative_to(ROOT / "tests")): [
            Mutant(**row) for row in tomllib.loads(file.read_text())["mutants"]
        ]
        for file in files
    }


class Copy:
    """A copy of the repository, in which one mutant after the other is tested."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir()
        for part in PARTS:
            source = ROOT / part
            if source.is_dir():
                shutil.copytree(source, self._folder / part, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(source, self._folder)

    def failures_of(self, mutant: Mutant) -> list[str]:
        """Change the copy, run the test and undo the change. Return the failed cases of the test."""
        file = self._folder / "wheelcache" / mutant.file
        original = file.read_text()
        file.write_text(original.replace(mutant.old, mutant.new))
        is_compiled = file.suffix != ".py"
        try:
            if is_compiled:
                self._compile()
            return self.failures(["--exitfirst", mutant.test])
        finally:
            file.write_text(original)
            if is_compiled:
                for compiled in (ROOT / "wheelcache" / "core").glob("*.so"):
                    shutil.copy(compiled, self._folder / "wheelcache" / "core")

    def _compile(self) -> None:
        # Each of these includes other files, whose times setup.py does not look at.
        for module in (self._folder / "wheelcache" / "core").glob("*.pyx"):
            module.touch()
        command = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
        subprocess.run(command, cwd=self._folder, env=SLOW_CODE, check=True, capture_output=True)

    def failures(self, options: list[str]) -> list[str]:
        """Run pytest. Return the failed tests; none if all pass.

        Raises:
            RuntimeError: if the run did not reach its tests, and so detects nothing.
        """
        command = [*PYTEST, *options]
        try:
            done = subprocess.run(command, cwd=self._folder, capture_output=True, text=True, check=False, timeout=HANGS)
        except subprocess.TimeoutExpired:
            return ["no end"]
        failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
        if done.returncode == 0 or (done.returncode == 1 and failed):
            return failed
        raise RuntimeError(f"{' '.join(command)}: {done.returncode}\n{done.stdout[-3000:]}{done.stderr[-1000:]}")


def undetected(mutants: list[Mutant], copies: list[Copy]) -> int:
    """Print the outcome of each mutant. Return the number of those that no test detects."""
    free: SimpleQueue[Copy] = SimpleQueue()
    for copy in copies:
        free.put(copy)

    def failures_of(mutant: Mutant) -> list[str]:
        copy = free.get()
        try:
            return copy.failures_of(mutant)
        finally:
            free.put(copy)

    number = 0
    with ThreadPoolExecutor(len(copies)) as pool:
        outcomes = track(pool.map(failures_of, mutants), "Mutants", len(mutants), console=console)
        for mutant, failed in zip(mutants, outcomes, strict=True):
            number += not failed
            missed = f"NOT DETECTED\n   {mutant.file}: {mutant.old.strip()}"
            console.print(f"{mutant.rule}: {failed[0] if failed else missed}")
    console.print(f"{len(mutants) - number} of {len(mutants)} mutants were detected.")
    return number


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("chosen", nargs="*", help="folders of tests, or parts of rules")
    chosen = parser.parse_args().chosen
    mutants = [
        mutant
        for folder, rows in tables().items()
        for mutant in rows
        if not chosen or any(f"{folder}/".startswith(f"{each}/") or each in mutant.rule for each in chosen)
    ]
    processors = os.cpu_count() or 1
    named = sorted({mutant.test for mutant in mutants})
    with TemporaryDirectory(prefix="wheelcache-mutants-") as folder:
        copies = [Copy(Path(folder) / str(number)) for number in range(processors)]
        console.print("The tests without a change ...")
        if failed := copies[0].failures(["--numprocesses", str(processors), *named]):
            console.print("They fail:", *failed, sep="\n")
            return 1
        return min(undetected(mutants, copies), 1)


if __name__ == "__main__":
    sys.exit(main())
