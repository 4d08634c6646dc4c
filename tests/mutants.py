"""Print the mutants that no test detects: ``make mutants``.

A mutant is a copy of the package with one small change of meaning, which breaks a rule. The tables ``mutants.toml``
stand beside the tests. Each of their rows has

    rule    what no longer holds after the change; the name of the test says the same
    file    a file of ``wheelcache/``
    old     text that occurs once in the file
    new     the text in its place
    test    the test that fails then, as pytest names it

Names of folders (``core pages``) or texts of rules choose rows. With ``--every-test``, the whole of ``make test`` runs
over each mutant, which takes minutes for each, and the number of tests that fail is printed: one of those is enough.
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
from typing import NamedTuple

from rich.console import Console
from rich.progress import track

ROOT = Path(__file__).parents[1]
COPIES = ROOT / ".fetched" / "mutants"
PARTS = ("wheelcache", "tests", "example_project", "benchmarks", "docs", "pyproject.toml", "setup.py", "README.md")
PYTEST = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--hypothesis-profile", "quick"]
EVERY_TEST = ["-m", "not alone and not servers and not browser and not conformance and not deep"]
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
    """Return the mutants of each folder of tests.

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

    def __init__(self, name: str) -> None:
        self._folder = COPIES / name
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True)
        for part in PARTS:
            source = ROOT / part
            if source.is_dir():
                shutil.copytree(source, self._folder / part, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(source, self._folder)

    def failures_of(self, mutant: Mutant, every_test: bool) -> list[str]:
        """Change the copy, run the tests and undo the change. Return the failed tests."""
        file = self._folder / "wheelcache" / mutant.file
        original = file.read_text()
        file.write_text(original.replace(mutant.old, mutant.new))
        is_compiled = file.suffix != ".py"
        try:
            if is_compiled:
                self._compile()
            return self.failures([*EVERY_TEST, "--maxfail", "30"] if every_test else ["--exitfirst", mutant.test])
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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("chosen", nargs="*", help="folders of tests, or parts of rules")
    parser.add_argument("--every-test", action="store_true", help="run make test over each mutant")
    options = parser.parse_args()
    mutants = [
        mutant
        for folder, rows in tables().items()
        for mutant in rows
        if not options.chosen or any(each == folder or each in mutant.rule for each in options.chosen)
    ]
    copies: SimpleQueue[Copy] = SimpleQueue()
    copies.put(first := Copy("1"))
    console.print("The tests without a change ...")
    named = EVERY_TEST if options.every_test else sorted({mutant.test for mutant in mutants})
    if failed := first.failures(["--numprocesses", str(os.cpu_count()), *named]):
        console.print("They fail:", *failed, sep="\n")
        return 1
    for number in range(2, (os.cpu_count() or 1) + 1):
        copies.put(Copy(str(number)))

    def failures_of(mutant: Mutant) -> list[str]:
        copy = copies.get()
        try:
            return copy.failures_of(mutant, options.every_test)
        finally:
            copies.put(copy)

    undetected = 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found_by = pool.map(failures_of, mutants)
        for mutant, failed in zip(track(mutants, "Mutants", console=console), found_by, strict=True):
            if not failed:
                undetected += 1
                console.print(f"NOT DETECTED: {mutant.rule}\n   {mutant.file}: {mutant.old.strip()}")
            else:
                console.print(f"{mutant.rule}: {len(failed)} failed; {failed[0]}")
    console.print(f"{len(mutants) - undetected} of {len(mutants)} mutants were detected.")
    return min(undetected, 1)


if __name__ == "__main__":
    sys.exit(main())
