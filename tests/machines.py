"""Machines with processes of a Django site, for tests of ``COHERENCE = "database"``.

A machine is a runtime directory of its own: its processes share stamps with each other, and with no other machine.
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.scripts import ROOT
from tests.waiting import PATIENCE, until


class Process:
    """A process of the site on a machine: ``process("cache.get('key')")`` runs there, and returns its result."""

    def __init__(self, machine, databases, **options):
        given = {"machine": str(machine), "databases": databases, "options": options}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.machine_process", json.dumps(given)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.pid = self._process.pid

    def __call__(self, code):
        self.begin(code)
        return self.end()

    def begin(self, code):
        """Run code without waiting for its result, which ``end`` returns."""
        self._process.stdin.write(json.dumps(code) + "\n")
        self._process.stdin.flush()

    def end(self):
        line = self._process.stdout.readline()
        assert line, "the process has ended"
        result, error = json.loads(line)
        if error:
            raise AssertionError(f"in the process of a machine: {error}")
        return result

    def keeps(self, key="k", value="value"):
        """Return whether a value that is stored now is returned afterwards: whether the notices are being read."""
        return self(f"[cache.get({key!r}), cache.get_or_set({key!r}, {value!r}), cache.get({key!r})][2]") == value

    def has_lost(self, key="k"):
        return self(f"cache.get({key!r})") is None

    def loads(self, key="k", value="value"):
        """Store a value as a reader does, as soon as the notices are being read."""
        assert until(lambda: self.keeps(key, value))

    def pause(self):
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self):
        os.kill(self.pid, signal.SIGCONT)

    def kill(self):
        self._process.kill()
        self._process.wait(PATIENCE)
        self._process.stdin.close()
        self._process.stdout.close()

    @property
    def reads_notices(self):
        """Whether this process is the reader of its machine: the file of the reader is locked by it."""
        return self("is_reader()")


class Machines:
    """Starts processes, and ends them.

    Args:
        options: for all processes: ``trust`` in seconds, ``tiered``, or options of the cache. By default, the values
            are trusted for as long as a busy machine may not run the reader, so only a notice outdates them.
    """

    def __init__(self, directory, databases, **options):
        self._directory = Path(directory)
        self.databases = databases
        self._options = {"trust": 60, **options}
        self._processes = []

    def process(self, machine="a", **options):
        path = self._directory / machine
        path.mkdir(mode=0o700, exist_ok=True)
        process = Process(path, options.pop("databases", self.databases), **{**self._options, **options})
        self._processes.append(process)
        return process

    def end(self):
        for process in self._processes:
            process.kill()
